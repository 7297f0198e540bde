# SPDX-License-Identifier: Apache-2.0
# gpushare_check_headers(<folder>): every header under it compiles on its own, without our private include
# folder and without the CUDA headers. One generated source per header (two for those that C may include),
# built as part of `all`; a missing include is a compile error that names the header.
function(gpushare_check_headers folder)
  file(GLOB_RECURSE headers RELATIVE "${folder}" CONFIGURE_DEPENDS "${folder}/*.h")
  list(REMOVE_ITEM headers gpushare/cuda_mr.h)  # needs CCCL; its test includes it first
  set(sources "")
  foreach(header IN LISTS headers)
    string(MAKE_C_IDENTIFIER "${header}" stem)
    file(READ "${folder}/${header}" text)
    set(languages cc)
    if(text MATCHES "extern \"C\"")
      list(APPEND languages c)
    endif()
    foreach(language IN LISTS languages)
      set(source "${CMAKE_CURRENT_BINARY_DIR}/header_check/${stem}.${language}")
      # Twice, so that a missing guard shows too.
      file(CONFIGURE OUTPUT "${source}" @ONLY
        CONTENT "#include \"@header@\"\n#include \"@header@\"\n")
      list(APPEND sources "${source}")
    endforeach()
  endforeach()
  add_library(gpushare_header_check OBJECT ${sources})
  target_include_directories(gpushare_header_check PRIVATE "${folder}")
  target_compile_features(gpushare_header_check PRIVATE cxx_std_20 c_std_11)
  get_target_property(warnings gpushare_options INTERFACE_COMPILE_OPTIONS)
  target_compile_options(gpushare_header_check PRIVATE ${warnings}
    -O0 -g0  # nothing of it is run
    $<$<COMPILE_LANGUAGE:C>:-Wpedantic> $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>)
  target_link_libraries(gpushare_header_check PRIVATE
    absl::status absl::statusor absl::cord absl::time absl::span)
endfunction()
