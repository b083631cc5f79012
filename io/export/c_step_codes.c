/* Steps without weights as C: what changes codes one by one, moves them, or looks at windows of them. */
#include "io/export/c_form.h"

#include "core/base/mem.h"
#include "core/tensor/pad.h"

#include <math.h>
#include <stdio.h>

/* Writes a kernel and its call: with these arguments, the input and the output. */
OCT_PRINTF(4, 5)
static void call_kernel(oct_to_c *w, const oct_to_c_call *c, const char *kernel, const char *format,
                        ...)
{
    char arguments[OCT_TO_C_TEXT];
    OCT_PRINT_ARGS(arguments, format);
    oct_to_c_begin_call(w, c, &(oct_to_c_form){.kernel = kernel});
    oct_to_c_add(w, &w->calls, "%s, %s, %s);\n", arguments, c->from, c->to);
}

static void write_quantize(oct_to_c *w, oct_to_c_call *c)
{
    const oct_qparams q = c->y->q;
    const bool quotient = c->step->quantize.quotient;
    call_kernel(w, c, quotient ? "quantize_quotient" : "quantize", "%lld, %aF, %d, %d, %d",
                (long long)oct_value_numel(c->y), (double)(quotient ? q.scale : 1.0f / q.scale),
                q.zero_point, q.qmin - q.zero_point, q.qmax - q.zero_point);
}

static void write_dequantize(oct_to_c *w, oct_to_c_call *c)
{
    call_kernel(w, c, "dequantize", "%lld, %aF, %d", (long long)oct_value_numel(c->y),
                (double)c->x->q.scale, c->x->q.zero_point);
}

/* Writes a table of codes, as bytes where the codes are bytes. */
static void write_lut(oct_to_c *w, oct_to_c_call *c)
{
    const int64_t size = c->step->lut.size, entries = oct_qtable_size(c->x->q);
    const long long numel = oct_value_numel(c->y), n = c->number;
    const bool bytes = c->y->dtype == OCT_U8;
    uint8_t *narrow = NULL;
    if (w->status == OCT_OK) w->status = oct_alloc(&narrow, (size_t)size, sizeof *narrow);
    if (w->status != OCT_OK) return;
    for (int64_t i = 0; i < size; i++)
        narrow[i] = (uint8_t)c->step->lut.table[i];
    oct_to_c_constants(w, &(oct_to_c_array){"table", c->number, c->y->dtype, size,
                                            bytes ? (const void *)narrow : c->step->lut.table});
    oct_free(&narrow);
    if (size > entries)
        call_kernel(w, c, "lut_channels", "%lld, %lld, %lld, table_%lld", numel, (long long)c->y->c,
                    (long long)entries, n);
    else
        call_kernel(w, c, "lut", "%lld, table_%lld", numel, n);
}

static void write_softmax(oct_to_c *w, oct_to_c_call *c)
{
    const oct_qparams q = c->y->q;
    oct_to_c_constants(w, &(oct_to_c_array){"exponential", c->number, OCT_S32,
                                            c->step->softmax.size, c->step->softmax.exponential});
    call_kernel(w, c, "softmax", "%lld, %lld, exponential_%lld, %lld, %d, %d",
                (long long)(c->y->h * c->y->w), (long long)c->y->c, (long long)c->number,
                (long long)(1.0f / q.scale), q.qmax - q.zero_point, q.zero_point);
}

/* Writes the call for one input of a concat, whose channels begin at `first` in the output: codes are copied where they
 * mean the same, otherwise scaled (quant/program/step_concat.c). */
static void write_concat_input(oct_to_c *w, const oct_to_c_call *concat, int input, int64_t first)
{
    oct_to_c_call c = *concat;
    c.x = oct_step_input(w->program, c.step, input);
    oct_to_c_value(w, c.step->input[input], c.from);
    const oct_qparams x = c.x->q, y = c.y->q;
    const bool equal = oct_qparams_equal(x, y);
    const oct_rounding_row *rounding = oct_rounding_of(w->program->requantizer);
    const oct_to_c_rounding r = oct_to_c_rounds(w, c.y, "multiplier", "shift", "factor");
    const double ratio = (double)x.scale / (double)y.scale;
    const oct_fixed fixed = oct_fixed_of(w->program->requantizer, ratio);
    oct_to_c_begin_call(w, &c,
                        &(oct_to_c_form){.kernel = equal ? "place" : "place_scaled",
                                         .parameters = !rounding->constants_of ? "float factor"
                                                       : rounding->c_multiplier
                                                           ? "int32_t multiplier, int32_t shift"
                                                           : "int32_t shift",
                                         .function = r.function,
                                         .constants = r.constants});
    oct_to_c_add(w, &w->calls, "%lld, %lld, %lld, ", (long long)(c.y->h * c.y->w),
                 (long long)c.x->c, (long long)c.y->c);
    if (!equal && !rounding->constants_of)
        oct_to_c_add(w, &w->calls, "%aF, ", (double)(float)fmin(fmax(ratio, 0x1p-60), 0x1p60));
    if (!equal && rounding->c_multiplier) oct_to_c_add(w, &w->calls, "%d, ", fixed.multiplier);
    if (!equal && rounding->constants_of) oct_to_c_add(w, &w->calls, "%d, ", fixed.shift);
    if (!equal)
        oct_to_c_add(w, &w->calls, "%d, %d, %d, %d, ", x.zero_point, y.zero_point,
                     y.qmin - y.zero_point, y.qmax - y.zero_point);
    oct_to_c_add(w, &w->calls, "%s, %s + %lld);\n", c.from, c.to, (long long)first);
}

