/* The integer forward of qat_conv, and the scratch that forward and backward share.
 *
 * With running statistics (evaluation, frozen batch norm, no batch norm) codes are made in one pass.
 * With live batch norm the accumulators of this rank's samples are held in scratch: their sums give
 * the batch's statistics, then the same accumulators are requantized. Accumulators are exact whole
 * numbers, of 16-bit inputs too; their sums and the sums of their squares are taken in double, leaf by
 * leaf in order of the pixels.
 */
#include "quant/module/qat_conv_impl.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define SILENCE(name, acc_t)                                                                       \
    static void name(const bool *dead, int64_t rows, int64_t n, acc_t *acc)                        \
    {                                                                                              \
        for (int64_t o = 0; o < n; o++)                                                            \
            for (int64_t i = 0; dead[o] && i < rows; i++)                                          \
                acc[i * n + o] = 0;                                                                \
    }
SILENCE(silence, int32_t)
SILENCE(silence16, int64_t)

static void silence_acc(const oct_channels *ch, oct_dtype in, int64_t rows, int64_t n, void *acc)
{
    if (in == OCT_U16)
        silence16(ch->dead, rows, n, acc);
    else
        silence(ch->dead, rows, n, acc);
}

/* Per-leaf sums of the accumulators and their squares, in order of the pixels. */
#define LEAF_SUMS(name, acc_t)                                                                     \
    OCT_CLONES static void name(const acc_t *acc, const acc_t *offset, int64_t rows, int64_t n,    \
                                double *sum)                                                       \
    {                                                                                              \
        memset(sum, 0, (size_t)n * 2 * sizeof(double));                                            \
        double *square = sum + n;                                                                  \
        for (int64_t i = 0; i < rows; i++)                                                         \
            for (int64_t o = 0; o < n; o++) {                                                      \
                double a = (double)(acc[i * n + o] - offset[o]);                                   \
                sum[o] += a;                                                                       \
                square[o] += a * a;                                                                \
            }                                                                                      \
    }
LEAF_SUMS(leaf_sums, int32_t)
LEAF_SUMS(leaf_sums16, int64_t)

/* The batch's mean and inverse deviation over all ranks, and the update of the running values. */
static void batch_statistics(oct_context *cx, const oct_layer *l, const oct_conv_shape *s,
                             oct_qparams in, const void *acc, oct_channels *ch)
{
    int64_t n = s->out_c, pixels = s->out_h * s->out_w, local = cx->leaves.local;
    double *rows = oct_scratch(cx, (size_t)(local > 0 ? local : 1) * (size_t)n * 16);
    double *total = oct_scratch(cx, (size_t)n * 24);
    if (rows && total) {
        const bool wide = oct_codes_dtype(in) == OCT_U16;
        double *scale = total + 2 * n;
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < local; i++) {
            int64_t at = oct_leaf_begin(&cx->leaves, i) * pixels * n;
            int64_t count = oct_leaf_size(&cx->leaves, i) * pixels;
            if (wide)
                leaf_sums16((const int64_t *)acc + at, ch->offset, count, n, rows + i * 2 * n);
            else
                leaf_sums((const int32_t *)acc + at, ch->offset32, count, n, rows + i * 2 * n);
        }
        for (int64_t o = 0; o < n; o++)
            scale[o] = (double)in.scale * (double)ch->scale[o];
        if (oct_sum_over_ranks(cx, rows, 2 * n, total))
            oct_take_statistics(cx, l->bn, total, (double)(cx->leaves.samples * pixels), scale,
                                l->bias ? oct_f32(&l->bias->value) : NULL, ch);
    }
    oct_scratch_end(cx, total);
    oct_scratch_end(cx, rows);
}

