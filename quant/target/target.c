/* This file holds the table of targets, made from its list. */
#include "quant/target/target.h"

#include <string.h>

const char *const oct_adding_fusions[] = {
    "conv_bn_add_relu", "conv_bn_add_relu6", "conv_bn_add_clip", "conv_bn_add",
    "conv_add_relu",    "conv_add_relu6",    "conv_add_clip",    "conv_add",
    "linear_add_relu",  "linear_add_clip",   "linear_add",       NULL};

static const void *const listed[] = {
#define OCT_TARGET(id, file) &oct_target_##file,
#include "quant/target/target_list.def"
#undef OCT_TARGET
};
const oct_registry oct_target_id_table = OCT_REGISTRY("a target", listed);

const oct_target *oct_target_at(size_t i)
{
    return oct_registry_at(&oct_target_id_table, i);
}

const oct_target *oct_target_find(const char *name)
{
    return oct_registry_find(&oct_target_id_table, name);
}

const char *oct_target_refuses(const oct_target *target, const char *op, const oct_op_args *args)
{
    oct_pool_geometry g;
    oct_interpolate_args resize;
    if (strcmp(op, "interpolate") == 0) {
        oct_args_get(&oct_interpolate_arg_list, args, &resize);
        return oct_is_bilinear(resize.mode) ? target->no_linear_resize : NULL;
    }
    if (strcmp(op, "avg_pool") != 0) return NULL;
    oct_args_get(&oct_avg_pool_arg_list, args, &g);
    const bool pads = g.pad_top || g.pad_left || g.pad_bottom || g.pad_right;
    if (!g.ceil && (!pads || g.count_include_pad)) return NULL;
    return target->refuses_uneven_average ? target->refuses_uneven_average(&g)
                                          : target->no_uneven_average;
}
