/* A batch norm that follows no convolution (+ relu or relu6), on codes: a factor and a bias per channel,
 * as qat_conv has them, with a weight of 1 whose scale 2^-15 leaves room for the bias.
 *
 * With live batch norm the statistics are sums over the codes themselves: whole numbers, which double
 * holds exactly, leaf by leaf in order of the rows.
 */
#include "core/base/mem.h"
#include "core/base/whole.h"
#include "quant/module/conv/qat_conv_impl.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/emit.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

static const float weight_scale = 1.0f / (float)(1 << OCT_QAFFINE_BITS);

typedef struct saved {
    oct_channels ch;
    int8_t *weight;
    uint8_t *mask; /* leaf by leaf, each from a byte of its own */
    int64_t mask_stride;
    bool live;
} saved;

/* What a call works on: n channels, `pixels` rows of them in a sample. */
typedef struct call {
    const oct_qat_batch_norm *m;
    oct_layer l;
    const oct_tensor *x;
    oct_tensor *y;
    int64_t n, pixels;
    saved *sv;
    float *ranges; /* 2 a leaf */
    char *scratch;
    int64_t scratch_bytes; /* of one thread */
} call;

static oct_layer layer_of(const oct_qat_batch_norm *m)
{
    return (oct_layer){.bn = (oct_batch_norm_module *)m->batch_norm,
                       .fq = (oct_fake_quant *)m->q.fake_quant};
}

static oct_tensor *float_forward(oct_context *cx, const oct_qat_batch_norm *m, oct_tensor *x)
{
    oct_layer l = layer_of(m);
    const oct_bn_args args = oct_batch_norm_args(l.bn, m->q.base.training);
    oct_tensor *y = oct_float_activation(cx, m->activation, oct_batch_norm(cx, x, &args));
    return oct_fake_quant_float(cx, l.fq, m->q.base.training, y);
}

/* Sums of code - zero_point and of its square. */
#define LEAF_SUMS(name, code_t)                                                                    \
    OCT_CLONES static void name(const code_t *x, int32_t zero_point, int64_t rows, int64_t n,      \
                                double *sum)                                                       \
    {                                                                                              \
        memset(sum, 0, (size_t)n * 2 * sizeof(double));                                            \
        double *square = sum + n;                                                                  \
        for (int64_t i = 0; i < rows; i++)                                                         \
            for (int64_t o = 0; o < n; o++) {                                                      \
                double a = (double)(x[i * n + o] - zero_point);                                    \
                sum[o] += a;                                                                       \
                square[o] += a * a;                                                                \
            }                                                                                      \
    }
LEAF_SUMS(leaf_sums, uint8_t)
LEAF_SUMS(leaf_sums16, uint16_t)

static void batch_statistics(oct_context *cx, const call *c)
{
    const oct_leaves *leaves = &cx->leaves;
    const oct_qcodes x = oct_qcodes_of(c->x);
    int64_t n = c->n;
    double *rows = oct_scratch(cx, (size_t)(leaves->local + 1) * (size_t)n * 16);
    double *total = oct_scratch(cx, (size_t)n * 24);
    if (rows && total) {
        double *scale = total + 2 * n;
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < leaves->local; i++) {
            const void *codes = oct_qcodes_from(x, oct_leaf_begin(leaves, i) * c->pixels * n).data;
            int64_t count = oct_leaf_size(leaves, i) * c->pixels;
            if (c->x->dtype == OCT_U16)
                leaf_sums16(codes, x.q.zero_point, count, n, rows + i * 2 * n);
            else
                leaf_sums(codes, x.q.zero_point, count, n, rows + i * 2 * n);
        }
        for (int64_t o = 0; o < n; o++)
            scale[o] = (double)x.q.scale;
        if (oct_sum_over_ranks(cx, rows, 2 * n, total))
            oct_take_statistics(cx, c->l.bn, total, (double)(leaves->samples * c->pixels), scale,
                                NULL, &c->sv->ch);
    }
    oct_scratch_end(cx, total);
    oct_scratch_end(cx, rows);
}

static void start_channels(oct_channels *ch, int64_t n)
{
    for (int64_t o = 0; o < n; o++) {
        ch->scale[o] = weight_scale;
        ch->offset[o] = 0;
        ch->silent[o] = false;
    }
}

