/* A batch norm on codes against an oracle from the definition, its backward against the float op, its
 * step against its evaluation. */
#include "core/nn/params.h"
#include "tests/quant/conv_case.h"

#include <omp.h>

enum { N = 5, PIXELS = 12, C = 7, NUMEL = N * PIXELS * C };

typedef struct variant {
    int in_bits, out_bits;
    bool flat; /* (N, C) */
    bool live;
    oct_activation activation;
} variant;

static void each_variant(void (*check)(const variant *v))
{
    for (int i = 0; i < 48; i++)
        check(&(variant){.in_bits = i & 1 ? 16 : 8,
                         .out_bits = i & 2 ? 16 : 8,
                         .flat = i & 4,
                         .live = i & 8,
                         .activation = (oct_activation)(i % 3)});
}

static void begin_variant(bench *b, const variant *v)
{
    oct_module *bn = case_batch_norm(C), *m = NULL;
    ((oct_batch_norm_module *)bn)->frozen = !v->live;
    OK(oct_qat_batch_norm_create(&m, &bn, v->activation));
    cr_assert_null(bn);
    const quantizer out = {v->out_bits, v->activation == OCT_ACT_NONE,
                           v->out_bits == 16 ? 0.011f / 256 : 0.011f};
    stubbed_adopt(m, out, oct_target_find("x86"));
    const quantizer in = {v->in_bits, true, ldexpf(1.3f, v->in_bits == 16 ? -14 : -6)};
    const oct_shape shape = v->flat ? OCT_SHAPE(N * PIXELS, C) : OCT_SHAPE(N, 4, 3, C);
    bench_begin(b, "x86", m, 1, &shape, &in);
}

static oct_qat_conv *middle(const bench *b)
{
    return (oct_qat_conv *)((stubbed *)b->root)->middle;
}

static oct_fake_quant *output_of(const bench *b)
{
    return (oct_fake_quant *)middle(b)->q.fake_quant;
}

static oct_qparams input_of(const bench *b)
{
    const oct_quantized *stub = (const oct_quantized *)((const stubbed *)b->root)->stub[0];
    return oct_fake_quant_qparams((const oct_fake_quant *)stub->fake_quant);
}

/* v of every element, in units of the output scale; x: logical input codes. */
typedef struct oracle {
    int32_t x[NUMEL];
    double v[NUMEL];
} oracle;

static void take_codes(oracle *o, const bench *b)
{
    const oct_qparams q = input_of(b);
    for (int i = 0; i < NUMEL; i++) {
        const double code = nearbyint((double)(b->x[0][i] * (1.0f / q.scale))) + q.zero_point;
        o->x[i] = (int32_t)fmin(fmax(code, 0), q.qmax) - q.zero_point;
    }
}

static void oracle_of(oracle *o, const bench *b, const variant *v, bool live)
{
    const oct_batch_norm_module *bn = (const oct_batch_norm_module *)middle(b)->batch_norm;
    const float sx = input_of(b).scale, sy = output_of(b)->scale[0];
    const bool wide = v->in_bits == 16 || v->out_bits == 16;
    take_codes(o, b);
    for (int c = 0; c < C; c++) {
        double sum = 0, square = 0, mean = (double)bn->running_mean[c],
               var = (double)bn->running_var[c];
        for (int i = c; i < NUMEL; i += C) {
            sum += o->x[i];
            square += (double)o->x[i] * o->x[i];
        }
        const double count = N * PIXELS, scale = (double)sx;
        if (live) {
            mean = (double)(float)(sum / count * scale);
            var = (square / count - sum / count * (sum / count)) * scale * scale;
        }
        const double gain = (double)oct_f32(&bn->gamma->value)[c] *
                            (double)(float)(1 / sqrt(var + (double)bn->args.eps));
        const float shift = (float)((double)oct_f32(&bn->beta->value)[c] - mean * gain);
        float e = (float)(127.0 * 0x1p-15 * gain) / 127.0f;
        int64_t bias = (int64_t)nearbyint((double)shift / (double)(sx * e));
        int64_t factor = 32768;
        if (gain == 0) { /* by its bias alone */
            e = (float)(fabs((double)shift) / 0x1p20 / (double)sx);
            bias = shift > 0 ? 1 << 20 : -(1 << 20);
            factor = 0;
        }
        const float multiplier = sx * e / sy;
        for (int i = c; i < NUMEL; i += C) {
            const int64_t acc = o->x[i] * factor + bias;
            const float narrow = (float)acc * multiplier;
            o->v[i] = wide ? (double)acc * (double)multiplier : (double)narrow;
        }
    }
}

