/* Padding puts a constant or what lies inside around each sample; the gradient goes to what was shown. */
#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <string.h>

static int64_t numel_of(const int64_t size[3])
{
    return size[0] * size[1] * size[2];
}

/* Adds each gradient of one padded sample to that of the value that it shows; constants have none. */
static void add_padded_grad(const oct_pad_shape *s, const float *grad_y, float *grad_x)
{
    for (int64_t h = 0; h < s->out[0]; h++)
        for (int64_t w = 0; w < s->out[1]; w++, grad_y += s->out[2]) {
            const int64_t row = oct_pad_source(s, 0, h), column = oct_pad_source(s, 1, w);
            for (int64_t c = 0; c < s->out[2] && row >= 0 && column >= 0; c++) {
                const int64_t channel = oct_pad_source(s, 2, c);
                if (channel >= 0)
                    grad_x[(row * s->in[1] + column) * s->in[2] + channel] += grad_y[c];
            }
        }
}

void oct_pad_add_grad(oct_context *cx, oct_node *node, const oct_pad_shape *shape)
{
    oct_tensor *x = node->input[0];
    const int64_t from = numel_of(shape->in), to = numel_of(shape->out);
    float *grad = oct_grad_new(cx, x);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++) {
        memset(grad + i * from, 0, (size_t)from * sizeof *grad);
        add_padded_grad(shape, node->output->grad + i * to, grad + i * from);
    }
    oct_add_grad(cx, x, grad);
}

static void pad_backward(oct_context *cx, oct_node *node)
{
    oct_pad_add_grad(cx, node, node->saved);
}

oct_tensor *oct_pad(oct_context *cx, oct_tensor *x, const oct_padding *p)
{
    oct_tensor *y;
    oct_op_args args;
    if (!p) return oct_context_fail(cx, OCT_USAGE, "pad is called without a padding");
    oct_args_write(&oct_pad_arg_list, p, &args);
    if (oct_op_intercepted(cx, "pad", &args, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, "pad", x)) return NULL;
    oct_pad_shape shape;
    oct_shape out;
    if (oct_pad_tensor_shape(&shape, p, &x->shape, &out) != OCT_OK)
        return oct_context_adopt(cx, oct_fail_prefix("pad of %s", oct_text_shape(&x->shape).text));
    y = oct_tensor_new(cx, OCT_F32, out);
    if (!y) return NULL;
    const float fill = (float)p->value;
    const int64_t from = numel_of(shape.in), to = numel_of(shape.out);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < out.dim[0]; i++)
        oct_pad_copy(&shape, sizeof fill, &fill, oct_f32(x) + i * from, oct_f32(y) + i * to);
    oct_node *node = oct_record(cx, "pad", pad_backward, &x, 1, false, y);
    return oct_node_save(cx, node, &shape, sizeof shape) ? y : NULL;
}
