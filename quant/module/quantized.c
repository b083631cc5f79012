/* What the modules share that quantize their output: where their fake-quant comes from, what inputs
 * they take, and how their codes are made.
 *
 * An output is made in parts that threads share; a part's mask begins at a byte and a range is a
 * minimum and a maximum, so no bit depends on who makes which part.
 */
#include "quant/module/quantized_impl.h"

#include "core/base/whole.h"
#include "quant/kernel/bits.h"

bool oct_is_quantized(const oct_module *m)
{
    const oct_module_type *const types[] = {
        &oct_quant_stub_type, &oct_qat_conv_type, &oct_qat_batch_norm_type, &oct_qat_add_type,
        &oct_qat_mul_type,    &oct_qat_lut_type,  &oct_qat_softmax_type,    &oct_qat_concat_type,
    };
    for (size_t i = 0; i < OCT_COUNT(types); i++)
        if (m->type == types[i]) return true;
    return false;
}

oct_status oct_quantized_adopt(oct_module *m, oct_fake_quant **fq)
{
    oct_quantized *q = (oct_quantized *)m;
    OCT_ASSERT(oct_is_quantized(m) && !q->fake_quant);
    q->fake_quant = &(*fq)->base;
    q->target = (*fq)->target;
    if (m->type == &oct_qat_softmax_type)
        oct_fake_quant_fix(*fq, oct_softmax_scale(oct_fake_quant_qparams(*fq)));
    *fq = NULL;
    return oct_module_add_child(m, "fake_quant", &q->fake_quant);
}

void oct_quantized_borrow(oct_module *m, oct_fake_quant *fq)
{
    oct_quantized *q = (oct_quantized *)m;
    OCT_ASSERT(oct_is_quantized(m) && !q->fake_quant);
    q->fake_quant = &fq->base;
    q->target = fq->target;
}

oct_domain oct_inputs_domain(oct_context *cx, oct_tensor *const *x, int n, int least)
{
    if (!oct_inputs_ok(cx, x, n)) return OCT_DOMAIN_INVALID;
    if (n < least) {
        oct_context_fail(cx, OCT_USAGE, "it takes %d inputs, but got %d", least, n);
        return OCT_DOMAIN_INVALID;
    }
    for (int i = 0; i < n; i++) {
        if (x[i]->dtype != OCT_F32 && !oct_is_codes(x[i])) {
            oct_context_fail(cx, OCT_PREPARE,
                             "input %d holds %s numbers, which are no values to quantize", i,
                             oct_dtype_name(x[i]->dtype));
            return OCT_DOMAIN_INVALID;
        }
        if (oct_is_codes(x[i]) == oct_is_codes(x[0])) continue;
        const bool first = oct_is_codes(x[0]);
        oct_context_fail(cx, OCT_PREPARE,
                         "input %d is quantized and input %d is float; put a QuantStub before the "
                         "float one",
                         first ? 0 : i, first ? i : 0);
        return OCT_DOMAIN_INVALID;
    }
    return oct_is_codes(x[0]) ? OCT_DOMAIN_CODES : OCT_DOMAIN_FLOAT;
}

oct_domain oct_quantized_domain(oct_context *cx, const oct_quantized *m, oct_tensor *const *x,
                                int n, int least)
{
    const oct_domain wiring = oct_inputs_domain(cx, x, n, least);
    const oct_fake_quant *fq = oct_quantized_fq(m);
    if (wiring == OCT_DOMAIN_CODES && !fq)
        oct_context_fail(cx, OCT_PREPARE,
                         "its input is quantized, but it has no fake-quant for its output; prepare "
                         "the model, or put a DeQuantStub before it");
    else if (wiring == OCT_DOMAIN_FLOAT && fq && oct_fake_quant_quantizes(fq))
        oct_context_fail(cx, OCT_PREPARE,
                         "its output is quantized, but its input is float; put a QuantStub before "
                         "it");
    else
        return wiring;
    return OCT_DOMAIN_INVALID;
}

bool oct_same_shapes(oct_context *cx, const oct_tensor *a, const oct_tensor *b)
{
    char left[96], right[96];
    if (oct_shape_equal(&a->shape, &b->shape)) return true;
    oct_context_fail(cx, OCT_PREPARE, "inputs %s and %s differ in shape",
                     oct_shape_text(&a->shape, left), oct_shape_text(&b->shape, right));
    return false;
}

static void make(const oct_quantized_op *k, const oct_tensor *y, uint8_t *mask, float *range)
{
    const int64_t numel = oct_numel(y);
    const int64_t part = k->row * oct_round_up(oct_max_i64(OCT_PART / k->row, 1), 8);
    if (k->begin) k->begin(k->args, y->q);
#pragma omp parallel if (numel > part)
    {
        float mine[2] = {INFINITY, -INFINITY};
#pragma omp for schedule(static)
        for (int64_t first = 0; first < numel; first += part)
            k->make(k->args, y->q, first, oct_min_i64(numel - first, part),
                    oct_qcodes_place(y->data, y->q, first), mask ? mask + first / 8 : NULL,
                    range ? mine : NULL);
        if (range) {
#pragma omp critical(oct_quantized_range)
            oct_range_merge(range, mine[0], mine[1]);
        }
    }
}

