/* The int8 model file: loading returns what was saved, equal models give equal bytes, and a wrong file is
 * refused with its name before it can do harm. */
#include "io/model/model_file.h"
#include "quant/program/step.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5.h"
#include "tests/support/check_status.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <fenv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static oct_tmp tmp;
static char model_path[512], other_path[512];

static void start(void)
{
    oct_tmp_create(&tmp);
    snprintf(model_path, sizeof model_path, "%s", oct_tmp_path(&tmp, "net.int8.h5"));
    snprintf(other_path, sizeof other_path, "%s", oct_tmp_path(&tmp, "other.int8.h5"));
}

static void end(void)
{
    oct_tmp_remove(&tmp);
}

TestSuite(model_file, .init = start, .fini = end, .timeout = 300);

static bool is_model(const char *path)
{
    bool is;
    MUST(oct_model_probe(path, &is));
    return is;
}

/* A model with every kind of step, and different numbers in every field. */

enum {
    STEPS = 9,
    VALUES = 11,
    GOLDEN = 3,
    CLASSES = 5,
    SECOND = 6, /* numbers of the float fallback's output */
    INPUT = 8 * 8 * 3 + 4,
    FALLBACK = 7,
};

static oct_value codes(int64_t h, int64_t w, int64_t c, float scale)
{
    return (oct_value){OCT_U8, h, w, c, {scale, 128, 0, 255}};
}

static oct_step make_step(oct_step_kind kind, const char *name, int32_t a, int32_t b,
                          int32_t output)
{
    oct_step s = {.kind = kind, .num_inputs = b < 0 ? 1 : 2, .input = {a, b < 0 ? 0 : b}};
    s.output = output;
    snprintf(s.name, sizeof s.name, "%s", name);
    return s;
}

static void add_arrays(const oct_program *p, oct_step *s)
{
    const oct_qparams x = oct_step_input(p, s, 0)->q, y = oct_step_output(p, s)->q;
    oct_conv_step *l = &s->conv;
    const oct_conv_shape *c = &l->shape;
    size_t weights = (size_t)(c->out_c * c->kernel_h * c->kernel_w * (c->in_c / c->groups));
    size_t channels = (size_t)c->out_c;
    MUST(oct_alloc(&l->weight, weights, sizeof *l->weight));
    MUST(oct_alloc(&l->bias, channels, sizeof *l->bias));
    MUST(oct_alloc(&l->multiplier, channels, sizeof *l->multiplier));
    MUST(oct_alloc(&l->weight_scale, channels, sizeof *l->weight_scale));
    for (size_t i = 0; i < weights; i++)
        l->weight[i] = (int8_t)((int)(i * 37 % 255) - 127);
    for (size_t i = 0; i < channels; i++) {
        l->bias[i] = (int64_t)i * 1001 - 3000;
        l->weight_scale[i] = 0.02F / (float)(i + 7);
        l->multiplier[i] = x.scale * l->weight_scale[i] / (y.scale > 0 ? y.scale : 1);
    }
}

/* A linear layer that stays float. */
static void add_fallback(oct_step *s)
{
    MUST(oct_alloc(&s->fallback, 1, sizeof *s->fallback));
    oct_fallback *fallback = s->fallback;
    *fallback = (oct_fallback){.type = "linear", .args = *OCT_OP_ARGS(4, SECOND, 1), .dims = {2}};
    MUST(oct_alloc(&fallback->arrays, 2, sizeof *fallback->arrays));
    fallback->num_arrays = 2;
    for (int i = 0; i < 2; i++) {
        oct_fallback_array *array = &fallback->arrays[i];
        *array = (oct_fallback_array){.dtype = OCT_F32, .shape = OCT_SHAPE(SECOND)};
        if (i == 0) array->shape = OCT_SHAPE(SECOND, 4);
        MUST(oct_strdup(&array->name, i == 0 ? "weight" : "bias"));
        MUST(oct_alloc(&array->data, SECOND * 4, sizeof(float)));
        for (int k = 0; k < (i == 0 ? SECOND * 4 : SECOND); k++)
            ((float *)array->data)[k] = (float)(k - 7 * i) / 5.0F;
    }
}

