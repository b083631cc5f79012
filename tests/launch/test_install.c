/* The installed files are enough: self-contained headers, a library, a program that finds its recipes; and the README's
 * network builds against them. */
#include <octet/version.h>
#include "tests/launch/installed.h"
#include "tests/support/mpirun.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/file.h>

static void start(void)
{
    enter_folder();
    installed_octet();
}

TestSuite(install, .init = start, .fini = leave_folder, .timeout = 300);

/* Every header alone, and all of them twice, as each C and C++ of the last fifteen years, without a warning. */
Test(install, headers_compile_alone_and_strictly_as_c_and_cxx)
{
    shell("cd octet/include && for h in octet/*.h; do printf '#include <%s>\\ntypedef int "
          "alone;\\n' $h "
          ">../$(basename $h .h).c; done; cd .. && cat *.c *.c | grep include >all.c && "
          "for c in gcc clang; do for std in c11 c17 c2x c++11 c++17 c++20; do "
          "command -v $c >/dev/null || continue; for f in *.c; do "
          "$c -x ${std%%[1-9]*} -std=$std -fsyntax-only -Wall -Wextra -Wpedantic -Wconversion "
          "-Werror -Iinclude $f || echo $c $std $f; done; done; done");
    oct_check_exit(job, 0);
    cr_assert_str_eq(job.out, "");
    cr_assert_str_eq(job.err, "");
}

/* What C++ does not have, and what is not theirs to bring: they include each other and the C library. */
Test(install, headers_hold_nothing_internal)
{
    shell("cd octet/include && find . -type f ! -path './octet/*.h'; find . -path './octet/*/*'; "
          "grep -nE '\\brestrict\\b|_Generic|#include \"|\\.def\\b' octet/*.h; "
          "grep -h '#include' octet/*.h | sort -u | "
          "grep -vE '<(octet/[a-z]+|stdbool|stddef|stdint)\\.h>'; ls octet/status.h");
    cr_assert_str_eq(job.out, "octet/status.h\n");
}

/* tests/launch/abi/abi says what to do. */
Test(install, what_linked_programs_rely_on_is_as_recorded)
{
    shell(OCT_SOURCE_DIR "/tests/launch/abi/abi octet");
    cr_assert_str_eq(job.out, "", "%s", job.out);
    oct_check_exit(job, 0);
}

/* NULL and zeros for all arguments: no signal, and OCT_USAGE with a sentence. */
Test(install, every_public_function_refuses_null)
{
    shell(OCT_SOURCE_DIR "/tests/launch/abi/nulls octet");
    cr_assert_str_eq(job.out, "", "%s", job.out);
    oct_check_exit(job, 0);
}

/* Headers of another version than the library: the name of what is undefined says it. */
Test(install, a_program_with_headers_of_another_version_does_not_link)
{
    shell("cp -r octet/include other && sed -i s/oct_headers_0_1/oct_headers_0_2/ "
          "other/octet/version.h && "
          "printf '#include <octet/status.h>\\nint main(void) { return 0; }\\n' >a.c && "
          "for library in -loctet -l:liboctet-flat.a; do for language in c c++; do "
          "g++ -x $language a.c -x none -Wl,--gc-sections -Ioctet/include -Loctet/lib $library && "
          "g++ -x $language a.c -x none -Wl,--gc-sections -Iother -Loctet/lib $library 2>&1 | "
          "grep -o 'undefined.*oct_headers_0_2' | grep -o '[a-z_]*0_2' | sort -u; done; done");
    cr_assert_str_eq(job.out,
                     "oct_headers_0_2\noct_headers_0_2\noct_headers_0_2\noct_headers_0_2\n");
}

Test(install, the_tree_may_be_moved_and_the_program_finds_its_recipes)
{
    shell("mv octet elsewhere && elsewhere/bin/octet recipes fashion-mnist >r.yaml && "
          "cmp r.yaml elsewhere/share/octet/recipes/fashion-mnist.yaml && "
          "elsewhere/bin/octet --version && "
          "PKG_CONFIG_PATH=elsewhere/lib/pkgconfig pkg-config --variable=prefix octet");
    oct_check_exit(job, 0);
    oct_check_said(job, "octet " OCT_VERSION "\n");
    oct_check_said(job, "elsewhere");
}

