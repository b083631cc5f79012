/* A batch norm folded into its layer in the middle of training changes no code: program and evaluation
 * before and after are the same in every bit. And folding of float layers, to rounding. */
#include "quant/program/step.h"
#include "core/nn/params.h"
#include "tests/quant/conv_case.h"

typedef struct snapshot {
    oct_program program;
    float *y;
    int64_t numel;
} snapshot;

static snapshot take_snapshot(bench *b)
{
    snapshot s;
    bench_program(b, &s.program);
    OK(oct_program_check(&s.program));
    oct_module_train(b->root, false);
    const oct_tensor *y = bench_forward(b, false);
    s.numel = oct_numel(y);
    s.y = calloc((size_t)s.numel, sizeof *s.y);
    memcpy(s.y, y->data, (size_t)s.numel * sizeof *s.y);
    return s;
}

static void drop(snapshot *s)
{
    oct_program_free(&s->program);
    free(s->y);
}

static const oct_step *conv_step(const snapshot *s)
{
    for (int64_t i = 0; i < s->program.num_steps; i++)
        if (oct_step_type_of(s->program.steps[i].kind)->weights) return &s->program.steps[i];
    cr_assert_fail("the program has no convolution");
    return NULL;
}

static void same_step(const oct_step *a, const oct_step *b)
{
    const int64_t n = a->conv.shape.out_c;
    const int64_t k = oct_conv_depth(&a->conv.shape);
    oct_check_bytes(b->conv.weight, a->conv.weight, n * k, "weight codes");
    oct_check_bytes(b->conv.bias, a->conv.bias, n * 8, "integer biases");
    oct_check_bits_f32(b->conv.multiplier, a->conv.multiplier, n, "multipliers");
    cr_assert(a->conv.lo == b->conv.lo && a->conv.hi == b->conv.hi &&
              a->conv.addend_multiplier == b->conv.addend_multiplier);
}

static oct_qparams input_of(const bench *b)
{
    const oct_quantized *stub = (const oct_quantized *)((const stubbed *)b->root)->stub[0];
    return oct_fake_quant_qparams((const oct_fake_quant *)stub->fake_quant);
}

static void check_fold(const conv_case *v)
{
    bench b;
    case_begin(&b, v);
    const snapshot before = take_snapshot(&b);
    OK(oct_qat_conv_fold(case_conv(&b), input_of(&b)));
    cr_assert_null(case_conv(&b)->batch_norm);
    cr_assert_null(oct_module_find(b.root, "middle.bn"));
    cr_assert_not_null(case_conv(&b)->layer->params[1]);
    const snapshot after = take_snapshot(&b);
    same_step(conv_step(&before), conv_step(&after));
    oct_check_bits_f32(after.y, before.y, before.numel, "evaluation");
    /* Another time there is nothing left to do. */
    OK(oct_qat_conv_fold(case_conv(&b), input_of(&b)));
    snapshot all[] = {before, after};
    drop(&all[0]);
    drop(&all[1]);
    bench_end(&b);
}

Test(qat_conv_fold, changes_no_bit_of_program_and_evaluation, .timeout = 120)
{
    static const int widths[][3] = {{8, 0, 8}, {8, 8, 8}, {8, 0, 0}, {16, 0, 16}, {8, 16, 16}};
    for (conv_kind kind = 0; kind < CONV_KINDS; kind++)
        for (size_t i = 0; i < OCT_COUNT(widths); i++)
            for (int bias = 0; bias < 2; bias++) {
                conv_case v = {.kind = kind,
                               .target = "x86",
                               .in_bits = widths[i][0],
                               .add_bits = widths[i][1],
                               .out_bits = widths[i][2],
                               .batch_norm = true,
                               .bias = bias,
                               .activation = (oct_activation)(i % 3)};
                check_fold(&v);
                v.method = bias ? &lsq_fake_quant : &lsq_tensor_fake_quant;
                check_fold(&v);
            }
}

