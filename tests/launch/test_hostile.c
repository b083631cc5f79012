/* Files that somebody sent: what each command answers. In all cases the exit status is a documented one,
 * the file is named, nothing that is printed can steer a terminal, and memory and time stay small. */
#include "core/base/mem.h"
#include "io/model/model_file.h"
#include "quant/program/step.h"
#include "tests/support/check_status.h"
#include "tests/support/process.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define HOSTILE OCT_SOURCE_DIR "/tests/io/hostile/"

static oct_tmp tmp;

static void start(void)
{
    oct_tmp_create(&tmp);
    cr_assert_eq(chdir(tmp.path), 0);
    setenv("OMP_NUM_THREADS", "1", 1);
}

static void end(void)
{
    oct_tmp_remove(&tmp);
}

TestSuite(hostile, .init = start, .fini = end, .timeout = 300);

static void check_plain(const char *text)
{
    for (; *text; text++)
        cr_assert(*text == '\n' || *text == '\t' || ((unsigned char)*text >= ' ' && *text != 0x7f),
                  "a control character in: %s", text);
}

/* Runs a command with too little address space for a large block. */
static oct_process run_limited(const char *const *words)
{
    const char *argv[16] = {"sh", "-c", "ulimit -v 4000000; exec \"$@\"", "sh", OCT_PROGRAM};
    for (size_t i = 0; words[i]; i++)
        argv[5 + i] = words[i];
    oct_process job = oct_run_args(100, argv);
    check_plain(job.out);
    check_plain(job.err);
    return job;
}

#define RUN(...) run_limited((const char *const[]){__VA_ARGS__, NULL})

static void check_answer(const char *file, int code, const char *sentence, const char *const *words)
{
    oct_process job = run_limited(words);
    oct_check_exit(job, code);
    if (code == 3) oct_check_said(job, file);
    oct_check_said(job, sentence);
    oct_process_free(&job);
}

Test(hostile, files_that_crashed_libhdf5_are_refused)
{
    static const struct {
        const char *file, *sentence;
    } files[] = {
        {HOSTILE "c24.int8.h5", "cannot be read"},
        {HOSTILE "c80.int8.h5", "cannot be read"},
        {HOSTILE "h1492.int8.h5", "cannot be read"},
        {HOSTILE "ckpt-meta-crash-147.h5", "cannot be read"},
        {HOSTILE "isl_conv_max.int8.h5", "model"},
        {HOSTILE "h_nogolden.int8.h5", "model"},
    };
    for (size_t i = 0; i < OCT_COUNT(files); i++) {
        const char *file = files[i].file;
        const char *commands[][6] = {
            {"verify", file},
            {"inspect", file},
            {"eval", file},
            {"convert", file, "-o", "x.int8.h5"},
        };
        for (size_t k = 0; k < OCT_COUNT(commands); k++)
            check_answer(file, 3, files[i].sentence, commands[k]);
        oct_process job = RUN("run", file, "--input", file);
        oct_check_exit(job, 3);
        oct_process_free(&job);
    }
}

/* Models of Octet's own making: an input, one layer, the output. */

static void begin_model(oct_model *m, int64_t side, int64_t output)
{
    oct_program *p = &m->program;
    *m = (oct_model){.mean = {0.5F}, .std = {0.5F}, .classes = (int)output};
    *p = (oct_program){.target = "x86", .num_steps = 1, .num_values = 2, .num_inputs = 1};
    MUST(oct_alloc(&p->steps, 1, sizeof *p->steps));
    MUST(oct_alloc(&p->values, 2, sizeof *p->values));
    MUST(oct_alloc(&m->overflow_bound, 1, sizeof *m->overflow_bound));
    MUST(oct_strdup(&m->recipe, "schema: 1\nmodel.name: cnn-small\n"));
    MUST(oct_strdup(&m->data_format, "idx"));
    p->values[0] = (oct_value){.dtype = OCT_F32, .h = side, .w = side, .c = 1};
    p->values[1] = (oct_value){.dtype = OCT_F32, .h = 1, .w = 1, .c = output};
    p->steps[0] = (oct_step){.kind = OCT_STEP_RESHAPE, .num_inputs = 1, .output = 1};
    snprintf(p->steps[0].name, sizeof p->steps[0].name, "flatten");
    p->output = 1;
}

