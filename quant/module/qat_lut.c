/* Elementwise functions on codes: a table of codes for the forward, one of slopes for the backward. PReLU has a
 * table for each of its weights, which is made anew when they have changed.
 *
 * Tables are made in double from the function itself and kept until the qparams change. A loop may call
 * the module with several scales before its backward, so slopes are looked up by the input's own.
 *
 * A table has a value for each code, though a function may have none there: outside of its domain (below 0 of a
 * root or logarithm) it has that of the next code inside and the slope 0, and what is infinite is cut to the ends of
 * the codes and widens no range.
 */
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/op/ops.h"
#include "quant/kernel/qcodes.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"
#include "quant/rounding/bits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct tables {
    int64_t size; /* entries that there is room for, of all tables */
    oct_qparams code_x, code_y, value_x, slope_x; /* what the tables are of; scale 0: of nothing */
    uint16_t *code;
    uint8_t *pass; /* not clipped */
    double *value;
    float *slope;
    float *weight; /* of PReLU, as the values have it */
} tables;

/* An elementwise function by table: one entry a code. */
typedef struct lut {
    oct_quantized q;
    /* child "function", or another call site's: a module whose type core/op/elementwise_list.def lists, add_scalar,
     * mul_scalar or prelu */
    oct_module *function;
    tables tables; /* of the qparams last seen */
} lut;

/* The weights of PReLU; or NULL. */
static oct_param *weights_of(const oct_module *self)
{
    const oct_module *function = ((const lut *)self)->function;
    return function->type == &oct_prelu_type ? ((const oct_prelu_module *)function)->weight : NULL;
}

static int64_t num_tables(const lut *m)
{
    const oct_param *weight = weights_of(&m->q.base);
    return weight ? oct_numel(&weight->value) : 1;
}

/* Returns the module's function at x; channel: of a prelu, whose slope. */
static double function_value(const oct_module *f, int64_t channel, double x)
{
    if (f->type == &oct_prelu_type) {
        const float *weight = oct_f32(&((const oct_prelu_module *)f)->weight->value);
        return x > 0 ? x : (double)weight[channel] * x;
    }
    if (f->type == &oct_add_scalar_type) return x + ((const oct_scalar_module *)f)->args.value;
    if (f->type == &oct_mul_scalar_type) return x * ((const oct_scalar_module *)f)->args.value;
    const oct_elementwise_module *m = (const oct_elementwise_module *)f;
    return m->function->value(x, &m->args);
}

static double function_slope(const oct_module *f, double x)
{
    if (f->type == &oct_add_scalar_type) return 1;
    if (f->type == &oct_mul_scalar_type) return ((const oct_scalar_module *)f)->args.value;
    const oct_elementwise_module *m = (const oct_elementwise_module *)f;
    return m->function->slope(x, &m->args);
}

static double dequantize(int64_t code, oct_qparams q)
{
    return (double)(code - q.zero_point) * (double)q.scale;
}

static void free_arrays(tables *t)
{
    OCT_FREE_ALL(&t->code, &t->pass, &t->value, &t->slope, &t->weight);
    *t = (tables){0};
}

/* Allocates tables of codes, masks, values and slopes (prelu: a copy of its weights), by input code and channel. */
static oct_status reserve_tables(lut *m, oct_qparams x)
{
    oct_status status;
    tables *t = &m->tables;
    const int64_t codes = oct_qtable_size(x), count = num_tables(m), all = codes * count;
    const size_t size = (size_t)all;
    if (t->size == all) return OCT_OK;
    OCT_CHECK(all <= OCT_TABLES_MAX, OCT_PREPARE,
              "%lld tables of %lld codes are too many; give its input 8 bits, or keep it float",
              (long long)count, (long long)codes);
    free_arrays(t);
    OCT_TRY_OUT(oct_alloc(&t->code, size, sizeof *t->code));
    OCT_TRY_OUT(oct_alloc(&t->pass, size, sizeof *t->pass));
    OCT_TRY_OUT(oct_alloc(&t->value, size, sizeof *t->value));
    if (weights_of(&m->q.base))
        OCT_TRY_OUT(oct_alloc(&t->weight, (size_t)count, sizeof *t->weight));
    else
        OCT_TRY_OUT(oct_alloc(&t->slope, size, sizeof *t->slope));
    t->size = all;
    return OCT_OK;
out:
    free_arrays(t);
    return status;
}

