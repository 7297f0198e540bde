# SPDX-License-Identifier: Apache-2.0
# gpushare_test(<name> LABEL unit SOURCES a_test.cc ...
#               [LAYERS sched ...]          # their objects are linked, with those they depend on
#               [LIBRARIES ...] [ENV K=V ...] [TIMEOUT seconds]
#               [REDUCED]                   # also in the sanitizer passes of scripts/test --all
#               [TIMES_CALLS]               # compiled as the library is; else -O1, a third less for the compiler
#               [APART a_test.cc ...]       # never compiled together with others (gpushare_group_sources())
#               [SHARDS 2])                 # under a sanitizer: so many processes, started first
#
# One GoogleTest executable, registered case by case as <label>.<suite>.<case>; under a sanitizer as a whole,
# as <label>.<name>, and with the label `reduced` if it is REDUCED.
#
# Labels, one per folder of tests/: unit contract sim e2e stress fuzz package lint gpu bench-smoke.
include(GoogleTest)

# For the environment of tests in Python: modules are compiled once, and nothing is left beside the sources. What uv
# installs is not compiled, and each start of a program that imports Numba or Ray would do it again.
set(GPUSHARE_PYTHON_CACHE "PYTHONDONTWRITEBYTECODE=" "PYTHONPYCACHEPREFIX=${PROJECT_BINARY_DIR}/pycache")

