/* The integer forward of qat_conv against an oracle written from the definition (DESIGN: integer
 * convolution, exact statistics, folding, requantization), and its straight-through backward against
 * the float operations on dequantized values.
 */
#include "tests/quant/net.h"

#include <math.h>
#include <omp.h>

enum { N = 11, LEAF = 4, H = 7, W = 6, C = 5, O = 8 };

typedef struct variant {
    bool batch_norm, live, relu6, bias;
    int stride;
} variant;

static void build(net *n, variant v)
{
    net_begin(n, H, W, C, N, LEAF);
    APPEND(n, oct_quant_stub_create(&item));
    APPEND(n, oct_conv2d_create(&item, C, O, conv3x3(v.stride, 1), v.bias));
    if (v.batch_norm) APPEND(n, oct_batch_norm_create(&item, O));
    if (v.relu6)
        APPEND(n, oct_relu6_create(&item));
    else
        APPEND(n, oct_relu_create(&item));
    APPEND(n, oct_dequant_stub_create(&item));
    OK(net_prepare(n, false, true));
    if (v.bias) {
        oct_param *bias = oct_module_find(n->root, "1.conv")->params[1];
        for (int o = 0; o < O; o++)
            oct_f32(&bias->value)[o] = 0.1f * (float)o - 0.3f;
    }
    if (v.relu6 && v.batch_norm) /* so that the upper bound is met */
        oct_f32(&((oct_batch_norm_module *)oct_module_find(n->root, "1.bn"))->beta->value)[0] =
            5.0f;
    if (v.relu6 && !v.batch_norm)
        for (int i = 0; i < 9 * C; i++)
            oct_f32(&oct_module_find(n->root, "1.conv")->params[0]->value)[i] *= 8.0f;
    net_enter(n, OCT_QUANT_QAT, !v.live);
}

typedef struct oracle {
    int64_t oh, ow;
    uint8_t *x; /* input codes */
    int8_t w[O * 9 * C];
    float sw[O];
    int32_t *acc; /* zero point taken off */
    double mean[O], var[O];
    uint8_t *codes, *mask;
} oracle;

/* Accumulators by the definition: padding is the real value 0. */
static void convolve(oracle *r, int stride)
{
    r->oh = (H + 2 - 3) / stride + 1;
    r->ow = (W + 2 - 3) / stride + 1;
    r->acc = calloc((size_t)(N * r->oh * r->ow * O), 4);
    for (int64_t s = 0; s < N; s++)
        for (int64_t y = 0; y < r->oh; y++)
            for (int64_t x = 0; x < r->ow; x++)
                for (int64_t o = 0; o < O; o++) {
                    int32_t sum = 0;
                    for (int64_t k = 0; k < 9 * C; k++) {
                        int64_t iy = y * stride - 1 + k / (3 * C), ix = x * stride - 1 + k / C % 3;
                        if (iy < 0 || iy >= H || ix < 0 || ix >= W) continue;
                        sum +=
                            (r->x[((s * H + iy) * W + ix) * C + k % C] - 128) * r->w[o * 9 * C + k];
                    }
                    r->acc[((s * r->oh + y) * r->ow + x) * O + o] = sum;
                }
}

static void statistics(oracle *r, double scale_x, const oct_batch_norm_module *bn,
                       const float *bias, bool live)
{
    int64_t rows = N * r->oh * r->ow;
    for (int o = 0; o < O; o++) {
        double scale = scale_x * (double)r->sw[o], sum = 0, square = 0;
        if (!live) {
            r->mean[o] = (double)bn->running_mean[o];
            r->var[o] = (double)bn->running_var[o];
            continue;
        }
        for (int64_t i = 0; i < rows; i++)
            sum += r->acc[i * O + o];
        for (int64_t i = 0; i < rows; i++)
            square += pow(r->acc[i * O + o] - sum / (double)rows, 2);
        r->mean[o] = (double)(float)(sum / (double)rows * scale + (bias ? (double)bias[o] : 0));
        r->var[o] = square / (double)rows * scale * scale;
    }
}

