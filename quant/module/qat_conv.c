/* conv2d or linear (+ batch norm) (+ relu or relu6), as the deployed integer arithmetic.
 *
 * Forward. With running statistics (evaluation, frozen batch norm, no batch norm) codes are made in
 * one pass. With live batch norm the accumulators of this rank's samples are held in scratch: their
 * sums give the batch's statistics, then the same accumulators are requantized. Weight codes are
 * those of the raw weights: batch norm's factor moves into the scale (fold.h), so nothing is
 * quantized twice.
 *
 * Backward, straight-through. With dY masked by the clip mask, and x^ from accumulators computed
 * again (cheaper than keeping four bytes an element):
 *     dC = gamma/sigma * (dY - mean(dY) - x^ mean(dY x^))   live
 *     dC = gamma/sigma * dY                                 frozen
 *     dX = dC * (weight codes * s_w),  dW = dC * (codes - z) * s_x  leaf by leaf.
 */
#include "quant/module/quant_modules.h"

#include "core/base/mem.h"
#include "core/kernel/conv.h"
#include "quant/module/fold.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

/* Arrays over the O output channels, in the arena. */
typedef struct channels {
    float *scale; /* s_w of the raw weights */
    float *mean;  /* batch norm's, of the real convolution output */
    float *inv_std;
    int32_t *offset; /* zero_point * sum of the channel's codes */
    int32_t *bias;   /* what the kernel adds: fold's bias - offset */
    float *multiplier;
    float *effective; /* the weight scale with batch norm's factor in it */
    bool *dead;
} channels;

typedef struct saved {
    oct_qconv_shape shape;
    channels ch;
    int8_t *codes;       /* (O, K) */
    uint8_t *mask;       /* leaf by leaf, each from a byte of its own; NULL for a float output */
    int64_t mask_stride; /* bytes */
    bool live;
} saved;

/* The float layer behind the module, conv2d and linear alike. */
typedef struct layer {
    oct_param *weight, *bias;
    oct_batch_norm_module *bn;
    oct_fake_quant *fq;
} layer;

static layer layer_of(const oct_qat_conv *m)
{
    layer l = {.bn = (oct_batch_norm_module *)m->batch_norm, .fq = (oct_fake_quant *)m->fake_quant};
    if (m->layer->type == &oct_conv2d_type) {
        l.weight = ((oct_conv2d_module *)m->layer)->weight;
        l.bias = ((oct_conv2d_module *)m->layer)->bias;
    } else {
        l.weight = ((oct_linear_module *)m->layer)->weight;
        l.bias = ((oct_linear_module *)m->layer)->bias;
    }
    return l;
}

static oct_qconv_shape shape_for(const oct_qat_conv *m, int64_t in_h, int64_t in_w)
{
    if (m->layer->type == &oct_linear_type) {
        const oct_linear_module *l = (const oct_linear_module *)m->layer;
        return (oct_qconv_shape){.in_h = 1,
                                 .in_w = 1,
                                 .in_c = l->in_features,
                                 .out_h = 1,
                                 .out_w = 1,
                                 .out_c = l->out_features,
                                 .kernel_h = 1,
                                 .kernel_w = 1,
                                 .stride = 1,
                                 .groups = 1};
    }
    const oct_conv2d_module *c = (const oct_conv2d_module *)m->layer;
    oct_conv_geometry g = c->geometry;
    return (oct_qconv_shape){.in_h = in_h,
                             .in_w = in_w,
                             .in_c = c->in_channels,
                             .out_h = (in_h + 2 * g.padding - g.kernel_h) / g.stride + 1,
                             .out_w = (in_w + 2 * g.padding - g.kernel_w) / g.stride + 1,
                             .out_c = c->out_channels,
                             .kernel_h = g.kernel_h,
                             .kernel_w = g.kernel_w,
                             .stride = g.stride,
                             .padding = g.padding,
                             .groups = g.groups};
}

static int64_t products(const oct_qconv_shape *s)
{
    return (int64_t)s->kernel_h * s->kernel_w * (s->in_c / s->groups);
}

static int64_t out_numel(const oct_qconv_shape *s) /* of one sample */
{
    return s->out_h * s->out_w * s->out_c;
}

static int64_t in_numel(const oct_qconv_shape *s)
{
    return s->in_h * s->in_w * s->in_c;
}

