/* The table of losses, and what all of them share.
 *
 * A label out of range on one rank is summed along with the loss, so that all ranks fail here
 * together instead of some waiting in the next collective.
 */
#include "core/op/loss.h"

#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const void *const listed[] = {
#define OCT_LOSS(name) &oct_loss_##name,
#include "core/op/loss_list.def"
};
oct_registry oct_loss_table = OCT_REGISTRY("a loss", listed);

const oct_loss_kind *oct_loss_find(const char *name)
{
    return oct_registry_find(&oct_loss_table, name);
}

/* A call of a loss as an op. */
typedef struct loss_call {
    const char *op; /* name of the op, for messages and traces */
    const oct_loss_spec *spec;
    oct_goals goals;    /* must last as long as the step */
    int64_t n;          /* outputs of a row */
    const float *given; /* the labels as they came, if as floats; for messages */
} loss_call;

/* What is summed over the batch; the metric's numbers follow. */
enum { LOSS, WEIGHT, BAD, SUMS };

/* What the backward needs. */
typedef struct loss_saved {
    const oct_loss_kind *kind;
    oct_loss_options options;
    oct_goals goals;
    int64_t n; /* outputs of a row */
    double divisor;
} loss_saved;

static bool has_bad_label(const oct_goals *goals, int64_t classes, int64_t i)
{
    if (!goals->labels || oct_goals_ignore(goals, i)) return false;
    return goals->labels[i] < 0 || goals->labels[i] >= classes;
}

static double row_weight(const oct_loss_kind *kind, const oct_output_row *row,
                         const oct_loss_options *o)
{
    return kind->weight ? kind->weight(row, o) : 1.0;
}

/* Adds the loss of row i, its weight and its metric to the sums; or counts a label that is no class (BAD). */
static void add_row(const loss_call *call, const oct_tensor *y, int64_t i, double *sums)
{
    const oct_loss_spec *spec = call->spec;
    const oct_output_rows rows = {oct_f32(y), call->n, call->goals};
    if (oct_goals_ignore(&call->goals, i)) return;
    if (has_bad_label(&call->goals, call->n, i)) {
        sums[BAD]++;
        return;
    }
    const oct_output_row row = oct_output_row_at(&rows, i);
    const double weight = row_weight(spec->kind, &row, &spec->options);
    sums[LOSS] += weight * spec->kind->value(&row, &spec->options);
    sums[WEIGHT] += weight;
    if (spec->metric) spec->metric->add(&row, sums + SUMS);
}

/* Returns the sums over the global batch, in scratch memory that the caller ends; NULL with the context failed. */
static double *sum_batch(oct_context *cx, const loss_call *call, const oct_tensor *y)
{
    const oct_metric *metric = call->spec->metric;
    const int64_t count = SUMS + (metric ? metric->numbers(call->n) : 0);
    const int64_t rows_per_sample = oct_goals_rows(&call->goals);
    const size_t bytes = (size_t)(cx->leaves.local * count) * sizeof(double);
    double *rows = oct_scratch(cx, bytes), *total = NULL;
    if (rows) total = oct_scratch(cx, (size_t)count * sizeof(double));
    if (total) {
        if (bytes > 0) memset(rows, 0, bytes);
#pragma omp parallel for schedule(static)
        for (int64_t leaf = 0; leaf < cx->leaves.local; leaf++) {
            const int64_t first = oct_leaf_begin(&cx->leaves, leaf) * rows_per_sample;
            for (int64_t i = first; i < first + oct_leaf_size(&cx->leaves, leaf) * rows_per_sample;
                 i++)
                add_row(call, y, i, rows + leaf * count);
        }
        if (!oct_sum_over_ranks(cx, rows, count, total)) {
            oct_scratch_end(cx, total);
            total = NULL;
        }
    }
    oct_scratch_end(cx, rows);
    return total;
}

/* Names this rank's first bad label, or points at the rank that has one. */
static void fail_label(oct_context *cx, const loss_call *call, const oct_tensor *y)
{
    const long long classes = call->n;
    const int64_t rows_per_sample = oct_goals_rows(&call->goals);
    char at[48] = "";
    for (int64_t i = 0; i < oct_dim(y, 0) * rows_per_sample; i++) {
        if (!has_bad_label(&call->goals, classes, i)) continue;
        if (rows_per_sample > 1)
            snprintf(at, sizeof at, " at row %lld", (long long)(i % rows_per_sample));
        oct_context_fail(cx, OCT_DATA,
                         "sample %lld of the batch has label %.9g%s, but the model has %lld "
                         "classes; labels must be 0 to %lld",
                         (long long)(oct_leaves_first_sample(&cx->leaves) + i / rows_per_sample),
                         call->given ? (double)call->given[i] : (double)call->goals.labels[i], at,
                         classes, classes - 1);
        return;
    }
    oct_context_fail(cx, OCT_PEER, "another rank has a label out of range");
}

