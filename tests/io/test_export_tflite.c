/* The TFLite files that programs of a few steps become, read by a small reader of FlatBuffers: which operators, in what
 * tensors. What TFLite computes with them is for tests/tflite. */
#include "core/base/mem.h"
#include "io/export/flat_writer.h"
#include "io/export/format.h"
#include "io/export/tflite_form.h"
#include "quant/kernel/qcodes.h"
#include "quant/program/step.h"
#include "tests/support/check_status.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { CHANNELS = 4, SIDE = 6, CODES = 256 };

/* A reader: places are offsets into the file, 0 where something is missing. */
typedef struct reader {
    oct_exported out;
    const uint8_t *bytes;
} reader;

static int64_t number(const reader *r, size_t at, int width)
{
    int64_t value = 0;
    cr_assert(at > 0 && at + (size_t)width <= r->out.size, "it ends within a number");
    cr_assert_eq(at % (size_t)width, 0, "a number is not aligned");
    memcpy(&value, r->bytes + at, (size_t)width);
    return value;
}

static size_t follow(const reader *r, size_t at)
{
    return at == 0 ? 0 : at + (size_t)number(r, at, 4);
}

static size_t field(const reader *r, size_t table, int of)
{
    const size_t slots = table - (size_t)number(r, table, 4), slot = slots + 4 + 2 * (size_t)of;
    if (slot >= slots + (size_t)number(r, slots, 2)) return 0;
    const int64_t offset = number(r, slot, 2);
    return offset ? table + (size_t)offset : 0;
}

/* Table i of a field of a table, whose vector has `count` of them. */
static size_t entry(const reader *r, size_t table, int of, size_t i)
{
    const size_t vector = follow(r, field(r, table, of));
    cr_assert_lt((int64_t)i, number(r, vector, 4));
    return follow(r, vector + 4 + 4 * i);
}

static size_t length(const reader *r, size_t table, int of)
{
    const size_t vector = follow(r, field(r, table, of));
    return vector ? (size_t)number(r, vector, 4) : 0;
}

static size_t root_of(const reader *r)
{
    cr_assert_arr_eq(r->bytes + 4, "TFL3", 4);
    uint32_t first;
    memcpy(&first, r->bytes, sizeof first);
    return first;
}

static size_t graph_of(const reader *r)
{
    return entry(r, root_of(r), 2, 0);
}

/* How many operators of the graph have this number in TFLite's schema. */
static int count(const reader *r, int64_t operator_number)
{
    int found = 0;
    for (size_t i = 0; i < length(r, graph_of(r), 3); i++) {
        const size_t place = field(r, entry(r, graph_of(r), 3, i), 0);
        const size_t code = entry(r, root_of(r), 1, (size_t)number(r, place, 4));
        found += number(r, field(r, code, 3), 4) == operator_number;
    }
    return found;
}

enum {
    ADD = 0,
    AVERAGE_POOL = 1,
    CONCATENATION = 2,
    CONV = 3,
    DEPTHWISE = 4,
    DEQUANTIZE = 6,
    LOGISTIC = 14,
    TANH = 28,
    GATHER = 36,
    SPLIT = 49,
    CAST = 53,
    MAXIMUM = 55,
    MINIMUM = 57,
    PADV2 = 60,
    QUANTIZE = 114,
};

static oct_qparams qparams(int bits)
{
    return (oct_qparams){.scale = 0.5f, .zero_point = 100, .qmax = (1 << bits) - 1};
}

/* A quantize, one step and a dequantize; the step's output has `side` rows and columns. */
typedef struct example {
    oct_value values[4];
    oct_step steps[3];
    oct_model model;
    oct_export job;
} example;

