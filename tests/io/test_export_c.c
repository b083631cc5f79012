/* Steps as C files: programs of a few steps are written, compiled as strict C99 and run, and their self-test holds what
 * they compute against Octet's runtime. Whole models and every layer are for tests/c_form. */
#include "core/base/rng.h"
#include "io/export/format.h"
#include "quant/program/step.h"
#include "tests/support/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call) cr_assert((call) == OCT_OK, "%s", oct_error_count() ? oct_error_message(0) : #call)

enum { SAMPLES = 4, MOST_VALUES = 8, ROOM = 4 * 1024 };

/* A model whose values are put together by a test. */
typedef struct built {
    oct_value values[MOST_VALUES];
    oct_step steps[MOST_VALUES];
    oct_model model;
    float golden[SAMPLES * ROOM];
} built;

static oct_qparams qparams(int bits, float scale, int32_t zero_point)
{
    return (oct_qparams){.scale = scale, .zero_point = zero_point, .qmax = (1 << bits) - 1};
}

static int32_t add_value(built *b, oct_dtype dtype, int64_t h, int64_t w, int64_t c, oct_qparams q)
{
    const int32_t number = (int32_t)b->model.program.num_values++;
    cr_assert_lt(number, MOST_VALUES);
    b->values[number] = (oct_value){.dtype = dtype, .h = h, .w = w, .c = c, .q = q};
    return number;
}

static int32_t codes(built *b, int64_t h, int64_t w, int64_t c, oct_qparams q)
{
    return add_value(b, oct_codes_dtype(q), h, w, c, q);
}

/* The step reads x, and y unless that is -1. */
static oct_step *add_step(built *b, oct_step of, int32_t x, int32_t y, int32_t out)
{
    oct_step *s = &b->steps[b->model.program.num_steps++];
    *s = of;
    s->input[0] = x;
    s->input[1] = y < 0 ? 0 : y;
    s->num_inputs = y < 0 ? 1 : 2;
    s->output = out;
    if (!s->name[0]) snprintf(s->name, sizeof s->name, "step");
    return s;
}

/* Codes of a float input of this shape. */
static int32_t begin_program(built *b, int64_t h, int64_t w, int64_t c, oct_qparams q)
{
    *b = (built){.model = {.program = {.target = "x86", .num_inputs = 1}}};
    b->model.program.steps = b->steps;
    b->model.program.values = b->values;
    const int32_t in = add_value(b, OCT_F32, h, w, c, (oct_qparams){0});
    const int32_t x = codes(b, h, w, c, q);
    add_step(b, (oct_step){.kind = OCT_STEP_QUANTIZE, .name = "quant"}, in, -1, x);
    return x;
}

static void end_program(built *b, int32_t x)
{
    const oct_value v = b->values[x];
    b->model.program.output = x;
    if (v.dtype == OCT_F32 || v.dtype == OCT_S32) return;
    b->model.program.output = add_value(b, OCT_F32, v.h, v.w, v.c, (oct_qparams){0});
    add_step(b, (oct_step){.kind = OCT_STEP_DEQUANTIZE, .name = "dequant"}, x, -1,
             b->model.program.output);
}

/* Golden inputs reach beyond all codes. */
static void make_golden(built *b)
{
    const oct_value *in = &b->values[0];
    const int64_t numel = SAMPLES * oct_value_numel(in);
    const oct_qparams q = b->values[1].q;
    const float span = (float)q.qmax * q.scale, low = -(float)q.zero_point * q.scale;
    cr_assert_leq(numel, SAMPLES * ROOM);
    oct_fill_uniform(b->golden, numel, 7, OCT_STREAM_TEST, 0, low - 0.1f * span, low + 1.1f * span);
    b->model.golden_input = b->golden;
    b->model.certificate.golden_count = SAMPLES;
    for (int c = 0; c < OCT_REALS_MAX; c++)
        b->model.std[c] = 1;
}

static oct_status try_c(built *b, const char *name, oct_exported *out)
{
    const oct_export of = {.model = &b->model,
                           .mean = b->model.mean,
                           .std = b->model.std,
                           .pixels = true,
                           .class_names = b->model.class_names,
                           .name = name,
                           .version = "test"};
    make_golden(b);
    OK(oct_program_check(&b->model.program));
    return oct_export_format_c.write_model(&of, out);
}

static bool has(const oct_exported *out, const char *text)
{
    return memmem(out->bytes, out->size, text, strlen(text)) != NULL;
}

