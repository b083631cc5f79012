/* Calibration: its steps observe the float model; before them the weights may be equalized, and after them rounded by
 * second moments and their bias corrected.
 *
 * A step observes its batch part by part, since the float model's activations would need more memory than all of the
 * training that follows. No bit depends on the parts. Observers take minima and maxima; the batch norms of the tree are
 * frozen; nothing else sees more than a sample. A module of the user's own may sum over the batch all the same: the
 * context refuses that for a part of a batch, on every rank at the same place, and says so.
 */
#include "core/autograd/context.h"
#include "core/base/int_math.h"
#include "core/base/log.h"
#include "launch/base/meter.h"
#include "launch/train/trainer_impl.h"
#include "quant/correct/correction.h"

#include <omp.h>
#include <string.h>

/* Chooses some of the rank's samples, from sample `at` on: whole leaves where at least one is wanted, else samples of one
 * leaf, each as a leaf of its own. */
static oct_leaves choose_samples(const oct_leaves *leaves, int64_t at, int64_t wanted)
{
    const int64_t left = oct_leaves_local_samples(leaves) - at, into = at % leaves->leaf;
    oct_leaves some = *leaves;
    if (into == 0 && (wanted >= leaves->leaf || wanted >= left)) {
        some.first += at / leaves->leaf;
        some.local = oct_min_i64(oct_max_i64(wanted / leaves->leaf, 1), leaves->local);
        if (some.first + some.local > leaves->first + leaves->local)
            some.local = leaves->first + leaves->local - some.first;
        return some;
    }
    some.leaf = 1;
    some.count = leaves->samples;
    some.first = oct_leaves_first_sample(leaves) + at;
    some.local = oct_min_i64(oct_min_i64(wanted, left), leaves->leaf - into);
    return some;
}

/* Runs the forward on all local samples in parts, and keeps outputs in t->logits. Not *done: they are not as wanted. */
static oct_status forward_in_parts(oct_trainer *t, const oct_leaves *leaves, bool *done)
{
    oct_forwards *forward = &t->calibration.forward;
    const oct_dataset *d = t->train_data;
    const int64_t samples = oct_leaves_local_samples(leaves), outputs = d->rows * d->classes;
    const int64_t most = leaves->leaf * omp_get_max_threads();
    *done = true;
    for (int64_t at = 0, n; *done && (at == 0 || at < samples); at += oct_max_i64(n, 1)) {
        const oct_leaves some = choose_samples(leaves, at, oct_forward_samples(forward, most));
        const oct_tensor *y;
        n = oct_leaves_local_samples(&some);
        const oct_example x = oct_dataset_inputs(d, t->images, samples, at, n);
        OCT_TRY(oct_forward_run(forward, some, &x, &y));
        *done = y->dtype == OCT_F32 && oct_numel(y) == n * outputs;
        if (*done && n > 0)
            memcpy(t->logits + at * outputs, y->data, (size_t)(n * outputs) * sizeof(float));
    }
    return OCT_OK;
}

/* Observes a batch a few samples at a time. *done is false where the model sums over the batch, or its outputs are
 * no rows of floats, so it must run on the batch in one piece; what observers have noted is to be forgotten then. */
static oct_status observe_in_parts(oct_trainer *t, const oct_leaves *leaves, bool *done)
{
    oct_context *cx = t->training.context;
    const oct_collective *group = cx->group;
    if (!t->calibration.forward.cx)
        OCT_TRY(oct_forward_begin(&t->calibration.forward, cx, t->model));
    cx->group = &oct_collective_one;
    cx->part = OCT_BATCH_PART;
    const oct_status status = forward_in_parts(t, leaves, done);
    const bool refused = cx->part == OCT_BATCH_PART_REFUSED;
    cx->group = group;
    cx->part = OCT_BATCH_WHOLE;
    if (!refused) return status;
    oct_fail_clear();
    *done = false;
    return OCT_OK;
}