/* The float model, with its output observed: states OFF and CALIBRATE. */
static oct_tensor *float_forward(oct_context *cx, oct_qat_conv *m, oct_tensor *x)
{
    layer l = layer_of(m);
    oct_tensor *y;
    if (m->layer->type == &oct_linear_type)
        y = oct_linear(cx, x, l.weight, l.bias);
    else
        y = oct_conv2d(cx, x, l.weight, l.bias, ((oct_conv2d_module *)m->layer)->geometry);
    if (l.bn) {
        oct_bn_args args = {.gamma = l.bn->gamma,
                            .beta = l.bn->beta,
                            .running_mean = l.bn->running_mean,
                            .running_var = l.bn->running_var,
                            .eps = l.bn->eps,
                            .momentum = l.bn->momentum,
                            .batch_stats = m->base.training && !l.bn->frozen};
        y = oct_batch_norm(cx, y, &args);
    }
    if (m->activation == OCT_ACT_RELU) y = oct_relu(cx, y);
    if (m->activation == OCT_ACT_RELU6) y = oct_relu6(cx, y);
    if (y && l.fq) oct_fake_quant_observe_values(l.fq, m->base.training, oct_f32(y), oct_numel(y));
    return y;
}

static bool new_channels(oct_context *cx, channels *ch, int64_t n)
{
    size_t words = (size_t)n * 4;
    ch->scale = oct_save(cx, words);
    ch->mean = oct_save(cx, words);
    ch->inv_std = oct_save(cx, words);
    ch->offset = oct_save(cx, words);
    ch->bias = oct_save(cx, words);
    ch->multiplier = oct_save(cx, words);
    ch->effective = oct_save(cx, words);
    ch->dead = oct_save(cx, (size_t)n);
    return cx->status == OCT_OK;
}

/* This step's weight codes: per channel, symmetric, by this step's absmax. */
static void quantize_weights(const float *weight, const oct_qconv_shape *s, int32_t zero_point,
                             int8_t *codes, float *scale, int32_t *offset)
{
    int64_t k = products(s);
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < s->out_c; o++) {
        scale[o] = oct_weight_scale(weight + o * k, k);
        oct_weight_codes(weight + o * k, k, scale[o], codes + o * k);
        int32_t sum = 0;
        for (int64_t i = 0; i < k; i++)
            sum += codes[o * k + i];
        offset[o] = zero_point * sum;
    }
}

/* mean and inv_std of the running statistics. */
static void running_statistics(const oct_batch_norm_module *bn, channels *ch, int64_t n)
{
    for (int64_t o = 0; o < n; o++) {
        ch->mean[o] = bn->running_mean[o];
        ch->inv_std[o] = (float)(1.0 / sqrt((double)bn->running_var[o] + (double)bn->eps));
    }
}

/* Kernel constants from mean, inv_std and the scales. False when a parameter is not finite. */
static bool fold_channels(const layer *l, float input_scale, float output_scale, channels *ch,
                          int64_t n)
{
    for (int64_t o = 0; o < n; o++) {
        double gain = 1.0, shift = l->bias ? (double)oct_f32(&l->bias->value)[o] : 0.0;
        if (l->bn) {
            gain = (double)oct_f32(&l->bn->gamma->value)[o] * (double)ch->inv_std[o];
            shift = (double)oct_f32(&l->bn->beta->value)[o] + (shift - (double)ch->mean[o]) * gain;
        }
        if (!isfinite(gain) || !isfinite(shift) || !isfinite(ch->scale[o])) return false;
        oct_fold fold = oct_fold_channel(input_scale, ch->scale[o], gain, shift, output_scale);
        ch->effective[o] = fold.weight_scale;
        ch->multiplier[o] = fold.multiplier;
        ch->dead[o] = fold.dead;
        ch->bias[o] = fold.dead ? fold.bias : fold.bias - ch->offset[o];
    }
    return true;
}

/* A dead channel's accumulator counts as 0: without weights it is. */
static void silence_codes(const channels *ch, const oct_qconv_shape *s, int8_t *codes)
{
    for (int64_t o = 0; o < s->out_c; o++)
        if (ch->dead[o]) memset(codes + o * products(s), 0, (size_t)products(s));
}

static void silence_acc(const channels *ch, int64_t rows, int64_t n, int32_t *acc)
{
    for (int64_t o = 0; o < n; o++)
        for (int64_t i = 0; ch->dead[o] && i < rows; i++)
            acc[i * n + o] = 0;
}

