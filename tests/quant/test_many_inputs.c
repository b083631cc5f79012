/* Concats of up to 64 inputs, and values that many read: in float, in training on codes, and as programs. */
#include "tests/quant/moving_rig.h"
#include "tests/support/check_tensor.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

TestSuite(many_inputs, .timeout = 240);

/* A split into single channels, some of them with a scale of their own, and a concat of them all. */
typedef struct wide_net {
    oct_module base;
    oct_module *quant, *stem, *concat, *last, *head, *dequant;
    int width;
} wide_net;

/* The inputs whose scale is given: each is a softmax of two channels. */
static bool fixed(int i)
{
    return i % 5 == 1;
}

static int channels(int width)
{
    int sum = 0;
    for (int i = 0; i < width; i++)
        sum += fixed(i) ? 2 : 1;
    return sum;
}

static oct_tensor *wide_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    wide_net *m = (wide_net *)self;
    (void)n;
    oct_tensor *x = oct_call(cx, m->stem, stub(cx, m->quant, in[0])), *part[OCT_MAX_INPUTS];
    for (int i = 0; i < m->width; i++) {
        part[i] = fixed(i) ? oct_softmax(cx, oct_slice(cx, x, 3, i - 1, 1, 2))
                           : oct_slice(cx, x, 3, i, 1, 1);
        if (i % 5 == 3) part[i] = oct_silu(cx, part[i]);
    }
    x = oct_module_call(cx, m->concat, part, m->width);
    x = oct_flatten(cx, oct_global_avg_pool(cx, oct_relu(cx, oct_call(cx, m->last, x))));
    return stub(cx, m->dequant, oct_call(cx, m->head, x));
}

static const oct_module_type wide_type = {.name = "wide", .forward = wide_forward};

static oct_module *wide_new(int width, bool stubs)
{
    oct_module *made = NULL;
    OK(oct_module_alloc(&made, &wide_type, sizeof(wide_net)));
    wide_net *m = (wide_net *)made;
    m->width = width;
    if (stubs) {
        CHILD(m, quant, oct_quant_stub_create(&m->quant));
        CHILD(m, dequant, oct_dequant_stub_create(&m->dequant));
    }
    CHILD(m, stem, oct_conv2d_create(&m->stem, 3, width, rig_same(3), true));
    CHILD(m, concat, oct_concat_create(&m->concat));
    CHILD(m, last, oct_conv2d_create(&m->last, channels(width), 8, rig_same(1), true));
    CHILD(m, head, oct_linear_create(&m->head, 8, 2, true));
    return made;
}

static const int counts[] = {3, 9, 25, OCT_MAX_INPUTS};

Test(many_inputs, train_and_convert_to_the_same_bits)
{
    const oct_example *example = OCT_EXAMPLE(OCT_SHAPE(1, 4, 5, 3));
    for (size_t i = 0; i < OCT_COUNT(counts); i++) {
        const oct_prepare_method method = graph_methods[i % OCT_COUNT(graph_methods)];
        check_learns(wide_new(counts[i], i % 2 == 0), example, method, "x86");
        check_learns(wide_new(counts[i], i % 2 != 0), example, method, "pow2");
    }
}

/* Values of given scales are requantized, all others share one fake-quant. */
Test(many_inputs, share_one_scale_where_they_can)
{
    for (size_t i = 0; i < OCT_COUNT(counts); i++) {
        deployment d;
        const oct_prepare_options options = rig_options(OCT_METHOD_JIT);
        deploy_begin(&d, wide_new(counts[i], true), OCT_EXAMPLE(OCT_SHAPE(1, 4, 5, 3)));
        deploy(&d, &options);
        cr_assert_eq(deploy_count(&d.program, OCT_STEP_MOVE), counts[i]);
        const oct_step *step = step_of_kind(&d.program, OCT_STEP_CONCAT);
        cr_assert_eq(step->num_inputs, counts[i]);
        for (int k = 0; k < counts[i]; k++)
            cr_assert_eq(oct_qparams_equal(oct_step_input(&d.program, step, k)->q,
                                           oct_step_output(&d.program, step)->q),
                         !fixed(k), "input %d of %d", k, counts[i]);
        deploy_end(&d);
    }
}

/* The report of prepare, and the graph as a table, name all of them; no value has two quantizers. */
Test(many_inputs, are_in_the_report_and_the_table)
{
    rig r;
    oct_text report = {0}, table = {0};
    oct_tensor_quantizer *list = NULL;
    size_t count = 0;
    char last[32];
    const oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    rig_begin(&r, wide_new(OCT_MAX_INPUTS, true), OCT_EXAMPLE(OCT_SHAPE(1, 4, 5, 3)));
    OK(rig_try(&r, &options, &report));
    OK(oct_graph_table(oct_graph_of(r.root), &table));
    OK(oct_graph_quantizers(oct_graph_of(r.root), &list, &count));
    cr_assert(strstr(report.data, "qat_concat"), "%s", report.data);
    snprintf(last, sizeof last, "move_%d", OCT_MAX_INPUTS - 1);
    cr_assert(strstr(table.data, last), "%s", table.data);
    oct_free(&list);
    oct_text_free(&report);
    oct_text_free(&table);
    rig_end(&r);
}

