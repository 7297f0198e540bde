# SPDX-License-Identifier: Apache-2.0
# gpushare_product(<target> EXPORTS <version script> LAYERS <layer>...)
#
# Makes of <target>, a SHARED library, something that can be loaded into other people's programs: the
# layers inside, Abseil inside and hidden, and nothing exported but what the version script names.

# libstdc++ is inside too: Debian's Abseil archives are compiled for executables, and their references
# to libstdc++'s data resolve in a shared library only if that data is in it. It also means that a product
# asks nothing of its host but the C library and libgcc_s. That has the unwinder, of which a process needs one: a thread that
# is cancelled (pthread_cancel) in the driver is unwound by the C library's, which is libgcc_s too, through what is called here.

# Can Abseil's archives go into a shared library as they are? Debian's cannot, for their thread-local
# variables; src/product/abseil_thread_locals.cc stands in for those.
function(_gpushare_probe_abseil)
  if(DEFINED GPUSHARE_ABSEIL_IS_PIC)
    return()
  endif()
  set(folder "${PROJECT_BINARY_DIR}/CMakeFiles/abseil_probe")
  file(WRITE "${folder}/probe.cc" "#include \"absl/status/statusor.h\"\n"
    "int probe(const char* text) {\n"
    "  absl::Status status = absl::NotFoundError(text);\n"
    "  status.SetPayload(\"a\", absl::Cord(text));\n"
    "  return static_cast<int>(status.ToString().size());\n}\n")
  file(WRITE "${folder}/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)\n"
    "project(probe LANGUAGES CXX)\n"
    "set(CMAKE_CXX_STANDARD 20)\n"
    "list(APPEND CMAKE_MODULE_PATH \"${PROJECT_SOURCE_DIR}/cmake\")\n"
    "find_package(Threads REQUIRED)\n"
    "find_package(absl CONFIG REQUIRED)\n"
    "include(GpushareStaticAbseil)\n"
    "gpushare_use_static_abseil()\n"
    "add_library(probe SHARED probe.cc)\n"
    "target_link_libraries(probe PRIVATE absl::status absl::statusor)\n"
    "target_link_options(probe PRIVATE LINKER:--exclude-libs,ALL LINKER:-z,defs\n"
    "  -static-libstdc++ -static-libgcc)\n")
  try_compile(is_pic PROJECT probe SOURCE_DIR "${folder}" BINARY_DIR "${folder}/build"
    CMAKE_FLAGS "-Dabsl_DIR=${absl_DIR}" OUTPUT_VARIABLE output)
  set(GPUSHARE_ABSEIL_IS_PIC ${is_pic} CACHE INTERNAL "Abseil's archives can go into a shared library")
  if(is_pic)
    message(STATUS "Abseil's archives are position-independent")
  elseif(output MATCHES "R_[A-Z0-9_]*(TPOFF|TPREL|TLSLE)")
    message(STATUS "Abseil's archives are for executables only; thread-local variables are stood in for")
  else()
    message(FATAL_ERROR "Abseil's archives cannot be linked into a shared library; build Abseil with "
      "-DCMAKE_POSITION_INDEPENDENT_CODE=ON. The linker says:\n${output}")
  endif()
endfunction()

function(gpushare_product target)
  cmake_parse_arguments(ARG "" "EXPORTS" "LAYERS" ${ARGN})
  _gpushare_probe_abseil()
  gpushare_link_layers(${target} ${ARG_LAYERS})
  if(NOT GPUSHARE_ABSEIL_IS_PIC)
    target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src/product/abseil_thread_locals.cc")
  endif()
  # Without --gc-sections the library has parts of libstdc++ that nothing calls, and these need a newer glibc than
  # containers often have: std::random_device 2.36, where all else needs 2.34.
  target_link_options(${target} PRIVATE
    "LINKER:--version-script=${ARG_EXPORTS}" "LINKER:--exclude-libs,ALL" "LINKER:--gc-sections"
    -static-libstdc++)
  gpushare_link_complete(${target})
  set_target_properties(${target} PROPERTIES
    LINKER_LANGUAGE CXX
    POSITION_INDEPENDENT_CODE ON
    LINK_DEPENDS "${ARG_EXPORTS}")
endfunction()