/* Bounds of the codes and of the gradient, by the activation. */
static oct_requant requant_of(const oct_qat_conv *m, oct_qparams out, const channels *ch)
{
    oct_requant q = {.bias = ch->bias,
                     .multiplier = ch->multiplier,
                     .lo = out.qmin - out.zero_point,
                     .hi = out.qmax - out.zero_point,
                     .zero_point = out.zero_point,
                     .relu = m->activation != OCT_ACT_NONE,
                     .six = INFINITY};
    if (m->activation == OCT_ACT_RELU6) {
        q.six = 6.0f / out.scale;
        if (q.six < (float)q.hi) q.hi = (int32_t)nearbyintf(q.six);
    }
    return q;
}

/* Per-leaf sums of the accumulators and their squares, in order of the pixels. */
OCT_CLONES static void leaf_sums(const int32_t *acc, const int32_t *offset, int64_t rows, int64_t n,
                                 double *sum)
{
    memset(sum, 0, (size_t)n * 2 * sizeof(double));
    double *square = sum + n;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t o = 0; o < n; o++) {
            double a = acc[i * n + o] - offset[o];
            sum[o] += a;
            square[o] += a * a;
        }
}

/* The batch's mean and inverse deviation over all ranks, and the update of the running values. */
static void batch_statistics(oct_context *cx, const oct_qat_conv *m, const oct_qconv_shape *s,
                             float input_scale, const int32_t *acc, channels *ch)
{
    layer l = layer_of(m);
    int64_t n = s->out_c, pixels = s->out_h * s->out_w, local = cx->leaves.local;
    double *rows = oct_scratch(cx, (size_t)(local > 0 ? local : 1) * (size_t)n * 16);
    double *total = oct_scratch(cx, (size_t)n * 16);
    if (rows && total) {
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < local; i++)
            leaf_sums(acc + oct_leaf_begin(&cx->leaves, i) * pixels * n, ch->offset,
                      oct_leaf_size(&cx->leaves, i) * pixels, n, rows + i * 2 * n);
        oct_tree_fold_f64(&cx->leaves, rows, 2 * n);
        oct_status status = cx->group->tree_sum_f64(cx->group, &cx->leaves, rows, 2 * n, total);
        if (status != OCT_OK) cx->status = status;
        double count = (double)(cx->leaves.samples * pixels);
        double unbiased = count > 1 ? count / (count - 1) : 1;
        for (int64_t o = 0; o < n && status == OCT_OK; o++) {
            double scale = (double)input_scale * (double)ch->scale[o];
            double acc_mean = total[o] / count;
            double acc_var = total[n + o] / count - acc_mean * acc_mean;
            double var = acc_var > 0 ? acc_var * scale * scale : 0;
            double bias = l.bias ? (double)oct_f32(&l.bias->value)[o] : 0;
            ch->mean[o] = (float)(acc_mean * scale + bias);
            ch->inv_std[o] = (float)(1.0 / sqrt(var + (double)l.bn->eps));
            float momentum = l.bn->momentum;
            l.bn->running_mean[o] += momentum * (ch->mean[o] - l.bn->running_mean[o]);
            l.bn->running_var[o] += momentum * ((float)(var * unbiased) - l.bn->running_var[o]);
        }
    }
    oct_scratch_end(cx, total);
    oct_scratch_end(cx, rows);
}

/* What a forward or backward works with; scratch that ends with the op. */
typedef struct work {
    int8_t *packed;
    int32_t *acc;  /* live batch norm and float outputs */
    float *ranges; /* 2 a leaf */
    char *scratch;
    int64_t scratch_bytes; /* of one thread */
} work;

static bool begin_work(oct_context *cx, const oct_qconv_shape *s, bool want_acc, work *w)
{
    const oct_kernel *kernel = oct_kernel_here();
    int64_t local = cx->leaves.local, samples = oct_leaves_local_samples(&cx->leaves);
    w->scratch_bytes = (oct_qconv_scratch_bytes(kernel, s) + 63) / 64 * 64;
    w->packed = oct_scratch(cx, (size_t)oct_qconv_packed_bytes(kernel, s));
    w->acc = want_acc ? oct_scratch(cx, (size_t)(samples * out_numel(s)) * 4 + 64) : NULL;
    w->ranges = oct_scratch(cx, (size_t)(local + 1) * 8);
    w->scratch = oct_scratch(cx, (size_t)(w->scratch_bytes * omp_get_max_threads()) + 64);
    for (int64_t i = 0; w->ranges && i < local; i++) {
        w->ranges[2 * i] = INFINITY;
        w->ranges[2 * i + 1] = -INFINITY;
    }
    return cx->status == OCT_OK;
}

