#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs gpushare into a separate folder and builds programs with the installed files.

`install` comes first (CTest does so through a fixture); every other case is a function below.
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys


class Failure(Exception):
    pass


def call(command, **options):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    printed = result.stdout.decode(errors="replace")
    if result.returncode:
        raise Failure("%s\nexits with %d:\n%s" % (" ".join(command), result.returncode, printed))
    return printed


class Tree:
    """The installed tree and the tools to use it."""

    def __init__(self, options):
        self.options = options
        self.source = options.source
        self.prefix = options.prefix
        self.lib = os.path.join(self.prefix, options.libdir)
        self.work = os.path.join(os.path.dirname(self.prefix), options.case)

    def fresh(self):
        shutil.rmtree(self.work, ignore_errors=True)
        os.makedirs(self.work)
        return self.work

    def environment(self, **extra):
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("GPUSHARE") and key not in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
        environment["LD_LIBRARY_PATH"] = self.lib
        environment["PKG_CONFIG_PATH"] = os.path.join(self.lib, "pkgconfig")
        environment["GPUSHARE_DRIVER"] = "sim"
        environment.update(extra)
        return environment

    def pkg_config(self, name, *flags):
        return call(["pkg-config", *flags, name], env=self.environment()).split()

    def run(self, program, **extra):
        printed = call([program], env=self.environment(**extra))
        if not re.search(r"^consumer: ok$", printed, re.M):
            raise Failure("%s does not say that all went well:\n%s" % (program, printed))
        return printed

    def library(self):
        return os.path.join(self.lib, "libgpushare.so")


def install(tree):
    """Installs everything and moves it; no installed file names the place where it was built."""
    first = tree.prefix + ".first"
    for folder in (first, tree.prefix):
        shutil.rmtree(folder, ignore_errors=True)
    build = tree.options.build
    call([tree.options.cmake, "--install", build, "--prefix", first])
    os.rename(first, tree.prefix)
    for path in glob.glob(os.path.join(tree.prefix, "**", "*"), recursive=True):
        if not os.path.isfile(path):
            continue
        if path.endswith((".cmake", ".pc", ".h")):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            for folder in (first, build):
                if folder in text:
                    raise Failure("%s names %s" % (path, folder))
        with open(path, "rb") as file:
            is_object = file.read(4) == b"\x7fELF"
        if is_object:
            dynamic = call(["readelf", "-d", path])
            if re.search(r"\((RPATH|RUNPATH)\)[^\[]*\[(?!\$ORIGIN/)", dynamic):
                raise Failure("%s carries an RPATH that does not move with it:\n%s" % (path, dynamic))
            # The benchmark program that imitates ordinary programs is linked with the driver.
            forbidden = "libabsl" if path.endswith("/bench/native") else "libabsl|libcuda"
            if re.search(r"NEEDED.*(%s)" % forbidden, dynamic):
                raise Failure("%s needs a library that it should not:\n%s" % (path, dynamic))
    completion = os.path.join(tree.prefix, "share/bash-completion/completions/gpushare")
    if os.path.exists(os.path.join(tree.prefix, "bin/gpushare")):
        with open(completion, encoding="utf-8") as file:
            if "complete -o default -F _gpushare gpushare" not in file.read():
                raise Failure("%s completes nothing" % completion)


def build_with_cmake(tree, language):
    work = tree.fresh()
    compiler = tree.options.cc if language == "C" else tree.options.cxx
    call([tree.options.cmake, "-S", os.path.join(tree.source, "consumer"), "-B", work, "-G", "Ninja",
          "-DCMAKE_PREFIX_PATH=" + tree.prefix, "-DCONSUMER_LANGUAGE=" + language,
          "-DCMAKE_%s_COMPILER=%s" % ("C" if language == "C" else "CXX", compiler)])
    call([tree.options.cmake, "--build", work])
    return os.path.join(work, "consumer")


def find_package_c(tree):
    """A C project, which needs neither a C++ compiler nor Abseil."""
    tree.run(build_with_cmake(tree, "C"))


def find_package_cxx(tree):
    """A C++ project with its own Abseil, which gpushareConfig.cmake finds."""
    tree.run(build_with_cmake(tree, "CXX"))


def build_c(tree):
    program = os.path.join(tree.fresh(), "consumer")
    call([tree.options.cc, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
          os.path.join(tree.source, "consumer", "consumer.c"), "-o", program,
          *tree.pkg_config("gpushare-c", "--cflags", "--libs")])
    return program


def pkg_config_c(tree):
    tree.run(build_c(tree))


