/* Flat files: what is written computes the same bits, and what somebody has changed is refused with a sentence, or runs
 * within its bounds. */
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "io/export/format.h"
#include "io/file/file.h"
#include "quant/program/flat.h"
#include "io/model/model_file.h"
#include "launch/deploy/certificate.h"
#include "tests/quant/program_maker.h"
#include "tests/support/program.h"

#include <octet/net.h>
#include <string.h>
#include <sys/stat.h>

#define OK(call) cr_assert((call) == OCT_OK, "%s", oct_error_count() ? oct_error_message(0) : #call)

enum { SAMPLES = 2, ROOM = 4096 };

static oct_model model;
static oct_exported file;
static oct_flat *flat;
static oct_net *net;

/* What only commands read; names of classes and other texts are literals. */
static void fill_golden(void)
{
    static uint8_t digests[SAMPLES * 32 * 32];
    static char recipe[] = "schema: 1\nmodel:\n  name: cnn-small\n", format[] = "idx",
                plugins[] = "00 a.so\n", fallbacks[] = "block: is unrolled\n";
    model.recipe = recipe;
    model.data_format = format;
    model.plugins = plugins;
    model.certificate.fallbacks = fallbacks;
    model.certificate.images = 500;
    model.certificate.correct = 7;
    model.certificate.rows = 1000;
    model.certificate.qat_accuracy = 0.7;
    memset(model.certificate.logits_digest, 1, 32);
    memset(model.certificate.data_digest, 2, 32);
    memset(model.checkpoint_digest, 3, 32);
    cr_assert_leq(model.program.num_values, 32);
    OK(oct_golden_digests(&model.program, model.golden_input, SAMPLES, digests));
    model.golden_digest = digests;
    OK(oct_model_find_bounds(&model));
}

static void make_file(void (*maker)(oct_program *))
{
    static float golden[SAMPLES * ROOM];
    model = (oct_model){.certificate = {.golden_count = SAMPLES}};
    maker(&model.program);
    program_scales(&model.program);
    const oct_program *p = &model.program;
    const oct_value *out = &p->values[p->output];
    const int64_t numel = SAMPLES * oct_inputs_numel(p);
    cr_assert_leq(numel, SAMPLES * ROOM);
    oct_fill_uniform(golden, numel, 3, OCT_STREAM_TEST, 0, -2, 2);
    model.golden_input = golden;
    model.classes = (int)oct_value_numel(out);
    for (int i = 0; i < (int)p->values[p->inputs[0]].c; i++)
        model.mean[i] = 0.25f, model.std[i] = 0.5f + (float)i;
    fill_golden();
    const oct_export of = {.model = &model, .version = "test", .name = "net"};
    oct_exported_free(&file);
    file.size = 0;
    OK(oct_export_format_flat.write_model(&of, &file));
}

static void end(void)
{
    oct_net_close(&net);
    oct_flat_close(&flat);
    oct_exported_free(&file);
    oct_free(&model.overflow_bound);
    oct_program_free(&model.program);
}

static void start(void)
{
    enter_folder();
    make_file(program_small);
}

static void stop(void)
{
    end();
    leave_folder();
}

TestSuite(flat, .init = start, .fini = stop, .timeout = 120);

/* A model that its own readers would refuse is no flat file: whose pixels have no values, or whose target is no name. */
Test(flat, what_would_not_be_read_is_not_written)
{
    const oct_export of = {.model = &model, .version = "test", .name = "net"};
    oct_exported none = {0};
    model.std[0] = 1e-45f;
    cr_assert_eq(oct_export_format_flat.write_model(&of, &none), OCT_PREPARE);
    cr_assert(strstr(oct_error_message(0), "has no flat file, whose readers would refuse it: "),
              "%s", oct_error_message(0));
    model.std[0] = 0.5f;
    model.program.target[0] = '\033';
    cr_assert_eq(oct_export_format_flat.write_model(&of, &none), OCT_PREPARE);
    cr_assert_null(none.bytes);
}

static oct_flat_header *header(void)
{
    return file.bytes;
}

