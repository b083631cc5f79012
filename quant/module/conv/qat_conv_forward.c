/* The forward of a QAT convolution on codes.
 *
 * With running statistics (evaluation, frozen batch norm, no batch norm) codes are made in one pass over
 * the accumulators. With live batch norm a first pass gives the batch's statistics, a second one the
 * codes. Accumulators are exact whole numbers, of 16-bit inputs too; their sums and the sums of their
 * squares are taken in double, leaf by leaf in order of the pixels.
 */
#include "core/autograd/tape.h"
#include "quant/module/conv/conv_impl.h"

#include "core/base/int_math.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* A call: what is asked for, what it makes, and what it works with. */
typedef struct call {
    const oct_qat_call *request;
    const oct_layer *layer;
    oct_tensor *y;
    oct_qat_saved *saved;
    oct_accumulators acc;
    float *ranges; /* 2 a tile: that of a leaf and thread t at leaf + t */
    int64_t num_ranges;
} call;

/* Where a leaf's sums over some channels go. */
typedef struct leaf_sums {
    const oct_qat_saved *saved;
    double *sum; /* (2, O) */
    int64_t channel, channels;
} leaf_sums;

/* Adds the sums of a = acc - offset and of a * a over a block of accumulators to those of its leaf of samples. */
static void sum_block(void *args, int64_t position, int64_t positions, void *acc)
{
    const leaf_sums *s = args;
    const oct_qconv_plan *plan = &s->saved->plan;
    const oct_channels *ch = &s->saved->ch;
    const int64_t n = plan->shape.out_c, c = s->channel;
    (void)position;
    if (plan->wide)
        oct_acc_sums16(positions, n, s->channels, (const int64_t *)acc + c, ch->offset + c,
                       s->sum + c);
    else
        oct_acc_sums(positions, n, s->channels, (const int32_t *)acc + c, ch->offset32 + c,
                     s->sum + c);
}

/* Computes mean and inverse deviation from `total`, sums over the samples of group g of a = acc - offset and a * a
 * (2, O); values are acc_scale[o] * a + bias. False where they are not finite. Of several groups only this rank
 * would know of a shift that floats do not hold: it makes the noted statistics not finite, which all ranks see in
 * their sum. */
static bool compute_group_statistics(const call *c, const oct_bn_stats *stats, int64_t g,
                                     const double *total, const double *acc_scale)
{
    const oct_conv_shape *s = &c->saved->plan.shape;
    const oct_channels ch = oct_channels_of_group(&c->saved->ch, s->out_c, g);
    const float *bias = c->layer->bias ? oct_f32(&c->layer->bias->value) : NULL;
    const double count = (double)(oct_norm_group_samples(&stats->groups, g) * s->out_h * s->out_w);
    const double unbiased = count / (count - 1);
    bool finite = true;
    for (int64_t o = 0; o < s->out_c; o++) {
        const double scale = acc_scale[o], mean = total[o] / count;
        double var = total[s->out_c + o] / count - mean * mean, gain, shift;
        var = var > 0 ? var * scale * scale : 0;
        const oct_bn_batch batch = {.mean = mean * scale + (bias ? (double)bias[o] : 0),
                                    .var = var,
                                    .unbiased = var * unbiased};
        finite &= oct_bn_update(stats, g, o, &batch);
        oct_channel_affine(c->layer, &ch, o, &gain, &shift);
        if (stats->noted && !isfinite((float)shift)) oct_bn_invalidate(stats, g, o);
    }
    return finite;
}

/* Sums a = acc - offset and a * a: rows (leaves, 2, O); threads share leaves whose accumulators are in memory. */
static void sum_leaves(const oct_context *cx, const call *c, double *rows)
{
    const int64_t n = c->saved->plan.shape.out_c;
    const oct_cut cut = oct_accumulators_cut_channels(cx, &c->acc);
#pragma omp parallel for schedule(static)
    for (int t = 0; t < cut.threads; t++) {
        for (oct_tile tile = oct_tile_begin(&cut, t); oct_tile_next(&cut, &tile);) {
            const oct_tile leaf = oct_whole_leaf(cx, tile.leaf);
            leaf_sums sums = {c->saved, rows + tile.leaf * 2 * n, tile.first,
                              tile.end - tile.first};
            oct_accumulators_pass(cx, &c->acc, &leaf, sum_block, &sums);
        }
    }
}

