/* Residual add (+ relu) on codes: the two-multiplier integer form of quant/kernel/qcodes.h. */
#include "quant/kernel/bits.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"
#include "quant/module/emit.h"

#include <math.h>
#include <stdio.h>

typedef struct sum {
    oct_qcodes a, b;
    bool relu;
    oct_qadd add;
} sum;

static sum sum_of(const oct_qat_binary *m, oct_tensor *const *x)
{
    return (sum){.a = oct_qcodes_of(x[0]), .b = oct_qcodes_of(x[1]), .relu = m->relu};
}

static void begin(void *args, oct_qparams y)
{
    sum *s = args;
    s->add = oct_qadd_of(s->a.q, s->b.q, y, s->relu);
}

static void make(const void *args, oct_qparams y, int64_t first, int64_t n, void *codes,
                 uint8_t *mask, float *range)
{
    const sum *s = args;
    oct_qadd_forward(n, oct_qcodes_from(s->a, first), oct_qcodes_from(s->b, first), &s->add, y,
                     codes, mask, range);
}

static void values(const void *args, int64_t first, int64_t n, float *v)
{
    const sum *s = args;
    int32_t a[OCT_FLAG_BLOCK], b[OCT_FLAG_BLOCK];
    oct_qcodes_load(s->a, first, n, a);
    oct_qcodes_load(s->b, first, n, b);
    for (int64_t i = 0; i < n; i++) {
        v[i] = (float)a[i] * s->a.q.scale + (float)b[i] * s->b.q.scale;
        if (s->relu && !(v[i] > 0.0f)) v[i] = 0.0f;
    }
}

/* Both inputs get the masked gradient: the sum's derivative is 1 for each. */
static void backward(oct_context *cx, oct_node *node)
{
    const sum s = sum_of((const oct_qat_binary *)node->module, node->input);
    oct_give_grad_to_both(cx, node->input[0], node->input[1],
                          oct_quantized_take_grad(cx, node, values, &s));
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_qat_binary *m = (oct_qat_binary *)self;
    const oct_domain wiring = oct_quantized_domain(cx, &m->q, x, n, 2);
    if (wiring == OCT_DOMAIN_INVALID) return NULL;
    if (wiring == OCT_DOMAIN_FLOAT) {
        oct_tensor *y = oct_add(cx, x[0], x[1]);
        if (m->relu) y = oct_relu(cx, y);
        return oct_fake_quant_float(cx, oct_quantized_fq(&m->q), self->training, y);
    }
    if (!oct_same_shapes(cx, x[0], x[1])) return NULL;
    sum s = sum_of(m, x);
    const oct_quantized_op k = {.op = "qat_add",
                                .backward = backward,
                                .shape = x[0]->shape,
                                .row = 1,
                                .begin = begin,
                                .make = make,
                                .values = values,
                                .args = &s,
                                .real_scale = fmaxf(x[0]->q.scale, x[1]->q.scale)};
    return oct_quantized_forward(cx, &m->q, x, 2, &k);
}

static void describe(const oct_module *self, char *text, size_t size)
{
    snprintf(text, size, "%s", ((const oct_qat_binary *)self)->relu ? "add + relu" : "add");
}

static oct_status emit(oct_module *self, oct_emitter *e)
{
    const oct_qat_binary *m = (const oct_qat_binary *)self;
    const oct_qparams q = oct_fake_quant_qparams(oct_quantized_fq(&m->q));
    oct_step *step;
    OCT_TRY(oct_emit_step(e, OCT_STEP_ADD, &step));
    step->add = oct_qadd_of(oct_emit_input(e, 0)->q, oct_emit_input(e, 1)->q, q, m->relu);
    return oct_emit_output(e, step, oct_codes_dtype(q), q);
}

const oct_module_type oct_qat_add_type = {
    .name = "qat_add",
    .forward = forward,
    .describe = describe,
    .leaf = true,
    .emit = emit,
};

oct_status oct_qat_add_create(oct_module **m, bool relu)
{
    OCT_TRY(oct_module_create(m, &oct_qat_add_type, sizeof(oct_qat_binary)));
    ((oct_qat_binary *)*m)->relu = relu;
    return OCT_OK;
}

static oct_status create(oct_module **made, oct_module **old)
{
    oct_module_destroy(old);
    return oct_qat_add_create(made, false);
}

const oct_quant_rule oct_quant_rule_add = {
    .type = &oct_add_type, .scale = OCT_SCALE_OWN, .create = create};
