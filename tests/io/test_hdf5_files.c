/* HDF5 files of other programs: Octet reads the same values as h5py. The process that runs libhdf5 may crash, hang,
 * answer wrongly or be missing: each gives one sentence. */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/dataset/array_set.h"
#include "io/file/file.h"
#include "tests/support/check_status.h"
#include "tests/support/process.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static oct_tmp tmp;

static void start(void)
{
    oct_tmp_create(&tmp);
}

static void end(void)
{
    oct_tmp_remove(&tmp);
}

TestSuite(hdf5_files, .init = start, .fini = end, .timeout = 600);

static void python(const char *words)
{
    char command[2048];
    snprintf(command, sizeof command, "cd %s && /usr/bin/python3 %s", tmp.path, words);
    oct_process job = oct_process_run(500, "sh", "-c", command, NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
}

static oct_status open_array(oct_array *array, const char *path, const char *name)
{
    return oct_dataset_hdf5.arrays->open(array, path, name);
}

static void check_array(const char *path, const char *name, int64_t numel, const uint8_t *want)
{
    oct_array a;
    uint8_t *got = NULL;
    cr_assert_eq(open_array(&a, path, name), OCT_OK, "%s", oct_error_message(0));
    cr_assert_eq(oct_shape_numel(&a.shape), numel, "%s: %s", path, name);
    MUST(oct_alloc(&got, (size_t)numel, a.bytes));
    cr_assert_eq(oct_array_read(&a, 0, a.shape.dim[0], got), OCT_OK, "%s", oct_error_message(0));
    for (int64_t i = 0; i < numel; i++) {
        int64_t whole = 0, want_whole;
        double want_real;
        memcpy(&want_whole, want + 8 * i, 8);
        memcpy(&want_real, want + 8 * i, 8);
        const double real = oct_array_real(&a, got + (size_t)i * a.bytes);
        if (a.kind == 'f')
            cr_assert(real == want_real || (real != real && want_real != want_real),
                      "%s: %s: %" PRId64, path, name, i);
        else
            cr_assert(oct_array_whole(&a, got + (size_t)i * a.bytes, &whole) && whole == want_whole,
                      "%s: %s: %" PRId64 ": %" PRId64 " is not %" PRId64, path, name, i, whole,
                      want_whole);
    }
    oct_free(&got);
    oct_array_close(&a);
}

static int check_file(const char *list)
{
    char path[600], name[200];
    uint8_t *values = NULL;
    int64_t numel, at;
    int count = 0;
    snprintf(path, sizeof path, "%.*s.bin", (int)strlen(list) - 4, list);
    FILE *in = fopen(path, "rb");
    fseek(in, 0, SEEK_END);
    const size_t size = (size_t)ftell(in);
    rewind(in);
    MUST(oct_alloc(&values, size, 1));
    cr_assert_eq(fread(values, 1, size, in), size);
    fclose(in);
    snprintf(path + strlen(list) - 4, 5, ".h5");
    in = fopen(list, "r");
    while (fscanf(in, "%199s %" SCNd64 " %" SCNd64, name, &numel, &at) == 3) {
        check_array(path, name, numel, values + at);
        count++;
    }
    fclose(in);
    oct_free(&values);
    return count;
}

/* OCT_HDF5_EVERY=1: all combinations, 14,114 arrays, some minutes: all were read so on 2026-11-26. */
Test(hdf5_files, what_h5py_reads_is_read_with_the_same_values)
{
    const char *every = getenv("OCT_HDF5_EVERY");
    char words[1024];
    glob_t lists;
    int arrays = 0;
    snprintf(words, sizeof words, OCT_SOURCE_DIR "/tests/io/make_hdf5_files.py . %s",
             every ? every : "139");
    python(words);
    cr_assert_eq(glob(oct_tmp_path(&tmp, "*.txt"), 0, NULL, &lists), 0);
    cr_assert_eq(lists.gl_pathc, 36);
    for (size_t i = 0; i < lists.gl_pathc; i++)
        arrays += check_file(lists.gl_pathv[i]);
    cr_assert(arrays > 80, "%d", arrays);
    fprintf(stderr, "%d arrays of %zu files\n", arrays, lists.gl_pathc);
    globfree(&lists);
    check_nothing_held();
}

/* Items that are no array of numbers in this file are refused as such. */
Test(hdf5_files, items_that_are_not_read_are_reported)
{
    static const struct {
        const char *name, *sentence;
    } cases[] = {
        {"nothing", "there is no such array in the file"},
        {"group", "is a group, not an array"},
        {"group/elsewhere", "there is no such array in the file"},
        {"text", "holds neither integers nor floats"},
        {"complex", "holds neither integers nor floats"},
        {"scalar", "has no dimension, or too many"},
        {"five", "has no dimension, or too many"},
        {"lzf", "is packed by a filter that the HDF5 library here does not have"},
        {"external", "has its numbers in another file"},
        {"virtual", "has its numbers in another file"},
        {"huge", "is more than a file of"},
    };
    python("-c \"\n"
           "import h5py, numpy as n\n"
           "h5py.File('other.h5', 'w')['x'] = n.arange(4)\n"
           "f = h5py.File('a.h5', 'w')\n"
           "f['group/elsewhere'] = h5py.ExternalLink('other.h5', '/x')\n"
           "f['soft'] = h5py.SoftLink('/plain')\n"
           "f['plain'] = n.arange(4)\n"
           "f['text'] = [b'ab', b'cd']\n"
           "f['complex'] = n.zeros(3, 'c8')\n"
           "f['scalar'] = 3\n"
           "f['five'] = n.zeros((1, 1, 1, 1, 1))\n"
           "f.create_dataset('lzf', data=n.arange(900), compression='lzf')\n"
           "f.create_dataset('external', (4,), 'u1', external=[('/etc/passwd', 0, 4)])\n"
           "f.create_dataset('huge', (1 << 40, 9), 'u1', chunks=(9, 9))\n"
           "v = h5py.VirtualLayout((4,), 'i8')\n"
           "v[:] = h5py.VirtualSource('other.h5', 'x', (4,))\n"
           "f.create_virtual_dataset('virtual', v)\n\"");
    const char *path = oct_tmp_path(&tmp, "a.h5");
    oct_array a;
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        cr_assert_eq(open_array(&a, path, cases[i].name), OCT_DATA, "%s", cases[i].name);
        check_said(cases[i].sentence);
        check_said(cases[i].name);
    }
    int64_t four[4];
    MUST(open_array(&a, path, "soft"));
    MUST(oct_array_read(&a, 0, 4, four));
    cr_assert(four[0] == 0 && four[3] == 3);
    oct_array_close(&a);
    check_nothing_held();
}

