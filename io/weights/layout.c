/* How the parameters and buffers of modules are laid out in files of frameworks with channels first, such as PyTorch. */
#include "io/weights/layout.h"

#include "core/nn/modules.h"

#include <string.h>

oct_torch_layout oct_torch_layout_plain(const oct_shape *shape)
{
    oct_torch_layout layout = {.ndim = shape->ndim};
    memcpy(layout.dim, shape->dim, sizeof shape->dim);
    layout.map = oct_move_over(shape->ndim, shape->dim);
    return layout;
}

/* Adds the loops over one dimension of a tensor, whose neighbours are `step` values apart in the file; over features
 * that were an image, loops (h, w, c) over the file's (c, h, w). */
static void add_loops(oct_move_map *map, int64_t size, int64_t step, const oct_feature_order *image)
{
    if (!image || image->c == 0 || image->h * image->w * image->c != size) {
        map->size[map->dims] = size;
        map->stride[map->dims++] = step;
        return;
    }
    const int64_t h = image->h, w = image->w, c = image->c;
    memcpy(map->size + map->dims, (int64_t[]){h, w, c}, 3 * sizeof h);
    memcpy(map->stride + map->dims, (int64_t[]){w * step, step, h * w * step}, 3 * sizeof h);
    map->dims += 3;
}

oct_torch_layout oct_torch_layout_of(const oct_module_type *type, const oct_shape *shape,
                                     int64_t groups, const oct_feature_order *in,
                                     const oct_feature_order *out)
{
    const int ndim = shape->ndim;
    const int64_t *s = shape->dim, taps = s[1] * s[2];
    const bool linear = type == &oct_linear_type;
    const bool parameter = type == &oct_parameter_type || type == &oct_add_parameter_type ||
                           type == &oct_mul_parameter_type;
    oct_torch_layout layout = {.ndim = ndim};
    if (type == &oct_conv2d_type && ndim == 4) /* (O, kh, kw, I) of (O, I, kh, kw) */
        return (oct_torch_layout){.ndim = 4,
                                  .dim = {s[0], s[3], s[1], s[2]},
                                  .map = {.dims = 4,
                                          .size = {s[0], s[1], s[2], s[3]},
                                          .stride = {s[3] * taps, s[2], 1, taps}}};
    if (type == &oct_conv_transpose2d_type && ndim == 4) {
        /* (O, kh, kw, I/groups) of (I, O/groups, kh, kw), rotated by 180 degrees */
        const int64_t outs = s[0] / groups, ins = s[3];
        return (oct_torch_layout){
            .ndim = 4,
            .dim = {ins * groups, outs, s[1], s[2]},
            .map = {.dims = 5,
                    .size = {groups, outs, s[1], s[2], ins},
                    .stride = {ins * outs * taps, taps, -s[2], -1, outs * taps},
                    .offset = taps - 1},
        };
    }
    if ((linear && ndim == 2) || ((linear || type == &oct_batch_norm_type) && ndim == 1)) {
        memcpy(layout.dim, s, (size_t)ndim * sizeof *s);
        add_loops(&layout.map, s[0], ndim == 2 ? s[1] : 1, out);
        if (ndim == 2) add_loops(&layout.map, s[1], 1, in);
        return layout;
    }
    if (parameter && ndim == 3) { /* (H, W, C) of (C, H, W) */
        const oct_feature_order image = {s[0], s[1], s[2]};
        memcpy(layout.dim, (int64_t[]){image.c, image.h, image.w}, 3 * sizeof *s);
        add_loops(&layout.map, oct_shape_numel(shape), 1, &image);
        return layout;
    }
    return oct_torch_layout_plain(shape);
}
