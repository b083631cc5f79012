/* The part that modules share which compute codes from codes: where their fake-quant comes from, which
 * inputs they take, and how their step is run.
 *
 * An output is computed in parts that threads share; a part's mask begins at a byte and a range is a
 * minimum and a maximum, so no bit depends on who computes which part.
 */
#include "core/autograd/tape.h"
#include "quant/module/quantized_impl.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "quant/rounding/bits.h"
#include "quant/rounding/qparams.h"

#include <string.h>

void oct_quantized_borrow(oct_module *m, oct_fake_quant *fq)
{
    oct_quantized *q = (oct_quantized *)m;
    OCT_ASSERT(oct_is_quantized(m) && !q->fake_quant);
    q->fake_quant = &fq->base;
    q->target = fq->target;
}

oct_status oct_quantized_adopt(oct_module *m, oct_fake_quant **fq)
{
    oct_quantized_borrow(m, *fq);
    if (m->type->step && m->type->step->adopted) m->type->step->adopted(m, *fq);
    *fq = NULL;
    return oct_module_add_child(m, "fake_quant", &((oct_quantized *)m)->fake_quant);
}

oct_domain oct_inputs_domain(oct_context *cx, oct_tensor *const *x, int n, int min)
{
    if (!oct_inputs_ok(cx, x, n)) return OCT_DOMAIN_INVALID;
    if (n < min) {
        oct_context_fail(cx, OCT_USAGE, "it takes %d inputs, but got %d", min, n);
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
                                int n, int min)
{
    const oct_domain domain = oct_inputs_domain(cx, x, n, min);
    const oct_fake_quant *fq = oct_quantized_fq(m);
    if (domain == OCT_DOMAIN_CODES && !fq)
        oct_context_fail(cx, OCT_PREPARE,
                         "its input is quantized, but it has no fake-quant for its output; prepare "
                         "the model, or put a DeQuantStub before it");
    else if (domain == OCT_DOMAIN_FLOAT && fq && oct_fake_quant_quantizes(fq))
        oct_context_fail(cx, OCT_PREPARE,
                         "its output is quantized, but its input is float; put a QuantStub before "
                         "it");
    else
        return domain;
    return OCT_DOMAIN_INVALID;
}

bool oct_is_plane(oct_context *cx, const oct_tensor *x)
{
    const bool is = x->shape.ndim == 4 && oct_dim(x, 1) >= 1 && oct_dim(x, 2) >= 1;
    if (!is)
        oct_context_fail(cx, OCT_PREPARE, "input %s is not (N, H, W, C)",
                         oct_text_shape(&x->shape).text);
    return is;
}

/* A program of one step, as the runtime would run it, on the tensors of this forward. */
typedef struct single_step {
    oct_module *self;
    const oct_quantized_op *op;
    oct_program program;
    oct_step step;
    oct_value values[OCT_STEP_INPUTS + 1]; /* of one unit; the output is the last */
    oct_tensor *const *x;
    oct_tensor *y;
    int64_t units, part; /* of the output; of a part */
} single_step;

/* Describes one unit (an element, a row or a sample) of a tensor as a value of a program. */
static oct_value describe_unit(const oct_tensor *x, oct_step_unit unit)
{
    oct_value value = {.dtype = x->dtype, .h = 1, .w = 1, .c = 1, .q = x->q};
    if (unit == OCT_UNIT_ROW) value.c = oct_dim(x, x->shape.ndim - 1);
    if (unit == OCT_UNIT_SAMPLE) oct_value_set_plane(&value, &x->shape);
    return value;
}

/* Returns the input that has the output's shape, where one of two may repeat; op may be NULL. */
static const oct_tensor *larger_input(const oct_quantized_op *op, oct_tensor *const *x)
{
    oct_broadcast b;
    const bool fit = op && op->broadcasts && oct_broadcast_of(&x[0]->shape, &x[1]->shape, &b);
    return x[fit && oct_broadcast_larger(&b)];
}

/* Describes the step over the tensors of this call, and into which parts threads divide them. */
static single_step make_step(oct_module *self, oct_tensor *const *x, oct_tensor *y)
{
    const oct_quantized_op *op = self->type->step;
    const bool repeats = op->broadcasts && !oct_shape_equal(&x[0]->shape, &x[1]->shape);
    const oct_step_unit unit_kind = repeats ? OCT_UNIT_SAMPLE : op->unit;
    single_step s = {.self = self, .op = op, .x = x, .y = y};
    s.program.requantizer = ((oct_quantized *)self)->target->requantizer;
    s.step = (oct_step){.kind = op->kind, .num_inputs = op->inputs, .output = op->inputs};
    for (int i = 0; i < op->inputs; i++) {
        s.step.input[i] = i;
        s.values[i] = describe_unit(x[i], unit_kind);
    }
    s.values[op->inputs] = describe_unit(y, unit_kind);
    const int64_t unit = oct_value_numel(&s.values[op->inputs]);
    s.units = unit > 0 ? oct_numel(y) / unit : 0;
    /* The parts of a mask begin at a byte, so those of outputs with a mask have a multiple of 8 elements. */
    if (unit_kind == OCT_UNIT_SAMPLE)
        s.part = op->keeps_qparams || unit % 8 == 0 ? 1 : 8;
    else
        s.part = oct_round_up(oct_max_i64(OCT_PART / oct_max_i64(unit, 1), 1), 8);
    return s;
}

/* Runs the step on the part of the output that begins at unit `first`. */
static void run_units(const single_step *s, int64_t first, uint8_t *mask, float *range)
{
    const oct_value *output = &s->values[s->step.output];
    const int64_t units = oct_min_i64(s->units - first, s->part);
    const void *input[OCT_STEP_INPUTS];
    for (int i = 0; i < s->step.num_inputs; i++)
        input[i] = (const uint8_t *)s->x[i]->data + first * (int64_t)oct_value_bytes(&s->values[i]);
    const oct_step_run run = {.program = &s->program,
                              .step = &s->step,
                              .samples = units,
                              .input = input,
                              .output =
                                  (uint8_t *)s->y->data + first * (int64_t)oct_value_bytes(output),
                              .mask = mask,
                              .range = range};
    oct_step_type_of(s->step.kind)->run(&run);
    const int64_t unit = oct_value_numel(output);
    if (s->op->watch) s->op->watch(s->self, s->x[0], first * unit, units * unit, mask, range);
}

/* Runs the step on all units. range: of the real values; it and mask may be NULL. */
static void run_parts(const single_step *s, uint8_t *mask, float *range)
{
    const int64_t unit = oct_value_numel(&s->values[s->step.output]);
#pragma omp parallel if (s->units > s->part)
    {
        float mine[2] = {INFINITY, -INFINITY};
#pragma omp for schedule(static)
        for (int64_t first = 0; first < s->units; first += s->part)
            run_units(s, first, mask ? mask + first * unit / 8 : NULL, range ? mine : NULL);
        if (range) {
#pragma omp critical(oct_quantized_range)
            oct_range_merge(range, mine[0], mine[1]);
        }
    }
}

/* Gives the output these qparams, and the step the constants that follow from them. */
static bool set_qparams(oct_context *cx, single_step *s, oct_qparams q)
{
    s->program.values = s->values;
    s->y->q = s->values[s->step.output].q = q;
    if (s->op->constants) oct_context_adopt(cx, s->op->constants(s->self, &s->program, &s->step));
    return cx->status == OCT_OK;
}

void oct_quantized_count(oct_fake_quant *fq, oct_real_values *values, const oct_module *self,
                         oct_tensor *const *x, int64_t numel)
{
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < numel; first += OCT_PART) {
        int64_t count[OCT_HISTOGRAM_BINS] = {0};
        const int64_t end = oct_min_i64(numel, first + OCT_PART);
        float v[OCT_FLAG_BLOCK];
        for (int64_t i = first; i < end; i += OCT_FLAG_BLOCK) {
            const int64_t n = oct_min_i64(end - i, OCT_FLAG_BLOCK);
            values(self, x, i, n, v);
            oct_histogram_add(v, n, count);
        }
        oct_fake_quant_count(fq, count);
    }
}

