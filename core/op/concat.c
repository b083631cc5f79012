/* Concatenation puts tensors side by side along the last dimension. */
#include "core/op/op_impl.h"

#include <string.h>

/* The product of all dimensions but the last. */
static int64_t rows_of(const oct_tensor *t)
{
    int64_t rows = 1;
    for (int i = 0; i < t->shape.ndim - 1; i++)
        rows *= oct_dim(t, i);
    return rows;
}

/* Copies rows of `n` floats between matrices with different distances between rows. */
static void copy_rows(int64_t rows, int64_t n, const float *src, int64_t src_stride, float *dst,
                      int64_t dst_stride)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++)
        memcpy(dst + r * dst_stride, src + r * src_stride, (size_t)n * sizeof(float));
}

static void concat_backward(oct_context *cx, oct_node *node)
{
    const oct_tensor *y = node->output;
    int64_t column = 0;
    for (int i = 0; i < node->num_inputs; i++) {
        oct_tensor *x = node->input[i];
        if (x->needs_grad) {
            float *grad = oct_grad_new(cx, x);
            if (!grad) return;
            copy_rows(rows_of(x), oct_last_dim(x), y->grad + column, oct_last_dim(y), grad,
                      oct_last_dim(x));
            oct_add_grad(cx, x, grad);
        }
        column += oct_last_dim(x);
    }
}

oct_tensor *oct_concat(oct_context *cx, oct_tensor *const *x, int n)
{
    if (n < 1 || n > OCT_MAX_INPUTS)
        return oct_context_fail(cx, OCT_USAGE, "concat takes 1 to %d tensors, but has %d",
                                OCT_MAX_INPUTS, n);
    oct_tensor *y;
    if (oct_op_intercepted(cx, "concat", OCT_NO_ARGS, x, n, &y)) return y;
    if (!oct_inputs_ok(cx, x, n)) return NULL;
    oct_shape shape = x[0]->shape;
    const int last = shape.ndim > 0 ? shape.ndim - 1 : 0;
    shape.dim[last] = 0;
    for (int i = 0; i < n; i++) {
        if (!oct_needs_f32(cx, "concat", x[i])) return NULL;
        oct_shape same = x[i]->shape;
        bool fits = same.ndim == shape.ndim && shape.ndim > 0;
        for (int d = 0; fits && d < last; d++)
            fits = same.dim[d] == shape.dim[d];
        if (!fits)
            return oct_context_fail(
                cx, OCT_USAGE,
                "concat works along the last dimension and needs the others equal, but has "
                "%s and %s",
                oct_text_shape(&x[0]->shape).text, oct_text_shape(&same).text);
        shape.dim[last] += same.dim[last];
    }
    y = oct_tensor_new(cx, OCT_F32, shape);
    if (!y) return NULL;
    int64_t column = 0;
    for (int i = 0; i < n; column += oct_last_dim(x[i]), i++)
        copy_rows(rows_of(x[i]), oct_last_dim(x[i]), oct_f32(x[i]), oct_last_dim(x[i]),
                  oct_f32(y) + column, oct_last_dim(y));
    oct_record(cx, "concat", concat_backward, x, n, false, y);
    return y;
}