/* Split and concatenated again, values and gradients are the same as before. */
Test(many_inputs, of_float_values_are_the_values)
{
    enum { SAMPLES = 3, ROWS = 4, N = SAMPLES * ROWS * OCT_MAX_INPUTS };
    float data[N];
    oct_context *cx = NULL;
    OK(oct_context_create(&cx, &oct_collective_one));
    oct_fill_normal(data, N, 3, OCT_STREAM_TEST, 1, 0, 1);
    oct_context_begin(cx, oct_leaves_split(SAMPLES, 2, 0, 1), true);
    oct_tensor x = {.shape = OCT_SHAPE(SAMPLES, ROWS, OCT_MAX_INPUTS),
                    .data = data,
                    .needs_grad = true,
                    .trace_value = -1,
                    .graph_value = -1};
    oct_tensor *part[OCT_MAX_INPUTS + 1] = {&x};
    cr_assert_null(oct_concat(cx, part, OCT_MAX_INPUTS + 1));
    check_said("concat takes 1 to 64 tensors, but has 65");
    oct_fail_clear();
    oct_context_begin(cx, oct_leaves_split(SAMPLES, 2, 0, 1), true);
    for (int i = 0; i < OCT_MAX_INPUTS; i++)
        part[i] = oct_slice(cx, &x, 2, i, 1, 1);
    oct_tensor *y = oct_concat(cx, part, OCT_MAX_INPUTS);
    OK(oct_context_status(cx));
    oct_check_tensor(y, &x, "concatenated");
    float *grad = oct_grad_new(cx, y);
    memcpy(grad, data, sizeof data);
    oct_add_grad(cx, y, grad);
    OK(oct_backward(cx, y));
    oct_check_bits_f32(x.grad, data, N, "gradient");
    oct_context_destroy(&cx);
    check_nothing_held();
}

/* DenseNet: each layer reads what all before it have made, so the first value is read by all. */
enum { DENSE = 40, GROWTH = 2 };

typedef struct dense_net {
    oct_module base;
    oct_module *layer[DENSE], *head;
} dense_net;

static oct_tensor *dense_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    dense_net *m = (dense_net *)self;
    oct_tensor *part[DENSE + 1] = {in[0]};
    (void)n;
    for (int i = 0; i < DENSE; i++) {
        oct_tensor *x = i ? oct_concat(cx, part, i + 1) : in[0];
        part[i + 1] = oct_relu(cx, oct_call(cx, m->layer[i], x));
    }
    oct_tensor *x = oct_global_avg_pool(cx, oct_concat(cx, part, DENSE + 1));
    return oct_call(cx, m->head, x);
}

static const oct_module_type dense_type = {.name = "dense", .forward = dense_forward};

Test(many_inputs, of_a_dense_block_are_prepared_quickly)
{
    oct_module *made = NULL;
    OK(oct_module_alloc(&made, &dense_type, sizeof(dense_net)));
    dense_net *m = (dense_net *)made;
    for (int i = 0; i < DENSE; i++) {
        char name[8];
        snprintf(name, sizeof name, "l%d", i);
        OK(oct_conv2d_create(&m->layer[i], 3 + GROWTH * i, GROWTH, rig_same(1), true));
        OK(oct_module_add_child(made, name, &m->layer[i]));
    }
    CHILD(m, head, oct_linear_create(&m->head, 3 + GROWTH * DENSE, 2, true));
    deployment d;
    const oct_prepare_options options = rig_options(OCT_METHOD_JIT);
    deploy_begin(&d, made, OCT_EXAMPLE(OCT_SHAPE(1, 3, 3, 3)));
    for (int i = 0; i < DENSE; i++) { /* so that values stay of one size */
        oct_tensor *weight = &((oct_conv2d_module *)m->layer[i])->weight->value;
        for (int64_t k = 0; k < oct_numel(weight); k++)
            oct_f32(weight)[k] /= sqrtf(3 + (float)(GROWTH * i));
    }
    const clock_t begin = clock();
    deploy_train(&d, &options);
    const double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    cr_assert(seconds < 20, "%g s", seconds);
    deploy_check(&d);
    cr_assert_eq(d.quantizers.count,
                 2); /* the inputs and output of the concat have one; the head has the other */
    deploy_end(&d);
}
