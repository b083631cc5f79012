/* The integer forward of qat_conv.
 *
 * With running statistics (evaluation, frozen batch norm, no batch norm) codes are made in one pass over
 * the accumulators. With live batch norm a first pass gives the batch's statistics, a second one the
 * codes. Accumulators are exact whole numbers, of 16-bit inputs too; their sums and the sums of their
 * squares are taken in double, leaf by leaf in order of the pixels.
 */
#include "quant/module/conv/qat_conv_impl.h"

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

/* Where a leaf's sums go. */
typedef struct summer {
    const oct_accumulators *w;
    const oct_channels *ch;
    double *sum; /* (2, O) */
} summer;

static void sum_block(void *args, int64_t position, int64_t positions, void *acc)
{
    const summer *s = args;
    (void)position;
    if (s->w->x->dtype == OCT_U16)
        oct_acc_sums16(positions, s->w->shape.out_c, acc, s->ch->offset, s->sum);
    else
        oct_acc_sums(positions, s->w->shape.out_c, acc, s->ch->offset32, s->sum);
}

/* The batch's mean and inverse deviation over all ranks, and the update of the running values. */
static void batch_statistics(oct_context *cx, const oct_layer *l, const oct_accumulators *w,
                             oct_channels *ch)
{
    const int64_t n = w->shape.out_c, local = cx->leaves.local;
    const int64_t count = cx->leaves.samples * w->shape.out_h * w->shape.out_w;
    double *rows = oct_scratch(cx, (size_t)(local + 1) * (size_t)n * 16);
    double *total = oct_scratch(cx, (size_t)n * 24);
    if (rows && total) {
        double *scale = total + 2 * n;
        memset(rows, 0, (size_t)local * (size_t)n * 16);
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < local; i++)
            oct_accumulators_compute(cx, w, i, sum_block, &(summer){w, ch, rows + i * 2 * n});
        for (int64_t o = 0; o < n; o++)
            scale[o] = (double)w->x->q.scale * (double)ch->scale[o];
        if (oct_sum_over_ranks(cx, rows, 2 * n, total))
            oct_take_statistics(cx, l->bn, total, (double)count, scale,
                                l->bias ? oct_f32(&l->bias->value) : NULL, ch);
    }
    oct_scratch_end(cx, total);
    oct_scratch_end(cx, rows);
}

/* A call: its input, second addend (or NULL) and output, and what it works with. */
typedef struct call {
    const oct_qat_conv *m;
    oct_layer l;
    const oct_tensor *x, *r;
    oct_tensor *y;
    oct_qat_saved *sv;
    oct_accumulators w;
    float *ranges; /* 2 a leaf */
} call;

/* Weights of dead channels are zero in what the kernel multiplies, not in what backward sees. */
static void ready_without_dead(oct_context *cx, const call *c)
{
    const oct_qat_saved *sv = c->sv;
    size_t bytes = (size_t)(sv->shape.out_c * oct_conv_depth(&sv->shape));
    int8_t *codes = oct_scratch(cx, bytes);
    if (!codes) return;
    memcpy(codes, sv->codes, bytes);
    oct_silence_codes(&sv->ch, &sv->shape, codes);
    oct_qconv_ready(oct_kernel_here(), &sv->shape, c->x->q, codes, c->w.ready);
    oct_scratch_end(cx, codes);
}

/* The constants for an output scale. */
static bool fold(oct_context *cx, const call *c, float out_scale)
{
    const int64_t n = c->sv->shape.out_c;
    oct_channels *ch = &c->sv->ch;
    if (!oct_fold_channels(&c->l, c->x->q, out_scale, ch, n)) {
        oct_context_fail(cx, OCT_NUMERIC, "a weight, bias or batch-norm value is not finite");
        return false;
    }
    if (!memchr(ch->dead, true, (size_t)n)) return true;
    c->sv->acc = NULL; /* what is silenced is not what backward wants to see */
    if (c->w.held)
        silence_acc(ch, c->x->dtype,
                    oct_leaves_local_samples(&cx->leaves) * c->sv->shape.out_h * c->sv->shape.out_w,
                    n, c->w.held);
    else
        ready_without_dead(cx, c);
    return cx->status == OCT_OK;
}

