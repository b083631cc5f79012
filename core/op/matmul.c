/* Matrices of two activations are multiplied, sample by sample. */
#include "core/base/cpu.h"
#include "core/tensor/move.h"
#include "core/op/op_impl.h"

#include <string.h>

/* y (rows, columns) = sum over k of a[row * row_step + k * step] * b[k * columns + column]; the steps transpose a. */
typedef struct matrix_product {
    int64_t rows, depth, columns;
    int64_t row_step, step;
} matrix_product;

/* Each element is summed in the order of k, whatever is computed beside it. */
OCT_CLONES
static void multiply_matrices(const matrix_product *p, const float *a, const float *b,
                              float *restrict y)
{
    memset(y, 0, (size_t)(p->rows * p->columns) * sizeof *y);
    for (int64_t i = 0; i < p->rows; i++) {
        float *restrict row = y + i * p->columns;
        for (int64_t k = 0; k < p->depth; k++) {
            const float factor = a[i * p->row_step + k * p->step];
            for (int64_t j = 0; j < p->columns; j++)
                row[j] += factor * b[k * p->columns + j];
        }
    }
}

typedef struct matmul_sizes {
    int64_t count, m, k, l; /* count: matrices */
} matmul_sizes;

/* The sizes of (..., M, K) x (..., K, L), and how many such products there are. */
static matmul_sizes sizes_of(const oct_tensor *a, const oct_tensor *b)
{
    const int last = a->shape.ndim - 1;
    matmul_sizes s = {1, oct_dim(a, last - 1), oct_dim(a, last), oct_dim(b, last)};
    for (int i = 0; i < last - 1; i++)
        s.count *= oct_dim(a, i);
    return s;
}

/* grad_a = grad_y x b transposed */
static void add_left_grad(oct_context *cx, const matmul_sizes *s, oct_tensor *a,
                          const oct_tensor *b, const float *grad_y)
{
    if (!a->needs_grad) return;
    const matrix_product p = {s->m, s->l, s->k, s->l, 1};
    float *grad = oct_grad_new(cx, a);
    float *b_transposed = oct_scratch(cx, (size_t)oct_numel(b) * sizeof *b_transposed);
    if (!grad || !b_transposed) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < s->count; i++) {
        float *right = b_transposed + i * s->k * s->l;
        oct_transpose_f32(s->k, s->l, oct_f32(b) + i * s->k * s->l, s->l, right, s->k);
        multiply_matrices(&p, grad_y + i * s->m * s->l, right, grad + i * s->m * s->k);
    }
    oct_scratch_end(cx, b_transposed);
    oct_add_grad(cx, a, grad);
}

/* grad_b = a transposed x grad_y */
static void add_right_grad(oct_context *cx, const matmul_sizes *s, const oct_tensor *a,
                           oct_tensor *b, const float *grad_y)
{
    if (!b->needs_grad) return;
    const matrix_product p = {s->k, s->m, s->l, 1, s->k};
    float *grad = oct_grad_new(cx, b);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < s->count; i++)
        multiply_matrices(&p, oct_f32(a) + i * s->m * s->k, grad_y + i * s->m * s->l,
                          grad + i * s->k * s->l);
    oct_add_grad(cx, b, grad);
}

static void matmul_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *a = node->input[0], *b = node->input[1];
    const matmul_sizes s = sizes_of(a, b);
    add_left_grad(cx, &s, a, b, node->output->grad);
    add_right_grad(cx, &s, a, b, node->output->grad);
}

oct_tensor *oct_matmul(oct_context *cx, oct_tensor *a, oct_tensor *b)
{
    oct_tensor *inputs[] = {a, b}, *y;
    if (oct_op_intercepted(cx, "matmul", OCT_NO_ARGS, inputs, 2, &y)) return y;
    if (!oct_inputs_ok(cx, inputs, 2)) return NULL;
    if (!oct_needs_f32(cx, "matmul", a) || !oct_needs_f32(cx, "matmul", b)) return NULL;
    const int last = a->shape.ndim - 1;
    bool fits =
        last >= 2 && b->shape.ndim == a->shape.ndim && oct_dim(a, last) == oct_dim(b, last - 1);
    for (int i = 0; fits && i < last - 1; i++)
        fits = oct_dim(a, i) == oct_dim(b, i);
    if (!fits)
        return oct_context_fail(
            cx, OCT_USAGE, "matmul multiplies (N, ..., M, K) and (N, ..., K, L), but has %s and %s",
            oct_text_shape(&a->shape).text, oct_text_shape(&b->shape).text);
    const matmul_sizes s = sizes_of(a, b);
    const matrix_product p = {s.m, s.k, s.l, s.k, 1};
    oct_shape shape = a->shape;
    shape.dim[shape.ndim - 1] = s.l;
    y = oct_tensor_new(cx, OCT_F32, shape);
    if (!y) return NULL;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < s.count; i++)
        multiply_matrices(&p, oct_f32(a) + i * s.m * s.k, oct_f32(b) + i * s.k * s.l,
                          oct_f32(y) + i * s.m * s.l);
    oct_record(cx, "matmul", matmul_backward, inputs, 2, false, y);
    return y;
}
