/* Softmax on codes, over the last dimension. */
#include "core/base/mem.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"
#include "quant/module/emit.h"

typedef struct softmax {
    oct_quantized q;
    int32_t *exponential; /* of inputs with the qparams `of` */
    int64_t size;
    oct_qparams of; /* scale 0: of nothing */
} softmax;

float oct_softmax_scale(oct_qparams q)
{
    return 1.0f / (float)(q.qmax + 1 - q.zero_point);
}

static oct_status make_table(softmax *m, oct_qparams x)
{
    if (m->exponential && oct_qparams_equal(m->of, x)) return OCT_OK;
    if (m->size != oct_qtable_size(x)) {
        oct_free(&m->exponential);
        m->size = oct_qtable_size(x);
        OCT_TRY(oct_alloc(&m->exponential, (size_t)m->size, sizeof *m->exponential));
    }
    oct_qsoftmax_exponential(x, m->exponential);
    m->of = x;
    return OCT_OK;
}

typedef struct rows {
    oct_qcodes x;
    int64_t width;
    const int32_t *exponential;
} rows;

/* The scale is fixed, so nobody asks for a range. */
static void make(const void *args, oct_qparams y, int64_t first, int64_t n, void *codes,
                 uint8_t *mask, float *range)
{
    (void)range;
    const rows *r = args;
    oct_qsoftmax_forward(n / r->width, r->width, oct_qcodes_from(r->x, first), r->exponential, y,
                         codes, mask);
}

static int64_t width_of(const oct_tensor *x)
{
    return oct_dim(x, x->shape.ndim - 1);
}

/* grad = y * (grad - sum of grad * y), at the values of the output codes */
static void backward_row(const oct_tensor *y, int64_t row, int64_t n, float *grad)
{
    double sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = row * n + i;
            const int32_t code = y->dtype == OCT_U8 ? oct_u8(y)[at] : oct_u16(y)[at];
            const double value = (double)(code - y->q.zero_point) * (double)y->q.scale;
            if (pass == 0)
                sum += (double)grad[i] * value;
            else
                grad[i] = (float)(value * ((double)grad[i] - sum));
        }
}

static void backward(oct_context *cx, oct_node *node)
{
    const oct_tensor *y = node->output;
    float *grad = oct_quantized_take_grad(cx, node, NULL, NULL);
    const int64_t width = width_of(y), count = oct_numel(y) / width;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++)
        backward_row(y, i, width, grad + i * width);
    oct_give_grad(cx, node->input[0], grad);
}

static bool fits(oct_context *cx, const softmax *m, const oct_tensor *x)
{
    char text[96];
    if (x->shape.ndim < 2 || width_of(x) < 1 || width_of(x) > OCT_QSOFTMAX_MAX)
        oct_context_fail(cx, OCT_PREPARE,
                         "softmax takes samples of 1 to %d values in the last dimension, but its "
                         "input is %s",
                         OCT_QSOFTMAX_MAX, oct_shape_text(&x->shape, text));
    else if (!oct_qsoftmax_fits(oct_fake_quant_qparams(oct_quantized_fq(&m->q))))
        oct_context_fail(cx, OCT_PREPARE,
                         "softmax needs a fixed scale of a power of two for its output, such as "
                         "1/256; give it a fake-quant of its own");
    return cx->status == OCT_OK;
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    softmax *m = (softmax *)self;
    const oct_domain wiring = oct_quantized_domain(cx, &m->q, x, n, 1);
    if (wiring == OCT_DOMAIN_INVALID) return NULL;
    if (wiring == OCT_DOMAIN_FLOAT)
        return oct_fake_quant_float(cx, oct_quantized_fq(&m->q), self->training,
                                    oct_softmax(cx, x[0]));
    if (!fits(cx, m, x[0])) return NULL;
    oct_context_adopt(cx, make_table(m, x[0]->q));
    if (cx->status != OCT_OK) return NULL;
    rows r = {.x = oct_qcodes_of(x[0]), .width = width_of(x[0]), .exponential = m->exponential};
    const oct_quantized_op k = {.op = "qat_softmax",
                                .backward = backward,
                                .shape = x[0]->shape,
                                .row = r.width,
                                .make = make,
                                .args = &r};
    return oct_quantized_forward(cx, &m->q, x, 1, &k);
}

static void destroy(oct_module *self)
{
    oct_free(&((softmax *)self)->exponential);
}

static oct_status emit(oct_module *self, oct_emitter *e)
{
    const softmax *m = (const softmax *)self;
    const oct_qparams x = oct_emit_input(e, 0)->q;
    const oct_qparams y = oct_fake_quant_qparams(oct_quantized_fq(&m->q));
    oct_step *step;
    OCT_TRY(oct_emit_step(e, OCT_STEP_SOFTMAX, &step));
    step->table_size = oct_qtable_size(x);
    OCT_TRY(oct_alloc(&step->exponential, (size_t)step->table_size, sizeof *step->exponential));
    oct_qsoftmax_exponential(x, step->exponential);
    return oct_emit_output(e, step, oct_codes_dtype(y), y);
}

const oct_module_type oct_qat_softmax_type = {
    .name = "qat_softmax",
    .forward = forward,
    .destroy = destroy,
    .leaf = true,
    .emit = emit,
};

oct_status oct_qat_softmax_create(oct_module **m)
{
    return oct_module_create(m, &oct_qat_softmax_type, sizeof(softmax));
}

static oct_status create(oct_module **made, oct_module **old)
{
    oct_module_destroy(old);
    return oct_qat_softmax_create(made);
}

const oct_quant_rule oct_quant_rule_softmax = {
    .type = &oct_softmax_type, .scale = OCT_SCALE_FIXED, .non_negative = true, .create = create};