/* Whether the weights of a prelu have changed since the table of values was computed; copies them. */
static bool copy_moved_weights(lut *m)
{
    const oct_param *weight = weights_of(&m->q.base);
    if (!weight) return false;
    const size_t bytes = (size_t)num_tables(m) * sizeof(float);
    const bool moved = memcmp(m->tables.weight, weight->value.data, bytes) != 0;
    memcpy(m->tables.weight, weight->value.data, bytes);
    return moved;
}

/* Computes the value of the function at each code of x, unless the table has them. */
static void compute_values(lut *m, oct_qparams x)
{
    tables *t = &m->tables;
    const int64_t codes = oct_qtable_size(x);
    const bool moved = copy_moved_weights(m);
    if (!moved && oct_qparams_equal(t->value_x, x)) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < t->size; i++)
        t->value[i] = function_value(m->function, i / codes, dequantize(i % codes, x));
    /* Codes outside of the function's domain get the value at the next code that has one, above or else below: the
     * end of the domain goes on, so that what is below 0 has the root of 0. */
    for (int64_t i = t->size - 2; i >= 0; i--)
        if (isnan(t->value[i])) t->value[i] = t->value[i + 1];
    for (int64_t i = 0; i < t->size; i++)
        if (isnan(t->value[i])) t->value[i] = i > 0 ? t->value[i - 1] : 0;
    t->value_x = x;
    t->code_x = (oct_qparams){0};
}

/* Which function in whole numbers the target has in place of the table's; OCT_FIXED_FUNCTIONS: none. */
static oct_fixed_function fixed_function_of(const lut *m)
{
    const oct_module_type *type = m->function->type;
    if (!m->q.target || !oct_list_has(m->q.target->fixed_functions, type->name))
        return OCT_FIXED_FUNCTIONS;
    return type == &oct_tanh_type ? OCT_FIXED_TANH : OCT_FIXED_LOGISTIC;
}

/* Of a module that runs without a group's fake-quant, which has the scale already. */
static void fix_scale(const oct_module *self, oct_fake_quant *fq)
{
    const oct_fixed_function f = fixed_function_of((const lut *)self);
    if (f != OCT_FIXED_FUNCTIONS && fq->qconfig.bits == 8 && !fq->fixed)
        oct_fake_quant_fix(fq, oct_fixed_function_output(f).scale);
}

/* Rounds the values to codes of the output, or takes those of the target's integer function. */
static void compute_codes(lut *m, oct_qparams x, oct_qparams y)
{
    tables *t = &m->tables;
    compute_values(m, x);
    if (oct_qparams_equal(t->code_x, x) && oct_qparams_equal(t->code_y, y)) return;
    for (int64_t i = 0; i < t->size; i++) {
        const double code = nearbyint(t->value[i] / (double)y.scale) + y.zero_point;
        const double cut = fmin(fmax(code, y.qmin), y.qmax);
        t->code[i] = (uint16_t)cut;
        t->pass[i] = cut == code;
    }
    const oct_fixed_function f =
        fixed_function_of(m); /* where input and output are those that it has */
    if (f != OCT_FIXED_FUNCTIONS && oct_fixed_function_takes(x) &&
        oct_qparams_equal(y, oct_fixed_function_output(f)))
        oct_fixed_function_table(f, x, t->code);
    t->code_x = x;
    t->code_y = y;
}

/* Computes the derivative at each code of x, unless the table has it; 0 where function or derivative is not finite. */
static void compute_slopes(lut *m, oct_qparams x)
{
    tables *t = &m->tables;
    if (oct_qparams_equal(t->slope_x, x)) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < t->size; i++) {
        const float slope = (float)function_slope(m->function, dequantize(i, x));
        const bool flat =
            !isfinite(function_value(m->function, 0, dequantize(i, x))) || !isfinite(slope);
        t->slope[i] = flat ? 0.0f : slope;
    }
    t->slope_x = x;
}

