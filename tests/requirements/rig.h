/* What the tests of this folder share: a model of any shape, prepared, calibrated and trained for a few
 * steps on random data, without a trainer. Each file walks through one of the questions that Octet
 * began with; see README.md beside this file. */
#pragma once

#include "core/base/rng.h"
#include "core/optim/optim.h"
#include "quant/convert/convert.h"
#include "quant/prepare/report.h"
#include "tests/support/cross_entropy.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define OK(call) cr_assert((call) == OCT_OK, "%s", oct_error_count() ? oct_error_message(0) : #call)

/* The call fails with this code, and some problem of the record contains the words. */
#define REFUSED(call, code, words)                                                                 \
    do {                                                                                           \
        cr_assert_eq((call), (code));                                                              \
        cr_assert(rig_says(words), "no problem says '%s'; the first is: %s", (words),              \
                  oct_error_count() ? oct_error_message(0) : "none");                              \
    } while (0)

static inline bool rig_says(const char *words)
{
    for (size_t i = 0; i < oct_error_count(); i++)
        if (strstr(oct_error_message(i), words)) return true;
    return false;
}

typedef struct rig {
    oct_module *root;
    oct_example example; /* batch of 1 */
    oct_leaves leaves;
    float *x[OCT_MAX_INPUTS];
    int32_t *labels;
    oct_context *cx;
    oct_params params;
    oct_quantizers quantizers;
} rig;

/* In the root's mode. */
static inline int rig_inputs(const rig *r, bool training)
{
    int all = r->example.training_count;
    return training && all ? all : r->example.count;
}

/* Takes root over, gives it initial values, fills inputs of 8 samples in leaves of 4. */
static inline void rig_begin(rig *r, oct_module *root, const oct_example *example)
{
    *r = (rig){.root = root, .example = *example, .leaves = oct_leaves_split(8, 4, 0, 1)};
    OK(oct_init_parameters(root, 7));
    OK(oct_context_create(&r->cx, &oct_collective_one));
    for (int i = 0; i < rig_inputs(r, true); i++) {
        int64_t n = 8 * oct_shape_numel(&example->shape[i]);
        r->x[i] = calloc((size_t)n, sizeof(float));
        oct_fill_normal(r->x[i], n, 3, OCT_STREAM_TEST, (uint32_t)i, 0.1f, 1.0f);
    }
    r->labels = calloc(8, sizeof(int32_t));
    for (int i = 0; i < 8; i++)
        r->labels[i] = i % 2;
}

static inline void rig_end(rig *r)
{
    oct_quantizers_free(&r->quantizers);
    oct_params_unbind(&r->params);
    oct_context_destroy(&r->cx);
    oct_module_destroy(&r->root);
    for (int i = 0; i < OCT_MAX_INPUTS; i++)
        free(r->x[i]);
    free(r->labels);
}

/* Everything quantized by the default template for x86. */
static inline oct_prepare_options rig_options(oct_prepare_method method)
{
    static oct_qconfig qconfig;
    static oct_qconfig_setter setter;
    qconfig = oct_qconfig_default();
    setter = oct_setter_default(&qconfig);
    return (oct_prepare_options){
        .method = method, .target = oct_target_find("x86"), .setters = &setter, .num_setters = 1};
}

static inline oct_status rig_try(rig *r, const oct_prepare_options *options, oct_text *report)
{
    return oct_prepare(&r->root, &r->example, options, report);
}

static inline void rig_prepare(rig *r, const oct_prepare_options *options)
{
    OK(rig_try(r, options, NULL));
    OK(oct_params_bind(&r->params, r->root, &r->leaves));
    OK(oct_quantizers_collect(&r->quantizers, r->root));
}

/* One forward over all samples. The output lives until the next. */
static inline oct_tensor *rig_call(rig *r, bool record)
{
    oct_tensor *x[OCT_MAX_INPUTS];
    int count = rig_inputs(r, r->root->training);
    oct_context_begin(r->cx, r->leaves, record);
    for (int i = 0; i < count; i++) {
        oct_shape shape = r->example.shape[i];
        shape.dim[0] = 8;
        x[i] = oct_tensor_view(r->cx, OCT_F32, shape, r->x[i]);
    }
    return oct_module_call(r->cx, r->root, x, count);
}

