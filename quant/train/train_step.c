/* The calls of a training step in their order. */
#include "quant/train/step_batch.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/optim/optim.h"
#include "quant/graph/graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The numbers of the control reduction; the observers' keys follow. */
enum {
    CONTROL_BAD_GRAD, /* how many parameters there are from the first one with a bad gradient on */
    CONTROL_FLAGS,
    CONTROL_KEYS = CONTROL_FLAGS + OCT_STEP_FLAGS,
};

static void unbind_model(oct_train_step *s)
{
    oct_free(&s->control);
    oct_free(&s->waiting);
    s->waiting_rows = 0;
    oct_free(&s->notes);
    s->notes_capacity = 0;
    s->sums = (oct_step_sums){0};
    oct_step_undo_destroy(&s->undo);
    oct_step_state_free(&s->state);
    oct_quantizers_free(&s->quantizers);
    oct_optim_destroy(&s->optim);
    oct_params_unbind(&s->params);
}

oct_status oct_train_step_renew_memory(oct_train_step *step)
{
    oct_context_destroy(&step->context);
    return oct_context_create(&step->context, step->group);
}

oct_status oct_train_step_rebind(oct_train_step *step, oct_module *root)
{
    const oct_leaves full =
        oct_leaves_split(step->batch, step->leaf, step->group->rank, step->group->size);
    unbind_model(step);
    step->root = root;
    step->graph = oct_graph_of(root);
    OCT_TRY(oct_train_step_renew_memory(step));
    OCT_TRY(oct_params_bind_on(&step->params, root, &full, step->group));
    OCT_TRY(oct_optim_create(&step->optim, &step->config, &step->params));
    OCT_TRY(oct_average_create(&step->optim.average, &step->average, root, &step->params));
    OCT_TRY(oct_quantizers_collect(&step->quantizers, root));
    return oct_alloc(&step->control,
                     CONTROL_KEYS + 2 * step->quantizers.count + (size_t)step->group->size,
                     sizeof(int64_t));
}

oct_status oct_train_step_average(oct_train_step *step, const oct_average_options *options)
{
    step->average = *options;
    oct_step_undo_destroy(&step->undo);
    oct_step_state_free(&step->state);
    oct_average_destroy(&step->optim.average);
    return oct_average_create(&step->optim.average, options, step->root, &step->params);
}

oct_status oct_train_step_create(oct_train_step *step, oct_module *root,
                                 const oct_optim_config *config, int64_t batch, int64_t leaf,
                                 const oct_collective *group)
{
    *step = (oct_train_step){.group = group,
                             .config = *config,
                             .batch = batch,
                             .leaf = leaf,
                             .loss = {.kind = &oct_loss_cross_entropy, .metric = &oct_metric_top1}};
    OCT_CHECK(batch > 0 && leaf > 0, OCT_USAGE,
              "a batch of %lld samples in leaves of %lld; both must be at least 1",
              (long long)batch, (long long)leaf);
    const oct_status status = oct_train_step_rebind(step, root);
    if (status != OCT_OK) oct_train_step_destroy(step);
    return status;
}

void oct_train_step_destroy(oct_train_step *step)
{
    unbind_model(step);
    oct_replay_free(&step->audit.replay);
    oct_context_destroy(&step->context);
}

/* Gradients are summed in rows that were made for the largest batch. */
static oct_status check_step(const oct_train_step *s, const oct_batch *b)
{
    OCT_TRY(oct_step_batch_check(s, b));
    OCT_CHECK(b->shape[0].dim[0] <= s->batch, OCT_USAGE,
              "a batch of %lld samples, but the training step was made for at most %lld; give "
              "oct_train_step_create the largest batch",
              (long long)b->shape[0].dim[0], (long long)s->batch);
    OCT_CHECK(oct_params_are_bound(&s->params), OCT_USAGE,
              "another training step has taken the model's parameters since; call "
              "oct_train_step_rebind, which starts the optimizer anew, or run that one");
    return OCT_OK;
}

/* Takes the maximum over the ranks of n numbers, and of the caller's after them. */
static oct_status reduce_control(oct_train_step *s, int64_t n)
{
    const int64_t more = s->rank_flag ? s->group->size : 0;
    int64_t *rank_flag = s->control + n;
    if (more > 0) memcpy(rank_flag, s->rank_flag, (size_t)more * sizeof *rank_flag);
    OCT_TRY(s->group->max_i64(s->group, s->control, n + more));
    if (more > 0) memcpy(s->rank_flag, rank_flag, (size_t)more * sizeof *rank_flag);
    return OCT_OK;
}

/* A step that is skipped exchanges only the caller's words. */
static oct_status reduce_words(oct_train_step *s)
{
    memcpy(s->control, s->flag, sizeof s->flag);
    OCT_TRY(reduce_control(s, OCT_STEP_FLAGS));
    memcpy(s->flag, s->control, sizeof s->flag);
    return OCT_OK;
}