static void count_part(oct_fake_quant *fq, const oct_quantized_op *k, int64_t first, int64_t n)
{
    int64_t count[OCT_HISTOGRAM_BINS] = {0};
    float v[OCT_FLAG_BLOCK];
    for (int64_t i = 0; i < n; i += OCT_FLAG_BLOCK) {
        const int64_t some = oct_min_i64(n - i, OCT_FLAG_BLOCK);
        k->values(k->args, first + i, some, v);
        oct_histogram_add(v, some, count);
    }
    oct_fake_quant_count(fq, count);
}

static void count_values(oct_fake_quant *fq, const oct_quantized_op *k, int64_t numel)
{
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < numel; first += OCT_PART)
        count_part(fq, k, first, oct_min_i64(numel - first, OCT_PART));
}

/* The real range does not depend on the output's scale: a pass with another one shows it. */
static void settle(oct_context *cx, oct_quantized *m, const oct_quantized_op *k, oct_tensor *y)
{
    oct_fake_quant *fq = oct_quantized_fq(m);
    float range[2] = {INFINITY, -INFINITY};
    y->q.scale = k->real_scale;
    make(k, y, NULL, range);
    oct_fake_quant_observe(fq, true, range[0], range[1]);
    oct_context_adopt(cx, oct_fake_quant_update(fq, cx->group));
    y->q = oct_fake_quant_qparams(fq);
}

oct_tensor *oct_quantized_forward(oct_context *cx, oct_quantized *m, oct_tensor *const *x, int n,
                                  const oct_quantized_op *k)
{
    oct_fake_quant *fq = oct_quantized_fq(m);
    const bool training = m->base.training, settles = oct_fake_quant_updates_first(fq, training);
    const oct_qparams q = oct_fake_quant_qparams(fq);
    oct_tensor *y = oct_tensor_new(cx, oct_codes_dtype(q), k->shape);
    if (!y) return NULL;
    y->q = q;
    const bool learns = oct_fake_quant_learns(fq);
    oct_node *node = oct_record(cx, k->op, k->backward, x, n, learns, y);
    if (node && learns) oct_param_used(cx, fq->learned);
    if (node && !(node->saved = oct_save(cx, (size_t)(oct_numel(y) + 7) / 8))) return NULL;
    if (oct_fake_quant_counts(fq, training)) count_values(fq, k, oct_numel(y));
    if (settles) settle(cx, m, k, y);
    float range[2] = {INFINITY, -INFINITY};
    make(k, y, node ? node->saved : NULL, training && !settles ? range : NULL);
    if (training && !settles) oct_fake_quant_observe(fq, true, range[0], range[1]);
    return y;
}

void oct_quantized_clip_grad(const oct_quantized *m, const uint8_t *mask, int64_t n, float *grad)
{
    const oct_fake_quant *fq = oct_quantized_fq(m);
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < n; first += OCT_PART)
        oct_fake_quant_backward(fq, oct_min_i64(n - first, OCT_PART), mask + first / 8,
                                grad + first);
}

/* Real values, to be shown in units of the scale. */
typedef struct real_values {
    oct_real_values *values;
    const void *args;
    float one_over;
} real_values;

static void show_real(const void *args, int64_t first, int64_t n, float *v)
{
    const real_values *r = args;
    r->values(r->args, first, n, v);
    for (int64_t i = 0; i < n; i++)
        v[i] *= r->one_over;
}

void oct_quantized_add_scale_grad(oct_context *cx, const oct_quantized *m, const oct_tensor *x,
                                  oct_qparams q, oct_real_values *values, const void *args,
                                  const float *grad)
{
    const int64_t samples = oct_leaves_local_samples(&cx->leaves);
    const real_values real = {values, args, 1.0f / q.scale};
    const oct_scaled_values shown = {show_real, &real, q};
    oct_fake_quant_add_scale_grad(cx, oct_quantized_fq(m), samples ? oct_numel(x) / samples : 0,
                                  &shown, grad);
}

float *oct_quantized_take_grad(oct_context *cx, oct_node *node, oct_real_values *values,
                               const void *args)
{
    const oct_quantized *m = (const oct_quantized *)node->module;
    const oct_tensor *y = node->output;
    float *grad = oct_take_grad(node->output);
    if (values && oct_fake_quant_learns(oct_quantized_fq(m)))
        oct_quantized_add_scale_grad(cx, m, y, y->q, values, args, grad);
    oct_quantized_clip_grad(m, node->saved, oct_numel(y), grad);
    return grad;
}
