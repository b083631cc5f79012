/* QuantStub and DeQuantStub: where a tensor enters and leaves the quantized domain. Before prepare
 * both are identity, so one model definition serves float and QAT. */
#include "quant/module/mask.h"
#include "quant/module/quant_modules.h"

#include <math.h>

/* A node of its own that changes nothing, so that a trace shows where the stub stands. */
static void pass_backward(oct_context *cx, oct_node *node)
{
    oct_give_grad(cx, node->input[0], oct_take_grad(node->output));
}

static oct_tensor *pass(oct_context *cx, const char *op, oct_tensor *x)
{
    oct_tensor *y = oct_tensor_view(cx, x->dtype, x->shape, x->data);
    if (!y) return NULL;
    y->q = x->q;
    oct_record(cx, op, pass_backward, &x, 1, false, y);
    return y;
}

static void masked_backward(oct_context *cx, oct_node *node)
{
    float *grad = oct_take_grad(node->output);
    oct_mask_apply(node->saved, oct_numel(node->output), grad);
    oct_give_grad(cx, node->input[0], grad);
}

static oct_tensor *quant_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_quant_stub *stub = (oct_quant_stub *)self;
    if (!oct_ready(cx, x, n)) return NULL;
    if (x[0]->dtype != OCT_F32)
        return oct_context_fail(cx, OCT_PREPARE,
                                "a QuantStub got codes; put a DeQuantStub before it");
    oct_fake_quant *fq = (oct_fake_quant *)stub->fake_quant;
    int64_t numel = oct_numel(x[0]);
    if (!fq || !oct_fake_quant_quantizes(fq)) {
        if (fq) oct_fake_quant_observe_values(fq, self->training, oct_f32(x[0]), numel);
        return pass(cx, "quant_stub", x[0]);
    }
    oct_tensor *y = oct_tensor_new(cx, OCT_U8, x[0]->shape);
    if (!y) return NULL;
    y->q = oct_fake_quant_qparams(fq);
    oct_node *node = oct_record(cx, "quantize", masked_backward, x, 1, false, y);
    if (node && !(node->saved = oct_save(cx, (size_t)(numel + 7) / 8))) return NULL;
    if (oct_fake_quant_settles(fq, self->training)) {
        oct_fake_quant_observe_values(fq, true, oct_f32(x[0]), numel);
        oct_context_adopt(cx, oct_fake_quant_settle(fq, cx->group));
        y->q = oct_fake_quant_qparams(fq);
    }
    float range[2] = {INFINITY, -INFINITY};
    oct_quantize(oct_f32(x[0]), numel, y->q, oct_u8(y), node ? node->saved : NULL, &range[0],
                 &range[1]);
    if (numel > 0 && !oct_fake_quant_settles(fq, self->training))
        oct_fake_quant_observe(fq, self->training, range[0], range[1]);
    return y;
}

const oct_module_type oct_quant_stub_type = {
    .name = "quant_stub",
    .forward = quant_forward,
    .leaf = true,
};

oct_status oct_quant_stub_create(oct_module **m)
{
    return oct_module_create(m, &oct_quant_stub_type, sizeof(oct_quant_stub));
}

static oct_tensor *dequant_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)self;
    if (!oct_ready(cx, x, n)) return NULL;
    if (x[0]->dtype != OCT_U8) return pass(cx, "dequant_stub", x[0]);
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x[0]->shape);
    if (!y) return NULL;
    oct_dequantize(oct_u8(x[0]), oct_numel(x[0]), x[0]->q, oct_f32(y));
    oct_record(cx, "dequantize", pass_backward, x, 1, false, y);
    return y;
}

const oct_module_type oct_dequant_stub_type = {
    .name = "dequant_stub",
    .forward = dequant_forward,
    .leaf = true,
};

oct_status oct_dequant_stub_create(oct_module **m)
{
    return oct_module_create(m, &oct_dequant_stub_type, sizeof(oct_module));
}