/* Updates a current scale: real values do not depend on it, so a first pass with another one gives their range. */
static void observe_first(oct_context *cx, single_step *s, oct_fake_quant *fq)
{
    float range[2] = {INFINITY, -INFINITY};
    oct_qparams q = s->y->q;
    q.scale = 0.0f;
    for (int i = 0; i < s->step.num_inputs; i++)
        q.scale = fmaxf(q.scale, s->x[i]->q.scale);
    if (q.scale == 0.0f) q.scale = 1.0f; /* of float inputs */
    if (!set_qparams(cx, s, q)) return;
    run_parts(s, NULL, range);
    oct_fake_quant_observe(fq, true, range[0], range[1]);
    oct_context_adopt(cx, oct_fake_quant_update(fq, cx->group));
    set_qparams(cx, s, oct_fake_quant_qparams(fq));
}

/* A current scale is updated in a pass before the one that makes the codes. */
oct_tensor *oct_quantized_compute(oct_context *cx, oct_module *self, oct_tensor *const *x)
{
    const oct_quantized_op *op = self->type->step;
    oct_fake_quant *fq = op->keeps_qparams ? NULL : oct_quantized_fq((oct_quantized *)self);
    const bool learns = oct_fake_quant_learns(fq), training = fq && self->training;
    const bool first = fq && oct_fake_quant_updates_first(fq, training);
    const oct_qparams q = fq ? oct_fake_quant_qparams(fq) : x[0]->q;
    oct_tensor *y = oct_tensor_new(cx, oct_codes_dtype(q),
                                   op->shape ? op->shape(self, x[0]) : larger_input(op, x)->shape);
    if (!y) return NULL;
    y->q = q;
    oct_param *parameter = op->parameter ? op->parameter(self) : NULL;
    oct_node *node =
        oct_record(cx, self->type->name, op->backward, x, op->inputs, learns || parameter, y);
    if (node && learns) oct_param_used(cx, fq->learned);
    if (node && parameter) oct_param_used(cx, parameter);
    if (node && fq && !(node->saved = oct_save(cx, (size_t)(oct_numel(y) + 7) / 8))) return NULL;
    single_step s = make_step(self, x, y);
    if (!set_qparams(cx, &s, y->q)) return NULL;
    if (fq && oct_fake_quant_counts(fq, training))
        oct_quantized_count(fq, op->values, self, x, oct_numel(y));
    if (first) observe_first(cx, &s, fq);
    float range[2] = {INFINITY, -INFINITY};
    run_parts(&s, node ? node->saved : NULL, training && !first ? range : NULL);
    if (training && !first) oct_fake_quant_observe(fq, true, range[0], range[1]);
    return y;
}