/* Outputs, mask (unless NULL) and range of leaf i. */
static void finish_leaf(const oct_context *cx, const call *c, const oct_epilogue *f, uint8_t *mask,
                        int64_t i)
{
    const oct_conv_shape *s = &c->w.shape;
    const oct_kernel *kernel = oct_kernel_here();
    const int64_t samples = oct_leaf_size(&cx->leaves, i);
    const int64_t begin = oct_leaf_begin(&cx->leaves, i) * oct_conv_out_numel(s);
    const oct_epilogue part = oct_epilogue_at(f, begin);
    char *y = (char *)c->y->data + begin * (int64_t)oct_dtype_bytes(c->y->dtype);
    if (mask) mask += i * c->sv->mask_stride;
    if (c->w.held)
        oct_epilogue_rows(kernel, &part, samples * s->out_h * s->out_w, s->out_c,
                          oct_accumulators_of_leaf(cx, &c->w, i), y, mask, c->ranges + 2 * i);
    else
        oct_qconv_forward(kernel, s, samples, oct_accumulators_input(cx, &c->w, i), c->w.ready,
                          &part, y, mask, c->ranges + 2 * i, oct_accumulators_scratch(&c->w));
}

/* All outputs; out NULL: as floats. */
static void finish(oct_context *cx, const call *c, const oct_qparams *out, uint8_t *mask)
{
    const oct_epilogue f = oct_epilogue_of(&c->l, c->m->activation, c->x->q, out, c->r, &c->sv->ch);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++)
        finish_leaf(cx, c, &f, mask, i);
}

/* A further pass, where the observer counts. */
static void count(oct_context *cx, const call *c, const oct_qparams *out)
{
    const int64_t bytes = oct_accumulators_values_bytes(c->w.shape.out_c);
    if (!oct_fake_quant_counts(c->l.fq, c->m->q.base.training)) return;
    char *scratch = oct_scratch(cx, (size_t)(bytes * omp_get_max_threads()));
    if (!scratch) return;
    const oct_epilogue f = oct_epilogue_of(&c->l, c->m->activation, c->x->q, out, c->r, &c->sv->ch);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        oct_value_counter counter = {.scale = out->scale};
        oct_accumulators_values(cx, &c->w, oct_accumulators_revisit, &f, NULL, i, oct_count_values,
                                &counter, scratch + omp_get_thread_num() * bytes);
        oct_fake_quant_count(c->l.fq, counter.count);
    }
    oct_scratch_end(cx, scratch);
}

/* Current scales: finishing with an output scale of 1 shows the real range, which then gives the
 * scale. The codes of that pass are overwritten. */
static void settle_scale(oct_context *cx, const call *c)
{
    oct_qparams real = c->y->q;
    real.scale = 1.0f;
    if (!fold(cx, c, real.scale)) return;
    finish(cx, c, &real, NULL);
    count(cx, c, &real);
    oct_observe_leaves(cx, c->l.fq, c->m->q.base.training, real.scale, c->ranges);
    oct_context_adopt(cx, oct_fake_quant_update(c->l.fq, cx->group));
    c->y->q = oct_fake_quant_qparams(c->l.fq);
}

