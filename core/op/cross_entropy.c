/* Softmax cross-entropy with label smoothing, as torch.nn.functional.cross_entropy: the goal of a sample
 * is (1 - smoothing) times its probabilities, which are 1 for its label and 0 for the rest or are given
 * for each class, plus smoothing/K on every class.
 *
 * A label out of range on one rank is summed along with the loss, so that all ranks fail here
 * together instead of some waiting in the next collective.
 */
#include "core/op/op_impl.h"
#include "core/op/ops.h"
#include "core/tensor/argmax.h"

#include <math.h>
#include <string.h>

enum { LOSS, CORRECT, BAD, SUMS };

/* What this rank's samples should be: labels, or a row of probabilities each. */
typedef struct goal {
    const int32_t *labels;
    const float *given; /* the labels as they came, if as floats */
    const float *probabilities;
    double smoothing;
    int64_t classes;
} goal;

typedef struct loss_saved {
    goal goal;
    int64_t samples; /* of the global batch */
} loss_saved;

static bool is_bad(const goal *g, int64_t sample)
{
    return g->labels && (g->labels[sample] < 0 || g->labels[sample] >= g->classes);
}

static int64_t best_of(const goal *g, int64_t sample)
{
    if (g->labels) return g->labels[sample];
    int32_t best;
    oct_argmax_rows(OCT_F32, 1, g->classes, g->probabilities + sample * g->classes, &best);
    return best;
}

static double log_sum_exp(const float *z, int64_t classes)
{
    float top = z[0];
    for (int64_t k = 1; k < classes; k++)
        top = z[k] <= top ? top : z[k];
    double sum = 0;
    for (int64_t k = 0; k < classes; k++)
        sum += exp((double)z[k] - (double)top);
    return (double)top + log(sum);
}

/* The loss by the probabilities alone is the sum over classes of p * -log softmax. */
static double plain_loss(const goal *g, int64_t sample, const float *z, double norm)
{
    if (g->labels) return norm - (double)z[g->labels[sample]];
    const float *p = g->probabilities + sample * g->classes;
    double sum = 0;
    for (int64_t k = 0; k < g->classes; k++)
        sum += (double)p[k] * (norm - (double)z[k]);
    return sum;
}

static double sample_loss(const goal *g, int64_t sample, const float *z)
{
    double norm = log_sum_exp(z, g->classes), mean = 0;
    for (int64_t k = 0; k < g->classes; k++)
        mean += norm - (double)z[k];
    return (1 - g->smoothing) * plain_loss(g, sample, z, norm) +
           g->smoothing / (double)g->classes * mean;
}

static bool is_correct(const goal *g, int64_t sample, const float *z)
{
    int32_t best;
    oct_argmax_rows(OCT_F32, 1, g->classes, z, &best);
    return best == best_of(g, sample);
}

static void sum_leaf(const goal *g, const float *logits, int64_t first, int64_t samples,
                     double sums[SUMS])
{
    memset(sums, 0, SUMS * sizeof(double));
    for (int64_t i = first; i < first + samples; i++) {
        const float *z = logits + i * g->classes;
        if (is_bad(g, i)) {
            sums[BAD]++;
            continue;
        }
        sums[LOSS] += sample_loss(g, i, z);
        sums[CORRECT] += is_correct(g, i, z);
    }
}

static double probability(const goal *g, int64_t sample, int64_t k)
{
    if (g->labels) return k == g->labels[sample] ? 1.0 : 0.0;
    return (double)g->probabilities[sample * g->classes + k];
}

/* Tells what the goal of one sample adds up to: 1 where its probabilities do. */
static double goal_sum(const goal *g, int64_t sample)
{
    if (g->labels) return 1.0;
    double sum = 0;
    for (int64_t k = 0; k < g->classes; k++)
        sum += probability(g, sample, k);
    return (1 - g->smoothing) * sum + g->smoothing;
}