static void check_output(const oracle *o, const variant *v, oct_qparams q, const oct_tensor *y)
{
    double lo = v->activation == OCT_ACT_NONE ? -q.zero_point : 0, hi = q.qmax - q.zero_point;
    if (v->activation == OCT_ACT_RELU6) hi = fmin(hi, nearbyint((double)(6.0f / q.scale)));
    int64_t cut = 0;
    for (int i = 0; i < NUMEL; i++) {
        const double code = fmin(fmax(nearbyint(o->v[i]), lo), hi);
        const float want = (float)code * q.scale;
        cut += code != nearbyint(o->v[i]);
        cr_assert(oct_f32(y)[i] == want,
                  "%d -> %d bits, flat %d, live %d, activation %d: element %d: %.9g, not %.9g",
                  v->in_bits, v->out_bits, v->flat, v->live, v->activation, i,
                  (double)oct_f32(y)[i], (double)want);
    }
    cr_assert(cut > 0 && cut < NUMEL);
}

static void check_forward(const variant *v)
{
    bench b;
    static oracle o;
    begin_variant(&b, v);
    const oct_batch_norm_module *bn = (const oct_batch_norm_module *)middle(&b)->batch_norm;
    const float mean = bn->running_mean[2];
    const oct_tensor *y = bench_forward(&b, true);
    cr_assert_eq(bn->running_mean[2] != mean, v->live);
    oracle_of(&o, &b, v, v->live);
    check_output(&o, v, oct_fake_quant_qparams(output_of(&b)), y);
    const float *range = output_of(&b)->batch_range;
    double most = -INFINITY;
    for (int i = 0; i < NUMEL; i++)
        most = fmax(most, o.v[i]);
    if (v->activation == OCT_ACT_RELU6) most = fmin(most, (double)(6 / output_of(&b)->scale[0]));
    cr_assert_float_eq((double)range[1], most * (double)output_of(&b)->scale[0], 1e-5);
    bench_end(&b);
}

Test(qat_batch_norm, forward_is_the_definition)
{
    each_variant(check_forward);
}

static void check_settles(const variant *v)
{
    bench b;
    static oracle o;
    begin_variant(&b, v);
    output_of(&b)->qconfig.current_scales = true;
    output_of(&b)->scale[0] = 77;
    const oct_tensor *y = bench_forward(&b, true);
    oracle_of(&o, &b, v, v->live);
    const double codes = (1 << v->out_bits) - 1;
    double most = 0;
    for (int i = 0; i < NUMEL; i++) {
        const double want = v->activation == OCT_ACT_NONE ? o.v[i] : fmax(o.v[i], 0);
        most = fmax(most, fabs(want));
        if (v->activation != OCT_ACT_RELU6)
            cr_assert_float_eq((double)(oct_f32(y)[i] / output_of(&b)->scale[0]), want, 0.51);
    }
    if (v->activation != OCT_ACT_RELU6)
        cr_assert_float_eq(most, v->activation == OCT_ACT_NONE ? codes / 2 : codes, 1e-4 * codes);
    bench_end(&b);
}

Test(qat_batch_norm, current_scales_are_those_of_the_step_itself)
{
    each_variant(check_settles);
}

static const oct_fake_quant_kind *own =
    NULL; /* of the quantizers, where it is not the built-in one */

static void check_learned(const variant *v, const oracle *o, const bench *b, const float *grad)
{
    const oct_fake_quant *fq = output_of(b);
    const oct_qparams q = oct_fake_quant_qparams(fq);
    const double hi = q.qmax - q.zero_point, samples = (double)b->shape[0].dim[0];
    double want = 0, loose = 0;
    for (int i = 0; i < NUMEL; i++) {
        double value = o->v[i];
        if (v->activation != OCT_ACT_NONE) value = fmax(value, 0);
        if (v->activation == OCT_ACT_RELU6) value = fmin(value, (double)(6.0f / q.scale));
        want += (double)grad[i] * lsq_step(value, q.qmin - q.zero_point, hi, (double)q.scale);
        loose += fabs((double)grad[i]) * (q.qmax > 255 ? 1e-2 : 1e-4);
        if (fabs(fabs(value - nearbyint(value)) - 0.5) < 0.01) loose += fabs((double)grad[i]);
    }
    const double factor = 1 / sqrt(NUMEL / samples * hi);
    cr_assert_leq(fabs((double)fq->learned->grad[0] - want * factor),
                  loose * factor + 1e-4 * fabs(want * factor), "%g, not %g",
                  (double)fq->learned->grad[0], want * factor);
}

