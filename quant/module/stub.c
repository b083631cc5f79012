/* QuantStub and DeQuantStub: where a tensor enters and leaves the quantized domain. Before prepare
 * both are identity, so one model definition serves float and QAT. */
#include "quant/module/quantized_impl.h"

#include <string.h>

static void pass_grad(oct_context *cx, oct_node *node)
{
    oct_add_grad(cx, node->input[0], oct_detach_grad(node->output));
}

static void read_real_values(const oct_module *self, oct_tensor *const *x, int64_t first, int64_t n,
                             float *v)
{
    (void)self;
    memcpy(v, oct_f32(x[0]) + first, (size_t)n * sizeof *v);
}

static void quantize_backward(oct_context *cx, oct_node *node)
{
    oct_add_grad(cx, node->input[0], oct_quantized_detach_grad(cx, node));
}

static oct_status set_constants(oct_module *self, const oct_program *program, oct_step *step)
{
    (void)program;
    step->quantize.quotient = ((oct_quantized *)self)->target->quotient;
    return OCT_OK;
}

static const oct_quantized_op quantize = {.kind = OCT_STEP_QUANTIZE,
                                          .inputs = 1,
                                          .constants = set_constants,
                                          .backward = quantize_backward,
                                          .values = read_real_values};

/* Quantizes a float input; without a fake-quant that quantizes, passes it on and observes it. */
static oct_tensor *quant_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_fake_quant *fq = oct_quantized_fq((oct_quantized *)self);
    const oct_domain domain = oct_inputs_domain(cx, x, n, 1);
    if (domain == OCT_DOMAIN_INVALID) return NULL;
    if (domain == OCT_DOMAIN_CODES)
        return oct_context_fail(cx, OCT_PREPARE,
                                "a QuantStub got codes; put a DeQuantStub before it");
    if (!fq || !oct_fake_quant_quantizes(fq))
        return oct_fake_quant_float(cx, fq, self->training,
                                    oct_view_as(cx, "quant_stub", x[0], x[0]->shape));
    return oct_quantized_compute(cx, self, x);
}

static oct_status quant_emit(oct_module *self, oct_emitter *e)
{
    return oct_quantized_fq((oct_quantized *)self) ? oct_quantized_emit(self, e)
                                                   : oct_emit_reshape(e);
}

const oct_module_type oct_quant_stub_type = {
    .name = "quant_stub",
    .forward = quant_forward,
    .atomic = true,
    .emit = quant_emit,
    .quantized = true,
    .step = &quantize,
};

oct_status oct_quant_stub_create(oct_module **m)
{
    return oct_module_alloc(m, &oct_quant_stub_type, sizeof(oct_quantized));
}

static oct_tensor *dequant_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)self;
    if (n > 0 && oct_inputs_ok(cx, x, n) && !oct_is_codes(x[0]))
        return oct_view_as(cx, "dequant_stub", x[0], x[0]->shape);
    if (oct_inputs_domain(cx, x, n, 1) == OCT_DOMAIN_INVALID) return NULL;
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x[0]->shape);
    if (!y) return NULL;
    oct_dequantize_tensor(x[0], oct_f32(y));
    oct_record(cx, "dequantize", pass_grad, x, 1, false, y);
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
    .atomic = true,
    .emit = dequant_emit,
};

oct_status oct_dequant_stub_create(oct_module **m)
{
    return oct_module_alloc(m, &oct_dequant_stub_type, sizeof(oct_module));
}