Test(qat_conv_fold, leaves_scales_alone_that_follow_from_the_weights_by_a_rule_of_their_own)
{
    bench b;
    case_begin(&b, &(conv_case){.kind = CONV_PLAIN,
                                .target = "x86",
                                .in_bits = 8,
                                .out_bits = 8,
                                .batch_norm = true,
                                .method = &clipping_fake_quant});
    cr_assert_eq(oct_qat_conv_fold(case_conv(&b), input_of(&b)), OCT_PREPARE);
    cr_assert(
        strstr(oct_error_message(0), "the fake-quant of its weights, 'clipping', takes scales"),
        "%s", oct_error_message(0));
    cr_assert_not_null(case_conv(&b)->batch_norm);
    bench_end(&b);
}

/* Training continues: the bias that folding made has a gradient. */
Test(qat_conv_fold, leaves_a_layer_that_trains)
{
    bench b;
    case_begin(&b, &(conv_case){.kind = CONV_PLAIN,
                                .target = "x86",
                                .in_bits = 8,
                                .out_bits = 8,
                                .batch_norm = true,
                                .activation = OCT_ACT_RELU});
    OK(oct_qat_conv_fold(case_conv(&b), input_of(&b)));
    oct_params params = {0};
    OK(oct_params_bind(&params, b.root, &b.leaves));
    cr_assert_eq(params.count, 2);
    cr_assert_str_eq(params.items[1]->name, "bias");
    oct_params_zero(&params);
    oct_tensor *y = bench_forward(&b, true);
    float *grad = calloc((size_t)oct_numel(y), 4);
    oct_fill_normal(grad, oct_numel(y), 11, OCT_STREAM_TEST, 1, 0.0f, 1.0f);
    bench_backward(&b, y, grad);
    OK(oct_params_reduce(&params, &oct_collective_one, &b.leaves));
    double sum = 0;
    for (int64_t i = 0; i < params.numel; i++)
        sum += fabs((double)params.grads[i]);
    cr_assert_gt(sum, 1);
    free(grad);
    oct_params_unbind(&params);
    bench_end(&b);
}

enum { MANY = 4096, DEPTH = 9 };

/* Layers with gains and shifts of every size. floor: weight scales too reach down to their floor. */
static void roll_layer(const oct_qat_conv *m, uint32_t seed, bool floor_scales)
{
    float *w = oct_f32(&m->layer->params[0]->value);
    oct_batch_norm_module *bn = (oct_batch_norm_module *)m->batch_norm;
    float uniform[4];
    oct_fill_normal(w, MANY * DEPTH, seed, OCT_STREAM_TEST, 3, 0.0f, 0.2f);
    for (int c = 0; c < MANY; c++) {
        oct_fill_uniform(uniform, 4, seed, OCT_STREAM_TEST, (uint32_t)(100 + c), 0.0f, 1.0f);
        const float sign = c % 2 ? -1.0f : 1.0f;
        oct_f32(&bn->gamma->value)[c] = sign * exp10f(-9 * uniform[0] * uniform[0] + 0.5f);
        if (c % 64 == 5) oct_f32(&bn->gamma->value)[c] = 0;
        oct_f32(&bn->beta->value)[c] = 3 * uniform[1] - 1.5f;
        if (c % 64 == 7) oct_f32(&bn->beta->value)[c] = 0;
        bn->running_mean[c] = uniform[2] - 0.5f;
        bn->running_var[c] = 2 * uniform[3];
        if (!floor_scales) continue;
        const float factor = exp10f(-6 * uniform[1] - 2);
        for (int i = 0; i < DEPTH; i++)
            w[c * DEPTH + i] *= factor;
    }
}

/* Channels whose weight scale is at its floor before or after folding, and that have accumulators. */
static bool excepted(const oct_step *before, int64_t c)
{
    int largest = 0;
    for (int i = 0; i < DEPTH; i++)
        largest = abs(before->conv.weight[c * DEPTH + i]) > largest
                      ? abs(before->conv.weight[c * DEPTH + i])
                      : largest;
    if (largest == 0) return false;
    return largest < 127 || before->conv.weight_scale[c] < 0x1p-23f;
}

