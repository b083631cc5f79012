/* The integer forward of qat_conv, and the scratch that forward and backward share.
 *
 * With running statistics (evaluation, frozen batch norm, no batch norm) codes are made in one pass.
 * With live batch norm the accumulators of this rank's samples are held in scratch: their sums give
 * the batch's statistics, then the same accumulators are requantized.
 */
#include "quant/module/qat_conv_impl.h"

#include <math.h>
#include <omp.h>
#include <string.h>

static bool new_channels(oct_context *cx, oct_channels *ch, int64_t n)
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

static void silence_acc(const oct_channels *ch, int64_t rows, int64_t n, int32_t *acc)
{
    for (int64_t o = 0; o < n; o++)
        for (int64_t i = 0; ch->dead[o] && i < rows; i++)
            acc[i * n + o] = 0;
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
static void batch_statistics(oct_context *cx, const oct_qat_conv *m, const oct_conv_shape *s,
                             float input_scale, const int32_t *acc, oct_channels *ch)
{
    oct_layer l = oct_layer_of(m);
    int64_t n = s->out_c, pixels = s->out_h * s->out_w, local = cx->leaves.local;
    double *rows = oct_scratch(cx, (size_t)(local > 0 ? local : 1) * (size_t)n * 16);
    double *total = oct_scratch(cx, (size_t)n * 16);
    if (rows && total) {
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < local; i++)
            leaf_sums(acc + oct_leaf_begin(&cx->leaves, i) * pixels * n, ch->offset,
                      oct_leaf_size(&cx->leaves, i) * pixels, n, rows + i * 2 * n);
        bool summed = oct_sum_over_ranks(cx, rows, 2 * n, total);
        double count = (double)(cx->leaves.samples * pixels);
        double unbiased = count > 1 ? count / (count - 1) : 1;
        bool finite = true;
        for (int64_t o = 0; summed && o < n; o++) {
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
            finite &= isfinite(l.bn->running_mean[o]) && isfinite(l.bn->running_var[o]);
        }
        if (!finite)
            oct_context_fail(cx, OCT_NUMERIC, "the batch's mean or variance is not finite");
    }
    oct_scratch_end(cx, total);
    oct_scratch_end(cx, rows);
}

bool oct_work_begin(oct_context *cx, const oct_conv_shape *s, bool want_acc, oct_work *w)
{
    const oct_kernel *kernel = oct_kernel_here();
    int64_t local = cx->leaves.local, samples = oct_leaves_local_samples(&cx->leaves);
    w->scratch_bytes = (oct_qconv_scratch_bytes(kernel, s) + 63) / 64 * 64;
    w->packed = oct_scratch(cx, (size_t)oct_qconv_packed_bytes(kernel, s));
    w->acc = want_acc ? oct_scratch(cx, (size_t)(samples * oct_conv_out_numel(s)) * 4 + 64) : NULL;
    w->ranges = oct_scratch(cx, (size_t)(local + 1) * 8);
    w->scratch = oct_scratch(cx, (size_t)(w->scratch_bytes * omp_get_max_threads()) + 64);
    for (int64_t i = 0; w->ranges && i < local; i++) {
        w->ranges[2 * i] = INFINITY;
        w->ranges[2 * i + 1] = -INFINITY;
    }
    return cx->status == OCT_OK;
}

void oct_work_end(oct_context *cx, oct_work *w)
{
    oct_scratch_end(cx, w->scratch);
    oct_scratch_end(cx, w->ranges);
    oct_scratch_end(cx, w->acc);
    oct_scratch_end(cx, w->packed);
}

void oct_accumulate(oct_context *cx, const oct_conv_shape *s, const oct_tensor *x,
                    const oct_work *w, int32_t *acc)
{
    const oct_kernel *kernel = oct_kernel_here();
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        int64_t begin = oct_leaf_begin(&cx->leaves, i);
        oct_qconv_accumulate(kernel, s, oct_leaf_size(&cx->leaves, i),
                             oct_u8(x) + begin * oct_conv_in_numel(s), (uint8_t)x->q.zero_point,
                             w->packed, acc + begin * oct_conv_out_numel(s),
                             w->scratch + omp_get_thread_num() * w->scratch_bytes);
    }
}

