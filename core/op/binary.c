/* Functions of two tensors, element by element, sample by sample: add, sub, mul, div. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"
#include "core/tensor/broadcast.h"

#include <string.h>

enum { BLOCK = 256 }; /* elements of a position that are computed together */

typedef void binary_loop(int64_t n, const float *a, const float *b, float *restrict y);

/* y = loop(a, b) for a sample; a smaller input repeats its values. x: both inputs, NULL where the loop reads none. */
static void combine_sample(const oct_broadcast *s, binary_loop *loop, int64_t sample,
                           const float *const x[2], float *y)
{
    if (!x[0] || oct_broadcast_is_plain(s)) {
        const int64_t n = s->positions * s->channels;
        loop(n, x[0] ? x[0] + sample * n : NULL, x[1] ? x[1] + sample * n : NULL, y);
        return;
    }
    float repeated[BLOCK];
    for (int64_t p = 0; p < s->positions; p++)
        for (int64_t c = 0; c < s->channels; c += BLOCK) {
            const int64_t n = oct_min_i64(s->channels - c, BLOCK), at[3] = {sample, p, c};
            const float *row[2];
            for (int i = 0; i < 2; i++) {
                int64_t step; /* 0: one value stands for all channels, and is spread into a row */
                row[i] = x[i] + oct_broadcast_at(s, i, at, &step);
                for (int64_t k = 0; !step && s->channels > 1 && k < n; k++)
                    repeated[k] = *row[i];
                if (!step && s->channels > 1) row[i] = repeated;
            }
            loop(n, row[0], row[1], y + p * s->channels + c);
        }
}

/* Sums the gradients of one sample of the result, where input i repeats its values, to those of its own values, in
 * ascending order of the positions that repeat a value. sum: oct_broadcast_numel of them. */
static void sum_over_repeats(const oct_broadcast *b, int input, const float *grad, float *sum)
{
    if (b->channel[input] == 1 && b->channels > 1) { /* one value for all channels */
        const int64_t positions = b->position[input] > 1 ? 1 : b->positions; /* that share it */
        for (int64_t p = 0; p < b->position[input]; p++, grad += b->channels) {
            double total = 0;
            for (int64_t c = 0; c < positions * b->channels; c++)
                total += (double)grad[c];
            sum[p] = (float)total;
        }
        return;
    }
    for (int64_t first = 0; first < b->channels; first += BLOCK) { /* one row for all positions */
        const int64_t n = oct_min_i64(b->channels - first, BLOCK);
        double totals[BLOCK] = {0};
        for (int64_t p = 0; p < b->positions; p++)
            for (int64_t c = 0; c < n; c++)
                totals[c] += (double)grad[p * b->channels + first + c];
        for (int64_t c = 0; c < n; c++)
            sum[first + c] = (float)totals[c];
    }
}

/* Turns the output's gradient, which it uses up, into that of an input, in the input's own shape. */
static void add_grad(oct_context *cx, const oct_binary *f, const oct_node *node, int input,
                     const float *const values[2], float *grad)
{
    oct_broadcast s = {0};
    oct_tensor *x = node->input[input];
    if (!grad || !x->needs_grad) {
        oct_scratch_end(cx, grad);
        return;
    }
    (void)oct_broadcast_of(&node->input[0]->shape, &node->input[1]->shape, &s);
    const int64_t samples = oct_samples(x), n = s.positions * s.channels;
    const int64_t x_numel = oct_broadcast_numel(&s, input); /* of a sample */
    float *sum = x_numel < n ? oct_grad_new(cx, x) : grad;
    if (!sum) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++) {
        if (f->grad[input]) combine_sample(&s, f->grad[input], i, values, grad + i * n);
        if (x_numel < n) sum_over_repeats(&s, input, grad + i * n, sum + i * x_numel);
    }
    if (x_numel < n) oct_scratch_end(cx, grad);
    oct_add_grad(cx, x, sum);
}

/* Adds the gradient of a + b to both: one takes over the buffer, best one without a gradient yet; the other copies. */
static void add_grad_to_both(oct_context *cx, oct_tensor *a, oct_tensor *b, float *grad)
{
    if (!grad) return;
    bool add;
    oct_tensor *owner = !b->needs_grad || (a->needs_grad && b->grad) ? a : b;
    oct_tensor *other = owner == a ? b : a;
    float *to = oct_grad_buffer(cx, other, &add);
    const int64_t samples = to ? oct_samples(other) : 0, n = oct_sample_numel(&other->shape);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++) {
        if (add)
            oct_accumulate(n, grad + i * n, to + i * n);
        else
            memcpy(to + i * n, grad + i * n, (size_t)n * sizeof(float));
    }
    oct_add_grad(cx, owner, grad);
}

void oct_binary_add_grads(oct_context *cx, const oct_binary *f, const oct_node *node,
                          const float *const values[2], float *grad)
{
    oct_tensor *a = node->input[0], *b = node->input[1];
    if (!f->grad[0] && !f->grad[1] && oct_shape_equal(&a->shape, &b->shape)) {
        add_grad_to_both(cx, a, b, grad);
        return;
    }
    const size_t bytes = (size_t)oct_numel(node->output) * sizeof(float);
    float *copy = a->needs_grad ? oct_scratch(cx, bytes) : NULL;
    if (copy) memcpy(copy, grad, bytes);
    add_grad(cx, f, node, 0, values, copy);
    add_grad(cx, f, node, 1, values, grad);
}