static void end_model(oct_model *m, const char *file)
{
    MUST(oct_model_write(file, m));
    oct_model_free(m);
}

static void save_fallback(const char *file, const char *type, int num_args, const double *args)
{
    oct_model m;
    begin_model(&m, 4, 16);
    m.certificate.num_fallbacks = 1;
    oct_step *step = &m.program.steps[0];
    step->kind = OCT_STEP_FLOAT;
    MUST(oct_alloc(&step->fallback, 1, sizeof *step->fallback));
    oct_fallback *fallback = step->fallback;
    snprintf(fallback->type, sizeof fallback->type, "%s", type);
    fallback->args.count = num_args;
    memcpy(fallback->args.value, args, (size_t)num_args * sizeof *args);
    fallback->dims[0] = 4;
    MUST(oct_alloc(&fallback->arrays, 1, sizeof *fallback->arrays));
    end_model(&m, file);
}

Test(hostile, float_layers_that_cannot_be_are_the_files_fault)
{
    static const struct {
        const char *type;
        int num_args;
        double args[OCT_MAX_ARGS];
        const char *sentence;
    } fallbacks[] = {
        {"conv2d",
         14,
         {2e9, 2e9, 2e4, 2e4, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1},
         "conv2d cannot have kernel_h 20000; it must be from 1 to 16384"},
        {"conv2d",
         14,
         {2147483647, 2147483647, 9999, 9999, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1},
         "more than can be counted"},
        {"linear", 3, {65536, 65536, 1}, "its arguments ask for more memory than its arrays have"},
        {"interpolate", 3, {65536, 65536, 0}, "it makes a tensor of shape (1, 65536, 65536, 1)"},
        {"interpolate",
         3,
         {2147483647, 2147483647, 1},
         "it makes a tensor of shape (1, 2147483647, 2147483647, 1)"},
        {"reshape", 1, {17}, "flatten: "},
        {"add", 0, {0}, "add takes 2 inputs"},
        {"max_pool",
         9,
         {-1, -1, 0, 0, 7, 7, 7, 7, 0},
         "max_pool cannot have kernel_h -1; it must be from 1"},
        {"max_pool", 9, {2, 2}, "max_pool cannot have stride_h 0; it must be from 1"},
        {"reshape", 24, {1, 2, 3, 4, 5, 6, 7, 8, 9}, "a reshape has at most 3 dimensions"},
        {"parameter", 24, {23, 1, 1}, "a parameter is made from its number of dimensions, 1 to 3"},
        {"move", 6, {0, 1, 16, 1, 0, 1}, "a move to (1, 16): its loop 0 has 0 turns"},
        {"conv_transpose2d",
         16,
         {1e18, 1, 2, 2, 1, 1},
         "argument 1 of a conv_transpose2d, in_channels, is 1e+18"},
        {"flatten", 1, {3}, "a flatten is made from 0 arguments, but has 1"},
        {"linear", 3, {2.5, 1, 0}, "argument 1 of a linear, in_features, is 2.5"},
        {"batch_norm", 3, {1, 1e-5, 1e-306}, "its arguments are not those of a batch_norm"},
    };
    for (size_t i = 0; i < OCT_COUNT(fallbacks); i++) {
        save_fallback("fallback.int8.h5", fallbacks[i].type, fallbacks[i].num_args,
                      fallbacks[i].args);
        const char *commands[][7] = {{"verify", "fallback.int8.h5"},
                                     {"eval", "fallback.int8.h5"},
                                     {"inspect", "fallback.int8.h5"},
                                     {"export", "fallback.int8.h5", "--format", "onnx", "-o", "x"},
                                     {"run", "fallback.int8.h5", "--input", "fallback.int8.h5"}};
        for (size_t k = 0; k < OCT_COUNT(commands); k++)
            check_answer("fallback.int8.h5: flatten: ", 3, fallbacks[i].sentence, commands[k]);
    }
}

