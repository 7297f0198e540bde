# SPDX-License-Identifier: Apache-2.0
# gpushare_options: the compile options of every target of this project, and of nobody else's.
add_library(gpushare_options INTERFACE)
target_compile_features(gpushare_options INTERFACE cxx_std_20)
target_include_directories(gpushare_options INTERFACE
  "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
target_compile_options(gpushare_options INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wmissing-declarations>
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wmissing-prototypes>
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>)
# gcc 12 warns of std::string's own copies at -O3 (GCC bug 105651).
target_compile_options(gpushare_options INTERFACE
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>)
if(GPUSHARE_WERROR)
  target_compile_options(gpushare_options INTERFACE -Werror)
endif()

if(GPUSHARE_SANITIZE)
  target_compile_options(gpushare_options INTERFACE
    -fsanitize=${GPUSHARE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(gpushare_options INTERFACE -fsanitize=${GPUSHARE_SANITIZE})
  # gcc's flow analysis loses track of std::optional in instrumented code.
  target_compile_options(gpushare_options INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
if(GPUSHARE_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "GPUSHARE_BUILD_FUZZERS needs clang; use `cmake --preset fuzz`")
  endif()
  # Everything that a fuzzer may link is instrumented; only the fuzzers get libFuzzer's main().
  target_compile_options(gpushare_options INTERFACE
    -fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=all
    -fno-sanitize=function)  # entry points are called by table, with int for the driver's enumerations
  target_link_options(gpushare_options INTERFACE -fsanitize=address,undefined)
endif()

if(GPUSHARE_TIDY)
  find_program(GPUSHARE_CLANG_TIDY NAMES clang-tidy-14 clang-tidy REQUIRED)
endif()

# Compiler cache, when there is one and nobody chose otherwise.
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(GPUSHARE_CCACHE ccache)
  if(GPUSHARE_CCACHE)
    # One build folder's results serve another's; debug information names the first.
    set(launcher env CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime)
    # Nor does its name: sources that the build makes are known by their place in it.
    execute_process(COMMAND "${GPUSHARE_CCACHE}" --get-config base_dir
      OUTPUT_VARIABLE base OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT base)
      list(APPEND launcher "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}")
    endif()
    list(APPEND launcher "${GPUSHARE_CCACHE}")
    set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  endif()
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
target_link_libraries(gpushare_options INTERFACE Threads::Threads ${CMAKE_DL_LIBS})

# A shared library without undefined names, but where a sanitizer's runtime is in the program that loads it.
function(gpushare_link_complete target)
  if(NOT GPUSHARE_SANITIZE AND NOT GPUSHARE_BUILD_FUZZERS)
    target_link_options(${target} PRIVATE "LINKER:-z,defs")
  endif()
endfunction()
