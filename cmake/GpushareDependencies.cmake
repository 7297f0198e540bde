# SPDX-License-Identifier: Apache-2.0
# Outside libraries. scripts/setup installs them; nothing is vendored.

find_package(absl CONFIG REQUIRED)
include(GpushareStaticAbseil)
gpushare_use_static_abseil()

if(GPUSHARE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(GPUSHARE_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()
if(GPUSHARE_BUILD_CLI)
  find_package(CLI11 REQUIRED)
endif()
if(GPUSHARE_BUILD_CLI OR GPUSHARE_BUILD_BROKER)
  find_package(nlohmann_json REQUIRED)  # headers
endif()
if(GPUSHARE_BUILD_BROKER STREQUAL "AUTO")
  find_package(yaml-cpp QUIET)
  find_package(prometheus-cpp QUIET)
  set(GPUSHARE_BUILD_BROKER OFF)
  if(yaml-cpp_FOUND AND prometheus-cpp_FOUND)
    set(GPUSHARE_BUILD_BROKER ON)
  endif()
  message(STATUS "gpushare broker: ${GPUSHARE_BUILD_BROKER} (yaml-cpp ${yaml-cpp_FOUND}, prometheus-cpp ${prometheus-cpp_FOUND})")
endif()
if(GPUSHARE_BUILD_BROKER)
  find_package(yaml-cpp REQUIRED)
  find_package(prometheus-cpp REQUIRED)
endif()

find_package(ZLIB QUIET)  # compressed traces

# CUDA headers (never its libraries): the toolkit when there is one, else what scripts/setup fetched.
find_path(GPUSHARE_CUDA_INCLUDE_DIR cuda.h
  HINTS "${PROJECT_SOURCE_DIR}/.deps/cuda/include" ENV CUDA_HOME ENV CUDA_PATH
  PATHS /usr/local/cuda /usr/local/cuda-13.0
  PATH_SUFFIXES include)
if(NOT GPUSHARE_CUDA_INCLUDE_DIR)
  message(FATAL_ERROR "cuda.h was not found: install a CUDA toolkit (12.4 or newer) or run "
    "scripts/setup, which fetches the headers")
endif()
file(STRINGS "${GPUSHARE_CUDA_INCLUDE_DIR}/cuda.h" _cuda_version REGEX "^#define CUDA_VERSION [0-9]+")
string(REGEX REPLACE "[^0-9]" "" GPUSHARE_CUDA_HEADER_VERSION "${_cuda_version}")
if(GPUSHARE_CUDA_HEADER_VERSION LESS 12040)
  message(FATAL_ERROR "the CUDA headers in ${GPUSHARE_CUDA_INCLUDE_DIR} are of version "
    "${GPUSHARE_CUDA_HEADER_VERSION}; 12040 is the least")
endif()
message(STATUS "CUDA headers ${GPUSHARE_CUDA_HEADER_VERSION}: ${GPUSHARE_CUDA_INCLUDE_DIR}")
add_library(gpushare_cuda_headers INTERFACE)
target_include_directories(gpushare_cuda_headers SYSTEM INTERFACE "${GPUSHARE_CUDA_INCLUDE_DIR}")

# CCCL, for the test of gpushare/cuda_mr.h alone: what scripts/setup fetched, else the toolkit's if it is new enough.
foreach(folder IN ITEMS "${PROJECT_SOURCE_DIR}/.deps/cccl/include" "${GPUSHARE_CUDA_INCLUDE_DIR}/cccl")
  if(NOT GPUSHARE_CCCL_INCLUDE_DIR AND EXISTS "${folder}/cuda/std/__cccl/version.h")
    file(STRINGS "${folder}/cuda/std/__cccl/version.h" _cccl_version REGEX "^#define CCCL_VERSION [0-9]+")
    string(REGEX REPLACE "[^0-9]" "" _cccl_version "${_cccl_version}")
    if(_cccl_version GREATER_EQUAL 3001000)
      set(GPUSHARE_CCCL_INCLUDE_DIR "${folder}")
      message(STATUS "CCCL headers ${_cccl_version}: ${folder}")
    endif()
  endif()
endforeach()