/* Notes the leaves' ranges, which are in units of the output scale. */
static void observe(oct_context *cx, const oct_qat_conv *m, float scale, const float *ranges)
{
    for (int64_t i = 0; i < cx->leaves.local; i++)
        oct_fake_quant_observe((oct_fake_quant *)m->fake_quant, m->base.training,
                               ranges[2 * i] * scale, ranges[2 * i + 1] * scale);
}

static bool fold(oct_context *cx, const oct_layer *l, const oct_tensor *x, float out_scale,
                 oct_qat_saved *sv)
{
    if (oct_fold_channels(l, x->q.scale, out_scale, &sv->ch, sv->shape.out_c)) return true;
    oct_context_fail(cx, OCT_NUMERIC, "a weight, bias or batch-norm value is not finite");
    return false;
}

/* Codes, masks and ranges from accumulators that are held. */
static void requantize_held(oct_context *cx, const oct_requant *q, const oct_qat_saved *sv,
                            uint8_t *mask, const oct_work *w, oct_tensor *y)
{
    const oct_kernel *kernel = oct_kernel_here();
    int64_t n = sv->shape.out_c, pixels = sv->shape.out_h * sv->shape.out_w;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        int64_t begin = oct_leaf_begin(&cx->leaves, i) * oct_conv_out_numel(&sv->shape);
        kernel->requantize(oct_leaf_size(&cx->leaves, i) * pixels, n, w->acc + begin, q,
                           oct_u8(y) + begin, mask ? mask + i * sv->mask_stride : NULL,
                           w->ranges + 2 * i);
    }
}

/* The same in one pass from the input's codes. */
static void convolve_codes(oct_context *cx, const oct_requant *q, const oct_qat_saved *sv,
                           const oct_work *w, const oct_tensor *x, oct_tensor *y)
{
    const oct_conv_shape *s = &sv->shape;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        int64_t begin = oct_leaf_begin(&cx->leaves, i);
        oct_qconv_forward(oct_kernel_here(), s, oct_leaf_size(&cx->leaves, i),
                          oct_u8(x) + begin * oct_conv_in_numel(s), (uint8_t)x->q.zero_point,
                          w->packed, q, oct_u8(y) + begin * oct_conv_out_numel(s),
                          sv->mask ? sv->mask + i * sv->mask_stride : NULL, w->ranges + 2 * i,
                          w->scratch + omp_get_thread_num() * w->scratch_bytes);
    }
}

/* Current scales: requantizing with an output scale of 1 shows the real range, which then gives the
 * scale. The codes of that pass are overwritten. */
static void settle_scale(oct_context *cx, const oct_qat_conv *m, const oct_tensor *x,
                         oct_qat_saved *sv, oct_work *w, oct_tensor *y)
{
    oct_fake_quant *fq = (oct_fake_quant *)m->fake_quant;
    oct_layer l = oct_layer_of(m);
    const oct_conv_shape *s = &sv->shape;
    int64_t positions = oct_leaves_local_samples(&cx->leaves) * s->out_h * s->out_w;
    oct_qparams real = y->q;
    real.scale = 1.0f;
    if (!fold(cx, &l, x, real.scale, sv)) return;
    silence_acc(&sv->ch, positions, s->out_c, w->acc);
    oct_requant q = oct_requant_of(m, real, &sv->ch);
    requantize_held(cx, &q, sv, NULL, w, y);
    observe(cx, m, real.scale, w->ranges);
    oct_context_adopt(cx, oct_fake_quant_settle(fq, cx->group));
    y->q = oct_fake_quant_qparams(fq);
}

/* Weights of dead channels are zero in what the kernel multiplies, not in what backward sees. */
static void pack_without_dead(oct_context *cx, const oct_qat_saved *sv, oct_work *w)
{
    size_t bytes = (size_t)(sv->shape.out_c * oct_conv_depth(&sv->shape));
    int8_t *codes = oct_scratch(cx, bytes);
    if (!codes) return;
    memcpy(codes, sv->codes, bytes);
    oct_silence_codes(&sv->ch, &sv->shape, codes);
    oct_qconv_pack(oct_kernel_here(), &sv->shape, codes, w->packed);
    oct_scratch_end(cx, codes);
}

