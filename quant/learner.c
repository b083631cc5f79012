/* The calls of a training step in their order. */
#include "quant/learner.h"

#include "core/base/mem.h"
#include "quant/pass/graph.h"

#include <math.h>
#include <string.h>

static oct_leaves split(const oct_learner *l, int64_t samples)
{
    return oct_leaves_split(samples, l->leaf, l->group->rank, l->group->size);
}

static void unbind(oct_learner *l)
{
    oct_free(&l->keys);
    oct_quantizers_free(&l->quantizers);
    oct_optim_destroy(&l->optim);
    oct_params_unbind(&l->params);
}

oct_status oct_learner_rebind(oct_learner *learner, oct_module *root)
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

oct_status oct_learner_create(oct_learner *learner, oct_module *root,
                              const oct_optim_config *config, int64_t batch, int64_t leaf,
                              const oct_collective *group)
{
    *learner = (oct_learner){.group = group, .config = *config, .batch = batch, .leaf = leaf};
    OCT_CHECK(batch > 0 && leaf > 0, OCT_USAGE,
              "a batch of %lld samples in leaves of %lld; both must be at least 1",
              (long long)batch, (long long)leaf);
    oct_status status = oct_context_create(&learner->context, group);
    if (status == OCT_OK) status = oct_learner_rebind(learner, root);
    if (status != OCT_OK) oct_learner_destroy(learner);
    return status;
}

void oct_learner_destroy(oct_learner *learner)
{
    unbind(learner);
    oct_context_destroy(&learner->context);
}

/* A step on a tree that has changed would train what has left it, and leave new quantizers without
 * ranges. */
static oct_status check_bound(const oct_learner *l)
{
    OCT_CHECK(oct_graph_of(l->root) == l->graph && oct_params_are_of(&l->params, l->root),
              OCT_USAGE,
              "the model has changed since its parameters were bound (prepare, folding); call "
              "oct_learner_rebind first");
    return OCT_OK;
}

static oct_tensor *forward(oct_learner *l, oct_shape shape, float *x, bool learn)
{
    oct_leaves leaves = split(l, shape.dim[0]);
    oct_context_begin(l->context, leaves, learn);
    shape.dim[0] = oct_leaves_local_samples(&leaves);
    return oct_call(l->context, l->root, oct_tensor_view(l->context, OCT_F32, shape, x));
}

/* The ranks' ranges together, then scales for the next step. */
static oct_status observe(oct_learner *l)
{
    if (l->quantizers.count == 0) return OCT_OK;
    oct_quantizers_keys(&l->quantizers, l->keys);
    OCT_TRY(l->group->max_i64(l->group, l->keys, (int64_t)(2 * l->quantizers.count)));
    OCT_TRY(oct_quantizers_sum_counts(&l->quantizers, l->group));
    return oct_quantizers_update(&l->quantizers, l->keys);
}

oct_status oct_learner_step(oct_learner *learner, oct_shape shape, float *x, const int32_t *labels,
                            float lr, oct_loss *loss)
{
    oct_context *cx = learner->context;
    oct_leaves leaves = split(learner, shape.dim[0]);
    OCT_TRY(check_bound(learner));
    oct_params_zero(&learner->params);
    oct_tensor *y = oct_cross_entropy(cx, forward(learner, shape, x, true), labels, 0.0f, loss);
    OCT_TRY(oct_context_status(cx));
    OCT_CHECK(isfinite(loss->loss_sum), OCT_NUMERIC,
              "the loss is not finite; lower the learning rate (now %g)", (double)lr);
    OCT_TRY(oct_backward(cx, y));
    OCT_TRY(oct_params_reduce(&learner->params, learner->group, &leaves));
    OCT_CHECK(oct_all_finite(learner->params.grads, learner->params.numel), OCT_NUMERIC,
              "a gradient is not finite; lower the learning rate (now %g)", (double)lr);
    oct_optim_step(&learner->optim, &learner->params, lr);
    OCT_TRY(oct_params_check_values(&learner->params, learner->root));
    return observe(learner);
}

oct_status oct_learner_forward(oct_learner *learner, oct_shape shape, float *x, float *y)
{
    OCT_TRY(check_bound(learner));
    oct_tensor *output = forward(learner, shape, x, false);
    OCT_TRY(oct_context_status(learner->context));
    OCT_CHECK(output->dtype == OCT_F32, OCT_USAGE,
              "the model's output is codes; put a DeQuantStub at its end");
    if (y) memcpy(y, output->data, (size_t)oct_numel(output) * sizeof(float));
    return observe(learner);
}