/* The job scripts for clusters are installed to be copied, and start the octet of the PATH. */
Test(install, job_scripts_are_there_and_start_the_program)
{
    shell("diff -r -x README.md " OCT_SOURCE_DIR
          "/launch/jobs octet/share/octet/jobs && mkdir bin && "
          "printf '#!/bin/sh\\nwhile [ $1 != octet ]; do shift; done; exec \"$@\"\\n' | "
          "tee bin/srun >bin/mpirun && printf '#!/bin/sh\\necho asked: $*\\n' >bin/octet && "
          "chmod +x bin/* && export PATH=$PWD/bin:$PATH PBS_O_WORKDIR=$PWD PBS_NODEFILE=nodes "
          "ARGUMENTS='r.yaml output=a' && "
          "for f in octet/share/octet/jobs/*.sh; do bash $f $ARGUMENTS || exit 1; done");
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job, "asked: train r.yaml output=a"), 3, "%s", job.out);
}

/* What the page for clusters links to is there. */
Test(install, links_of_the_page_for_clusters_lead_somewhere)
{
    shell("cd octet/share/octet/jobs && grep -c ', launch/doc/ranks.md of the sources' "
          "README.md && "
          "for link in $(grep -oE '\\]\\([^)#]+' README.md | cut -c3- | grep -v :// | sort -u); do "
          "[ -e $link ] || echo $link leads nowhere; done");
    oct_check_exit(job, 0);
    cr_assert_str_eq(job.out, "3\n");
}

Test(install, only_names_of_octet_are_exported)
{
    shell("for f in bin/octet lib/liboctet.so; do nm -D --defined-only octet/$f | "
          "awk '{ sub(/@.*/, \"\", $3); print $3 }' | grep -vE '^(octet_0.1|_IO_stdin_used)$' | "
          "sort >$(basename "
          "$f).names; "
          "done; diff octet.names liboctet.so.names; grep -v ^oct_ octet.names; grep -c "
          "'^oct_fail$' octet.names");
    cr_assert_str_eq(job.out, "1\n");
}

/* It would start a thread for each core in every process, for products that few ask of it. */
Test(install, blas_is_imposed_on_nobody)
{
    shell("ldd octet/bin/octet | grep -i blas; pkg-config --libs octet | grep -i blas; "
          "pkg-config --print-requires octet | grep -i blas; "
          "nm octet/lib/liboctet.a 2>/dev/null | grep -E 'U (openblas|cblas|dpotrf)'; echo looked");
    cr_assert_str_eq(job.out, "looked\n");
}

/* What a user of find_package sees, in a tree that was moved; a name with a blank breaks what is quoted badly. */
static const char *const cmake_project =
    "cmake_minimum_required(VERSION 3.16)\n"
    "project(user C)\n"
    "find_package(Octet 0.1 REQUIRED COMPONENTS flat runtime octet)\n"
    "foreach(part flat runtime octet)\n"
    "    add_executable(${part} user.c)\n"
    "    target_link_libraries(${part} Octet::${part})\n"
    "endforeach()\n";

Test(install, cmake_finds_shared_objects_and_archives_in_a_moved_tree)
{
    must("mv octet 'else where' && mkdir user");
    FILE *file = small_create("user", "CMakeLists.txt");
    fputs(cmake_project, file);
    fclose(file);
    file = small_create("user", "user.c");
    fputs("#include <octet/status.h>\n#include <stdio.h>\n"
          "int main(void) { return puts(oct_version()) < 0; }\n",
          file);
    fclose(file);
    shell("for archives in OFF ON; do cmake -S user -B $archives -DCMAKE_PREFIX_PATH=\"$PWD/else "
          "where\" "
          "-DOctet_USE_STATIC_LIBS=$archives >log && make -s -C $archives >log || cat log; "
          "$archives/flat && $archives/runtime && $archives/octet && "
          "ldd $archives/flat $archives/octet | grep -o '^.liboctet[^ ]*' | tr -d '\\t'; done");
    cr_assert_str_eq(job.out, OCT_VERSION
                     "\n" OCT_VERSION "\n" OCT_VERSION "\nliboctet-flat.so.0.1\n"
                     "liboctet.so.0.1\n" OCT_VERSION "\n" OCT_VERSION "\n" OCT_VERSION "\n");
    shell("sed -i 's/COMPONENTS flat/COMPONENTS float/' user/CMakeLists.txt && "
          "cmake -S user -B OFF 2>&1");
    oct_check_said(job, "flat, runtime and octet");
}

