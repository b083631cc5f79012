/* QuantStub and DeQuantStub: where a tensor enters and leaves the quantized domain. Before prepare
 * both are identity, so one model definition serves float and QAT. */
#include "core/base/whole.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/emit.h"

#include <string.h>

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

static void quantize(const void *args, oct_qparams y, int64_t first, int64_t n, void *codes,
                     uint8_t *mask, float *range)
{
    const float *x = (const float *)args + first;
    float min, max;
    if (oct_codes_dtype(y) == OCT_U8)
        oct_quantize(x, n, y, codes, mask, &min, &max);
    else
        oct_quantize16(x, n, y, codes, mask, &min, &max);
    if (range) oct_range_merge(range, min, max);
}

static void quantized_values(const void *args, int64_t first, int64_t n, float *v)
{
    memcpy(v, (const float *)args + first, (size_t)n * sizeof *v);
}

static void quantize_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    oct_give_grad(cx, x, oct_quantized_take_grad(cx, node, quantized_values, x->data));
}

static oct_tensor *quant_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_quantized *m = (oct_quantized *)self;
    const oct_domain wiring = oct_inputs_domain(cx, x, n, 1);
    if (wiring == OCT_DOMAIN_INVALID) return NULL;
    if (wiring == OCT_DOMAIN_CODES)
        return oct_context_fail(cx, OCT_PREPARE,
                                "a QuantStub got codes; put a DeQuantStub before it");
    oct_fake_quant *fq = oct_quantized_fq(m);
    if (!fq || !oct_fake_quant_quantizes(fq))
        return oct_fake_quant_float(cx, fq, self->training, pass(cx, "quant_stub", x[0]));
    const oct_quantized_op k = {.op = "quantize",
                                .backward = quantize_backward,
                                .shape = x[0]->shape,
                                .row = 1,
                                .make = quantize,
                                .values = quantized_values,
                                .args = x[0]->data,
                                .real_scale = 1.0f};
    return oct_quantized_forward(cx, m, x, 1, &k);
}

static oct_status quant_emit(oct_module *self, oct_emitter *e)
{
    const oct_fake_quant *fq = oct_quantized_fq((const oct_quantized *)self);
    if (!fq) return oct_emit_reshape(e);
    const oct_qparams q = oct_fake_quant_qparams(fq);
    oct_step *step;
    OCT_TRY(oct_emit_step(e, OCT_STEP_QUANTIZE, &step));
    return oct_emit_output(e, step, oct_codes_dtype(q), q);
}

const oct_module_type oct_quant_stub_type = {
    .name = "quant_stub",
    .forward = quant_forward,
    .leaf = true,
    .emit = quant_emit,
};

oct_status oct_quant_stub_create(oct_module **m)
{
    return oct_module_create(m, &oct_quant_stub_type, sizeof(oct_quant_stub));
}

static void dequantize(const oct_tensor *x, float *y)
{
    const int64_t n = oct_numel(x);
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < n; first += OCT_PART) {
        const int64_t count = oct_min_i64(n - first, OCT_PART);
        if (x->dtype == OCT_U8)
            oct_dequantize(oct_u8(x) + first, count, x->q, y + first);
        else
            oct_dequantize16(oct_u16(x) + first, count, x->q, y + first);
    }
}

static oct_tensor *dequant_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)self;
    if (n > 0 && oct_inputs_ok(cx, x, n) && !oct_is_codes(x[0]))
        return pass(cx, "dequant_stub", x[0]);
    if (oct_inputs_domain(cx, x, n, 1) == OCT_DOMAIN_INVALID) return NULL;
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x[0]->shape);
    if (!y) return NULL;
    dequantize(x[0], oct_f32(y));
    oct_record(cx, "dequantize", pass_backward, x, 1, false, y);
    return y;
}

static oct_status dequant_emit(oct_module *self, oct_emitter *e)
{
    (void)self;
    const oct_dtype dtype = oct_emit_input(e, 0)->dtype;
    if (dtype != OCT_U8 && dtype != OCT_U16) return oct_emit_reshape(e); /* no codes */
    oct_step *step;
    OCT_TRY(oct_emit_step(e, OCT_STEP_DEQUANTIZE, &step));
    return oct_emit_output(e, step, OCT_F32, (oct_qparams){0});
}

const oct_module_type oct_dequant_stub_type = {
    .name = "dequant_stub",
    .forward = dequant_forward,
    .leaf = true,
    .emit = dequant_emit,
};

oct_status oct_dequant_stub_create(oct_module **m)
{
    return oct_module_create(m, &oct_dequant_stub_type, sizeof(oct_module));
}