static void logits_grad(const loss_saved *v, int64_t sample, const float *z, double seed,
                        float *grad)
{
    const goal *g = &v->goal;
    double norm = log_sum_exp(z, g->classes), sum = goal_sum(g, sample);
    for (int64_t k = 0; k < g->classes; k++) {
        double wanted =
            g->smoothing / (double)g->classes + (1 - g->smoothing) * probability(g, sample, k);
        grad[k] = (float)((exp((double)z[k] - norm) * sum - wanted) * seed / (double)v->samples);
    }
}

static void target_grad(const loss_saved *v, const float *z, double seed, float *grad)
{
    double norm = log_sum_exp(z, v->goal.classes);
    for (int64_t k = 0; k < v->goal.classes; k++)
        grad[k] =
            (float)((1 - v->goal.smoothing) * (norm - (double)z[k]) * seed / (double)v->samples);
}

static void give_logits_grad(oct_context *cx, const oct_node *node, double seed)
{
    const loss_saved *v = node->saved;
    oct_tensor *logits = node->input[0];
    int64_t classes = v->goal.classes;
    float *grad = logits->needs_grad ? oct_grad_new(cx, logits) : NULL;
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(logits, 0); i++)
        logits_grad(v, i, oct_f32(logits) + i * classes, seed, grad + i * classes);
    oct_give_grad(cx, logits, grad);
}

static void give_target_grad(oct_context *cx, const oct_node *node, double seed)
{
    const loss_saved *v = node->saved;
    oct_tensor *target = node->num_inputs > 1 ? node->input[1] : NULL;
    int64_t classes = v->goal.classes;
    if (!target || !target->needs_grad || !v->goal.probabilities) return;
    float *grad = oct_grad_new(cx, target);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(target, 0); i++)
        target_grad(v, oct_f32(node->input[0]) + i * classes, seed, grad + i * classes);
    oct_give_grad(cx, target, grad);
}

static void cross_entropy_backward(oct_context *cx, oct_node *node)
{
    double seed = node->output->grad ? (double)node->output->grad[0] : 1.0;
    give_logits_grad(cx, node, seed);
    give_target_grad(cx, node, seed);
}

/* Names this rank's first bad label, or points at the rank that has one. */
static void *fail_label(oct_context *cx, const goal *g, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (is_bad(g, i))
            return oct_context_fail(
                cx, OCT_DATA,
                "sample %lld of the batch has label %.9g, but the model has %lld classes; "
                "labels must be 0 to %lld",
                (long long)(oct_leaves_first_sample(&cx->leaves) + i),
                g->given ? (double)g->given[i] : (double)g->labels[i], (long long)g->classes,
                (long long)(g->classes - 1));
    }
    return oct_context_fail(cx, OCT_PEER, "another rank has a label out of range");
}

/* Takes the three sums over the global batch; false with the context failed. */
static bool sum_batch(oct_context *cx, const oct_tensor *logits, const goal *g, double total[SUMS])
{
    double *rows = oct_scratch(cx, (size_t)(cx->leaves.local * SUMS) * sizeof(double));
    if (!rows) return false;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++)
        sum_leaf(g, oct_f32(logits), oct_leaf_begin(&cx->leaves, i), oct_leaf_size(&cx->leaves, i),
                 rows + i * SUMS);
    oct_tree_fold_f64(&cx->leaves, rows, SUMS);
    oct_context_adopt(cx, cx->group->tree_sum_f64(cx->group, &cx->leaves, rows, SUMS, total));
    oct_scratch_end(cx, rows);
    return cx->status == OCT_OK;
}

static bool takes(oct_context *cx, const char *op, const oct_tensor *logits)
{
    char text[96];
    if (!oct_needs_f32(cx, op, logits) || !oct_needs_batch(cx, op, logits)) return false;
    if (logits->shape.ndim == 2 && oct_dim(logits, 1) >= 1) return true;
    oct_context_fail(cx, OCT_USAGE, "%s takes logits (N, K), but its input is %s", op,
                     oct_shape_text(&logits->shape, text));
    return false;
}

