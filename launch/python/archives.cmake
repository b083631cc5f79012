# For the programs and the library of a wheel (preset wheel): what Debian has as an archive is linked in, so that a
# process of Python, with libraries of its own, sees none of it; what is shared lies in octet/_lib, and libmpi is the
# system's, or that of the environment the wheel is installed in.
set(OCT_WHEEL ON)
set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
# One OpenMP for all that a process loads; the licence of libseccomp wants that it can be replaced.
find_library(OpenMP_gomp_LIBRARY libgomp.so.1 REQUIRED)
find_library(pkgcfg_lib_SECCOMP_seccomp libseccomp.so REQUIRED)
find_library(pkgcfg_lib_ZLIB_z libz.so REQUIRED) # every system has it
set(CMAKE_C_STANDARD_LIBRARIES "-l:libsz.a -l:libaec.a -lz -lm") # libhdf5.a wants them
# RPATH and not RUNPATH: it is for what these libraries need, too.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN:$ORIGIN/../_lib:$ORIGIN/../../../..")
foreach(kind EXE SHARED)
    string(APPEND CMAKE_${kind}_LINKER_FLAGS " -Wl,--exclude-libs,ALL -Wl,--disable-new-dtags")
endforeach()
