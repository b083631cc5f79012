# Includes point only downward: cmake -DROOT=<repository> -P tests/lint/floor_plan.cmake
cmake_minimum_required(VERSION 3.21)

# What a folder may include, by the beginning of the path. The longest folder that fits a file counts.
set(folders core/base core/tensor core/product core/kernel core
    quant/rounding quant/kernel quant/program quant/observer quant/target quant/module quant/graph quant/prepare
    quant/convert quant/correct quant/layers quant/train
    dist
    io/file io/image io/hdf5 io/dataset io/augment io/batch io/onnx io/weights io/recipe io/model io/checkpoint io/export
    io/tensorboard
    launch/base launch/model launch/runfolder launch/session launch/evaluate launch/deploy launch/train launch/library
    launch/bench launch/report launch/cmd launch)

set(may_core/base    core/base/)
set(may_core/tensor  ${may_core/base} core/tensor/)
set(may_core/product ${may_core/tensor} core/product/)
set(may_core/kernel  ${may_core/product} core/kernel/)
set(may_core         core/)

# The integer runtime links without tape, graph and MPI.
set(may_quant/rounding ${may_core/product} quant/rounding/)
set(may_quant/kernel   ${may_quant/rounding} quant/kernel/)
set(may_quant/program  ${may_quant/kernel} quant/program/)
set(may_quant/observer core/ quant/rounding/ quant/observer/)
set(may_quant/target   core/ quant/rounding/ quant/target/)
# Prepare, convert and what follows drive modules; modules know none of them.
set(may_quant/module   ${may_quant/program} core/ quant/observer/ quant/target/ quant/module/)
set(may_quant/graph    ${may_quant/module} quant/graph/)
set(may_quant/prepare  ${may_quant/graph} quant/prepare/)
set(may_quant/convert  ${may_quant/prepare} quant/convert/)
set(may_quant/correct  ${may_quant/graph} quant/correct/)
set(may_quant/layers   ${may_quant/convert} quant/layers/)
set(may_quant/train    ${may_quant/graph} quant/train/)

set(may_dist core/ dist/)

set(may_io/file        core/ quant/ io/file/)
set(may_io/image       ${may_io/file} io/image/)
set(may_io/hdf5        ${may_io/file} io/hdf5/)
set(may_io/dataset     ${may_io/image} io/hdf5/ io/dataset/)
set(may_io/augment     ${may_io/image} io/augment/)
set(may_io/batch       ${may_io/dataset} io/augment/ io/batch/)
set(may_io/onnx        ${may_io/file} io/onnx/)
set(may_io/weights     ${may_io/dataset} io/onnx/ io/weights/)
set(may_io/recipe      ${may_io/batch} io/onnx/ io/weights/ io/recipe/)
set(may_io/model       ${may_io/batch} io/model/)
set(may_io/checkpoint  ${may_io/model} io/checkpoint/)
set(may_io/export      ${may_io/model} io/weights/ io/export/)
set(may_io/tensorboard ${may_io/file} io/tensorboard/)

set(below_launch core/ quant/ dist/ io/)
set(may_launch/base      core/ launch/base/)
set(may_launch/model     core/ quant/ launch/model/)
set(may_launch/runfolder ${below_launch} launch/base/ launch/runfolder/)
set(may_launch/session   ${may_launch/runfolder} launch/model/ launch/session/)
set(may_launch/evaluate  ${may_launch/session} launch/evaluate/)
set(may_launch/deploy    ${may_launch/evaluate} launch/deploy/)
set(may_launch/train     ${may_launch/deploy} launch/train/)
set(may_launch/library  ${may_launch/train} launch/library/)
set(may_launch/bench     ${may_launch/train} launch/bench/)
set(may_launch/report    ${may_launch/train} launch/report/)
set(may_launch/cmd       ${may_launch/bench} launch/report/ launch/cmd/)
# The program's start and what starts ranks.
set(may_launch ${below_launch} launch/)

function(check_include file folder include)
    set(allowed FALSE)
    foreach(beginning IN LISTS may_${folder})
        string(FIND "${include}" "${beginning}" at)
        if(at EQUAL 0)
            set(allowed TRUE)
        endif()
    endforeach()
    if(NOT allowed)
        string(REPLACE ";" " " may "${may_${folder}}")
        message(SEND_ERROR "${file} includes \"${include}\"; ${folder} may include only ${may}")
    endif()
    get_filename_component(mine "${file}" DIRECTORY)
    get_filename_component(theirs "${include}" DIRECTORY)
    string(FIND "${mine}/" "${theirs}/" at)
    if(include MATCHES "_impl\\.h$" AND NOT at EQUAL 0)
        message(SEND_ERROR "${file} includes \"${include}\"; *_impl.h is for its own folder and those below")
    endif()
endfunction()

set(seen "")
foreach(folder IN LISTS folders)
    file(GLOB_RECURSE files RELATIVE ${ROOT}
        ${ROOT}/${folder}/*.c ${ROOT}/${folder}/*.h ${ROOT}/${folder}/*.def ${ROOT}/${folder}/*.inc)
    list(REMOVE_ITEM files ${seen})
    list(APPEND seen ${files})
    foreach(file IN LISTS files)
        file(STRINGS ${ROOT}/${file} lines REGEX "^[ \t]*#[ \t]*include[ \t]*\"")
        foreach(line IN LISTS lines)
            string(REGEX REPLACE "^[^\"]*\"([^\"]*)\".*" "\\1" include "${line}")
            check_include(${file} ${folder} "${include}")
        endforeach()
    endforeach()
endforeach()

file(GLOB_RECURSE all RELATIVE ${ROOT} ${ROOT}/quant/*.[ch] ${ROOT}/io/*.[ch])
list(REMOVE_ITEM all ${seen})
list(FILTER all EXCLUDE REGEX "/include/octet/") # for programs of others: each includes its like alone
foreach(file IN LISTS all)
    message(SEND_ERROR "${file} lies in no folder of this list")
endforeach()
list(LENGTH seen count)
if(count EQUAL 0)
    message(FATAL_ERROR "no sources under \"${ROOT}\"")
endif()
message(STATUS "floor plan: ${count} files")