/* Makes y from x. The order of collectives depends on the module's state only, never on the rank. */
static void run_forward(oct_context *cx, const oct_qat_conv *m, const oct_tensor *x, oct_tensor *y,
                        oct_qat_saved *sv, oct_work *w)
{
    const oct_conv_shape *s = &sv->shape;
    oct_layer l = oct_layer_of(m);
    int64_t n = s->out_c;
    int64_t positions = oct_leaves_local_samples(&cx->leaves) * s->out_h * s->out_w;

    oct_quantize_weights(oct_f32(&l.weight->value), s, x->q.zero_point, sv->codes, sv->ch.scale,
                         sv->ch.offset);
    oct_qconv_pack(oct_kernel_here(), s, sv->codes, w->packed);
    if (sv->held) oct_accumulate(cx, s, x, w, w->acc);
    if (sv->live)
        batch_statistics(cx, m, s, x->q.scale, w->acc, &sv->ch);
    else if (l.bn)
        oct_running_statistics(l.bn, &sv->ch, n);
    if (cx->status == OCT_OK && sv->settle) settle_scale(cx, m, x, sv, w, y);
    if (cx->status != OCT_OK || !fold(cx, &l, x, l.fq ? y->q.scale : 1.0f, sv)) return;

    bool dead = memchr(sv->ch.dead, true, (size_t)n) != NULL;
    if (dead && sv->held) silence_acc(&sv->ch, positions, n, w->acc);
    if (dead && !sv->held) pack_without_dead(cx, sv, w);
    if (!l.fq) {
        oct_requant_float(positions, n, w->acc, sv->ch.bias, sv->ch.multiplier, oct_f32(y));
        return;
    }
    oct_requant q = oct_requant_of(m, y->q, &sv->ch);
    if (sv->held)
        requantize_held(cx, &q, sv, sv->mask, w, y);
    else
        convolve_codes(cx, &q, sv, w, x, y);
    if (!sv->settle) observe(cx, m, y->q.scale, w->ranges);
}

oct_tensor *oct_qat_conv_integer(oct_context *cx, oct_qat_conv *m, oct_tensor *x)
{
    bool linear = m->layer->type == &oct_linear_type;
    oct_conv_shape s =
        oct_qat_conv_shape(m, linear ? 1 : oct_dim(x, 1), linear ? 1 : oct_dim(x, 2));
    int64_t samples = oct_dim(x, 0), local = cx->leaves.local;
    char text[96];
    if (x->shape.ndim != (linear ? 2 : 4) || oct_dim(x, x->shape.ndim - 1) != s.in_c ||
        s.out_h < 1 || s.out_w < 1)
        return oct_context_fail(cx, OCT_PREPARE, "input %s does not fit the layer",
                                oct_shape_text(&x->shape, text));
    oct_layer l = oct_layer_of(m);
    if (l.fq && !oct_fake_quant_quantizes(l.fq))
        return oct_context_fail(cx, OCT_PREPARE, "codes came in while its own fake-quant is off");

    oct_shape out =
        linear ? OCT_SHAPE(samples, s.out_c) : OCT_SHAPE(samples, s.out_h, s.out_w, s.out_c);
    oct_tensor *y = oct_tensor_new(cx, l.fq ? OCT_U8 : OCT_F32, out);
    oct_qat_saved *sv = oct_save(cx, sizeof *sv);
    if (!y || !sv) return NULL;
    if (l.fq) y->q = oct_fake_quant_qparams(l.fq);
    *sv = (oct_qat_saved){.shape = s, .live = l.bn && m->base.training && !l.bn->frozen};
    sv->settle = l.fq && oct_fake_quant_settles(l.fq, m->base.training);
    sv->held = sv->live || sv->settle || !l.fq;
    oct_node *node = oct_record(cx, "qat_conv", oct_qat_conv_backward, &x, 1, true, y);
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
        sv->mask_stride = (cx->leaves.leaf * oct_conv_out_numel(&s) + 7) / 8;
        sv->mask = oct_save(cx, (size_t)(sv->mask_stride * local));
    }
    sv->codes = oct_save(cx, (size_t)(s.out_c * oct_conv_depth(&s)));
    if (!new_channels(cx, &sv->ch, s.out_c)) return NULL;
    memset(sv->ch.dead, 0, (size_t)s.out_c);
    oct_work w;
    if (oct_work_begin(cx, &s, sv->held, &w)) run_forward(cx, m, x, y, sv, &w);
    oct_work_end(cx, &w);
    return cx->status == OCT_OK ? y : NULL;
}
