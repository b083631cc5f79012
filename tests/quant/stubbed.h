/* One quantized module between stubs, wired by hand, so that its scales can be chosen freely:
 *
 *     in_0 -> QuantStub ->
 *     in_1 -> QuantStub -> module -> DeQuantStub ->
 */
#pragma once

#include "core/nn/params.h"
#include "quant/module/emit.h"
#include "quant/module/quant_modules.h"
#include "quant/module/rule.h"
#include "tests/support/check_tensor.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/graph/trace.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define OK(call) cr_assert((call) == OCT_OK, "%s", oct_error_count() ? oct_error_message(0) : #call)

enum { STUBBED_MAX = 4 };

typedef struct stubbed {
    oct_module base;
    oct_module *stub[STUBBED_MAX], *middle, *dequant;
    int n;
} stubbed;

static inline oct_tensor *stubbed_forward(oct_context *cx, oct_module *self, oct_tensor *const *x,
                                          int n)
{
    stubbed *w = (stubbed *)self;
    oct_tensor *codes[STUBBED_MAX];
    for (int i = 0; i < n; i++)
        codes[i] = oct_call(cx, w->stub[i], x[i]);
    return oct_call(cx, w->dequant, oct_module_call(cx, w->middle, codes, n));
}

static const oct_module_type stubbed_type = {.name = "stubbed", .forward = stubbed_forward};

/* How one tensor is quantized. */
typedef struct quantizer {
    int bits;
    bool is_signed;
    float scale;
} quantizer;

static inline oct_fake_quant *stubbed_fake_quant(quantizer q, const oct_target *target,
                                                 const oct_fake_quant_kind *kind)
{
    oct_qconfig config = oct_qconfig_default();
    config.bits = q.bits;
    config.fake_quant = kind;
    oct_fake_quant *fq = NULL;
    OK(oct_fake_quant_create(&fq, &config, target, q.is_signed));
    fq->scale[0] = q.scale;
    fq->state = OCT_QUANT_QAT;
    return fq;
}

static inline void stubbed_adopt_kind(oct_module *m, quantizer q, const oct_target *target,
                                      const oct_fake_quant_kind *kind)
{
    oct_fake_quant *fq = stubbed_fake_quant(q, target, kind);
    OK(oct_quantized_adopt(m, &fq));
}

static const oct_fake_quant_kind *stubbed_kind = &oct_fake_quant_affine;

static inline void stubbed_adopt(oct_module *m, quantizer q, const oct_target *target)
{
    stubbed_adopt_kind(m, q, target, stubbed_kind);
}

/* A bench with a stubbed on it. middle is taken over; it has its fake-quant already, if any. */
typedef struct bench {
    oct_module *root;
    oct_context *cx;
    int n;
    oct_shape shape[STUBBED_MAX]; /* of the whole batch */
    oct_leaves leaves;
    float *x[STUBBED_MAX];
    oct_tensor *input[STUBBED_MAX]; /* of the last forward */
    oct_params params;              /* after bench_bind */
} bench;

static inline void bench_begin(bench *b, const char *target, oct_module *middle, int n,
                               const oct_shape *shape, const quantizer *q)
{
    *b = (bench){.n = n, .leaves = oct_leaves_split(shape[0].dim[0], 2, 0, 1)};
    OK(oct_context_create(&b->cx, &oct_collective_one));
    OK(oct_module_alloc(&b->root, &stubbed_type, sizeof(stubbed)));
    stubbed *w = (stubbed *)b->root;
    w->n = n;
    for (int i = 0; i < n; i++) {
        const char name[] = {'i', 'n', (char)('0' + i), '\0'};
        OK(oct_quant_stub_create(&w->stub[i]));
        OK(oct_module_add_child(b->root, name, &w->stub[i]));
        stubbed_adopt(w->stub[i], q[i], oct_target_find(target));
        b->shape[i] = shape[i];
        const int64_t numel = oct_shape_numel(&shape[i]);
        b->x[i] = calloc((size_t)numel, sizeof(float));
        const oct_qparams p =
            oct_fake_quant_qparams((oct_fake_quant *)((oct_quantized *)w->stub[i])->fake_quant);
        const float top = p.scale * (float)(p.qmax - p.zero_point);
        oct_fill_uniform(b->x[i], numel, 7, OCT_STREAM_TEST, (uint32_t)i,
                         p.zero_point ? -top : 0.0f, top);
    }
    w->middle = middle;
    OK(oct_module_add_child(b->root, "middle", &w->middle));
    OK(oct_dequant_stub_create(&w->dequant));
    OK(oct_module_add_child(b->root, "dequant", &w->dequant));
}

/* For modules with parameters; bench_end unbinds. */
static inline void bench_bind(bench *b)
{
    OK(oct_params_bind(&b->params, b->root, &b->leaves));
}

static inline void bench_end(bench *b)
{
    oct_params_unbind(&b->params);
    oct_context_destroy(&b->cx);
    oct_module_destroy(&b->root);
    for (int i = 0; i < b->n; i++)
        free(b->x[i]);
}

static inline void bench_state(bench *b, oct_quant_state state)
{
    oct_quantizers all;
    OK(oct_quantizers_collect(&all, b->root));
    oct_quantizers_set_state(&all, state);
    oct_quantizers_free(&all);
}

/* Without asking how it went. */
static inline oct_tensor *bench_try(bench *b, bool record)
{
    oct_context_begin(b->cx, b->leaves, record);
    for (int i = 0; i < b->n; i++) {
        b->input[i] = oct_tensor_view(b->cx, OCT_F32, b->shape[i], b->x[i]);
        b->input[i]->needs_grad = record;
    }
    return oct_module_call(b->cx, b->root, b->input, b->n);
}

static inline oct_tensor *bench_forward(bench *b, bool record)
{
    oct_tensor *y = bench_try(b, record);
    OK(oct_context_status(b->cx));
    return y;
}

static inline void bench_backward(bench *b, oct_tensor *y, const float *grad)
{
    const size_t bytes = (size_t)oct_numel(y) * sizeof(float);
    float *given = oct_scratch(b->cx, bytes);
    memcpy(given, grad, bytes);
    oct_add_grad(b->cx, y, given);
    OK(oct_backward(b->cx, y));
}

/* The program of the stubbed in eval mode, written by its modules. */
static inline void bench_program(bench *b, oct_program *program)
{
    oct_trace trace = {0};
    oct_emitter e = {.program = program, .trace = &trace};
    const oct_target *target = ((oct_quantized *)((stubbed *)b->root)->stub[0])->target;
    oct_example example = {.count = b->n};
    *program = (oct_program){.requantizer = target->requantizer, .num_inputs = b->n};
    snprintf(program->target, sizeof program->target, "%s", target->name);
    memcpy(example.shape, b->shape, sizeof b->shape);
    OK(oct_trace_run(&trace, b->root, &example));
    OK(oct_alloc(&e.value_of, trace.num_values, sizeof *e.value_of));
    for (int i = 0; i < b->n; i++)
        OK(oct_emitter_add_value(&e, trace.inputs[i], OCT_F32, (oct_qparams){0},
                                 &program->inputs[i]));
    for (size_t i = 0; i < trace.num_nodes; i++) {
        e.node = &trace.nodes[i];
        OK(e.node->module->type->emit(e.node->module, &e));
    }
    program->output = e.value_of[trace.output];
    oct_free(&e.value_of);
    oct_trace_free(&trace);
}
