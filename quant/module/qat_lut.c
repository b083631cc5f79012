/* Elementwise functions on codes: a table of codes for the forward, one of slopes for the backward.
 *
 * Tables are made in double from the function itself and kept until the qparams change. A loop may call
 * the module with several scales before its backward, so slopes are looked up by the input's own.
 */
#include "core/base/mem.h"
#include "core/base/whole.h"
#include "quant/kernel/bits.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"
#include "quant/module/emit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct oct_lut_tables {
    int64_t size;                                 /* entries that there is room for */
    oct_qparams code_x, code_y, value_x, slope_x; /* what the tables are of; scale 0: of nothing */
    uint16_t *code;
    uint8_t *pass; /* not clipped */
    double *value;
    float *slope;
} oct_lut_tables;

static double value_of(const oct_module *f, double x)
{
    if (f->type == &oct_add_scalar_type) return x + ((const oct_scalar_module *)f)->value;
    if (f->type == &oct_mul_scalar_type) return x * ((const oct_scalar_module *)f)->value;
    const oct_elementwise_module *m = (const oct_elementwise_module *)f;
    return m->function->value(x, m->args);
}

static double slope_of(const oct_module *f, double x)
{
    if (f->type == &oct_add_scalar_type) return 1;
    if (f->type == &oct_mul_scalar_type) return ((const oct_scalar_module *)f)->value;
    const oct_elementwise_module *m = (const oct_elementwise_module *)f;
    return m->function->slope(x, m->args);
}

static double real_of(int64_t code, oct_qparams q)
{
    return (double)(code - q.zero_point) * (double)q.scale;
}

static void free_arrays(oct_lut_tables *t)
{
    oct_free(&t->code);
    oct_free(&t->pass);
    oct_free(&t->value);
    oct_free(&t->slope);
    *t = (oct_lut_tables){0};
}

/* Room for tables of an input with these qparams: what the three below need. */
static oct_status make_room(oct_qat_lut *m, oct_qparams x)
{
    oct_status status;
    oct_lut_tables *t = m->tables;
    const size_t size = (size_t)oct_qtable_size(x);
    if (t->size == (int64_t)size) return OCT_OK;
    free_arrays(t);
    OCT_TRY_OUT(oct_alloc(&t->code, size, sizeof *t->code));
    OCT_TRY_OUT(oct_alloc(&t->pass, size, sizeof *t->pass));
    OCT_TRY_OUT(oct_alloc(&t->value, size, sizeof *t->value));
    OCT_TRY_OUT(oct_alloc(&t->slope, size, sizeof *t->slope));
    t->size = (int64_t)size;
    return OCT_OK;
out:
    free_arrays(t);
    return status;
}

static void make_values(const oct_qat_lut *m, oct_qparams x)
{
    oct_lut_tables *t = m->tables;
    if (oct_qparams_equal(t->value_x, x)) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < t->size; i++)
        t->value[i] = value_of(m->function, real_of(i, x));
    t->value_x = x;
}

static void make_codes(const oct_qat_lut *m, oct_qparams x, oct_qparams y)
{
    oct_lut_tables *t = m->tables;
    make_values(m, x);
    if (oct_qparams_equal(t->code_x, x) && oct_qparams_equal(t->code_y, y)) return;
    for (int64_t i = 0; i < t->size; i++) {
        const double code = nearbyint(t->value[i] / (double)y.scale) + y.zero_point;
        const double cut = fmin(fmax(code, y.qmin), y.qmax);
        t->code[i] = (uint16_t)cut;
        t->pass[i] = cut == code;
    }
    t->code_x = x;
    t->code_y = y;
}

static void make_slopes(const oct_qat_lut *m, oct_qparams x)
{
    oct_lut_tables *t = m->tables;
    if (oct_qparams_equal(t->slope_x, x)) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < t->size; i++)
        t->slope[i] = (float)slope_of(m->function, real_of(i, x));
    t->slope_x = x;
}

typedef struct look_up {
    const oct_qat_lut *m;
    oct_qcodes x;
} look_up;

static void begin(void *args, oct_qparams y)
{
    const look_up *l = args;
    make_codes(l->m, l->x.q, y);
}

/* Flags and range of a block. */
static void watch(const oct_lut_tables *t, int64_t n, const int32_t *code, uint8_t *flags,
                  float *range)
{
    for (int64_t i = 0; i < n; i++)
        flags[i] = t->pass[code[i]];
    for (int64_t i = 0; range && i < n; i++) {
        const float value = (float)t->value[code[i]];
        oct_range_merge(range, value, value);
    }
}

static void make(const void *args, oct_qparams y, int64_t first, int64_t n, void *codes,
                 uint8_t *mask, float *range)
{
    const look_up *l = args;
    const oct_qcodes x = oct_qcodes_from(l->x, first);
    oct_qlut_forward(n, x, l->m->tables->code, y, codes);
    if (!mask && !range) return;
    oct_qcodes stored = x;
    stored.q.zero_point = 0;
    int32_t code[OCT_FLAG_BLOCK];
    uint8_t flags[OCT_FLAG_BLOCK];
    for (int64_t i = 0; i < n; i += OCT_FLAG_BLOCK) {
        const int64_t count = oct_min_i64(n - i, OCT_FLAG_BLOCK);
        oct_qcodes_load(stored, i, count, code);
        watch(l->m->tables, count, code, flags, range);
        if (mask) oct_bits_pack(flags, count, mask + i / 8);
    }
}