/* Computes mean and inverse deviation of each group of samples (the first pass), and updates the running values. */
static void compute_batch_statistics(oct_context *cx, call *c)
{
    const oct_norm_groups *groups = &c->saved->groups;
    const int64_t n = c->saved->plan.shape.out_c, local = cx->leaves.local;
    const oct_bn_args args = oct_batch_norm_call(c->layer->bn, true);
    oct_bn_stats stats = {.args = &args,
                          .groups = *groups,
                          .channels = n,
                          .positions = oct_conv_out_numel(&c->saved->plan.shape) / n,
                          .mean = c->saved->ch.mean,
                          .inv_std = c->saved->ch.inv_std};
    double *rows = oct_scratch(cx, (size_t)(local + 1) * (size_t)n * 2 * sizeof *rows);
    double *acc_scale = oct_scratch(cx, (size_t)((2 * groups->count + 1) * n) * sizeof *acc_scale);
    if (rows && acc_scale && oct_bn_stats_begin(cx, &stats)) {
        double *totals = acc_scale + n;
        memset(rows, 0, (size_t)local * (size_t)n * 2 * sizeof *rows);
        sum_leaves(cx, c, rows);
        for (int64_t o = 0; o < n; o++)
            acc_scale[o] = (double)c->request->x->q.scale * (double)c->saved->ch.scale[o];
        bool finite = true;
        if (oct_sum_over_groups(cx, groups, rows, 2 * n, totals))
            for (int64_t g = 0; g < groups->count; g++)
                finite &= compute_group_statistics(c, &stats, g, totals + g * 2 * n, acc_scale);
        if (!finite)
            oct_context_fail(cx, OCT_NUMERIC, "the batch's mean or variance is not finite");
    }
    oct_scratch_end(cx, acc_scale);
    oct_scratch_end(cx, rows);
}

static oct_channels channels_of_leaf(const call *c, int64_t i)
{
    return oct_channels_of_group(&c->saved->ch, c->saved->plan.shape.out_c,
                                 oct_norm_group_at(&c->saved->groups, i));
}

/* The accumulators of dead channels count as 0 from here on: in the buffer, or because their weights are 0
 * in what the kernel multiplies, which all groups share, so several take a buffer. The backward wants to see
 * the accumulators as they were. */
static void clear_dead(oct_context *cx, call *c)
{
    const oct_qat_saved *saved = c->saved;
    const oct_conv_shape *s = &saved->plan.shape;
    c->saved->acc = NULL;
    oct_accumulators_fill(cx, &c->acc, saved->groups.count > 1);
    if (cx->status != OCT_OK) return;
    for (int64_t i = 0; c->acc.buffer && i < cx->leaves.local; i++) {
        const oct_channels ch = channels_of_leaf(c, i);
        const oct_tile whole = oct_whole_leaf(cx, i);
        const oct_qconv_pass leaf = oct_accumulators_of(cx, &c->acc, &whole);
        oct_clear_dead_sums(&c->acc, ch.dead, leaf.samples * s->out_h * s->out_w, leaf.y);
    }
    if (c->acc.buffer) return;
    const size_t bytes = (size_t)(s->out_c * oct_conv_depth(s));
    int8_t *codes = oct_scratch(cx, bytes);
    if (!codes) return;
    memcpy(codes, saved->codes, bytes);
    oct_clear_dead_codes(&saved->ch, s, codes);
    oct_qconv_pack(&saved->plan, codes, c->acc.packed);
    oct_scratch_end(cx, codes);
}

/* Computes the channels' constants of every norm group for an output scale. */
static bool compute_constants(oct_context *cx, call *c, float out_scale)
{
    const int64_t n = c->saved->plan.shape.out_c, groups = c->saved->groups.count;
    for (int64_t g = 0; g < groups && cx->status == OCT_OK; g++) {
        oct_channels ch = oct_channels_of_group(&c->saved->ch, n, g);
        oct_context_adopt(cx, oct_fold_channels(c->layer, c->request->x->q, out_scale, &ch, n));
    }
    if (cx->status == OCT_OK && memchr(c->saved->ch.dead, true, (size_t)(groups * n)))
        clear_dead(cx, c);
    return cx->status == OCT_OK;
}

static oct_epilogue epilogue_of_leaf(const call *c, const oct_qparams *out, int64_t i)
{
    const oct_channels ch = channels_of_leaf(c, i);
    return oct_epilogue_of(c->layer, c->request->x->q, out, c->request->addend, &ch);
}