static void end_work(oct_context *cx, work *w)
{
    oct_scratch_end(cx, w->scratch);
    oct_scratch_end(cx, w->ranges);
    oct_scratch_end(cx, w->acc);
    oct_scratch_end(cx, w->packed);
}

/* Accumulators of all local samples. */
static void accumulate(oct_context *cx, const oct_qconv_shape *s, const oct_tensor *x,
                       const work *w, int32_t *acc)
{
    const oct_kernel *kernel = oct_kernel_here();
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        int64_t begin = oct_leaf_begin(&cx->leaves, i);
        oct_qconv_accumulate(kernel, s, oct_leaf_size(&cx->leaves, i),
                             oct_u8(x) + begin * in_numel(s), (uint8_t)x->q.zero_point, w->packed,
                             acc + begin * out_numel(s),
                             w->scratch + omp_get_thread_num() * w->scratch_bytes);
    }
}

static void observe(const oct_qat_conv *m, oct_fake_quant *fq, const float *ranges, int64_t local)
{
    for (int64_t i = 0; i < local; i++)
        oct_fake_quant_observe(fq, m->base.training, ranges[2 * i] * fq->scale[0],
                               ranges[2 * i + 1] * fq->scale[0]);
}

/* Makes y from x. The order of collectives depends on the module's state only, never on the rank. */
static void run_forward(oct_context *cx, const oct_qat_conv *m, const oct_tensor *x, oct_tensor *y,
                        saved *sv, work *w)
{
    const oct_kernel *kernel = oct_kernel_here();
    const oct_qconv_shape *s = &sv->shape;
    layer l = layer_of(m);
    int64_t n = s->out_c, local = cx->leaves.local, pixels = s->out_h * s->out_w;
    float out_scale = l.fq ? y->q.scale : 1.0f;

    quantize_weights(oct_f32(&l.weight->value), s, x->q.zero_point, sv->codes, sv->ch.scale,
                     sv->ch.offset);
    oct_qconv_pack(kernel, s, sv->codes, w->packed);
    if (sv->live) {
        accumulate(cx, s, x, w, w->acc);
        batch_statistics(cx, m, s, x->q.scale, w->acc, &sv->ch);
        if (cx->status != OCT_OK) return;
    } else if (l.bn) {
        running_statistics(l.bn, &sv->ch, n);
    }
    if (!fold_channels(&l, x->q.scale, out_scale, &sv->ch, n)) {
        oct_context_fail(cx, OCT_NUMERIC, "a weight, bias or batch-norm value is not finite");
        return;
    }
    if (sv->live) {
        silence_acc(&sv->ch, oct_leaves_local_samples(&cx->leaves) * pixels, n, w->acc);
    } else if (memchr(sv->ch.dead, true, (size_t)n)) {
        int8_t *codes = oct_save(cx, (size_t)(n * products(s)));
        if (!codes) return;
        memcpy(codes, sv->codes, (size_t)(n * products(s)));
        silence_codes(&sv->ch, s, codes);
        oct_qconv_pack(kernel, s, codes, w->packed);
    }

    if (!l.fq) {
        if (!sv->live) accumulate(cx, s, x, w, w->acc);
        oct_requant_float(oct_leaves_local_samples(&cx->leaves) * pixels, n, w->acc, sv->ch.bias,
                          sv->ch.multiplier, oct_f32(y));
        return;
    }
    oct_requant q = requant_of(m, y->q, &sv->ch);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < local; i++) {
        int64_t begin = oct_leaf_begin(&cx->leaves, i), size = oct_leaf_size(&cx->leaves, i);
        uint8_t *codes = oct_u8(y) + begin * out_numel(s);
        uint8_t *mask = sv->mask ? sv->mask + i * sv->mask_stride : NULL;
        if (sv->live)
            kernel->requantize(size * pixels, n, w->acc + begin * out_numel(s), &q, codes, mask,
                               w->ranges + 2 * i);
        else
            oct_qconv_forward(kernel, s, size, oct_u8(x) + begin * in_numel(s),
                              (uint8_t)x->q.zero_point, w->packed, &q, codes, mask,
                              w->ranges + 2 * i,
                              w->scratch + omp_get_thread_num() * w->scratch_bytes);
    }
    observe(m, l.fq, w->ranges, local);
}

