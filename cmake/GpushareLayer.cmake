# SPDX-License-Identifier: Apache-2.0
# Layers, and the rule that keeps them one-way.
#
#   gpushare_layer(NAME gate RANK 3
#                  SOURCES gate.h gate.cc ...
#                  LAYERS base sched meter        # direct dependencies, all of lower rank
#                  LIBRARIES absl::status
#                  APART slow.cc                 # never compiled together with others
#                  [COLD]                         # nothing that is timed waits for it: compiled sooner than run
#                  [NAMES_CUDA])                  # may name cu* symbols and include <cuda.h>
#
# Declares the OBJECT library `gpushare_<name>` and fails the configure step when
#   * a dependency does not have a lower rank,
#   * a source includes a header of a layer that is not declared here, or by a path with . or ..,
#   * a layer without NAMES_CUDA includes a CUDA header or names a driver entry point.
include("${CMAKE_CURRENT_LIST_DIR}/GpushareUnity.cmake")

function(gpushare_layer)
  cmake_parse_arguments(ARG "NAMES_CUDA;COLD" "NAME;RANK" "SOURCES;LAYERS;LIBRARIES;APART" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "gpushare_layer(${ARG_NAME}): unknown arguments ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  set_property(GLOBAL PROPERTY GPUSHARE_LAYER_RANK_${ARG_NAME} ${ARG_RANK})
  set_property(GLOBAL APPEND PROPERTY GPUSHARE_LAYERS ${ARG_NAME})

  foreach(dep IN LISTS ARG_LAYERS)
    get_property(rank GLOBAL PROPERTY GPUSHARE_LAYER_RANK_${dep})
    if("${rank}" STREQUAL "")
      message(FATAL_ERROR "layer '${ARG_NAME}' (rank ${ARG_RANK}) depends on '${dep}', which is not a layer declared before it")
    endif()
    if(NOT rank LESS ARG_RANK)
      message(FATAL_ERROR "layer '${ARG_NAME}' (rank ${ARG_RANK}) may not depend on '${dep}' (rank ${rank})")
    endif()
  endforeach()

  foreach(source IN LISTS ARG_SOURCES)
    _gpushare_check_source(${ARG_NAME} "${source}" "${ARG_LAYERS}" ${ARG_NAMES_CUDA})
  endforeach()

  gpushare_group_sources(compiled ${ARG_NAME} APART ${ARG_APART} SOURCES ${ARG_SOURCES})
  add_library(gpushare_${ARG_NAME} OBJECT ${compiled})
  target_link_libraries(gpushare_${ARG_NAME} PUBLIC gpushare_options ${ARG_LIBRARIES})
  foreach(dep IN LISTS ARG_LAYERS)
    target_link_libraries(gpushare_${ARG_NAME} PUBLIC gpushare_${dep})
  endforeach()
  if(ARG_NAMES_CUDA)
    target_link_libraries(gpushare_${ARG_NAME} PUBLIC gpushare_cuda_headers)
  endif()
  set_target_properties(gpushare_${ARG_NAME} PROPERTIES
    POSITION_INDEPENDENT_CODE ON
    GPUSHARE_LAYERS "${ARG_LAYERS}")
  # libgpushare.so has its thread-local variables in the loader's static storage in any case, for some of libstdc++'s
  # and Abseil's are compiled so; a call into the loader for each of ours would double what a launch costs.
  target_compile_options(gpushare_${ARG_NAME} PRIVATE -ftls-model=initial-exec)
  if(ARG_COLD)
    target_compile_options(gpushare_${ARG_NAME} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  endif()
  if(GPUSHARE_TIDY)
    set_target_properties(gpushare_${ARG_NAME} PROPERTIES CXX_CLANG_TIDY "${GPUSHARE_CLANG_TIDY}")
  endif()
endfunction()

# gpushare_link_layers(<target> <layer>...): links the objects of the layers and of all layers beneath.
#
# CMake takes the objects of an OBJECT library only where it is linked directly, so each is named here
# exactly once, whatever the number of paths to it.
function(gpushare_link_layers target)
  set(pending ${ARGN})
  set(seen "")
  while(pending)
    list(POP_FRONT pending layer)
    if(layer IN_LIST seen)
      continue()
    endif()
    if(NOT TARGET gpushare_${layer})
      message(FATAL_ERROR "${target}: '${layer}' is not a layer declared before it")
    endif()
    list(APPEND seen ${layer})
    target_link_libraries(${target} PRIVATE gpushare_${layer})
    get_target_property(below gpushare_${layer} GPUSHARE_LAYERS)
    if(below)
      list(APPEND pending ${below})
    endif()
  endwhile()
endfunction()

function(_gpushare_check_source layer source allowed names_cuda)
  file(READ "${source}" text)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
  string(REGEX MATCHALL "#[ \t]*include[ \t]+[\"<][^\">]+[\">]" includes "${text}")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE ".*[\"<]([^\">]+)[\">]" "\\1" path "${include}")
    # A list (.def) has no rank: the simulated GPU, which depends on no layer, has that of entry points from driver.
    if(path MATCHES "(^|/)\\.\\.?/" AND NOT path MATCHES "\\.def$")
      message(FATAL_ERROR "layer '${layer}': ${source} includes \"${path}\"; includes are relative to src")
    elseif(path MATCHES "^(cuda|nvml)[A-Za-z_]*\\.h$")
      if(NOT names_cuda)
        message(FATAL_ERROR "layer '${layer}': ${source} includes <${path}>; only driver, books, work, shim and sim may")
      endif()
    elseif(path MATCHES "^([a-z]+)/")
      set(other ${CMAKE_MATCH_1})
      if(IS_DIRECTORY "${PROJECT_SOURCE_DIR}/src/${other}"
         AND NOT other STREQUAL layer AND NOT other IN_LIST allowed)
        message(FATAL_ERROR "layer '${layer}': ${source} includes \"${path}\", but '${other}' is not among its LAYERS")
      endif()
    endif()
  endforeach()
  if(NOT names_cuda)
    # Comments may speak of entry points; code may not.
    string(REGEX REPLACE "//[^\n]*" "" code "${text}")
    string(REGEX REPLACE "\"[^\"\n]*\"" "" code "${code}")
    if(code MATCHES "(^|[^A-Za-z0-9_])(cu[A-Z][A-Za-z0-9_]*)")
      message(FATAL_ERROR "layer '${layer}': ${source} names '${CMAKE_MATCH_2}'; only driver, books, work, shim and sim may")
    endif()
  endif()
endfunction()