/* Computes outputs, mask (unless NULL) and range of a tile. */
static void compute_tile(const oct_context *cx, const call *c, const oct_qparams *out,
                         const oct_tile *tile, uint8_t *mask, float *range)
{
    const oct_epilogue f = epilogue_of_leaf(c, out, tile->leaf);
    const oct_qconv_plan *plan = &c->saved->plan;
    const oct_conv_shape *s = &plan->shape;
    const int64_t first = oct_leaf_begin(&cx->leaves, tile->leaf) + tile->first;
    const int64_t begin = first * oct_conv_out_numel(s);
    const oct_epilogue part = oct_epilogue_at(&f, begin);
    const int64_t first_in_leaf = tile->first * oct_conv_out_numel(s);
    OCT_ASSERT(!mask || first_in_leaf % 8 == 0);
    oct_qconv_pass pass = oct_accumulators_of(cx, &c->acc, tile);
    const oct_acc_rows rows = {
        .m = pass.samples * s->out_h * s->out_w,
        .n = s->out_c,
        .acc = pass.y,
        .y = (char *)c->y->data + begin * (int64_t)oct_dtype_bytes(c->y->dtype),
        .mask = mask ? mask + tile->leaf * c->saved->mask_stride + first_in_leaf / 8 : NULL,
        .range = range};
    if (rows.acc) {
        oct_epilogue_rows(plan->kernel, &part, &rows);
        return;
    }
    pass.y = rows.y;
    pass.mask = rows.mask;
    pass.range = rows.range;
    oct_qconv_forward(plan, &pass, &part, oct_accumulators_scratch(&c->acc));
}

/* Computes all outputs; out NULL: as floats. */
static void compute_outputs(oct_context *cx, const call *c, const oct_qparams *out, uint8_t *mask)
{
    const oct_cut cut = oct_accumulators_cut(cx, &c->acc, mask);
    for (int64_t i = 0; i < c->num_ranges; i++) { /* nothing seen yet */
        c->ranges[2 * i] = INFINITY;
        c->ranges[2 * i + 1] = -INFINITY;
    }
#pragma omp parallel for schedule(static)
    for (int t = 0; t < cut.threads; t++)
        for (oct_tile tile = oct_tile_begin(&cut, t); oct_tile_next(&cut, &tile);)
            compute_tile(cx, c, out, &tile, mask, c->ranges + 2 * (tile.leaf + t));
}

/* A histogram of the values of a leaf, times scale. */
typedef struct value_counter {
    float scale;
    int64_t count[OCT_HISTOGRAM_BINS];
} value_counter;

/* Adds outputs, times the scale their real values, to a histogram. */
static void count_values(void *args, int64_t first, int64_t n, const float *v)
{
    enum { BLOCK = 256 };
    value_counter *counter = args;
    float real[BLOCK];
    (void)first;
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t count = oct_min_i64(n - i, BLOCK);
        for (int64_t k = 0; k < count; k++)
            real[k] = v[i + k] * counter->scale;
        oct_histogram_add(real, count, counter->count);
    }
}

/* Shows the fake-quant the ranges of the outputs, which are in units of out's scale, and, where its observer counts, a
 * histogram of them from a further pass. */
static void observe_outputs(oct_context *cx, const call *c, const oct_qparams *out)
{
    const oct_layer *l = c->layer;
    if (oct_fake_quant_counts(l->fq, l->training)) {
        const int64_t bytes = oct_value_pass_bytes(c->saved->plan.shape.out_c);
        char *scratch = oct_scratch(cx, (size_t)(bytes * omp_get_max_threads()));
        if (!scratch) return;
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < cx->leaves.local; i++) {
            const oct_epilogue f = epilogue_of_leaf(c, out, i);
            const oct_value_pass pass = {.epilogue = &f, .scratch = scratch};
            value_counter counter = {.scale = out->scale};
            oct_accumulators_values(cx, &c->acc, &pass, i, count_values, &counter);
            oct_fake_quant_count(l->fq, counter.count);
        }
        oct_scratch_end(cx, scratch);
    }
    for (int64_t i = 0; i < c->num_ranges; i++)
        oct_fake_quant_observe(l->fq, l->training, c->ranges[2 * i] * out->scale,
                               c->ranges[2 * i + 1] * out->scale);
}

