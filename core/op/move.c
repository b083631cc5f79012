/* Moving reads the values of each sample in the order of a map; the gradient is added to where they came from. */
#include "core/op/op_impl.h"

#include <string.h>

static void move_backward(oct_context *cx, oct_node *node)
{
    oct_tensor *x = node->input[0];
    const oct_move_map *map = node->saved;
    const int64_t from = oct_sample_numel(&x->shape), to = oct_move_numel(map);
    float *grad = oct_grad_new(cx, x);
    if (!grad) return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < oct_dim(x, 0); i++) {
        memset(grad + i * from, 0, (size_t)from * sizeof *grad);
        oct_move_add_back(map, node->output->grad + i * to, grad + i * from);
    }
    oct_add_grad(cx, x, grad);
}

/* Fails the context unless the map reads inside a sample of x, and as many values as its output has. */
static bool map_fits(oct_context *cx, const oct_tensor *x, const oct_move_map *map)
{
    const oct_shape_text from = oct_text_shape(&x->shape), to = oct_text_shape(&map->out);
    if (x->shape.ndim < 1 || map->out.ndim < 1 ||
        oct_move_numel(map) != oct_sample_numel(&map->out))
        oct_context_fail(cx, OCT_USAGE,
                         "move reads %lld values of each sample of %s, but has to make %s",
                         (long long)oct_move_numel(map), from.text, to.text);
    else if (oct_dtype_bytes(x->dtype) > 4)
        oct_context_fail(cx, OCT_USAGE,
                         "move takes values of at most 4 bytes, but its input holds %s",
                         oct_dtype_name(x->dtype));
    else if (oct_move_check(map, oct_sample_numel(&x->shape), OCT_USAGE) != OCT_OK)
        oct_context_adopt(cx, oct_fail_prefix("move from %s to %s", from.text, to.text));
    return cx->status == OCT_OK;
}

oct_tensor *oct_move(oct_context *cx, oct_tensor *x, const oct_move_map *map)
{
    oct_tensor *y;
    oct_op_args args;
    if (!map || map->dims < 0 || map->dims > OCT_MOVE_DIMS || map->out.ndim < 1 ||
        map->out.ndim > OCT_MAX_DIMS)
        return oct_context_fail(cx, OCT_USAGE,
                                "move is called without a map of up to %d loops to 1 to %d "
                                "dimensions",
                                OCT_MOVE_DIMS, OCT_MAX_DIMS);
    oct_args_write(&oct_move_arg_list, map, &args);
    if (oct_op_intercepted(cx, "move", &args, &x, 1, &y)) return y;
    if (!oct_inputs_ok(cx, &x, 1) || !map_fits(cx, x, map)) return NULL;
    oct_shape shape = map->out;
    shape.dim[0] = oct_dim(x, 0);
    y = oct_tensor_new(cx, x->dtype, shape);
    if (!y) return NULL;
    y->q = x->q;
    const size_t bytes = oct_dtype_bytes(x->dtype);
    const int64_t from = oct_sample_numel(&x->shape) * (int64_t)bytes;
    const int64_t to = oct_move_numel(map) * (int64_t)bytes;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < shape.dim[0]; i++)
        oct_move_copy(map, bytes, (const uint8_t *)x->data + i * from, (uint8_t *)y->data + i * to);
    oct_node *node = oct_record(cx, "move", move_backward, &x, 1, false, y);
    return oct_node_save(cx, node, map, sizeof *map) ? y : NULL;
}

/* Gives the map that changes nothing. */
static oct_move_map identity_map(const oct_tensor *x)
{
    oct_move_map map = oct_move_over(x->shape.ndim > 0 ? x->shape.ndim - 1 : 0, x->shape.dim + 1);
    map.out = x->shape;
    return map;
}

oct_tensor *oct_slice(oct_context *cx, oct_tensor *x, int axis, int64_t begin, int64_t step,
                      int64_t count)
{
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    const int64_t n = axis >= 1 && axis < x->shape.ndim ? oct_dim(x, axis) : 0;
    int64_t distance, last;
    const bool inside = begin >= 0 && begin < n && count >= 1 &&
                        !__builtin_mul_overflow(count - 1, step, &distance) &&
                        !__builtin_add_overflow(begin, distance, &last) && last >= 0 && last < n;
    if (!inside)
        return oct_context_fail(
            cx, OCT_USAGE,
            "slice: %lld places from %lld in steps of %lld are not those of axis "
            "%d of %s; axes count from 1",
            (long long)count, (long long)begin, (long long)step, axis,
            oct_text_shape(&x->shape).text);
    oct_move_map map = identity_map(x);
    map.offset = begin * map.stride[axis - 1];
    if (__builtin_mul_overflow(map.stride[axis - 1], step, &map.stride[axis - 1]))
        map.stride[axis - 1] = 0; /* of a single place, which takes no step */
    map.size[axis - 1] = map.out.dim[axis] = count;
    return oct_move(cx, x, &map);
}