/* The entries of the tables for codes of x: the codes as they are stored, in the table of their channel. */
static void load_entries(const lut *m, const oct_tensor *x, int64_t first, int64_t n,
                         int32_t *entry)
{
    oct_qcodes stored = oct_qcodes_of(x);
    const int64_t codes = oct_qtable_size(x->q), channels = num_tables(m);
    stored.q.zero_point = 0;
    oct_qcodes_load(stored, first, n, entry);
    if (channels == 1) return;
    for (int64_t i = 0, c = first % channels; i < n; i++) {
        entry[i] += (int32_t)(c * codes);
        c = c + 1 < channels ? c + 1 : 0;
    }
}

/* Reads the clip mask and the range of n elements from the tables. */
static void watch_elements(const oct_module *self, const oct_tensor *x, int64_t first, int64_t n,
                           uint8_t *mask, float *range)
{
    const lut *m = (const lut *)self;
    const tables *t = &m->tables;
    int32_t entry[OCT_FLAG_BLOCK];
    uint8_t flags[OCT_FLAG_BLOCK];
    if (!mask && !range) return;
    for (int64_t i = 0; i < n; i += OCT_FLAG_BLOCK) {
        const int64_t count = oct_min_i64(n - i, OCT_FLAG_BLOCK);
        load_entries(m, x, first + i, count, entry);
        for (int64_t k = 0; k < count; k++)
            flags[k] = t->pass[entry[k]];
        if (mask) oct_bits_pack(flags, count, mask + i / 8);
        for (int64_t k = 0; range && k < count; k++) {
            const float value = (float)t->value[entry[k]];
            if (isfinite(value)) oct_range_merge(range, value, value);
        }
    }
}

static void read_real_values(const oct_module *self, oct_tensor *const *x, int64_t first, int64_t n,
                             float *v)
{
    const lut *m = (const lut *)self;
    int32_t entry[OCT_FLAG_BLOCK];
    load_entries(m, x[0], first, n, entry);
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)m->tables.value[entry[i]];
}

/* Takes the output's gradient, clipped, after making the tables that it needs for the input's codes. */
static float *detach_table_grad(oct_context *cx, oct_node *node)
{
    lut *m = (lut *)node->module;
    const oct_qparams x = node->input[0]->q;
    const oct_status status = reserve_tables(m, x);
    oct_context_adopt(cx, status);
    if (status == OCT_OK && oct_fake_quant_learns(oct_quantized_fq(&m->q))) compute_values(m, x);
    return oct_quantized_detach_grad(cx, node);
}

static void backward(oct_context *cx, oct_node *node)
{
    lut *m = (lut *)node->module;
    oct_tensor *x = node->input[0];
    float *grad = detach_table_grad(cx, node);
    if (cx->status == OCT_OK) {
        compute_slopes(m, x->q);
        const float *slope = m->tables.slope;
        const int64_t n = oct_numel(x);
        OCT_ASSERT(slope);
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < n; i++)
            grad[i] *= slope[x->dtype == OCT_U8 ? oct_u8(x)[i] : oct_u16(x)[i]];
    }
    oct_add_grad(cx, x, grad);
}

/* The slopes are weights, so the gradient needs the real values of the input. */
static void prelu_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    float *grad = detach_table_grad(cx, node), *v = oct_quantized_values_of(cx, x);
    if (v)
        oct_prelu_add_grads(cx, weights_of(node->module), x, v, grad);
    else
        oct_scratch_end(cx, grad);
    oct_scratch_end(cx, v);
}

static oct_tensor *compute_in_float(oct_context *cx, oct_module *self, oct_tensor *const *x)
{
    return oct_call(cx, ((lut *)self)->function, x[0]);
}

