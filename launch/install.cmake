# cmake --install build/release --prefix DIR: the program, its recipes, the headers and liboctet.a,
# which `pkg-config octet` finds. The headers keep their paths: #include "core/nn/modules.h". The
# tree may be moved afterwards.
#
# `pkg-config octet-runtime` is for programs that only run int8 models. Of the same archive they take
# no part that trains, so they are linked with neither MPI nor libyaml. `pkg-config octet-flat` is for those that
# read flat files (quant/program/flat.h): with no HDF5 either.
set(OCT_PC_LIBS "${OpenMP_C_FLAGS} -pthread -ldl -lm")
foreach(library IN LISTS MPI_C_LIBRARIES)
    string(PREPEND OCT_PC_LIBS "${library} ")
endforeach()
foreach(pc octet octet-runtime octet-flat)
    configure_file(${PROJECT_SOURCE_DIR}/launch/${pc}.pc.in ${PROJECT_BINARY_DIR}/${pc}.pc @ONLY)
endforeach()

install(TARGETS octet octet-hdf5 liboctet RUNTIME DESTINATION bin ARCHIVE DESTINATION lib)
install(FILES ${PROJECT_BINARY_DIR}/octet.pc ${PROJECT_BINARY_DIR}/octet-runtime.pc
    ${PROJECT_BINARY_DIR}/octet-flat.pc DESTINATION lib/pkgconfig)
install(DIRECTORY tests/example/ DESTINATION share/octet/examples
    FILES_MATCHING PATTERN "*.c" PATTERN "*.h" PATTERN "Makefile")
install(DIRECTORY launch/recipes launch/jobs DESTINATION share/octet PATTERN "README.md" EXCLUDE)
# Links of the page for clusters that lead out of its folder name the page in the sources.
file(READ launch/jobs/README.md page)
string(REGEX REPLACE "\\[([^]]*)\\]\\(\\.\\./\\.\\./([^)#]*)[^)]*\\)" "\\1, \\2 of the sources" page "${page}")
string(REGEX REPLACE "\\[([^]]*)\\]\\(\\.\\./([^)#]*)[^)]*\\)" "\\1, launch/\\2 of the sources" page "${page}")
file(WRITE ${PROJECT_BINARY_DIR}/jobs/README.md "${page}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS launch/jobs/README.md)
install(FILES ${PROJECT_BINARY_DIR}/jobs/README.md DESTINATION share/octet/jobs)
install(DIRECTORY core quant dist io DESTINATION include/octet
    FILES_MATCHING PATTERN "*.h" PATTERN "*.def" PATTERN "*_impl.h" EXCLUDE PATTERN "simd.h" EXCLUDE
    # Templates, which mean nothing alone.
    PATTERN "panel.h" EXCLUDE PATTERN "vnni256.h" EXCLUDE PATTERN "neon.h" EXCLUDE
    PATTERN "*_loop*.h" EXCLUDE)
install(DIRECTORY core/include/octet ${PROJECT_BINARY_DIR}/include/octet DESTINATION include FILES_MATCHING PATTERN "*.h")
install(FILES launch/octet.h
    DESTINATION include/octet)
install(FILES launch/plugin.h DESTINATION include/octet/launch)
install(FILES launch/model/model.h launch/model/model_list.def launch/model/parts.h
    DESTINATION include/octet/launch/model)
