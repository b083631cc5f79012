/* Products of two tensors of codes. */
#include "core/base/int_math.h"
#include "core/op/ops.h"
#include "core/tensor/broadcast.h"
#include "quant/rounding/bits.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"

static oct_tensor *compute_in_float(oct_context *cx, oct_module *self, oct_tensor *const *x)
{
    (void)self;
    return oct_mul(cx, x[0], x[1]);
}

static oct_status set_constants(oct_module *self, const oct_program *program, oct_step *step)
{
    const oct_qparams a = oct_step_input(program, step, 0)->q;
    const oct_qparams b = oct_step_input(program, step, 1)->q;
    const oct_qparams y = oct_step_output(program, step)->q;
    const oct_target *target = ((oct_quantized *)self)->target;
    step->mul.offset_first = target->offset_first;
    step->mul.factor = target->offset_first || target->float_ratios ? oct_qmul_factor_float(a, b, y)
                                                                    : oct_qmul_factor(a, b, y);
    OCT_CHECK(!target->offset_first || !oct_qmul_overflows(a, b, step->mul.factor), OCT_PREPARE,
              OCT_QMUL_OVERFLOW);
    return OCT_OK;
}

/* Computes the product of n elements from `first` on, before it is rounded. */
static void read_real_values(const oct_module *self, oct_tensor *const *x, int64_t first, int64_t n,
                             float *v)
{
    (void)self;
    const double scale = (double)x[0]->q.scale * (double)x[1]->q.scale;
    int32_t code[2][OCT_FLAG_BLOCK];
    oct_quantized_load_both(x, first, n, code);
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)((double)((int64_t)code[0][i] * code[1][i]) * scale);
}

/* grad *= the values of x */
static void multiply_by_values(const oct_tensor *x, float *grad)
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

/* Where one input repeats, its gradients are summed. */
static void add_broadcast_grads(oct_context *cx, const oct_node *node, float *grad)
{
    float *a = oct_quantized_values_of(cx, node->input[0]),
          *b = oct_quantized_values_of(cx, node->input[1]);
    const float *const both[2] = {a, b};
    if (a && b)
        oct_binary_add_grads(cx, &oct_binary_mul, node, both, grad);
    else
        oct_scratch_end(cx, grad);
    oct_scratch_end(cx, a);
    oct_scratch_end(cx, b);
}

/* The gradient of each factor is that of the product times the other one. */
static void backward(oct_context *cx, oct_node *node)
{
    if (!oct_shape_equal(&node->input[0]->shape, &node->input[1]->shape)) {
        add_broadcast_grads(cx, node, oct_quantized_detach_grad(cx, node));
        return;
    }
    const size_t bytes = (size_t)oct_numel(node->output) * sizeof(float);
    float *grad = oct_quantized_detach_grad(cx, node), *copy = oct_scratch(cx, bytes);
    if (copy) {
        memcpy(copy, grad, bytes);
        multiply_by_values(node->input[0], copy);
    }
    multiply_by_values(node->input[1], grad);
    oct_add_grad(cx, node->input[0], grad);
    oct_add_grad(cx, node->input[1], copy);
}

static const oct_quantized_op step = {.kind = OCT_STEP_MUL,
                                      .inputs = 2,
                                      .broadcasts = true,
                                      .in_float = compute_in_float,
                                      .constants = set_constants,
                                      .backward = backward,
                                      .values = read_real_values};

static const oct_module_type type = {
    .name = "qat_mul",
    .quantized = true,
    OCT_QUANTIZED_OP(&step, oct_quantized),
};

const oct_quant_rule oct_quant_rule_mul = {
    .type = &oct_mul_type, .scale = OCT_SCALE_OWN, .made = &type};
