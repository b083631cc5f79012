/* Float fallbacks of a program, run by the modules that they were: each is made again from its type's
 * name and arguments, gets its arrays back, and computes sample by sample, as evaluation does. */
#include "quant/convert/convert.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "quant/program/step.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

typedef struct fallback {
    oct_context *cx;
    oct_module *module;
    int num_inputs;
    oct_shape shape[OCT_STEP_INPUTS]; /* of one sample */
    int64_t output;                   /* numbers of one sample */
} fallback;

static void close_fallback(void *state)
{
    fallback *self = state;
    oct_module_destroy(&self->module);
    oct_context_destroy(&self->cx);
    oct_free(&self);
}

/* Copies the array of this name, which must fit, into a parameter or buffer. */
static oct_status load_array(const oct_fallback *from, const char *name, oct_tensor *tensor)
{
    const oct_fallback_array *array = NULL;
    for (int64_t i = 0; i < from->num_arrays && !array; i++)
        if (strcmp(from->arrays[i].name, name) == 0) array = &from->arrays[i];
    OCT_CHECK(
        array && array->dtype == tensor->dtype && oct_shape_equal(&array->shape, &tensor->shape),
        OCT_DATA, "a %s with these arguments has a %s that the program lacks or has otherwise",
        from->type, name);
    memcpy(tensor->data, array->data, (size_t)oct_numel(tensor) * oct_dtype_bytes(tensor->dtype));
    return OCT_OK;
}

/* Turns a failure of the module into one of the file, whose arguments and shapes have led to it. */
static oct_status blame_file(oct_status status)
{
    char text[1024];
    if (status == OCT_OK || status == OCT_DATA) return status;
    snprintf(text, sizeof text, "%s", oct_error_message(0));
    return oct_fail(OCT_DATA, "%s", text);
}

/* Creates the module. Its arguments are a file's and may ask for any size, so it may take no more memory than twice the
 * bytes of its arrays and a MiB. */
static oct_status create_module(fallback *self, const oct_module_type *type,
                                const oct_fallback *from)
{
    enum { BESIDE_ARRAYS = 1 << 20 };
    size_t bytes = BESIDE_ARRAYS;
    oct_op_args args;
    for (int64_t i = 0; i < from->num_arrays; i++) {
        const oct_fallback_array *array = &from->arrays[i];
        bytes += 2 * (size_t)oct_shape_numel(&array->shape) * oct_dtype_bytes(array->dtype);
    }
    oct_mem_guard(bytes);
    oct_status status = oct_module_from(&self->module, type, &from->args);
    if (oct_mem_guard(SIZE_MAX) && status != OCT_OK)
        return oct_fail(OCT_DATA, "its arguments ask for more memory than its arrays have");
    if (status == OCT_RESOURCE) return status;
    OCT_TRY(blame_file(status));
    /* Arguments are read by exporters too: they must be those that the module itself would give. */
    oct_module_args(self->module, &args);
    bool same = args.count == from->args.count;
    for (int i = 0; same && i < args.count; i++)
        same = args.value[i] == from->args.value[i];
    OCT_CHECK(same, OCT_DATA, "its arguments are not those of a %s", from->type);
    return OCT_OK;
}

/* The size of the largest tensor that one of our own layers makes: its output, or the input of a transposed
 * convolution, dilated over the output's plane and what padding cuts off it. */
static int64_t max_numel(const oct_module *module, const oct_program *program, const oct_step *step)
{
    const oct_value *x = oct_step_input(program, step, 0), *y = oct_step_output(program, step);
    const oct_shape *weight = module->num_params > 0 ? &module->params[0]->value.shape : NULL;
    if (!weight || weight->ndim != 4) return oct_value_numel(y);
    const int64_t edge = 2 * weight->dim[1], channels = x->c > y->c ? x->c : y->c;
    return (y->h + edge) * (y->w + edge) * channels;
}

