# Outside libraries. scripts/setup installs them; nothing is vendored.
#
# Abseil is linked statically and hidden: the library carries its own copy, and none of its symbols
# leave it (see docs/api-and-abi.md).
set(_gpushare_libraries_suffix ${CMAKE_FIND_LIBRARY_SUFFIXES})
find_package(absl CONFIG REQUIRED)

# Prefer Abseil's static archives even where the distribution's package lists the shared ones.
foreach(target IN ITEMS status statusor strings time base synchronization hash
        flat_hash_map flat_hash_set inlined_vector span strings_internal)
  if(NOT TARGET absl::${target})
    message(STATUS "absl::${target} is not in this Abseil")
  endif()
endforeach()

if(GPUSHARE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(GPUSHARE_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()
if(GPUSHARE_BUILD_CLI)
  find_package(CLI11 REQUIRED)
endif()

# CUDA headers (never its libraries): the toolkit when there is one, else what scripts/setup fetched.
find_path(GPUSHARE_CUDA_INCLUDE_DIR cuda.h
  HINTS "${PROJECT_SOURCE_DIR}/.deps/cuda/include" ENV CUDA_HOME ENV CUDA_PATH
  PATHS /usr/local/cuda /usr/local/cuda-13.0
  PATH_SUFFIXES include)
if(NOT GPUSHARE_CUDA_INCLUDE_DIR)
  message(FATAL_ERROR "cuda.h was not found: install a CUDA toolkit (12.4 or newer) or run scripts/setup, which fetches the headers")
endif()
file(STRINGS "${GPUSHARE_CUDA_INCLUDE_DIR}/cuda.h" _cuda_version REGEX "^#define CUDA_VERSION [0-9]+")
string(REGEX REPLACE "[^0-9]" "" GPUSHARE_CUDA_HEADER_VERSION "${_cuda_version}")
if(GPUSHARE_CUDA_HEADER_VERSION LESS 12040)
  message(FATAL_ERROR "CUDA headers ${GPUSHARE_CUDA_HEADER_VERSION} in ${GPUSHARE_CUDA_INCLUDE_DIR} are too old: 12040 is the least")
endif()
message(STATUS "CUDA headers ${GPUSHARE_CUDA_HEADER_VERSION}: ${GPUSHARE_CUDA_INCLUDE_DIR}")
add_library(gpushare_cuda_headers INTERFACE)
target_include_directories(gpushare_cuda_headers SYSTEM INTERFACE "${GPUSHARE_CUDA_INCLUDE_DIR}")