/* The gradient of the convolution's output, in place of the output's gradient: mask, then batch norm
 * (which also gives the gradients of gamma and beta). */

static void apply_mask(oct_context *cx, const saved *sv, float *grad)
{
    if (!sv->mask) return;
    int64_t n = out_numel(&sv->shape);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        const uint8_t *mask = sv->mask + i * sv->mask_stride;
        float *g = grad + oct_leaf_begin(&cx->leaves, i) * n;
        int64_t count = oct_leaf_size(&cx->leaves, i) * n;
        for (int64_t j = 0; j < count; j++)
            g[j] = mask[j / 8] >> (j % 8) & 1 ? g[j] : 0.0f;
    }
}

/* x^ = acc * a[o] + b[o], from accumulators (in place: int32 becomes float bits). */
OCT_CLONES static void normalise_acc(int64_t rows, int64_t n, const int32_t *offset, const float *a,
                                     const float *b, int32_t *acc)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t o = 0; o < n; o++) {
            float hat = (float)(acc[i * n + o] - offset[o]) * a[o] + b[o];
            memcpy(&acc[i * n + o], &hat, sizeof hat);
        }
}

OCT_CLONES static void leaf_bn_sums(const float *grad, const float *hat, int64_t rows, int64_t n,
                                    double *sum)
{
    memset(sum, 0, (size_t)n * 2 * sizeof(double));
    double *dot = sum + n;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t o = 0; o < n; o++) {
            double g = (double)grad[i * n + o];
            sum[o] += g;
            dot[o] += g * (double)hat[i * n + o];
        }
}

OCT_CLONES static void bn_input_grad(float *grad, const float *hat, int64_t rows, int64_t n,
                                     const float *gain, const float *mean, const float *mean_dot)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t o = 0; o < n; o++)
            grad[i * n + o] = gain[o] * (grad[i * n + o] - mean[o] - hat[i * n + o] * mean_dot[o]);
}

static void add_rows(oct_context *cx, oct_param *param, const double *sums, int64_t n, int64_t at,
                     int64_t stride)
{
    float *rows = oct_leaf_grads_begin(cx, param);
    for (int64_t i = 0; rows && i < cx->leaves.local; i++)
        for (int64_t o = 0; o < n; o++)
            rows[i * n + o] += (float)sums[i * stride + at + o];
    oct_leaf_grads_end(cx, param);
}

static void batch_norm_backward(oct_context *cx, const oct_qat_conv *m, const saved *sv,
                                const oct_tensor *x, const work *w, float *grad)
{
    layer l = layer_of(m);
    const oct_qconv_shape *s = &sv->shape;
    int64_t n = s->out_c, pixels = s->out_h * s->out_w, local = cx->leaves.local;
    int64_t samples = oct_leaves_local_samples(&cx->leaves);
    int32_t *acc = oct_scratch(cx, (size_t)(samples * out_numel(s)) * 4 + 64);
    double *rows = oct_scratch(cx, (size_t)(local + 1) * (size_t)n * 16);
    double *total = oct_scratch(cx, (size_t)n * 16);
    float *factor = oct_scratch(cx, (size_t)n * 4 * 5);
    if (cx->status == OCT_OK) {
        float *a = factor, *b = a + n, *gain = b + n, *mean = gain + n, *dot = mean + n;
        for (int64_t o = 0; o < n; o++) {
            float bias = l.bias ? oct_f32(&l.bias->value)[o] : 0.0f;
            a[o] = x->q.scale * sv->ch.scale[o] * sv->ch.inv_std[o];
            b[o] = (bias - sv->ch.mean[o]) * sv->ch.inv_std[o];
            gain[o] = oct_f32(&l.bn->gamma->value)[o] * sv->ch.inv_std[o];
            mean[o] = dot[o] = 0.0f;
        }
        accumulate(cx, s, x, w, acc);
        const float *hat = (const float *)(const void *)acc;
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < local; i++) {
            int64_t at = oct_leaf_begin(&cx->leaves, i) * out_numel(s);
            int64_t count = oct_leaf_size(&cx->leaves, i) * pixels;
            normalise_acc(count, n, sv->ch.offset, a, b, acc + at);
            leaf_bn_sums(grad + at, hat + at, count, n, rows + i * 2 * n);
        }
        add_rows(cx, l.bn->beta, rows, n, 0, 2 * n);
        add_rows(cx, l.bn->gamma, rows, n, n, 2 * n);
        if (sv->live) {
            oct_tree_fold_f64(&cx->leaves, rows, 2 * n);
            oct_status status = cx->group->tree_sum_f64(cx->group, &cx->leaves, rows, 2 * n, total);
            if (status != OCT_OK) cx->status = status;
            double count = (double)(cx->leaves.samples * pixels);
            for (int64_t o = 0; o < n && status == OCT_OK; o++) {
                mean[o] = (float)(total[o] / count);
                dot[o] = (float)(total[n + o] / count);
            }
        }
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < local; i++) {
            int64_t at = oct_leaf_begin(&cx->leaves, i) * out_numel(s);
            bn_input_grad(grad + at, hat + at, oct_leaf_size(&cx->leaves, i) * pixels, n, gain,
                          mean, dot);
        }
    }
    oct_scratch_end(cx, factor);
    oct_scratch_end(cx, total);
    oct_scratch_end(cx, rows);
    oct_scratch_end(cx, acc);
}