/* Computes the outputs, in one pass or more. Collectives depend on the module's state only, never on the rank. */
static void run_passes(oct_context *cx, call *c, bool updates_first)
{
    const oct_layer *l = c->layer;
    if (c->saved->live) {
        compute_batch_statistics(cx, c);
    } else {
        if (l->bn) oct_running_statistics(l, &c->saved->ch);
        oct_accumulators_fill(cx, &c->acc, false); /* once, if they are to stay */
    }
    c->acc.computed = true;
    if (cx->status == OCT_OK && updates_first) {
        /* An output scale of 1 shows the real range, which then gives the scale. The codes of that pass are
         * overwritten. */
        oct_qparams real = c->y->q;
        real.scale = 1.0f;
        if (!compute_constants(cx, c, real.scale)) return;
        compute_outputs(cx, c, &real, NULL);
        observe_outputs(cx, c, &real);
        oct_context_adopt(cx, oct_fake_quant_update(l->fq, cx->group));
        c->y->q = oct_fake_quant_qparams(l->fq);
    }
    if (cx->status != OCT_OK || !compute_constants(cx, c, l->fq ? c->y->q.scale : 1.0f)) return;
    compute_outputs(cx, c, l->fq ? &c->y->q : NULL, c->saved->mask);
    if (l->fq && !updates_first) observe_outputs(cx, c, &c->y->q);
}

/* Saves what the backward wants beyond the codes of the weights, and names the parameters that it has gradients for. */
static void save_for_backward(oct_context *cx, oct_qat_saved *saved)
{
    const oct_conv_shape *s = &saved->plan.shape;
    const oct_layer *l = &saved->layer;
    if (l->fq || l->activation != OCT_ACT_NONE) {
        saved->mask_stride = (cx->leaves.leaf * oct_conv_out_numel(s) + 7) / 8;
        saved->mask = oct_save(cx, (size_t)(saved->mask_stride * cx->leaves.local + 1));
    }
    saved->call = cx->draws.roundings++;
    if (oct_fake_quant_learns(l->fq)) oct_param_used(cx, l->fq->learned);
    if (l->weight) oct_param_used(cx, l->weight);
    if (l->bias) oct_param_used(cx, l->bias);
    if (l->bn) oct_param_used(cx, l->bn->gamma);
    if (l->bn) oct_param_used(cx, l->bn->beta);
}

oct_tensor *oct_qat_conv_forward(oct_context *cx, const oct_qat_call *request)
{
    const oct_layer *l = &request->layer;
    const oct_conv_shape *s = &request->shape;
    oct_qparams q = {0};
    if (l->fq) q = oct_fake_quant_qparams(l->fq);
    oct_tensor *y = oct_tensor_new(cx, l->fq ? oct_codes_dtype(q) : OCT_F32, request->out);
    oct_qat_saved *saved = oct_save(cx, sizeof *saved);
    if (!y || !saved) return NULL;
    y->q = q;
    *saved = (oct_qat_saved){.layer = *l, .live = l->bn && l->training && !l->bn->frozen};
    saved->groups = oct_norm_groups_of(cx, saved->live);
    oct_tensor *inputs[] = {request->x, request->addend};
    oct_node *node = oct_record(cx, request->op, oct_qat_conv_backward, inputs,
                                request->addend ? 2 : 1, true, y);
    if (l->weight)
        oct_qconv_plan_init(&saved->plan, oct_kernel_here(), s, request->x->q, cx->leaves.leaf);
    else
        oct_qconv_plan_affine(&saved->plan, oct_kernel_here(), s, request->x->q);
    void *tables = oct_save(cx, (size_t)saved->plan.table_bytes);
    if (tables) oct_qconv_plan_tables(&saved->plan, tables);
    if (node) {
        node->saved = saved;
        save_for_backward(cx, saved);
    }
    saved->codes = oct_save(cx, (size_t)(s->out_c * oct_conv_depth(s)));
    if (oct_channels_alloc(&saved->ch, cx, s->out_c, saved->groups.count) != OCT_OK) return NULL;
    call c = {.request = request,
              .layer = &saved->layer,
              .y = y,
              .saved = saved,
              .num_ranges = cx->leaves.local + omp_get_max_threads()};
    c.ranges = oct_scratch(cx, (size_t)c.num_ranges * 2 * sizeof *c.ranges);
    if (c.ranges) {
        const bool updates_first = l->fq && oct_fake_quant_updates_first(l->fq, l->training);
        const bool counts = l->fq && oct_fake_quant_counts(l->fq, l->training);
        oct_quantize_weights(l, s, request->x->q, saved->codes, &saved->ch);
        if (oct_accumulators_begin(cx, saved, request->x, saved->live || updates_first || counts,
                                   saved->live && node, &c.acc))
            run_passes(cx, &c, updates_first);
        oct_accumulators_end(cx, &c.acc);
    }
    oct_scratch_end(cx, c.ranges);
    return cx->status == OCT_OK ? y : NULL;
}
