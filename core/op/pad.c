/* Padding puts a constant or what lies inside around each sample; the gradient goes to what was shown. */
#include "core/op/op_impl.h"
#include "core/op/ops.h"

#include <string.h>

static int64_t values_of(const int64_t size[3])
{
    return size[0] * size[1] * size[2];
}

void oct_pad_add_grad(oct_context *cx, oct_node *node, const oct_pad_shape *shape)
{
    oct_tensor *x = node->input[0];
    const int64_t from = values_of(shape->in), to = values_of(shape->out);
    float *grad = oct_grad_new(cx, x);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++) {
        memset(grad + i * from, 0, (size_t)from * sizeof *grad);
        oct_pad_add_back(shape, node->output->grad + i * to, grad + i * from);
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
    oct_args_write(&oct_pad_arg_list, p, &args);
    if (oct_call_site(cx, "pad", &args, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_f32(cx, "pad", x)) return NULL;
    oct_pad_shape shape;
    oct_shape out;
    char text[96];
    if (oct_pad_tensor_shape(&shape, p, &x->shape, &out) != OCT_OK)
        return oct_context_adopt(cx, oct_fail_prefix("pad of %s", oct_shape_text(&x->shape, text)));
    y = oct_tensor_new(cx, OCT_F32, out);
    if (!y) return NULL;
    const float fill = (float)p->value;
    const int64_t from = values_of(shape.in), to = values_of(shape.out);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < out.dim[0]; i++)
        oct_pad_copy(&shape, sizeof fill, &fill, oct_f32(x) + i * from, oct_f32(y) + i * to);
    oct_node *node = oct_record(cx, "pad", pad_backward, &x, 1, false, y);
    if (node && !(node->saved = oct_save(cx, sizeof shape))) return NULL;
    if (node) *(oct_pad_shape *)node->saved = shape;
    return y;
}