static oct_conv_shape float_shape(const oct_qconv_shape *s)
{
    return (oct_conv_shape){.in_h = s->in_h,
                            .in_w = s->in_w,
                            .in_c = s->in_c,
                            .out_h = s->out_h,
                            .out_w = s->out_w,
                            .out_c = s->out_c,
                            .kernel_h = s->kernel_h,
                            .kernel_w = s->kernel_w,
                            .stride = s->stride,
                            .padding = s->padding,
                            .groups = s->groups};
}

/* dX = dC * (codes * s_w), handed over to x. */
static void input_backward(oct_context *cx, const saved *sv, oct_tensor *x, const float *grad)
{
    oct_conv_shape s = float_shape(&sv->shape);
    int64_t k = products(&sv->shape), leaf = cx->leaves.leaf;
    size_t bytes = (oct_conv_backward_data_scratch_bytes(&s, leaf) + 63) / 64 * 64;
    float *grad_x = oct_scratch(cx, (size_t)oct_numel(x) * 4 + 64);
    float *weight = oct_scratch(cx, (size_t)(s.out_c * k) * 4);
    char *scratch = oct_scratch(cx, bytes * (size_t)omp_get_max_threads() + 64);
    if (cx->status == OCT_OK) {
        for (int64_t o = 0; o < s.out_c; o++)
            for (int64_t i = 0; i < k; i++)
                weight[o * k + i] = (float)sv->codes[o * k + i] * sv->ch.scale[o];
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < cx->leaves.local; i++) {
            int64_t begin = oct_leaf_begin(&cx->leaves, i);
            oct_conv_backward_data(&s, oct_leaf_size(&cx->leaves, i),
                                   grad + begin * out_numel(&sv->shape), weight,
                                   grad_x + begin * in_numel(&sv->shape),
                                   scratch + (size_t)omp_get_thread_num() * bytes);
        }
    }
    oct_scratch_end(cx, scratch);
    oct_scratch_end(cx, weight);
    oct_give_grad(cx, x, grad_x);
}

/* dW = s_x * (dC * (codes - z)) and the bias's gradient, leaf by leaf. Scales grad by s_x. */
static void weight_backward(oct_context *cx, const layer *l, const saved *sv, const oct_tensor *x,
                            float *grad)
{
    oct_conv_shape s = float_shape(&sv->shape);
    int64_t n = out_numel(&sv->shape), leaf = cx->leaves.leaf;
    size_t bytes = (oct_conv_backward_weight_codes_scratch_bytes(&s, leaf) + 63) / 64 * 64;
    char *scratch = oct_scratch(cx, bytes * (size_t)omp_get_max_threads() + 64);
    float *bias_rows = l->bias ? oct_leaf_grads_begin(cx, l->bias) : NULL;
    float *rows = oct_leaf_grads_begin(cx, l->weight);
    if (cx->status == OCT_OK) {
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < cx->leaves.local; i++) {
            int64_t begin = oct_leaf_begin(&cx->leaves, i), size = oct_leaf_size(&cx->leaves, i);
            float *g = grad + begin * n;
            if (bias_rows)
                oct_bias_backward(size * s.out_h * s.out_w, s.out_c, g, bias_rows + i * s.out_c);
            for (int64_t j = 0; j < size * n; j++)
                g[j] *= x->q.scale;
            oct_conv_backward_weight_codes(&s, size, g, oct_u8(x) + begin * in_numel(&sv->shape),
                                           x->q.zero_point,
                                           rows + i * s.out_c * products(&sv->shape),
                                           scratch + (size_t)omp_get_thread_num() * bytes);
        }
    }
    oct_leaf_grads_end(cx, l->weight);
    if (l->bias) oct_leaf_grads_end(cx, l->bias);
    oct_scratch_end(cx, scratch);
}