static int64_t compare_many(uint32_t seed, int bits, bool floor_scales)
{
    oct_module *layer = NULL, *bn = NULL, *m = NULL;
    OK(oct_linear_create(&layer, DEPTH, MANY, seed % 2));
    OK(oct_batch_norm_create(&bn, MANY));
    OK(oct_qat_conv_create(&m, &layer, &bn, false, OCT_ACT_NONE));
    roll_layer((oct_qat_conv *)m, seed, floor_scales);
    stubbed_adopt(m, (quantizer){bits, true, 0.02f}, oct_target_find("x86"));
    bench b;
    const quantizer q = {bits, true, 0.03f};
    const oct_shape shape = OCT_SHAPE(3, DEPTH);
    bench_begin(&b, "x86", m, 1, &shape, &q);
    snapshot before = take_snapshot(&b);
    OK(oct_qat_conv_fold(case_conv(&b), input_of(&b)));
    snapshot after = take_snapshot(&b);
    const oct_step *x = conv_step(&before), *y = conv_step(&after);
    int64_t exceptions = 0;
    for (int64_t c = 0; c < MANY; c++) {
        if (excepted(x, c)) {
            exceptions++;
            continue;
        }
        oct_check_bytes(y->conv.weight + c * DEPTH, x->conv.weight + c * DEPTH, DEPTH,
                        "weight codes");
        cr_assert_eq(x->conv.bias[c], y->conv.bias[c], "channel %lld: bias %lld became %lld",
                     (long long)c, (long long)x->conv.bias[c], (long long)y->conv.bias[c]);
        if (x->conv.bias[c])
            oct_check_bits_f32(&y->conv.multiplier[c], &x->conv.multiplier[c], 1, "multiplier");
        for (int64_t s = 0; s < 3; s++)
            oct_check_bits_f32(&after.y[s * MANY + c], &before.y[s * MANY + c], 1, "evaluation");
    }
    drop(&before);
    drop(&after);
    bench_end(&b);
    return exceptions;
}

Test(qat_conv_fold, keeps_channels_of_every_size, .timeout = 120)
{
    int64_t exceptions = 0;
    for (uint32_t seed = 1; seed <= 6; seed++)
        exceptions += compare_many(seed, seed % 3 ? 8 : 16, false);
    cr_assert_lt(exceptions, 6 * MANY / 4);
    for (uint32_t seed = 7; seed <= 9; seed++)
        exceptions += compare_many(seed, 8, true);
    cr_assert_gt(exceptions, 0,
                 "no channel came to the floor of scales, so nothing was tried there");
}

/* A further call site has no batch norm of its own and follows. */
Test(qat_conv_fold, is_seen_by_the_other_call_sites)
{
    bench b;
    case_begin(
        &b,
        &(conv_case){
            .kind = CONV_PLAIN, .target = "x86", .in_bits = 8, .out_bits = 8, .batch_norm = true});
    stubbed *w = (stubbed *)b.root;
    oct_module *again = NULL;
    OK(oct_qat_conv_create_shared(&again, case_conv(&b), false, OCT_ACT_RELU));
    stubbed_adopt(again, (quantizer){8, false, 0.02f}, oct_target_find("x86"));
    OK(oct_module_add_child(b.root, "again", &again));
    oct_module_train(b.root, false);
    float *kept = NULL;
    for (int folded = 0; folded < 2; folded++) {
        oct_context_begin(b.cx, b.leaves, false);
        oct_tensor *x = oct_tensor_view(b.cx, OCT_F32, b.shape[0], b.x[0]);
        oct_tensor *y =
            oct_call(b.cx, w->dequant, oct_call(b.cx, again, oct_call(b.cx, w->stub[0], x)));
        OK(oct_context_status(b.cx));
        const int64_t n = oct_numel(y);
        if (folded) oct_check_bits_f32(oct_f32(y), kept, n, "the other call site");
        if (!folded) kept = memcpy(calloc((size_t)n, 4), y->data, (size_t)n * 4);
        OK(oct_qat_conv_fold(case_conv(&b), input_of(&b)));
        OK(oct_qat_conv_fold((oct_qat_conv *)again, input_of(&b)));
    }
    free(kept);
    bench_end(&b);
    oct_module_destroy(&again);
}

