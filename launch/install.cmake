# cmake --install build/release --prefix DIR: programs, recipes, headers (#include <octet/NAME.h>), examples, and three
# libraries as archives and shared objects, which pkg-config and find_package(Octet) find. The tree may be moved
# afterwards.
#
# Each library holds all that it needs: octet-flat runs int8 models from flat files, with the C library and OpenMP alone;
# octet-runtime from HDF5 files, too; octet also trains, over MPI.
set(description_octet-flat "runs int8 models of Octet from flat files; nothing but the C library and OpenMP")
set(description_octet-runtime "runs int8 models of Octet; neither MPI nor training")
set(description_octet "quantization-aware training over MPI")
set(requires_octet-runtime libcrypto)
set(requires_octet hdf5-serial libcrypto yaml-0.1 jansson zlib libzip libjpeg libpng libprotobuf-c)
set(link_octet-runtime ${CRYPTO_LDFLAGS})
foreach(library HDF5 CRYPTO YAML JANSSON ZLIB ZIP JPEG PNG PROTOBUF_C)
    list(APPEND link_octet ${${library}_LDFLAGS})
endforeach()
foreach(library IN LISTS MPI_C_LIB_NAMES)
    get_filename_component(folder "${MPI_${library}_LIBRARY}" DIRECTORY)
    list(APPEND private_octet -L${folder} -l${library})
endforeach()
list(TRANSFORM OpenMP_C_LIB_NAMES PREPEND "-l" OUTPUT_VARIABLE openmp)
foreach(name octet-flat octet-runtime octet)
    # A user's shared library that holds the archive stays loaded, as those of Octet's own do, and keeps it to itself.
    list(APPEND private_${name} ${openmp} -Wl,-z,nodelete -Wl,--exclude-libs,lib${name}.a -ldl -lm)
    list(APPEND link_${name} ${private_${name}})
    set(description "${description_${name}}")
    string(JOIN " " requires ${requires_${name}})
    string(JOIN " " private ${private_${name}})
    configure_file(launch/library.pc.in ${PROJECT_BINARY_DIR}/install/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/install/${name}.pc DESTINATION lib/pkgconfig)
    install(TARGETS lib${name} lib${name}-shared ARCHIVE DESTINATION lib LIBRARY DESTINATION lib)
endforeach()
include(CMakePackageConfigHelpers)
configure_file(launch/OctetConfig.cmake ${PROJECT_BINARY_DIR}/install/OctetConfig.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/install/OctetConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/install/OctetConfig.cmake ${PROJECT_BINARY_DIR}/install/OctetConfigVersion.cmake
    DESTINATION lib/cmake/Octet)

install(FILES LICENSE DESTINATION share/doc/octet RENAME copyright)
install(TARGETS octet octet-hdf5 RUNTIME DESTINATION bin)
install(DIRECTORY tests/example/ DESTINATION share/octet/examples
    FILES_MATCHING PATTERN "*.c" PATTERN "*.cc" PATTERN "*.h" PATTERN "Makefile")
install(DIRECTORY launch/recipes launch/jobs launch/zoo DESTINATION share/octet PATTERN "README.md" EXCLUDE)
install(DIRECTORY ${PROJECT_BINARY_DIR}/help/man/ DESTINATION share/man/man1)
install(FILES ${PROJECT_BINARY_DIR}/help/octet DESTINATION share/bash-completion/completions)
install(FILES ${PROJECT_BINARY_DIR}/help/_octet DESTINATION share/zsh/site-functions)
# Links of the page for clusters that lead out of its folder name the page in the sources.
file(READ launch/jobs/README.md page)
string(REGEX REPLACE "\\[([^]]*)\\]\\(\\.\\./\\.\\./([^)#]*)[^)]*\\)" "\\1, \\2 of the sources" page "${page}")
string(REGEX REPLACE "\\[([^]]*)\\]\\(\\.\\./([^)#]*)[^)]*\\)" "\\1, launch/\\2 of the sources" page "${page}")
file(WRITE ${PROJECT_BINARY_DIR}/jobs/README.md "${page}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS launch/jobs/README.md)
install(FILES ${PROJECT_BINARY_DIR}/jobs/README.md DESTINATION share/octet/jobs)
file(GLOB headers LIST_DIRECTORIES true */include/octet)
install(DIRECTORY ${headers} ${PROJECT_BINARY_DIR}/include/octet DESTINATION include FILES_MATCHING PATTERN "*.h")