/* Compiles and runs what is written of the program. A notice says where it rounds in double, and only there. */
static void check_program(built *b)
{
    oct_exported out = {0};
    OK(try_c(b, "net", &out));
    cr_assert_eq(out.notices.length > 0,
                 has(&out, " round_even_wide(double v") || has(&out, " cut_wide(double v"), "%s",
                 out.notices.data);
    oct_tmp_write(&tmp, "net.c", out.bytes, out.size);
    oct_tmp_write(&tmp, "net.h", out.beside, out.beside_size);
    oct_exported_free(&out);
    oct_tmp_write_text(&tmp, "main.c",
                       "#include \"net.h\"\nint main(void) { return net_self_test() != 0; }\n");
    RUN("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion",
        "-DNET_SELF_TEST", "net.c", "main.c", "-o", "main");
    oct_check_exit(job, 0);
    RUN("./main");
    oct_check_exit(job, 0);
}

TestSuite(export_c, .init = enter_folder, .fini = leave_folder, .timeout = 120);

/* Every rounding with codes of 8 and, where its layers take them, of 16 bits. */
static const struct kind {
    int bits;
    oct_requantizer requantizer;
} kinds[] = {
#define OCT_ROUNDING(id, file) {8, OCT_REQUANT_##id}, {16, OCT_REQUANT_##id},
#include "quant/rounding/rounding_list.def"
#undef OCT_ROUNDING
};

static bool exists(const struct kind *k)
{
    return k->bits == 8 || !oct_rounding_of(k->requantizer)->bytes_only;
}

Test(export_c, clamps_looks_up_moves_and_pads)
{
    static built b;
    for (int bits = 8; bits <= 16; bits += 8) {
        static uint16_t table[3 << 16];
        const oct_qparams q = qparams(bits, 0.25f, 100), y = qparams(24 - bits, 0.5f, 3);
        for (int i = 0; i < 3 << bits; i++)
            table[i] = (uint16_t)((i * 37) % (y.qmax + 1));
        int32_t x = begin_program(&b, 3, 4, 3, q), next = codes(&b, 3, 4, 3, q);
        add_step(&b, (oct_step){.kind = OCT_STEP_RELU, .relu = {.lo = -20, .hi = 90}}, x, -1, next);
        x = next, next = codes(&b, 4, 3, 3, q);
        add_step(
            &b,
            (oct_step){.kind = OCT_STEP_MOVE,
                       .move = {.dims = 3, .size = {4, 3, 3}, .stride = {3, 12, -1}, .offset = 2}},
            x, -1, next);
        x = next, next = codes(&b, 6, 5, 3, q);
        add_step(&b,
                 (oct_step){.kind = OCT_STEP_PAD,
                            .pad = {{.in = {4, 3, 3},
                                     .out = {6, 5, 3},
                                     .before = {1, 2, 0},
                                     .mode = bits == 8 ? OCT_PAD_CONSTANT : OCT_PAD_REFLECT},
                                    .fill = 77}},
                 x, -1, next);
        x = next, next = codes(&b, 6, 5, 3, y);
        add_step(&b, (oct_step){.kind = OCT_STEP_LUT, .lut = {.table = table, .size = 3 << bits}},
                 x, -1, next);
        end_program(&b, next);
        check_program(&b);
    }
}

Test(export_c, pools_with_padding_and_resizes)
{
    static built b;
    for (int mode = 0; mode < OCT_INTERPOLATIONS; mode++) {
        const oct_qparams q = qparams(mode % 2 ? 16 : 8, 0.25f, 100);
        int32_t x = begin_program(&b, 5, 6, 2, q), next = codes(&b, 3, 3, 2, q);
        oct_conv_shape s = oct_pool_shape_of(5, 6, 2, oct_pool_geometry_of(3, 2, 1));
        s.groups = 1;
        b.model.program.requantizer = mode == 1 ? OCT_REQUANT_Q15 : OCT_REQUANT_FLOAT;
        add_step(&b,
                 (oct_step){.kind = mode < 3 ? OCT_STEP_AVG_POOL : OCT_STEP_MAX_POOL,
                            .pool = {s, .count_include_pad = mode == 1, .of_codes = mode == 2,
                                     .half_up = mode == 0, .fixed = mode == 1}},
                 x, -1, next);
        x = next, next = codes(&b, 7, 4, 2, q);
        s = (oct_conv_shape){.in_h = 3, .in_w = 3, .in_c = 2, .out_h = 7, .out_w = 4, .out_c = 2};
        add_step(&b, (oct_step){.kind = OCT_STEP_INTERPOLATE, .interpolate = {s, mode}}, x, -1,
                 next);
        x = next, next = add_value(&b, OCT_S32, 7, 4, 1, (oct_qparams){0});
        add_step(&b, (oct_step){.kind = OCT_STEP_ARGMAX}, x, -1, next);
        if (mode % 3) {
            b.model.program.num_steps--, b.model.program.num_values--;
            next = x;
        }
        end_program(&b, next);
        check_program(&b);
    }
}