/* Observes a batch a few samples at a time; a model that sums over the batch is run on it in one piece from then on. */
oct_status oct_trainer_observe(oct_trainer *t, const oct_batch *batch, const oct_leaves *leaves)
{
    oct_calibration *c = &t->calibration;
    bool done = false;
    if (!c->whole) {
        OCT_TRY(observe_in_parts(t, leaves, &done));
        if (!done) oct_quantizers_discard_batch(&t->training.quantizers);
    }
    c->whole = !done;
    return oct_train_step_evaluate_add(&t->training, batch, done ? t->logits : NULL,
                                       t->train_data->rows * t->train_data->classes);
}

/* Corrections. */

/* Runs the forward in codes on this rank's samples of all calibration batches; no sum crosses samples there. */
static oct_status watch_all_batches(oct_trainer *t, oct_forwards *forward)
{
    const oct_dataset *d = t->train_data;
    const int64_t most = t->recipe->batch_leaf * omp_get_max_threads();
    const int64_t *begin = t->plan.begin;
    OCT_OWNED(oct_meter_end) oct_meter meter;
    oct_meter_begin(&meter, "rounding", "batches",
                    begin[OCT_PHASE_QAT] - begin[OCT_PHASE_CALIBRATE]);
    for (int64_t step = begin[OCT_PHASE_CALIBRATE]; step < begin[OCT_PHASE_QAT]; step++) {
        const oct_step_batches b = oct_trainer_batches(t, step);
        for (int64_t i = 0; i < b.count; i++) {
            oct_batch batch;
            oct_leaves leaves;
            OCT_TRY(oct_trainer_fetch(t, b.epoch, b.first + i, &batch, &leaves));
            const int64_t samples = oct_leaves_local_samples(&leaves);
            const oct_tensor *y;
            for (int64_t at = 0, n; at < samples; at += n) {
                n = oct_forward_samples(forward, oct_min_i64(most, samples - at));
                const oct_example x = oct_dataset_inputs(d, t->images, samples, at, n);
                OCT_TRY(oct_forward_run(forward, oct_leaves_split(n, 1, 0, 1), &x, &y));
            }
        }
        oct_meter_show(&meter, step + 1 - begin[OCT_PHASE_CALIBRATE]);
    }
    return OCT_OK;
}

/* Runs a round of the correction over the calibration batches, without the group: each rank has its own samples. */
static oct_status run_round(void *user)
{
    oct_trainer *t = user;
    oct_context *cx = t->training.context;
    oct_forwards forward = {0};
    cx->group = &oct_collective_one;
    oct_status status = oct_forward_begin(&forward, cx, t->model);
    if (status == OCT_OK) status = watch_all_batches(t, &forward);
    oct_forward_end(&forward);
    cx->group = t->group;
    OCT_TRY(t->group->agree(t->group, status));
    return oct_trainer_agree_on_unread(t);
}

oct_status oct_trainer_correct(oct_trainer *t)
{
    const oct_correction_options options = {t->recipe->quant_rounding,
                                            t->recipe->quant_bias_correction};
    oct_correction done;
    t->unread[0] = '\0';
    oct_module_train(t->model, false);
    oct_quantizers_set_state(&t->training.quantizers, OCT_QUANT_FROZEN);
    const oct_status status =
        oct_correct_weights(t->model, &options, t->group, run_round, t, &done);
    oct_module_train(t->model, true);
    OCT_TRY(status);
    if (options.rounding == OCT_ROUNDING_GPTQ)
        oct_log(OCT_LOG_INFO, "gptq: the weights of %lld layers were rounded",
                (long long)done.rounded);
    if (options.bias)
        oct_log(OCT_LOG_INFO, "bias correction: %lld layers", (long long)done.corrected);
    if (done.left > 0)
        oct_log(
            OCT_LOG_WARN,
            "%lld layer%s as %s: called twice, without bias and batch norm, or with scales that "
            "would not stay",
            (long long)done.left, done.left == 1 ? " is left" : "s are left",
            done.left == 1 ? "it was" : "they were");
    return OCT_OK;
}