static void check_forward(variant v)
{
    net n;
    build(&n, v);
    const oct_qat_conv *m = (const oct_qat_conv *)oct_module_find(n.root, "1");
    const oct_conv2d_module *conv = (const oct_conv2d_module *)m->layer;
    const oct_batch_norm_module *bn = (const oct_batch_norm_module *)m->batch_norm;
    const oct_fake_quant *in = (const oct_fake_quant *)oct_module_find(n.root, "0.fake_quant");
    const oct_fake_quant *out = (const oct_fake_quant *)m->q.fake_quant;
    const float *bias = v.bias ? oct_f32(&conv->bias->value) : NULL;

    oracle r = {.x = malloc(N * H * W * C)};
    for (int64_t i = 0; i < N * H * W * C; i++) {
        double code = nearbyint((double)(n.x[i] * (1.0f / in->scale[0]))) + 128;
        r.x[i] = (uint8_t)fmin(fmax(code, 0), 255);
    }
    for (int o = 0; o < O; o++) {
        const float *w = oct_f32(&conv->weight->value) + o * 9 * C;
        float absmax = 0;
        for (int i = 0; i < 9 * C; i++)
            absmax = fmaxf(absmax, fabsf(w[i]));
        r.sw[o] = absmax / 127.0f;
        for (int i = 0; i < 9 * C; i++)
            r.w[o * 9 * C + i] =
                (int8_t)fmin(fmax(nearbyint((double)(w[i] * (1.0f / r.sw[o]))), -127), 127);
    }
    convolve(&r, v.stride);
    if (bn) statistics(&r, (double)in->scale[0], bn, bias, v.live);

    oct_tensor *y = net_forward(&n, true);
    int64_t upper = 0, lower = 0;
    for (int64_t i = 0; i < N * r.oh * r.ow * O; i++) {
        int o = (int)(i % O);
        double gain = 1, shift = bias ? (double)bias[o] : 0;
        if (bn) {
            double inv = (double)(float)(1.0 / sqrt(r.var[o] + (double)bn->args.eps));
            gain = (double)oct_f32(&bn->gamma->value)[o] * inv;
            shift = (double)oct_f32(&bn->beta->value)[o] + (shift - r.mean[o]) * gain;
        }
        /* Of the layer that has the gain in its weights and the shift as its bias. */
        float effective = (float)(127.0 * (double)r.sw[o] * gain) / 127.0f;
        float acc_scale = in->scale[0] * effective, code;
        if (gain == 0) { /* by its bias alone */
            code = nearbyintf((float)(shift / (double)out->scale[0]));
        } else {
            int32_t b = (int32_t)nearbyint((double)(float)shift / (double)acc_scale);
            code = nearbyintf((float)(r.acc[i] + b) * (acc_scale / out->scale[0]));
        }
        float top = v.relu6 ? fminf(255, nearbyintf(6.0f / out->scale[0])) : 255;
        upper += code >= top;
        lower += code <= 0;
        code = fminf(fmaxf(code, 0), top);
        float got = oct_f32(y)[i];
        cr_assert_float_eq(got, code * out->scale[0], 1e-6f, "element %lld: %g, wanted code %g",
                           (long long)i, (double)(got / out->scale[0]), (double)code);
    }
    cr_assert(lower > 0);
    if (v.relu6) cr_assert(upper > 0);
    free(r.x);
    free(r.acc);
    net_end(&n);
}

Test(qat_conv, forward_with_live_batch_norm_is_the_definition)
{
    check_forward((variant){.batch_norm = true, .live = true, .stride = 1});
    check_forward((variant){.batch_norm = true, .live = true, .stride = 2, .bias = true});
}

Test(qat_conv, forward_with_frozen_batch_norm_is_the_definition)
{
    check_forward((variant){.batch_norm = true, .stride = 1});
    check_forward((variant){.batch_norm = true, .stride = 2, .bias = true, .relu6 = true});
}

Test(qat_conv, forward_without_batch_norm_is_the_definition)
{
    check_forward((variant){.stride = 1, .bias = true});
    check_forward((variant){.stride = 2, .bias = false, .relu6 = true});
}

/* The same gradients by float operations on the dequantized input and weights, with the output's
 * gradient masked where the output is clipped. */
