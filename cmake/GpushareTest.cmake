# gpushare_test(<name> LABEL unit SOURCES a_test.cc... LAYERS sched ... [LIBRARIES ...] [ENV "K=V"...])
#
# One GoogleTest executable, registered case by case under one ctest label (a second label and the
# timeout would be lost by gtest_discover_tests in CMake 3.25, so both are set on the directory's tests
# through properties of the single label). LAYERS pulls in the object files of the layers, transitively.
include(GoogleTest)

function(gpushare_link_layers target)
  set(pending ${ARGN})
  set(seen "")
  while(pending)
    list(POP_FRONT pending layer)
    if(layer IN_LIST seen)
      continue()
    endif()
    list(APPEND seen ${layer})
    target_link_libraries(${target} PRIVATE gpushare_${layer})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:gpushare_${layer}>)
    get_target_property(libs gpushare_${layer} LINK_LIBRARIES)
    foreach(lib IN LISTS libs)
      if(lib MATCHES "^gpushare_([a-z]+)$" AND NOT lib MATCHES "options|headers")
        list(APPEND pending ${CMAKE_MATCH_1})
      endif()
    endforeach()
  endwhile()
endfunction()

function(gpushare_test name)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;LAYERS;LIBRARIES;ENV" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE gpushare_options GTest::gmock_main GTest::gtest ${ARG_LIBRARIES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  gpushare_link_layers(${name} ${ARG_LAYERS})
  gtest_discover_tests(${name} TEST_PREFIX "${ARG_LABEL}." DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS "${ARG_LABEL}" ENVIRONMENT "${ARG_ENV}")
endfunction()

# gpushare_benchmark(<name> SOURCES ... LAYERS ...): a Google Benchmark executable.
function(gpushare_benchmark name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LAYERS;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE gpushare_options benchmark::benchmark ${ARG_LIBRARIES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  gpushare_link_layers(${name} ${ARG_LAYERS})
endfunction()