static void check_backward(const variant *v)
{
    bench b;
    static oracle o;
    static float grad[NUMEL], cut[NUMEL];
    oct_params params = {0};
    oct_context *cx = NULL;
    stubbed_kind = own ? own : &oct_fake_quant_affine;
    begin_variant(&b, v);
    if (own) bench_state(&b, OCT_QUANT_QAT);
    OK(oct_params_bind(&params, b.root, &b.leaves));
    const oct_batch_norm_module *bn = (const oct_batch_norm_module *)middle(&b)->batch_norm;
    const oct_qparams q = oct_fake_quant_qparams(output_of(&b));
    oracle_of(&o, &b, v, v->live);
    oct_fill_normal(grad, NUMEL, 11, OCT_STREAM_TEST, 1, 0.0f, 1.0f);
    double lo = v->activation == OCT_ACT_NONE ? -q.zero_point - 0.5 : 0;
    double hi = q.qmax - q.zero_point + 0.5;
    if (v->activation == OCT_ACT_RELU6) hi = fmin(hi, (double)(6.0f / q.scale));
    for (int i = 0; i < NUMEL; i++) {
        if (fabs(o.v[i] - lo) < 0.01 || fabs(o.v[i] - hi) < 0.01) grad[i] = 0;
        cut[i] = o.v[i] > lo && o.v[i] < hi ? grad[i] : 0;
    }
    oct_params_zero(&params);
    bench_backward(&b, bench_forward(&b, true), grad);
    OK(oct_params_reduce(&params, &oct_collective_one, &b.leaves));
    float got[2 * C];
    const int64_t first = middle(&b)->batch_norm->params[0]->offset;
    cr_assert_eq(params.numel, 2 * C + (own ? 2 : 0));
    memcpy(got, params.grads + first, sizeof got);
    if (own) check_learned(v, &o, &b, grad);

    OK(oct_context_create(&cx, &oct_collective_one));
    oct_params_zero(&params);
    oct_context_begin(cx, b.leaves, true);
    oct_tensor *x = oct_tensor_new(cx, OCT_F32, b.shape[0]);
    x->needs_grad = true;
    for (int i = 0; i < NUMEL; i++)
        oct_f32(x)[i] = (float)o.x[i] * input_of(&b).scale;
    const oct_bn_args args = {.gamma = bn->gamma,
                              .beta = bn->beta,
                              .running_mean = bn->running_mean,
                              .running_var = bn->running_var,
                              .eps = bn->args.eps,
                              .batch_stats = v->live};
    oct_tensor *y = oct_batch_norm(cx, x, &args);
    OK(oct_context_status(cx));
    float *given = oct_scratch(cx, sizeof cut);
    memcpy(given, cut, sizeof cut);
    oct_add_grad(cx, y, given);
    OK(oct_backward(cx, y));
    OK(oct_params_reduce(&params, &oct_collective_one, &b.leaves));
    oct_check_near_f32(got, params.grads + first, 2 * C, 2e-5, 2e-5, "gradients of gamma and beta");
    oct_check_near_f32(b.input[0]->grad, x->grad, NUMEL, 2e-5, 2e-5, "gradient of the input");
    oct_context_destroy(&cx);
    oct_params_unbind(&params);
    bench_end(&b);
}

Test(qat_batch_norm, backward_is_that_of_the_float_op)
{
    each_variant(check_backward);
}

Test(qat_batch_norm, learns_its_scale)
{
    own = &lsq_fake_quant;
    each_variant(check_backward);
}

static void check_step(const variant *v)
{
    bench b;
    static oracle o;
    oct_program program;
    oct_runtime *runtime = NULL;
    float got[NUMEL];
    begin_variant(&b, v);
    bench_state(&b, OCT_QUANT_FROZEN);
    bench_program(&b, &program);
    OK(oct_program_check(&program));
    oct_module_train(b.root, false);
    const oct_tensor *y = bench_forward(&b, false);
    oracle_of(&o, &b, v, false);
    check_output(&o, v, oct_fake_quant_qparams(output_of(&b)), y);
    const int64_t samples = b.shape[0].dim[0];
    OK(oct_runtime_create(&runtime, &program, &(oct_runtime_options){.max_batch = samples}));
    OK(oct_runtime_run(runtime, samples, (const float *const *)b.x, got));
    oct_check_bits_f32(got, y->data, NUMEL, "the program's output");
    oct_runtime_destroy(&runtime);
    oct_program_free(&program);
    bench_end(&b);
}

Test(qat_batch_norm, its_step_computes_the_evaluation_bit_for_bit)
{
    each_variant(check_step);
}