static void save_product(const char *file, int side)
{
    oct_model m;
    begin_model(&m, 4, 16);
    m.classes = side;
    m.certificate.num_fallbacks = 1;
    oct_step *step = &m.program.steps[0];
    *step = (oct_step){.kind = OCT_STEP_FLOAT, .name = "attention", .num_inputs = 2, .output = 1};
    MUST(oct_alloc(&step->fallback, 1, sizeof *step->fallback));
    *step->fallback = (oct_fallback){.type = "matmul", .dims = {3, 3}};
    for (int i = 0; i < 2; i++)
        m.program.values[i] = (oct_value){.dtype = OCT_F32, .h = 1, .w = side, .c = side};
    end_model(&m, file);
}

/* 64 MB of input, 0 bytes in the file: refused before a product of 4096 x 4096 x 4096 is run. */
Test(hostile, a_product_of_two_values_counts_as_what_it_computes)
{
    save_product("product.int8.h5", 4096);
    check_answer("product.int8.h5", 3, "one sample takes as long as 2.76e+11 multiply-adds",
                 (const char *const[]){"inspect", "product.int8.h5", NULL});
}

/* A file of 37 GB without a block on the disk: 9000 samples that may each be run, and not all of them. */
Test(hostile, run_counts_the_work_of_all_its_images)
{
    save_product("product.int8.h5", 2048);
    oct_process job = oct_process_run(
        60, "/usr/bin/python3", "-c",
        "import numpy.lib.format as f; o = open('x.npy', 'wb'); f.write_array_header_1_0(o, "
        "{'descr': '|u1', 'fortran_order': False, 'shape': (9000, 1, 2048, 2048)}); "
        "o.truncate(o.seek(0, 2) + 9000 * 2048 * 2048)",
        NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
    check_answer("x.npy", 3, "x.npy: 9000 samples take as long as 3.11e+14 multiply-adds",
                 (const char *const[]){"run", "product.int8.h5", "--input", "x.npy", "--count",
                                       "9000", NULL});
}

Test(hostile, without_golden_inputs_and_data_nothing_is_called_verified)
{
    oct_model m;
    begin_model(&m, 4, 16);
    end_model(&m, "bare.int8.h5");
    oct_process job = RUN("verify", "bare.int8.h5", "--golden-only");
    oct_check_exit(job, 1);
    oct_check_said(job,
                   "not verified: layers: the file holds no golden inputs; octet convert makes");
    oct_check_said(job, "bare.int8.h5: nothing differs, but not everything was verified");
    cr_assert_not(oct_process_said(&job, "golden inputs, all"));
    oct_process_free(&job);
    job = RUN("verify", "bare.int8.h5", "--golden-only", "--json");
    oct_check_exit(job, 1);
    oct_check_said(job, "\"complete\": false");
    oct_process_free(&job);
    job = RUN("verify", HOSTILE "../../io/hostile/ckpt-meta-crash-147.h5", "--golden-only");
    oct_check_exit(job, 3);
    oct_process_free(&job);
}

Test(hostile, names_cannot_steer_a_terminal)
{
    oct_model m;
    begin_model(&m, 4, 16);
    snprintf(m.program.steps[0].name, sizeof m.program.steps[0].name,
             "a\xc2\x9b"
             "31mred\xff");
    end_model(&m, "odd.int8.h5");
    oct_process job = RUN("inspect", "odd.int8.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "a??31mred?");
    oct_process_free(&job);
    job = RUN("inspect", "odd.int8.h5", "--json");
    oct_process_free(&job);
    job = RUN("verify", "\033[31mmissing\r.h5");
    oct_check_exit(job, 3);
    oct_check_said(job, "?[31mmissing?.h5");
    oct_process_free(&job);
}

Test(hostile, files_of_other_kinds_are_not_taken_for_pixels)
{
    static const struct {
        const char *begin;
        size_t bytes;
        const char *sentence;
    } kinds[] = {
        {"\x89PNG\r\n\x1a\n", 8, "is a damaged PNG file"},
        {"\xff\xd8\xff\xe0", 4, "is a JPEG file that is damaged, cut short or of a rare kind"},
        {"GIF89a", 6, "is a GIF file, which is not decoded here; convert it to PNG"},
        {"BM\x40\0\0\0", 6, "is a BMP file"},
        {"P2\n", 3, "is a text PNM file"},
        {"\0\0\0\x18"
         "ftypheic",
         12, "is a HEIC, AVIF or MP4 file"},
    };
    oct_model m;
    begin_model(&m, 4, 16);
    end_model(&m, "bare.int8.h5");
    for (size_t i = 0; i < OCT_COUNT(kinds); i++) {
        char bytes[64] = {0}; /* four images of 16 bytes */
        memcpy(bytes, kinds[i].begin, kinds[i].bytes);
        const char *file = oct_tmp_write(&tmp, "image", bytes, sizeof bytes);
        const char *const words[] = {"run", "bare.int8.h5", "--input", file, NULL};
        check_answer(file, 3, kinds[i].sentence, words);
    }
    const char *raw = oct_tmp_write(&tmp, "raw", "BMBMBMBMBMBMBMBM", 16);
    oct_process job = RUN("run", "bare.int8.h5", "--input", raw, "--raw");
    oct_check_exit(job, 0);
    oct_process_free(&job);
}

/* Two megabytes that say they are two gigabytes, and a quarter of a gigabyte of zeros in pieces. */
Test(hostile, gzipped_files_inflate_to_no_more_than_they_may)
{
    oct_model m;
    begin_model(&m, 4, 16);
    end_model(&m, "bare.int8.h5");
    oct_process job = oct_process_run(
        60, "sh", "-c",
        "{ printf '\\0\\0\\10\\3\\0\\40\\0\\0\\0\\0\\0\\40\\0\\0\\0\\40'; "
        "head -c 2200000 /dev/urandom; } | gzip -1 > t10k-images-idx3-ubyte.gz; "
        "{ printf '\\0\\0\\10\\1\\0\\40\\0\\0'; head -c 2097152 /dev/zero; } > "
        "t10k-labels-idx1-ubyte; cp t10k-images-idx3-ubyte.gz train-images-idx3-ubyte.gz; "
        "cp t10k-labels-idx1-ubyte train-labels-idx1-ubyte; "
        "head -c 4194304 /dev/zero | gzip -1 > piece; for i in $(seq 65); do cat piece; done > "
        "raw.gz",
        NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
    job = RUN("eval", "bare.int8.h5", "--data", ".");
    oct_check_exit(job, 3);
    oct_check_said(job, "t10k-images-idx3-ubyte.gz: ");
    oct_check_said(job, "would inflate to 2147483648, more than 64 times as many");
    oct_process_free(&job);
    job = RUN("run", "bare.int8.h5", "--input", "t10k-images-idx3-ubyte.gz");
    oct_check_exit(job, 3);
    oct_process_free(&job);
    job = RUN("run", "bare.int8.h5", "--input", "raw.gz");
    oct_check_exit(job, 3);
    oct_check_said(job, "raw.gz: larger than 268 MB");
    oct_process_free(&job);
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    cr_assert(used.ru_maxrss < 900000, "%ld kB", used.ru_maxrss);
}