/* x[0]: logits, x[1], if there: where the goal comes from. The goal's arrays must last as long as the
 * step. */
static oct_tensor *cross_entropy(oct_context *cx, const char *op, oct_tensor *const *x, int n,
                                 const goal *g, oct_loss *result)
{
    double total[SUMS];
    if (!sum_batch(cx, x[0], g, total)) return NULL;
    if (total[BAD] > 0) return fail_label(cx, g, oct_dim(x[0], 0));
    *result = (oct_loss){.loss_sum = total[LOSS], .correct = (int64_t)total[CORRECT]};

    oct_tensor *y = oct_tensor_new(cx, OCT_F32, (oct_shape){.ndim = 0});
    if (!y) return NULL;
    oct_f32(y)[0] = (float)(total[LOSS] / (double)cx->leaves.samples);
    oct_node *node = oct_record(cx, op, cross_entropy_backward, x, n, false, y);
    if (node) {
        loss_saved *saved = node->saved = oct_save(cx, sizeof *saved);
        if (!saved) return NULL;
        *saved = (loss_saved){.goal = *g, .samples = cx->leaves.samples};
    }
    return y;
}

oct_tensor *oct_cross_entropy(oct_context *cx, oct_tensor *logits, const int32_t *labels,
                              float smoothing, oct_loss *result)
{
    if (!oct_inputs_ok(cx, &logits, 1) || !takes(cx, "cross_entropy", logits)) return NULL;
    size_t bytes = (size_t)oct_dim(logits, 0) * sizeof *labels;
    int32_t *copy = oct_save(cx, bytes);
    if (!copy) return NULL;
    if (bytes > 0) memcpy(copy, labels, bytes);
    const goal g = {.labels = copy, .smoothing = (double)smoothing, .classes = oct_dim(logits, 1)};
    return cross_entropy(cx, "cross_entropy", &logits, 1, &g, result);
}

oct_tensor *oct_cross_entropy_soft(oct_context *cx, oct_tensor *logits, const float *probabilities,
                                   float smoothing, oct_loss *result)
{
    if (!oct_inputs_ok(cx, &logits, 1) || !takes(cx, "cross_entropy", logits)) return NULL;
    const goal g = {.probabilities = probabilities,
                    .smoothing = (double)smoothing,
                    .classes = oct_dim(logits, 1)};
    return cross_entropy(cx, "cross_entropy", &logits, 1, &g, result);
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
                        goal *g)
{
    char one[96], two[96];
    const oct_shape *shape = &target->shape;
    bool rows = oct_shape_equal(shape, &logits->shape) && target->dtype == OCT_F32;
    bool numbers = shape->ndim == 1 && shape->dim[0] == oct_dim(logits, 0) &&
                   (target->dtype == OCT_F32 || target->dtype == OCT_S32);
    if (rows) g->probabilities = oct_f32(target);
    if (numbers) g->labels = labels_of(cx, target);
    if (numbers && target->dtype == OCT_F32) g->given = oct_f32(target);
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
    if (oct_call_site(cx, op, OCT_OP_ARGS(smoothing), x, 2, &y)) return y;
    if (!oct_inputs_ok(cx, x, 2) || !takes(cx, op, logits)) return NULL;
    if (!(smoothing >= 0 && smoothing <= 1))
        return oct_context_fail(cx, OCT_USAGE, "%s takes a smoothing of 0 to 1, but has %g", op,
                                smoothing);
    goal g = {.smoothing = smoothing, .classes = oct_dim(logits, 1)};
    oct_loss result;
    if (!read_target(cx, logits, target, &g)) return NULL;
    return cross_entropy(cx, op, x, 2, &g, &result);
}
