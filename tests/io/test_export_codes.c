/* The operators that steps on codes become in ONNX files, by programs of a few steps. What ONNX Runtime computes with
 * them is for tests/onnx. */
#include "io/export/format.h"
#include "io/onnx/graph.h"
#include "quant/program/step.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define OK(call) cr_assert((call) == OCT_OK, "%s", oct_error_count() ? oct_error_message(0) : #call)

enum { CHANNELS = 3, CODES = 256 };

/* Codes of the input, one step on them, and their values. */
static void export_step(oct_step step, oct_qparams q, oct_onnx_graph *g)
{
    const oct_dtype codes = oct_codes_dtype(q);
    oct_value values[4];
    oct_step steps[3] = {{.kind = OCT_STEP_QUANTIZE, .name = "quant"},
                         step,
                         {.kind = OCT_STEP_DEQUANTIZE, .name = "dequant"}};
    for (int i = 0; i < 4; i++)
        values[i] =
            (oct_value){.dtype = i % 3 ? codes : OCT_F32, .h = 2, .w = 2, .c = CHANNELS, .q = q};
    for (int i = 0; i < 3; i++) {
        steps[i].num_inputs = 1;
        steps[i].input[0] = i;
        steps[i].output = i + 1;
    }
    snprintf(steps[1].name, sizeof steps[1].name, "middle");
    const oct_model model = {.program = {.target = "x86",
                                         .num_steps = 3,
                                         .num_values = 4,
                                         .steps = steps,
                                         .values = values,
                                         .num_inputs = 1,
                                         .output = 3},
                             .std = {1, 1, 1, 1}};
    const oct_export job = {
        .model = &model, .mean = model.mean, .std = model.std, .version = "test"};
    oct_exported out = {0};
    oct_tmp tmp;
    OK(oct_program_check(&model.program));
    OK(oct_export_format_onnx.write_model(&job, &out));
    oct_tmp_create(&tmp);
    oct_tmp_write(&tmp, "a.onnx", out.bytes, out.size);
    OK(oct_onnx_read(g, oct_tmp_path(&tmp, "a.onnx")));
    oct_tmp_remove(&tmp);
    oct_exported_free(&out);
}

static int count(const oct_onnx_graph *g, const char *type)
{
    int found = 0;
    for (int64_t i = 0; i < g->num_nodes; i++)
        found += strcmp(g->nodes[i].type, type) == 0;
    return found;
}

static oct_qparams qparams(int bits)
{
    return (oct_qparams){.scale = 0.5f, .zero_point = 100, .qmax = (1 << bits) - 1};
}

/* ONNX Runtime has no Clip of 16-bit codes: they are cut as 32-bit numbers. */
Test(export_codes, are_cut_as_numbers_that_runtimes_cut)
{
    for (int bits = 8; bits <= 16; bits += 8) {
        oct_onnx_graph g;
        export_step((oct_step){.kind = OCT_STEP_RELU, .relu = {.lo = -20, .hi = 70}}, qparams(bits),
                    &g);
        cr_assert_eq(count(&g, "Clip"), 1);
        cr_assert_eq(count(&g, "Cast"), bits == 8 ? 0 : 2, "%d bits", bits);
        oct_onnx_free(&g);
    }
}

Test(export_codes, of_channels_are_looked_up_after_each_other)
{
    static uint16_t table[CHANNELS * CODES];
    for (int tables = 1; tables <= CHANNELS; tables += CHANNELS - 1) {
        oct_onnx_graph g;
        export_step(
            (oct_step){.kind = OCT_STEP_LUT, .lut = {.table = table, .size = tables * CODES}},
            qparams(8), &g);
        cr_assert_eq(count(&g, "Cast"), 1);
        cr_assert_eq(count(&g, "Add"), tables > 1);
        cr_assert_eq(count(&g, "Gather"), 1);
        oct_onnx_free(&g);
    }
}