static void *part(int kind)
{
    return (uint8_t *)file.bytes + header()->section[kind].offset;
}

/* Updates the digest and takes the file. */
static oct_status take_file(void)
{
    if (file.size >= sizeof(oct_flat_header))
        header()->digest = oct_flat_digest(file.bytes, file.size);
    return oct_flat_take(&flat, file.bytes, file.size);
}

/* Computes the golden inputs of the file. */
static oct_status verify(void)
{
    oct_status status = oct_net_open_bytes(&net, file.bytes, file.size, NULL);
    if (status == OCT_OK) status = oct_net_verify(net);
    oct_net_close(&net);
    return status;
}

static void refused(const char *sentence)
{
    cr_assert_eq(take_file(), OCT_DATA, "%s was accepted", sentence);
    cr_assert(strstr(oct_error_message(0), sentence), "%s", oct_error_message(0));
    cr_assert_null(flat);
}

static void run_program(const oct_program *p, const float *x, void *y)
{
    oct_runtime *runtime;
    OK(oct_runtime_create(&runtime, p, NULL));
    OK(oct_runtime_run(runtime, 1, (const float *[]){x}, y));
    oct_runtime_destroy(&runtime);
}

static void compare(void)
{
    static float x[ROOM], expected[ROOM], found[ROOM];
    const oct_value *out = &model.program.values[model.program.output];
    oct_fill_uniform(x, oct_inputs_numel(&model.program), 5, OCT_STREAM_TEST, 0, -3, 3);
    cr_assert_leq(oct_value_numel(out), ROOM);
    run_program(&model.program, x, expected);
    run_program(oct_flat_program(flat), x, found);
    cr_assert_arr_eq(found, expected, oct_value_bytes(out));
}

Test(flat, a_file_computes_the_bits_of_its_model)
{
    oct_tmp_write(&tmp, "a.flat", file.bytes, file.size);
    OK(oct_net_open(&net, "a.flat", NULL));
    OK(oct_net_verify(net));
    cr_assert_eq(oct_net_num_classes(net), model.classes);
    OK(take_file());
    compare();
    end();
    make_file(program_of_other_kinds);
    OK(take_file());
    OK(verify());
    compare();
}

static void *saved(const oct_model *m, size_t *size)
{
    void *bytes = NULL;
    OK(oct_model_write("m.int8.h5", m));
    OK(oct_file_read("m.int8.h5", 1 << 24, &bytes, size));
    return bytes;
}

Test(flat, a_file_holds_the_whole_model)
{
    static void (*const makers[])(oct_program *) = {program_small, program_of_other_kinds};
    for (size_t i = 0; i < OCT_COUNT(makers); i++) {
        oct_model read;
        size_t size, again;
        end();
        make_file(makers[i]);
        oct_tmp_write(&tmp, "a.flat", file.bytes, file.size);
        OK(oct_model_load(&read, "a.flat", false));
        void *first = saved(&model, &size), *second = saved(&read, &again);
        cr_assert(size == again && memcmp(first, second, size) == 0);
        oct_model_free(&read);
        oct_free(&first);
        oct_free(&second);
    }
}

static void not_loaded(const char *sentence)
{
    oct_model read;
    header()->digest = oct_flat_digest(file.bytes, file.size);
    oct_tmp_write(&tmp, "a.flat", file.bytes, file.size);
    cr_assert_eq(oct_model_load(&read, "a.flat", false), OCT_DATA, "%s was accepted", sentence);
    cr_assert(strstr(oct_error_message(0), sentence) == oct_error_message(0), "%s",
              oct_error_message(0));
    cr_assert(!read.recipe && !read.program.steps && !read.golden_input);
}