static void make_program(oct_program *p)
{
    *p = (oct_program){.target = "x86",
                       .num_steps = STEPS,
                       .num_values = VALUES,
                       .num_inputs = 2,
                       .inputs = {0, 8},
                       .output = 7};
    MUST(oct_alloc(&p->steps, STEPS, sizeof *p->steps));
    MUST(oct_alloc(&p->values, VALUES, sizeof *p->values));
    p->values[0] = (oct_value){.dtype = OCT_F32, .h = 8, .w = 8, .c = 3};
    p->values[1] = codes(8, 8, 3, 0.01F);
    p->values[2] = codes(8, 8, 4, 0.02F);
    p->values[3] = codes(8, 8, 4, 0.03F);
    p->values[4] = codes(8, 8, 4, 0.04F);
    p->values[5] = codes(4, 4, 4, 0.04F);
    p->values[6] = codes(1, 1, 4, 0.04F);
    p->values[7] = (oct_value){.dtype = OCT_F32, .h = 1, .w = 1, .c = CLASSES};
    p->values[8] = (oct_value){.dtype = OCT_F32, .h = 1, .w = 1, .c = 4};
    p->values[9] = (oct_value){.dtype = OCT_F32, .h = 1, .w = 1, .c = SECOND};
    p->values[10] = (oct_value){OCT_U16, 1, 1, SECOND, {0.001F, 32768, 0, 65535}};

    p->steps[0] = make_step(OCT_STEP_QUANTIZE, "quant", 0, -1, 1);
    p->steps[1] = make_step(OCT_STEP_CONV, "layers.0.conv", 1, -1, 2);
    p->steps[1].conv.shape = oct_conv_shape_of(8, 8, 3, 4, oct_conv_geometry_of(3, 3, 1, 1, 1));
    p->steps[1].conv.input_step_h = p->steps[1].conv.input_step_w = 1;
    p->steps[1].conv.lo = 0;
    p->steps[1].conv.hi = 120;
    p->steps[2] = make_step(OCT_STEP_CONV, "layers.1.conv", 2, -1, 3);
    p->steps[2].conv.shape = oct_conv_shape_of(8, 8, 4, 4, oct_conv_geometry_of(3, 3, 1, 1, 2));
    p->steps[2].conv.input_step_h = p->steps[2].conv.input_step_w = 1;
    p->steps[2].conv.lo = -100;
    p->steps[2].conv.hi = 127;
    p->steps[3] = make_step(OCT_STEP_ADD, "add", 2, 3, 4);
    p->steps[3].add = oct_qadd_of(p->values[2].q, p->values[3].q, p->values[4].q, true);
    p->steps[4] = make_step(OCT_STEP_MAX_POOL, "pool", 4, -1, 5);
    p->steps[4].pool.shape = oct_conv_shape_of(8, 8, 4, 4, oct_conv_geometry_of(2, 2, 2, 0, 1));
    p->steps[5] = make_step(OCT_STEP_AVG_POOL, "average", 5, -1, 6);
    p->steps[5].pool.shape = oct_conv_shape_of(4, 4, 4, 4, oct_conv_geometry_of(4, 4, 1, 0, 1));
    p->steps[6] = make_step(OCT_STEP_CONV_FLOAT, "head", 6, -1, 7);
    p->steps[6].conv.shape =
        oct_conv_shape_of(1, 1, 4, CLASSES, oct_conv_geometry_of(1, 1, 1, 0, 1));
    p->steps[6].conv.input_step_h = p->steps[6].conv.input_step_w = 1;
    p->steps[FALLBACK] = make_step(OCT_STEP_FLOAT, "second", 8, -1, 9);
    p->steps[8] = make_step(OCT_STEP_QUANTIZE, "wide", 9, -1, 10);
    add_arrays(p, &p->steps[1]);
    add_arrays(p, &p->steps[2]);
    add_arrays(p, &p->steps[6]);
    add_fallback(&p->steps[FALLBACK]);
    MUST(oct_program_check(p));
}

static void make_model(oct_model *m)
{
    *m = (oct_model){.mean = {0.1F, 0.2F, 0.3F}, .std = {0.4F, 0.5F, 0.6F}, .classes = CLASSES};
    make_program(&m->program);

    MUST(oct_strdup(&m->recipe, "model: test\n"));
    MUST(oct_strdup(&m->data_format, "cifar10"));
    MUST(oct_model_find_bounds(m));
    MUST(oct_alloc(&m->golden_input, GOLDEN * INPUT, sizeof *m->golden_input));
    MUST(oct_alloc(&m->golden_digest, (size_t)GOLDEN * VALUES * 32, 1));
    for (int i = 0; i < GOLDEN * INPUT; i++)
        m->golden_input[i] = (float)i / 17.0F - 3.0F;
    for (int i = 0; i < GOLDEN * VALUES * 32; i++)
        m->golden_digest[i] = (uint8_t)(i * 7 + i / 256);
    oct_certificate *c = &m->certificate;
    *c = (oct_certificate){.images = 10000,
                           .correct = 9123,
                           .qat_accuracy = 91.23,
                           .golden_count = GOLDEN,
                           .num_fallbacks = 1};
    for (int i = 0; i < 32; i++) {
        m->checkpoint_digest[i] = (uint8_t)(i + 1);
        c->logits_digest[i] = (uint8_t)(i + 101);
        c->data_digest[i] = (uint8_t)(i + 201);
    }
    MUST(oct_strdup(&c->fallbacks, "a.b\nc\n"));
}