Test(qat_conv_fold, refuses_values_that_are_not_finite)
{
    bench b;
    case_begin(
        &b,
        &(conv_case){
            .kind = CONV_PLAIN, .target = "x86", .in_bits = 8, .out_bits = 8, .batch_norm = true});
    ((oct_batch_norm_module *)case_conv(&b)->batch_norm)->running_mean[2] = NAN;
    cr_assert_eq(oct_qat_conv_fold(case_conv(&b), input_of(&b)), OCT_NUMERIC);
    cr_assert_str_eq(oct_error_message(0),
                     "middle: a weight, bias or batch-norm value is not finite");
    bench_end(&b);
}

/* Of the float model, before prepare. */
static void check_float(conv_kind kind, bool bias)
{
    const conv_case v = {.kind = kind, .bias = bias};
    oct_module *layer = case_layer(&v), *bn = case_batch_norm(CASE_O);
    oct_context *cx = NULL;
    OK(oct_context_create(&cx, &oct_collective_one));
    oct_module_train(bn, false);
    oct_shape shape = case_input(kind);
    float *x = calloc((size_t)oct_shape_numel(&shape), 4), *kept = NULL;
    oct_fill_normal(x, oct_shape_numel(&shape), 5, OCT_STREAM_TEST, 0, 0.0f, 1.0f);
    for (int folded = 0; folded < 2; folded++) {
        oct_context_begin(cx, oct_leaves_split(CASE_N, 2, 0, 1), false);
        oct_tensor *y = oct_call(cx, layer, oct_tensor_view(cx, OCT_F32, shape, x));
        if (!folded) y = oct_call(cx, bn, y);
        OK(oct_context_status(cx));
        const int64_t n = oct_numel(y);
        if (folded) oct_check_near_f32(oct_f32(y), kept, n, 1e-5, 1e-5, "folded layer");
        if (!folded) kept = memcpy(calloc((size_t)n, 4), y->data, (size_t)n * 4);
        if (!folded) OK(oct_fold_float(layer, (oct_batch_norm_module *)bn));
    }
    free(kept);
    free(x);
    oct_context_destroy(&cx);
    oct_module_destroy(&layer);
    oct_module_destroy(&bn);
}

/* The k-th allocation fails, k = 1, 2, ... until all succeed. */
Test(qat_conv_fold, without_memory_weights_stay)
{
    const conv_case v = {
        .kind = CONV_PLAIN, .target = "x86", .in_bits = 8, .out_bits = 8, .batch_norm = true};
    bench b;
    case_begin(&b, &v);
    oct_qat_conv *conv = case_conv(&b);
    const oct_qparams input = input_of(&b);
    const oct_tensor *weight = &oct_layer_weight(conv->layer)->value;
    const size_t bytes = (size_t)oct_numel(weight) * sizeof(float);
    float *before = malloc(bytes);
    memcpy(before, weight->data, bytes);
    oct_status status = OCT_RESOURCE;
    int64_t failures = 0;
    while (status != OCT_OK) {
        cr_assert_not_null(conv->batch_norm);
        oct_check_bytes(weight->data, before, (int64_t)bytes, "weights");
        oct_mem_fail_after(++failures);
        status = oct_qat_conv_fold(conv, input);
        oct_mem_fail_after(0);
        cr_assert(status == OCT_OK || status == OCT_RESOURCE);
    }
    cr_assert(failures > 3 && !conv->batch_norm && memcmp(weight->data, before, bytes) != 0);
    free(before);
    bench_end(&b);
}

Test(fold_float, makes_layers_compute_what_their_batch_norm_did)
{
    for (conv_kind kind = 0; kind < CONV_KINDS; kind++)
        for (int bias = 0; bias < 2; bias++)
            check_float(kind, bias);
}
