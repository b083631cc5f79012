/* The training step: what one batch computes (forward, loss, backward, sums over the ranks), then the calls in their
 * order. */
#include "quant/train/train_step_impl.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/nn/module.h"
#include "core/op/norm_groups.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The leaves of a batch that are this rank's. */
static oct_leaves split_batch(const oct_train_step *s, int64_t samples)
{
    return oct_leaves_split(samples, s->leaf, s->group->rank, s->group->size);
}

/* Begins a forward over these leaves; learn: with a tape for the backward, and dropout. Where the ranks are recorded
 * for the audit, all of them get the sums of all norm groups, since any may compute the leaf again. */
static void begin_pass(oct_train_step *s, const oct_leaves *leaves, bool learn)
{
    s->context->numerics = s->numerics;
    s->context->gates = s->gates.count > 0 ? &s->gates : NULL;
    s->context->float_bf16 = s->float_bf16 && !s->graph;
    s->context->norm_group = s->norm_group;
    s->context->norm_share_all = s->context->group != s->group;
    s->context->release_on_backward = true;
    oct_context_begin(s->context, *leaves, learn);
    s->context->draws = (oct_draws){
        .active = learn, .seed = s->seed, .update = s->update, .first_sample = s->sums.seen};
    s->context->watch = s->audit.watch;
}

/* Runs the forward over the samples of this rank's leaves. */
static oct_tensor *run_forward(oct_train_step *s, const oct_batch *b, const oct_leaves *leaves,
                               bool learn)
{
    oct_tensor *x[OCT_MODEL_INPUTS];
    begin_pass(s, leaves, learn);
    for (int i = 0; i < b->num_inputs; i++) {
        oct_shape shape = b->shape[i];
        shape.dim[0] = oct_leaves_local_samples(&s->context->leaves);
        x[i] = oct_tensor_view(s->context, OCT_F32, shape, b->input[i]);
    }
    return oct_module_call(s->context, s->root, x, b->num_inputs);
}

/* Moves the update's running means of loss and metric by those of a batch, each weighted by what it counts (of the
 * first batch they are its own, to the bit). */
static void add_figures(oct_step_sums *sums, int64_t samples, const oct_loss *loss, double mean)
{
    sums->done++;
    sums->seen += samples;
    sums->weight += loss->counted;
    sums->divisor = loss->divisor;
    if (loss->counted > 0) sums->loss += (mean - sums->loss) * (loss->counted / sums->weight);
    sums->metric += (loss->metric - sums->metric) * ((double)samples / (double)sums->seen);
}

/* Checks the loss that the forward itself has returned, a mean over the samples of its batch, and gives it the
 * gradient from which oct_backward starts: the batch's share of the update's samples. */
static oct_tensor *start_from_returned_loss(oct_train_step *s, oct_tensor *y, double *mean)
{
    oct_context *cx = s->context;
    if (!oct_inputs_ok(cx, &y, 1)) return NULL;
    if (y->dtype != OCT_F32 || y->shape.ndim != 0)
        return oct_context_fail(cx, OCT_USAGE,
                                "the batch has neither labels nor targets, so the forward "
                                "must return its loss, one number, but it returns %s %s",
                                oct_dtype_name(y->dtype), oct_text_shape(&y->shape).text);
    if (!y->needs_grad)
        return oct_context_fail(cx, OCT_USAGE,
                                "the loss that the forward returns depends on no "
                                "parameter, so there is nothing to learn");
    *mean = (double)oct_f32(y)[0];
    float *grad = oct_grad_new(cx, y);
    if (!grad) return NULL;
    *grad = (float)((double)cx->leaves.samples / (double)s->sums.samples);
    oct_add_grad(cx, y, grad);
    return y;
}

/* The loss of a batch, whose figures are added to the update's. Without labels and targets the forward has
 * returned the loss; otherwise the loss function computes it from the outputs y. */
