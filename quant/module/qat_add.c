/* Residual add (+ relu) on codes: the two-multiplier integer form of quant/kernel/qops.h. */
#include "quant/module/mask.h"
#include "quant/module/quant_modules.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static oct_tensor *float_forward(oct_context *cx, oct_qat_add *m, oct_tensor *const *x)
{
    oct_tensor *y = oct_add(cx, x[0], x[1]);
    if (m->relu) y = oct_relu(cx, y);
    if (y)
        oct_fake_quant_observe_values((oct_fake_quant *)m->fake_quant, m->base.training, oct_f32(y),
                                      oct_numel(y));
    return y;
}

/* Both inputs get the masked gradient: the sum's derivative is 1 for each. */
static void backward(oct_context *cx, oct_node *node)
{
    float *grad = oct_take_grad(node->output);
    int64_t n = oct_numel(node->output);
    float *copy = oct_scratch(cx, (size_t)n * 4 + 64);
    oct_mask_apply(node->saved, n, grad);
    if (copy) memcpy(copy, grad, (size_t)n * 4);
    oct_give_grad(cx, node->input[0], grad);
    oct_give_grad(cx, node->input[1], copy);
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_qat_add *m = (oct_qat_add *)self;
    if (!oct_ready(cx, x, n)) return NULL;
    if (x[0]->dtype == OCT_F32 && x[1]->dtype == OCT_F32) return float_forward(cx, m, x);
    char a[96], b[96];
    if (x[0]->dtype != x[1]->dtype)
        return oct_context_fail(cx, OCT_PREPARE, "one input is codes and the other float");
    if (!oct_shape_equal(&x[0]->shape, &x[1]->shape))
        return oct_context_fail(cx, OCT_PREPARE, "inputs %s and %s differ in shape",
                                oct_shape_text(&x[0]->shape, a), oct_shape_text(&x[1]->shape, b));
    oct_fake_quant *fq = (oct_fake_quant *)m->fake_quant;
    oct_tensor *y = oct_tensor_new(cx, OCT_U8, x[0]->shape);
    if (!y) return NULL;
    y->q = oct_fake_quant_qparams(fq);
    int64_t numel = oct_numel(y);
    oct_node *node = oct_record(cx, "qat_add", backward, x, 2, false, y);
    if (node && !(node->saved = oct_save(cx, (size_t)(numel + 7) / 8))) return NULL;
    float range[2] = {INFINITY, -INFINITY};
    bool settle = oct_fake_quant_settles(fq, self->training);
    if (settle) { /* a pass with an output scale of 1 sees the real range */
        oct_qparams real = {.scale = 1.0f, .qmin = y->q.qmin, .qmax = y->q.qmax};
        oct_qadd q = oct_qadd_of(x[0]->q, x[1]->q, real, m->relu);
        oct_qadd_forward(numel, oct_u8(x[0]), oct_u8(x[1]), &q, oct_u8(y), NULL, range);
        if (numel > 0) oct_fake_quant_observe(fq, true, range[0], range[1]);
        oct_context_adopt(cx, oct_fake_quant_settle(fq, cx->group));
        y->q = oct_fake_quant_qparams(fq);
    }
    oct_qadd q = oct_qadd_of(x[0]->q, x[1]->q, y->q, m->relu);
    oct_qadd_forward(numel, oct_u8(x[0]), oct_u8(x[1]), &q, oct_u8(y), node ? node->saved : NULL,
                     range);
    if (numel > 0 && !settle)
        oct_fake_quant_observe(fq, self->training, range[0] * y->q.scale, range[1] * y->q.scale);
    return y;
}

static void describe(const oct_module *self, char *text, size_t size)
{
    snprintf(text, size, "%s", ((const oct_qat_add *)self)->relu ? "add + relu" : "add");
}

const oct_module_type oct_qat_add_type = {
    .name = "qat_add",
    .forward = forward,
    .describe = describe,
    .leaf = true,
};

oct_status oct_qat_add_create(oct_module **m, bool relu, oct_fake_quant **fake_quant)
{
    oct_module *fq = &(*fake_quant)->base;
    *fake_quant = NULL;
    oct_status status = oct_module_create(m, &oct_qat_add_type, sizeof(oct_qat_add));
    if (status == OCT_OK) {
        oct_qat_add *made = (oct_qat_add *)*m;
        made->relu = relu;
        made->fake_quant = fq;
        fq = NULL;
        status = oct_module_add_child(*m, "fake_quant", &made->fake_quant);
        if (status != OCT_OK) oct_module_destroy(m);
    }
    oct_module_destroy(&fq);
    return status;
}
