/* ReLU and ReLU6 that were not fused: codes cut at zero, and at the code of 6. The qparams stay. */
#include "core/base/whole.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"
#include "quant/module/emit.h"

#include <math.h>
#include <stdio.h>

/* Logical bounds of the codes, and between which logical codes (exclusive) values lie within (0, 6),
 * where the derivative is 1. */
typedef struct cut {
    int32_t lo, hi, below, above;
} cut;

static cut cut_of(const oct_qat_relu *m, oct_qparams q)
{
    const int32_t lo = q.qmin - q.zero_point, hi = q.qmax - q.zero_point;
    cut c = {.lo = lo > 0 ? lo : 0, .hi = hi, .below = 0, .above = INT32_MAX};
    if (!m->six) return c;
    const double six = 6.0 / (double)q.scale;
    if (nearbyint(six) < hi) c.hi = (int32_t)nearbyint(six);
    if (six < INT32_MAX) c.above = (int32_t)ceil(six);
    return c;
}

static void cut_grad(const oct_qcodes x, int64_t first, int64_t n, const cut *c, float *grad)
{
    int32_t logical[256];
    for (int64_t at = 0; at < n; at += (int64_t)OCT_COUNT(logical)) {
        const int64_t count = oct_min_i64(n - at, (int64_t)OCT_COUNT(logical));
        oct_qcodes_load(x, first + at, count, logical);
        for (int64_t i = 0; i < count; i++)
            grad[first + at + i] *= logical[i] > c->below && logical[i] < c->above ? 1.0f : 0.0f;
    }
}

static void backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const cut c = cut_of((const oct_qat_relu *)node->module, x->q);
    const int64_t n = oct_numel(x);
    float *grad = oct_take_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < n; first += OCT_PART)
        cut_grad(oct_qcodes_of(x), first, oct_min_i64(n - first, OCT_PART), &c, grad);
    oct_give_grad(cx, x, grad);
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_qat_relu *m = (const oct_qat_relu *)self;
    const oct_domain wiring = oct_inputs_domain(cx, x, n, 1);
    if (wiring == OCT_DOMAIN_INVALID) return NULL;
    if (wiring == OCT_DOMAIN_FLOAT) return m->six ? oct_relu6(cx, x[0]) : oct_relu(cx, x[0]);
    oct_tensor *y = oct_tensor_new(cx, x[0]->dtype, x[0]->shape);
    if (!y) return NULL;
    y->q = x[0]->q;
    oct_record(cx, "qat_relu", backward, x, 1, false, y);
    const cut c = cut_of(m, y->q);
    const oct_qcodes codes = oct_qcodes_of(x[0]);
    const int64_t numel = oct_numel(y);
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < numel; first += OCT_PART)
        oct_qclamp_forward(oct_min_i64(numel - first, OCT_PART), oct_qcodes_from(codes, first),
                           c.lo, c.hi, oct_qcodes_place(y->data, y->q, first));
    return y;
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const bool six = ((const oct_qat_relu *)self)->six;
    snprintf(text, size, "%s, input's qparams", six ? "relu6" : "relu");
}

static oct_status emit(oct_module *self, oct_emitter *e)
{
    const oct_value in = *oct_emit_input(e, 0);
    const cut c = cut_of((const oct_qat_relu *)self, in.q);
    oct_step *step;
    OCT_TRY(oct_emit_step(e, OCT_STEP_RELU, &step));
    step->lo = c.lo;
    step->hi = c.hi;
    return oct_emit_output(e, step, in.dtype, in.q);
}

const oct_module_type oct_qat_relu_type = {
    .name = "qat_relu",
    .forward = forward,
    .describe = describe,
    .leaf = true,
    .emit = emit,
};

oct_status oct_qat_relu_create(oct_module **m, bool six)
{
    OCT_TRY(oct_module_create(m, &oct_qat_relu_type, sizeof(oct_qat_relu)));
    ((oct_qat_relu *)*m)->six = six;
    return OCT_OK;
}

static oct_status create(oct_module **made, oct_module **old)
{
    const bool six = (*old)->type == &oct_relu6_type;
    oct_module_destroy(old);
    return oct_qat_relu_create(made, six);
}

const oct_quant_rule oct_quant_rule_relu = {
    .type = &oct_relu_type, .scale = OCT_SCALE_INPUT, .create = create};
const oct_quant_rule oct_quant_rule_relu6 = {
    .type = &oct_relu6_type, .scale = OCT_SCALE_INPUT, .create = create};