static oct_tensor *compute_loss(oct_train_step *s, oct_tensor *y, const oct_batch *b)
{
    oct_context *cx = s->context;
    const int64_t samples = cx->leaves.samples;
    oct_loss_spec spec = s->loss;
    double mean = 0;
    oct_loss loss = {
        .counted = (double)samples, .divisor = (double)s->sums.samples, .metric = (double)NAN};
    if (!b->labels && !b->targets) {
        y = start_from_returned_loss(s, y, &mean);
    } else {
        if (oct_inputs_ok(cx, &y, 1) && y->shape.ndim == 0)
            return oct_context_fail(cx, OCT_USAGE,
                                    "the forward returns its loss already, so the batch "
                                    "must have neither labels nor targets");
        if (s->sums.batches > 1) spec.divisor_samples = s->sums.samples;
        const oct_goals goals = {.labels = b->labels,
                                 .values = b->targets,
                                 .teacher = b->teacher,
                                 .rows = b->rows,
                                 .ignores = b->ignores,
                                 .ignored = b->ignored};
        y = oct_loss_apply(cx, &spec, y, &goals, &loss);
        mean = loss.loss_sum / loss.weight;
    }
    if (cx->status != OCT_OK) return NULL;
    if (!isfinite(mean)) return oct_context_fail(cx, OCT_NUMERIC, "the loss is not finite");
    add_figures(&s->sums, samples, &loss, mean);
    return y;
}

/* Runs forward and loss of these leaves of a batch, for a backward to start from; NULL with the context failed. */
static oct_tensor *run_forward_and_loss(oct_train_step *s, const oct_batch *batch,
                                        const oct_leaves *leaves)
{
    oct_params_zero(&s->params);
    return compute_loss(s, run_forward(s, batch, leaves, true), batch);
}

/* Begins the sum of the batch norms' statistics, which comes before those of the gradients on all ranks. */
static oct_status begin_norm_sums(oct_train_step *s)
{
    const oct_leaves *leaves = &s->context->leaves;
    const int64_t numel = oct_norm_notes_numel(s->context);
    const size_t room = (size_t)(oct_max_i64(leaves->local, 1) * numel);
    if (numel == 0) return OCT_OK;
    OCT_TRY(oct_grow(&s->notes, &s->notes_capacity, room, sizeof *s->notes));
    oct_norm_notes_fold(s->context, s->notes);
    return s->group->sum_begin(s->group, leaves, s->notes, numel, numel);
}

/* Moves the batch norms' running values after the sums are finished. */
static oct_status move_running_values(oct_train_step *s)
{
    oct_norm_notes_take(s->context, s->notes);
    return oct_context_status(s->context);
}

/* Sums the batch norms' statistics and moves the running values at once, for a forward that learns nothing. */
static oct_status sum_norm_statistics(oct_train_step *s)
{
    if (oct_norm_notes_numel(s->context) == 0) return OCT_OK;
    OCT_TRY(begin_norm_sums(s));
    OCT_TRY(s->group->sums_finish(s->group));
    return move_running_values(s);
}

/* Called between the operations of a backward: gradients that are there go to the other ranks while it makes more. */
static void sum_gradients_meanwhile(oct_context *cx, void *user)
{
    oct_train_step *s = user;
    oct_module *module = cx->module;
    if (cx->status != OCT_OK) return;
    cx->module = NULL; /* whose backward it is has nothing to do with it */
    oct_context_adopt(cx, oct_params_begin_allreduce(&s->params, s->group, &cx->leaves));
    oct_context_adopt(cx, s->group->sums_move(s->group));
    cx->module = module;
}

/* Runs the backward. After a failure it finishes the sums that have begun, since the other ranks are in them. */
static oct_status run_backward(oct_train_step *s, oct_tensor *loss)
{
    oct_context *cx = s->context;
    char what[512];
    cx->meanwhile = sum_gradients_meanwhile;
    cx->meanwhile_user = s;
    const oct_status status = oct_backward(cx, loss);
    cx->meanwhile = NULL;
    if (status == OCT_OK) return OCT_OK;
    snprintf(what, sizeof what, "%s", oct_error_message(0));
    return s->group->sums_finish(s->group) == OCT_OK ? status : oct_fail(status, "%s", what);
}