function(gpushare_test name)
  cmake_parse_arguments(ARG "REDUCED;TIMES_CALLS" "LABEL;TIMEOUT;SHARDS" "SOURCES;LAYERS;LIBRARIES;ENV;APART" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "gpushare_test(${name}): unknown arguments ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_LABEL)
    message(FATAL_ERROR "gpushare_test(${name}) needs a LABEL")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  gpushare_group_sources(sources ${name} AT_MOST 6 APART ${ARG_APART} SOURCES ${ARG_SOURCES})
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE gpushare_options ${ARG_LIBRARIES} GTest::gmock_main GTest::gtest)
  _gpushare_use_test_headers(${name} "${ARG_TIMES_CALLS}")
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  gpushare_link_layers(${name} ${ARG_LAYERS})
  if(NOT ARG_TIMES_CALLS)
    # The test's own sources only; the objects of the layers are those that the library is made of. At -O1 gcc's
    # flow analysis loses track of std::optional.
    target_compile_options(${name} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>
      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
  if(ARG_REDUCED)
    add_dependencies(gpushare_reduced_tests ${name})
  endif()
  if(GPUSHARE_SANITIZE)
    _gpushare_sanitized_test(${name})
    return()
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${ARG_LABEL}." DISCOVERY_TIMEOUT 120 NO_PRETTY_VALUES NO_PRETTY_TYPES TEST_LIST ${name}_CASES)
  # CMake 3.25 flattens lists in gtest_discover_tests(PROPERTIES ...), which loses every property after
  # a second label or variable. So the properties are set by a script that ctest reads afterwards.
  set(properties "${CMAKE_CURRENT_BINARY_DIR}/${name}_properties.cmake")
  file(WRITE "${properties}"
    "foreach(case IN LISTS ${name}_CASES)\n"
    "  set_tests_properties(\"\${case}\" PROPERTIES\n"
    "    LABELS [==[${ARG_LABEL}]==] TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT [==[${ARG_ENV}]==])\n"
    "endforeach()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${properties}")
endfunction()

# What every test includes, compiled once: with gcc that is a third of the time of most tests. (clang's would be
# another for each set of options.)
function(_gpushare_use_test_headers name times_calls)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR CMAKE_BUILD_TYPE STREQUAL "Debug" OR times_calls OR NOT GPUSHARE_UNITY)
    return()
  endif()
  if(NOT TARGET gpushare_test_headers)
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/test_headers/test_headers.cc" CONTENT "" @ONLY)
    add_library(gpushare_test_headers OBJECT "${PROJECT_BINARY_DIR}/test_headers/test_headers.cc")
    target_link_libraries(gpushare_test_headers PRIVATE gpushare_options GTest::gmock_main GTest::gtest)
    target_compile_options(gpushare_test_headers PRIVATE -O1 -Wno-maybe-uninitialized -fpch-preprocess)
    target_precompile_headers(gpushare_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>
      <algorithm> <atomic> <chrono> <cstdint> <cstring> <functional> <map> <memory> <optional> <random> <string>
      <thread> <vector> <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h>)
  endif()
  target_precompile_headers(${name} REUSE_FROM gpushare_test_headers)
  # gcc 12 warns of its own std::string there, which it would not show of a header of the system.
  target_compile_options(${name} PRIVATE -fpch-preprocess -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
endfunction()

# A process per case costs more than the case there. Reads the arguments of gpushare_test().
function(_gpushare_sanitized_test name)
  math(EXPR timeout "${ARG_TIMEOUT} * 10")
  set(labels ${ARG_LABEL})
  if(ARG_REDUCED)
    list(APPEND labels reduced)
  endif()
  if(NOT ARG_SHARDS)
    add_test(NAME ${ARG_LABEL}.${name} COMMAND ${name})
    set_tests_properties(${ARG_LABEL}.${name} PROPERTIES
      LABELS "${labels}" TIMEOUT ${timeout} ENVIRONMENT "${ARG_ENV}")
    return()
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    math(EXPR index "${shard} - 1")
    set(environment ${ARG_ENV} GTEST_TOTAL_SHARDS=${ARG_SHARDS} GTEST_SHARD_INDEX=${index})
    add_test(NAME ${ARG_LABEL}.${name}.${shard} COMMAND ${name})
    set_tests_properties(${ARG_LABEL}.${name}.${shard} PROPERTIES
      LABELS "${labels}" TIMEOUT ${timeout} ENVIRONMENT "${environment}" COST 100)
  endforeach()
endfunction()

# gpushare_benchmark(<name> SOURCES ... [LAYERS ...] [LIBRARIES ...]): a Google Benchmark executable.
function(gpushare_benchmark name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LAYERS;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE gpushare_options ${ARG_LIBRARIES} benchmark::benchmark)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  gpushare_link_layers(${name} ${ARG_LAYERS})
endfunction()

# gpushare_fuzzer(<name> SOURCES ... [LAYERS ...] [CORPUS folder] [DICTIONARY file] [LONG])
#
# LONG: takes much to build; scripts/test leaves it out unless --all.
# A libFuzzer target, in the `fuzz` preset only (elsewhere the call does nothing). It runs for one second
# as the test fuzz.<name>; run the executable by hand for longer. CORPUS holds seeds and past findings.
function(gpushare_fuzzer name)
  if(NOT GPUSHARE_BUILD_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(ARG "LONG" "CORPUS;DICTIONARY" "SOURCES;LAYERS;LIBRARIES" ${ARGN})
  gpushare_group_sources(sources ${name} SOURCES ${ARG_SOURCES})
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE gpushare_options ${ARG_LIBRARIES})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  gpushare_link_layers(${name} ${ARG_LAYERS})
  if(ARG_LONG)
    add_dependencies(gpushare_long_fuzzers ${name})
  else()
    add_dependencies(gpushare_fuzzers ${name})
  endif()
  # New inputs go to the build folder; the corpus in the source tree is only read.
  set(found "${CMAKE_CURRENT_BINARY_DIR}/${name}_found")
  file(MAKE_DIRECTORY "${found}")
  set(arguments -max_total_time=1 -timeout=10 -rss_limit_mb=2048 -artifact_prefix=${found}/ -print_final_stats=1)
  if(ARG_DICTIONARY)
    list(APPEND arguments "-dict=${CMAKE_CURRENT_SOURCE_DIR}/${ARG_DICTIONARY}")
  endif()
  list(APPEND arguments "${found}")
  if(ARG_CORPUS)
    list(APPEND arguments "${CMAKE_CURRENT_SOURCE_DIR}/${ARG_CORPUS}")
  endif()
  add_test(NAME fuzz.${name} COMMAND ${name} ${arguments})
  set(labels fuzz)
  if(ARG_LONG)
    list(APPEND labels long)
  endif()
  set_tests_properties(fuzz.${name} PROPERTIES LABELS "${labels}" TIMEOUT 60)
endfunction()
# What scripts/test --all builds under the sanitizers.
if(NOT TARGET gpushare_reduced_tests)
  add_custom_target(gpushare_reduced_tests)
endif()
if(GPUSHARE_BUILD_FUZZERS AND NOT TARGET gpushare_fuzzers)
  add_custom_target(gpushare_fuzzers)
  add_custom_target(gpushare_long_fuzzers)
endif()