static void set_weights(const oct_channels *ch, int64_t n, int8_t *weight)
{
    for (int64_t o = 0; o < n; o++)
        weight[o] = !ch->dead[o];
}

static oct_epilogue finish_of(const call *c, oct_qparams out)
{
    return oct_epilogue_of(&c->l, c->m->activation, c->x->q, &out, NULL, &c->sv->ch);
}

/* As oct_accumulators_values. */
static void show_values(const oct_context *cx, const call *c, const oct_epilogue *f, int64_t leaf,
                        oct_value_visit *visit, void *args, float *part)
{
    const int64_t rows = oct_leaf_size(&cx->leaves, leaf) * c->pixels;
    const int64_t begin = oct_leaf_begin(&cx->leaves, leaf) * c->pixels * c->n;
    oct_epilogue real = *f;
    real.out = OCT_F32;
    for (int64_t row = 0, count; row < rows; row += count) {
        count = oct_min_i64(oct_part_rows(c->n), rows - row);
        oct_qaffine_forward(oct_kernel_here(), count, c->n,
                            oct_qcodes_from(oct_qcodes_of(c->x), begin + row * c->n), c->sv->weight,
                            &real, part, NULL, NULL,
                            c->scratch + omp_get_thread_num() * c->scratch_bytes);
        visit(args, row * c->n, count * c->n, part);
    }
}

/* Codes, masks (unless NULL) and ranges for an output like `out`. */
static void make_codes(oct_context *cx, const call *c, oct_qparams out, uint8_t *mask)
{
    saved *sv = c->sv;
    if (!oct_fold_channels(&c->l, c->x->q, out.scale, &sv->ch, c->n)) {
        oct_context_fail(cx, OCT_NUMERIC, "a batch-norm value is not finite");
        return;
    }
    set_weights(&sv->ch, c->n, sv->weight);
    const oct_epilogue f = finish_of(c, out);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        int64_t begin = oct_leaf_begin(&cx->leaves, i) * c->pixels * c->n;
        oct_qaffine_forward(oct_kernel_here(), oct_leaf_size(&cx->leaves, i) * c->pixels, c->n,
                            oct_qcodes_from(oct_qcodes_of(c->x), begin), sv->weight, &f,
                            oct_qcodes_place(c->y->data, out, begin),
                            mask ? mask + i * sv->mask_stride : NULL, c->ranges + 2 * i,
                            c->scratch + omp_get_thread_num() * c->scratch_bytes);
    }
}

/* A further pass, where the observer counts. */
static void count(oct_context *cx, const call *c, oct_qparams out)
{
    if (!oct_fake_quant_counts(c->l.fq, c->m->q.base.training)) return;
    const int64_t floats = oct_part_floats(c->n);
    float *scratch = oct_scratch(cx, (size_t)(floats * omp_get_max_threads()) * sizeof *scratch);
    if (!scratch) return;
    const oct_epilogue f = finish_of(c, out);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        oct_value_counter counter = {.scale = out.scale};
        show_values(cx, c, &f, i, oct_count_values, &counter,
                    scratch + omp_get_thread_num() * floats);
        oct_fake_quant_count(c->l.fq, counter.count);
    }
    oct_scratch_end(cx, scratch);
}

static void run_forward(oct_context *cx, const call *c)
{
    const bool training = c->m->q.base.training;
    const bool settles = oct_fake_quant_updates_first(c->l.fq, training);
    start_channels(&c->sv->ch, c->n);
    if (c->sv->live)
        batch_statistics(cx, c);
    else
        oct_running_statistics(c->l.bn, &c->sv->ch, c->n);
    if (cx->status == OCT_OK && settles) { /* a scale of 1 shows the real range */
        oct_qparams real = c->y->q;
        real.scale = 1.0f;
        make_codes(cx, c, real, NULL);
        count(cx, c, real);
        oct_observe_leaves(cx, c->l.fq, training, real.scale, c->ranges);
        oct_context_adopt(cx, oct_fake_quant_update(c->l.fq, cx->group));
        c->y->q = oct_fake_quant_qparams(c->l.fq);
    }
    if (cx->status != OCT_OK) return;
    make_codes(cx, c, c->y->q, c->sv->mask);
    if (settles) return;
    count(cx, c, c->y->q);
    oct_observe_leaves(cx, c->l.fq, training, c->y->q.scale, c->ranges);
}

