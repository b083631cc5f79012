/* The softmax cross-entropy (core/op/loss/cross_entropy.c) as ops: of arrays, and of a target that is a
 * tensor of the forward. */
#include "core/op/loss_impl.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <math.h>

static oct_loss_spec spec_of(double smoothing)
{
    return (oct_loss_spec){.kind = &oct_loss_cross_entropy, .options = {.smoothing = smoothing}};
}

oct_tensor *oct_cross_entropy(oct_context *cx, oct_tensor *logits, const int32_t *labels,
                              float smoothing, oct_loss *result)
{
    const oct_loss_spec spec = spec_of((double)smoothing);
    return oct_loss_apply(cx, &spec, logits, &(oct_goals){.labels = labels}, result);
}

/* A float that is no integer becomes -1, which is no class. */
static int32_t label_of(const oct_tensor *target, int64_t i)
{
    if (target->dtype == OCT_S32) return ((const int32_t *)target->data)[i];
    float value = oct_f32(target)[i];
    return value >= 0 && value < 0x1p30F && value == rintf(value) ? (int32_t)value : -1;
}

static const int32_t *labels_of(oct_context *cx, const oct_tensor *target)
{
    int64_t n = oct_dim(target, 0);
    int32_t *labels = oct_save(cx, (size_t)n * sizeof *labels);
    for (int64_t i = 0; labels && i < n; i++)
        labels[i] = label_of(target, i);
    return labels;
}

/* Reads the target as its shape says. */
static bool read_target(oct_context *cx, const oct_tensor *logits, const oct_tensor *target,
                        oct_loss_call *call)
{
    char one[96], two[96];
    const oct_shape *shape = &target->shape;
    bool rows = oct_shape_equal(shape, &logits->shape) && target->dtype == OCT_F32;
    bool numbers = shape->ndim == 1 && shape->dim[0] == oct_dim(logits, 0) &&
                   (target->dtype == OCT_F32 || target->dtype == OCT_S32);
    if (rows) call->goals.values = oct_f32(target);
    if (numbers) call->goals.labels = labels_of(cx, target);
    if (numbers && target->dtype == OCT_F32) call->given = oct_f32(target);
    if (!rows && !numbers)
        oct_context_fail(cx, OCT_USAGE,
                         "cross_entropy_loss takes logits (N, K) and a target, (N, K) f32 "
                         "probabilities or (N) class numbers, but has %s and %s %s",
                         oct_shape_text(&logits->shape, one), oct_shape_text(shape, two),
                         oct_dtype_name(target->dtype));
    return cx->status == OCT_OK;
}

oct_tensor *oct_cross_entropy_loss(oct_context *cx, oct_tensor *logits, oct_tensor *target,
                                   double smoothing)
{
    static const char op[] = "cross_entropy_loss";
    oct_tensor *x[] = {logits, target}, *y;
    if (oct_call_site(cx, op, OCT_ARGS(cross_entropy_loss, smoothing), x, 2, &y)) return y;
    if (!oct_inputs_ok(cx, x, 2) || !oct_loss_takes(cx, op, logits)) return NULL;
    if (!(smoothing >= 0 && smoothing <= 1))
        return oct_context_fail(cx, OCT_USAGE, "%s takes a smoothing of 0 to 1, but has %g", op,
                                smoothing);
    const oct_loss_spec spec = spec_of(smoothing);
    oct_loss_call call = {.op = op, .spec = &spec, .n = oct_dim(logits, 1)};
    oct_loss result;
    if (!read_target(cx, logits, target, &call)) return NULL;
    return oct_loss_record(cx, &call, x, 2, &result);
}