Test(export_c, sums_and_products_broadcast_and_repeat)
{
    static built b;
    for (size_t k = 0; k < OCT_COUNT(kinds); k++) {
        if (!exists(&kinds[k])) continue;
        const oct_qparams q = qparams(kinds[k].bits, 0.25f, 100),
                          y = qparams(8, oct_requantizer_shifts(kinds[k].requantizer) ? 2.0f : 1.7f,
                                      90);
        int32_t x = begin_program(&b, 3, 4, 2, q), small = codes(&b, 1, 1, 2, q), next;
        b.model.program.requantizer = kinds[k].requantizer;
        add_step(&b,
                 (oct_step){.kind = OCT_STEP_MAX_POOL,
                            .pool = {oct_pool_shape_of(
                                3, 4, 2,
                                (oct_pool_geometry){
                                    .kernel_h = 3, .kernel_w = 4, .stride_h = 1, .stride_w = 1})}},
                 x, -1, small);
        next = codes(&b, 3, 4, 2, y);
        add_step(&b, (oct_step){.kind = OCT_STEP_ADD, .add = oct_qadd_of(q, q, y, false)}, x, small,
                 next);
        const int32_t sum = next;
        next = codes(&b, 3, 4, 2, q);
        add_step(
            &b,
            (oct_step){.kind = OCT_STEP_MUL,
                       .mul = {oct_qmul_factor(y, q, q) /
                                   (oct_requantizer_shifts(kinds[k].requantizer) ? 64.0f : 60.0f),
                               .offset_first = k == 0}},
            sum, x, next);
        end_program(&b, next);
        check_program(&b);
    }
}

Test(export_c, channels_stand_side_by_side_and_share_one_softmax)
{
    static built b;
    for (size_t k = 0; k < OCT_COUNT(kinds); k++) {
        if (!exists(&kinds[k])) continue;
        static int32_t exponential[1 << 16];
        const oct_qparams q = qparams(kinds[k].bits, 0.25f, 100),
                          y = qparams(8, oct_requantizer_shifts(kinds[k].requantizer) ? 1.0f : 0.7f,
                                      90),
                          p = qparams(16, 0x1p-15f, 5);
        int32_t x = begin_program(&b, 2, 2, 3, q), wide = codes(&b, 2, 2, 6, y),
                next = codes(&b, 2, 2, 6, p);
        b.model.program.requantizer = kinds[k].requantizer;
        add_step(&b, (oct_step){.kind = OCT_STEP_CONCAT}, x, x, wide);
        oct_qsoftmax_exponential(y, exponential);
        add_step(&b,
                 (oct_step){.kind = OCT_STEP_SOFTMAX,
                            .softmax = {.exponential = exponential, .size = 256}},
                 wide, -1, next);
        end_program(&b, next);
        check_program(&b);
    }
}