/* After it all ranks know the same. bad: the place of the first parameter with a bad gradient; -1: none. */
static oct_status control_reduce(oct_train_step *s, int64_t bad)
{
    const int64_t count = (int64_t)s->params.count;
    int64_t *control = s->control, *keys = control + CONTROL_KEYS;
    control[CONTROL_BAD_GRAD] = bad < 0 ? 0 : count - bad;
    memcpy(control + CONTROL_FLAGS, s->flag, sizeof s->flag);
    oct_quantizers_keys(&s->quantizers, keys);
    OCT_TRY(reduce_control(s, CONTROL_KEYS + 2 * (int64_t)s->quantizers.count));
    memcpy(s->flag, control + CONTROL_FLAGS, sizeof s->flag);
    bad = control[CONTROL_BAD_GRAD];
    if (bad > 0) return oct_params_fail(&s->params, count - bad, true, s->root);
    OCT_TRY(oct_quantizers_check(&s->quantizers, keys));
    return oct_quantizers_sum_counts(&s->quantizers, s->group);
}

static oct_status update_observers(oct_train_step *s)
{
    return oct_quantizers_update(&s->quantizers, s->control + CONTROL_KEYS);
}

/* What was announced has to come. */
static oct_status check_sums(const oct_train_step *s, const oct_batch *batch)
{
    const oct_step_sums *sums = &s->sums;
    if (sums->skipped) return OCT_OK;
    const int64_t more = batch ? 1 : 0, samples = batch ? batch->shape[0].dim[0] : 0;
    OCT_CHECK(sums->done + more <= sums->batches && sums->seen + samples <= sums->samples &&
                  (batch || (sums->done == sums->batches && sums->seen == sums->samples)),
              OCT_USAGE,
              "oct_train_step_begin announced %lld batches with %lld samples, but these are %lld "
              "with %lld",
              (long long)sums->batches, (long long)sums->samples, (long long)(sums->done + more),
              (long long)(sums->seen + samples));
    return OCT_OK;
}

/* Rows for the sums that wait, as many as a binary counter up to `batches` needs. */
static oct_status reserve_waiting(oct_train_step *s, int64_t batches)
{
    int rows = 0;
    while ((batches - 1) >> rows)
        rows++;
    if (rows <= s->waiting_rows) return OCT_OK;
    oct_free(&s->waiting);
    s->waiting_rows = 0;
    OCT_TRY(oct_alloc(&s->waiting, (size_t)rows, (size_t)s->params.numel * sizeof(float)));
    s->waiting_rows = rows;
    return OCT_OK;
}

oct_status oct_train_step_begin(oct_train_step *step, int64_t batches, int64_t samples, float lr)
{
    OCT_CHECK(batches > 0 && samples >= batches, OCT_USAGE,
              "an update of %lld batches with %lld samples together; there must be at least one "
              "batch, and a sample in each",
              (long long)batches, (long long)samples);
    oct_quantizers_discard_batch(&step->quantizers);
    step->sums = (oct_step_sums){.batches = batches, .samples = samples, .lr = lr};
    if (step->nonfinite == OCT_NONFINITE_SKIP || step->audit.on) {
        OCT_TRY(oct_step_state_list(&step->state, step->root, &step->optim));
        OCT_TRY(oct_step_undo_keep(&step->undo, &step->state, &step->optim));
    }
    return reserve_waiting(step, batches);
}

OCT_CLONES
static void add_left(float *restrict sum, const float *restrict left, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] = left[i] + sum[i];
}

/* Adds the gradients that wait for that of the batch just counted, which then waits itself unless it is the last. */
static void add_waiting_gradients(oct_train_step *s)
{
    oct_step_sums *sums = &s->sums;
    const int64_t n = s->params.numel;
    if (sums->batches == 1) return;
    float *grads = oct_params_own_grads(&s->params);
    for (int merges = oct_tree_merges(sums->done - 1, sums->batches); merges > 0; merges--)
        add_left(grads, s->waiting + --sums->waiting * n, n);
    if (sums->done == sums->batches) return;
    memcpy(s->waiting + sums->waiting++ * n, grads, (size_t)n * sizeof(float));
}

static void report_step(const oct_train_step *s, oct_step_result *result)
{
    *result = (oct_step_result){.loss = s->sums.loss,
                                .metric = s->sums.metric,
                                .samples = s->sums.seen,
                                .grad_norm = (double)NAN};
}

static oct_status update_parameters(oct_train_step *s, oct_step_result *result)
{
    const oct_step_sums *sums = &s->sums;
    /* Rows that count differently have a weight that is known now. */
    if (sums->batches > 1 && sums->weight > 0 && sums->weight != sums->divisor)
        oct_params_scale_grads(&s->params, (float)(sums->divisor / sums->weight));
    OCT_TRY(oct_quantizers_backward(&s->quantizers));
    report_step(s, result);
    OCT_TRY(control_reduce(s, oct_params_find_bad(&s->params, true)));
    result->grad_norm = oct_optim_step(&s->optim, &s->params, s->sums.lr);
    const int64_t bad_value = oct_params_find_bad(&s->params, false);
    if (bad_value >= 0) return oct_params_fail(&s->params, bad_value, false, s->root);
    OCT_TRY(update_observers(s));
    oct_average_update(&s->optim.average, s->optim.updates);
    return OCT_OK;
}