#define MAKE                                                                                       \
    "make -C octet/share/octet/examples CFLAGS='-Wall -Wextra -Wpedantic -Werror' "                \
    "CXXFLAGS='-Wall -Wextra -Wpedantic -Werror' "

/* As the README says: without any path. */
Test(install, make_builds_all_examples_and_the_network_runs_in_integers)
{
    shell("unset PKG_CONFIG_PATH; " MAKE
          "&& cd octet/share/octet/examples && train_array/train_array && "
          "ls frames/frames cxx/classes plugin/example.so plugin/methods.so && make clean");
    oct_check_exit(job, 0);
    oct_check_said(job, "the same bits in integers");
}

/* Each example in a folder of its own, built by its own Makefile from the installed files and run there, and what it
 * prints then. In the folder above are a model, run/model.int8.h5 and model.flat, images.raw, 40 images for it of 12 x 12
 * pixels and one channel, and their classes as octet run finds them. */
static const struct {
    const char *name, *command, *prints;
} examples[] = {
    {"plugin", "ls *.so", "example.so\nmethods.so\ntasks.so\n"},
    {"frames", "./frames ../run/model.int8.h5 ../images.raw | cut -d, -f1 | cmp - ../classes", ""},
    {"train_array",
     "./train_array && ../octet/bin/octet verify stripes.int8.h5 --golden-only | head -1",
     "the same bits in integers\nverified: file: digest, program of 5 layers and its bounds\n"},
    {"onnx_eval",
     "./onnx_eval " OCT_SOURCE_DIR "/tests/golden/onnx/resnet8.onnx a.int8.h5 | cut -c1-13",
     "outputs up to\n"},
    {"cxx", "./classes ../run/model.int8.h5 ../images.raw | cmp - ../classes", ""},
    {"dlopen", "./main ./libframes.so ../model.flat ../images.raw",
     "the same 40 classes 200 times\n"},
    /* Two of four ranks and one process alone make the same file. */
    {"mpi_rank",
     OCT_MPIEXEC " -n 4 -bind-to none ./mpi_rank && mv stripes.int8.h5 two && ./mpi_rank && "
                 "cmp two stripes.int8.h5",
     "2 ranks have trained: 100 %\n1 ranks have trained: 100 %\n"},
};

/* Bytes of a real run's test images, IDX without its header, and what octet run says of them. */
static void train_model(void)
{
    small_start();
    shell("tail -c +17 data/t10k-images-idx3-ubyte >images.raw && "
          "octet/bin/octet run run/model.int8.h5 --input data/t10k-images-idx3-ubyte --count 40 | "
          "sed -n 's/^image [0-9]*: \\(class [0-9]*\\),.*/\\1/p' >classes && "
          "test $(wc -l <classes) = 40 && test $(sort -u classes | wc -l) -gt 1 && "
          "octet/bin/octet export run/model.int8.h5 --format flat -o model.flat >log");
    oct_check_exit(job, 0);
    must("mkdir $" INSTALLED "/model && "
         "cp -r data r.yaml run images.raw classes model.flat $" INSTALLED "/model");
}

/* Once for all tests. */
static void make_model(void)
{
    const int lock = open(getenv(INSTALLED), O_RDONLY);
    cr_assert(lock >= 0 && flock(lock, LOCK_EX) == 0);
    if (system("cp -r $" INSTALLED "/model/. . 2>no_model") != 0) train_model();
    close(lock);
}