/* x^ = (code - zero_point) * a[o] + b[o] */
#define NORMALISE(name, code_t)                                                                    \
    OCT_CLONES static void name(const code_t *x, int32_t zero_point, int64_t rows, int64_t n,      \
                                const float *a, const float *b, float *hat)                        \
    {                                                                                              \
        for (int64_t i = 0; i < rows; i++)                                                         \
            for (int64_t o = 0; o < n; o++)                                                        \
                hat[i * n + o] = (float)(x[i * n + o] - zero_point) * a[o] + b[o];                 \
    }
NORMALISE(normalise, uint8_t)
NORMALISE(normalise16, uint16_t)

/* What a backward works on. */
typedef struct way_back {
    oct_fake_quant *fq;
    const saved *sv;
    oct_qcodes x;
    int64_t pixels;
    oct_norm_grad norm;
    const float *a, *b; /* of x^ */
    float *grad;
    float *hat; /* a part of oct_part_floats for each thread */
} way_back;

static void normalise_part(const way_back *w, int64_t at, int64_t rows, float *hat)
{
    const oct_qcodes x = oct_qcodes_from(w->x, at);
    if (oct_codes_dtype(x.q) == OCT_U16)
        normalise16(x.data, x.q.zero_point, rows, w->norm.n, w->a, w->b, hat);
    else
        normalise(x.data, x.q.zero_point, rows, w->norm.n, w->a, w->b, hat);
}

static void sum_leaf(const oct_context *cx, const way_back *w, int64_t i)
{
    const int64_t n = w->norm.n, rows = oct_leaf_size(&cx->leaves, i) * w->pixels;
    const int64_t begin = oct_leaf_begin(&cx->leaves, i) * w->pixels * n;
    float *hat = w->hat + omp_get_thread_num() * oct_part_floats(n);
    oct_clip_leaf(w->fq, w->sv->mask + i * w->sv->mask_stride, rows * n, w->grad + begin);
    for (int64_t row = 0, count; row < rows; row += count) {
        count = oct_min_i64(oct_part_rows(n), rows - row);
        normalise_part(w, begin + row * n, count, hat);
        oct_norm_grad_sum(
            &w->norm, i,
            &(oct_norm_rows){.rows = count, .hat.made = hat, .grad = w->grad + begin + row * n});
    }
}

static void turn_leaf(const oct_context *cx, const way_back *w, int64_t i)
{
    const int64_t n = w->norm.n, rows = oct_leaf_size(&cx->leaves, i) * w->pixels;
    float *grad = w->grad + oct_leaf_begin(&cx->leaves, i) * w->pixels * n;
    float *hat = w->hat + omp_get_thread_num() * oct_part_floats(n);
    for (int64_t row = 0, count; row < rows; row += count) {
        float *part = grad + row * n;
        count = oct_min_i64(oct_part_rows(n), rows - row);
        if (w->sv->live) {
            normalise_part(w, part - w->grad, count, hat);
            oct_norm_grad_live(&w->norm,
                               &(oct_norm_rows){.rows = count, .hat.made = hat, .grad = part}, NULL,
                               false, part);
        } else {
            oct_norm_grad_frozen(&w->norm, count, part, part);
        }
    }
}

static void run_backward(oct_context *cx, const oct_layer *l, way_back *w)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++)
        sum_leaf(cx, w, i);
    if (!oct_norm_grad_reduce(cx, l->bn, &w->sv->ch, w->sv->live, w->pixels, &w->norm)) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++)
        turn_leaf(cx, w, i);
}

/* Before anything is cut. */
static void learn(oct_context *cx, const call *c, const way_back *w)
{
    const oct_qparams q = c->y->q;
    const oct_epilogue f = finish_of(c, q);
    const int64_t each = c->pixels * c->n;
    float *rows = c->scratch ? oct_leaf_grads_begin(cx, w->fq->learned) : NULL;
    if (!rows) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        oct_scale_grad leaf = {.sum = {.fq = w->fq, .q = q},
                               .grad = w->grad + oct_leaf_begin(&cx->leaves, i) * each};
        show_values(cx, c, &f, i, oct_scale_grad_add, &leaf,
                    w->hat + omp_get_thread_num() * oct_part_floats(c->n));
        rows[i] += oct_slope_sum_end(&leaf.sum, each);
    }
    oct_leaf_grads_end(cx, w->fq->learned);
}

