/* The calls of a training step in their order. */
#include "quant/train_step.h"

#include "core/base/mem.h"
#include "quant/pass/graph/graph.h"

#include <math.h>
#include <string.h>

static oct_leaves split(const oct_train_step *l, int64_t samples)
{
    return oct_leaves_split(samples, l->leaf, l->group->rank, l->group->size);
}

static void unbind(oct_train_step *l)
{
    oct_free(&l->keys);
    oct_quantizers_free(&l->quantizers);
    oct_optim_destroy(&l->optim);
    oct_params_unbind(&l->params);
}

oct_status oct_train_step_rebind(oct_train_step *learner, oct_module *root)
{
    oct_leaves full = split(learner, learner->batch);
    unbind(learner);
    learner->root = root;
    learner->graph = oct_graph_of(root);
    OCT_TRY(oct_params_bind(&learner->params, root, &full));
    OCT_TRY(oct_optim_create(&learner->optim, &learner->config, &learner->params));
    OCT_TRY(oct_quantizers_collect(&learner->quantizers, root));
    return oct_alloc(&learner->keys, 2 * learner->quantizers.count, sizeof(int64_t));
}

oct_status oct_train_step_create(oct_train_step *learner, oct_module *root,
                                 const oct_optim_config *config, int64_t batch, int64_t leaf,
                                 const oct_collective *group)
{
    *learner = (oct_train_step){.group = group, .config = *config, .batch = batch, .leaf = leaf};
    OCT_CHECK(batch > 0 && leaf > 0, OCT_USAGE,
              "a batch of %lld samples in leaves of %lld; both must be at least 1",
              (long long)batch, (long long)leaf);
    oct_status status = oct_context_create(&learner->context, group);
    if (status == OCT_OK) status = oct_train_step_rebind(learner, root);
    if (status != OCT_OK) oct_train_step_destroy(learner);
    return status;
}

void oct_train_step_destroy(oct_train_step *learner)
{
    unbind(learner);
    oct_context_destroy(&learner->context);
}

/* A step on a tree that has changed would train what has left it, and leave new quantizers without
 * ranges. */
static oct_status check_bound(const oct_train_step *l)
{
    OCT_CHECK(oct_graph_of(l->root) == l->graph && oct_params_are_of(&l->params, l->root),
              OCT_USAGE,
              "the model has changed since its parameters were bound (prepare, folding); call "
              "oct_train_step_rebind first");
    return OCT_OK;
}

static oct_status check_batch(const oct_train_step *l, const oct_batch *b)
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
    const oct_leaves leaves = split(l, b->shape[0].dim[0]);
    for (int i = 0; i < b->num_inputs; i++)
        OCT_CHECK(b->input[i] || oct_leaves_local_samples(&leaves) == 0, OCT_USAGE,
                  "the array of the batch's input %d is missing", i);
    OCT_CHECK(!b->labels || !b->probabilities, OCT_USAGE,
              "a batch has labels or probabilities of classes, but this one has both");
    return OCT_OK;
}

static oct_status check(const oct_train_step *l, const oct_batch *b)
{
    OCT_TRY(check_bound(l));
    return check_batch(l, b);
}

/* Gradients are summed in rows that were made for the largest batch. */
static oct_status check_step(const oct_train_step *l, const oct_batch *b)
{
    OCT_TRY(check(l, b));
    OCT_CHECK(b->shape[0].dim[0] <= l->batch, OCT_USAGE,
              "a batch of %lld samples, but the learner was made for at most %lld; give "
              "oct_train_step_create the largest batch",
              (long long)b->shape[0].dim[0], (long long)l->batch);
    OCT_CHECK(oct_params_are_bound(&l->params), OCT_USAGE,
              "another learner has taken the model's parameters since; call oct_train_step_rebind, "
              "which starts the optimizer anew, or take the steps with that one");
    return OCT_OK;
}

static oct_tensor *forward(oct_train_step *l, const oct_batch *b, bool learn)
{
    oct_leaves leaves = split(l, b->shape[0].dim[0]);
    oct_tensor *x[OCT_MAX_INPUTS];
    oct_context_begin(l->context, leaves, learn);
    for (int i = 0; i < b->num_inputs; i++) {
        oct_shape shape = b->shape[i];
        shape.dim[0] = oct_leaves_local_samples(&leaves);
        x[i] = oct_tensor_view(l->context, OCT_F32, shape, b->input[i]);
    }
    return oct_module_call(l->context, l->root, x, b->num_inputs);
}