bool oct_work_begin(oct_context *cx, const oct_conv_shape *s, oct_qparams in, bool want_acc,
                    oct_work *w)
{
    const oct_kernel *kernel = oct_kernel_here();
    int64_t local = cx->leaves.local, samples = oct_leaves_local_samples(&cx->leaves);
    size_t acc_bytes =
        (size_t)(samples * oct_conv_out_numel(s)) * (oct_codes_dtype(in) == OCT_U16 ? 8 : 4);
    w->scratch_bytes = (oct_qconv_scratch_bytes(kernel, s, in) + 63) / 64 * 64;
    w->ready = oct_scratch(cx, (size_t)oct_qconv_ready_bytes(kernel, s, in));
    w->acc = want_acc ? oct_scratch(cx, acc_bytes + 64) : NULL;
    w->ranges = oct_scratch(cx, (size_t)(local + 1) * 8);
    w->scratch = oct_scratch(cx, (size_t)(w->scratch_bytes * omp_get_max_threads()) + 64);
    if (w->ranges) oct_start_ranges(w->ranges, local);
    return cx->status == OCT_OK;
}

void oct_work_end(oct_context *cx, oct_work *w)
{
    oct_scratch_end(cx, w->scratch);
    oct_scratch_end(cx, w->ranges);
    oct_scratch_end(cx, w->acc);
    oct_scratch_end(cx, w->ready);
}

/* Element `at` of accumulators. */
static void *acc_at(const oct_tensor *x, void *acc, int64_t at)
{
    return (char *)acc + at * (x->dtype == OCT_U16 ? 8 : 4);
}

static void *output_at(const oct_tensor *y, int64_t at)
{
    return (char *)y->data + at * (int64_t)oct_dtype_bytes(y->dtype);
}

void oct_accumulate(oct_context *cx, const oct_conv_shape *s, const oct_tensor *x,
                    const oct_work *w, void *acc)
{
    const oct_kernel *kernel = oct_kernel_here();
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        int64_t begin = oct_leaf_begin(&cx->leaves, i);
        oct_qconv_accumulate(kernel, s, oct_leaf_size(&cx->leaves, i),
                             oct_qcodes_from(oct_qcodes_of(x), begin * oct_conv_in_numel(s)),
                             w->ready, acc_at(x, acc, begin * oct_conv_out_numel(s)),
                             w->scratch + omp_get_thread_num() * w->scratch_bytes);
    }
}

static bool fold(oct_context *cx, const oct_layer *l, const oct_tensor *x, float out_scale,
                 oct_qat_saved *sv)
{
    if (oct_fold_channels(l, x->q, out_scale, &sv->ch, sv->shape.out_c)) return true;
    oct_context_fail(cx, OCT_NUMERIC, "a weight, bias or batch-norm value is not finite");
    return false;
}

/* Outputs, masks and ranges from accumulators that are held. */
static void finish_held(oct_context *cx, const oct_finish *f, const oct_qat_saved *sv,
                        uint8_t *mask, const oct_work *w, const oct_tensor *x, oct_tensor *y)
{
    const oct_kernel *kernel = oct_kernel_here();
    int64_t n = sv->shape.out_c, pixels = sv->shape.out_h * sv->shape.out_w;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        int64_t begin = oct_leaf_begin(&cx->leaves, i) * oct_conv_out_numel(&sv->shape);
        const oct_finish part = oct_finish_at(f, begin);
        oct_finish_rows(kernel, &part, oct_leaf_size(&cx->leaves, i) * pixels, n,
                        acc_at(x, w->acc, begin), output_at(y, begin),
                        mask ? mask + i * sv->mask_stride : NULL, w->ranges + 2 * i);
    }
}

/* The same in one pass from the input's codes. */
static void convolve_codes(oct_context *cx, const oct_finish *f, const oct_qat_saved *sv,
                           const oct_work *w, const oct_tensor *x, oct_tensor *y)
{
    const oct_conv_shape *s = &sv->shape;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        int64_t begin = oct_leaf_begin(&cx->leaves, i);
        const oct_finish part = oct_finish_at(f, begin * oct_conv_out_numel(s));
        oct_qconv_forward(oct_kernel_here(), s, oct_leaf_size(&cx->leaves, i),
                          oct_qcodes_from(oct_qcodes_of(x), begin * oct_conv_in_numel(s)), w->ready,
                          &part, output_at(y, begin * oct_conv_out_numel(s)),
                          sv->mask ? sv->mask + i * sv->mask_stride : NULL, w->ranges + 2 * i,
                          w->scratch + omp_get_thread_num() * w->scratch_bytes);
    }
}