/* A plane of one channel is no depthwise convolution elsewhere. */
Test(qat_batch_norm, takes_a_single_channel)
{
    oct_module *bn = case_batch_norm(1), *m = NULL;
    oct_f32(&((oct_batch_norm_module *)bn)->gamma->value)[0] = -0.8f;
    OK(oct_qat_batch_norm_create(&m, &bn, OCT_ACT_NONE));
    stubbed_adopt(m, (quantizer){8, true, 0.02f}, oct_target_find("x86"));
    bench b;
    const quantizer in = {8, true, 0.02f};
    const oct_shape shape = OCT_SHAPE(3, 4, 3, 1);
    oct_program program;
    oct_runtime *runtime = NULL;
    float got[36];
    bench_begin(&b, "x86", m, 1, &shape, &in);
    bench_program(&b, &program);
    OK(oct_program_check(&program));
    oct_module_train(b.root, false);
    const oct_tensor *y = bench_forward(&b, false);
    OK(oct_runtime_create(&runtime, &program, &(oct_runtime_options){.max_batch = 3}));
    OK(oct_runtime_run(runtime, 3, (const float *const *)b.x, got));
    oct_check_bits_f32(got, y->data, 36, "the program's output");
    oct_runtime_destroy(&runtime);
    oct_program_free(&program);
    bench_end(&b);
}

Test(qat_batch_norm, threads_change_no_bit)
{
    bench b[2];
    static float grad[NUMEL];
    oct_tensor *y[2];
    oct_fill_normal(grad, NUMEL, 11, OCT_STREAM_TEST, 1, 0.0f, 1.0f);
    for (int i = 0; i < 2; i++) {
        omp_set_num_threads(i ? 3 : 1);
        oct_params params = {0};
        begin_variant(&b[i], &(variant){.in_bits = 8, .out_bits = 8, .live = true});
        OK(oct_params_bind(&params, b[i].root, &b[i].leaves));
        oct_params_zero(&params);
        y[i] = bench_forward(&b[i], true);
        bench_backward(&b[i], y[i], grad);
        oct_params_unbind(&params);
    }
    oct_check_bits_f32(y[1]->data, y[0]->data, NUMEL, "output");
    oct_check_bits_f32(b[1].input[0]->grad, b[0].input[0]->grad, NUMEL, "gradient");
    bench_end(&b[0]);
    bench_end(&b[1]);
}

/* States OFF and CALIBRATE: the float batch norm and relu, the latter with an observer. */
Test(qat_batch_norm, is_the_float_model_in_the_float_states)
{
    bench b;
    begin_variant(&b, &(variant){.in_bits = 8, .out_bits = 8, .activation = OCT_ACT_RELU});
    bench_state(&b, OCT_QUANT_CALIBRATE);
    const oct_tensor *y = bench_forward(&b, false);
    const oct_batch_norm_module *bn = (const oct_batch_norm_module *)middle(&b)->batch_norm;
    float most = 0;
    for (int i = 0; i < NUMEL; i++) {
        const int c = i % C;
        const float sigma = sqrtf(bn->running_var[c] + bn->args.eps);
        const float want =
            (b.x[0][i] - bn->running_mean[c]) / sigma * oct_f32(&bn->gamma->value)[c] +
            oct_f32(&bn->beta->value)[c];
        cr_assert_float_eq(oct_f32(y)[i], fmaxf(want, 0), 1e-5);
        most = fmaxf(most, oct_f32(y)[i]);
    }
    cr_assert_eq(output_of(&b)->batch_range[1], most);
    bench_end(&b);
}

Test(qat_batch_norm, refuses_a_target_that_shifts_and_other_channels)
{
    bench b;
    begin_variant(&b, &(variant){.in_bits = 8, .out_bits = 8});
    middle(&b)->q.target = oct_target_find("pow2");
    bench_try(&b, false);
    cr_assert_eq(oct_context_status(b.cx), OCT_PREPARE);
    cr_assert_str_eq(oct_error_message(0),
                     "middle: target pow2 shifts and has no place for a batch norm; fold it");
    middle(&b)->q.target = oct_target_find("x86");
    b.shape[0].dim[3]--;
    bench_try(&b, false);
    cr_assert_eq(oct_context_status(b.cx), OCT_PREPARE);
    cr_assert_str_eq(
        oct_error_message(0),
        "middle: input (5, 4, 3, 6) does not have the batch's samples and its 7 channels");
    bench_end(&b);
}

/* As the float op does. */
Test(qat_batch_norm, refuses_to_train_on_one_value_a_channel)
{
    bench b;
    begin_variant(&b, &(variant){.in_bits = 8, .out_bits = 8, .flat = true, .live = true});
    for (int samples = 2; samples >= 1; samples--) {
        b.shape[0].dim[0] = samples;
        b.leaves = oct_leaves_split(samples, 1, 0, 1);
        bench_try(&b, true);
        cr_assert_eq(oct_context_status(b.cx), samples == 1 ? OCT_USAGE : OCT_OK);
    }
    cr_assert_str_eq(oct_error_message(0),
                     "middle: batch_norm has 1 value a channel in the whole batch and needs 2 or "
                     "more to train; make the batch larger or freeze the batch norm");
    oct_module_train(b.root, false);
    bench_forward(&b, false);
    bench_end(&b);
}