/* Runs forward, loss and backward of a batch, while the sums of gradients begin. */
static oct_status make_gradients(oct_train_step *s, const oct_batch *batch)
{
    const oct_leaves leaves = split_batch(s, batch->shape[0].dim[0]);
    int64_t nothing = 0;
    oct_tensor *loss = run_forward_and_loss(s, batch, &leaves);
    OCT_TRY(oct_context_status(s->context));
    /* The backward writes where other ranks of the host may still read the last totals, so ranks synchronize before
     * it unless the sum of the loss has done so (a loss of parameters alone has no sum). */
    if (!s->context->met) OCT_TRY(s->group->max_i64(s->group, &nothing, 1));
    OCT_TRY(begin_norm_sums(s));
    return run_backward(s, loss);
}

/* Begins the audit of a batch, after which any rank can compute one leaf of it again: keeps the sums before the
 * batch, has the leaf watched on the rank that has it, and records through `face` what the ranks send each other. */
static void open_audit(oct_train_step *s, const oct_batch *batch)
{
    oct_step_audit *audit = &s->audit;
    if (!audit->on || s->sums.done != audit->batch) return;
    const oct_leaves own = split_batch(s, batch->shape[0].dim[0]);
    const int64_t leaf = audit->leaf - own.first;
    audit->sums = s->sums;
    audit->watch = (oct_leaf_watch){.active = leaf >= 0 && leaf < own.local, .leaf = leaf};
    oct_replay_begin(&audit->replay, s->group);
    s->context->group = &audit->replay.face;
}

/* Makes the gradients of a batch, summed over all ranks, and adds its figures to s->sums. */
static oct_status learn_batch(oct_train_step *s, const oct_batch *batch)
{
    open_audit(s, batch);
    const oct_status status = make_gradients(s, batch);
    if (s->context->group != s->group) { /* audited */
        s->context->group = s->group;
        s->audit.digest = s->context->watch.digest;
        s->audit.watch = (oct_leaf_watch){0};
    }
    OCT_TRY(status);
    OCT_TRY(oct_params_reduce(&s->params, s->group, &s->context->leaves));
    return move_running_values(s);
}

/* Makes the gradients of the audited leaf alone, as the only one of a single rank. */
static oct_status learn_leaf(oct_train_step *s, const oct_batch *batch)
{
    oct_leaves leaf = oct_leaves_split(batch->shape[0].dim[0], s->leaf, 0, 1);
    leaf.first = s->audit.leaf;
    leaf.local = 1;
    oct_tensor *loss = run_forward_and_loss(s, batch, &leaf);
    OCT_TRY(oct_context_status(s->context));
    return oct_backward(s->context, loss);
}

/* Runs the forward of a batch that nothing is learned from; y (may be NULL) gets the outputs of this rank's samples. */
static oct_status forward_batch(oct_train_step *s, const oct_batch *batch, void *y)
{
    const oct_leaves leaves = split_batch(s, batch->shape[0].dim[0]);
    const oct_tensor *output = run_forward(s, batch, &leaves, false);
    OCT_TRY(oct_context_status(s->context));
    OCT_CHECK(!oct_is_codes(output), OCT_USAGE,
              "the model's output is codes; put a DeQuantStub at its end");
    if (y) memcpy(y, output->data, (size_t)oct_numel(output) * oct_dtype_bytes(output->dtype));
    return sum_norm_statistics(s);
}

/* Computes loss and metric of a batch that nothing is learned from. y: the n outputs of each of this rank's samples, if
 * the caller has run the forward already; or NULL. */
static oct_status observe_batch(oct_train_step *s, const oct_batch *batch, float *y, int64_t n)
{
    const oct_leaves leaves = split_batch(s, batch->shape[0].dim[0]);
    const bool goals = batch->labels || batch->targets;
    oct_tensor *outputs;
    if (y) {
        begin_pass(s, &leaves, false);
        const int64_t samples = oct_leaves_local_samples(&s->context->leaves);
        const int64_t rows = batch->rows > 0 ? batch->rows : 1;
        const oct_shape shape =
            rows > 1 ? OCT_SHAPE(samples, rows, n / rows) : OCT_SHAPE(samples, n);
        outputs = oct_tensor_view(s->context, OCT_F32, shape, y);
    } else {
        outputs = run_forward(s, batch, &leaves, false);
    }
    if (goals || !outputs || outputs->shape.ndim == 0) {
        compute_loss(s, outputs, batch);
    } else { /* ranges need no goals; without them there is neither loss nor metric */
        const oct_loss none = {.counted = (double)leaves.samples,
                               .divisor = (double)s->sums.samples,
                               .metric = (double)NAN};
        add_figures(&s->sums, leaves.samples, &none, (double)NAN);
    }
    OCT_TRY(oct_context_status(s->context));
    return sum_norm_statistics(s);
}