static void backward(oct_context *cx, oct_node *node)
{
    const oct_qat_conv *m = (const oct_qat_conv *)node->module;
    const saved *sv = node->saved;
    layer l = layer_of(m);
    oct_tensor *x = node->input[0];
    float *grad = oct_take_grad(node->output);

    apply_mask(cx, sv, grad);
    if (l.bn) {
        work w;
        if (begin_work(cx, &sv->shape, false, &w)) {
            oct_qconv_pack(oct_kernel_here(), &sv->shape, sv->codes, w.packed);
            batch_norm_backward(cx, m, sv, x, &w, grad);
        }
        end_work(cx, &w);
    }
    if (x->needs_grad && cx->status == OCT_OK) input_backward(cx, sv, x, grad);
    if (cx->status == OCT_OK) weight_backward(cx, &l, sv, x, grad);
    oct_scratch_end(cx, grad);
}

static oct_tensor *integer_forward(oct_context *cx, oct_qat_conv *m, oct_tensor *x)
{
    bool linear = m->layer->type == &oct_linear_type;
    oct_qconv_shape s = shape_for(m, linear ? 1 : oct_dim(x, 1), linear ? 1 : oct_dim(x, 2));
    int64_t samples = oct_dim(x, 0), local = cx->leaves.local;
    char text[96];
    if (x->shape.ndim != (linear ? 2 : 4) || oct_dim(x, x->shape.ndim - 1) != s.in_c ||
        s.out_h < 1 || s.out_w < 1)
        return oct_context_fail(cx, OCT_PREPARE, "input %s does not fit the layer",
                                oct_shape_text(&x->shape, text));
    layer l = layer_of(m);
    if (l.fq && !oct_fake_quant_quantizes(l.fq))
        return oct_context_fail(cx, OCT_PREPARE, "codes came in while its own fake-quant is off");

    oct_shape out =
        linear ? OCT_SHAPE(samples, s.out_c) : OCT_SHAPE(samples, s.out_h, s.out_w, s.out_c);
    oct_tensor *y = oct_tensor_new(cx, l.fq ? OCT_U8 : OCT_F32, out);
    saved *sv = oct_save(cx, sizeof *sv);
    if (!y || !sv) return NULL;
    if (l.fq) y->q = oct_fake_quant_qparams(l.fq);
    *sv = (saved){.shape = s, .live = l.bn && m->base.training && !l.bn->frozen};
    oct_node *node = oct_record(cx, "qat_conv", backward, &x, 1, true, y);
    if (node) {
        node->saved = sv;
        oct_param_used(cx, l.weight);
        if (l.bias) oct_param_used(cx, l.bias);
        if (l.bn) {
            oct_param_used(cx, l.bn->gamma);
            oct_param_used(cx, l.bn->beta);
        }
    }
    if (node && l.fq) {
        sv->mask_stride = (cx->leaves.leaf * out_numel(&s) + 7) / 8;
        sv->mask = oct_save(cx, (size_t)(sv->mask_stride * local));
    }
    sv->codes = oct_save(cx, (size_t)(s.out_c * products(&s)));
    if (!new_channels(cx, &sv->ch, s.out_c)) return NULL;
    memset(sv->ch.dead, 0, (size_t)s.out_c);
    work w;
    if (begin_work(cx, &s, sv->live || !l.fq, &w)) run_forward(cx, m, x, y, sv, &w);
    end_work(cx, &w);
    return cx->status == OCT_OK ? y : NULL;
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    if (!oct_ready(cx, x, n)) return NULL;
    oct_qat_conv *m = (oct_qat_conv *)self;
    return x[0]->dtype == OCT_U8 ? integer_forward(cx, m, x[0]) : float_forward(cx, m, x[0]);
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_qat_conv *m = (const oct_qat_conv *)self;
    static const char *const activation[] = {"", " + relu", " + relu6"};
    snprintf(text, size, "%s%s%s%s", m->layer->type->name, m->batch_norm ? " + batch_norm" : "",
             activation[m->activation], m->fake_quant ? "" : ", float output");
}

const oct_module_type oct_qat_conv_type = {
    .name = "qat_conv",
    .forward = forward,
    .describe = describe,
    .leaf = true,
};