static inline oct_tensor *rig_forward(rig *r)
{
    oct_tensor *y = rig_call(r, false);
    OK(oct_context_status(r->cx));
    return y;
}

static inline void rig_update(rig *r)
{
    int64_t keys[1024];
    cr_assert_leq(2 * r->quantizers.count, OCT_COUNT(keys));
    oct_quantizers_keys(&r->quantizers, keys);
    OK(oct_quantizers_update(&r->quantizers, keys));
}

static inline void rig_calibrate(rig *r)
{
    oct_module_train(r->root, true);
    OK(oct_set_fake_quant(r->root, OCT_STATE_CALIBRATION));
    rig_forward(r);
    rig_update(r);
}

/* The rest of a step, from a loss. */
static inline void rig_descend(rig *r, oct_tensor *loss)
{
    OK(oct_context_status(r->cx));
    OK(oct_backward(r->cx, loss));
    OK(oct_params_reduce(&r->params, &oct_collective_one, &r->leaves));
    for (size_t p = 0; p < r->params.count; p++) {
        oct_param *param = r->params.items[p];
        for (int64_t i = 0; i < oct_numel(&param->value); i++)
            oct_f32(&param->value)[i] -= 0.05f * param->grad[i];
    }
    rig_update(r);
}

/* A step of training on the cross-entropy of the logits (N, classes); plain descent. */
static inline double rig_step(rig *r)
{
    oct_loss sums = {0};
    oct_params_zero(&r->params);
    rig_descend(r, oct_cross_entropy(r->cx, rig_call(r, true), r->labels, 0.0f, &sums));
    return sums.loss_sum / 8;
}

static inline void rig_freeze(rig *r)
{
    oct_freeze_batch_norm(r->root, true);
    oct_quantizers_set_state(&r->quantizers, OCT_QUANT_FROZEN);
}

/* The converted program gives the bits of the model's evaluation. */
static inline void rig_convert(rig *r)
{
    oct_program program = {0};
    oct_runtime *runtime = NULL;
    rig_freeze(r);
    oct_module_train(r->root, false);
    OK(oct_convert(&program, r->root, &r->example, oct_graph_of(r->root)->target, NULL));
    OK(oct_runtime_create(&runtime, &program,
                          &(oct_runtime_options){.max_batch = 8, .host = &oct_module_fallbacks}));
    const oct_tensor *y = rig_forward(r);
    size_t bytes = (size_t)oct_numel(y) * sizeof(float);
    float *out = malloc(bytes);
    OK(oct_runtime_run(runtime, 8, (const float *const *)r->x, out));
    cr_assert(memcmp(out, y->data, bytes) == 0, "the converted model differs from the trained one");
    free(out);
    oct_runtime_destroy(&runtime);
    oct_program_free(&program);
    oct_module_train(r->root, true);
}

/* Modules of a type below (and with) a module. */
static inline size_t rig_count(const oct_module *m, const oct_module_type *type)
{
    size_t count = m->type == type;
    for (size_t i = 0; i < m->num_children; i++)
        count += rig_count(*m->children[i].slot, type);
    return count;
}

/* The same by the type's name. */
static inline size_t rig_count_named(const oct_module *m, const char *type)
{
    size_t count = strcmp(m->type->name, type) == 0;
    for (size_t i = 0; i < m->num_children; i++)
        count += rig_count_named(*m->children[i].slot, type);
    return count;
}

#define CHILD(self, slot, create)                                                                  \
    do {                                                                                           \
        OK(create);                                                                                \
        OK(oct_module_add_child(&(self)->base, #slot, &(self)->slot));                             \
    } while (0)

#define APPEND(sequential, create)                                                                 \
    do {                                                                                           \
        oct_module *item = NULL;                                                                   \
        OK(create);                                                                                \
        OK(oct_sequential_append(sequential, &item));                                              \
    } while (0)

static inline oct_conv_geometry rig_same(int kernel)
{
    return oct_conv_geometry_of(kernel, kernel, 1, kernel / 2, 1);
}
