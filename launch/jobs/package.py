# A Spack package. In a repository of your own (spack repo create, spack repo add) it is packages/octet/package.py,
# and is built from a working copy:
#
#   spack dev-build octet@main
from spack.package import *


class Octet(CMakePackage):
    """Quantization-aware training of neural networks in 8-bit integers, on CPUs, over MPI."""

    license("Apache-2.0")

    version("main")

    depends_on("c", type="build")
    depends_on("cmake@3.21:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("hdf5@1.10:~mpi")
    depends_on("libseccomp")
    depends_on("libyaml")
    depends_on("jansson")
    depends_on("openssl@3:")
    depends_on("zlib-api")
    depends_on("libzip")
    depends_on("libjpeg-turbo")
    depends_on("libpng")
    depends_on("protobuf-c")
    depends_on("openblas")  # loaded as the program runs, by the rpath that Spack writes

    generator("ninja")

    def patch(self):
        """Debian calls it hdf5-serial, to have the parallel one beside it."""
        filter_file("hdf5-serial", "hdf5", "CMakeLists.txt", "launch/install.cmake")

    def cmake_args(self):
        return [self.define("OCT_TESTS", False)]