static oct_status adopt(oct_module *self, const char *name, oct_module **slot, oct_module **child)
{
    if (!*child) return OCT_OK;
    *slot = *child;
    *child = NULL;
    return oct_module_add_child(self, name, slot);
}

oct_status oct_qat_conv_create(oct_module **m, oct_module **float_layer, oct_module **batch_norm,
                               oct_activation activation, oct_fake_quant **fake_quant)
{
    oct_status status = oct_module_create(m, &oct_qat_conv_type, sizeof(oct_qat_conv));
    oct_module *fq = *fake_quant ? &(*fake_quant)->base : NULL;
    *fake_quant = NULL;
    if (status == OCT_OK) {
        oct_qat_conv *made = (oct_qat_conv *)*m;
        made->activation = activation;
        const char *name = (*float_layer)->type == &oct_linear_type ? "linear" : "conv";
        status = adopt(*m, name, &made->layer, float_layer);
        if (status == OCT_OK) status = adopt(*m, "bn", &made->batch_norm, batch_norm);
        if (status == OCT_OK) status = adopt(*m, "fake_quant", &made->fake_quant, &fq);
        if (status != OCT_OK) oct_module_destroy(m);
    }
    oct_module_destroy(float_layer);
    oct_module_destroy(batch_norm);
    oct_module_destroy(&fq);
    return status;
}

/* Makes a negative multiplier positive by negating codes and bias: (-a)(-m) = a m, bit for bit. */
static void make_positive(oct_step *step, int64_t o, int64_t k)
{
    if (!(step->multiplier[o] < 0)) return;
    step->multiplier[o] = -step->multiplier[o];
    step->weight_scale[o] = -step->weight_scale[o];
    step->bias[o] = -step->bias[o];
    for (int64_t i = 0; i < k; i++)
        step->weight[o * k + i] = (int8_t)-step->weight[o * k + i];
}

oct_status oct_qat_conv_emit(oct_qat_conv *self, oct_qparams in, int64_t in_h, int64_t in_w,
                             oct_step *step)
{
    oct_status status = OCT_OK;
    layer l = layer_of(self);
    oct_qconv_shape s = shape_for(self, in_h, in_w);
    int64_t n = s.out_c, k = products(&s);
    channels ch = {0};
    step->conv = s;
    step->kind = l.fq ? OCT_STEP_CONV : OCT_STEP_CONV_FLOAT;
    OCT_TRY_OUT(oct_alloc(&step->weight, (size_t)(n * k), 1));
    OCT_TRY_OUT(oct_alloc(&step->bias, (size_t)n, 4));
    OCT_TRY_OUT(oct_alloc(&step->multiplier, (size_t)n, 4));
    OCT_TRY_OUT(oct_alloc(&step->weight_scale, (size_t)n, 4));
    OCT_TRY_OUT(oct_alloc(&ch.scale, (size_t)n, 4));
    OCT_TRY_OUT(oct_alloc(&ch.mean, (size_t)n, 4));
    OCT_TRY_OUT(oct_alloc(&ch.inv_std, (size_t)n, 4));
    OCT_TRY_OUT(oct_alloc(&ch.offset, (size_t)n, 4));
    OCT_TRY_OUT(oct_alloc(&ch.dead, (size_t)n, 1));
    ch.bias = step->bias;
    ch.multiplier = step->multiplier;
    ch.effective = step->weight_scale;

    quantize_weights(oct_f32(&l.weight->value), &s, in.zero_point, step->weight, ch.scale,
                     ch.offset);
    if (l.bn) running_statistics(l.bn, &ch, n);
    oct_qparams out = l.fq ? oct_fake_quant_qparams(l.fq) : (oct_qparams){.scale = 1.0f};
    OCT_CHECK_OUT(fold_channels(&l, in.scale, out.scale, &ch, n), OCT_NUMERIC,
                  "%s: a weight, bias or batch-norm value is not finite", step->name);
    silence_codes(&ch, &s, step->weight);
    for (int64_t o = 0; o < n; o++)
        make_positive(step, o, k);
    oct_requant q = requant_of(self, out, &ch);
    step->lo = l.fq ? q.lo : 0;
    step->hi = l.fq ? q.hi : 0;
out:
    oct_free(&ch.dead);
    oct_free(&ch.offset);
    oct_free(&ch.inv_std);
    oct_free(&ch.mean);
    oct_free(&ch.scale);
    return status;
}
