/* Products of two tensors of codes. */
#include "core/base/whole.h"
#include "quant/kernel/bits.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"
#include "quant/module/emit.h"

typedef struct product {
    oct_qcodes a, b;
    bool shift;
    float factor;
} product;

static product product_of(const oct_quantized *m, oct_tensor *const *x)
{
    return (product){
        .a = oct_qcodes_of(x[0]), .b = oct_qcodes_of(x[1]), .shift = oct_quantized_shifts(m)};
}

static void begin(void *args, oct_qparams y)
{
    product *p = args;
    p->factor = oct_qmul_factor(p->a.q, p->b.q, y);
}

static void make(const void *args, oct_qparams y, int64_t first, int64_t n, void *codes,
                 uint8_t *mask, float *range)
{
    const product *p = args;
    oct_qmul_forward(n, oct_qcodes_from(p->a, first), oct_qcodes_from(p->b, first), p->factor,
                     p->shift, y, codes, mask, range);
}

static void values(const void *args, int64_t first, int64_t n, float *v)
{
    const product *p = args;
    const double scale = (double)p->a.q.scale * (double)p->b.q.scale;
    int32_t a[OCT_FLAG_BLOCK], b[OCT_FLAG_BLOCK];
    oct_qcodes_load(p->a, first, n, a);
    oct_qcodes_load(p->b, first, n, b);
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)((double)((int64_t)a[i] * b[i]) * scale);
}

/* grad *= the values of x */
static void multiply(const oct_tensor *x, float *grad)
{
    const int64_t n = oct_numel(x);
    const oct_qcodes codes = oct_qcodes_of(x);
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < n; first += OCT_FLAG_BLOCK) {
        int32_t logical[OCT_FLAG_BLOCK];
        const int64_t count = oct_min_i64(n - first, OCT_FLAG_BLOCK);
        oct_qcodes_load(codes, first, count, logical);
        for (int64_t i = 0; i < count; i++)
            grad[first + i] *= (float)logical[i] * x->q.scale;
    }
}

static void backward(oct_context *cx, oct_node *node)
{
    const size_t bytes = (size_t)oct_numel(node->output) * sizeof(float);
    const product p = product_of((const oct_quantized *)node->module, node->input);
    float *grad = oct_quantized_take_grad(cx, node, values, &p), *copy = oct_scratch(cx, bytes);
    if (copy) {
        memcpy(copy, grad, bytes);
        multiply(node->input[0], copy);
    }
    multiply(node->input[1], grad);
    oct_give_grad(cx, node->input[0], grad);
    oct_give_grad(cx, node->input[1], copy);
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_quantized *m = (oct_quantized *)self;
    const oct_domain wiring = oct_quantized_domain(cx, m, x, n, 2);
    if (wiring == OCT_DOMAIN_INVALID) return NULL;
    if (wiring == OCT_DOMAIN_FLOAT)
        return oct_fake_quant_float(cx, oct_quantized_fq(m), self->training,
                                    oct_mul(cx, x[0], x[1]));
    if (!oct_same_shapes(cx, x[0], x[1])) return NULL;
    product p = product_of(m, x);
    const oct_quantized_op k = {.op = "qat_mul",
                                .backward = backward,
                                .shape = x[0]->shape,
                                .row = 1,
                                .begin = begin,
                                .make = make,
                                .values = values,
                                .args = &p,
                                .real_scale = 1.0f};
    return oct_quantized_forward(cx, m, x, 2, &k);
}

static oct_status emit(oct_module *self, oct_emitter *e)
{
    const oct_qparams q = oct_fake_quant_qparams(oct_quantized_fq((const oct_quantized *)self));
    oct_step *step;
    OCT_TRY(oct_emit_step(e, OCT_STEP_MUL, &step));
    step->factor = oct_qmul_factor(oct_emit_input(e, 0)->q, oct_emit_input(e, 1)->q, q);
    return oct_emit_output(e, step, oct_codes_dtype(q), q);
}

const oct_module_type oct_qat_mul_type = {
    .name = "qat_mul",
    .forward = forward,
    .leaf = true,
    .emit = emit,
};

oct_status oct_qat_mul_create(oct_module **m)
{
    return oct_module_create(m, &oct_qat_mul_type, sizeof(oct_qat_binary));
}

static oct_status create(oct_module **made, oct_module **old)
{
    oct_module_destroy(old);
    return oct_qat_mul_create(made);
}

const oct_quant_rule oct_quant_rule_mul = {
    .type = &oct_mul_type, .scale = OCT_SCALE_OWN, .create = create};