Test(flat, a_file_keeps_the_names_of_its_input_and_output)
{
    static char names[] = "image_of_some_name\nlogits\n";
    const oct_export of = {.model = &model, .version = "test", .name = "net"};
    oct_model read;
    OK(oct_model_read_flat(&read, file.bytes, file.size));
    cr_assert_null(read.port_names);
    oct_model_free(&read);
    model.port_names = names;
    oct_exported_free(&file);
    OK(oct_export_format_flat.write_model(&of, &file));
    OK(take_file());
    OK(oct_model_read_flat(&read, file.bytes, file.size));
    cr_assert_str_eq(read.port_names, names);
    oct_model_free(&read);
    char *text = part(OCT_FLAT_TEXTS);
    const size_t bytes = (size_t)header()->section[OCT_FLAT_TEXTS].count;
    text[bytes - sizeof names + 5] = '\n';
    not_loaded("a.flat: the names of the input and the output are not 2 lines of plain text");
}

Test(flat, a_model_that_contradicts_itself_is_refused)
{
    const oct_program *p = &model.program;
    oct_flat_model *m = part(OCT_FLAT_MODEL);
    uint8_t *digests = (uint8_t *)(m + 1) + 2 * sizeof(float) * (size_t)p->values[p->inputs[0]].c;
    char *text = part(OCT_FLAT_TEXTS);
    digests[32 * (p->num_values + p->output)] ^= 1;
    not_loaded("a.flat: golden output 1 is not the one of its digest");
    digests[32 * (p->num_values + p->output)] ^= 1;
    ((uint8_t *)part(OCT_FLAT_PIXELS))[77] ^= 1;
    not_loaded("a.flat: its pixels are not those of its mean and standard deviation");
    ((uint8_t *)part(OCT_FLAT_PIXELS))[77] ^= 1;
    m->correct = 1001;
    not_loaded("a.flat: the figures of the certificate contradict each other");
    m->correct = -1;
    not_loaded("a.flat: the figures of the certificate contradict each other");
    m->correct = 7;
    text[3] = '\033';
    not_loaded("a.flat: a text holds control characters");
    text[3] = '\0';
    not_loaded("a.flat: its texts are not as many as they should be");
    text[3] = 'e';
    header()->section[OCT_FLAT_TEXTS].count--;
    not_loaded("a.flat: its texts are not as many as they should be");
    header()->section[OCT_FLAT_TEXTS].count++;
    header()->section[OCT_FLAT_MODEL].count--;
    not_loaded("a.flat: its certificate is cut short");
    header()->section[OCT_FLAT_MODEL].count = 0;
    not_loaded("a.flat: its certificate is cut short");
}

Test(flat, other_golden_outputs_are_found)
{
    ((uint8_t *)part(OCT_FLAT_GOLDEN_OUTPUT))[0] ^= 1;
    OK(take_file());
    cr_assert_eq(verify(), OCT_MISMATCH);
}

Test(flat, damage_and_other_files_are_refused)
{
    uint8_t *bytes = file.bytes;
    bytes[file.size / 2] ^= 4;
    cr_assert_eq(oct_flat_take(&flat, bytes, file.size), OCT_DATA);
    cr_assert(strstr(oct_error_message(0), "is damaged: its digest differs"), "%s",
              oct_error_message(0));
    bytes[file.size / 2] ^= 4;
    header()->order = 0x04030201;
    refused("another order of bytes");
    header()->order = OCT_FLAT_ORDER;
    header()->version = 1;
    refused("has version 1 and this Octet reads version 3; export the model again");
    header()->version = OCT_FLAT_VERSION;
    header()->bytes--;
    refused("but was written with");
    header()->bytes++;
    bytes[0] = 'x';
    refused("is no flat file of an int8 model");
    oct_tmp_write(&tmp, "short.flat", "octflat", 8);
    cr_assert_eq(oct_net_open(&net, "short.flat", NULL), OCT_DATA);
    cr_assert(strstr(oct_error_message(0), "short.flat: is no flat file"), "%s",
              oct_error_message(0));
    cr_assert_eq(oct_net_open(&net, "none.flat", NULL), OCT_DATA);
    cr_assert(strstr(oct_error_message(0), "none.flat: cannot be opened"), "%s",
              oct_error_message(0));
    cr_assert(mkfifo("pipe.flat", 0600) == 0); /* a fifo, which must not block */
    cr_assert_eq(oct_net_open(&net, "pipe.flat", NULL), OCT_DATA);
    cr_assert(strstr(oct_error_message(0), "pipe.flat: is not an int8 model"), "%s",
              oct_error_message(0));
    cr_assert_null(net);
}

