/* What one batch computes: its checks, forward, loss and backward, and one leaf of it again. */
#include "quant/train/step_batch.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/op/norm_groups.h"
#include "quant/graph/graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static oct_leaves split_batch(const oct_train_step *s, int64_t samples)
{
    return oct_leaves_split(samples, s->leaf, s->group->rank, s->group->size);
}

static oct_status check_goals(const oct_loss_kind *loss, const oct_batch *b)
{
    const bool both = b->labels && b->probabilities;
    if (!b->labels && !b->probabilities) return OCT_OK;
    OCT_CHECK(!both || loss->takes & OCT_LOSS_OF_BOTH, OCT_USAGE,
              "a batch has labels or probabilities of classes, but this one has both");
    OCT_CHECK(both || loss->takes & (b->labels ? OCT_LOSS_OF_LABELS : OCT_LOSS_OF_VALUES),
              OCT_USAGE, "the loss %s does not take %s", loss->name,
              b->labels ? "labels" : "values for each output");
    OCT_CHECK(!b->teacher || loss->uses & OCT_LOSS_USES_TEACHER, OCT_USAGE,
              "the loss %s does not take a teacher's outputs", loss->name);
    return OCT_OK;
}

oct_status oct_step_batch_check(const oct_train_step *s, const oct_batch *b)
{
    char one[96], two[96];
    /* A step on a tree that has changed would train what has left it, and leave new quantizers without ranges. */
    OCT_CHECK(oct_graph_of(s->root) == s->graph && oct_params_are_of(&s->params, s->root),
              OCT_USAGE,
              "the model has changed since its parameters were bound (prepare, folding); call "
              "oct_train_step_rebind first");
    OCT_CHECK(b->num_inputs >= 1 && b->num_inputs <= OCT_MODEL_INPUTS, OCT_USAGE,
              "a batch has 1 to %d inputs, but this one has %d", OCT_MODEL_INPUTS, b->num_inputs);
    for (int i = 0; i < b->num_inputs; i++)
        OCT_CHECK(b->shape[i].ndim >= 1 && b->shape[i].dim[0] == b->shape[0].dim[0] &&
                      oct_shape_numel(&b->shape[i]) > 0,
                  OCT_USAGE,
                  "the inputs of a batch have its samples in front, but input 0 is %s and input %d "
                  "is %s",
                  oct_shape_text(&b->shape[0], one), i, oct_shape_text(&b->shape[i], two));
    const oct_leaves leaves = split_batch(s, b->shape[0].dim[0]);
    for (int i = 0; i < b->num_inputs; i++)
        OCT_CHECK(b->input[i] || oct_leaves_local_samples(&leaves) == 0, OCT_USAGE,
                  "the array of the batch's input %d is missing", i);
    return check_goals(s->loss.kind, b);
}

static void begin_pass(oct_train_step *s, const oct_leaves *leaves, bool learn)
{
    s->context->numerics = s->numerics;
    s->context->norm_group = s->norm_group;
    s->context->norm_share_all = s->context->group != s->group;
    s->context->release_on_backward = true;
    oct_context_begin(s->context, *leaves, learn);
    s->context->draws = (oct_draws){
        .active = learn, .seed = s->seed, .update = s->update, .first_sample = s->sums.seen};
    s->context->watch = s->audit.watch;
}

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

/* Takes the figures of a batch into those of the update; of a single one they stay as they are. */
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
static oct_tensor *take_returned_loss(oct_train_step *s, oct_tensor *y, double *mean)
{
    char text[96];
    oct_context *cx = s->context;
    if (!oct_inputs_ok(cx, &y, 1)) return NULL;
    if (y->dtype != OCT_F32 || y->shape.ndim != 0)
        return oct_context_fail(cx, OCT_USAGE,
                                "the batch has neither labels nor probabilities, so the forward "
                                "must return its loss, one number, but it returns %s %s",
                                oct_dtype_name(y->dtype), oct_shape_text(&y->shape, text));
    if (!y->needs_grad)
        return oct_context_fail(cx, OCT_USAGE,
                                "the loss that the forward returns depends on no "
                                "parameter, so there is nothing to learn");
    *mean = (double)oct_f32(y)[0];
    float *one = oct_grad_new(cx, y);
    if (!one) return NULL;
    *one = (float)((double)cx->leaves.samples / (double)s->sums.samples);
    oct_add_grad(cx, y, one);
    return y;
}