/* Input, second summand (or NULL) and output of a call. */
typedef struct call {
    const oct_qat_conv *m;
    oct_layer l;
    const oct_tensor *x, *r;
    oct_tensor *y;
} call;

static oct_finish finish_of(const call *c, const oct_qparams *out, const oct_qat_saved *sv)
{
    return oct_finish_of(&c->l, c->m->activation, c->x->q, out, c->r, &sv->ch);
}

/* Current scales: finishing with an output scale of 1 shows the real range, which then gives the
 * scale. The codes of that pass are overwritten. */
static void settle_scale(oct_context *cx, const call *c, oct_qat_saved *sv, oct_work *w)
{
    const oct_conv_shape *s = &sv->shape;
    int64_t positions = oct_leaves_local_samples(&cx->leaves) * s->out_h * s->out_w;
    oct_qparams real = c->y->q;
    real.scale = 1.0f;
    if (!fold(cx, &c->l, c->x, real.scale, sv)) return;
    silence_acc(&sv->ch, c->x->dtype, positions, s->out_c, w->acc);
    const oct_finish f = finish_of(c, &real, sv);
    finish_held(cx, &f, sv, NULL, w, c->x, c->y);
    oct_observe_leaves(cx, c->l.fq, c->m->q.base.training, real.scale, w->ranges);
    oct_context_adopt(cx, oct_fake_quant_settle(c->l.fq, cx->group));
    c->y->q = oct_fake_quant_qparams(c->l.fq);
}

/* Weights of dead channels are zero in what the kernel multiplies, not in what backward sees. */
static void ready_without_dead(oct_context *cx, oct_qparams in, const oct_qat_saved *sv,
                               oct_work *w)
{
    size_t bytes = (size_t)(sv->shape.out_c * oct_conv_depth(&sv->shape));
    int8_t *codes = oct_scratch(cx, bytes);
    if (!codes) return;
    memcpy(codes, sv->codes, bytes);
    oct_silence_codes(&sv->ch, &sv->shape, codes);
    oct_qconv_ready(oct_kernel_here(), &sv->shape, in, codes, w->ready);
    oct_scratch_end(cx, codes);
}

/* Makes y. The order of collectives depends on the module's state only, never on the rank. */
static void run_forward(oct_context *cx, const call *c, oct_qat_saved *sv, oct_work *w)
{
    const oct_conv_shape *s = &sv->shape;
    const oct_layer *l = &c->l;
    int64_t n = s->out_c;
    int64_t positions = oct_leaves_local_samples(&cx->leaves) * s->out_h * s->out_w;

    oct_quantize_weights(l, s, c->x->q, sv->codes, &sv->ch);
    oct_qconv_ready(oct_kernel_here(), s, c->x->q, sv->codes, w->ready);
    if (sv->held) oct_accumulate(cx, s, c->x, w, w->acc);
    if (sv->live)
        batch_statistics(cx, l, s, c->x->q, w->acc, &sv->ch);
    else if (l->bn)
        oct_running_statistics(l->bn, &sv->ch, n);
    if (cx->status == OCT_OK && sv->settle) settle_scale(cx, c, sv, w);
    if (cx->status != OCT_OK || !fold(cx, l, c->x, l->fq ? c->y->q.scale : 1.0f, sv)) return;

    bool dead = memchr(sv->ch.dead, true, (size_t)n) != NULL;
    if (dead && sv->held) silence_acc(&sv->ch, c->x->dtype, positions, n, w->acc);
    if (dead && !sv->held) ready_without_dead(cx, c->x->q, sv, w);
    const oct_finish f = finish_of(c, l->fq ? &c->y->q : NULL, sv);
    if (sv->held)
        finish_held(cx, &f, sv, sv->mask, w, c->x, c->y);
    else
        convolve_codes(cx, &f, sv, w, c->x, c->y);
    if (l->fq && !sv->settle)
        oct_observe_leaves(cx, l->fq, c->m->q.base.training, c->y->q.scale, w->ranges);
}