static void check_backward(variant v)
{
    net n;
    build(&n, v);
    const oct_qat_conv *m = (const oct_qat_conv *)oct_module_find(n.root, "1");
    const oct_conv2d_module *conv = (const oct_conv2d_module *)m->layer;
    oct_batch_norm_module *bn = (oct_batch_norm_module *)m->batch_norm;
    const oct_fake_quant *in = (const oct_fake_quant *)oct_module_find(n.root, "0.fake_quant");
    const oct_fake_quant *out = (const oct_fake_quant *)m->q.fake_quant;

    n.cx->numerics = OCT_NUMERICS_F32;
    oct_tensor *y = net_forward(&n, true);
    int64_t out_numel = oct_numel(y);
    float *top = malloc((size_t)out_numel * 4);
    memcpy(top, y->data, (size_t)out_numel * 4);
    net_backward(&n, y);
    float *got = malloc((size_t)n.params.numel * 4);
    memcpy(got, n.params.grads, (size_t)n.params.numel * 4);

    /* The float counterpart: weights replaced by their dequantized codes, straight through. */
    float *weight = oct_f32(&conv->weight->value);
    for (int o = 0; o < O; o++) {
        int8_t codes[9 * C];
        float scale = oct_weight_scale(weight + o * 9 * C, 9 * C);
        oct_weight_codes(weight + o * 9 * C, 9 * C, scale, codes);
        for (int i = 0; i < 9 * C; i++)
            weight[o * 9 * C + i] = (float)codes[i] * scale;
    }
    oct_shape shape = n.input;
    shape.dim[0] = N;
    oct_params_zero(&n.params);
    oct_context_begin(n.cx, n.leaves, true);
    oct_tensor *x = oct_tensor_new(n.cx, OCT_F32, shape);
    for (int64_t i = 0; i < oct_numel(x); i++) {
        oct_qparams q = oct_fake_quant_qparams(in);
        uint8_t code;
        oct_quantize_codes(n.x + i, 1, q, &code, NULL, NULL);
        oct_dequantize(&code, 1, q, oct_f32(x) + i);
    }
    oct_tensor *z = oct_conv2d(n.cx, x, conv->weight, conv->bias, conv->args.geometry);
    if (bn) {
        oct_bn_args args = {.gamma = bn->gamma,
                            .beta = bn->beta,
                            .running_mean = bn->running_mean,
                            .running_var = bn->running_var,
                            .eps = bn->args.eps,
                            .momentum = 0,
                            .batch_stats = v.live};
        z = oct_batch_norm(n.cx, z, &args);
    }
    OK(oct_context_status(n.cx));
    float *grad = oct_scratch(n.cx, (size_t)out_numel * 4 + 64);
    oct_fill_normal(grad, out_numel, 11, OCT_STREAM_TEST, 1, 0.0f, 1.0f);
    int64_t masked = 0;
    for (int64_t i = 0; i < out_numel; i++) {
        bool pass = oct_f32(z)[i] > 0 && oct_f32(z)[i] < (v.relu6 ? 6.0f : 255.4f * out->scale[0]);
        if (!pass) grad[i] = 0.0f;
        masked += !pass;
    }
    cr_assert(masked > 0 && masked < out_numel);
    oct_add_grad(n.cx, z, grad);
    OK(oct_backward(n.cx, z));
    OK(oct_params_reduce(&n.params, &oct_collective_one, &n.leaves));
    /* Rounding of the bias and a gradient or two on the edge of the mask separate the two. */
    double error = 0, norm = 0;
    for (int64_t i = 0; i < n.params.numel; i++) {
        error += pow((double)got[i] - (double)n.params.grads[i], 2);
        norm += pow((double)n.params.grads[i], 2);
    }
    cr_assert(norm > 0);
    cr_assert(error <= 1e-6 * norm, "relative error of the gradients: %g", sqrt(error / norm));
    free(top);
    free(got);
    net_end(&n);
}

Test(qat_conv, backward_is_the_straight_through_gradient)
{
    check_backward((variant){.batch_norm = true, .live = true, .stride = 1});
    check_backward((variant){.batch_norm = true, .stride = 2, .relu6 = true});
    check_backward((variant){.stride = 1, .bias = true});
}

Test(qat_conv, threads_change_no_bit)
{
    float *first = NULL;
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        net n;
        build(&n, (variant){.batch_norm = true, .live = true, .stride = 1, .bias = true});
        net_backward(&n, net_forward(&n, true));
        if (!first) {
            first = malloc((size_t)n.params.numel * 4);
            memcpy(first, n.params.grads, (size_t)n.params.numel * 4);
        }
        oct_check_bits_f32(n.params.grads, first, n.params.numel, "gradients");
        net_end(&n);
    }
    free(first);
}