/* Computes the loss of the global batch, the divisor of its gradient, and the metric; false with the context failed. */
static bool compute_loss(oct_context *cx, const loss_call *call, const oct_tensor *y,
                         oct_loss *result)
{
    const oct_metric *metric = call->spec->metric;
    double *total = sum_batch(cx, call, y);
    if (!total) return false;
    if (total[BAD] > 0) fail_label(cx, call, y);
    *result = (oct_loss){.loss_sum = total[LOSS],
                         .weight = total[WEIGHT] > 0 ? total[WEIGHT] : 1.0,
                         .counted = total[WEIGHT],
                         .metric = metric ? metric->value(total + SUMS, call->n) : (double)NAN};
    oct_scratch_end(cx, total);
    const int64_t divisor_rows = call->spec->divisor_samples * oct_goals_rows(&call->goals);
    result->divisor = divisor_rows > 0 ? (double)divisor_rows : result->weight;
    return cx->status == OCT_OK;
}

typedef void row_grad(const oct_output_row *row, const oct_loss_options *options,
                      oct_loss_scale scale, float *grad);

/* Gives x, the outputs or the wanted values, the gradient `grad_of_row` makes of each row; 0 for ignored rows. */
static void add_grad(oct_context *cx, const oct_node *node, oct_tensor *x, row_grad *grad_of_row)
{
    const loss_saved *v = node->saved;
    const oct_tensor *y = node->input[0];
    const oct_output_rows rows = {oct_f32(y), v->n, v->goals};
    const int64_t count = oct_dim(y, 0) * oct_goals_rows(&v->goals);
    const double seed = node->output->grad ? (double)node->output->grad[0] : 1.0;
    float *grad = oct_grad_new(cx, x);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        const oct_output_row row = oct_output_row_at(&rows, i);
        if (oct_goals_ignore(&v->goals, i)) {
            memset(grad + i * row.n, 0, (size_t)row.n * sizeof *grad);
            continue;
        }
        const double weight = row_weight(v->kind, &row, &v->options);
        grad_of_row(&row, &v->options, (oct_loss_scale){seed * weight, v->divisor},
                    grad + i * row.n);
    }
    oct_add_grad(cx, x, grad);
}

static void loss_backward(oct_context *cx, oct_node *node)
{
    const loss_saved *v = node->saved;
    oct_tensor *y = node->input[0], *goal = node->num_inputs > 1 ? node->input[1] : NULL;
    if (y->needs_grad) add_grad(cx, node, y, v->kind->grad);
    if (goal && goal->needs_grad && v->goals.values && v->kind->goal_grad)
        add_grad(cx, node, goal, v->kind->goal_grad);
}

/* Returns the mean loss as a scalar tensor on the tape. x[0]: outputs; x[1], if there: the wanted values. */
static oct_tensor *record_loss(oct_context *cx, const loss_call *call, oct_tensor *const *x, int n,
                               oct_loss *result)
{
    if (!compute_loss(cx, call, x[0], result)) return NULL;
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, (oct_shape){.ndim = 0});
    if (!y) return NULL;
    oct_f32(y)[0] = (float)(result->loss_sum / result->weight);
    oct_node *node = oct_record(cx, call->op, loss_backward, x, n, false, y);
    const loss_saved saved = {.kind = call->spec->kind,
                              .options = call->spec->options,
                              .goals = call->goals,
                              .n = call->n,
                              .divisor = result->divisor};
    return oct_node_save(cx, node, &saved, sizeof saved) ? y : NULL;
}

/* Returns the outputs of a row of y; a sample has as many rows as the goals say. 0 with the context failed. */
static int64_t outputs_per_row(oct_context *cx, const char *op, const oct_tensor *y,
                               const oct_goals *goals)
{
    const oct_shape *shape = &y->shape;
    const int64_t rows_per_sample = oct_goals_rows(goals), positions = oct_sample_positions(y);
    if (!oct_needs_f32(cx, op, y) || !oct_needs_batch(cx, op, y)) return 0;
    const int64_t last = shape->ndim > 1 ? shape->dim[shape->ndim - 1] : 0;
    if (positions == rows_per_sample && last > 0) return last;
    if (rows_per_sample == 1 && !goals->labels && last > 0) return positions * last;
    if (rows_per_sample > 1)
        oct_context_fail(cx, OCT_USAGE,
                         "%s takes a row of outputs for each of %lld places of a sample, (N, h, w, "
                         "K), but its input is %s",
                         op, (long long)rows_per_sample, oct_text_shape(shape).text);
    else
        oct_context_fail(cx, OCT_USAGE, "%s takes logits (N, K), but its input is %s", op,
                         oct_text_shape(shape).text);
    return 0;
}