static void write_concat(oct_to_c *w, oct_to_c_call *c)
{
    int64_t first = 0;
    for (int i = 0; i < c->step->num_inputs; i++) {
        write_concat_input(w, c, i, first);
        first += oct_step_input(w->program, c->step, i)->c;
    }
}

/* Writes for each of `out` rows or columns the two of the input that it is interpolated from, and their weight. */
static void write_taps(oct_to_c *w, const char *name, int64_t number, oct_interpolation mode,
                       int64_t in, int64_t out)
{
    oct_to_c_add(w, &w->constants, "CONSTANT_PLACE static const tap %s_%lld[%lld] = {\n", name,
                 (long long)number, (long long)out);
    for (int64_t at = 0; at < out; at++) {
        const oct_qtap tap = oct_qtap_of(mode, at, in, out);
        oct_to_c_add(w, &w->constants, "    {%lld, %lld, %d},\n", (long long)tap.low,
                     (long long)tap.high, tap.weight);
    }
    oct_to_c_add(w, &w->constants, "};\n");
    w->constant_bytes += out * 3 * (int64_t)sizeof(int32_t);
}

static void write_interpolate(oct_to_c *w, oct_to_c_call *c)
{
    const oct_conv_shape *s = &c->step->interpolate.shape;
    const oct_interpolation mode = (oct_interpolation)c->step->interpolate.mode;
    write_taps(w, "rows", c->number, mode, s->in_h, s->out_h);
    write_taps(w, "columns", c->number, mode, s->in_w, s->out_w);
    call_kernel(w, c, oct_is_bilinear(mode) ? "bilinear" : "nearest",
                "%lld, %lld, %lld, %lld, rows_%lld, columns_%lld", (long long)s->out_h,
                (long long)s->out_w, (long long)s->in_w, (long long)s->in_c, (long long)c->number,
                (long long)c->number);
}

/* Writes a pool: the numbers of its pool_layer, the kernel by how averages are rounded, and the call. */
static void write_pool(oct_to_c *w, oct_to_c_call *c)
{
    const oct_conv_shape *s = &c->step->pool.shape;
    const oct_qparams q = c->x->q;
    const bool average = c->step->kind == OCT_STEP_AVG_POOL, wide = c->x->dtype == OCT_U16;
    oct_to_c_count_layer(w, 18, 0);
    oct_to_c_add(
        w, &w->constants,
        "CONSTANT_PLACE static const pool_layer layer_%lld = {\n"
        "    .in_h = %lld, .in_w = %lld, .c = %lld, .out_h = %lld, .out_w = %lld,\n"
        "    .kernel_h = %d, .kernel_w = %d, .stride_h = %d, .stride_w = %d, .pad_top = %d, "
        ".pad_left = %d, .pad_bottom = %d, .pad_right = %d,\n",
        (long long)c->number, (long long)s->in_h, (long long)s->in_w, (long long)s->in_c,
        (long long)s->out_h, (long long)s->out_w, s->kernel_h, s->kernel_w, s->stride_h,
        s->stride_w, s->pad_top, s->pad_left, s->pad_bottom, s->pad_right);
    oct_to_c_add(w, &w->constants,
                 "    .zero = %d, .lo = %d, .hi = %d, .count_padding = %d, .factor = %aF,\n};\n",
                 q.zero_point, q.qmin - q.zero_point, q.qmax - q.zero_point,
                 average && c->step->pool.count_include_pad,
                 average ? (double)c->step->pool.factor : 0.0);
    const oct_rounding_row *rounding = oct_rounding_of(w->program->requantizer);
    char constants[OCT_TO_C_TEXT];
    oct_to_c_form form = {.kernel = "max_pool"};
    if (average) {
        form.kernel = "avg_pool";
        form.wide = wide;
        form.function = "mean";
        form.constants = "sum, count, l->factor";
    }
    if (average && c->step->pool.of_codes) {
        form.variant = "signed";
        form.function = "mean_signed";
        form.constants = "sum, count, l->zero";
    } else if (average && c->step->pool.half_up) {
        form.variant = "up";
        form.function = "mean_up";
        form.constants = "sum, count";
    } else if (average && c->step->pool.fixed) {
        form.variant = rounding->name;
        form.function = rounding->c_mean;
        form.constants = constants;
        snprintf(constants, sizeof constants, "sum, count, %s", rounding->c_width[wide]);
    }
    oct_to_c_begin_call(w, c, &form);
    oct_to_c_add(w, &w->calls, "&layer_%lld, %s, %s);\n", (long long)c->number, c->from, c->to);
}

