/* The calls of a training step in their order. */
#include "quant/train_step.h"

#include "core/base/mem.h"
#include "quant/pass/graph/graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The numbers of the control reduction; the observers' keys follow. */
enum {
    CONTROL_NOT_FINITE,
    CONTROL_WORDS,
    CONTROL_KEYS = CONTROL_WORDS + OCT_STEP_WORDS,
};

static oct_leaves split(const oct_train_step *s, int64_t samples)
{
    return oct_leaves_split(samples, s->leaf, s->group->rank, s->group->size);
}

static void unbind(oct_train_step *s)
{
    oct_free(&s->control);
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
    const oct_leaves full = split(step, step->batch);
    unbind(step);
    step->root = root;
    step->graph = oct_graph_of(root);
    OCT_TRY(oct_train_step_renew_memory(step));
    OCT_TRY(oct_params_bind(&step->params, root, &full));
    OCT_TRY(oct_optim_create(&step->optim, &step->config, &step->params));
    OCT_TRY(oct_quantizers_collect(&step->quantizers, root));
    return oct_alloc(&step->control, CONTROL_KEYS + 2 * step->quantizers.count, sizeof(int64_t));
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
    unbind(step);
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
    OCT_CHECK(b->num_inputs >= 1 && b->num_inputs <= OCT_MAX_INPUTS, OCT_USAGE,
              "a batch has 1 to %d inputs, but this one has %d", OCT_MAX_INPUTS, b->num_inputs);
    for (int i = 0; i < b->num_inputs; i++)
        OCT_CHECK(b->shape[i].ndim >= 1 && b->shape[i].dim[0] == b->shape[0].dim[0] &&
                      oct_shape_numel(&b->shape[i]) > 0,
                  OCT_USAGE,
                  "the inputs of a batch have its samples in front, but input 0 is %s and input %d "
                  "is %s",
                  oct_shape_text(&b->shape[0], one), i, oct_shape_text(&b->shape[i], two));
    const oct_leaves leaves = split(s, b->shape[0].dim[0]);
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

static void begin(oct_train_step *s, const oct_batch *b, bool learn)
{
    s->context->numerics = s->numerics;
    s->context->release_on_backward = true;
    oct_context_begin(s->context, split(s, b->shape[0].dim[0]), learn);
}

static oct_tensor *forward(oct_train_step *s, const oct_batch *b, bool learn)
{
    oct_tensor *x[OCT_MAX_INPUTS];
    begin(s, b, learn);
    for (int i = 0; i < b->num_inputs; i++) {
        oct_shape shape = b->shape[i];
        shape.dim[0] = oct_leaves_local_samples(&s->context->leaves);
        x[i] = oct_tensor_view(s->context, OCT_F32, shape, b->input[i]);
    }
    return oct_module_call(s->context, s->root, x, b->num_inputs);
}

/* The loss that the forward itself has returned, for oct_backward to start from. */
static oct_tensor *own_loss(oct_context *cx, oct_tensor *y, oct_step_result *result)
{
    char text[96];
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
    result->loss = (double)oct_f32(y)[0];
    float *one = oct_grad_new(cx, y);
    if (!one) return NULL;
    *one = 1.0f;
    oct_give_grad(cx, y, one);
    return y;
}

static oct_tensor *loss_of(oct_train_step *s, oct_tensor *y, const oct_batch *b,
                           oct_step_result *result)
{
    oct_context *cx = s->context;
    oct_loss loss = {0};
    *result = (oct_step_result){.metric = (double)NAN, .samples = cx->leaves.samples};
    if (!b->labels && !b->probabilities) return own_loss(cx, y, result);
    if (oct_inputs_ok(cx, &y, 1) && y->shape.ndim == 0)
        return oct_context_fail(cx, OCT_USAGE,
                                "the forward returns its loss already, so the batch "
                                "must have neither labels nor probabilities");
    y = oct_loss_apply(cx, &s->loss, y, &(oct_goals){b->labels, b->probabilities}, &loss);
    result->loss = loss.loss_sum / loss.weight;
    result->metric = loss.metric;
    return y;
}

/* Behind it all ranks know the same. */
static oct_status control_reduce(oct_train_step *s, bool finite)
{
    int64_t *control = s->control, *keys = control + CONTROL_KEYS;
    control[CONTROL_NOT_FINITE] = !finite;
    memcpy(control + CONTROL_WORDS, s->word, sizeof s->word);
    oct_quantizers_keys(&s->quantizers, keys);
    OCT_TRY(s->group->max_i64(s->group, control, CONTROL_KEYS + 2 * (int64_t)s->quantizers.count));
    memcpy(s->word, control + CONTROL_WORDS, sizeof s->word);
    OCT_CHECK(!control[CONTROL_NOT_FINITE], OCT_NUMERIC, "a gradient is not finite");
    OCT_TRY(oct_quantizers_check(&s->quantizers, keys));
    return oct_quantizers_sum_counts(&s->quantizers, s->group);
}

static oct_status update_observers(oct_train_step *s)
{
    return oct_quantizers_update(&s->quantizers, s->control + CONTROL_KEYS);
}

static oct_status learn(oct_train_step *s, const oct_batch *batch, float lr,
                        oct_step_result *result)
{
    oct_context *cx = s->context;
    oct_params_zero(&s->params);
    oct_tensor *loss = loss_of(s, forward(s, batch, true), batch, result);
    OCT_TRY(oct_context_status(cx));
    OCT_CHECK(isfinite(result->loss), OCT_NUMERIC, "the loss is not finite");
    OCT_TRY(oct_backward(cx, loss));
    OCT_TRY(oct_params_reduce(&s->params, s->group, &cx->leaves));
    OCT_TRY(oct_quantizers_backward(&s->quantizers));
    OCT_TRY(control_reduce(s, oct_all_finite(s->params.grads, s->params.numel)));
    oct_optim_step(&s->optim, &s->params, lr);
    OCT_TRY(oct_params_check_values(&s->params, s->root));
    return update_observers(s);
}

/* What a call has noted and not used is forgotten with it. */
static oct_status end(oct_train_step *s, oct_status status)
{
    if (status != OCT_OK) oct_quantizers_discard_batch(&s->quantizers);
    return status;
}

oct_status oct_train_step_run(oct_train_step *step, const oct_batch *batch, float lr,
                              oct_step_result *result)
{
    char what[512];
    OCT_TRY(check_step(step, batch));
    const oct_status status = end(step, learn(step, batch, lr, result));
    if (status != OCT_NUMERIC) return status;
    snprintf(what, sizeof what, "%s", oct_fail_text(0));
    return oct_fail(OCT_NUMERIC, "%s; lower the learning rate (now %g)", what, (double)lr);
}

static oct_status show(oct_train_step *s, const oct_batch *batch, void *y)
{
    const oct_tensor *output = forward(s, batch, false);
    OCT_TRY(oct_context_status(s->context));
    OCT_CHECK(!oct_is_codes(output), OCT_USAGE,
              "the model's output is codes; put a DeQuantStub at its end");
    if (y) memcpy(y, output->data, (size_t)oct_numel(output) * oct_dtype_bytes(output->dtype));
    OCT_TRY(control_reduce(s, true));
    return update_observers(s);
}

oct_status oct_train_step_forward(oct_train_step *step, const oct_batch *batch, void *y)
{
    OCT_TRY(check(step, batch));
    return end(step, show(step, batch, y));
}

static oct_tensor *view_outputs(oct_train_step *s, const oct_batch *batch, float *y, int64_t n)
{
    begin(s, batch, false);
    const int64_t samples = oct_leaves_local_samples(&s->context->leaves);
    return oct_tensor_view(s->context, OCT_F32, OCT_SHAPE(samples, n), y);
}

static oct_status observe(oct_train_step *s, const oct_batch *batch, float *y, int64_t n,
                          oct_step_result *result)
{
    loss_of(s, y ? view_outputs(s, batch, y, n) : forward(s, batch, false), batch, result);
    OCT_TRY(oct_context_status(s->context));
    OCT_CHECK(isfinite(result->loss), OCT_NUMERIC, "the loss is not finite");
    OCT_TRY(control_reduce(s, true));
    return update_observers(s);
}

oct_status oct_train_step_observe(oct_train_step *step, const oct_batch *batch, float *y, int64_t n,
                                  oct_step_result *result)
{
    OCT_TRY(check(step, batch));
    return end(step, observe(step, batch, y, n, result));
}
