/* Softmax cross-entropy with label smoothing, as torch.nn.functional.cross_entropy: the target puts
 * smoothing/K on every class and the rest on the label.
 *
 * A label out of range on one rank is summed along with the loss, so that all ranks fail here
 * together instead of some waiting in the next collective.
 */
#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <math.h>
#include <string.h>

enum { LOSS, CORRECT, BAD, SUMS };

typedef struct loss_saved {
    int32_t *labels;
    float smoothing;
    int64_t samples; /* of the global batch */
} loss_saved;

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

static double sample_loss(const float *z, int64_t classes, int32_t label, double smoothing)
{
    double norm = log_sum_exp(z, classes), mean = 0;
    for (int64_t k = 0; k < classes; k++)
        mean += norm - (double)z[k];
    return (1 - smoothing) * (norm - (double)z[label]) + smoothing / (double)classes * mean;
}

static bool is_correct(const float *z, int64_t classes, int32_t label)
{
    int64_t best = 0;
    for (int64_t k = 1; k < classes; k++) {
        if (z[k] > z[best]) best = k;
    }
    return best == label;
}

static void sum_leaf(const float *z, const int32_t *labels, int64_t samples, int64_t classes,
                     double smoothing, double sums[SUMS])
{
    memset(sums, 0, SUMS * sizeof(double));
    for (int64_t i = 0; i < samples; i++, z += classes) {
        if (labels[i] < 0 || labels[i] >= classes) {
            sums[BAD]++;
            continue;
        }
        sums[LOSS] += sample_loss(z, classes, labels[i], smoothing);
        sums[CORRECT] += is_correct(z, classes, labels[i]);
    }
}

static void sample_grad(const float *z, int64_t classes, int32_t label, const loss_saved *v,
                        double seed, float *grad)
{
    double norm = log_sum_exp(z, classes), rest = (double)v->smoothing / (double)classes;
    for (int64_t k = 0; k < classes; k++) {
        double target = rest + (k == label ? 1 - (double)v->smoothing : 0.0);
        grad[k] = (float)((exp((double)z[k] - norm) - target) * seed / (double)v->samples);
    }
}

static void cross_entropy_backward(oct_context *cx, oct_node *node)
{
    const loss_saved *v = node->saved;
    oct_tensor *logits = node->input[0];
    int64_t classes = oct_dim(logits, 1);
    double seed = node->output->grad ? (double)node->output->grad[0] : 1.0;
    float *grad = oct_grad_new(cx, logits);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(logits, 0); i++)
        sample_grad(oct_f32(logits) + i * classes, classes, v->labels[i], v, seed,
                    grad + i * classes);
    oct_give_grad(cx, logits, grad);
}

/* Names this rank's first bad label, or points at the rank that has one. */
static void *fail_label(oct_context *cx, const int32_t *labels, int64_t n, int64_t classes)
{
    for (int64_t i = 0; i < n; i++) {
        if (labels[i] < 0 || labels[i] >= classes)
            return oct_context_fail(
                cx, OCT_DATA,
                "sample %lld of the batch has label %d, but the model has %lld classes; "
                "labels must be 0 to %lld",
                (long long)(oct_leaves_first_sample(&cx->leaves) + i), (int)labels[i],
                (long long)classes, (long long)(classes - 1));
    }
    return oct_context_fail(cx, OCT_PEER, "another rank has a label out of range");
}

/* The three sums over the global batch; false with the context failed. */
static bool sum_batch(oct_context *cx, const oct_tensor *logits, const int32_t *labels,
                      float smoothing, double total[SUMS])
{
    int64_t classes = oct_dim(logits, 1);
    double *rows = oct_scratch(cx, (size_t)(cx->leaves.local * SUMS) * sizeof(double));
    if (!rows) return false;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        int64_t at = oct_leaf_begin(&cx->leaves, i);
        sum_leaf(oct_f32(logits) + at * classes, labels + at, oct_leaf_size(&cx->leaves, i),
                 classes, (double)smoothing, rows + i * SUMS);
    }
    oct_tree_fold_f64(&cx->leaves, rows, SUMS);
    oct_context_adopt(cx, cx->group->tree_sum_f64(cx->group, &cx->leaves, rows, SUMS, total));
    oct_scratch_end(cx, rows);
    return cx->status == OCT_OK;
}

oct_tensor *oct_cross_entropy(oct_context *cx, oct_tensor *logits, const int32_t *labels,
                              float smoothing, oct_loss *result)
{
    if (!oct_ready(cx, &logits, 1)) return NULL;
    if (!oct_needs_f32(cx, "cross_entropy", logits) ||
        !oct_needs_batch(cx, "cross_entropy", logits))
        return NULL;
    char text[96];
    if (logits->shape.ndim != 2 || oct_dim(logits, 1) < 1)
        return oct_context_fail(cx, OCT_USAGE,
                                "cross_entropy takes logits (N, K), but its input is %s",
                                oct_shape_text(&logits->shape, text));
    int64_t n = oct_dim(logits, 0);
    double total[SUMS];
    if (!sum_batch(cx, logits, labels, smoothing, total)) return NULL;
    if (total[BAD] > 0) return fail_label(cx, labels, n, oct_dim(logits, 1));
    *result = (oct_loss){.loss_sum = total[LOSS], .correct = (int64_t)total[CORRECT]};

    oct_tensor *y = oct_tensor_new(cx, OCT_F32, (oct_shape){.ndim = 0});
    if (!y) return NULL;
    oct_f32(y)[0] = (float)(total[LOSS] / (double)cx->leaves.samples);
    oct_node *node = oct_record(cx, "cross_entropy", cross_entropy_backward, &logits, 1, false, y);
    if (node) {
        loss_saved *saved = node->saved = oct_save(cx, sizeof *saved);
        int32_t *copy = oct_save(cx, (size_t)n * sizeof *copy);
        if (!saved || !copy) return NULL;
        memcpy(copy, labels, (size_t)n * sizeof *copy);
        *saved =
            (loss_saved){.labels = copy, .smoothing = smoothing, .samples = cx->leaves.samples};
    }
    return y;
}