/* Several threads read one packed array, in any order, and others in pieces that do not end with chunks. */
static oct_array shared;

static void *read_all(void *offset)
{
    for (int64_t i = 0; i < 300; i++) {
        int32_t x[3][2] = {{0}};
        const int64_t at = (i * 97 + *(int64_t *)offset) % 298;
        if (oct_array_read(&shared, at, 3, x) != OCT_OK) return offset;
        for (int k = 0; k < 6; k++)
            if (((int32_t *)x)[k] != 2 * at + k) return offset;
    }
    return NULL;
}

Test(hdf5_files, threads_share_an_array)
{
    pthread_t threads[4];
    int64_t offsets[4] = {0, 1, 50, 200};
    python("-c \"\n"
           "import h5py, numpy as n\n"
           "f = h5py.File('a.h5', 'w')\n"
           "f.create_dataset('x', data=n.arange(600, dtype='>i4').reshape(300, 2), chunks=(7, 1), "
           "compression='gzip')\n\"");
    MUST(open_array(&shared, oct_tmp_path(&tmp, "a.h5"), "x"));
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, read_all, &offsets[i]), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        cr_assert_null(failed);
    }
    oct_array_close(&shared);
}

/* Without memory for all of an array a block is kept, and a message says what that costs. */
Test(hdf5_files, a_lack_of_memory_is_reported_or_a_block_is_enough)
{
    char log[512];
    snprintf(log, sizeof log, "%s", oct_tmp_path(&tmp, "log"));
    bool warned = false;
    python("-c \"\n"
           "import h5py, numpy as n\n"
           "h5py.File('a.h5', 'w').create_dataset('x', data=n.arange(400000, "
           "dtype='i4').reshape(400, 1000), "
           "chunks=(100, 50), compression='gzip')\n\"");
    oct_log_setup(OCT_LOG_ERROR, true);
    for (int64_t n = 1; n < 20; n++) {
        oct_array a;
        int32_t x[1000];
        void *text = NULL;
        size_t size;
        unlink(log);
        MUST(oct_log_file(log));
        oct_mem_fail_after(n);
        oct_status status = open_array(&a, oct_tmp_path(&tmp, "a.h5"), "x");
        oct_mem_fail_after(0);
        MUST(oct_log_file(NULL));
        if (status == OCT_OK) {
            for (int64_t i = 0; i < 400; i += 37) {
                MUST(oct_array_read(&a, i * 7 % 400, 1, x));
                cr_assert_eq(x[999], i * 7 % 400 * 1000 + 999);
            }
            oct_array_close(&a);
            MUST(oct_file_read(log, 1 << 20, &text, &size));
            warned |=
                strstr(text, "its chunks hold 100 samples, and only 400 kB of 1.60 MB are kept") !=
                NULL;
            oct_free(&text);
        }
        cr_assert(status == OCT_OK || status == OCT_RESOURCE, "%s", oct_error_message(0));
        check_nothing_held();
    }
    cr_assert(warned);
}

