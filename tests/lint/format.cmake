# The sources are as clang-format 14 leaves them: cmake -DROOT=<repository> -P tests/lint/format.cmake
# Another version formats otherwise, so without this one the check is skipped.
cmake_minimum_required(VERSION 3.21)

find_program(FORMAT NAMES clang-format-14 clang-format)
set(version "")
if(FORMAT)
    execute_process(COMMAND ${FORMAT} --version OUTPUT_VARIABLE version)
endif()
if(NOT version MATCHES "version 14\\.")
    message(STATUS "SKIPPED: clang-format 14 is not installed (Debian: clang-format-14)")
    return()
endif()

include(${CMAKE_CURRENT_LIST_DIR}/sources.cmake)
execute_process(COMMAND ${FORMAT} --dry-run -Werror --style=file ${files}
    WORKING_DIRECTORY ${ROOT} RESULT_VARIABLE result ERROR_VARIABLE complaints)
if(NOT result EQUAL 0)
    string(REGEX MATCHALL "[^\n]*error:[^\n]*" errors "${complaints}")
    string(REGEX REPLACE ":[0-9]+:[0-9]+: error:[^;]*" "" unformatted "${errors}")
    list(REMOVE_DUPLICATES unformatted)
    string(REPLACE ";" "\n  " unformatted "${unformatted}")
    message(FATAL_ERROR "run clang-format-14 -i on:\n  ${unformatted}")
endif()
message(STATUS "format: ${count} files")