Test(install, each_example_is_built_and_run_in_a_folder_of_its_own)
{
    char command[1000];
    oct_tmp own;
    make_model();
    oct_mpirun_begin(&own);
    setenv("MPICC", strcmp(OCT_MPI_NAME, "MPICH") == 0 ? "mpicc.mpich" : "mpicc", 1);
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        snprintf(command, sizeof command,
                 "cp -r octet/share/octet/examples/%s . && cd %s && "
                 "make CFLAGS='-O2 -Wall -Wextra -Wpedantic -Werror' "
                 "CXXFLAGS='-O2 -Wall -Wextra -Wpedantic -Werror' >log 2>&1 || cat log; %s",
                 examples[i].name, examples[i].name, examples[i].command);
        shell(command);
        oct_check_exit(job, 0);
        cr_assert_str_eq(job.out, examples[i].prints, "%s: %s", examples[i].name, job.out);
    }
    oct_tmp_remove(&own);
}

Test(install, the_version_is_there_as_numbers)
{
    shell("{ echo '#include <octet/train.h>'; echo OCT_VERSION = OCT_VERSION_MAJOR . "
          "OCT_VERSION_MINOR . "
          "OCT_VERSION_PATCH; } | cc -E -P $(pkg-config --cflags octet) - | tail -n 1 | "
          "tr -d ' \"' | tr = '\\n' | uniq -c && pkg-config --modversion octet");
    oct_check_exit(job, 0);
    oct_check_said(job, "2 " OCT_VERSION "\n" OCT_VERSION "\n");
}

/* frames/, linked with octet-runtime, and flat/, with octet-flat. */
static void make_frames(void)
{
    make_model();
    shell("cp -r octet/share/octet/examples/frames . && cp -r frames flat && make -C frames && "
          "make -C flat LIBRARY=octet-flat");
    oct_check_exit(job, 0);
}

Test(install, a_model_is_deployed_without_mpi_and_blas)
{
    make_frames();
    shell("ldd frames/frames | grep -iE 'mpi|blas|yaml|jansson|open-(rte|pal)|hwloc|hdf5|curl'; "
          "echo looked; ldd octet/bin/octet | grep -c libmpi");
    oct_check_exit(job, 0);
    cr_assert_str_eq(job.out, "looked\n1\n");
    shell(OCT_PROGRAM " train r.yaml output=floats quant.float_layers=[features.3] >log && "
                      "frames/frames floats/model.int8.h5 images.raw");
    oct_check_exit(job, 4);
    oct_check_said(job,
                   "frames: floats/model.int8.h5: 1 of its layers stay float (features.3), which "
                   "only the library octet computes; link that one");
}

/* What a flat file is read with: the C library, libm and OpenMP, and what these need themselves. */
Test(install, a_flat_file_is_deployed_with_the_c_library_alone)
{
    make_frames();
    shell("frames/frames run/model.int8.h5 images.raw >h5 && flat/frames model.flat images.raw | "
          "cmp - h5 && test $(wc -l <h5) = 40");
    oct_check_exit(job, 0);
    shell("ldd flat/frames | grep -vE 'linux-vdso|liboctet-flat|libm\\.|libgomp|libc\\.|ld-linux'; "
          "echo looked");
    cr_assert_str_eq(job.out, "looked\n");
    shell("flat/frames run/model.int8.h5 images.raw");
    oct_check_exit(job, 2);
    oct_check_said(job, "run/model.int8.h5: is an HDF5 model, which liboctet-flat does not read; "
                        "link octet-runtime, or export it with --format flat");
    shell("printf x | dd of=model.flat bs=1 seek=9000 conv=notrunc status=none; "
          "flat/frames model.flat images.raw");
    oct_check_exit(job, 3);
    oct_check_said(job, "frames: model.flat: is damaged: its digest differs");
}

Test(install, a_deployed_program_says_what_is_wrong_with_a_model)
{
    make_frames();
    shell("printf x | dd of=run/model.int8.h5 bs=1 seek=9000 conv=notrunc status=none; "
          "frames/frames run/model.int8.h5 images.raw");
    oct_check_exit(job, 3);
    oct_check_said(job, "frames: run/model.int8.h5: is damaged: its SHA-256 differs");
    shell("frames/frames run/checkpoints/step-00000007.h5 images.raw");
    oct_check_exit(job, 3);
    oct_check_said(job, "is not an int8 model");
}