def pkg_config_cxx(tree):
    program = os.path.join(tree.fresh(), "consumer")
    call([tree.options.cxx, "-std=c++20", "-Wall", "-Wextra", "-Werror",
          os.path.join(tree.source, "consumer", "consumer.cc"), "-o", program,
          *tree.pkg_config("gpushare", "--cflags", "--libs")])
    tree.run(program)


def rename_abseil(folder, compiler):
    """Makes an Abseil with another inline namespace: the system's archives with every symbol renamed, and its headers behind another
    options.h. Returns the flags to build with it."""
    options = call([compiler, "-E", "-dM", "-x", "c++", "-include", "absl/base/options.h", "/dev/null"])
    defines = dict(re.findall(r"#define (ABSL_OPTION_\w+) (\S+)", options))
    if defines.get("ABSL_OPTION_USE_INLINE_NAMESPACE") != "1":
        raise Failure("the system's Abseil has no inline namespace to tell it from another by")
    name = defines["ABSL_OPTION_INLINE_NAMESPACE_NAME"]
    other = ("other" + "x" * len(name))[:len(name)]  # as long as the old name, so that mangled names stay well-formed

    include = os.path.join(folder, "include", "absl", "base")
    os.makedirs(include)
    with open(os.path.join(include, "options.h"), "w", encoding="utf-8") as file:
        file.write("#ifndef ABSL_BASE_OPTIONS_H_\n#define ABSL_BASE_OPTIONS_H_\n")
        for key, value in sorted(defines.items()):
            file.write("#define %s %s\n" % (key, other if value == name else value))
        file.write("#endif\n")

    flags = ["-I" + os.path.join(folder, "include")]
    libraries = call(["pkg-config", "--static", "--libs", "absl_status", "absl_statusor", "absl_cord",
                      "absl_time"]).split()
    mangled, renamed = "%d%s" % (len(name), name), "%d%s" % (len(other), other)
    for flag in libraries:
        if not flag.startswith("-labsl_"):
            flags.append(flag)
            continue
        archive = call([compiler, "-print-file-name=lib%s.a" % flag[2:]]).strip()
        if not os.path.isabs(archive):
            continue  # a header-only library
        symbols = {word for line in call(["nm", archive]).splitlines() for word in line.split()[-1:]
                   if mangled in word}
        table = os.path.join(folder, "symbols")
        with open(table, "w", encoding="utf-8") as file:
            file.write("".join("%s %s\n" % (s, s.replace(mangled, renamed)) for s in sorted(symbols)))
        copy = os.path.join(folder, os.path.basename(archive))
        call(["objcopy", "--redefine-syms=" + table, archive, copy])
        flags.append(copy)
    return flags


def namespaces(path):
    """The inline namespaces of Abseil's functions in a file."""
    found = re.findall(r"_ZNK?4absl(\d+)(\w+)", call(["nm", path]))
    return {rest[:int(length)] for length, rest in found}


def other_abseil(tree):
    """A C++ program whose Abseil has another inline namespace than the library's.

    With GPUSHARE_OTHER_ABSEIL=<prefix> it uses the Abseil installed there, in any version.
    """
    program = os.path.join(tree.fresh(), "consumer")
    ours = tree.pkg_config("gpushare-c", "--cflags", "--libs")
    prefix = os.environ.get("GPUSHARE_OTHER_ABSEIL")
    if prefix:
        environment = tree.environment()
        environment["PKG_CONFIG_PATH"] = ":".join(
            os.path.join(prefix, folder, "pkgconfig") for folder in ("lib", "lib64"))
        theirs = call(["pkg-config", "--static", "--cflags", "--libs", "absl_status", "absl_statusor",
                       "absl_cord", "absl_time"], env=environment).split()
    else:
        theirs = rename_abseil(tree.work, tree.options.cxx)
    includes = [flag for flag in theirs if flag.startswith("-I")]
    call([tree.options.cxx, "-std=c++20", "-Wall", "-Wextra", *includes,
          os.path.join(tree.source, "consumer", "consumer.cc"), "-o", program, *ours, *theirs])
    # The program really contains another Abseil than the library.
    inside, library = namespaces(program), namespaces(tree.library())
    print("Abseil's namespace in the program: %s, in the library: %s" %
          (", ".join(sorted(inside)), ", ".join(sorted(library))))
    if not inside or not library or inside & library:
        raise Failure("the program does not use another Abseil than the library")
    tree.run(program)