Test(flat, places_and_counts_beyond_the_file_are_refused)
{
    for (int i = 0; i < OCT_FLAT_SECTION_COUNT; i++) {
        oct_flat_section *s = &header()->section[i];
        const oct_flat_section good = *s;
        const uint64_t wrong[] = {UINT64_MAX, UINT64_MAX / 64 * 64, file.size, file.size + 64, 0};
        for (size_t k = 0; k < OCT_COUNT(wrong); k++) {
            s->offset = wrong[k];
            if (wrong[k] != file.size || good.count) refused("lies outside");
        }
        *s = good;
        s->count = UINT64_MAX / 2;
        refused("lies outside");
        *s = good;
    }
    oct_flat_array *array = part(OCT_FLAT_ARRAYS);
    array->offset = UINT64_MAX / 64 * 64;
    refused("lies outside of the file");
    array->offset = 0;
    array->count += 1;
    refused("should have");
    array->count -= 1;
}

Test(flat, programs_that_break_a_rule_are_refused)
{
    static const struct {
        const char *find, *text, *said;
    } cases[] = {
        {"name=quant", "name=q\nant", "that can be there"},
        {"output=1 ", "output=9 ", "does not exist"},
        {"step quantize", "step quantum ", "of a kind 'quantum'"},
        {"value u8 h=9", "value u8 h=0", "its h is 0"},
        {"step add", "step lut", "it has no field"},
        {"target=", "tarGet=", "it has no field 'tarGet'"},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        char *text = part(OCT_FLAT_PROGRAM), *at = strstr(text, cases[i].find);
        cr_assert(at, "%s", cases[i].find);
        memcpy(at, cases[i].text, strlen(cases[i].find));
        refused(cases[i].said);
        memcpy(at, cases[i].find, strlen(cases[i].find));
    }
    OK(take_file());
}

/* Whatever is changed, nothing else is read and nothing is left over (under sanitizers, too). */
Test(flat, bytes_at_random_are_refused_or_run)
{
    uint8_t *bytes = file.bytes;
    int64_t accepted = 0;
    for (uint64_t n = 0; n < 4000; n++) {
        uint32_t draw[4];
        oct_philox(11, OCT_STREAM_TEST, n, 0, draw);
        const size_t at = sizeof(oct_flat_header) -
                          sizeof(oct_flat_section) * OCT_FLAT_SECTION_COUNT +
                          oct_below(draw[0], (uint32_t)(file.size - 64));
        if (at >= file.size) continue;
        const uint8_t old = bytes[at];
        bytes[at] = n % 2 ? (uint8_t)draw[1] : bytes[at] ^ (uint8_t)(1u << draw[1] % 8);
        const oct_status status = take_file();
        cr_assert(status == OCT_OK || status == OCT_DATA, "byte %zu: %s", at, oct_error_message(0));
        if (status == OCT_OK) {
            const oct_status verified = verify();
            cr_assert(verified == OCT_OK || verified == OCT_MISMATCH || verified == OCT_DATA,
                      "byte %zu: %s", at, oct_error_message(0));
            accepted++;
        }
        oct_model read;
        const oct_status loaded = oct_model_read_flat(&read, bytes, file.size);
        cr_assert(loaded == OCT_OK || loaded == OCT_DATA, "byte %zu: %s", at, oct_error_message(0));
        oct_model_free(&read);
        oct_flat_close(&flat);
        bytes[at] = old;
    }
    cr_assert_gt(accepted, 0);
}

Test(flat, a_float_layer_is_refused_by_its_name)
{
    oct_exported out = {0};
    oct_program p = {0};
    program_with_fallback(&p);
    oct_model with = {.program = p};
    const oct_export of = {.model = &with, .version = "test"};
    cr_assert_eq(oct_export_format_flat.write_model(&of, &out), OCT_PREPARE);
    cr_assert(strstr(oct_error_message(0), "a flat file has no float layers"), "%s",
              oct_error_message(0));
    oct_program_free(&p);
}