/* A call that fails discards what its observers have seen. */
static oct_status end_call(oct_train_step *s, oct_status status)
{
    if (status != OCT_OK) oct_quantizers_discard_batch(&s->quantizers);
    return status;
}

/* Numbers that go wrong in training have a remedy. */
static oct_status end_learning(oct_train_step *s, oct_status status)
{
    char what[512];
    if (end_call(s, status) != OCT_NUMERIC) return status;
    snprintf(what, sizeof what, "%s", oct_fail_text(0));
    return oct_fail(OCT_NUMERIC, "%s; lower the learning rate (now %g)", what, (double)s->sums.lr);
}

/* Numbers go wrong on all ranks in the same step, so all of them undo it. */
static oct_status skip_nonfinite(oct_train_step *s, oct_status status)
{
    if (status != OCT_NUMERIC || s->nonfinite != OCT_NONFINITE_SKIP) return status;
    snprintf(s->why, sizeof s->why, "%s", oct_fail_text(0));
    oct_fail_clear();
    oct_step_undo_swap(&s->undo, &s->optim);
    s->sums.skipped = true;
    return OCT_OK;
}

static void report_skipped(const oct_train_step *s, oct_step_result *result)
{
    *result = (oct_step_result){.loss = (double)NAN,
                                .metric = (double)NAN,
                                .samples = s->sums.samples,
                                .grad_norm = (double)NAN,
                                .skipped = true};
}

oct_status oct_train_step_learn(oct_train_step *step, const oct_batch *batch)
{
    OCT_TRY(check_step(step, batch));
    OCT_TRY(check_sums(step, batch));
    if (step->sums.skipped) return OCT_OK;
    const oct_status status = oct_step_batch_learn(step, batch);
    if (status == OCT_OK) add_waiting_gradients(step);
    return skip_nonfinite(step, end_learning(step, status));
}

oct_status oct_train_step_update(oct_train_step *step, oct_step_result *result)
{
    OCT_TRY(check_sums(step, NULL));
    OCT_TRY(step->sums.skipped
                ? reduce_words(step)
                : skip_nonfinite(step, end_learning(step, update_parameters(step, result))));
    if (step->sums.skipped) report_skipped(step, result);
    step->update++;
    return OCT_OK;
}

oct_status oct_train_step_run(oct_train_step *step, const oct_batch *batch, float lr,
                              oct_step_result *result)
{
    OCT_TRY(check_step(step, batch));
    OCT_TRY(oct_train_step_begin(step, 1, batch->shape[0].dim[0], lr));
    OCT_TRY(oct_train_step_learn(step, batch));
    return oct_train_step_update(step, result);
}

static oct_status update_ranges(oct_train_step *s)
{
    OCT_TRY(control_reduce(s, -1));
    return update_observers(s);
}

oct_status oct_train_step_forward(oct_train_step *step, const oct_batch *batch, void *y)
{
    OCT_TRY(oct_step_batch_check(step, batch));
    oct_status status = oct_step_batch_forward(step, batch, y);
    if (status == OCT_OK) status = update_ranges(step);
    return end_call(step, status);
}

oct_status oct_train_step_look(oct_train_step *step, const oct_batch *batch, float *y, int64_t n)
{
    OCT_TRY(oct_step_batch_check(step, batch));
    OCT_TRY(check_sums(step, batch));
    if (step->sums.skipped) return OCT_OK;
    return skip_nonfinite(step, end_call(step, oct_step_batch_observe(step, batch, y, n)));
}

oct_status oct_train_step_observed(oct_train_step *step, oct_step_result *result)
{
    OCT_TRY(check_sums(step, NULL));
    report_step(step, result);
    OCT_TRY(step->sums.skipped ? reduce_words(step)
                               : skip_nonfinite(step, end_call(step, update_ranges(step))));
    if (step->sums.skipped) report_skipped(step, result);
    return OCT_OK;
}

oct_status oct_train_step_observe(oct_train_step *step, const oct_batch *batch, float *y, int64_t n,
                                  oct_step_result *result)
{
    OCT_TRY(oct_step_batch_check(step, batch));
    OCT_TRY(oct_train_step_begin(step, 1, batch->shape[0].dim[0], 0));
    OCT_TRY(oct_train_step_look(step, batch, y, n));
    return oct_train_step_observed(step, result);
}

oct_status oct_train_step_digest(oct_train_step *step, int64_t slice, int64_t slices,
                                 uint64_t *digest)
{
    OCT_TRY(oct_step_state_list(&step->state, step->root, &step->optim));
    *digest = oct_step_state_digest(&step->state, slice, slices);
    return OCT_OK;
}
