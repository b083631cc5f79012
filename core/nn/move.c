/* The module move is oct_move with its map. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <string.h>

static oct_tensor *move_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_move_module *m = (const oct_move_module *)self;
    return oct_needs_inputs(cx, self, n, 1) ? oct_move(cx, x[0], &m->map) : NULL;
}

static void move_describe(const oct_module *self, char *text, size_t size)
{
    oct_describe_shape(&((const oct_move_module *)self)->map.out, text, size);
}

static void move_args(const oct_module *self, oct_op_args *args)
{
    oct_move_args(&((const oct_move_module *)self)->map, args);
}

oct_status oct_move_map_of(oct_move_map *map, const oct_op_args *args)
{
    int64_t a[OCT_MAX_ARGS] = {0};
    OCT_TRY(oct_args_integers("move", args, args->count, a));
    const int64_t after = a[1], dims = after >= 0 && after < OCT_MAX_DIMS ? a[2 + after] : -1;
    OCT_CHECK(
        dims >= 0 && dims <= OCT_MOVE_DIMS && args->count == 3 + after + 2 * dims, OCT_USAGE,
        "a move is made from an offset, the number of dimensions after the batch (at most %d) and "
        "their sizes, the number of loops (at most %d), their sizes and their strides, but has %d "
        "arguments that do not count so",
        OCT_MAX_DIMS - 1, OCT_MOVE_DIMS, args->count);
    *map = (oct_move_map){
        .offset = a[0], .dims = (int)dims, .out = {.ndim = (int)after + 1, .dim = {1}}};
    memcpy(map->out.dim + 1, a + 2, (size_t)after * sizeof *a);
    memcpy(map->size, a + 3 + after, (size_t)dims * sizeof *a);
    memcpy(map->stride, a + 3 + after + dims, (size_t)dims * sizeof *a);
    return OCT_OK;
}

static oct_status move_from(oct_module **m, const oct_op_args *args)
{
    oct_move_map map;
    *m = NULL;
    OCT_TRY(oct_move_map_of(&map, args));
    return oct_move_create(m, &map);
}

const oct_module_type oct_move_type = {.name = "move",
                                       .forward = move_forward,
                                       .describe = move_describe,
                                       .atomic = true,
                                       .create = move_from,
                                       .args = move_args};

oct_status oct_move_create(oct_module **m, const oct_move_map *map)
{
    char text[96];
    oct_shape sample = map->out;
    *m = NULL;
    sample.dim[0] = 1;
    OCT_CHECK(sample.ndim >= 1 && oct_shape_numel(&sample) >= 1, OCT_USAGE,
              "a move cannot make samples of shape %s; each dimension must be at least 1",
              oct_shape_text(&sample, text));
    if (oct_move_check(map, INT64_MAX, OCT_USAGE) != OCT_OK)
        return oct_fail_prefix("a move to %s", oct_shape_text(&sample, text));
    OCT_CHECK(oct_move_numel(map) == oct_shape_numel(&sample), OCT_USAGE,
              "a move reads %lld values of a sample, but has to make %s",
              (long long)oct_move_numel(map), oct_shape_text(&sample, text));
    OCT_TRY(oct_module_create(m, &oct_move_type, sizeof(oct_move_module)));
    ((oct_move_module *)*m)->map = *map;
    ((oct_move_module *)*m)->map.out = sample;
    return OCT_OK;
}
