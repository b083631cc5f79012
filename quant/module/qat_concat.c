/* Codes side by side, along the last dimension.
 *
 * Where the graph is known, the inputs and the output share one fake-quant, and codes are copied. Where
 * an input has another scale, its codes are requantized, with a clip mask of its own.
 */
#include "core/autograd/tape.h"
#include "core/base/int_math.h"
#include "quant/rounding/bits.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"

#include <string.h>

/* What the backward needs; also describes the work. */
typedef struct concat_call {
    int n;
    int64_t rows, width, c[OCT_MAX_INPUTS]; /* width: of a row of the output; c: of the inputs */
    uint8_t *mask[OCT_MAX_INPUTS];          /* NULL: copied */
} concat_call;

static bool check_shapes(oct_context *cx, oct_tensor *const *x, int n)
{
    for (int i = 0; i < n; i++) {
        oct_shape shape = x[i]->shape;
        if (shape.ndim >= 2 && oct_last_dim(x[i]) >= 1) {
            shape.dim[shape.ndim - 1] = oct_last_dim(x[0]);
            if (oct_shape_equal(&shape, &x[0]->shape)) continue;
        }
        oct_context_fail(cx, OCT_PREPARE,
                         "inputs %s and %s cannot be concatenated: they may differ in the last "
                         "dimension alone, of two or more",
                         oct_text_shape(&x[0]->shape).text, oct_text_shape(&x[i]->shape).text);
        return false;
    }
    return true;
}

/* The values of the codes of one input. */
static void read_real_values(const oct_module *self, oct_tensor *const *x, int64_t first, int64_t n,
                             float *v)
{
    (void)self;
    int32_t logical[OCT_FLAG_BLOCK];
    oct_qcodes_load(oct_qcodes_of(x[0]), first, n, logical);
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)logical[i] * x[0]->q.scale;
}

/* Whether the learned scale gets a gradient from input i: only what was requantized has been rounded here. */
static bool learns_scale(const oct_quantized *m, const concat_call *call, int i)
{
    return call->mask[i] && oct_fake_quant_learns(oct_quantized_fq(m));
}

static void backward(oct_context *cx, oct_node *node)
{
    const concat_call *call = node->saved;
    const oct_quantized *m = (const oct_quantized *)node->module;
    int64_t first = 0;
    for (int i = 0; i < call->n; first += call->c[i++]) {
        oct_tensor *x = node->input[i];
        float *grad = x->needs_grad ? oct_grad_new(cx, x) : NULL;
        if (!grad) continue;
        const float *grad_y = node->output->grad + first; /* the input's columns of its rows */
        const int64_t c = call->c[i];
#pragma omp parallel for schedule(static)
        for (int64_t row = 0; row < call->rows; row++)
            memcpy(grad + row * c, grad_y + row * call->width, (size_t)c * sizeof(float));
        if (learns_scale(m, call, i))
            oct_quantized_add_scale_grad(cx, m, read_real_values, &x, node->output->q, grad);
        if (call->mask[i]) oct_quantized_clip_grad(m, call->mask[i], oct_numel(x), grad);
        oct_add_grad(cx, x, grad);
    }
}

/* Shows the fake-quant the inputs; codes of a shared fake-quant were observed by those who made them. */
static void observe_inputs(oct_context *cx, const oct_quantized *m, oct_tensor *const *x, int n)
{
    oct_fake_quant *fq = oct_quantized_fq(m);
    const oct_qparams q = oct_fake_quant_qparams(fq);
    const bool owns_fq = fq->base.parent == &m->base;
    if (!m->base.training) return;
    for (int i = 0; i < n; i++) {
        if (!owns_fq && oct_qparams_equal(x[i]->q, q)) continue;
        const int64_t numel = oct_numel(x[i]);
        float range[2] = {INFINITY, -INFINITY};
#pragma omp parallel
        {
            float mine[2] = {INFINITY, -INFINITY};
#pragma omp for schedule(static)
            for (int64_t first = 0; first < numel; first += OCT_PART)
                oct_qcodes_range(oct_qcodes_from(oct_qcodes_of(x[i]), first),
                                 oct_min_i64(numel - first, OCT_PART), mine);
#pragma omp critical(oct_concat_range)
            oct_range_merge(range, mine[0], mine[1]);
        }
        oct_fake_quant_observe(fq, true, range[0], range[1]);
        if (oct_fake_quant_counts(fq, true))
            oct_quantized_count(fq, read_real_values, NULL, &x[i], numel);
    }
    if (oct_fake_quant_updates_first(fq, true))
        oct_context_adopt(cx, oct_fake_quant_update(fq, cx->group));
}