static void learn_scale(oct_context *cx, const oct_qat_batch_norm *m, const oct_node *node,
                        const way_back *w)
{
    call c = {.m = m,
              .l = layer_of(m),
              .x = node->input[0],
              .y = node->output,
              .n = w->norm.n,
              .pixels = w->pixels,
              .sv = node->saved,
              .scratch_bytes = oct_qaffine_scratch_bytes(w->norm.n)};
    c.scratch = oct_scratch(cx, (size_t)(c.scratch_bytes * omp_get_max_threads()));
    learn(cx, &c, w);
    oct_scratch_end(cx, c.scratch);
}

static void backward(oct_context *cx, oct_node *node)
{
    const oct_qat_batch_norm *m = (const oct_qat_batch_norm *)node->module;
    const saved *sv = node->saved;
    const oct_layer l = layer_of(m);
    oct_tensor *x = node->input[0];
    const int64_t n = l.bn->channels;
    way_back w = {.fq = l.fq,
                  .sv = sv,
                  .x = oct_qcodes_of(x),
                  .pixels = x->shape.ndim == 4 ? oct_dim(x, 1) * oct_dim(x, 2) : 1,
                  .grad = oct_take_grad(node->output)};
    w.hat = oct_scratch(cx, (size_t)(oct_part_floats(n) * omp_get_max_threads()) * sizeof *w.hat);
    float *a = oct_scratch(cx, (size_t)n * 8), *b = a + n;
    if (oct_norm_grad_begin(cx, n, &w.norm)) {
        for (int64_t o = 0; o < n; o++) {
            a[o] = x->q.scale * sv->ch.inv_std[o];
            b[o] = -sv->ch.mean[o] * sv->ch.inv_std[o];
        }
        w.a = a;
        w.b = b;
        if (oct_fake_quant_learns(l.fq)) learn_scale(cx, m, node, &w);
        run_backward(cx, &l, &w);
    }
    oct_norm_grad_end(cx, &w.norm);
    oct_scratch_end(cx, a);
    oct_scratch_end(cx, w.hat);
    oct_give_grad(cx, x, w.grad);
}

static bool begin(oct_context *cx, call *c)
{
    c->scratch_bytes = oct_qaffine_scratch_bytes(c->n);
    c->ranges = oct_scratch(cx, (size_t)(cx->leaves.local + 1) * 8);
    c->scratch = oct_scratch(cx, (size_t)(c->scratch_bytes * omp_get_max_threads()));
    if (c->ranges) oct_start_ranges(c->ranges, cx->leaves.local);
    return cx->status == OCT_OK;
}

static oct_tensor *integer_forward(oct_context *cx, const oct_qat_batch_norm *m, oct_tensor *x)
{
    const oct_layer l = layer_of(m);
    char text[96];
    if ((x->shape.ndim != 2 && x->shape.ndim != 4) ||
        oct_dim(x, x->shape.ndim - 1) != l.bn->channels)
        return oct_context_fail(cx, OCT_PREPARE, "input %s does not have its %lld channels",
                                oct_shape_text(&x->shape, text), (long long)l.bn->channels);
    if (oct_quantized_shifts(&m->q))
        return oct_context_fail(cx, OCT_PREPARE,
                                "target %s shifts and has no place for a batch norm; fold it",
                                m->q.target->name);
    const oct_qparams q = oct_fake_quant_qparams(l.fq);
    oct_tensor *y = oct_tensor_new(cx, oct_codes_dtype(q), x->shape);
    saved *sv = oct_save(cx, sizeof *sv);
    if (!y || !sv) return NULL;
    y->q = q;
    call c = {.m = m, .l = l, .x = x, .y = y, .n = l.bn->channels, .sv = sv};
    c.pixels = x->shape.ndim == 4 ? oct_dim(x, 1) * oct_dim(x, 2) : 1;
    *sv = (saved){.live = m->q.base.training && !l.bn->frozen};
    oct_node *node = oct_record(cx, "qat_batch_norm", backward, &x, 1, true, y);
    if (node) {
        node->saved = sv;
        if (oct_fake_quant_learns(l.fq)) oct_param_used(cx, l.fq->learned);
        oct_param_used(cx, l.bn->gamma);
        oct_param_used(cx, l.bn->beta);
        sv->mask_stride = (cx->leaves.leaf * c.pixels * c.n + 7) / 8;
        sv->mask = oct_save(cx, (size_t)(sv->mask_stride * cx->leaves.local));
    }
    sv->weight = oct_save(cx, (size_t)c.n);
    if (!oct_channels_save(cx, &sv->ch, c.n)) return NULL;
    if (begin(cx, &c)) run_forward(cx, &c);
    oct_scratch_end(cx, c.scratch);
    oct_scratch_end(cx, c.ranges);
    return cx->status == OCT_OK ? y : NULL;
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_qat_batch_norm *m = (const oct_qat_batch_norm *)self;
    switch (oct_quantized_domain(cx, &m->q, x, n, 1)) {
    case OCT_DOMAIN_CODES:
        return integer_forward(cx, m, x[0]);
    case OCT_DOMAIN_FLOAT:
        return float_forward(cx, m, x[0]);
    case OCT_DOMAIN_INVALID:
        break;
    }
    return NULL;
}

