/* Softmax on codes, over the last dimension. */
#include "core/base/mem.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"

typedef struct softmax {
    oct_quantized q;
    int32_t *exponential; /* of inputs with the qparams table_x */
    int64_t size;
    oct_qparams table_x; /* scale 0: of nothing */
} softmax;

/* Computes the exponentials for inputs with these qparams, unless they are there. */
static oct_status make_table(softmax *m, oct_qparams x)
{
    if (m->exponential && oct_qparams_equal(m->table_x, x)) return OCT_OK;
    if (m->size != oct_qtable_size(x)) {
        oct_free(&m->exponential);
        m->size = oct_qtable_size(x);
        OCT_TRY(oct_alloc(&m->exponential, (size_t)m->size, sizeof *m->exponential));
    }
    oct_qsoftmax_exponential(x, m->exponential);
    m->table_x = x;
    return OCT_OK;
}

/* grad = y * (grad - sum of grad * y), at the values of the output codes */
static void softmax_row_backward(const oct_tensor *y, int64_t row, int64_t n, float *grad)
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
    float *grad = oct_quantized_detach_grad(cx, node);
    const int64_t width = oct_last_dim(y), count = oct_numel(y) / width;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++)
        softmax_row_backward(y, i, width, grad + i * width);
    oct_add_grad(cx, node->input[0], grad);
}

static bool check_input(oct_context *cx, const oct_module *self, const oct_tensor *x)
{
    if (x->shape.ndim < 2 || oct_last_dim(x) < 1 || oct_last_dim(x) > OCT_QSOFTMAX_MAX)
        oct_context_fail(cx, OCT_PREPARE,
                         "softmax takes samples of 1 to %d values in the last dimension, but its "
                         "input is %s",
                         OCT_QSOFTMAX_MAX, oct_text_shape(&x->shape).text);
    else if (!oct_qsoftmax_fits(
                 oct_fake_quant_qparams(oct_quantized_fq((const oct_quantized *)self))))
        oct_context_fail(cx, OCT_PREPARE,
                         "softmax needs a fixed scale of a power of two for its output, such as "
                         "1/256; give it a fake-quant of its own");
    return cx->status == OCT_OK;
}

static oct_tensor *compute_in_float(oct_context *cx, oct_module *self, oct_tensor *const *x)
{
    (void)self;
    return oct_softmax(cx, x[0]);
}

static oct_status set_constants(oct_module *self, const oct_program *program, oct_step *step)
{
    softmax *m = (softmax *)self;
    OCT_TRY(make_table(m, oct_step_input(program, step, 0)->q));
    step->softmax.size = m->size;
    step->softmax.exponential = m->exponential;
    return OCT_OK;
}

/* 1/256 or 1/65536; of codes around a middle 1/128 or 1/32768. */
static void fix_scale(const oct_module *self, oct_fake_quant *fq)
{
    (void)self;
    const oct_qparams q = oct_fake_quant_qparams(fq);
    oct_fake_quant_fix(fq, 1.0f / (float)(q.qmax + 1 - q.zero_point));
}

static const oct_quantized_op step = {.kind = OCT_STEP_SOFTMAX,
                                      .inputs = 1,
                                      .unit = OCT_UNIT_ROW,
                                      .in_float = compute_in_float,
                                      .fits = check_input,
                                      .constants = set_constants,
                                      .backward = backward,
                                      .adopted = fix_scale};

static void destroy(oct_module *self)
{
    oct_free(&((softmax *)self)->exponential);
}

static const oct_module_type type = {
    .name = "qat_softmax",
    .destroy = destroy,
    .quantized = true,
    OCT_QUANTIZED_OP(&step, softmax),
};

const oct_quant_rule oct_quant_rule_softmax = {
    .type = &oct_softmax_type, .scale = OCT_SCALE_FIXED, .non_negative = true, .made = &type};