oct_tensor *oct_loss_apply(oct_context *cx, const oct_loss_spec *spec, oct_tensor *y,
                           const oct_goals *goals, oct_loss *result)
{
    loss_call call = {.op = spec->kind->name, .spec = spec, .goals = *goals};
    if (!oct_inputs_ok(cx, &y, 1)) return NULL;
    call.n = outputs_per_row(cx, call.op, y, goals);
    if (call.n == 0) return NULL;
    if (goals->labels) { /* a copy, since the caller's may change before the backward */
        const size_t bytes = (size_t)(oct_dim(y, 0) * oct_goals_rows(goals)) * sizeof(int32_t);
        int32_t *copy = oct_save(cx, bytes);
        if (!copy) return NULL;
        if (bytes > 0) memcpy(copy, goals->labels, bytes);
        call.goals.labels = copy;
    }
    return record_loss(cx, &call, &y, 1, result);
}

/* Copies the class numbers of a target, s32 or f32; a float that is no integer becomes -1, which is no class. */
static const int32_t *read_labels(oct_context *cx, const oct_tensor *target)
{
    const int64_t n = oct_dim(target, 0);
    int32_t *labels = oct_save(cx, (size_t)n * sizeof *labels);
    for (int64_t i = 0; labels && i < n; i++) {
        if (target->dtype == OCT_S32) {
            labels[i] = ((const int32_t *)target->data)[i];
            continue;
        }
        const float value = oct_f32(target)[i];
        const bool whole = value >= 0 && value < 0x1p30F && value == rintf(value);
        labels[i] = whole ? (int32_t)value : -1;
    }
    return labels;
}

/* Reads the target as class numbers or as probabilities, as its shape says. */
static bool read_target(oct_context *cx, const oct_tensor *logits, const oct_tensor *target,
                        loss_call *call)
{
    const oct_shape *shape = &target->shape;
    bool as_probabilities = oct_shape_equal(shape, &logits->shape) && target->dtype == OCT_F32;
    bool as_classes = shape->ndim == 1 && shape->dim[0] == oct_dim(logits, 0) &&
                      (target->dtype == OCT_F32 || target->dtype == OCT_S32);
    if (as_probabilities) call->goals.values = oct_f32(target);
    if (as_classes) call->goals.labels = read_labels(cx, target);
    if (as_classes && target->dtype == OCT_F32) call->given = oct_f32(target);
    if (!as_probabilities && !as_classes)
        oct_context_fail(cx, OCT_USAGE,
                         "cross_entropy_loss takes logits (N, K) and a target, (N, K) f32 "
                         "probabilities or (N) class numbers, but has %s and %s %s",
                         oct_text_shape(&logits->shape).text, oct_text_shape(shape).text,
                         oct_dtype_name(target->dtype));
    return cx->status == OCT_OK;
}

oct_tensor *oct_cross_entropy_loss(oct_context *cx, oct_tensor *logits, oct_tensor *target,
                                   double smoothing)
{
    static const char op[] = "cross_entropy_loss";
    oct_tensor *x[] = {logits, target}, *y;
    if (oct_op_intercepted(cx, op, OCT_ARGS(cross_entropy_loss, smoothing), x, 2, &y)) return y;
    if (!oct_inputs_ok(cx, x, 2)) return NULL;
    if (!oct_needs_f32(cx, op, logits) || !oct_needs_batch(cx, op, logits)) return NULL;
    if (logits->shape.ndim != 2 || oct_dim(logits, 1) < 1)
        return oct_context_fail(cx, OCT_USAGE, "%s takes logits (N, K), but its input is %s", op,
                                oct_text_shape(&logits->shape).text);
    if (!(smoothing >= 0 && smoothing <= 1))
        return oct_context_fail(cx, OCT_USAGE, "%s takes a smoothing of 0 to 1, but has %g", op,
                                smoothing);
    const oct_loss_spec spec = {.kind = &oct_loss_cross_entropy,
                                .options = {.smoothing = smoothing}};
    loss_call call = {.op = op, .spec = &spec, .n = oct_dim(logits, 1)};
    oct_loss result;
    if (!read_target(cx, logits, target, &call)) return NULL;
    return record_loss(cx, &call, x, 2, &result);
}