/* Makes y. The order of collectives depends on the module's state only, never on the rank. */
static void make_output(oct_context *cx, const call *c)
{
    const oct_qat_saved *sv = c->sv;
    const oct_layer *l = &c->l;
    if (sv->live) {
        batch_statistics(cx, l, &c->w, &c->sv->ch);
    } else {
        if (l->bn) oct_running_statistics(l->bn, &c->sv->ch, sv->shape.out_c);
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < cx->leaves.local; i++)
            oct_accumulators_compute(cx, &c->w, i, NULL, NULL);
    }
    if (cx->status == OCT_OK && sv->settle) settle_scale(cx, c);
    if (cx->status != OCT_OK || !fold(cx, c, l->fq ? c->y->q.scale : 1.0f)) return;
    finish(cx, c, l->fq ? &c->y->q : NULL, sv->mask);
    if (!l->fq || sv->settle) return;
    count(cx, c, &c->y->q);
    oct_observe_leaves(cx, l->fq, c->m->q.base.training, c->y->q.scale, c->ranges);
}

static void run_forward(oct_context *cx, call *c)
{
    const oct_qat_saved *sv = c->sv;
    c->ranges = oct_scratch(cx, (size_t)(cx->leaves.local + 1) * 2 * sizeof *c->ranges);
    if (c->ranges) {
        oct_start_ranges(c->ranges, cx->leaves.local);
        oct_quantize_weights(&c->l, &sv->shape, c->x->q, sv->codes, &c->sv->ch);
        const bool more = sv->live || sv->settle ||
                          (c->l.fq && oct_fake_quant_counts(c->l.fq, c->m->q.base.training));
        if (oct_accumulators_begin(cx, c->m, sv, c->x, more, &c->w)) make_output(cx, c);
        oct_accumulators_end(cx, &c->w);
    }
    oct_scratch_end(cx, c->ranges);
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

static bool addend_fits(oct_context *cx, const oct_layer *l, const oct_tensor *r,
                        const oct_shape *out)
{
    char a[96], b[96];
    if (l->shift)
        oct_context_fail(cx, OCT_PREPARE,
                         "a target that requantizes by shifts cannot add a second addend");
    else if (!oct_shape_equal(&r->shape, out))
        oct_context_fail(cx, OCT_PREPARE, "its second addend %s differs in shape from its sum %s",
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
    if (r && !addend_fits(cx, &l, r, &out)) return NULL;
    if (oct_qat_conv_transposes(m)) {
        int stride = ((const oct_conv2d_module *)m->layer)->geometry.stride;
        if (stride > 1) x = oct_dilate(cx, x, stride);
        if (!x) return NULL;
    }

    oct_qparams q = {0};
    if (l.fq) q = oct_fake_quant_qparams(l.fq);
    oct_tensor *y = oct_tensor_new(cx, l.fq ? oct_codes_dtype(q) : OCT_F32, out);
    oct_qat_saved *sv = oct_save(cx, sizeof *sv);
    if (!y || !sv) return NULL;
    y->q = q;
    *sv = (oct_qat_saved){.shape = s, .live = l.bn && m->q.base.training && !l.bn->frozen};
    sv->settle = l.fq && oct_fake_quant_updates_first(l.fq, m->q.base.training);
    oct_tensor *inputs[] = {x, r};
    oct_node *node = oct_record(cx, "qat_conv", oct_qat_conv_backward, inputs, r ? 2 : 1, true, y);
    if (node) {
        if (oct_fake_quant_learns(l.fq)) oct_param_used(cx, l.fq->learned);
        node->saved = sv;
        sv->turn = oct_qat_conv_turn(&s);
        if (sv->live) sv->acc = oct_accumulators_save(cx, m, &s, x);
        use_params(cx, &l);
    }
    if (node && (l.fq || m->activation != OCT_ACT_NONE)) {
        sv->mask_stride = (cx->leaves.leaf * oct_conv_out_numel(&s) + 7) / 8;
        sv->mask = oct_save(cx, (size_t)(sv->mask_stride * cx->leaves.local + 1));
    }
    sv->codes = oct_save(cx, (size_t)(s.out_c * oct_conv_depth(&s)));
    if (!oct_channels_save(cx, &sv->ch, s.out_c)) return NULL;
    call c = {.m = m, .l = l, .x = x, .r = r, .y = y, .sv = sv};
    run_forward(cx, &c);
    return cx->status == OCT_OK ? y : NULL;
}