static void write_relu(oct_to_c *w, oct_to_c_call *c)
{
    const int32_t zero = c->x->q.zero_point;
    call_kernel(w, c, "clamp", "%lld, %d, %d", (long long)oct_value_numel(c->y),
                c->step->relu.lo + zero, c->step->relu.hi + zero);
}

static void write_reshape(oct_to_c *w, oct_to_c_call *c)
{
    call_kernel(w, c, "copy", "%lld", (long long)oct_value_numel(c->y));
}

/* Writes a reordering of numbers as six nested loops over the output: the map's are innermost, others have one turn. */
static void write_move(oct_to_c *w, oct_to_c_call *c)
{
    const oct_move_map *map = &c->step->move;
    int32_t size[OCT_MOVE_DIMS], stride[OCT_MOVE_DIMS] = {0};
    for (int k = 0; k < OCT_MOVE_DIMS; k++) {
        const int loop = k - (OCT_MOVE_DIMS - map->dims);
        size[k] = loop < 0 ? 1 : (int32_t)map->size[loop];
        if (loop >= 0) stride[k] = (int32_t)map->stride[loop];
    }
    oct_to_c_constants(w, &(oct_to_c_array){"size", c->number, OCT_S32, OCT_MOVE_DIMS, size});
    oct_to_c_constants(w, &(oct_to_c_array){"stride", c->number, OCT_S32, OCT_MOVE_DIMS, stride});
    call_kernel(w, c, "move", "%lld, size_%lld, stride_%lld", (long long)map->offset,
                (long long)c->number, (long long)c->number);
}

/* Writes which row, column or channel (d: 0, 1, 2) of the input each one of the output shows. */
static void write_pad_sources(oct_to_c *w, const char *name, int64_t number, const oct_pad_shape *s,
                              int d)
{
    OCT_OWNED(oct_free) int32_t *places = NULL;
    if (w->status == OCT_OK) w->status = oct_alloc(&places, (size_t)s->out[d], sizeof *places);
    if (w->status != OCT_OK) return;
    for (int64_t at = 0; at < s->out[d]; at++)
        places[at] = (int32_t)oct_pad_source(s, d, at);
    oct_to_c_constants(w, &(oct_to_c_array){name, number, OCT_S32, s->out[d], places});
}

static void write_pad(oct_to_c *w, oct_to_c_call *c)
{
    const oct_pad_shape *s = &c->step->pad.shape;
    const int32_t in[3] = {(int32_t)s->in[0], (int32_t)s->in[1], (int32_t)s->in[2]};
    const int32_t out[3] = {(int32_t)s->out[0], (int32_t)s->out[1], (int32_t)s->out[2]};
    const long long n = c->number;
    oct_to_c_constants(w, &(oct_to_c_array){"out", c->number, OCT_S32, 3, out});
    oct_to_c_constants(w, &(oct_to_c_array){"in", c->number, OCT_S32, 3, in});
    write_pad_sources(w, "rows", c->number, s, 0);
    write_pad_sources(w, "columns", c->number, s, 1);
    write_pad_sources(w, "channels", c->number, s, 2);
    call_kernel(w, c, "pad", "out_%lld, in_%lld, rows_%lld, columns_%lld, channels_%lld, %d", n, n,
                n, n, n, c->step->pad.fill);
}

static void write_argmax(oct_to_c *w, oct_to_c_call *c)
{
    call_kernel(w, c, "argmax", "%lld, %lld", (long long)(c->x->h * c->x->w), (long long)c->x->c);
}

oct_to_c_write *const oct_to_c_code_steps[OCT_STEP_KINDS] = {
    [OCT_STEP_QUANTIZE] = write_quantize, [OCT_STEP_DEQUANTIZE] = write_dequantize,
    [OCT_STEP_LUT] = write_lut,           [OCT_STEP_SOFTMAX] = write_softmax,
    [OCT_STEP_CONCAT] = write_concat,     [OCT_STEP_INTERPOLATE] = write_interpolate,
    [OCT_STEP_MAX_POOL] = write_pool,     [OCT_STEP_AVG_POOL] = write_pool,
    [OCT_STEP_RELU] = write_relu,         [OCT_STEP_RESHAPE] = write_reshape,
    [OCT_STEP_MOVE] = write_move,         [OCT_STEP_PAD] = write_pad,
    [OCT_STEP_ARGMAX] = write_argmax,
};
