# One door for each dependency: cmake -DROOT=<repository> -P tests/lint/banned_calls.cmake
#
# A table at the end says which words are banned, where they are allowed, and why. Comments and
# strings do not count.
cmake_minimum_required(VERSION 3.21)

include(${CMAKE_CURRENT_LIST_DIR}/sources.cmake)

# Strings first (one may hold "//"), but a quote in a comment must not open one: so whatever begins
# first wins, comment or string, and becomes a blank.
foreach(file IN LISTS files)
    file(READ ${ROOT}/${file} code)
    string(REGEX REPLACE
        "\"([^\"\\\n]|\\\\.)*\"|'([^'\\\n]|\\\\.)*'|/\\*([^*]|\\*+[^*/])*\\*+/|//[^\n]*" " " code "${code}")
    set(code_${file} "\n${code}")
endforeach()

function(ban_text pattern allowed because)
    foreach(file IN LISTS files)
        if(NOT file MATCHES "^(${allowed})" AND "${code_${file}}" MATCHES "${pattern}")
            string(REGEX REPLACE "^[^A-Za-z_]+" "" match "${CMAKE_MATCH_0}")
            message(SEND_ERROR "${file}: ${match}: ${because}")
        endif()
    endforeach()
endfunction()

function(ban_calls words allowed because)
    ban_text("[^A-Za-z0-9_.>](${words}) *\\(" "${allowed}" "${because}")
endfunction()

ban_calls("malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|strndup|asprintf|alloca"
    "core/base/mem\\.c|tests/" "memory comes from core/base/mem.h, which counts it")
ban_calls("exit|_exit|_Exit|quick_exit|abort"
    "launch/main\\.c|core/base/status\\.c|dist/abort\\.c|launch/ranks/guard\\.c|tests/"
    "return a status; the job ends in launch/main.c or by oct_abort (the guard is a process of its own)")
ban_calls("assert" "nowhere" "use OCT_ASSERT, which ends the whole job")
ban_calls("rand|srand|rand_r|random|drand48" "nowhere" "use core/base/rng.h: numbers by seed and index")
ban_calls("strcpy|sprintf|vsprintf|gets|strtok" "nowhere" "no bound; use snprintf or core/base/text.h")
ban_calls("vsnprintf|strtod|strtof|strtold" "core/base/c_locale\\.c|tests/"
    "depends on the locale of the process; use core/base/c_locale.h")
foreach(file IN LISTS files)
    file(READ ${ROOT}/${file} code)
    if(NOT file MATCHES "^tests/" AND
       "\n${code}" MATCHES "[^A-Za-z0-9_](snprintf|printf|fprintf|dprintf|json_sprintf)\\([^;]*%[-+#0-9.*]*[aefgAEFG]")
        message(SEND_ERROR "${file}: ${CMAKE_MATCH_0}: depends on the locale of the process; use oct_snprintf")
    endif()
endforeach()
ban_calls("atoi|atol|atoll|atof" "nowhere" "accepts anything; use oct_parse_i64 or oct_parse_f64")
ban_calls("printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror"
    "core/base/log\\.c|core/base/status\\.c|launch/|tests/"
    "ranks speak through core/base/log.h, results through launch")
ban_text("include <mpi\\.h>|[^A-Za-z0-9_]P?MPI_[A-Za-z]+" "dist/|tests/ranks/|tests/bench/simgrid/|tests/example/mpi_rank/"
    "MPI lives in dist; ask through core/base/collective.h")
ban_text("include <hdf5[a-z_]*\\.h>|[^A-Za-z0-9_]H5[A-Z][a-z]*[A-Za-z0-9_]* *\\("
    "io/hdf5/(hdf5_write|octet_hdf5)\\.[ch]|tests/" "HDF5 lives in io/hdf5/hdf5_write.c and io/hdf5/octet_hdf5.c")
ban_text("include <cblas[a-z_-]*\\.h>|[^A-Za-z0-9_](cblas|openblas)_[a-z]+"
    "core/kernel/blas\\.c|tests/bench/" "BLAS lives in core/kernel/blas.c")

# Which rounding or which target it is asks its room alone: elsewhere either may be named, such as in a target's file, but
# what depends on it is a fact of its row.
foreach(room rounding target)
    set(ids_rounding "OCT_REQUANT_[A-Z0-9_]+|&oct_rounding_[a-z0-9_]+")
    set(ids_target "OCT_TARGET_[A-Z0-9_]+|&oct_target_[a-z0-9_]+")
    set(id "(${ids_${room}})")
    ban_text("((==|!=|<=?|>=?) *|case +|\\[ *)${id}|${id} *(==|!=|<|>)" "quant/${room}/|tests/"
        "branches on a ${room}; ask its row, quant/${room}/${room}.h")
endforeach()
foreach(file IN LISTS files)
    file(READ ${ROOT}/${file} code)
    if(NOT file MATCHES "^(tests|quant/(rounding|target))/" AND
       "\n${code}" MATCHES "strcmp\\([^;()\"]*(target|rounding)[^;()\"]*, *\"[^\"]*\"")
        message(SEND_ERROR "${file}: ${CMAKE_MATCH_0}: branches on a ${CMAKE_MATCH_1}; ask its row, quant/${CMAKE_MATCH_1}/${CMAKE_MATCH_1}.h")
    endif()
endforeach()

# The build: bits are a promise, and a binary runs on other machines than the one that made it.
file(GLOB_RECURSE builds RELATIVE ${ROOT} ${ROOT}/core/CMakeLists.txt ${ROOT}/quant/CMakeLists.txt
    ${ROOT}/dist/CMakeLists.txt ${ROOT}/io/CMakeLists.txt ${ROOT}/launch/CMakeLists.txt
    ${ROOT}/tests/CMakeLists.txt)
foreach(file CMakeLists.txt CMakePresets.json ${builds})
    if(EXISTS ${ROOT}/${file})
        file(READ ${ROOT}/${file} text)
        if(text MATCHES "-ffast-math|-Ofast|-march=native|-mtune=native|-ffp-contract=(fast|on)")
            message(SEND_ERROR "${file}: ${CMAKE_MATCH_0}: changes bits or binds to one machine")
        endif()
    endif()
endforeach()

message(STATUS "banned calls: ${count} files")