static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_qat_batch_norm *m = (const oct_qat_batch_norm *)self;
    snprintf(text, size, "batch_norm%s", oct_activation_words(m->activation));
}

/* The plane as a depthwise 1x1 convolution. */
static oct_conv_shape plane_shape(const oct_value *in)
{
    return (oct_conv_shape){.in_h = in->h,
                            .in_w = in->w,
                            .in_c = in->c,
                            .out_h = in->h,
                            .out_w = in->w,
                            .out_c = in->c,
                            .kernel_h = 1,
                            .kernel_w = 1,
                            .stride = 1,
                            .groups = (int)in->c};
}

static oct_status fill_step(const oct_qat_batch_norm *m, const oct_value *in, oct_step *step)
{
    oct_status status;
    const oct_layer l = layer_of(m);
    const oct_qparams out = oct_fake_quant_qparams(l.fq);
    const int64_t n = l.bn->channels;
    oct_channels ch = {0};
    step->conv = plane_shape(in);
    step->spread = 1;
    OCT_TRY_OUT(oct_alloc(&step->weight, (size_t)n, 1));
    OCT_TRY_OUT(oct_channels_alloc(&ch, n));
    start_channels(&ch, n);
    oct_running_statistics(l.bn, &ch, n);
    OCT_CHECK_OUT(oct_fold_channels(&l, in->q, out.scale, &ch, n), OCT_NUMERIC,
                  "%s: a batch-norm value is not finite", step->name);
    set_weights(&ch, n, step->weight);
    OCT_TRY_OUT(oct_step_take_channels(step, &ch, n, 1));
    const oct_epilogue f = oct_epilogue_of(&l, m->activation, in->q, &out, NULL, &ch);
    oct_step_take_bounds(step, &f);
out:
    oct_channels_free(&ch);
    return status;
}

static oct_status emit(oct_module *self, struct oct_emitter *e)
{
    const oct_qat_batch_norm *m = (const oct_qat_batch_norm *)self;
    const oct_value in = *oct_emit_input(e, 0);
    oct_step *step;
    OCT_TRY(oct_emit_step(e, OCT_STEP_AFFINE, &step));
    OCT_CHECK(in.dtype != OCT_F32, OCT_PREPARE, "%s: its input is float where codes should come",
              step->name);
    OCT_TRY(fill_step(m, &in, step));
    const oct_qparams q = oct_fake_quant_qparams((const oct_fake_quant *)m->q.fake_quant);
    return oct_emit_output(e, step, oct_codes_dtype(q), q);
}

const oct_module_type oct_qat_batch_norm_type = {
    .name = "qat_batch_norm",
    .forward = forward,
    .describe = describe,
    .leaf = true,
    .emit = emit,
    .quantized = true,
};

oct_status oct_qat_batch_norm_create(oct_module **m, oct_module **batch_norm,
                                     oct_activation activation)
{
    oct_status status = oct_module_create(m, &oct_qat_batch_norm_type, sizeof(oct_qat_batch_norm));
    if (status == OCT_OK) {
        oct_qat_batch_norm *made = (oct_qat_batch_norm *)*m;
        made->activation = activation;
        made->batch_norm = *batch_norm;
        *batch_norm = NULL;
        status = oct_module_add_child(*m, "bn", &made->batch_norm);
        if (status != OCT_OK) oct_module_destroy(m);
    }
    oct_module_destroy(batch_norm);
    return status;
}
