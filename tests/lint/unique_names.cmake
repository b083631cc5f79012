# A name means one thing: cmake -DROOT=<repository> -P tests/lint/unique_names.cmake
#
# No struct, enum, union, typedef or function whose name begins with oct_ is defined in two files.
# Declarations without a body do not count. Tests do, since a type of theirs with the name of one of ours
# would mislead as well.
cmake_minimum_required(VERSION 3.21)

include(${CMAKE_CURRENT_LIST_DIR}/sources.cmake)

# The name is the last word that begins with oct_, of a function the last in front of its parameters.
function(find_names kind pattern)
    string(REGEX MATCHALL "${pattern}" matches "${code}")
    foreach(match IN LISTS matches)
        if(kind STREQUAL "function")
            string(REGEX REPLACE "\\(.*" "" match "${match}")
        endif()
        string(REGEX REPLACE ".*[^A-Za-z0-9_](oct_[A-Za-z0-9_]+).*" "\\1" name "${match}")
        get_property(other GLOBAL PROPERTY file_of_${name})
        # Every plug-in defines its entry.
        if(other AND NOT other STREQUAL file AND NOT name STREQUAL "oct_plugin_entry")
            message(SEND_ERROR "${file}: ${name}: ${other} defines a name like that too")
        endif()
        set_property(GLOBAL PROPERTY file_of_${name} ${file})
    endforeach()
endfunction()

foreach(file IN LISTS files)
    file(READ ${ROOT}/${file} code)
    string(REGEX REPLACE
        "\"([^\"\\\n]|\\\\.)*\"|'([^'\\\n]|\\\\.)*'|/\\*([^*]|\\*+[^*/])*\\*+/|//[^\n]*" " " code "${code}")
    # What CMake's lists do not bear.
    string(REGEX REPLACE "[][\\]" " " code "\n${code}")
    string(REPLACE ";" "@" code "${code}")
    find_names(type "(struct|enum|union)[ \n]+oct_[A-Za-z0-9_]+[ \n]*{")
    find_names(type "\n} oct_[A-Za-z0-9_]+@")
    find_names(type "\ntypedef [^@{}]*\\(\\*oct_[A-Za-z0-9_]+\\)")
    find_names(function "\n[a-zA-Z][^@{}()=#]*[ *]oct_[A-Za-z0-9_]+\\([^@{}]*\\)\n{")
endforeach()

message(STATUS "unique names: ${count} files")