/* A forward's own loss, made ready for oct_backward. */
static oct_tensor *own_loss(oct_context *cx, oct_tensor *y, oct_loss *loss)
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
    *loss =
        (oct_loss){.loss_sum = (double)oct_f32(y)[0] * (double)cx->leaves.samples, .correct = -1};
    float *one = oct_grad_new(cx, y);
    if (!one) return NULL;
    *one = 1.0f;
    oct_give_grad(cx, y, one);
    return y;
}

static oct_tensor *loss_of(oct_context *cx, oct_tensor *y, const oct_batch *b, oct_loss *loss)
{
    if (!b->labels && !b->probabilities) return own_loss(cx, y, loss);
    if (oct_inputs_ok(cx, &y, 1) && y->shape.ndim == 0)
        return oct_context_fail(cx, OCT_USAGE,
                                "the forward returns its loss already, so the batch "
                                "must have neither labels nor probabilities");
    return b->labels ? oct_cross_entropy(cx, y, b->labels, 0.0f, loss)
                     : oct_cross_entropy_soft(cx, y, b->probabilities, 0.0f, loss);
}

/* The ranks' ranges together, which must be finite before anything is updated. */
static oct_status gather_ranges(oct_train_step *l)
{
    if (l->quantizers.count == 0) return OCT_OK;
    oct_quantizers_keys(&l->quantizers, l->keys);
    OCT_TRY(l->group->max_i64(l->group, l->keys, (int64_t)(2 * l->quantizers.count)));
    return oct_quantizers_check(&l->quantizers, l->keys);
}

/* Then scales for the next step. */
static oct_status observe(oct_train_step *l)
{
    if (l->quantizers.count == 0) return OCT_OK;
    OCT_TRY(oct_quantizers_sum_counts(&l->quantizers, l->group));
    return oct_quantizers_update(&l->quantizers, l->keys);
}

static oct_status step(oct_train_step *learner, const oct_batch *batch, float lr, oct_loss *loss)
{
    oct_context *cx = learner->context;
    oct_params_zero(&learner->params);
    oct_tensor *y = loss_of(cx, forward(learner, batch, true), batch, loss);
    OCT_TRY(oct_context_status(cx));
    OCT_CHECK(isfinite(loss->loss_sum), OCT_NUMERIC,
              "the loss is not finite; lower the learning rate (now %g)", (double)lr);
    OCT_TRY(oct_backward(cx, y));
    OCT_TRY(oct_params_reduce(&learner->params, learner->group, &cx->leaves));
    OCT_CHECK(oct_all_finite(learner->params.grads, learner->params.numel), OCT_NUMERIC,
              "a gradient is not finite; lower the learning rate (now %g)", (double)lr);
    OCT_TRY(gather_ranges(learner));
    oct_optim_step(&learner->optim, &learner->params, lr);
    OCT_TRY(oct_params_check_values(&learner->params, learner->root));
    return observe(learner);
}

oct_status oct_train_step_run(oct_train_step *learner, const oct_batch *batch, float lr,
                              oct_loss *loss)
{
    OCT_TRY(check_step(learner, batch));
    const oct_status status = step(learner, batch, lr, loss);
    if (status != OCT_OK) oct_quantizers_discard_batch(&learner->quantizers);
    return status;
}

static oct_status look(oct_train_step *learner, const oct_batch *batch, void *y)
{
    const oct_tensor *output = forward(learner, batch, false);
    OCT_TRY(oct_context_status(learner->context));
    OCT_CHECK(!oct_is_codes(output), OCT_USAGE,
              "the model's output is codes; put a DeQuantStub at its end");
    if (y) memcpy(y, output->data, (size_t)oct_numel(output) * oct_dtype_bytes(output->dtype));
    OCT_TRY(gather_ranges(learner));
    return observe(learner);
}

oct_status oct_train_step_forward(oct_train_step *learner, const oct_batch *batch, void *y)
{
    OCT_TRY(check(learner, batch));
    const oct_status status = look(learner, batch, y);
    if (status != OCT_OK) oct_quantizers_discard_batch(&learner->quantizers);
    return status;
}
