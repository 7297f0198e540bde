# SPDX-License-Identifier: Apache-2.0
# What shells read to complete `gpushare`, installed where they look for it. The command prints it, so it has to run here.
function(gpushare_make_completion)
  if(CMAKE_CROSSCOMPILING OR GPUSHARE_SANITIZE OR NOT GPUSHARE_BUILD_COMPLETION)
    return()
  endif()
  set(folder "${PROJECT_BINARY_DIR}/completion")
  file(MAKE_DIRECTORY "${folder}")
  foreach(shell IN ITEMS bash zsh fish)
    add_custom_command(TARGET gpushare_command POST_BUILD VERBATIM
      COMMAND gpushare_command completion ${shell} > "${folder}/gpushare.${shell}")
  endforeach()
  set_property(GLOBAL PROPERTY GPUSHARE_COMPLETION "${folder}")
endfunction()

# Below `share`, a folder as /usr/share.
function(gpushare_install_completion share component)
  get_property(folder GLOBAL PROPERTY GPUSHARE_COMPLETION)
  if(NOT folder)
    return()
  endif()
  install(FILES "${folder}/gpushare.bash" RENAME gpushare
    DESTINATION "${share}/bash-completion/completions" COMPONENT ${component})
  install(FILES "${folder}/gpushare.zsh" RENAME _gpushare
    DESTINATION "${share}/zsh/site-functions" COMPONENT ${component})
  install(FILES "${folder}/gpushare.fish" DESTINATION "${share}/fish/vendor_completions.d" COMPONENT ${component})
endfunction()