static void begin_example(example *e, const oct_step *step, int bits, int64_t side)
{
    *e = (example){.steps = {{.kind = OCT_STEP_QUANTIZE, .name = "quant"},
                             *step,
                             {.kind = OCT_STEP_DEQUANTIZE, .name = "dequant"}}};
    for (int i = 0; i < 4; i++) {
        const int64_t here = i < 2 ? SIDE : side;
        e->values[i] = (oct_value){.dtype = i % 3 ? oct_codes_dtype(qparams(bits)) : OCT_F32,
                                   .h = here,
                                   .w = here,
                                   .c = CHANNELS,
                                   .q = qparams(bits)};
    }
    for (int i = 0; i < 3; i++) {
        e->steps[i].num_inputs = 1;
        e->steps[i].input[0] = i;
        e->steps[i].output = i + 1;
    }
    snprintf(e->steps[1].name, sizeof e->steps[1].name, "middle");
    e->model = (oct_model){.program = {.target = "tflite",
                                       .num_steps = 3,
                                       .num_values = 4,
                                       .steps = e->steps,
                                       .values = e->values,
                                       .num_inputs = 1,
                                       .output = 3},
                           .std = {1, 1, 1, 1}};
    e->job = (oct_export){
        .model = &e->model, .mean = e->model.mean, .std = e->model.std, .version = "test"};
}

static reader write_example(const example *e)
{
    reader r = {.out = {0}};
    MUST(oct_program_check(&e->model.program));
    MUST(oct_export_format_tflite.write_model(&e->job, &r.out));
    r.bytes = r.out.bytes;
    cr_assert_eq(number(&r, field(&r, root_of(&r), 0), 4), 3, "it is no model of version 3");
    return r;
}

static void refuse(const example *e, const char *why)
{
    oct_exported out = {0};
    MUST(oct_program_check(&e->model.program));
    cr_assert_eq(oct_export_format_tflite.write_model(&e->job, &out), OCT_PREPARE);
    check_said(why);
    oct_fail_clear();
    cr_assert_null(out.bytes);
    oct_exported_free(&out);
    check_nothing_held();
}

static void end_reader(reader *r)
{
    oct_exported_free(&r->out);
    check_nothing_held();
}

Test(export_tflite, tensors_are_signed_bytes_with_their_qparams)
{
    example e;
    begin_example(&e, &(oct_step){.kind = OCT_STEP_RELU, .relu = {.lo = -20, .hi = 70}}, 8, SIDE);
    reader r = write_example(&e);
    cr_assert_eq(count(&r, QUANTIZE), 1);
    cr_assert_eq(count(&r, DEQUANTIZE), 1);
    cr_assert_eq(count(&r, MAXIMUM), 1);
    cr_assert_eq(count(&r, MINIMUM), 1);
    const size_t tensor = entry(&r, graph_of(&r), 0, 1); /* the codes of the input */
    const size_t quant = follow(&r, field(&r, tensor, 4));
    cr_assert_eq(number(&r, field(&r, tensor, 1), 1), OCT_TFLITE_S8);
    cr_assert_eq(number(&r, follow(&r, field(&r, quant, 3)) + 4, 8), 100 - 128);
    end_reader(&r);
}

Test(export_tflite, codes_and_pixels_need_no_quantize)
{
    example e;
    begin_example(&e, &(oct_step){.kind = OCT_STEP_RELU, .relu = {.lo = -20, .hi = 70}}, 8, SIDE);
    e.job.codes = true;
    reader r = write_example(&e);
    cr_assert_eq(count(&r, QUANTIZE) + count(&r, DEQUANTIZE), 0);
    end_reader(&r);
    e.job.codes = false;
    e.job.pixels = true;
    r = write_example(&e);
    cr_assert_eq(count(&r, QUANTIZE), 1, "bytes become signed ones, which TFLM casts");
    cr_assert(count(&r, CAST) == 1 && count(&r, ADD) == 1 && count(&r, GATHER) == 1);
    end_reader(&r);
}

Test(export_tflite, of_channels_are_looked_up_after_each_other)
{
    static uint16_t table[CHANNELS * CODES];
    for (int tables = 1; tables <= CHANNELS; tables += CHANNELS - 1) {
        example e;
        begin_example(
            &e, &(oct_step){.kind = OCT_STEP_LUT, .lut = {.table = table, .size = tables * CODES}},
            8, SIDE);
        reader r = write_example(&e);
        cr_assert_eq(count(&r, CAST), 1);
        cr_assert_eq(count(&r, GATHER), 1);
        end_reader(&r);
    }
}

/* The operator's own codes, of a model for the kernels that have them. */
Test(export_tflite, functions_of_whole_numbers_are_operators)
{
    static const int kinds[OCT_FIXED_FUNCTIONS] = {LOGISTIC, TANH};
    static uint16_t table[CODES];
    for (int f = 0; f < OCT_FIXED_FUNCTIONS; f++)
        for (int same = 0; same <= 1; same++) {
            example e;
            oct_fixed_function_table((oct_fixed_function)f, qparams(8), table);
            table[7] = (uint16_t)(table[7] + !same);
            begin_example(&e,
                          &(oct_step){.kind = OCT_STEP_LUT, .lut = {.table = table, .size = CODES}},
                          8, SIDE);
            e.values[2].q = oct_fixed_function_output((oct_fixed_function)f);
            e.model.program.requantizer = OCT_REQUANT_DOUBLE;
            reader r = write_example(&e);
            cr_assert_eq(count(&r, kinds[f]), same);
            cr_assert_eq(count(&r, GATHER), !same);
            end_reader(&r);
        }
}

/* Weights for a convolution with 3x3 windows, padded by 1. */
static void begin_conv(example *e, int groups, int stride)
{
    static int8_t weight[CHANNELS * 9 * CHANNELS];
    static int64_t bias[CHANNELS];
    static float multiplier[CHANNELS], scale[CHANNELS];
    for (int c = 0; c < CHANNELS; c++)
        multiplier[c] = scale[c] = 0.25f;
    const oct_conv_shape s = oct_conv_shape_of(SIDE, SIDE, CHANNELS, CHANNELS,
                                               oct_conv_geometry_of(3, 3, stride, 1, groups));
    begin_example(e,
                  &(oct_step){.kind = OCT_STEP_CONV,
                              .conv = {.shape = s,
                                       .input_step_h = 1,
                                       .input_step_w = 1,
                                       .weight = weight,
                                       .bias = bias,
                                       .multiplier = multiplier,
                                       .weight_scale = scale,
                                       .lo = -100,
                                       .hi = 155}},
                  8, s.out_h);
}

Test(export_tflite, convolutions_have_the_operator_of_their_groups_and_pads)
{
    example e;
    begin_conv(&e, 1, 1);
    reader r = write_example(&e);
    cr_assert(count(&r, CONV) == 1 && count(&r, PADV2) == 0, "the padding is TFLite's SAME");
    end_reader(&r);
    begin_conv(&e, 1, 2);
    r = write_example(&e);
    cr_assert(count(&r, CONV) == 1 && count(&r, PADV2) == 1, "SAME begins with no padding there");
    end_reader(&r);
    begin_conv(&e, CHANNELS, 1);
    r = write_example(&e);
    cr_assert(count(&r, DEPTHWISE) == 1 && count(&r, CONV) == 0);
    end_reader(&r);
    begin_conv(&e, 2, 1);
    r = write_example(&e);
    cr_assert(count(&r, CONV) == 2 && count(&r, SPLIT) == 1 && count(&r, CONCATENATION) == 1);
    end_reader(&r);
}

/* The ends of XNNPACK's range: it includes the least multiplier and not the greatest. */
Test(export_tflite, says_where_xnnpack_would_refuse_the_file)
{
    static const struct {
        float multiplier;
        bool taken;
    } ends[] = {{0x1p-32f, true}, {0x1.fffffep-33f, false}, {0x1.fffffep7f, true}, {256, false}};
    for (size_t i = 0; i < OCT_COUNT(ends); i++) {
        example e;
        begin_conv(&e, 1, 1);
        e.steps[1].conv.multiplier[1] = ends[i].multiplier;
        reader r = write_example(&e);
        const char *notices = r.out.notices.data;
        cr_assert_eq(!(notices && strstr(notices, "its delegate refuses the whole file")),
                     ends[i].taken, "%a: %s", (double)ends[i].multiplier, notices);
        end_reader(&r);
    }
}

Test(export_tflite, refuses_what_tflite_has_no_form_for)
{
    example e;
    begin_example(&e, &(oct_step){.kind = OCT_STEP_RELU, .relu = {.lo = -20, .hi = 70}}, 16, SIDE);
    refuse(&e, "quant: has codes of 16 bits");
    oct_pool_geometry g = oct_pool_geometry_of(3, 2, 1);
    const oct_conv_shape s = oct_pool_shape_of(SIDE, SIDE, CHANNELS, g);
    begin_example(&e, &(oct_step){.kind = OCT_STEP_AVG_POOL, .pool = {s, .of_codes = true}}, 8,
                  s.out_h);
    refuse(&e, "middle: averages fewer positions at the edges than TFLite's pool does");
    e.steps[1].pool.count_include_pad = true;
    reader r = write_example(&e);
    cr_assert(count(&r, AVERAGE_POOL) == 1 && count(&r, PADV2) == 1);
    cr_assert_null(r.out.notices.data);
    end_reader(&r);
    e.steps[1].pool.of_codes = false;
    r = write_example(&e);
    cr_assert(r.out.notices.data && strstr(r.out.notices.data, "middle: averages codes"));
    end_reader(&r);
}

/* Each allocation fails once. */
static void check_memory(const example *e)
{
    oct_status status = OCT_RESOURCE;
    int64_t n = 0;
    while (status != OCT_OK) {
        oct_exported out = {0};
        oct_mem_fail_after(++n);
        status = oct_export_format_tflite.write_model(&e->job, &out);
        oct_mem_fail_after(0);
        cr_assert(status == OCT_OK || status == OCT_RESOURCE, "allocation %d gives %d", (int)n,
                  (int)status);
        cr_assert(status == OCT_OK || (!out.bytes && oct_error_count() > 0));
        oct_fail_clear();
        oct_exported_free(&out);
        check_nothing_held();
    }
    cr_assert_gt(n, 10);
}

Test(export_tflite, without_memory_nothing_is_written_and_nothing_held)
{
    example e;
    begin_conv(&e, 2, 2);
    e.job.pixels = true;
    e.job.all_values = true;
    check_memory(&e);
    begin_conv(&e, CHANNELS, 1);
    check_memory(&e);
}

Test(export_tflite, a_flat_buffer_says_where_its_fields_are)
{
    oct_flat_writer w = {.identifier = "TFL3"};
    oct_flat_field fields[] = {{.number = 3, .width = 1, .value = -5},
                               {.number = 0, .width = 8, .value = INT64_C(1) << 40},
                               {.number = 2},
                               {.number = 5, .width = 4, .value = 77}};
    const float numbers[] = {1.5f, -2.0f};
    oct_flat_table(&w, OCT_FLAT_ROOT, 4, fields);
    oct_flat_vector(&w, fields[2].place, 2, 4, 16, numbers);
    MUST(w.status);
    const reader r = {.out = {.bytes = w.bytes, .size = w.size}, .bytes = w.bytes};
    const size_t root = root_of(&r), vector = follow(&r, field(&r, root, 2));
    cr_assert_eq(number(&r, field(&r, root, 0), 8), INT64_C(1) << 40);
    cr_assert_eq((int8_t)number(&r, field(&r, root, 3), 1), -5);
    cr_assert_eq(number(&r, field(&r, root, 5), 4), 77);
    cr_assert(field(&r, root, 1) == 0 && field(&r, root, 9) == 0, "what is not there is missing");
    cr_assert_eq((vector + 4) % 16, 0);
    cr_assert_arr_eq(w.bytes + vector + 4, numbers, sizeof numbers);
    oct_free(&w.bytes);
    check_nothing_held();
}
