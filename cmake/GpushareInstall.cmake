# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where. Components:
#   runtime      libgpushare.so.<soversion>, the gpushare command
#   development  headers, CMake package, pkg-config files, libgpushare.so
#   runtime      too: what `gpushare run` preloads, in a private folder
#   testing      the simulated GPU, in a private folder that no loader searches by itself
include(CMakePackageConfigHelpers)

if(NOT TARGET gpushare)
  return()
endif()

set(_config_folder "${CMAKE_INSTALL_LIBDIR}/cmake/gpushare")

install(TARGETS gpushare EXPORT gpushareTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime NAMELINK_COMPONENT development)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/gpushare"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT development FILES_MATCHING PATTERN "*.h")
install(EXPORT gpushareTargets NAMESPACE gpushare::
  DESTINATION "${_config_folder}" COMPONENT development)

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/gpushareConfig.cmake.in" "${PROJECT_BINARY_DIR}/gpushareConfig.cmake"
  INSTALL_DESTINATION "${_config_folder}"
  PATH_VARS CMAKE_INSTALL_LIBDIR)
# Before 1.0 a minor version may change the source interface, so it must match.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/gpushareConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/gpushareConfig.cmake" "${PROJECT_BINARY_DIR}/gpushareConfigVersion.cmake"
  DESTINATION "${_config_folder}" COMPONENT development)

# From the .pc files back to the prefix, so that the tree can be moved.
file(RELATIVE_PATH GPUSHARE_PC_TO_PREFIX
  "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" GPUSHARE_PC_TO_PREFIX "${GPUSHARE_PC_TO_PREFIX}")
foreach(name IN ITEMS gpushare gpushare-c)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in" "${PROJECT_BINARY_DIR}/${name}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/${name}.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)
endforeach()

if(TARGET gpushare_command)
  install(TARGETS gpushare_command RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT runtime)
  gpushare_install_completion("${CMAKE_INSTALL_DATADIR}" runtime)
endif()
if(TARGET gpushare_preload)
  install(TARGETS gpushare_preload gpushare_preload_nvml gpushare_audit
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/gpushare/preload" COMPONENT runtime NAMELINK_SKIP)
endif()
if(TARGET gpushare_sim_cuda)
  foreach(name IN ITEMS cuda nvml)
    install(FILES "$<TARGET_FILE:gpushare_sim_${name}>" RENAME "$<TARGET_SONAME_FILE_NAME:gpushare_sim_${name}>"
      PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE
      DESTINATION "${CMAKE_INSTALL_LIBDIR}/gpushare/sim" COMPONENT testing)
  endforeach()
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT runtime)
if(TARGET gpushare_command AND GPUSHARE_BUILD_BROKER)
  install(FILES "${PROJECT_SOURCE_DIR}/share/systemd/gpushare-broker.service"
    DESTINATION lib/systemd/system COMPONENT runtime)
  install(FILES "${PROJECT_SOURCE_DIR}/share/systemd/gpushare.sysusers" RENAME gpushare.conf
    DESTINATION lib/sysusers.d COMPONENT runtime)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/share/grafana" "${PROJECT_SOURCE_DIR}/share/container"
    "${PROJECT_SOURCE_DIR}/share/kubernetes"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/gpushare" COMPONENT runtime)
endif()