/* A host may ignore the end of children, and have no standard input: what it reads stays the same, nothing is left. */
Test(hdf5_files, the_program_holds_a_socket_and_nothing_else)
{
    oct_array a;
    char path[128], text[4096] = "";
    int32_t x[2];
    python("-c \"\n"
           "import h5py, numpy as n\n"
           "h5py.File('a.h5', 'w').create_dataset('x', data=n.arange(600).reshape(300, 2), "
           "dtype='i4', "
           "chunks=(7, 1), compression='gzip')\n\"");
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_DFL);
    close(STDIN_FILENO);
    MUST(open_array(&a, oct_tmp_path(&tmp, "a.h5"), "x"));
    MUST(oct_array_read(&a, 150, 1, x));
    cr_assert(x[0] == 300 && x[1] == 301);
    int child = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *in = fopen(path, "r");
    cr_assert(in && fscanf(in, "%d", &child) == 1);
    fclose(in);
    glob_t open_files;
    snprintf(path, sizeof path, "/proc/%d/fd/*", child);
    cr_assert_eq(glob(path, 0, NULL, &open_files), 0);
    cr_assert_eq(open_files.gl_pathc, 1);
    globfree(&open_files);
    snprintf(path, sizeof path, "/proc/%d/status", child);
    in = fopen(path, "r");
    cr_assert(in && fread(text, 1, sizeof text - 1, in) > 0);
    fclose(in);
    cr_assert(strstr(text, "NoNewPrivs:\t1") && strstr(text, "Seccomp:\t2"), "%s", text);
    oct_array_close(&a);
    cr_assert_neq(access(path, F_OK), 0, "it still runs");
    check_nothing_held();
}

/* Programs that say something else than octet-hdf5 would. */
static void lie(const char *script)
{
    const char *path = oct_tmp_write_text(&tmp, "liar", script);
    cr_assert_eq(chmod(path, 0755), 0);
    setenv("OCT_HDF5_PROGRAM", path, 1);
}

/* Messages in Python: m(kind, at, bytes, type, big, dims, rows, name). */
#define MESSAGES                                                                                   \
    "#!/usr/bin/python3\n"                                                                         \
    "import os, struct, sys\n"                                                                     \
    "def m(kind, at=0, n=0, type='u', big=0, ndim=1, dim=(4, 0, 0, 0), rows=0, name=b''):\n"       \
    "    data = struct.pack('<11q1024s', kind, at, n, ord(type), big, ndim, *dim, rows, name)\n"   \
    "    while data: data = data[os.write(0, data):]\n"                                            \
    "m(0, 1)\n"                                                                                    \
    "os.read(0, 1112)\n"