/* Saves the call, with room for the masks of the inputs that are requantized. */
static concat_call *save_masks(oct_context *cx, const concat_call *work, oct_tensor *const *x,
                               oct_qparams y)
{
    concat_call *saved = oct_save(cx, sizeof *saved);
    if (!saved) return NULL;
    *saved = *work;
    for (int i = 0; i < work->n; i++)
        if (!oct_qparams_equal(x[i]->q, y))
            saved->mask[i] = oct_save(cx, (size_t)(oct_numel(x[i]) + 7) / 8);
    return cx->status == OCT_OK ? saved : NULL;
}

/* Threads share parts of the rows, a multiple of 8 of them, so each input's mask begins at a byte. */
static void concat_codes(const concat_call *call, oct_requantizer r, oct_tensor *const *x,
                         oct_tensor *y)
{
    const int64_t part = oct_round_up(oct_max_i64(OCT_PART / call->width, 1), 8);
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < call->rows; first += part) {
        oct_qconcat_input from[OCT_MAX_INPUTS];
        for (int i = 0; i < call->n; i++)
            from[i] = (oct_qconcat_input){
                .x = oct_qcodes_from(oct_qcodes_of(x[i]), first * call->c[i]),
                .c = call->c[i],
                .mask = call->mask[i] ? call->mask[i] + first * call->c[i] / 8 : NULL};
        oct_qconcat_forward(oct_min_i64(call->rows - first, part), call->n, from, r, y->q,
                            oct_qcodes_place(y->data, y->q, first * call->width));
    }
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_quantized *m = (oct_quantized *)self;
    const oct_domain domain = oct_quantized_domain(cx, m, x, n, 1);
    if (domain == OCT_DOMAIN_INVALID) return NULL;
    if (domain == OCT_DOMAIN_FLOAT)
        return oct_fake_quant_float(cx, oct_quantized_fq(m), self->training, oct_concat(cx, x, n));
    if (!check_shapes(cx, x, n)) return NULL;
    concat_call call = {.n = n};
    OCT_ASSERT(n > 0);
    for (int i = 0; i < n; i++)
        call.width += call.c[i] = oct_last_dim(x[i]);
    call.rows = oct_numel(x[0]) / call.c[0];
    oct_shape shape = x[0]->shape;
    shape.dim[shape.ndim - 1] = call.width;
    observe_inputs(cx, m, x, n);
    const oct_qparams q = oct_fake_quant_qparams(oct_quantized_fq(m));
    oct_tensor *y = oct_tensor_new(cx, oct_codes_dtype(q), shape);
    if (!y) return NULL;
    y->q = q;
    oct_fake_quant *fq = oct_quantized_fq(m);
    oct_node *node = oct_record(cx, "qat_concat", backward, x, n, oct_fake_quant_learns(fq), y);
    if (node && !(node->saved = save_masks(cx, &call, x, q))) return NULL;
    for (int i = 0; node && i < n; i++)
        if (learns_scale(m, node->saved, i)) oct_param_used(cx, fq->learned);
    concat_codes(node ? node->saved : &call, m->target->requantizer, x, y);
    return y;
}

static const oct_quantized_op step = {.kind = OCT_STEP_CONCAT};

static const oct_module_type type = {
    .name = "qat_concat",
    .forward = forward,
    .atomic = true,
    .emit = oct_quantized_emit,
    .quantized = true,
    .step = &step,
    .size = sizeof(oct_quantized),
};

const oct_quant_rule oct_quant_rule_concat = {
    .type = &oct_concat_type, .scale = OCT_SCALE_SHARED, .made = &type};
