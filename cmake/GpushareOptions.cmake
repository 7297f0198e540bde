# gpushare_options: the compile options of every target of this project, and of nobody else's.
add_library(gpushare_options INTERFACE)
target_compile_features(gpushare_options INTERFACE cxx_std_20)
target_include_directories(gpushare_options INTERFACE
  "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
target_compile_options(gpushare_options INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor $<$<COMPILE_LANGUAGE:CXX>:-Wmissing-declarations>
  -Wconversion -Wsign-conversion
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
if(GPUSHARE_WERROR)
  target_compile_options(gpushare_options INTERFACE -Werror)
endif()
if(GPUSHARE_SANITIZE)
  target_compile_options(gpushare_options INTERFACE
    -fsanitize=${GPUSHARE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  target_link_options(gpushare_options INTERFACE -fsanitize=${GPUSHARE_SANITIZE})
endif()
find_package(Threads REQUIRED)
target_link_libraries(gpushare_options INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