static void binary_backward(oct_context *cx, oct_node *node)
{
    const oct_binary *const *saved = node->saved;
    const bool reads = (*saved)->grad[0] || (*saved)->grad[1]; /* add does not */
    const float *const values[2] = {reads ? oct_f32(node->input[0]) : NULL,
                                    reads ? oct_f32(node->input[1]) : NULL};
    oct_binary_add_grads(cx, *saved, node, values, oct_detach_grad(node->output));
}

/* The sum of deferred values and others is deferred itself. */
typedef struct deferred_sum {
    oct_deferred output; /* comes first */
    const oct_deferred *values;
    const oct_tensor *addend;
} deferred_sum;

static void write_sum(const oct_deferred *output, oct_bound bound, const float *addend, float *to)
{
    const deferred_sum *s = (const deferred_sum *)(const void *)output;
    OCT_ASSERT(!addend);
    s->values->write(s->values, bound, oct_f32(s->addend), to);
}

/* Makes the output of a + b where one of them can be added to when it is read; else NULL. */
static oct_tensor *defer_sum(oct_context *cx, oct_tensor *a, oct_tensor *b)
{
    oct_tensor *deferred = a->deferred ? a : b, *other = deferred == a ? b : a;
    if (a == b || !deferred->deferred || !deferred->deferred->adds) return NULL;
    if (!oct_shape_equal(&a->shape, &b->shape) || !oct_inputs_ok(cx, &other, 1)) return NULL;
    oct_tensor *y = oct_tensor_view(cx, OCT_F32, a->shape, NULL);
    deferred_sum *sum = oct_save(cx, sizeof *sum);
    if (!y || !sum) return NULL;
    *sum = (deferred_sum){{cx, oct_tensor_settle, write_sum, false}, deferred->deferred, other};
    y->deferred = &sum->output;
    return y;
}

oct_tensor *oct_binary_apply(oct_context *cx, const oct_binary *f, oct_tensor *a, oct_tensor *b)
{
    oct_tensor *inputs[] = {a, b}, *y;
    oct_broadcast s;
    if (oct_op_intercepted(cx, f->name, OCT_NO_ARGS, inputs, 2, &y)) return y;
    if (!oct_inputs_alive(cx, inputs, 2)) return NULL;
    if (!oct_needs_f32(cx, f->name, a) || !oct_needs_f32(cx, f->name, b)) return NULL;
    if (!oct_broadcast_of(&a->shape, &b->shape, &s))
        return oct_context_fail(
            cx, OCT_USAGE,
            "%s takes two tensors of one shape, or one of them (N, 1, 1, C), (N, C) or "
            "(N, H, W, 1), but has %s and %s",
            f->name, oct_text_shape(&a->shape).text, oct_text_shape(&b->shape).text);
    y = f == &oct_binary_add ? defer_sum(cx, a, b) : NULL;
    if (!y && oct_inputs_ok(cx, inputs, 2))
        y = oct_tensor_new(cx, OCT_F32, inputs[oct_broadcast_larger(&s)]->shape);
    if (!y) return NULL;
    const bool deferred = y->deferred;
    const float *const x[2] = {deferred ? NULL : oct_f32(a), deferred ? NULL : oct_f32(b)};
    const int64_t samples = deferred ? 0 : oct_samples(y), n = s.positions * s.channels;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        combine_sample(&s, f->value, i, x, oct_f32(y) + i * n);
    oct_node *node = oct_record(cx, f->name, binary_backward, inputs, 2, false, y);
    return oct_node_save(cx, node, &f, sizeof(const oct_binary *)) ? y : NULL;
}

/* Defines a loop that sets y[i] to an expression; in a gradient's loop y[i] holds that of the output before. */
#define LOOP(name, expression)                                                                     \
    OCT_CLONES                                                                                     \
    static void name(int64_t n, const float *a, const float *b, float *restrict y)                 \
    {                                                                                              \
        (void)a, (void)b;                                                                          \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = expression;                                                                     \
    }
#define BINARY_OP(id, ...)                                                                         \
    const oct_binary oct_binary_##id = {.name = #id, __VA_ARGS__};                                 \
    oct_tensor *oct_##id(oct_context *cx, oct_tensor *a, oct_tensor *b)                            \
    {                                                                                              \
        return oct_binary_apply(cx, &oct_binary_##id, a, b);                                       \
    }

LOOP(add_values, a[i] + b[i])
BINARY_OP(add, .value = add_values)

LOOP(sub_values, a[i] - b[i])
LOOP(sub_grad_of_second, -y[i])
BINARY_OP(sub, .value = sub_values, .grad = {NULL, sub_grad_of_second})

LOOP(mul_values, a[i] * b[i])
LOOP(mul_grad_of_first, y[i] * b[i])
LOOP(mul_grad_of_second, y[i] * a[i])
BINARY_OP(mul, .value = mul_values, .grad = {mul_grad_of_first, mul_grad_of_second})

/* The gradient of the divisor is that of PyTorch, -g * ((a / b) / b). */
LOOP(div_values, a[i] / b[i])
LOOP(div_grad_of_first, y[i] / b[i])
LOOP(div_grad_of_second, -y[i] * ((a[i] / b[i]) / b[i]))
BINARY_OP(div, .value = div_values, .grad = {div_grad_of_first, div_grad_of_second})