static oct_status set_constants(oct_module *self, const oct_program *program, oct_step *step)
{
    lut *m = (lut *)self;
    const oct_qparams x = oct_step_input(program, step, 0)->q;
    const oct_param *weight = weights_of(&m->q.base);
    for (int64_t c = 0; weight && c < num_tables(m); c++)
        OCT_CHECK(isfinite(oct_f32(&weight->value)[c]), OCT_NUMERIC, "a slope of it is not finite");
    OCT_TRY(reserve_tables(m, x));
    compute_codes(m, x, oct_step_output(program, step)->q);
    step->lut.size = m->tables.size;
    step->lut.table = m->tables.code;
    return OCT_OK;
}

static const oct_quantized_op step = {.kind = OCT_STEP_LUT,
                                      .inputs = 1,
                                      .in_float = compute_in_float,
                                      .constants = set_constants,
                                      .backward = backward,
                                      .values = read_real_values,
                                      .adopted = fix_scale,
                                      .watch = watch_elements};

static bool check_channels(oct_context *cx, const oct_module *self, const oct_tensor *x)
{
    const int64_t weights = num_tables((const lut *)self);
    if (x->shape.ndim > 1 && (weights == 1 || oct_dim(x, x->shape.ndim - 1) == weights))
        return true;
    oct_context_fail(cx, OCT_PREPARE, "it has %lld slopes, but its input is %s", (long long)weights,
                     oct_text_shape(&x->shape).text);
    return false;
}

static const oct_quantized_op prelu_step = {.kind = OCT_STEP_LUT,
                                            .inputs = 1,
                                            .unit = OCT_UNIT_ROW,
                                            .fits = check_channels,
                                            .in_float = compute_in_float,
                                            .constants = set_constants,
                                            .parameter = weights_of,
                                            .backward = prelu_backward,
                                            .values = read_real_values,
                                            .watch = watch_elements};

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_module *f = ((const lut *)self)->function;
    char about[96];
    oct_module_describe(f, about, sizeof about);
    snprintf(text, size, "%s by table%s%s", f->type->name, about[0] ? ", " : "", about);
}

static void destroy(oct_module *self)
{
    free_arrays(&((lut *)self)->tables);
}

static const oct_module_type type = {
    .name = "qat_lut",
    .destroy = destroy,
    .describe = describe,
    .quantized = true,
    OCT_QUANTIZED_OP(&step, lut),
};

static const oct_module_type prelu_type = {
    .name = "qat_prelu",
    .destroy = destroy,
    .describe = describe,
    .quantized = true,
    OCT_QUANTIZED_OP(&prelu_step, lut),
};

/* The module of the float function becomes the child "function". */
static oct_status take_function(oct_module *made, oct_module **old)
{
    lut *m = (lut *)made;
    m->function = *old;
    *old = NULL;
    return oct_module_add_child(made, "function", &m->function);
}

/* The function stays the child of the first one. */
static oct_status create_shared(oct_module **made, const oct_module *first)
{
    OCT_TRY(oct_module_alloc(made, &prelu_type, prelu_type.size));
    ((lut *)*made)->function = ((const lut *)first)->function;
    return OCT_OK;
}

const oct_quant_rule oct_quant_rule_prelu = {.type = &oct_prelu_type,
                                             .scale = OCT_SCALE_OWN,
                                             .made = &prelu_type,
                                             .complete = take_function,
                                             .create_again = create_shared};

#define OCT_LUT_RULE(id)                                                                           \
    const oct_quant_rule oct_quant_rule_##id = {.type = &oct_##id##_type,                          \
                                                .scale = OCT_SCALE_OWN,                            \
                                                .made = &type,                                     \
                                                .complete = take_function};
OCT_LUT_RULE(add_scalar)
OCT_LUT_RULE(mul_scalar)

#define OCT_ELEMENTWISE(id, args)                                                                  \
    const oct_quant_rule oct_quant_rule_##id = {.type = &oct_##id##_type,                          \
                                                .scale = OCT_SCALE_OWN,                            \
                                                .elementwise = &oct_elementwise_##id,              \
                                                .made = &type,                                     \
                                                .complete = take_function};
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE
