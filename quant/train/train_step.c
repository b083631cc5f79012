/* The calls of a training step in their order. */
#include "quant/train/train_step_impl.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/op/norm_groups.h"
#include "core/optim/clip.h"
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

static oct_leaves split_batch(const oct_train_step *s, int64_t samples)
{
    return oct_leaves_split(samples, s->leaf, s->group->rank, s->group->size);
}

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
    const oct_leaves full = split_batch(step, step->batch);
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

/* A step on a tree that has changed would train what has left it, and leave new quantizers without
 * ranges. */
static oct_status check_bound(const oct_train_step *s)
{
    OCT_CHECK(oct_graph_of(s->root) == s->graph && oct_params_are_of(&s->params, s->root),
              OCT_USAGE,
              "the model has changed since its parameters were bound (prepare, folding); call "
              "oct_train_step_rebind first");
    return OCT_OK;
}

static oct_status check_inputs(const oct_train_step *s, const oct_batch *b)
{
    char one[96], two[96];
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
    return OCT_OK;
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

static oct_status check(const oct_train_step *s, const oct_batch *b)
{
    OCT_TRY(check_bound(s));
    OCT_TRY(check_inputs(s, b));
    return check_goals(s->loss.kind, b);
}

/* Gradients are summed in rows that were made for the largest batch. */
static oct_status check_step(const oct_train_step *s, const oct_batch *b)
{
    OCT_TRY(check(s, b));
    OCT_CHECK(b->shape[0].dim[0] <= s->batch, OCT_USAGE,
              "a batch of %lld samples, but the training step was made for at most %lld; give "
              "oct_train_step_create the largest batch",
              (long long)b->shape[0].dim[0], (long long)s->batch);
    OCT_CHECK(oct_params_are_bound(&s->params), OCT_USAGE,
              "another training step has taken the model's parameters since; call "
              "oct_train_step_rebind, which starts the optimizer anew, or run that one");
    return OCT_OK;
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

static oct_goals goals_of(const oct_batch *b)
{
    return (oct_goals){.labels = b->labels,
                       .values = b->probabilities,
                       .teacher = b->teacher,
                       .rows = b->rows,
                       .ignores = b->ignores,
                       .ignored = b->ignored};
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
        const oct_goals goals = goals_of(b);
        y = oct_loss_apply(cx, &spec, y, &goals, &loss);
        mean = loss.loss_sum / loss.weight;
    }
    if (cx->status != OCT_OK) return NULL;
    if (!isfinite(mean)) return oct_context_fail(cx, OCT_NUMERIC, "the loss is not finite");
    add_figures(&s->sums, samples, &loss, mean);
    return y;
}

oct_tensor *oct_step_loss(oct_train_step *s, const oct_batch *batch, const oct_leaves *leaves)
{
    oct_params_zero(&s->params);
    return compute_loss(s, run_forward(s, batch, leaves, true), batch);
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
    if (bad > 0) return oct_params_fail_grad(&s->params, count - bad, s->root);
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
        OCT_TRY(oct_step_undo_create(&step->undo, &step->state));
        oct_step_undo_keep(&step->undo, &step->optim);
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

/* The backward writes where other ranks of the host may still read the last totals, so ranks synchronize before it
 * unless the sum of the loss has done so (a loss of parameters alone has no sum). */
static oct_status synchronize(const oct_train_step *s)
{
    int64_t nothing = 0;
    return s->context->met ? OCT_OK : s->group->max_i64(s->group, &nothing, 1);
}

static oct_status make_gradients(oct_train_step *s, const oct_batch *batch)
{
    const oct_leaves leaves = split_batch(s, batch->shape[0].dim[0]);
    oct_tensor *loss = oct_step_loss(s, batch, &leaves);
    OCT_TRY(oct_context_status(s->context));
    OCT_TRY(synchronize(s));
    OCT_TRY(begin_norm_sums(s));
    return run_backward(s, loss);
}

static oct_status learn_batch(oct_train_step *s, const oct_batch *batch)
{
    oct_context *cx = s->context;
    oct_step_audit_open(s, batch);
    const oct_status status = make_gradients(s, batch);
    oct_step_audit_close(s);
    OCT_TRY(status);
    OCT_TRY(oct_params_reduce(&s->params, s->group, &cx->leaves));
    OCT_TRY(move_running_values(s));
    add_waiting_gradients(s);
    return OCT_OK;
}

/* Rows that count differently have a weight that is known now. */
static void weigh_gradients(oct_train_step *s)
{
    const oct_step_sums *sums = &s->sums;
    if (sums->batches > 1 && sums->weight > 0 && sums->weight != sums->divisor)
        oct_params_scale_grads(&s->params, (float)(sums->divisor / sums->weight));
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
    const double most = (double)s->config.clip_norm;
    weigh_gradients(s);
    OCT_TRY(oct_quantizers_backward(&s->quantizers));
    report_step(s, result);
    OCT_TRY(control_reduce(s, oct_params_find_bad_grad(&s->params)));
    if (most > 0) result->grad_norm = oct_clip_grads(&s->params, most);
    oct_optim_step(&s->optim, &s->params, s->sums.lr);
    OCT_TRY(oct_params_check_values(&s->params, s->root));
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
    oct_step_undo_put_back(&s->undo, &s->optim);
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
    return skip_nonfinite(step, end_learning(step, learn_batch(step, batch)));
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

static oct_status compute_outputs(oct_train_step *s, const oct_batch *batch, void *y)
{
    const oct_leaves leaves = split_batch(s, batch->shape[0].dim[0]);
    const oct_tensor *output = run_forward(s, batch, &leaves, false);
    OCT_TRY(oct_context_status(s->context));
    OCT_CHECK(!oct_is_codes(output), OCT_USAGE,
              "the model's output is codes; put a DeQuantStub at its end");
    if (y) memcpy(y, output->data, (size_t)oct_numel(output) * oct_dtype_bytes(output->dtype));
    OCT_TRY(sum_norm_statistics(s));
    OCT_TRY(control_reduce(s, -1));
    return update_observers(s);
}

oct_status oct_train_step_forward(oct_train_step *step, const oct_batch *batch, void *y)
{
    OCT_TRY(check(step, batch));
    return end_call(step, compute_outputs(step, batch, y));
}

static oct_tensor *view_outputs(oct_train_step *s, const oct_batch *batch, float *y, int64_t n)
{
    const oct_leaves leaves = split_batch(s, batch->shape[0].dim[0]);
    begin_pass(s, &leaves, false);
    const int64_t samples = oct_leaves_local_samples(&s->context->leaves);
    const int64_t rows = batch->rows > 0 ? batch->rows : 1;
    const oct_shape shape = rows > 1 ? OCT_SHAPE(samples, rows, n / rows) : OCT_SHAPE(samples, n);
    return oct_tensor_view(s->context, OCT_F32, shape, y);
}

/* Ranges need no goals; without them there is neither loss nor metric. */
static void count_without_loss(oct_train_step *s)
{
    const int64_t samples = s->context->leaves.samples;
    const oct_loss none = {
        .counted = (double)samples, .divisor = (double)s->sums.samples, .metric = (double)NAN};
    add_figures(&s->sums, samples, &none, (double)NAN);
}

static oct_status observe_batch(oct_train_step *s, const oct_batch *batch, float *y, int64_t n)
{
    const oct_leaves leaves = split_batch(s, batch->shape[0].dim[0]);
    const bool goals = batch->labels || batch->probabilities;
    oct_tensor *outputs = y ? view_outputs(s, batch, y, n) : run_forward(s, batch, &leaves, false);
    if (goals || !outputs || outputs->shape.ndim == 0)
        compute_loss(s, outputs, batch);
    else
        count_without_loss(s);
    OCT_TRY(oct_context_status(s->context));
    return sum_norm_statistics(s);
}

static oct_status update_observed(oct_train_step *s, oct_step_result *result)
{
    OCT_TRY(control_reduce(s, -1));
    report_step(s, result);
    return update_observers(s);
}

oct_status oct_train_step_look(oct_train_step *step, const oct_batch *batch, float *y, int64_t n)
{
    OCT_TRY(check(step, batch));
    OCT_TRY(check_sums(step, batch));
    if (step->sums.skipped) return OCT_OK;
    return skip_nonfinite(step, end_call(step, observe_batch(step, batch, y, n)));
}

oct_status oct_train_step_observed(oct_train_step *step, oct_step_result *result)
{
    OCT_TRY(check_sums(step, NULL));
    OCT_TRY(step->sums.skipped
                ? reduce_words(step)
                : skip_nonfinite(step, end_call(step, update_observed(step, result))));
    if (step->sums.skipped) report_skipped(step, result);
    return OCT_OK;
}

oct_status oct_train_step_observe(oct_train_step *step, const oct_batch *batch, float *y, int64_t n,
                                  oct_step_result *result)
{
    OCT_TRY(check(step, batch));
    OCT_TRY(oct_train_step_begin(step, 1, batch->shape[0].dim[0], 0));
    OCT_TRY(skip_nonfinite(step, end_call(step, observe_batch(step, batch, y, n))));
    return oct_train_step_observed(step, result);
}
