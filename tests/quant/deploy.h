/* From a float model of any shape to its program, with the proof on the way that both compute the same:
 * every value of the program, and the output over batches whose leaves differ in size. */
#pragma once

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define OK(call) cr_assert((call) == OCT_OK, "%s", oct_error_count() ? oct_error_message(0) : #call)

enum { DEPLOY_SAMPLES = 19, DEPLOY_LEAF = 8, DEPLOY_PARTS = 8 };

/* A model whose forward a test writes: its children are m[0], m[1], ..., named a, b, ... */
typedef struct parts {
    oct_module base;
    oct_module *m[DEPLOY_PARTS];
} parts;

static inline oct_module *parts_create(const oct_module_type *type)
{
    oct_module *m;
    OK(oct_module_alloc(&m, type, sizeof(parts)));
    return m;
}

#define PART(root, i, create)                                                                      \
    do {                                                                                           \
        oct_module **slot_ = &((parts *)(root))->m[i];                                             \
        oct_module *item = NULL;                                                                   \
        OK(create);                                                                                \
        *slot_ = item;                                                                             \
        OK(oct_module_add_child(root, (char[]){(char)('a' + (i)), 0}, slot_));                     \
    } while (0)

typedef struct deployment {
    oct_module *root;
    oct_example example;
    oct_leaves leaves;
    oct_context *cx;
    oct_quantizers quantizers;
    float *x[OCT_MAX_INPUTS];
    oct_program program;
    oct_text fallbacks;
} deployment;

static inline void deploy_begin(deployment *d, oct_module *root, const oct_example *example)
{
    *d = (deployment){.root = root,
                      .example = *example,
                      .leaves = oct_leaves_split(DEPLOY_SAMPLES, DEPLOY_LEAF, 0, 1)};
    OK(oct_init_parameters(root, 11));
    OK(oct_context_create(&d->cx, &oct_collective_one));
    for (int i = 0; i < example->count; i++) {
        const int64_t n = DEPLOY_SAMPLES * oct_shape_numel(&example->shape[i]);
        d->x[i] = calloc((size_t)n, sizeof(float));
        oct_fill_normal(d->x[i], n, 17, OCT_STREAM_TEST, (uint32_t)i, 0.1f, 1.0f);
    }
}

static inline void deploy_end(deployment *d)
{
    oct_program_free(&d->program);
    oct_text_free(&d->fallbacks);
    oct_quantizers_free(&d->quantizers);
    oct_context_destroy(&d->cx);
    oct_module_destroy(&d->root);
    for (int i = 0; i < OCT_MAX_INPUTS; i++)
        free(d->x[i]);
    cr_assert_eq(oct_mem_live(), 0);
}

static inline oct_tensor *deploy_forward(deployment *d)
{
    oct_tensor *x[OCT_MAX_INPUTS];
    oct_context_begin(d->cx, d->leaves, false);
    for (int i = 0; i < d->example.count; i++) {
        oct_shape shape = d->example.shape[i];
        shape.dim[0] = DEPLOY_SAMPLES;
        x[i] = oct_tensor_view(d->cx, OCT_F32, shape, d->x[i]);
    }
    oct_tensor *y = oct_module_call(d->cx, d->root, x, d->example.count);
    OK(oct_context_status(d->cx));
    return y;
}

static inline void deploy_update(deployment *d)
{
    int64_t keys[512];
    cr_assert_leq(2 * d->quantizers.count, OCT_COUNT(keys));
    oct_quantizers_keys(&d->quantizers, keys);
    OK(oct_quantizers_update(&d->quantizers, keys));
}

/* Prepares, calibrates, moves statistics and scales for two steps, freezes. */
static inline void deploy_train(deployment *d, const oct_prepare_options *options)
{
    OK(oct_prepare(&d->root, &d->example, options, NULL));
    OK(oct_quantizers_collect(&d->quantizers, d->root));
    oct_freeze_batch_norm(d->root, true);
    oct_quantizers_set_state(&d->quantizers, OCT_QUANT_CALIBRATE);
    deploy_forward(d);
    deploy_update(d);
    oct_freeze_batch_norm(d->root, false);
    oct_quantizers_set_state(&d->quantizers, OCT_QUANT_QAT);
    for (int step = 0; step < 2; step++) {
        deploy_forward(d);
        deploy_update(d);
    }
    oct_freeze_batch_norm(d->root, true);
    oct_quantizers_set_state(&d->quantizers, OCT_QUANT_FROZEN);
    oct_module_train(d->root, false);
}

/* Values of one sample as the runtime makes them. */
typedef struct deploy_values {
    const oct_program *program;
    void **data;
    bool *seen;
} deploy_values;

static inline size_t deploy_bytes(const oct_program *p, int64_t value)
{
    return (size_t)oct_value_numel(&p->values[value]) * oct_dtype_bytes(p->values[value].dtype);
}

static inline void deploy_keep(void *user, int64_t value, const oct_step *step, const void *data,
                               size_t bytes)
{
    (void)step;
    deploy_values *v = user;
    v->data[value] = malloc(bytes);
    memcpy(v->data[value], data, bytes);
}

static inline void deploy_compare(void *user, int64_t value, const void *data, size_t bytes)
{
    deploy_values *v = user;
    v->seen[value] = true;
    if (!v->data[value]) return; /* an input */
    cr_assert_eq(bytes, deploy_bytes(v->program, value));
    cr_assert(memcmp(data, v->data[value], bytes) == 0, "value %lld differs", (long long)value);
}

static inline void deploy_check_values(deployment *d, oct_runtime *runtime)
{
    const oct_program *p = &d->program;
    const float *x[OCT_MAX_INPUTS];
    oct_example sample = d->example;
    float *y = malloc(deploy_bytes(p, p->output));
    deploy_values v = {p, calloc((size_t)p->num_values, sizeof(void *)),
                       calloc((size_t)p->num_values, 1)};
    for (int i = 0; i < d->example.count; i++)
        sample.data[i] = x[i] = d->x[i];
    OK(oct_runtime_watch(runtime, 1, x, y, deploy_keep, &v));
    OK(oct_convert_watch(p, d->root, &sample, deploy_compare, &v));
    for (int64_t i = 0; i < p->num_values; i++) {
        cr_assert(v.seen[i], "value %lld was not shown", (long long)i);
        free(v.data[i]);
    }
    free(v.data);
    free(v.seen);
    free(y);
}

/* Converts into d->program and compares. */
static inline void deploy_check(deployment *d)
{
    oct_runtime *runtime = NULL;
    const oct_graph *graph = oct_graph_of(d->root);
    OK(oct_convert(&d->program, d->root, &d->example, graph->target, &d->fallbacks));
    OK(oct_runtime_create(
        &runtime, &d->program,
        &(oct_runtime_options){.max_batch = DEPLOY_SAMPLES, .host = &oct_module_fallbacks}));
    const oct_tensor *y = deploy_forward(d);
    const size_t bytes = (size_t)oct_numel(y) * sizeof(float);
    float *out = malloc(bytes);
    OK(oct_runtime_run(runtime, DEPLOY_SAMPLES, (const float *const *)d->x, out));
    cr_assert(memcmp(out, y->data, bytes) == 0, "the program's output differs");
    bool differs = false;
    for (int64_t i = 1; i < oct_numel(y); i++)
        differs |= out[i] != out[0];
    cr_assert(differs, "an output that is constant proves nothing");
    deploy_check_values(d, runtime);
    free(out);
    oct_runtime_destroy(&runtime);
}

static inline void deploy(deployment *d, const oct_prepare_options *options)
{
    deploy_train(d, options);
    deploy_check(d);
}

static inline int deploy_count(const oct_program *p, oct_step_kind kind)
{
    int count = 0;
    for (int64_t i = 0; i < p->num_steps; i++)
        count += p->steps[i].kind == kind;
    return count;
}

/* Everything 8 bits for x86 but what `first` says; NULL: no exception. */
static inline oct_prepare_options deploy_options(oct_prepare_method method,
                                                 const oct_qconfig_setter *first)
{
    static oct_qconfig qconfig;
    static oct_qconfig_setter setters[2];
    qconfig = oct_qconfig_default();
    setters[0] = first ? *first : oct_setter_default(&qconfig);
    setters[1] = oct_setter_default(&qconfig);
    return (oct_prepare_options){
        .method = method, .target = oct_target_find("x86"), .setters = setters, .num_setters = 2};
}

static inline oct_conv_geometry deploy_conv(int kernel, int stride)
{
    return oct_conv_geometry_of(kernel, kernel, stride, kernel / 2, 1);
}