static void values(const void *args, int64_t first, int64_t n, float *v)
{
    const look_up *l = args;
    oct_qcodes stored = l->x;
    int32_t code[OCT_FLAG_BLOCK];
    stored.q.zero_point = 0;
    oct_qcodes_load(stored, first, n, code);
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)l->m->tables->value[code[i]];
}

static void backward(oct_context *cx, oct_node *node)
{
    oct_qat_lut *m = (oct_qat_lut *)node->module;
    oct_tensor *x = node->input[0];
    const look_up l = {.m = m, .x = oct_qcodes_of(x)};
    oct_context_adopt(cx, make_room(m, x->q));
    if (cx->status == OCT_OK && oct_fake_quant_learns(oct_quantized_fq(&m->q)))
        make_values(m, x->q);
    float *grad = oct_quantized_take_grad(cx, node, values, &l);
    if (cx->status == OCT_OK) {
        make_slopes(m, x->q);
        const float *slope = m->tables->slope;
        const int64_t n = oct_numel(x);
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < n; i++)
            grad[i] *= slope[x->dtype == OCT_U8 ? oct_u8(x)[i] : oct_u16(x)[i]];
    }
    oct_give_grad(cx, x, grad);
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_qat_lut *m = (oct_qat_lut *)self;
    const oct_domain wiring = oct_quantized_domain(cx, &m->q, x, n, 1);
    if (wiring == OCT_DOMAIN_INVALID) return NULL;
    if (wiring == OCT_DOMAIN_FLOAT)
        return oct_fake_quant_float(cx, oct_quantized_fq(&m->q), self->training,
                                    oct_call(cx, m->function, x[0]));
    oct_context_adopt(cx, make_room(m, x[0]->q));
    if (cx->status != OCT_OK) return NULL;
    make_values(m, x[0]->q);
    look_up l = {.m = m, .x = oct_qcodes_of(x[0])};
    const oct_quantized_op k = {.op = "qat_lut",
                                .backward = backward,
                                .shape = x[0]->shape,
                                .row = 1,
                                .begin = begin,
                                .make = make,
                                .values = values,
                                .args = &l,
                                .real_scale = 1.0f};
    return oct_quantized_forward(cx, &m->q, x, 1, &k);
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_module *f = ((const oct_qat_lut *)self)->function;
    const int written = snprintf(text, size, "%s by table", f->type->name);
    if (!f->type->describe || written < 0 || (size_t)written + 2 >= size) return;
    memcpy(text + written, ", ", 3);
    f->type->describe(f, text + written + 2, size - (size_t)written - 2);
}

static void destroy(oct_module *self)
{
    oct_qat_lut *m = (oct_qat_lut *)self;
    if (m->tables) free_arrays(m->tables);
    oct_free(&m->tables);
}

static oct_status emit(oct_module *self, oct_emitter *e)
{
    oct_qat_lut *m = (oct_qat_lut *)self;
    const oct_qparams x = oct_emit_input(e, 0)->q;
    const oct_qparams y = oct_fake_quant_qparams(oct_quantized_fq(&m->q));
    OCT_TRY(make_room(m, x));
    make_codes(m, x, y);
    oct_step *step;
    OCT_TRY(oct_emit_step(e, OCT_STEP_LUT, &step));
    step->table_size = m->tables->size;
    OCT_TRY(oct_alloc(&step->table, (size_t)step->table_size, sizeof *step->table));
    memcpy(step->table, m->tables->code, (size_t)step->table_size * sizeof *step->table);
    return oct_emit_output(e, step, oct_codes_dtype(y), y);
}

const oct_module_type oct_qat_lut_type = {
    .name = "qat_lut",
    .forward = forward,
    .destroy = destroy,
    .describe = describe,
    .leaf = true,
    .emit = emit,
};

oct_status oct_qat_lut_create(oct_module **m, oct_module **function)
{
    oct_module *taken = *function;
    *function = NULL;
    oct_status status = oct_module_create(m, &oct_qat_lut_type, sizeof(oct_qat_lut));
    if (status != OCT_OK) {
        oct_module_destroy(&taken);
        return status;
    }
    oct_qat_lut *made = (oct_qat_lut *)*m;
    made->function = taken;
    status = oct_module_add_child(*m, "function", &made->function);
    if (status == OCT_OK) status = oct_alloc(&made->tables, 1, sizeof *made->tables);
    if (status != OCT_OK) oct_module_destroy(m);
    return status;
}

#define OCT_LUT_RULE(name, at_least_0)                                                             \
    const oct_quant_rule oct_quant_rule_##name = {.type = &oct_##name##_type,                      \
                                                  .scale = OCT_SCALE_OWN,                          \
                                                  .non_negative = at_least_0,                      \
                                                  .create = oct_qat_lut_create};

OCT_LUT_RULE(sigmoid, true)
OCT_LUT_RULE(silu, false)
OCT_LUT_RULE(hard_swish, false)
OCT_LUT_RULE(leaky_relu, false)
OCT_LUT_RULE(add_scalar, false)
OCT_LUT_RULE(mul_scalar, false)