/* A layer with weights: of a shape, from codes of some bits to others, or to float. */
static void check_layer(oct_conv_shape s, int stride, int bits, int out_bits, oct_requantizer by,
                        bool with_addend)
{
    static built b;
    static int8_t weight[4096];
    static int64_t bias[64];
    static float multiplier[64], scale[64];
    const oct_qparams q = qparams(bits, 0.25f, 100), y = qparams(out_bits ? out_bits : 8, 0.5f, 7);
    const int64_t h = (s.in_h - 1) / stride + 1, w = (s.in_w - 1) / stride + 1;
    const int32_t x = begin_program(&b, h, w, s.in_c, q);
    const int64_t numel = s.out_c * oct_conv_depth(&s);
    cr_assert(numel <= (int64_t)OCT_COUNT(weight) && s.out_c <= (int64_t)OCT_COUNT(bias));
    for (int64_t i = 0; i < numel; i++)
        weight[i] = (int8_t)(i * 71 % 255 - 127);
    for (int64_t c = 0; c < s.out_c; c++) {
        bias[c] = c * 1001 - 5000;
        multiplier[c] =
            oct_requantizer_shifts(by) ? 0x1p-9f * (float)(1 << c % 4) : 0.0011f * (float)(c + 1);
        scale[c] = 0.01f;
    }
    const oct_value out = {.h = s.out_h, .w = s.out_w, .c = s.out_c};
    const int32_t next = out_bits ? codes(&b, out.h, out.w, out.c, y)
                                  : add_value(&b, OCT_F32, out.h, out.w, out.c, (oct_qparams){0});
    b.model.program.requantizer = by;
    add_step(&b,
             (oct_step){.kind = out_bits ? OCT_STEP_CONV : OCT_STEP_CONV_FLOAT,
                        .conv = {.shape = s,
                                 .input_step_h = stride,
                                 .input_step_w = stride,
                                 .weight = weight,
                                 .bias = bias,
                                 .multiplier = multiplier,
                                 .weight_scale = scale,
                                 .addend_multiplier = with_addend ? 0.37f : 0,
                                 .lo = out_bits ? -y.zero_point : 0,
                                 .hi = out_bits ? y.qmax - y.zero_point : 6}},
             x, with_addend ? x : -1, next);
    end_program(&b, next);
    check_program(&b);
}

Test(export_c, layers_of_every_shape_width_and_rounding)
{
    const oct_conv_geometry plain = oct_conv_geometry_of(3, 3, 2, 1, 1),
                            deep = oct_conv_geometry_of(3, 3, 1, 1, 4);
    oct_conv_geometry grouped = oct_conv_geometry_of(2, 3, 1, 2, 2), uneven = plain;
    grouped.dilation_h = 2;
    uneven.pad_top = 0;
    uneven.stride_w = 1;
    for (size_t k = 0; k < OCT_COUNT(kinds); k++) {
        if (!exists(&kinds[k])) continue;
        const int bits = kinds[k].bits;
        const oct_requantizer by = kinds[k].requantizer;
        check_layer(oct_conv_shape_of(6, 5, 4, 5, plain), 1, bits, 8, by, false);
        check_layer(oct_conv_shape_of(6, 5, 4, 5, uneven), 1, bits, 16, by, false);
        check_layer(oct_conv_shape_of(6, 5, 4, 4, deep), 1, bits, 8, by, oct_rounding_of(by)->adds);
        check_layer(oct_conv_shape_of(6, 5, 4, 6, grouped), 1, bits, 8, by, false);
        check_layer(oct_conv_transpose_shape_of(3, 4, 4, 5, plain), 2, bits, 8, by, false);
        check_layer(oct_linear_shape(1, 1, 12, 9), 1, bits, 0, by, false);
    }
    check_layer(oct_conv_shape_of(6, 5, 4, 4, oct_conv_geometry_of(1, 1, 1, 0, 1)), 1, 8, 0, false,
                true);
}

/* What a model file calls its layers must not become C. */
Test(export_c, names_of_layers_stay_in_their_comments)
{
    static built b;
    const oct_qparams q = qparams(8, 0.25f, 100);
    const int32_t x = begin_program(&b, 2, 2, 1, q), next = codes(&b, 2, 2, 1, q);
    snprintf(
        add_step(&b, (oct_step){.kind = OCT_STEP_RELU, .relu = {.lo = -20, .hi = 90}}, x, -1, next)
            ->name,
        128, "a */ #error \\\n?\?/ /* \" \xc3\xa9");
    end_program(&b, next);
    check_program(&b);
}

/* The pair of a model, under a name. */
static void write_pair(built *b, const char *name)
{
    oct_exported out = {0};
    char file[16];
    OK(try_c(b, name, &out));
    snprintf(file, sizeof file, "%s.c", name);
    oct_tmp_write(&tmp, file, out.bytes, out.size);
    snprintf(file, sizeof file, "%s.h", name);
    oct_tmp_write(&tmp, file, out.beside, out.beside_size);
    oct_exported_free(&out);
}

/* The header compiles as every standard of C++; names may differ only in case; names of classes are strings; a program
 * may place constants and scratch; float16 does not matter, and a compiler that does not compute floats as they are
 * written is refused. */
Test(export_c, every_language_place_and_compiler)
{
    static built b;
    static char names[] = "a \"b\" \\\n?\?/ */\n\xc3\xa9";
    end_program(&b, begin_program(&b, 2, 2, 1, qparams(8, 0.1f, 128)));
    b.model.class_names = names;
    write_pair(&b, "net");
    write_pair(&b, "Net");
    oct_tmp_write_text(&tmp, "main.cc",
                       "#include \"net.h\"\n#include \"Net.h\"\n#include <string.h>\n"
                       "static const char *const names[] = {NET_CLASS_NAMES};\nint main()\n{\n"
                       "    const float input[NET_INPUT_SIZE] = {1, 2, -3, 50};\n"
                       "    float y[NET_OUTPUT_SIZE], z[NET_OUTPUT_SIZE];\n"
                       "    net_run(input, y);\n    Net_run(input, z);\n"
                       "    for (int i = 0; i < NET_OUTPUT_SIZE; i++)\n"
                       "        if (y[i] != z[i] || y[i] != (net_output_codes()[i] - "
                       "NET_OUTPUT_ZERO_POINT) * NET_OUTPUT_SCALE) return 1;\n"
                       "    return sizeof names != 3 * sizeof names[0] || strcmp(names[0], \"a "
                       "\\\"b\\\" \\\\\") || strcmp(names[1], \"?\\?/ */\") || "
                       "strcmp(names[2], \"\\303\\251\");\n}\n");
    shell(
        "set -e; place='-DNET_CONSTANT_PLACE=__attribute__((section(\".kept\")))'\n"
        "cc -std=c99 -Werror -pedantic \"$place\" "
        "'-DNET_SCRATCH_PLACE=__attribute__((section(\".fast\")))' -c net.c\n"
        "objdump -h net.o | grep -q '[.]kept'; objdump -h net.o | grep -q '[.]fast'\n"
        "cc -c Net.c\n"
        "for year in 98 11 14 17 20; do\n"
        "  command -v c++ >/dev/null || continue\n"
        "  c++ -std=c++$year -Wall -Wextra -Werror -pedantic main.cc net.o Net.o -o main; ./main\n"
        "done\n"
        "case $(uname -m) in x86_64) cc -std=gnu99 -march=sapphirerapids -c net.c;; esac\n"
        "for flag in -ffast-math -freciprocal-math -fno-signed-zeros -ffinite-math-only; do\n"
        "  if cc $flag -c net.c 2>said; then echo \"$flag is taken\"; exit 1; fi\n"
        "  grep -q 'floats must be computed as they are written' said\n"
        "done");
    oct_check_exit(job, 0);
}

Test(export_c, a_layer_without_an_integer_form_is_refused_by_its_name)
{
    static built b;
    static oct_fallback fallback = {.type = "softmax", .dims = {4}};
    oct_exported out = {0};
    const oct_qparams q = qparams(8, 0.25f, 100);
    const int32_t x = begin_program(&b, 2, 2, 1, q),
                  y = add_value(&b, OCT_F32, 2, 2, 1, (oct_qparams){0}),
                  z = add_value(&b, OCT_F32, 2, 2, 1, (oct_qparams){0});
    add_step(&b, (oct_step){.kind = OCT_STEP_DEQUANTIZE}, x, -1, y);
    add_step(&b, (oct_step){.kind = OCT_STEP_FLOAT, .name = "head.1", .fallback = &fallback}, y, -1,
             z);
    end_program(&b, z);
    cr_assert_eq(try_c(&b, "net", &out), OCT_PREPARE);
    cr_assert(strstr(oct_error_message(0), "head.1: C has no form for the step float softmax"),
              "%s", oct_error_message(0));
    oct_exported_free(&out);
}

Test(export_c, equal_models_give_equal_files_and_names_are_those_of_c)
{
    static const char *const wrong[] = {"", "1a", "_a", "a-b", "a b", "a.b", "stdint", "\xc3\xa9"};
    static built b;
    oct_exported out = {0}, again = {0};
    end_program(&b, begin_program(&b, 2, 2, 1, qparams(8, 0.25f, 100)));
    OK(try_c(&b, "net", &out));
    OK(try_c(&b, "net", &again));
    cr_assert(out.size == again.size && memcmp(out.bytes, again.bytes, out.size) == 0);
    oct_exported_free(&out);
    oct_exported_free(&again);
    for (size_t i = 0; i < OCT_COUNT(wrong); i++)
        cr_assert_eq(try_c(&b, wrong[i], &out), OCT_USAGE, "'%s'", wrong[i]);
}