/* The calls. */

/* Checks that batches come as oct_train_step_begin announced them; batch NULL: that all of them have come. */
static oct_status check_announced(const oct_train_step *s, const oct_batch *batch)
{
    const oct_step_sums *sums = &s->sums;
    OCT_TRY(oct_check_rounding());
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

OCT_CLONES
static void add_left_neighbour(float *restrict sum, const float *restrict left, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] = left[i] + sum[i];
}

/* Sums gradients of batches along a binary tree: adds to those of the batch just counted the sums that wait to its left
 * and are complete with it (oct_tree_merges); the result then waits itself, unless the batch is the last. */
static void add_waiting_gradients(oct_train_step *s)
{
    oct_step_sums *sums = &s->sums;
    const int64_t n = s->params.numel;
    if (sums->batches == 1) return;
    float *grads = oct_params_own_grads(&s->params);
    for (int merges = oct_tree_merges(sums->done - 1, sums->batches); merges > 0; merges--)
        add_left_neighbour(grads, s->waiting + --sums->waiting * n, n);
    if (sums->done == sums->batches) return;
    memcpy(s->waiting + sums->waiting++ * n, grads, (size_t)n * sizeof(float));
}

/* What a step reports, but for the norm of its gradients. */
static oct_step_result report_step(const oct_train_step *s)
{
    const oct_step_sums *sums = &s->sums;
    return (oct_step_result){.loss = sums->skipped ? (double)NAN : sums->loss,
                             .metric = sums->skipped ? (double)NAN : sums->metric,
                             .samples = sums->skipped ? sums->samples : sums->seen,
                             .grad_norm = (double)NAN,
                             .skipped = sums->skipped};
}

/* Updates the parameters by the summed gradients of all batches of an update, then ranges and averages. */
static oct_status update_parameters(oct_train_step *s, oct_step_result *result)
{
    const oct_step_sums *sums = &s->sums;
    /* Rows that count differently have a weight that is known now. */
    if (sums->batches > 1 && sums->weight > 0 && sums->weight != sums->divisor)
        oct_params_scale_grads(&s->params, (float)(sums->divisor / sums->weight));
    OCT_TRY(oct_quantizers_backward(&s->quantizers));
    *result = report_step(s);
    OCT_TRY(oct_step_reduce_control(s, oct_params_find_bad(&s->params, true)));
    result->grad_norm = oct_optim_step(&s->optim, &s->params, s->sums.lr);
    const int64_t bad_value = oct_params_find_bad(&s->params, false);
    if (bad_value >= 0) return oct_params_fail(&s->params, bad_value, false, s->root);
    OCT_TRY(oct_step_update_observers(s, true));
    oct_average_update(&s->optim.average, s->optim.updates);
    return OCT_OK;
}

/* A call that fails discards what its observers have seen. */
static oct_status end_call(oct_train_step *s, oct_status status)
{
    if (status != OCT_OK) oct_quantizers_discard_batch(&s->quantizers);
    return status;
}

/* Ends a call that learns; a failure by a number that is not finite names a remedy, a lower learning rate. */
static oct_status end_learning(oct_train_step *s, oct_status status)
{
    char what[512];
    if (end_call(s, status) != OCT_NUMERIC) return status;
    snprintf(what, sizeof what, "%s", oct_error_message(0));
    return oct_fail(OCT_NUMERIC, "%s; lower the learning rate (now %g)", what, (double)s->sums.lr);
}

/* With nonfinite: skip, undoes a step that has failed by NaN or infinity, keeps the reason in s->why, and returns OCT_OK.
 * Such numbers appear on all ranks in the same step, so all of them undo it. */
static oct_status skip_nonfinite(oct_train_step *s, oct_status status)
{
    if (status != OCT_NUMERIC || s->nonfinite != OCT_NONFINITE_SKIP) return status;
    snprintf(s->why, sizeof s->why, "%s", oct_error_message(0));
    oct_fail_clear();
    oct_step_swap_state(s);
    s->sums.skipped = true;
    return OCT_OK;
}