oct_tensor *oct_transpose(oct_context *cx, oct_tensor *x, const int *order)
{
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    const oct_move_map from = identity_map(x);
    oct_move_map map = from;
    bool seen[OCT_MAX_DIMS] = {false};
    for (int i = 1; i < x->shape.ndim; i++) {
        const int d = order ? order[i - 1] : 0;
        if (d < 1 || d >= x->shape.ndim || seen[d])
            return oct_context_fail(
                cx, OCT_USAGE,
                "transpose: dimension %d of the output cannot be dimension %d of %s; "
                "each one from 1 on comes once",
                i, d, oct_text_shape(&x->shape).text);
        seen[d] = true;
        map.size[i - 1] = from.size[d - 1];
        map.stride[i - 1] = from.stride[d - 1];
        map.out.dim[i] = x->shape.dim[d];
    }
    return oct_move(cx, x, &map);
}

oct_tensor *oct_depth_to_space(oct_context *cx, oct_tensor *x, int block, oct_depth_order order)
{
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_images(cx, "depth_to_space", x)) return NULL;
    const int64_t b = block, h = oct_dim(x, 1), w = oct_dim(x, 2), c = oct_dim(x, 3);
    if (b < 1 || b > c || c % (b * b) != 0)
        return oct_context_fail(
            cx, OCT_USAGE, "depth_to_space: %lld channels are not those of blocks of %dx%d pixels",
            (long long)c, block, block);
    /* The distances in x of the pixels of a block's row, and of the channels of a pixel. */
    const int64_t out_c = c / (b * b), pixel = order == OCT_DEPTH_DCR ? out_c : 1,
                  channel = order == OCT_DEPTH_DCR ? 1 : b * b;
    const oct_move_map map = {.dims = 5,
                              .size = {h, b, w, b, out_c},
                              .stride = {w * c, b * pixel, c, pixel, channel},
                              .out = OCT_SHAPE(1, h * b, w * b, out_c)};
    return oct_move(cx, x, &map);
}

oct_tensor *oct_space_to_depth(oct_context *cx, oct_tensor *x, int block, oct_depth_order order)
{
    if (!oct_inputs_ok(cx, &x, 1) || !oct_needs_images(cx, "space_to_depth", x)) return NULL;
    const int64_t b = block, h = oct_dim(x, 1), w = oct_dim(x, 2), c = oct_dim(x, 3);
    if (b < 1 || h % b != 0 || w % b != 0)
        return oct_context_fail(
            cx, OCT_USAGE, "space_to_depth: blocks of %dx%d pixels do not divide %lldx%lld pixels",
            block, block, (long long)h, (long long)w);
    /* Loops over blocks, pixels of a block and channels, in the order in which the output has them. */
    oct_move_map map = {.dims = 5,
                        .size = {h / b, w / b, b, b, c},
                        .stride = {b * w * c, b * c, w * c, c, 1},
                        .out = OCT_SHAPE(1, h / b, w / b, c * b * b)};
    if (order == OCT_DEPTH_CRD) { /* channels before the pixels of a block */
        memcpy(map.size + 2, (int64_t[]){c, b, b}, 3 * sizeof(int64_t));
        memcpy(map.stride + 2, (int64_t[]){1, w * c, c}, 3 * sizeof(int64_t));
    }
    return oct_move(cx, x, &map);
}

oct_tensor *oct_channel_shuffle(oct_context *cx, oct_tensor *x, int groups)
{
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    const int last = x->shape.ndim - 1;
    const int64_t c = last >= 1 ? oct_dim(x, last) : 0;
    if (groups < 1 || c < 1 || c % groups != 0)
        return oct_context_fail(cx, OCT_USAGE,
                                "channel_shuffle: %d groups do not divide %lld channels", groups,
                                (long long)c);
    const int64_t rows = oct_sample_numel(&x->shape) / c;
    const oct_move_map map = {.dims = 3,
                              .size = {rows, c / groups, groups},
                              .stride = {c, 1, c / groups},
                              .out = x->shape};
    return oct_move(cx, x, &map);
}