/* Fails the context unless the inputs have the shapes that the op takes. */
static bool check_inputs(oct_context *cx, const oct_module *self, oct_tensor *const *x)
{
    const oct_quantized_op *op = self->type->step;
    oct_broadcast b;
    if (op->fits) return op->fits(cx, self, x[0]);
    if (op->broadcasts && oct_broadcast_of(&x[0]->shape, &x[1]->shape, &b)) return true;
    for (int i = 1; i < op->inputs; i++) {
        if (oct_shape_equal(&x[0]->shape, &x[i]->shape)) continue;
        oct_context_fail(cx, OCT_PREPARE, "inputs %s and %s differ in shape",
                         oct_text_shape(&x[0]->shape).text, oct_text_shape(&x[i]->shape).text);
        return false;
    }
    return true;
}

oct_tensor *oct_quantized_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_quantized_op *op = self->type->step;
    oct_quantized *m = op->keeps_qparams ? NULL : (oct_quantized *)self;
    const oct_domain domain =
        m ? oct_quantized_domain(cx, m, x, n, op->inputs) : oct_inputs_domain(cx, x, n, op->inputs);
    if (domain == OCT_DOMAIN_INVALID) return NULL;
    if (domain == OCT_DOMAIN_FLOAT) {
        oct_tensor *y = op->in_float(cx, self, x);
        return m ? oct_fake_quant_float(cx, oct_quantized_fq(m), self->training, y) : y;
    }
    if (!check_inputs(cx, self, x)) return NULL;
    return oct_quantized_compute(cx, self, x);
}

/* Copies the arrays that the module keeps, since a program owns its own. */
static oct_status copy_arrays(oct_step *step, const oct_step *from)
{
    const oct_step_type *type = oct_step_type_of(from->kind);
    *step = *from;
    for (int i = 0; i < type->num_arrays; i++)
        memset(oct_step_slot(step, &type->arrays[i]), 0, sizeof(void *));
    for (int i = 0; i < type->num_arrays; i++) {
        const oct_step_array *array = &type->arrays[i];
        void *copy = NULL;
        oct_shape shape;
        OCT_TRY(array->shape(from, &shape));
        const size_t n = (size_t)oct_shape_numel(&shape), bytes = oct_dtype_bytes(array->dtype);
        OCT_TRY(oct_alloc(&copy, n, bytes));
        memcpy(copy, oct_step_data(from, array), n * bytes);
        memcpy(oct_step_slot(step, array), &copy, sizeof copy);
    }
    return OCT_OK;
}

