# The sources below ROOT, which must be there: files, relative to it.
set(files "")
foreach(folder core quant dist io launch tests)
    file(GLOB_RECURSE found RELATIVE ${ROOT}
        ${ROOT}/${folder}/*.c ${ROOT}/${folder}/*.h ${ROOT}/${folder}/*.inc)
    list(APPEND files ${found})
endforeach()
list(LENGTH files count)
if(count EQUAL 0)
    message(FATAL_ERROR "no sources under \"${ROOT}\"")
endif()
