/* Functions of two tensors, element by element, sample by sample: add, sub, mul, div. */
#include "core/op/binary.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <string.h>

enum { BLOCK = 256 }; /* elements of a position that are computed together */

typedef void loop(int64_t n, const float *a, const float *b, float *restrict y);

/* Runs a loop over one sample of the result. */
static void run_sample(const oct_broadcast *s, loop *run, int64_t sample, const float *const x[2],
                       float *y)
{
    if (!x[0] || oct_broadcast_is_plain(s)) {
        const int64_t n = s->positions * s->channels;
        run(n, x[0] ? x[0] + sample * n : NULL, x[1] ? x[1] + sample * n : NULL, y);
        return;
    }
    float same[BLOCK];
    for (int64_t p = 0; p < s->positions; p++)
        for (int64_t c = 0; c < s->channels; c += BLOCK) {
            const int64_t n = oct_min_i64(s->channels - c, BLOCK), at[3] = {sample, p, c};
            const float *row[2];
            for (int i = 0; i < 2; i++) {
                int64_t step;
                row[i] = x[i] + oct_broadcast_at(s, i, at, &step);
                for (int64_t k = 0; !step && s->channels > 1 && k < n; k++)
                    same[k] = *row[i];
                if (!step && s->channels > 1) row[i] = same;
            }
            run(n, row[0], row[1], y + p * s->channels + c);
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
    const int64_t own = oct_broadcast_numel(&s, input);
    float *sum = own < n ? oct_grad_new(cx, x) : grad;
    if (!sum) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++) {
        if (!f->passes) run_sample(&s, f->grad[input], i, values, grad + i * n);
        if (own < n) oct_broadcast_sum(&s, input, grad + i * n, sum + i * own);
    }
    if (own < n) oct_scratch_end(cx, grad);
    oct_add_grad(cx, x, sum);
}

void oct_binary_add_grads(oct_context *cx, const oct_binary *f, const oct_node *node,
                          const float *const values[2], float *grad)
{
    oct_tensor *a = node->input[0], *b = node->input[1];
    if (f->passes && oct_shape_equal(&a->shape, &b->shape)) {
        oct_add_grad_to_both(cx, a, b, grad);
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
    const oct_binary *const *f = node->saved;
    const float *const values[2] = {oct_f32(node->input[0]), oct_f32(node->input[1])};
    oct_binary_add_grads(cx, *f, node, values, oct_detach_grad(node->output));
}

/* Fails the context unless the shapes broadcast. */
static bool shapes_broadcast(oct_context *cx, const oct_binary *f, const oct_tensor *a,
                             const oct_tensor *b, oct_broadcast *s)
{
    char a_text[96], b_text[96];
    if (oct_broadcast_of(&a->shape, &b->shape, s)) return true;
    oct_context_fail(cx, OCT_USAGE,
                     "%s takes two tensors of one shape, or one of them (N, 1, 1, C), (N, C) or "
                     "(N, H, W, 1), but has %s and %s",
                     f->name, oct_shape_text(&a->shape, a_text), oct_shape_text(&b->shape, b_text));
    return false;
}

oct_tensor *oct_binary_apply(oct_context *cx, const oct_binary *f, oct_tensor *a, oct_tensor *b)
{
    oct_tensor *inputs[] = {a, b}, *y;
    oct_broadcast s;
    if (oct_call_site(cx, f->name, OCT_NO_ARGS, inputs, 2, &y)) return y;
    if (!oct_inputs_ok(cx, inputs, 2)) return NULL;
    if (!oct_needs_f32(cx, f->name, a) || !oct_needs_f32(cx, f->name, b)) return NULL;
    if (!shapes_broadcast(cx, f, a, b, &s)) return NULL;
    y = oct_tensor_new(cx, OCT_F32, inputs[oct_broadcast_larger(&s)]->shape);
    const oct_binary **saved = oct_save(cx, sizeof *saved);
    if (!y || !saved) return NULL;
    *saved = f;
    const float *const x[2] = {oct_f32(a), oct_f32(b)};
    const int64_t samples = oct_samples(y), n = s.positions * s.channels;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < samples; i++)
        run_sample(&s, f->value, i, x, oct_f32(y) + i * n);
    oct_node *node = oct_record(cx, f->name, binary_backward, inputs, 2, false, y);
    if (node) node->saved = saved;
    return y;
}

OCT_CLONES
static void add_values(int64_t n, const float *a, const float *b, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

const oct_binary oct_binary_add = {.name = "add", .passes = true, .value = add_values};

oct_tensor *oct_add(oct_context *cx, oct_tensor *a, oct_tensor *b)
{
    return oct_binary_apply(cx, &oct_binary_add, a, b);
}

OCT_CLONES
static void sub_values(int64_t n, const float *a, const float *b, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] - b[i];
}

/* It is the output's, which y holds. */
static void sub_grad_of_first(int64_t n, const float *a, const float *b, float *restrict y)
{
    (void)n, (void)a, (void)b, (void)y;
}

OCT_CLONES
static void sub_grad_of_second(int64_t n, const float *a, const float *b, float *restrict y)
{
    (void)a, (void)b;
    for (int64_t i = 0; i < n; i++)
        y[i] = -y[i];
}

const oct_binary oct_binary_sub = {
    .name = "sub", .value = sub_values, .grad = {sub_grad_of_first, sub_grad_of_second}};

oct_tensor *oct_sub(oct_context *cx, oct_tensor *a, oct_tensor *b)
{
    return oct_binary_apply(cx, &oct_binary_sub, a, b);
}

OCT_CLONES
static void mul_values(int64_t n, const float *a, const float *b, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
}

OCT_CLONES
static void mul_grad_of_first(int64_t n, const float *a, const float *b, float *restrict y)
{
    (void)a;
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] * b[i];
}

OCT_CLONES
static void mul_grad_of_second(int64_t n, const float *a, const float *b, float *restrict y)
{
    (void)b;
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] * a[i];
}

const oct_binary oct_binary_mul = {
    .name = "mul", .value = mul_values, .grad = {mul_grad_of_first, mul_grad_of_second}};

oct_tensor *oct_mul(oct_context *cx, oct_tensor *a, oct_tensor *b)
{
    return oct_binary_apply(cx, &oct_binary_mul, a, b);
}

/* The gradient of the divisor is that of PyTorch, -g * ((a / b) / b). */
OCT_CLONES
static void div_values(int64_t n, const float *a, const float *b, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] / b[i];
}

OCT_CLONES
static void div_grad_of_first(int64_t n, const float *a, const float *b, float *restrict y)
{
    (void)a;
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] / b[i];
}

OCT_CLONES
static void div_grad_of_second(int64_t n, const float *a, const float *b, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = -y[i] * ((a[i] / b[i]) / b[i]);
}

const oct_binary oct_binary_div = {
    .name = "div", .value = div_values, .grad = {div_grad_of_first, div_grad_of_second}};

oct_tensor *oct_div(oct_context *cx, oct_tensor *a, oct_tensor *b)
{
    return oct_binary_apply(cx, &oct_binary_div, a, b);
}