def poisoned_abseil(tree):
    """An object that the loader searches first defines every Abseil function of the library again, as abort(). The program would
    die if a function inside the library could be replaced from outside."""
    program = build_c(tree)
    # The symbols that it defines. (It also has a weak reference to an initializer of a thread-local variable,
    # _ZTH..., which no Abseil defines since the variable is constant-initialized.)
    names = sorted({line.split()[-1] for line in call(["nm", "--defined-only", tree.library()]).splitlines()
                    if re.search(r" [tTW] _Z\w*4absl\w*$", line)})
    if len(names) < 100:
        raise Failure("only %d Abseil functions found in the library" % len(names))
    source = os.path.join(tree.work, "poison.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write("#include <stdlib.h>\n")
        file.write("".join("void %s(void) { abort(); }\n" % name for name in names))
    poison = os.path.join(tree.work, "poison.so")
    call([tree.options.cc, "-shared", "-fPIC", "-w", source, "-o", poison])
    tree.run(program, LD_PRELOAD=poison)
    print("%d Abseil functions of the library cannot be replaced from outside" % len(names))


# Loads the library like a program that is not linked with it. Such a library has only a small common space for
# thread-local variables (glibc has some 1600 bytes for all libraries together).
LOADED_LATE = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.gpushare_version.restype = library.gpushare_last_message.restype = ctypes.c_char_p

class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("driver", ctypes.c_char_p),
                ("simulation", ctypes.c_char_p), ("memory_reserve", ctypes.c_uint64),
                ("no_memory_reserve", ctypes.c_int32), ("reserved2", ctypes.c_int32)]

options = Options(struct_size=ctypes.sizeof(Options), driver=b"sim", simulation=b"memory=8GiB")
runtime, gpu = ctypes.c_void_p(), ctypes.c_void_p()
for status in (library.gpushare_runtime_create(ctypes.byref(options), ctypes.byref(runtime)),
               library.gpushare_gpu_open(runtime, b"0", None, ctypes.byref(gpu))):
    assert status == 0, library.gpushare_last_message()
assert library.gpushare_gpu_open(runtime, b"7", None, ctypes.byref(gpu)) == 5
assert b"'7'" in library.gpushare_last_message()
print("loaded", library.gpushare_version().decode())
"""


def loaded_late(tree):
    """dlopen() from a program that is not linked with the library."""
    most = 256
    for path in (tree.library(), os.path.join(tree.lib, "gpushare", "sim", "libcuda.so.1")):
        segments = re.findall(r"^\s*TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+0x([0-9a-f]+)", call(["readelf", "-lW", path]), re.M)
        size = sum(int(segment, 16) for segment in segments)
        print("%s: %d bytes of thread-local variables" % (os.path.basename(path), size))
        if size > most:
            raise Failure("%s has %d bytes of thread-local variables, %d are allowed" % (path, size, most))
    print(call([sys.executable, "-c", LOADED_LATE, tree.library()], env=tree.environment()), end="")


def version(tree):
    """CMake refuses another minor version, and so does the loader, since the version is in the library's name."""
    said = subprocess.run(["readelf", "-d", tree.library()], check=True, capture_output=True, text=True).stdout
    names = re.findall(r"\(SONAME\).*\[(.*)\]", said)
    with open(os.path.join(tree.prefix, "include", "gpushare", "version.h"), encoding="utf-8") as file:
        numbers = dict(re.findall(r"#define GPUSHARE_VERSION_(MAJOR|MINOR) (\d+)", file.read()))
    if names != [f"libgpushare.so.{numbers['MAJOR']}.{numbers['MINOR']}"]:
        raise Failure(f"the library calls itself {names}, of version {numbers}")
    work = tree.fresh()
    with open(os.path.join(work, "CMakeLists.txt"), "w", encoding="utf-8") as file:
        file.write("cmake_minimum_required(VERSION 3.25)\nproject(version LANGUAGES C)\n"
                   "find_package(gpushare 0.99 QUIET)\n"
                   "if(gpushare_FOUND)\n  message(FATAL_ERROR \"0.99 was accepted\")\nendif()\n"
                   "find_package(gpushare REQUIRED)\n")
    call([tree.options.cmake, "-S", work, "-B", os.path.join(work, "build"), "-G", "Ninja",
          "-DCMAKE_PREFIX_PATH=" + tree.prefix])


CASES = (install, find_package_c, find_package_cxx, pkg_config_c, pkg_config_cxx, other_abseil,
         poisoned_abseil, loaded_late, version)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=[case.__name__ for case in CASES])
    for name in ("source", "prefix", "libdir", "cmake", "cc", "cxx"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--build")
    options = parser.parse_args()
    try:
        {case.__name__: case for case in CASES}[options.case](Tree(options))
    except Failure as failure:
        print(failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
