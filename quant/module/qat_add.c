/* Sums and differences of two tensors of codes (+ relu or clip), in the two-multiplier integer form of
 * quant/kernel/qcodes.h. */
#include "core/op/ops.h"
#include "core/tensor/broadcast.h"
#include "quant/rounding/bits.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"

#include <stdio.h>

static bool has_relu(const oct_module *self)
{
    return ((const oct_quantized *)self)->activation == OCT_ACT_RELU;
}

/* Where it cuts; NULL: it has no clip. */
static const oct_clip_args *clip_bounds(const oct_module *self)
{
    const oct_quantized *m = (const oct_quantized *)self;
    return m->activation == OCT_ACT_CLIP ? &m->clip : NULL;
}

static bool subtracts(const oct_module *self)
{
    return ((const oct_qat_binary *)self)->subtract;
}

static oct_tensor *compute_in_float(oct_context *cx, oct_module *self, oct_tensor *const *x)
{
    oct_tensor *y = subtracts(self) ? oct_sub(cx, x[0], x[1]) : oct_add(cx, x[0], x[1]);
    const oct_clip_args *clip = clip_bounds(self);
    if (clip) return oct_clip(cx, y, clip->lo, clip->hi);
    return has_relu(self) ? oct_relu(cx, y) : y;
}

/* Checks that inputs and output have one scale, where the target wants that; but not in training, where with current
 * scales the first operand is quantized before the second one has moved the scale that they share. */
static oct_status check_scales(const oct_module *self, const oct_program *program,
                               const oct_step *step)
{
    const float a = oct_step_input(program, step, 0)->q.scale;
    const float b = oct_step_input(program, step, 1)->q.scale;
    const float y = oct_step_output(program, step)->q.scale;
    const oct_target *target = ((const oct_quantized *)self)->target;
    const char *op = subtracts(self) ? oct_sub_type.name : oct_add_type.name;
    if (self->training || !oct_list_has(target->one_scale, op)) return OCT_OK;
    OCT_CHECK(
        a == y && b == y, OCT_PREPARE,
        "target %s adds values of one scale, but the inputs have %.9g and %.9g and the output "
        "%.9g; prepare with jit, which gives them one",
        target->name, (double)a, (double)b, (double)y);
    return OCT_OK;
}

static oct_status set_constants(oct_module *self, const oct_program *program, oct_step *step)
{
    const oct_qparams a = oct_step_input(program, step, 0)->q;
    const oct_qparams b = oct_step_input(program, step, 1)->q;
    const oct_qparams y = oct_step_output(program, step)->q;
    OCT_TRY(check_scales(self, program, step));
    step->add = ((oct_quantized *)self)->target->float_ratios
                    ? oct_qadd_of_floats(a, b, y, has_relu(self))
                    : oct_qadd_of(a, b, y, has_relu(self));
    if (subtracts(self)) step->add.mb = -step->add.mb;
    const oct_clip_args *clip = clip_bounds(self);
    if (clip) oct_qadd_clip(&step->add, y, clip->lo, clip->hi);
    return OCT_OK;
}

/* Computes the sum or difference, with relu or clip, of n elements from `first` on, before it is rounded. */
static void read_real_values(const oct_module *self, oct_tensor *const *x, int64_t first, int64_t n,
                             float *v)
{
    int32_t code[2][OCT_FLAG_BLOCK];
    const float second = subtracts(self) ? -x[1]->q.scale : x[1]->q.scale;
    const oct_clip_args *clip = clip_bounds(self);
    oct_quantized_load_both(x, first, n, code);
    for (int64_t i = 0; i < n; i++) {
        v[i] = (float)code[0][i] * x[0]->q.scale + (float)code[1][i] * second;
        if (has_relu(self) && !(v[i] > 0.0f)) v[i] = 0.0f;
        if (clip) v[i] = fminf(fmaxf(v[i], (float)clip->lo), (float)clip->hi);
    }
}

static void backward(oct_context *cx, oct_node *node)
{
    const float *const none[2] = {NULL, NULL};
    oct_binary_add_grads(cx, subtracts(node->module) ? &oct_binary_sub : &oct_binary_add, node,
                         none, oct_quantized_detach_grad(cx, node));
}

static const oct_quantized_op step = {.kind = OCT_STEP_ADD,
                                      .inputs = 2,
                                      .broadcasts = true,
                                      .in_float = compute_in_float,
                                      .constants = set_constants,
                                      .backward = backward,
                                      .values = read_real_values};

static void describe(const oct_module *self, char *text, size_t size)
{
    const char *then = clip_bounds(self) ? " + clip" : has_relu(self) ? " + relu" : "";
    snprintf(text, size, "%s%s", subtracts(self) ? "sub" : "add", then);
}

const oct_module_type oct_qat_add_type = {
    .name = "qat_add",
    .describe = describe,
    .quantized = true,
    OCT_QUANTIZED_OP(&step, oct_qat_binary),
};

oct_status oct_qat_add_create(oct_module **m, oct_activation activation)
{
    OCT_TRY(oct_module_alloc(m, &oct_qat_add_type, oct_qat_add_type.size));
    ((oct_quantized *)*m)->activation = activation;
    return OCT_OK;
}

static oct_status make_difference(oct_module *made, oct_module **old)
{
    (void)old;
    ((oct_qat_binary *)made)->subtract = true;
    return OCT_OK;
}

const oct_quant_rule oct_quant_rule_sub = {.type = &oct_sub_type,
                                           .scale = OCT_SCALE_OWN,
                                           .made = &oct_qat_add_type,
                                           .complete = make_difference};
const oct_quant_rule oct_quant_rule_add = {
    .type = &oct_add_type, .scale = OCT_SCALE_OWN, .made = &oct_qat_add_type};
