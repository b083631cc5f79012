# No source or page has a word of the list tests/lint/words: cmake -DROOT=<repository> -P tests/lint/words.cmake
cmake_minimum_required(VERSION 3.21)

# pthread_join keeps its name, and data files are not ours.
set(names "pthread_join|joinpath|os\\.path\\.join|'\\.join|\"\\.join|\\)\\.join")
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/words lines ENCODING UTF-8)
set(words "")
set(uses "")
foreach(line IN LISTS lines)
    if(NOT line MATCHES "^#")
        string(REGEX MATCH "^[^\t]+" word "${line}")
        string(REGEX REPLACE "^[^\t]+\t" "" use "${line}")
        list(APPEND words "${word}")
        list(APPEND uses "${use}")
    endif()
endforeach()
list(JOIN words "|" any)

execute_process(COMMAND grep -rniIE "(^|[^a-z0-9])(${any})([^a-z0-9]|$)" core dist quant io launch tests .github README.md
        CMakeLists.txt --exclude-dir=golden --exclude-dir=hostile --exclude-dir=corpus --exclude=words
        --exclude=test_lint.c --exclude=onnx.proto
    WORKING_DIRECTORY ${ROOT} OUTPUT_VARIABLE found ERROR_VARIABLE trouble RESULT_VARIABLE status)
if(status GREATER 1 OR NOT EXISTS ${ROOT}/core)
    message(FATAL_ERROR "no sources under \"${ROOT}\": ${trouble}")
endif()
string(REGEX REPLACE "[][;]" " " found "${found}") # which CMake's lists do not bear
string(REPLACE "\n" ";" found "${found}")
set(bad "")
set(count 0)
foreach(line IN LISTS found)
    string(REGEX REPLACE "${names}" "" rest "${line}")
    string(TOLOWER "${rest}" rest)
    if(line AND rest MATCHES "^[^:]*:[0-9]+:(.*[^a-z0-9])?(${any})([^a-z0-9]|$)")
        list(FIND words "${CMAKE_MATCH_2}" at)
        list(GET uses ${at} use)
        string(APPEND bad "${line}\n  \"${CMAKE_MATCH_2}\": write ${use}\n")
        math(EXPR count "${count} + 1")
    endif()
endforeach()
if(count)
    message("${bad}")
    message(FATAL_ERROR "${count} lines have words to avoid (tests/lint/words)")
endif()
message(STATUS "words: none to avoid")