oct_status oct_train_step_accumulate(oct_train_step *step, const oct_batch *batch)
{
    OCT_TRY(oct_step_check_learning(step, batch));
    OCT_TRY(check_announced(step, batch));
    if (step->sums.skipped) return OCT_OK;
    const oct_status status = learn_batch(step, batch);
    if (status == OCT_OK) add_waiting_gradients(step);
    return skip_nonfinite(step, end_learning(step, status));
}

oct_status oct_train_step_update(oct_train_step *step, oct_step_result *result)
{
    OCT_TRY(check_announced(step, NULL));
    OCT_TRY(step->sums.skipped
                ? oct_step_reduce_flags(step)
                : skip_nonfinite(step, end_learning(step, update_parameters(step, result))));
    if (step->sums.skipped) *result = report_step(step);
    step->update++;
    return OCT_OK;
}

oct_status oct_train_step_run(oct_train_step *step, const oct_batch *batch, float lr,
                              oct_step_result *result)
{
    OCT_TRY(oct_step_check_learning(step, batch));
    OCT_TRY(oct_train_step_begin(step, 1, batch->shape[0].dim[0], lr));
    OCT_TRY(oct_train_step_accumulate(step, batch));
    return oct_train_step_update(step, result);
}

static oct_status update_ranges(oct_train_step *s)
{
    OCT_TRY(oct_step_reduce_control(s, -1));
    return oct_step_update_observers(s, false);
}

oct_status oct_train_step_forward(oct_train_step *step, const oct_batch *batch, void *y)
{
    OCT_TRY(oct_step_check_batch(step, batch));
    oct_status status = forward_batch(step, batch, y);
    if (status == OCT_OK) status = update_ranges(step);
    return end_call(step, status);
}

oct_status oct_train_step_evaluate_add(oct_train_step *step, const oct_batch *batch, float *y,
                                       int64_t n)
{
    OCT_TRY(oct_step_check_batch(step, batch));
    OCT_TRY(check_announced(step, batch));
    if (step->sums.skipped) return OCT_OK;
    return skip_nonfinite(step, end_call(step, observe_batch(step, batch, y, n)));
}

oct_status oct_train_step_evaluate_end(oct_train_step *step, oct_step_result *result)
{
    OCT_TRY(check_announced(step, NULL));
    OCT_TRY(step->sums.skipped ? oct_step_reduce_flags(step)
                               : skip_nonfinite(step, end_call(step, update_ranges(step))));
    *result = report_step(step);
    return OCT_OK;
}

oct_status oct_train_step_evaluate(oct_train_step *step, const oct_batch *batch, float *y,
                                   int64_t n, oct_step_result *result)
{
    OCT_TRY(oct_step_check_batch(step, batch));
    OCT_TRY(oct_train_step_begin(step, 1, batch->shape[0].dim[0], 0));
    OCT_TRY(oct_train_step_evaluate_add(step, batch, y, n));
    return oct_train_step_evaluate_end(step, result);
}

/* A leaf is computed again with what decides its bits: the state before the step, its samples, the number of the
 * update, and the sums over the whole batch that its batch norms and its loss have used. It has the same bits alone
 * and with other leaves, and for any number of ranks. */
oct_status oct_train_step_replay_leaf(oct_train_step *step, const oct_batch *batch,
                                      uint64_t *digest)
{
    oct_step_audit *audit = &step->audit;
    oct_context *cx = step->context;
    const oct_step_sums sums = step->sums;
    OCT_CHECK(audit->on && audit->batch < sums.done && !sums.skipped, OCT_USAGE,
              "a leaf is computed again after a step with an audit");
    oct_step_swap_state(step);
    step->sums = audit->sums;
    step->update--;
    audit->watch = (oct_leaf_watch){.active = true};
    oct_replay_begin(&audit->replay, NULL);
    cx->group = &audit->replay.face;
    oct_params_put_parts(&step->params, true);
    const oct_status status = learn_leaf(step, batch);
    oct_params_put_parts(&step->params, false);
    *digest = cx->watch.digest;
    cx->group = step->group;
    audit->watch = (oct_leaf_watch){0};
    step->update++;
    step->sums = sums;
    oct_quantizers_discard_batch(&step->quantizers);
    oct_step_swap_state(step);
    return status;
}