/* Equal in every field, or a failed test that names the field. */
#define SAME(field) cr_assert(memcmp(&a->field, &b->field, sizeof a->field) == 0, #field)
#define SAME_ARRAY(field, count)                                                                   \
    cr_assert(memcmp(a->field, b->field, (size_t)(count) * sizeof *a->field) == 0, #field)

static void check_same_fallback(const oct_fallback *a, const oct_fallback *b)
{
    cr_assert_str_eq(a->type, b->type);
    SAME(args.count);
    SAME(args.value);
    SAME(dims);
    SAME(num_arrays);
    for (int64_t i = 0; i < a->num_arrays; i++) {
        cr_assert_str_eq(a->arrays[i].name, b->arrays[i].name);
        SAME(arrays[i].dtype);
        cr_assert(oct_shape_equal(&a->arrays[i].shape, &b->arrays[i].shape));
        const size_t bytes = (size_t)oct_shape_numel(&a->arrays[i].shape) * sizeof(float);
        cr_assert(memcmp(a->arrays[i].data, b->arrays[i].data, bytes) == 0);
    }
}

static void check_same_shape(const oct_conv_shape *a, const oct_conv_shape *b)
{
    SAME(in_h);
    SAME(in_w);
    SAME(in_c);
    SAME(out_h);
    SAME(out_w);
    SAME(out_c);
    SAME(kernel_h);
    SAME(kernel_w);
    SAME(stride_h);
    SAME(stride_w);
    SAME(pad_top);
    SAME(pad_left);
    SAME(pad_bottom);
    SAME(pad_right);
    SAME(dilation_h);
    SAME(dilation_w);
    SAME(groups);
}

static void check_same_layer(const oct_conv_step *a, const oct_conv_step *b)
{
    check_same_shape(&a->shape, &b->shape);
    SAME(input_step_h);
    SAME(input_step_w);
    SAME(addend_multiplier);
    SAME(lo);
    SAME(hi);
    SAME_ARRAY(weight, oct_conv_depth(&a->shape) * a->shape.out_c);
    SAME_ARRAY(bias, a->shape.out_c);
    SAME_ARRAY(multiplier, a->shape.out_c);
    SAME_ARRAY(weight_scale, a->shape.out_c);
}

static void check_same_step(const oct_step *a, const oct_step *b)
{
    SAME(kind);
    SAME(num_inputs);
    cr_assert_str_eq(a->name, b->name);
    SAME(input);
    SAME(output);
    if (oct_step_type_of(a->kind)->weights) check_same_layer(&a->conv, &b->conv);
    if (a->kind == OCT_STEP_FLOAT) check_same_fallback(a->fallback, b->fallback);
    if (a->kind == OCT_STEP_MAX_POOL || a->kind == OCT_STEP_AVG_POOL) {
        check_same_shape(&a->pool.shape, &b->pool.shape);
        SAME(pool.ceil);
        SAME(pool.count_include_pad);
        SAME(pool.factor);
    }
    if (a->kind != OCT_STEP_ADD) return;
    SAME(add.ma);
    SAME(add.mb);
    SAME(add.shift);
    SAME(add.za);
    SAME(add.zb);
    SAME(add.lo);
    SAME(add.hi);
    SAME(add.zero_point);
    SAME(add.relu);
}

static void check_same(const oct_model *a, const oct_model *b)
{
    SAME(program.num_steps);
    SAME(program.num_values);
    cr_assert_str_eq(a->program.target, b->program.target);
    SAME(program.requantizer);
    SAME(program.num_inputs);
    SAME(program.inputs);
    SAME(program.output);
    for (int i = 0; i < STEPS; i++)
        check_same_step(&a->program.steps[i], &b->program.steps[i]);
    for (int i = 0; i < VALUES; i++) {
        SAME(program.values[i].dtype);
        SAME(program.values[i].h);
        SAME(program.values[i].w);
        SAME(program.values[i].c);
        SAME(program.values[i].q);
    }
    cr_assert_str_eq(a->recipe, b->recipe);
    cr_assert_str_eq(a->data_format, b->data_format);
    SAME(mean);
    SAME(std);
    SAME(classes);
    SAME(checkpoint_digest);
    SAME_ARRAY(overflow_bound, STEPS);
    SAME_ARRAY(golden_input, GOLDEN * INPUT);
    SAME_ARRAY(golden_digest, GOLDEN * VALUES * 32);
    SAME(certificate.images);
    SAME(certificate.logits_differ);
    SAME(certificate.correct);
    SAME(certificate.qat_accuracy);
    SAME(certificate.logits_digest);
    SAME(certificate.data_digest);
    SAME(certificate.golden_count);
    SAME(certificate.num_fallbacks);
    cr_assert_str_eq(a->certificate.fallbacks, b->certificate.fallbacks);
}

Test(model_file, brings_back_every_field)
{
    oct_model saved, loaded;
    make_model(&saved);
    MUST(oct_model_write(model_path, &saved));
    MUST(oct_model_load(&loaded, model_path, false));
    check_same(&saved, &loaded);
    oct_model_free(&saved);
    oct_model_free(&loaded);
    cr_assert_null(loaded.program.steps);
    check_nothing_held();
}

Test(model_file, may_lack_texts_and_golden_vectors)
{
    oct_model m, loaded;
    make_model(&m);
    oct_free(&m.recipe);
    oct_free(&m.data_format);
    oct_free(&m.certificate.fallbacks);
    oct_free(&m.golden_input);
    oct_free(&m.golden_digest);
    m.certificate.golden_count = 0;
    MUST(oct_model_write(model_path, &m));
    MUST(oct_model_load(&loaded, model_path, false));
    cr_assert_str_eq(loaded.recipe, "");
    cr_assert_str_eq(loaded.data_format, "");
    cr_assert_null(loaded.certificate.fallbacks);
    cr_assert_eq(loaded.certificate.golden_count, 0);
    oct_model_free(&m);
    oct_model_free(&loaded);
    check_nothing_held();
}

Test(model_file, equal_models_give_equal_bytes)
{
    oct_model a, b;
    void *first, *second;
    size_t size, length;
    make_model(&a);
    MUST(oct_model_write(model_path, &a));
    oct_model_free(&a);
    sleep(1);
    make_model(&b);
    /* What is not part of the model must not be part of the file. */
    memset(b.program.steps[3].name + 10, 'x', 20);
    b.program.values[0].q = (oct_qparams){3.0F, 1, 2, 3};
    oct_free(&b.overflow_bound); /* which it finds then */
    fesetround(FE_UPWARD);
    MUST(oct_model_write(other_path, &b));
    oct_model_free(&b);
    MUST(oct_model_load(&a, model_path, false));
    oct_model_free(&a);
    cr_assert_eq(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
    MUST(oct_file_read(model_path, 1 << 20, &first, &size));
    MUST(oct_file_read(other_path, 1 << 20, &second, &length));
    cr_assert(size == length && memcmp(first, second, size) == 0);
    oct_free(&first);
    oct_free(&second);
    check_nothing_held();
}

static void write_raw(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    fwrite(bytes, 1, size, file);
    fclose(file);
}

Test(model_file, no_flipped_byte_and_no_truncation_is_accepted)
{
    oct_model m;
    void *bytes;
    size_t size;
    make_model(&m);
    MUST(oct_model_write(model_path, &m));
    oct_model_free(&m);
    MUST(oct_file_read(model_path, 1 << 20, &bytes, &size));
    for (size_t i = 0; i < size; i += 11) {
        ((uint8_t *)bytes)[i] ^= (uint8_t)(1 << i % 8);
        write_raw(other_path, bytes, size);
        cr_assert_eq(oct_model_load(&m, other_path, false), OCT_DATA, "flip at %zu", i);
        if (i % 64 == 0) cr_assert_not(is_model(other_path));
        ((uint8_t *)bytes)[i] ^= (uint8_t)(1 << i % 8);
    }
    check_said("other.int8.h5: is damaged: its SHA-256 differs");
    for (size_t length = 0; length < size; length += 31) {
        write_raw(other_path, bytes, length);
        cr_assert_eq(oct_model_load(&m, other_path, false), OCT_DATA, "%zu bytes", length);
    }
    const char *onnx = oct_tmp_write_text(&tmp, "float.onnx", "\x08\x07\x12\x04none");
    cr_assert_eq(oct_model_load(&m, onnx, false), OCT_DATA);
    check_said("float.onnx: is no model of Octet: it is neither an HDF5 file nor a flat file");
    cr_assert_eq(oct_model_load(&m, NULL, false), OCT_USAGE);
    cr_assert_null(m.recipe);
    oct_free(&bytes);
    check_nothing_held();
}

Test(model_file, knows_a_model_when_it_sees_one)
{
    oct_model m;
    oct_h5 *h5;
    void *bytes;
    size_t size;
    make_model(&m);
    MUST(oct_model_write(model_path, &m));
    oct_model_free(&m);
    cr_assert(is_model(model_path));
    cr_assert_not(is_model(tmp.path));
    cr_assert_not(is_model(oct_tmp_path(&tmp, "missing")));
    cr_assert_not(is_model(oct_tmp_write_text(&tmp, "recipe.yaml", "schema: 1\n")));
    cr_assert_not(is_model(oct_tmp_write_text(&tmp, "empty", "")));
    MUST(oct_h5_create(&h5, 0));
    MUST(oct_h5_write_i64(h5, "state/program", 1)); /* it has a checksum, but is no model */
    MUST(oct_h5_finish(&h5, true, &bytes, &size));
    const char *checkpoint = oct_tmp_write(&tmp, "checkpoint.h5", bytes, size);
    cr_assert_not(is_model(checkpoint));
    oct_free(&bytes);
    cr_assert_eq(oct_error_count(), 0, "it is silent");
    cr_assert_eq(oct_model_load(&m, checkpoint, false), OCT_DATA);
    check_said("checkpoint.h5: is not an int8 model");
    check_nothing_held();
}

/* A few hundred bytes that describe a large plane, pooled over and over and at last to 4 x 4 numbers. */
static void make_large(oct_model *m, int64_t side, int64_t pools)
{
    oct_program *p = &m->program;
    *m = (oct_model){.std = {1, 1, 1, 1}, .classes = 16};
    *p = (oct_program){.target = "x86", .num_steps = pools + 3, .num_inputs = 1, .inputs = {0}};
    p->num_values = p->num_steps + 1;
    MUST(oct_alloc(&p->steps, (size_t)p->num_steps, sizeof *p->steps));
    MUST(oct_alloc(&p->values, (size_t)p->num_values, sizeof *p->values));
    for (int32_t i = 0; i < (int32_t)p->num_steps; i++) {
        p->values[i + 1] = codes(side, side, 1, 0.1F);
        p->steps[i] = make_step(OCT_STEP_MAX_POOL, "pool", i, -1, i + 1);
        p->steps[i].pool.shape =
            oct_conv_shape_of(side, side, 1, 1, oct_conv_geometry_of(3, 3, 1, 1, 1));
    }
    p->values[0] = p->values[p->num_values - 1] =
        (oct_value){.dtype = OCT_F32, .h = side, .w = side, .c = 1};
    p->steps[0] = make_step(OCT_STEP_QUANTIZE, "quant", 0, -1, 1);
    p->steps[pools + 1].kind = OCT_STEP_AVG_POOL;
    const int kernel = (int)side / 4;
    p->steps[pools + 1].pool.shape =
        oct_conv_shape_of(side, side, 1, 1, oct_conv_geometry_of(kernel, kernel, kernel, 0, 1));
    p->values[pools + 2] = codes(4, 4, 1, 0.1F);
    p->steps[pools + 2].kind = OCT_STEP_DEQUANTIZE;
    p->values[pools + 3] = (oct_value){.dtype = OCT_F32, .h = 4, .w = 4, .c = 1};
    p->output = (int32_t)p->num_values - 1;
    MUST(oct_model_find_bounds(m));
}

Test(model_file, refuses_what_takes_more_memory_or_time_than_is_allowed)
{
    static const struct {
        int64_t side, pools;
        const char *why;
    } cases[] = {
        {4096, 4, NULL},
        {4096, 200, "one sample takes as long as"},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_model m, loaded;
        make_large(&m, cases[i].side, cases[i].pools);
        MUST(oct_model_write(model_path, &m));
        oct_mem_peak_reset();
        const size_t before = oct_mem_live();
        oct_status status = oct_model_load(&loaded, model_path, false);
        cr_assert(oct_mem_peak() - before < (32 << 20));
        cr_assert_eq(status, cases[i].why ? OCT_DATA : OCT_OK);
        if (cases[i].why) {
            check_said("net.int8.h5: ");
            check_said(cases[i].why);
            check_said(
                "; if you trust it, --allow-large, or `large` in options, takes it all the same");
        } else {
            MUST(oct_model_check_work(&loaded, 1000, false, model_path));
            MUST(oct_model_check_work(&loaded, 100000, true, model_path));
            cr_assert_eq(oct_model_check_work(&loaded, 100000, false, model_path), OCT_DATA);
            check_said("100000 samples take as long as");
        }
        oct_model_free(&loaded);
        if (i + 1 == OCT_COUNT(cases)) {
            MUST(oct_model_load(&loaded, model_path, true));
            oct_model_free(&loaded);
        }
        oct_model_free(&m);
    }
    check_nothing_held();
}

/* Values that are kept at the same time; each is small enough to be allowed alone. */
Test(model_file, refuses_values_that_take_too_much_together)
{
    enum { CONCATENATED = 8 };
    oct_model m, loaded;
    make_large(&m, 4096, 40);
    for (int32_t i = 2; i <= 41;
         i += 2) { /* every second pool adds what was before the one before it */
        oct_step *s = &m.program.steps[i - 1];
        if (i < 41) s->input[0] = 1; /* so value 1 lives on, and all the others are needed: */
    }
    m.program.steps[40] = make_step(OCT_STEP_CONCAT, "all", 1, 2, 41);
    m.program.steps[40].num_inputs = CONCATENATED;
    for (int i = 0; i < CONCATENATED; i++)
        m.program.steps[40].input[i] = 1 + 4 * i;
    m.program.values[41].c = CONCATENATED;
    m.program.steps[41].pool.shape.in_c = m.program.steps[41].pool.shape.out_c = CONCATENATED;
    m.program.values[42].c = m.program.values[43].c = CONCATENATED;
    m.classes = 16 * CONCATENATED;
    MUST(oct_program_check(&m.program));
    MUST(oct_model_write(model_path, &m));
    cr_assert_eq(oct_model_load(&loaded, model_path, false), OCT_DATA);
    check_said("net.int8.h5: the values of one sample take 285 MB, more than 268 MB");
    oct_model_free(&m);
    check_nothing_held();
}

Test(model_file, says_when_there_is_no_file_or_no_room)
{
    oct_model m, loaded;
    struct rlimit limit;
    cr_assert_eq(oct_model_load(&loaded, model_path, false), OCT_DATA);
    check_said("net.int8.h5: cannot be read: No such file");
    make_model(&m);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 1000;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(oct_model_write(model_path, &m), OCT_RESOURCE);
    check_said("net.int8.h5: cannot be written");
    cr_assert_not(oct_file_exists(model_path));
    oct_model_free(&m);
    check_nothing_held();
}

Test(model_file, saves_nothing_that_could_not_be_loaded)
{
    oct_model m;
    make_model(&m);
    m.program.steps[1].input[0] = 5;
    cr_assert_eq(oct_model_write(model_path, &m), OCT_DATA);
    check_said("net.int8.h5: step 1");
    m.program.steps[1].input[0] = 1;
    m.classes = 6;
    cr_assert_eq(oct_model_write(model_path, &m), OCT_DATA);
    check_said("6 classes, but the output has 5 numbers");
    m.classes = CLASSES;
    m.program.steps[1].name[3] = '\n';
    cr_assert_eq(oct_model_write(model_path, &m), OCT_DATA);
    check_said("the name of step 1 is not a line of text");
    cr_assert_not(oct_file_exists(model_path));
    oct_model_free(&m);
    check_nothing_held();
}

/* Files with good checksums and wrong contents: each copies the good file except for one data set. */

typedef struct copy {
    oct_h5 *from, *to;
    const char *path;                                     /* of the odd one, or NULL */
    void (*change)(void *data, size_t bytes, void *user); /* NULL: leave it out */
    void *user;
    const char *text; /* or instead of it, or of `find` in it */
    const char *find;
    bool found;
    const char *at; /* the data set that is being copied */
} copy;

static void write_text(const copy *c)
{
    char *whole = NULL;
    oct_text text = {0};
    if (c->find) {
        MUST(oct_h5_read_text(c->from, c->at, 1 << 16, &whole));
        char *at = strstr(whole, c->find);
        cr_assert(at, "no %s in %s", c->find, whole);
        *at = '\0';
        MUST(oct_text_add(&text, "%s%s%s", whole, c->text, at + strlen(c->find)));
    }
    MUST(oct_h5_write_text(c->to, c->at, c->find ? text.data : c->text));
    oct_text_free(&text);
    oct_free(&whole);
}

static void copy_items(copy *c)
{
    oct_dtype dtype;
    oct_shape shape;
    void *data;
    for (size_t next = 0; (c->at = oct_h5_next_dataset(c->from, "", &next));) {
        bool odd = c->path && strcmp(c->at, c->path) == 0;
        c->found |= odd;
        if (odd && c->text) {
            write_text(c);
        } else if (!odd || c->change) {
            MUST(oct_h5_describe(c->from, c->at, &dtype, &shape));
            MUST(oct_h5_read_new(c->from, c->at, dtype, shape, &data));
            size_t bytes = (size_t)oct_shape_numel(&shape) * oct_dtype_bytes(dtype);
            if (odd) c->change(data, bytes, c->user);
            MUST(oct_h5_write(c->to, c->at, dtype, shape, data));
            oct_free(&data);
        }
    }
}

static oct_status load_changed(const void *bytes, size_t size, copy c)
{
    oct_model m;
    void *changed;
    size_t length;
    MUST(oct_h5_open_checked(&c.from, bytes, size, "good"));
    MUST(oct_h5_create(&c.to, 0));
    copy_items(&c);
    MUST(oct_h5_finish(&c.to, true, &changed, &length));
    oct_h5_close(&c.from);
    cr_assert(c.found || !c.path, "%s", c.path);
    write_raw(other_path, changed, length);
    oct_free(&changed);
    oct_status status = oct_model_load(&m, other_path, false);
    if (status == OCT_OK)
        MUST(oct_program_check(&m.program));
    else
        cr_assert_null(m.program.steps);
    oct_model_free(&m);
    return status;
}

typedef struct cell {
    size_t index;
    int64_t value;
} cell;

static void set_cell(void *data, size_t bytes, void *user)
{
    const cell *c = user;
    cr_assert(c->index < bytes / 8);
    ((int64_t *)data)[c->index] = c->value;
}

static void set_nan(void *data, size_t bytes, void *user)
{
    (void)user;
    memset(data, 0xff, bytes);
}

static void good_model(void **bytes, size_t *size)
{
    oct_model m;
    make_model(&m);
    MUST(oct_model_write(model_path, &m));
    oct_model_free(&m);
    MUST(oct_file_read(model_path, 1 << 20, bytes, size));
}

Test(model_file, refuses_what_does_not_belong_into_it)
{
    static const char *const surplus[] = {"stray", "info/stray", "program/weights/1/stray",
                                          "program/tables/1/codes", "golden/stray/x"};
    void *bytes, *changed;
    size_t size, length;
    good_model(&bytes, &size);
    for (size_t i = 0; i < OCT_COUNT(surplus); i++) {
        oct_model m;
        copy c = {0};
        MUST(oct_h5_open_checked(&c.from, bytes, size, "good"));
        MUST(oct_h5_create(&c.to, 0));
        copy_items(&c);
        MUST(oct_h5_write(c.to, surplus[i], OCT_U16, OCT_SHAPE(0), NULL));
        MUST(oct_h5_finish(&c.to, true, &changed, &length));
        oct_h5_close(&c.from);
        write_raw(other_path, changed, length);
        oct_free(&changed);
        cr_assert_eq(oct_model_load(&m, other_path, false), OCT_DATA, "%s", surplus[i]);
        check_said("holds 1 data set that this Octet does not know there");
        check_said(surplus[i]);
        oct_model_free(&m);
    }
    oct_free(&bytes);
    check_nothing_held();
}

Test(model_file, names_what_is_missing)
{
    static const char *const needed[] = {"info/format",
                                         "info/recipe",
                                         "info/data_format",
                                         "info/mean",
                                         "info/std",
                                         "info/classes",
                                         "info/checkpoint_digest",
                                         "program/text",
                                         "program/overflow_bound",
                                         "program/weights/1/codes",
                                         "program/weights/2/bias",
                                         "program/weights/6/multiplier",
                                         "program/weights/6/scale",
                                         "program/fallbacks/7/0",
                                         "program/fallbacks/7/1",
                                         "certificate/images",
                                         "certificate/logits_differ",
                                         "certificate/correct",
                                         "certificate/qat_accuracy",
                                         "certificate/logits_digest",
                                         "certificate/data_digest",
                                         "certificate/golden_count",
                                         "certificate/num_fallbacks",
                                         "golden/input",
                                         "golden/digest"};
    void *bytes;
    size_t size;
    good_model(&bytes, &size);
    MUST(load_changed(bytes, size, (copy){0}));
    for (size_t i = 0; i < OCT_COUNT(needed); i++) {
        char said[128];
        snprintf(said, sizeof said, "other.int8.h5: int8 model: %s is missing", needed[i]);
        cr_assert_eq(load_changed(bytes, size, (copy){.path = needed[i]}), OCT_DATA, "%s",
                     needed[i]);
        check_said(said);
    }
    MUST(load_changed(bytes, size, (copy){.path = "certificate/fallbacks"}));
    oct_free(&bytes);
    check_nothing_held();
}

Test(model_file, refuses_numbers_out_of_range)
{
    static const struct {
        const char *path;
        cell cell;
        const char *said;
    } cases[] = {
        {"info/format", {0, 5}, "has model format 5 and this Octet knows format 4; use a newer"},
        {"info/format",
         {0, 3},
         "has model format 3, which this Octet no longer reads (it knows format 4); convert its "
         "checkpoint again"},
        {"info/format", {0, 0}, "info/format is 0"},
        {"info/classes", {0, 4}, "4 classes, but the output has 5 numbers"},
        {"info/classes", {0, 70000}, "info/classes is 70000"},
        {"program/overflow_bound",
         {1, 0},
         "the overflow bound of step 1 is not that of its weights"},
        {"program/overflow_bound", {0, 1}, "the overflow bound of step 0"},
        {"certificate/golden_count", {0, 65537}, "certificate/golden_count is 65537"},
        {"certificate/golden_count", {0, 4}, "golden/input is f32 (3, 196), not f32 (4, 196)"},
        {"certificate/correct", {0, 10001}, "certificate/correct is 10001, outside 0 to 10000"},
        {"certificate/images", {0, -1}, "certificate/images is -1"},
        {"certificate/num_fallbacks", {0, 5000}, "certificate/num_fallbacks is 5000"},
        {"certificate/num_fallbacks",
         {0, 2},
         "the figures of the certificate contradict each other"},
        {"certificate/logits_differ", {0, 1}, "the figures of the certificate contradict"},
        {"certificate/correct", {0, 9122}, "the figures of the certificate contradict"},
        {"certificate/images", {0, 9999}, "the figures of the certificate contradict"},
    };
    void *bytes;
    size_t size;
    good_model(&bytes, &size);
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        cell c = cases[i].cell;
        copy changed = {.path = cases[i].path, .change = set_cell, .user = &c};
        cr_assert_eq(load_changed(bytes, size, changed), OCT_DATA, "case %zu: %s", i,
                     cases[i].said);
        check_said(cases[i].said);
    }
    oct_free(&bytes);
    check_nothing_held();
}

Test(model_file, refuses_numbers_that_are_none)
{
    static const char *const floats[] = {"info/mean", "info/std", "program/weights/1/multiplier",
                                         "program/weights/6/scale", "certificate/qat_accuracy"};
    void *bytes;
    size_t size;
    good_model(&bytes, &size);
    for (size_t i = 0; i < OCT_COUNT(floats); i++)
        cr_assert_eq(load_changed(bytes, size, (copy){.path = floats[i], .change = set_nan}),
                     OCT_DATA, "%s", floats[i]);
    oct_free(&bytes);
    check_nothing_held();
}

/* Other words in the text of the program; what it refuses by itself is in test_program.c. */
Test(model_file, refuses_programs_with_other_words)
{
    static const struct {
        const char *find, *text, *said;
    } cases[] = {
        {"step quantize", "step softmin", "step 0: it is of a kind 'softmin'"},
        {"program float", "program flat", "the program: it is of a rounding 'flat'"},
        {"inputs=0,8", "inputs=", "the program has no input"},
        {"inputs=0,8", "inputs=0", "value 8 is used before it is made"},
        {"inputs=0,8", "inputs=0,8,0", "value 0 is an input of the program twice"},
        {"inputs=0,8", "inputs=0,11", "the program's input 11 is not one of its f32 values"},
        {"inputs=0,8", "inputs=-1,8", "the program has no input"},
        {"output=7", "output=-1", "the program's output -1 is not one of"},
        {"inputs=1 ", "inputs=-1 ", "step 1 (conv \"layers.0.conv\")"},
        {"inputs=1 ", "inputs=100 ", "input value 100 does not exist"},
        {"inputs=1 ", "inputs=4294967296 ", "step 1: its inputs have the number 4294967296"},
        {"shape.out_c=4", "shape.out_c=70000", "step 1: its shape.out_c is 70000"},
        {"shape.out_c=4", "shape.out_c=0", "its sizes are not those of a convolution"},
        {"shape.out_c=4", "shape.out_c=5", "codes is s8 (4, 3, 3, 3), not s8 (5, 3, 3, 3)"},
        {"shape.kernel_h=3", "shape.kernel_h=65536", "not s8 (4, 65536, 3, 3)"},
        {"shape.groups=1", "shape.groups=0", "its sizes are not those of a convolution"},
        {"shape.groups=1", "shape.groups=2", "its sizes are not those of a convolution"},
        {"lo=0 hi=120", "lo=121 hi=120", "bounds 121 to 120 are not within"},
        {" lo=0 hi=120", " hi=120", "step 1: its lo is missing"},
        {" relu=1", " relu=2", "step 3: its relu is 2"},
        {"step conv_float", "step reshape", "step 6: it has no field 'shape.in_h'"},
        {"name=layers.0.conv", "name=", "step 1: its name is empty"},
        {"name=layers.0.conv", "name=\033[2J", "of the program is a control character"},
        {"target=x86", "target=a-name-that-is-longer-than-the-place", "its target is longer than"},
        {"type=linear", "type=Linear", "the type of its module is not a name"},
        {"dims=2", "dims=7", "its input 0 cannot have 7 dimensions"},
        {"name=bias", "name=bi as", "the name of its array 1 is not a name"},
        {"shape=6,4", "shape=1099511627776,4", "program/fallbacks/7/0 is too large"},
        {"shape=6,4", "shape=7,4", "fallbacks/7/0 is f32 (6, 4), not f32 (7, 4)"},
        {"shape=6,4", "shape=-6,4", "program/fallbacks/7/0 is too large"},
        {"value u8 h=8", "value u8 h=0", "value 1: its h is 0"},
        {"value u8 h=8", "value s8 h=8", "value 1: it has no field 'scale'"},
        {"qmax=255", "qmax=256", "value 1: its codes 0 to 256"},
        {"qmax=65535", "qmax=255", "value 10: its codes 0 to 255"},
    };
    void *bytes;
    size_t size;
    good_model(&bytes, &size);
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        copy changed = {.path = "program/text", .find = cases[i].find, .text = cases[i].text};
        cr_assert_eq(load_changed(bytes, size, changed), OCT_DATA, "case %zu: %s", i,
                     cases[i].said);
        check_said(cases[i].said);
    }
    oct_free(&bytes);
    check_nothing_held();
}