Test(qat_conv, live_batch_norm_moves_the_running_statistics_and_frozen_does_not)
{
    for (int live = 0; live < 2; live++) {
        net n;
        build(&n, (variant){.batch_norm = true, .live = live != 0, .stride = 1});
        oct_batch_norm_module *bn = (oct_batch_norm_module *)oct_module_find(n.root, "1.bn");
        float mean = bn->running_mean[2], var = bn->running_var[2];
        net_forward(&n, false);
        cr_assert((bn->running_mean[2] != mean) == live);
        cr_assert((bn->running_var[2] != var) == live);
        oct_module_train(n.root, false);
        mean = bn->running_mean[2];
        net_forward(&n, false);
        cr_assert_eq(bn->running_mean[2], mean, "evaluation must not move anything");
        net_end(&n);
    }
}

Test(qat_conv, scales_follow_the_step_before_and_stay_when_frozen)
{
    net n;
    build(&n, (variant){.batch_norm = true, .live = true, .stride = 1});
    oct_fake_quant *fq = (oct_fake_quant *)oct_module_find(n.root, "1.fake_quant");
    float before = fq->scale[0];
    net_forward(&n, false);
    cr_assert_eq(fq->scale[0], before, "a step uses what the steps before have seen");
    net_update(&n);
    float after = fq->scale[0];
    cr_assert_neq(after, before);
    oct_quantizers_set_state(&n.quantizers, OCT_QUANT_FROZEN);
    net_forward(&n, false);
    net_update(&n);
    cr_assert_eq(fq->scale[0], after);
    net_end(&n);
}

Test(qat_conv, statistics_that_overflow_are_an_error_that_names_the_layer)
{
    net n;
    build(&n, (variant){.batch_norm = true, .live = true, .stride = 1});
    oct_conv2d_module *conv = (oct_conv2d_module *)oct_module_find(n.root, "1.conv");
    for (int64_t i = 0; i < oct_numel(&conv->weight->value); i++)
        oct_f32(&conv->weight->value)[i] *= 1e25f;
    oct_context_begin(n.cx, n.leaves, false);
    oct_shape shape = n.input;
    shape.dim[0] = n.leaves.samples;
    oct_call(n.cx, n.root, oct_tensor_view(n.cx, OCT_F32, shape, n.x));
    cr_assert_eq(oct_context_status(n.cx), OCT_NUMERIC);
    cr_assert_str_eq(oct_error_message(0), "1: the batch's mean or variance is not finite");
    net_end(&n);
}

/* Current scales: a step that starts from a useless scale ends, in the same forward, with the scale of
 * its own range, and its codes use the whole of it. */
Test(qat_conv, current_scales_follow_the_step_itself)
{
    for (int live = 0; live < 2; live++) {
        net n;
        build(&n, (variant){.batch_norm = true, .live = live != 0, .stride = 1});
        for (size_t i = 0; i < n.quantizers.count; i++) {
            oct_fake_quant *fq = n.quantizers.items[i];
            fq->qconfig.current_scales = true;
            fq->updates[0] = 0; /* as before the first batch, whose range is then taken as it is */
            fq->scale[0] = 1000.0f;
        }
        oct_tensor *y = net_forward(&n, false);
        float most = 0;
        for (int64_t i = 0; i < oct_numel(y); i++)
            most = fmaxf(most, oct_f32(y)[i]);
        oct_fake_quant *fq = (oct_fake_quant *)oct_module_find(n.root, "1.fake_quant");
        cr_assert_float_eq(most, 255.0f * fq->scale[0], 1e-6f);
        cr_assert_float_eq(most, fq->max[0], 1e-5f);
        cr_assert_eq(fq->updates[0], 1);
        net_update(&n);
        cr_assert_eq(fq->updates[0], 1, "the end of the step has nothing left to add");

        /* The same codes as a delayed step that starts from this scale. */
        float *kept = malloc((size_t)oct_numel(y) * 4);
        int64_t numel = oct_numel(y);
        memcpy(kept, y->data, (size_t)numel * 4);
        for (size_t i = 0; i < n.quantizers.count; i++)
            n.quantizers.items[i]->qconfig.current_scales = false;
        oct_check_bits_f32(oct_f32(net_forward(&n, false)), kept, numel, "codes");
        free(kept);
        net_end(&n);
    }
}