/* The loss of a batch, whose figures are added to the update's. Without labels and probabilities the forward has
 * returned the loss; otherwise the loss function computes it from the outputs y. */
static oct_tensor *compute_loss(oct_train_step *s, oct_tensor *y, const oct_batch *b)
{
    oct_context *cx = s->context;
    const int64_t samples = cx->leaves.samples;
    oct_loss_spec spec = s->loss;
    double mean = 0;
    oct_loss loss = {
        .counted = (double)samples, .divisor = (double)s->sums.samples, .metric = (double)NAN};
    if (!b->labels && !b->probabilities) {
        y = take_returned_loss(s, y, &mean);
    } else {
        if (oct_inputs_ok(cx, &y, 1) && y->shape.ndim == 0)
            return oct_context_fail(cx, OCT_USAGE,
                                    "the forward returns its loss already, so the batch "
                                    "must have neither labels nor probabilities");
        if (s->sums.batches > 1) spec.divisor_samples = s->sums.samples;
        const oct_goals goals = {.labels = b->labels,
                                 .values = b->probabilities,
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

/* The loss of these leaves of a batch, for a backward to start from; NULL with the context failed. */
static oct_tensor *learn_loss(oct_train_step *s, const oct_batch *batch, const oct_leaves *leaves)
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

/* Moves the running values after the sums are finished. */
static oct_status move_running_values(oct_train_step *s)
{
    oct_norm_notes_take(s->context, s->notes);
    return oct_context_status(s->context);
}

/* Does both for a forward that learns nothing. */
static oct_status sum_norm_statistics(oct_train_step *s)
{
    if (oct_norm_notes_numel(s->context) == 0) return OCT_OK;
    OCT_TRY(begin_norm_sums(s));
    OCT_TRY(s->group->sums_finish(s->group));
    return move_running_values(s);
}

/* Gradients that are there go to the other ranks while the backward makes more. */
static void sum_meanwhile(oct_context *cx, void *user)
{
    oct_train_step *s = user;
    oct_module *module = cx->module;
    if (cx->status != OCT_OK) return;
    cx->module = NULL; /* whose backward it is has nothing to do with it */
    oct_context_adopt(cx, oct_params_begin_allreduce(&s->params, s->group, &cx->leaves));
    oct_context_adopt(cx, s->group->sums_move(s->group));
    cx->module = module;
}

/* After a failure the sums that have begun come to their end: the other ranks are in them. */
static oct_status run_backward(oct_train_step *s, oct_tensor *loss)
{
    oct_context *cx = s->context;
    char what[512];
    cx->meanwhile = sum_meanwhile;
    cx->meanwhile_user = s;
    const oct_status status = oct_backward(cx, loss);
    cx->meanwhile = NULL;
    if (status == OCT_OK) return OCT_OK;
    snprintf(what, sizeof what, "%s", oct_fail_text(0));
    return s->group->sums_finish(s->group) == OCT_OK ? status : oct_fail(status, "%s", what);
}

static oct_status make_gradients(oct_train_step *s, const oct_batch *batch)
{
    const oct_leaves leaves = split_batch(s, batch->shape[0].dim[0]);
    int64_t nothing = 0;
    oct_tensor *loss = learn_loss(s, batch, &leaves);
    OCT_TRY(oct_context_status(s->context));
    /* The backward writes where other ranks of the host may still read the last totals, so ranks synchronize before
     * it unless the sum of the loss has done so (a loss of parameters alone has no sum). */
    if (!s->context->met) OCT_TRY(s->group->max_i64(s->group, &nothing, 1));
    OCT_TRY(begin_norm_sums(s));
    return run_backward(s, loss);
}

/* Records what the ranks send each other in the batch of the audit, and watches its leaf on the rank that has it. */
static void open_audit(oct_train_step *s, const oct_batch *batch)
{
    oct_step_audit *audit = &s->audit;
    if (!audit->on || s->sums.done != audit->batch) return;
    const oct_leaves here = split_batch(s, batch->shape[0].dim[0]);
    const int64_t leaf = audit->leaf - here.first;
    audit->sums = s->sums;
    audit->watch = (oct_leaf_watch){.active = leaf >= 0 && leaf < here.local, .leaf = leaf};
    oct_replay_begin(&audit->replay, s->group);
    s->context->group = &audit->replay.face;
}

static void close_audit(oct_train_step *s)
{
    oct_step_audit *audit = &s->audit;
    if (s->context->group == s->group) return;
    s->context->group = s->group;
    audit->digest = s->context->watch.digest;
    audit->watch = (oct_leaf_watch){0};
}

oct_status oct_step_batch_learn(oct_train_step *s, const oct_batch *batch)
{
    open_audit(s, batch);
    const oct_status status = make_gradients(s, batch);
    close_audit(s);
    OCT_TRY(status);
    OCT_TRY(oct_params_reduce(&s->params, s->group, &s->context->leaves));
    return move_running_values(s);
}

/* Computes the audited leaf alone, as the only one of a single rank. */
static oct_status compute_leaf(oct_train_step *s, const oct_batch *batch)
{
    oct_leaves leaf = oct_leaves_split(batch->shape[0].dim[0], s->leaf, 0, 1);
    leaf.first = s->audit.leaf;
    leaf.local = 1;
    oct_tensor *loss = learn_loss(s, batch, &leaf);
    OCT_TRY(oct_context_status(s->context));
    return oct_backward(s->context, loss);
}

/* A leaf is computed again with what decides its bits: the state before the step, its samples, the number of the
 * update, and the sums over the whole batch that its batch norms and its loss have used. It has the same bits alone
 * and with other leaves, and for any number of ranks. */
oct_status oct_train_step_again(oct_train_step *step, const oct_batch *batch, uint64_t *digest)
{
    oct_step_audit *audit = &step->audit;
    oct_context *cx = step->context;
    const oct_step_sums sums = step->sums;
    OCT_CHECK(audit->on && audit->batch < sums.done && !sums.skipped, OCT_USAGE,
              "a leaf is computed again after a step with an audit");
    oct_step_undo_swap(&step->undo, &step->optim);
    step->sums = audit->sums;
    step->update--;
    audit->watch = (oct_leaf_watch){.active = true};
    oct_replay_begin(&audit->replay, NULL);
    cx->group = &audit->replay.face;
    oct_params_put_parts(&step->params, true);
    const oct_status status = compute_leaf(step, batch);
    oct_params_put_parts(&step->params, false);
    *digest = cx->watch.digest;
    cx->group = step->group;
    audit->watch = (oct_leaf_watch){0};
    step->update++;
    step->sums = sums;
    oct_quantizers_discard_batch(&step->quantizers);
    oct_step_undo_swap(&step->undo, &step->optim);
    return status;
}

oct_status oct_step_batch_forward(oct_train_step *s, const oct_batch *batch, void *y)
{
    const oct_leaves leaves = split_batch(s, batch->shape[0].dim[0]);
    const oct_tensor *output = run_forward(s, batch, &leaves, false);
    OCT_TRY(oct_context_status(s->context));
    OCT_CHECK(!oct_is_codes(output), OCT_USAGE,
              "the model's output is codes; put a DeQuantStub at its end");
    if (y) memcpy(y, output->data, (size_t)oct_numel(output) * oct_dtype_bytes(output->dtype));
    return sum_norm_statistics(s);
}

oct_status oct_step_batch_observe(oct_train_step *s, const oct_batch *batch, float *y, int64_t n)
{
    const oct_leaves leaves = split_batch(s, batch->shape[0].dim[0]);
    const bool goals = batch->labels || batch->probabilities;
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