/* Makes the module of a float fallback, with its arrays, and what a call of it needs. */
static oct_status make_module(fallback *self, const oct_program *program, const oct_step *step)
{
    const oct_fallback *from = step->fallback;
    const oct_module_type *type = oct_module_type_find(from->type);
    OCT_CHECK(type && type->args, OCT_PREPARE,
              "it stays float and is a %s, which is not known here; load the plug-in that has it",
              from->type);
    OCT_TRY(create_module(self, type, from));
    oct_module *m = self->module;
    OCT_CHECK((size_t)from->num_arrays == m->num_params + m->num_buffers, OCT_DATA,
              "%lld arrays, but a %s with these arguments has %zu", (long long)from->num_arrays,
              from->type, m->num_params + m->num_buffers);
    for (size_t i = 0; i < m->num_params; i++)
        OCT_TRY(load_array(from, m->params[i]->name, &m->params[i]->value));
    for (size_t i = 0; i < m->num_buffers; i++)
        OCT_TRY(load_array(from, m->buffers[i].name, &m->buffers[i].tensor));
    oct_module_train(m, false);
    self->num_inputs = step->num_inputs;
    self->output = oct_value_numel(oct_step_output(program, step));
    for (int i = 0; i < step->num_inputs; i++)
        self->shape[i] = oct_value_shape(oct_step_input(program, step, i), from->dims[i]);
    OCT_TRY(oct_context_create(&self->cx, &oct_collective_one));
    if (oct_module_type_is_listed(type))
        self->cx->max_numel = max_numel(self->module, program, step);
    return OCT_OK;
}

static oct_status open_fallback(void **state, const oct_program *program, const oct_step *step)
{
    fallback *self;
    OCT_TRY(oct_alloc(&self, 1, sizeof *self));
    if (make_module(self, program, step) != OCT_OK) {
        close_fallback(self);
        return oct_fail_prefix("%s", step->name);
    }
    *state = self;
    return OCT_OK;
}

/* Calls the module on one sample after another, so that no result depends on the batch. */
static oct_status run_samples(fallback *self, int64_t samples, const float *const *input,
                              float *output)
{
    oct_context *cx = self->cx;
    oct_tensor *x[OCT_STEP_INPUTS];
    for (int64_t n = 0; n < samples; n++) {
        oct_context_begin(cx, oct_leaves_split(1, 1, 0, 1), false);
        for (int i = 0; i < self->num_inputs; i++) {
            const float *sample = input[i] + n * oct_shape_numel(&self->shape[i]);
            x[i] = oct_tensor_view(cx, OCT_F32, self->shape[i], sample);
        }
        const oct_tensor *y = oct_module_call(cx, self->module, x, self->num_inputs);
        if (oct_context_status(cx) == OCT_RESOURCE) return OCT_RESOURCE;
        OCT_TRY(blame_file(oct_context_status(cx)));
        OCT_CHECK(y->dtype == OCT_F32 && oct_numel(y) == self->output, OCT_DATA,
                  "it makes %lld numbers of type %s where the program has %lld of type f32",
                  (long long)oct_numel(y), oct_dtype_name(y->dtype), (long long)self->output);
        memcpy(output + n * self->output, y->data, (size_t)self->output * sizeof(float));
    }
    return OCT_OK;
}

/* oct_fallback_host.run: the runtime shares samples among threads, so operations have the calling thread alone. After a
 * fork there may be no other. */
static oct_status run_fallback(void *state, int64_t samples, const float *const *input,
                               float *output)
{
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    const oct_status status = run_samples(state, samples, input, output);
    omp_set_num_threads(threads);
    return status;
}

const oct_fallback_host oct_module_fallbacks = {
    .open = open_fallback, .run = run_fallback, .close = close_fallback};

/* Runs the step's module over a sample of zeros: whether its shapes fit shows when it is called. */
static oct_status try_fallback(const oct_program *program, const oct_step *step)
{
    const float *input[OCT_STEP_INPUTS] = {NULL};
    float *zeros = NULL, *output = NULL;
    void *state = NULL;
    int64_t most = 0;
    oct_status status = OCT_OK;
    for (int i = 0; i < step->num_inputs; i++)
        most = oct_max_i64(most, oct_value_numel(oct_step_input(program, step, i)));
    OCT_TRY_OUT(oct_alloc(&zeros, (size_t)most, sizeof *zeros));
    OCT_TRY_OUT(oct_alloc(&output, oct_value_bytes(oct_step_output(program, step)), 1));
    for (int i = 0; i < step->num_inputs; i++)
        input[i] = zeros;
    OCT_TRY_OUT(open_fallback(&state, program, step));
    if (run_fallback(state, 1, input, output) != OCT_OK) status = oct_fail_prefix("%s", step->name);
out:
    if (state) close_fallback(state);
    oct_free(&zeros);
    oct_free(&output);
    return status;
}

oct_status oct_fallbacks_check(const oct_program *program, bool of_plugins)
{
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        if (step->kind != OCT_STEP_FLOAT) continue;
        const oct_module_type *type = oct_module_type_find(step->fallback->type);
        if (of_plugins || (type && oct_module_type_is_listed(type)))
            OCT_TRY(try_fallback(program, step));
    }
    return OCT_OK;
}