static bool input_fits(oct_context *cx, const oct_qat_conv *m, const oct_tensor *x,
                       oct_conv_shape *s)
{
    bool linear = m->layer->type == &oct_linear_type;
    char text[96];
    bool fits = x->shape.ndim == (linear ? 2 : 4);
    if (fits) {
        *s = oct_qat_conv_shape(m, linear ? 1 : oct_dim(x, 1), linear ? 1 : oct_dim(x, 2));
        fits = oct_dim(x, x->shape.ndim - 1) == s->in_c && s->out_h >= 1 && s->out_w >= 1;
    }
    if (!fits)
        oct_context_fail(cx, OCT_PREPARE, "input %s does not fit the layer",
                         oct_shape_text(&x->shape, text));
    return fits;
}

static bool summand_fits(oct_context *cx, const oct_layer *l, const oct_tensor *r,
                         const oct_shape *out)
{
    char a[96], b[96];
    if (l->shift)
        oct_context_fail(cx, OCT_PREPARE,
                         "a target that requantizes by shifts cannot add a second summand");
    else if (!oct_shape_equal(&r->shape, out))
        oct_context_fail(cx, OCT_PREPARE, "its second summand %s differs in shape from its sum %s",
                         oct_shape_text(&r->shape, a), oct_shape_text(out, b));
    return cx->status == OCT_OK;
}

static void use_params(oct_context *cx, const oct_layer *l)
{
    oct_param_used(cx, l->weight);
    if (l->bias) oct_param_used(cx, l->bias);
    if (!l->bn) return;
    oct_param_used(cx, l->bn->gamma);
    oct_param_used(cx, l->bn->beta);
}

oct_tensor *oct_qat_conv_integer(oct_context *cx, oct_qat_conv *m, oct_tensor *x, oct_tensor *r)
{
    oct_conv_shape s;
    oct_layer l = oct_layer_of(m);
    if (!input_fits(cx, m, x, &s)) return NULL;
    if (l.fq && !oct_fake_quant_quantizes(l.fq))
        return oct_context_fail(cx, OCT_PREPARE, "codes came in while its own fake-quant is off");
    oct_shape out = x->shape.ndim == 2 ? OCT_SHAPE(oct_dim(x, 0), s.out_c)
                                       : OCT_SHAPE(oct_dim(x, 0), s.out_h, s.out_w, s.out_c);
    if (r && !summand_fits(cx, &l, r, &out)) return NULL;
    if (oct_qat_conv_transposes(m)) {
        int stride = ((const oct_conv2d_module *)m->layer)->geometry.stride;
        if (stride > 1) x = oct_spread(cx, x, stride);
        if (!x) return NULL;
    }

    oct_qparams q = {0};
    if (l.fq) q = oct_fake_quant_qparams(l.fq);
    oct_tensor *y = oct_tensor_new(cx, l.fq ? oct_codes_dtype(q) : OCT_F32, out);
    oct_qat_saved *sv = oct_save(cx, sizeof *sv);
    if (!y || !sv) return NULL;
    y->q = q;
    *sv = (oct_qat_saved){.shape = s, .live = l.bn && m->q.base.training && !l.bn->frozen};
    sv->settle = l.fq && oct_fake_quant_settles(l.fq, m->q.base.training);
    sv->held = sv->live || sv->settle;
    oct_tensor *inputs[] = {x, r};
    oct_node *node = oct_record(cx, "qat_conv", oct_qat_conv_backward, inputs, r ? 2 : 1, true, y);
    if (node) {
        node->saved = sv;
        use_params(cx, &l);
    }
    if (node && (l.fq || m->activation != OCT_ACT_NONE)) {
        sv->mask_stride = (cx->leaves.leaf * oct_conv_out_numel(&s) + 7) / 8;
        sv->mask = oct_save(cx, (size_t)(sv->mask_stride * cx->leaves.local));
    }
    sv->codes = oct_save(cx, (size_t)(s.out_c * oct_conv_depth(&s)));
    if (!oct_channels_save(cx, &sv->ch, s.out_c)) return NULL;
    const call c = {.m = m, .l = l, .x = x, .r = r, .y = y};
    oct_work w;
    if (oct_work_begin(cx, &s, x->q, sv->held, &w)) run_forward(cx, &c, sv, &w);
    oct_work_end(cx, &w);
    return cx->status == OCT_OK ? y : NULL;
}
