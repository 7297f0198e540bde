# SPDX-License-Identifier: Apache-2.0
# gpushare_commit(<target> <namespace> <function>): <target> has `const char* <namespace>::<function>()`, the commit of
# the sources that it was built from, with "-dirty" where they were changed since; "unknown" outside of a git checkout.
#
# It is asked for in each build, not when configuring, which most commits do not lead to. Its source is written anew only
# where the answer is another one: then that one file is compiled, and nothing else.
#
# As a script: cmake -DSOURCE=... -DOUTPUT=... -DNAMESPACE=... -DFUNCTION=... -P GpushareCommit.cmake
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(GPUSHARE_COMMIT_SCRIPT "${CMAKE_CURRENT_LIST_FILE}")
  function(gpushare_commit target namespace function)
    set(output "${CMAKE_CURRENT_BINARY_DIR}/commit.cc")
    add_custom_target(${target}_commit BYPRODUCTS "${output}"
      COMMAND "${CMAKE_COMMAND}" "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DOUTPUT=${output}" -DNAMESPACE=${namespace}
        -DFUNCTION=${function} -P "${GPUSHARE_COMMIT_SCRIPT}"
      COMMENT "" VERBATIM)
    target_sources(${target} PRIVATE "${output}")
    add_dependencies(${target} ${target}_commit)
  endfunction()
  return()
endif()

set(commit unknown)
find_program(git git)
if(git)
  # Sources that lie somewhere in a checkout of something else are not of its commit.
  execute_process(COMMAND "${git}" -C "${SOURCE}" rev-parse --show-prefix HEAD
    OUTPUT_VARIABLE answer RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed AND answer MATCHES "^\n([0-9a-f]+)$")
    string(SUBSTRING "${CMAKE_MATCH_1}" 0 12 commit)
    # As by `git status`, which does not take the lock of the index where it need not.
    execute_process(COMMAND "${git}" --no-optional-locks -C "${SOURCE}" status --porcelain --untracked-files=no
      OUTPUT_VARIABLE changed RESULT_VARIABLE failed ERROR_QUIET)
    if(failed OR NOT changed STREQUAL "")
      string(APPEND commit -dirty)
    endif()
  endif()
endif()
set(text "// SPDX-License-Identifier: Apache-2.0
namespace ${NAMESPACE} {
const char* ${FUNCTION}();
const char* ${FUNCTION}() { return \"${commit}\"; }
}  // namespace ${NAMESPACE}
")
set(before "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" before)
endif()
if(NOT text STREQUAL before)
  file(WRITE "${OUTPUT}" "${text}")
endif()