void oct_quantized_load_both(oct_tensor *const *x, int64_t first, int64_t n,
                             int32_t code[2][OCT_FLAG_BLOCK])
{
    oct_broadcast b = {0};
    uint16_t room[OCT_FLAG_BLOCK];
    (void)oct_broadcast_of(&x[0]->shape, &x[1]->shape, &b);
    for (int i = 0; i < 2; i++)
        oct_qcodes_load(oct_qcodes_broadcast(&b, i, oct_qcodes_of(x[i]), first, n, room), 0, n,
                        code[i]);
}

void oct_dequantize_tensor(const oct_tensor *x, float *v)
{
    const int64_t n = oct_numel(x);
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < n; first += OCT_PART) {
        const int64_t count = oct_min_i64(n - first, OCT_PART);
        if (x->dtype == OCT_U8)
            oct_dequantize(oct_u8(x) + first, count, x->q, v + first);
        else
            oct_dequantize16(oct_u16(x) + first, count, x->q, v + first);
    }
}

float *oct_quantized_values_of(oct_context *cx, const oct_tensor *x)
{
    float *v = oct_scratch(cx, (size_t)oct_numel(x) * sizeof *v);
    if (v) oct_dequantize_tensor(x, v);
    return v;
}

oct_status oct_quantized_emit(oct_module *self, oct_emitter *e)
{
    const oct_quantized_op *op = self->type->step;
    const oct_qparams q = op->keeps_qparams
                              ? oct_emit_input(e, 0)->q
                              : oct_fake_quant_qparams(oct_quantized_fq((oct_quantized *)self));
    oct_step *step;
    OCT_TRY(oct_emit_step(e, op->kind, &step));
    OCT_TRY(oct_emit_output(e, step, oct_codes_dtype(q), q));
    if (!op->constants) return OCT_OK;
    oct_step made = *step;
    OCT_TRY(op->constants(self, e->program, &made));
    return copy_arrays(step, &made);
}

void oct_quantized_clip_grad(const oct_quantized *m, const uint8_t *mask, int64_t n, float *grad)
{
    const oct_fake_quant *fq = oct_quantized_fq(m);
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < n; first += OCT_PART)
        oct_fake_quant_backward(fq, oct_min_i64(n - first, OCT_PART), mask + first / 8,
                                grad + first);
}

void oct_quantized_add_scale_grad(oct_context *cx, const oct_quantized *m, oct_real_values *values,
                                  oct_tensor *const *x, oct_qparams q, const float *grad)
{
    oct_fake_quant *fq = oct_quantized_fq(m);
    const int64_t samples = oct_leaves_local_samples(&cx->leaves);
    const int64_t each =
        samples ? oct_numel(larger_input(m->base.type->step, x)) / samples : 0; /* in a sample */
    const float one_over = 1.0f / q.scale;
    float *rows = oct_leaf_grads_begin(cx, fq->learned);
    if (!rows) return;
#pragma omp parallel for schedule(static)
    for (int64_t leaf = 0; leaf < cx->leaves.local; leaf++) {
        const int64_t begin = oct_leaf_begin(&cx->leaves, leaf) * each;
        const int64_t count = oct_leaf_size(&cx->leaves, leaf) * each;
        oct_slope_sum sum = {.fq = fq, .q = q};
        float v[OCT_FLAG_BLOCK];
        for (int64_t i = 0; i < count; i += OCT_FLAG_BLOCK) {
            const int64_t n = oct_min_i64(count - i, OCT_FLAG_BLOCK);
            values(&m->base, x, begin + i, n, v);
            for (int64_t k = 0; k < n; k++)
                v[k] *= one_over;
            oct_slope_sum_add(&sum, i, n, v, grad + begin + i);
        }
        rows[leaf] += oct_slope_sum_end(&sum, each);
    }
    oct_leaf_grads_end(cx, fq->learned);
}

float *oct_quantized_detach_grad(oct_context *cx, oct_node *node)
{
    oct_real_values *values = node->module->type->step->values;
    const oct_quantized *m = (const oct_quantized *)node->module;
    const oct_tensor *y = node->output;
    float *grad = oct_detach_grad(node->output);
    if (values && oct_fake_quant_learns(oct_quantized_fq(m)))
        oct_quantized_add_scale_grad(cx, m, values, node->input, y->q, grad);
    oct_quantized_clip_grad(m, node->saved, oct_numel(y), grad);
    return grad;
}
