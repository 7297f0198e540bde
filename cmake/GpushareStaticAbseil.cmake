# SPDX-License-Identifier: Apache-2.0
# Abseil is linked statically and hidden: every product carries its own copy and none of its symbols
# leave it, so a program with another Abseil can load gpushare (see docs/compatibility.md).
#
# Debian's absl package describes the shared libraries, though the archives (position-independent) lie
# beside them. gpushare_use_static_abseil() points the imported targets at the archives; where Abseil
# comes as archives only there is nothing to do.

function(gpushare_use_static_abseil)
  get_property(targets DIRECTORY PROPERTY IMPORTED_TARGETS)
  set(switched 0)
  set(shared "")
  foreach(target IN LISTS targets)
    if(NOT target MATCHES "^absl::")
      continue()
    endif()
    get_target_property(type ${target} TYPE)
    if(NOT type STREQUAL "SHARED_LIBRARY")
      continue()
    endif()
    get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
    foreach(configuration IN LISTS configurations)
      get_target_property(location ${target} IMPORTED_LOCATION_${configuration})
      string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive "${location}")
      if(EXISTS "${archive}")
        set_target_properties(${target} PROPERTIES
          IMPORTED_LOCATION_${configuration} "${archive}"
          IMPORTED_SONAME_${configuration} "")
        math(EXPR switched "${switched} + 1")
      else()
        list(APPEND shared ${target})
      endif()
    endforeach()
  endforeach()
  if(shared)
    message(WARNING "No static archive beside: ${shared}. Products will need these shared libraries, "
      "and a program with another Abseil may clash with them.")
  endif()
  if(switched)
    message(STATUS "Abseil ${absl_VERSION}: ${switched} libraries linked as static archives")
  endif()
endfunction()
