# SPDX-License-Identifier: Apache-2.0
# gpushare_group_sources(<variable> <name> [AT_MOST 12] [APART b.cc ...] SOURCES a.cc b.cc ...)
#
# Three quarters of the time of most sources goes into the headers that they share. So they are compiled in groups,
# as sources that include them; with GPUSHARE_UNITY=OFF each by itself, which is what finds a missing #include. Names
# of unnamed namespaces and macros must be unique in a group.
#
# CMake's own UNITY_BUILD writes absolute paths into such sources: a compiler cache would know them in this folder only.
function(gpushare_group_sources variable name)
  cmake_parse_arguments(ARG "" "AT_MOST" "APART;SOURCES" ${ARGN})
  set(parts ${ARG_SOURCES})
  list(FILTER parts INCLUDE REGEX "\\.cc$")
  list(REMOVE_ITEM parts ${ARG_APART} "")
  list(LENGTH parts count)
  if(NOT GPUSHARE_UNITY OR count LESS 2)
    set(${variable} ${ARG_SOURCES} PARENT_SCOPE)
    return()
  endif()
  # Groups of about equal size, and not larger: an edit costs its whole group.
  if(NOT ARG_AT_MOST)
    set(ARG_AT_MOST 12)
  endif()
  math(EXPR groups "(${count} + ${ARG_AT_MOST} - 1) / ${ARG_AT_MOST}")
  set(compiled ${ARG_SOURCES})
  list(REMOVE_ITEM compiled ${parts})
  set(begin 0)
  foreach(group RANGE 1 ${groups})
    math(EXPR end "${count} * ${group} / ${groups}")
    set(text "")
    while(begin LESS end)
      list(GET parts ${begin} source)
      cmake_path(ABSOLUTE_PATH source NORMALIZE)
      # As seen from the folders that includes are looked for in.
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
      string(REGEX REPLACE "^src/" "" source "${source}")
      string(APPEND text "#include \"${source}\"\n")
      math(EXPR begin "${begin} + 1")
    endwhile()
    set(unity "${CMAKE_CURRENT_BINARY_DIR}/${name}_${group}.cc")
    file(CONFIGURE OUTPUT "${unity}" CONTENT "${text}" @ONLY)
    list(APPEND compiled "${unity}")
  endforeach()
  set(${variable} ${compiled} PARENT_SCOPE)
endfunction()