Test(model_file, refuses_texts_of_another_form)
{
    static const struct {
        const char *path, *text, *said;
    } cases[] = {
        {"program/text", "", "the program has no steps"},
        {"info/data_format", "cifar\033[31m", "a text holds control characters"},
        {"certificate/fallbacks", "a\x7f", "a text holds control characters"},
    };
    void *bytes;
    size_t size;
    good_model(&bytes, &size);
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        copy changed = {.path = cases[i].path, .text = cases[i].text};
        cr_assert_eq(load_changed(bytes, size, changed), OCT_DATA, "case %zu: %s", i,
                     cases[i].said);
        check_said(cases[i].said);
    }
    oct_free(&bytes);
    check_nothing_held();
}

static void change_bits(void *data, size_t bytes, void *user)
{
    const uint32_t *random = user;
    if (bytes == 0) return;
    uint8_t *byte = data;
    byte[random[0] % bytes] ^= (uint8_t)(1 << random[1] % 8);
    if (random[2] % 2) byte[random[2] % bytes] = (uint8_t)random[3];
}

Test(model_file, random_changes_with_a_good_checksum_do_no_harm)
{
    static const char *const paths[] = {"info/mean",
                                        "info/std",
                                        "info/classes",
                                        "program/text",
                                        "program/text",
                                        "program/text",
                                        "program/text",
                                        "program/text",
                                        "program/text",
                                        "program/fallbacks/7/0",
                                        "program/overflow_bound",
                                        "program/weights/1/codes",
                                        "program/weights/2/bias",
                                        "program/weights/6/multiplier",
                                        "certificate/images",
                                        "certificate/golden_count",
                                        "certificate/fallbacks"};
    int refused = 0, accepted = 0;
    void *bytes;
    size_t size;
    good_model(&bytes, &size);
    for (uint64_t i = 0; i < 160; i++) { /* tests/fuzz goes on */
        uint32_t random[4];
        oct_philox(20, OCT_STREAM_TEST, i, 0, random);
        copy changed = {.path = paths[i % OCT_COUNT(paths)], .change = change_bits, .user = random};
        oct_status status = load_changed(bytes, size, changed);
        cr_assert(status == OCT_OK || status == OCT_DATA, "%s", oct_error_message(0));
        *(status == OCT_OK ? &accepted : &refused) += 1;
    }
    cr_assert(refused > 40 && accepted > 10, "%d refused, %d accepted", refused, accepted);
    oct_free(&bytes);
    check_nothing_held();
}

Test(model_file, survives_a_lack_of_memory_at_every_place)
{
    oct_model m, loaded;
    make_model(&m);
    size_t live = oct_mem_live();
    for (int64_t n = 1;; n++) {
        oct_mem_fail_after(n);
        oct_status status = oct_model_write(model_path, &m);
        oct_mem_fail_after(0);
        cr_assert_eq(oct_mem_live(), live);
        if (status == OCT_OK) break;
        cr_assert_eq(status, OCT_RESOURCE);
        cr_assert_not(oct_file_exists(model_path));
    }
    for (int64_t n = 1;; n++) {
        oct_mem_fail_after(n);
        oct_status status = oct_model_load(&loaded, model_path, false);
        oct_mem_fail_after(0);
        if (status == OCT_OK) break;
        cr_assert_eq(status, OCT_RESOURCE, "%s", oct_error_message(0));
        cr_assert_eq(oct_mem_live(), live);
    }
    check_same(&m, &loaded);
    oct_model_free(&m);
    oct_model_free(&loaded);
    check_nothing_held();
}