Test(hdf5_files, a_program_that_lies_or_dies_is_one_sentence)
{
    static const struct {
        const char *script, *sentence;
        oct_status status;
    } cases[] = {
        {"#!/bin/sh\nexit 5\n", "ended with status 5 before it read", OCT_RESOURCE},
        {"#!/bin/sh\nkill -9 $$\n", "ended with signal 9 before it read", OCT_RESOURCE},
        {"#!/bin/sh\nexec 3>&0; head -c 5000 /dev/zero | tr '\\0' x >&3; read x\n",
         "is not that of this Octet", OCT_RESOURCE},
        {MESSAGES "os.abort()\n", "ended with signal 6: the file is damaged", OCT_DATA},
        {MESSAGES "os.kill(os.getpid(), 9)\n",
         "ended with signal 9: somebody has killed it, or memory is out", OCT_RESOURCE},
        {MESSAGES "m(99)\n", "says what no file can hold", OCT_DATA},
        {MESSAGES "m(8, 4000)\n", "says what no file can hold", OCT_DATA},
        {MESSAGES "m(8, 0)\n", "cannot confine", OCT_RESOURCE},
        {MESSAGES "m(8, 1, name=b'a\\033[31m')\n", "a?[31m is not an HDF5 file", OCT_DATA},
        {MESSAGES "m(4, -1, 5)\n", "says what no file can hold", OCT_DATA},
        {MESSAGES "m(4, 0, 1 << 40)\n", "says what no file can hold", OCT_DATA},
        {MESSAGES "m(5, -1, 3)\n", "says what no file can hold", OCT_DATA},
        {MESSAGES "m(5, -1, 1, 'x')\n", "says what no file can hold", OCT_DATA},
        {MESSAGES "m(5, -1, 1, ndim=5)\n", "says what no file can hold", OCT_DATA},
        {MESSAGES "m(5, -1, 1, dim=(-4, 0, 0, 0))\n", "says what no file can hold", OCT_DATA},
        {MESSAGES "m(5, -1, 8, ndim=4, dim=(1, 1 << 40, 1 << 40, 9))\n", "says what no file",
         OCT_DATA},
        {MESSAGES "m(5, 1 << 60, 1)\n", "is damaged or cut short", OCT_DATA},
        {MESSAGES "m(5, -1, 1, rows=1 << 62)\nos.read(0, 1112)\nm(6, 0, 5)\n",
         "says what no file can hold", OCT_DATA},
        {MESSAGES "m(5, -1, 1)\nos.read(0, 1112)\nm(6, 0, 4)\nos.write(0, b'ab')\n",
         "ended with status 0: the file is damaged", OCT_DATA},
    };
    oct_tmp_write_text(&tmp, "a.h5", "whatever it holds");
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        const char *path = oct_tmp_path(&tmp, "a.h5");
        oct_array a;
        uint8_t x[4];
        lie(cases[i].script);
        oct_status status = open_array(&a, path, "x");
        const bool opened = status == OCT_OK;
        if (opened) status = oct_array_read(&a, 0, 4, x);
        cr_assert_eq(status, cases[i].status, "%zu: %s", i, status ? oct_error_message(0) : "");
        check_said(cases[i].sentence);
        check_said("a.h5");
        if (!opened) continue;
        cr_assert_eq(oct_array_read(&a, 0, 4, x), OCT_DATA, "it goes on");
        oct_array_close(&a);
    }
    setenv("OCT_HDF5_PROGRAM", "/nowhere", 1);
    oct_array a;
    cr_assert_eq(open_array(&a, oct_tmp_path(&tmp, "a.h5"), "x"), OCT_RESOURCE);
    check_said("OCT_HDF5_PROGRAM: /nowhere cannot be started: No such file or directory");
    check_nothing_held();
}
