/* ReLU and ReLU6 that were not fused, and clip: codes cut at zero, and at the code of 6, or at those of any two
 * bounds. The qparams stay. */
#include "core/base/int_math.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"

#include <math.h>
#include <stdio.h>

typedef struct qat_relu {
    oct_quantized q;
    const oct_module_type *function; /* relu, relu6 or clip: */
    oct_clip_args clip;              /* either bound may be infinite */
} qat_relu;

/* The logical codes that an output may have, and those (exclusive) between which values lie within (0, 6), or from
 * one bound of clip to the other, where the derivative is 1. */
typedef struct code_bounds {
    int32_t lo, hi, below, above;
} code_bounds;

/* A number as one of the whole numbers from lo to hi, which it is cut to. */
static int32_t whole_within(double x, int32_t lo, int32_t hi)
{
    return (int32_t)fmin(fmax(x, lo), hi);
}

/* All in logical codes, code - zero_point. Codes become lo to hi; the gradient passes where below < code < above, which for
 * a clip are its bounds too, but neither 0 nor 6 (as in PyTorch). */
static code_bounds code_bounds_of(const qat_relu *m, oct_qparams q)
{
    const int32_t lo = q.qmin - q.zero_point, hi = q.qmax - q.zero_point;
    if (m->function == &oct_clip_type) {
        const double least = m->clip.lo / (double)q.scale, most = m->clip.hi / (double)q.scale;
        return (code_bounds){.lo = whole_within(nearbyint(least), lo, hi),
                             .hi = whole_within(nearbyint(most), lo, hi),
                             .below = whole_within(ceil(least) - 1, lo - 1, hi),
                             .above = whole_within(floor(most) + 1, lo, hi + 1)};
    }
    code_bounds c = {.lo = lo > 0 ? lo : 0, .hi = hi, .below = 0, .above = INT32_MAX};
    if (m->function == &oct_relu_type) return c;
    const double six = 6.0 / (double)q.scale;
    if (nearbyint(six) < hi) c.hi = (int32_t)nearbyint(six);
    if (six < INT32_MAX) c.above = (int32_t)ceil(six);
    return c;
}

/* Clears the gradient of n elements from `first` on whose codes are not between the bounds below and above. */
static void mask_grad(const oct_qcodes x, int64_t first, int64_t n, const code_bounds *c,
                      float *grad)
{
    int32_t logical[256];
    for (int64_t begin = 0; begin < n; begin += (int64_t)OCT_COUNT(logical)) {
        const int64_t count = oct_min_i64(n - begin, (int64_t)OCT_COUNT(logical));
        oct_qcodes_load(x, first + begin, count, logical);
        for (int64_t i = 0; i < count; i++)
            grad[first + begin + i] *= logical[i] > c->below && logical[i] < c->above ? 1.0f : 0.0f;
    }
}

static void backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const code_bounds c = code_bounds_of((const qat_relu *)node->module, x->q);
    const int64_t n = oct_numel(x);
    float *grad = oct_detach_grad(node->output);
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < n; first += OCT_PART)
        mask_grad(oct_qcodes_of(x), first, oct_min_i64(n - first, OCT_PART), &c, grad);
    oct_add_grad(cx, x, grad);
}

static oct_tensor *compute_in_float(oct_context *cx, oct_module *self, oct_tensor *const *x)
{
    const qat_relu *m = (const qat_relu *)self;
    if (m->function == &oct_clip_type) return oct_clip(cx, x[0], m->clip.lo, m->clip.hi);
    return m->function == &oct_relu6_type ? oct_relu6(cx, x[0]) : oct_relu(cx, x[0]);
}

static oct_status set_constants(oct_module *self, const oct_program *program, oct_step *step)
{
    const code_bounds c =
        code_bounds_of((const qat_relu *)self, oct_step_input(program, step, 0)->q);
    step->relu.lo = c.lo;
    step->relu.hi = c.hi;
    return OCT_OK;
}

static const oct_quantized_op step = {.kind = OCT_STEP_RELU,
                                      .inputs = 1,
                                      .keeps_qparams = true,
                                      .in_float = compute_in_float,
                                      .constants = set_constants,
                                      .backward = backward};

static void describe(const oct_module *self, char *text, size_t size)
{
    const qat_relu *m = (const qat_relu *)self;
    if (m->function == &oct_clip_type)
        oct_snprintf(text, size, "clip %g to %g, input's qparams", m->clip.lo, m->clip.hi);
    else
        snprintf(text, size, "%s, input's qparams", m->function->name);
}

static const oct_module_type type = {
    .name = "qat_relu",
    .describe = describe,
    OCT_QUANTIZED_OP(&step, qat_relu),
    .args_at = offsetof(qat_relu, clip),
};

static oct_status set_function(oct_module *made, oct_module **old)
{
    ((qat_relu *)made)->function = (*old)->type;
    return OCT_OK;
}

#define OCT_CLAMP_RULE(id)                                                                         \
    const oct_quant_rule oct_quant_rule_##id = {.type = &oct_##id##_type,                          \
                                                .scale = OCT_SCALE_INPUT,                          \
                                                .made = &type,                                     \
                                                .complete = set_function};
OCT_CLAMP_RULE(clip)
OCT_CLAMP_RULE(relu)
OCT_CLAMP_RULE(relu6)
