/* A module is run on an example while its trace is taken. */
#include "core/base/mem.h"
#include "core/graph/trace.h"
#include "core/nn/module.h"

#include <string.h>

/* Runs root once on a batch of one example, while cx records each call in the trace. */
static oct_status trace_example(oct_context *cx, oct_trace *trace, oct_module *root,
                                const oct_example *example, int count)
{
    oct_context_begin(cx, oct_leaves_split(1, 1, 0, 1), false);
    cx->trace = trace;
    oct_tensor *x[OCT_MODEL_INPUTS];
    for (int i = 0; i < count; i++) {
        oct_shape shape = example->shape[i];
        shape.dim[0] = 1;
        x[i] = oct_tensor_new(cx, OCT_F32, shape);
        if (!x[i]) return oct_context_status(cx);
        const size_t bytes = (size_t)oct_numel(x[i]) * sizeof(float);
        if (example->data[i])
            memcpy(x[i]->data, example->data[i], bytes);
        else
            memset(x[i]->data, 0, bytes);
        oct_trace_add(cx, &(oct_site){.output = x[i]});
    }
    const oct_tensor *y = oct_module_call(cx, root, x, count);
    if (!y) return oct_context_status(cx);
    OCT_CHECK(y->trace_value >= 0, OCT_PREPARE,
              "the model's output is not computed from its input by modules and ops");
    trace->output = y->trace_value;
    return OCT_OK;
}

/* Keeps the modes of all modules in pre-order, to restore. */
typedef struct modes {
    bool *training;
    size_t count, capacity;
} modes;

static oct_status keep_mode(void *user, oct_module *module)
{
    modes *kept = user;
    OCT_TRY(oct_grow(&kept->training, &kept->capacity, kept->count + 1, sizeof *kept->training));
    kept->training[kept->count++] = module->training;
    return OCT_OK;
}

static void restore_mode(oct_module *module, const bool **next)
{
    module->training = *(*next)++;
    for (size_t i = 0; i < module->num_children; i++)
        restore_mode(*module->children[i].slot, next);
}

static oct_status train_container(void *user, oct_module *module)
{
    (void)user;
    module->training = !module->type->atomic;
    return OCT_OK;
}

static oct_status check_example(const oct_example *example, int count)
{
    OCT_CHECK(
        !example->training_count || example->training_count >= example->count, OCT_PREPARE,
        "a model cannot be traced with fewer inputs in training (%d) than in evaluation (%d); "
        "those that only training has come after the others",
        example->training_count, example->count);
    OCT_CHECK(count >= 1 && count <= OCT_MODEL_INPUTS, OCT_PREPARE,
              "a model cannot be traced on %d inputs; give 1 to %d", count, OCT_MODEL_INPUTS);
    for (int i = 0; i < count; i++) {
        const oct_shape *shape = &example->shape[i];
        OCT_CHECK(shape->ndim > 0 && oct_shape_numel(shape) >= 0, OCT_PREPARE,
                  "a model cannot be traced on an input of shape %s", oct_text_shape(shape).text);
    }
    return OCT_OK;
}

/* Traces a forward of root in evaluation mode, or with its containers in training mode; then restores all modes. */
static oct_status run_in_mode(oct_trace *trace, oct_context *cx, oct_module *root,
                              const oct_example *example, bool training)
{
    modes kept = {0};
    oct_context *own = NULL;
    oct_status status;
    int count = training && example->training_count ? example->training_count : example->count;
    OCT_TRY(check_example(example, count));
    OCT_TRY_OUT(oct_module_walk(root, keep_mode, &kept));
    if (!cx) OCT_TRY_OUT(oct_context_create(&own, &oct_collective_one));
    oct_module_train(root, false);
    if (training) OCT_TRY_OUT(oct_module_walk(root, train_container, NULL));
    status = trace_example(cx ? cx : own, trace, root, example, count);
    restore_mode(root, &(const bool *){kept.training});
out:
    oct_free(&kept.training);
    oct_context_destroy(&own);
    if (status != OCT_OK) oct_trace_free(trace);
    return status;
}

oct_status oct_trace_run(oct_trace *trace, oct_module *root, const oct_example *example)
{
    return oct_trace_watch(trace, NULL, root, example, NULL, NULL);
}

oct_status oct_trace_watch(oct_trace *trace, oct_context *cx, oct_module *root,
                           const oct_example *example, oct_trace_watch_fn watch, void *user)
{
    *trace = (oct_trace){.scope = -1, .watch = watch, .user = user};
    return run_in_mode(trace, cx, root, example, false);
}

oct_status oct_trace_training(oct_trace *trace, oct_module *root, const oct_example *example)
{
    *trace = (oct_trace){.scope = -1, .training = true};
    return run_in_mode(trace, NULL, root, example, true);
}
