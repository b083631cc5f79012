/* Modules without parameters: each is one op with its arguments; and the sequential, which calls its modules one after
 * another. */
#include "core/nn/modules.h"

#include <stdio.h>

/* Type and create function of an op without arguments. */
#define PLAIN_MODULE(id, self_type, num_inputs, call)                                              \
    OCT_MODULE_TYPE(id, self_type, call, OCT_MODULE_NO_ARGS(self_type), .inputs = num_inputs);     \
    oct_status oct_##id##_create(oct_module **m)                                                   \
    {                                                                                              \
        return oct_module_make(m, &oct_##id##_type, NULL);                                         \
    }

#define GIVEN_1 x[0]
#define GIVEN_2 x[0], x[1]
#define OCT_PLAIN_OP(id, inputs, form)                                                             \
    PLAIN_MODULE(id, oct_module, inputs, oct_##id(cx, GIVEN_##inputs))
#include "core/op/plain_op_list.def"
#undef OCT_PLAIN_OP
#undef GIVEN_1
#undef GIVEN_2

static oct_tensor *concat_inputs(oct_context *cx, const oct_module *self, oct_tensor *const *x,
                                 int n)
{
    if (n >= 2) return oct_concat(cx, x, n);
    return oct_context_fail(cx, OCT_USAGE, "%s takes two or more inputs, but was called with %d",
                            self->type->name, n);
}
PLAIN_MODULE(concat, oct_module, 0, concat_inputs(cx, m, x, n))

static oct_tensor *pass_input_on(oct_context *cx, oct_identity_module *m, oct_tensor *x)
{
    if (!oct_inputs_ok(cx, &x, 1)) return NULL;
    m->passed = x->data;
    return m->fused ? oct_view_as(cx, "identity", x, x->shape) : x;
}
PLAIN_MODULE(identity, oct_identity_module, 1, pass_input_on(cx, m, x[0]))

#define GIVEN_0 0
#define GIVEN_1 .alpha = first
#define GIVEN_2 .alpha = first, .beta = second
#define OCT_ELEMENTWISE(id, num)                                                                   \
    static oct_status init_##id(oct_module *self)                                                  \
    {                                                                                              \
        ((oct_elementwise_module *)self)->function = &oct_elementwise_##id;                        \
        return OCT_OK;                                                                             \
    }                                                                                              \
    OCT_ARGS_TYPE(id, oct_elementwise_module, oct_elementwise_arg_list[num],                       \
                  oct_elementwise_apply(cx, m->function, &m->args, x[0]), .inputs = 1,             \
                  .init = init_##id);                                                              \
    oct_status oct_##id##_create(oct_module **m OCT_ELEMENTWISE_ARGS_##num)                        \
    {                                                                                              \
        return oct_module_make(m, &oct_##id##_type, &(oct_elementwise_args){GIVEN_##num});         \
    }
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE

static oct_status init_clip(oct_module *self)
{
    const oct_clip_args *a = &((const oct_clip_module *)self)->args;
    OCT_CHECK(a->lo <= a->hi, OCT_USAGE,
              "clip cannot have the bounds %g and %g; give two numbers in ascending order, or "
              "infinities for none",
              a->lo, a->hi);
    return OCT_OK;
}
OCT_ARGS_TYPE(clip, oct_clip_module, oct_clip_arg_list, oct_clip(cx, x[0], m->args.lo, m->args.hi),
              .inputs = 1, .init = init_clip);
OCT_MODULE_CREATE(clip, (double lo, double hi), lo, hi)

OCT_ARGS_TYPE(dropout, oct_dropout_module, oct_dropout_arg_list,
              self->training ? oct_dropout(cx, x[0], m->args.p) : x[0], .inputs = 1);

OCT_MODULE_CREATE(dropout, (double p), p)

OCT_ARGS_TYPE(add_scalar, oct_scalar_module, oct_scalar_arg_list,
              oct_add_scalar(cx, x[0], m->args.value), .inputs = 1);
OCT_ARGS_TYPE(mul_scalar, oct_scalar_module, oct_scalar_arg_list,
              oct_mul_scalar(cx, x[0], m->args.value), .inputs = 1);
OCT_MODULE_CREATE(add_scalar, (double value), value)
OCT_MODULE_CREATE(mul_scalar, (double value), value)

static void describe_mean(const oct_module *self, char *text, size_t size)
{
    const oct_mean_args *a = &((const oct_mean_module *)self)->args;
    if (a->axis == OCT_MEAN_PLANE)
        snprintf(text, size, "dimensions 1 and 2%s", a->keep ? ", kept" : "");
    else
        snprintf(text, size, "dimension %d%s", a->axis, a->keep ? ", kept" : "");
}

static oct_status init_mean(oct_module *self)
{
    const int axis = ((const oct_mean_module *)self)->args.axis;
    OCT_CHECK(axis < OCT_MAX_DIMS || axis == OCT_MEAN_PLANE, OCT_USAGE,
              "a mean cannot be taken along dimension %d; it is 1 to %d, or %d for both of a plane",
              axis, OCT_MAX_DIMS - 1, OCT_MEAN_PLANE);
    return OCT_OK;
}
OCT_ARGS_TYPE(mean, oct_mean_module, oct_mean_arg_list,
              oct_mean(cx, x[0], m->args.axis, m->args.keep), .inputs = 1,
              .describe = describe_mean, .init = init_mean);
OCT_MODULE_CREATE(mean, (int axis, bool keep), axis, keep)

oct_status oct_mean_hw_create(oct_module **m, bool keep)
{
    return oct_mean_create(m, OCT_MEAN_PLANE, keep);
}

static void describe_pool(const oct_module *self, char *text, size_t size)
{
    snprintf(text, size, "%s", oct_text_pool_geometry(&((const oct_pool_module *)self)->args).text);
}

static oct_status init_pool(oct_module *self)
{
    const oct_pool_geometry *g = &((const oct_pool_module *)self)->args;
    OCT_CHECK(oct_pool_geometry_fits(g), OCT_USAGE, "a %s cannot have windows of %s; %s",
              self->type->name, oct_text_pool_geometry(g).text, oct_pool_geometry_rule);
    return OCT_OK;
}
OCT_ARGS_TYPE(max_pool, oct_pool_module, oct_max_pool_arg_list, oct_max_pool(cx, x[0], m->args),
              .inputs = 1, .describe = describe_pool, .init = init_pool);
OCT_ARGS_TYPE(avg_pool, oct_pool_module, oct_avg_pool_arg_list, oct_avg_pool(cx, x[0], m->args),
              .inputs = 1, .describe = describe_pool, .init = init_pool);

oct_status oct_max_pool_create(oct_module **m, oct_pool_geometry g)
{
    g.count_include_pad = false;
    return oct_module_make(m, &oct_max_pool_type, &g);
}

oct_status oct_avg_pool_create(oct_module **m, oct_pool_geometry g)
{
    return oct_module_make(m, &oct_avg_pool_type, &g);
}

static void describe_interpolate(const oct_module *self, char *text, size_t size)
{
    const oct_interpolate_args *a = &((const oct_interpolate_module *)self)->args;
    snprintf(text, size, "to %lldx%lld, %s", (long long)a->out_h, (long long)a->out_w,
             oct_interpolation_name(a->mode));
}
OCT_ARGS_TYPE(interpolate, oct_interpolate_module, oct_interpolate_arg_list,
              oct_interpolate(cx, x[0], m->args.out_h, m->args.out_w, m->args.mode), .inputs = 1,
              .describe = describe_interpolate);
OCT_MODULE_CREATE(interpolate, (int64_t out_h, int64_t out_w, oct_interpolation mode), out_h, out_w,
                  mode)

static void describe_pad(const oct_module *self, char *text, size_t size)
{
    oct_padding_text(&((const oct_pad_module *)self)->args, text, size);
}
OCT_ARGS_TYPE(pad, oct_pad_module, oct_pad_arg_list, oct_pad(cx, x[0], &m->args), .inputs = 1,
              .describe = describe_pad);

oct_status oct_pad_create(oct_module **m, const oct_padding *padding)
{
    return oct_module_make(m, &oct_pad_type, padding);
}

/* Writes the shape of an output: "(N, 4, 4, 8)". */
static void describe_shape(const oct_shape *shape, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "(N");
    for (int i = 1; i < shape->ndim && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, ", %lld", (long long)shape->dim[i]);
    if (used < size) snprintf(text + used, size - used, ")");
}

static void describe_reshape(const oct_module *self, char *text, size_t size)
{
    describe_shape(&((const oct_reshape_module *)self)->args, text, size);
}

/* Fails unless samples can have this shape, whose batch becomes 1. */
static oct_status check_sample(const oct_module *self, oct_shape *shape)
{
    shape->dim[0] = 1;
    OCT_CHECK(shape->ndim >= 1 && oct_shape_numel(shape) >= 1, OCT_USAGE,
              "a %s cannot make samples of shape %s; each dimension must be at least 1",
              self->type->name, oct_text_shape(shape).text);
    return OCT_OK;
}

static oct_status init_reshape(oct_module *self)
{
    return check_sample(self, &((oct_reshape_module *)self)->args);
}
OCT_ARGS_TYPE(reshape, oct_reshape_module, oct_reshape_arg_list, oct_reshape(cx, x[0], m->args),
              .inputs = 1, .describe = describe_reshape, .init = init_reshape);

oct_status oct_reshape_create(oct_module **m, oct_shape shape)
{
    return oct_module_make(m, &oct_reshape_type, &shape);
}

static void describe_move(const oct_module *self, char *text, size_t size)
{
    describe_shape(&((const oct_move_module *)self)->args.out, text, size);
}

static oct_status init_move(oct_module *self)
{
    oct_move_map *map = &((oct_move_module *)self)->args;
    OCT_TRY(check_sample(self, &map->out));
    if (oct_move_check(map, INT64_MAX, OCT_USAGE) != OCT_OK)
        return oct_fail_prefix("a move to %s", oct_text_shape(&map->out).text);
    OCT_CHECK(oct_move_numel(map) == oct_shape_numel(&map->out), OCT_USAGE,
              "a move reads %lld values of a sample, but has to make %s",
              (long long)oct_move_numel(map), oct_text_shape(&map->out).text);
    return OCT_OK;
}
OCT_ARGS_TYPE(move, oct_move_module, oct_move_arg_list, oct_move(cx, x[0], &m->args), .inputs = 1,
              .describe = describe_move, .init = init_move);

oct_status oct_move_create(oct_module **m, const oct_move_map *map)
{
    return oct_module_make(m, &oct_move_type, map);
}

OCT_ARGS_TYPE(squeeze, oct_squeeze_module, oct_squeeze_arg_list,
              m->args.dim == 0 ? oct_squeeze(cx, x[0]) : oct_squeeze_dim(cx, x[0], m->args.dim),
              .inputs = 1);

oct_status oct_squeeze_create(oct_module **m)
{
    return oct_module_make(m, &oct_squeeze_type, &(oct_squeeze_args){0});
}

oct_status oct_squeeze_dim_create(oct_module **m, int dim)
{
    /* 0 is the batch here. */
    return oct_module_make(m, &oct_squeeze_type, &(oct_squeeze_args){dim == 0 ? -1 : dim});
}

OCT_ARGS_TYPE(cross_entropy_loss, oct_cross_entropy_loss_module, oct_cross_entropy_loss_arg_list,
              oct_cross_entropy_loss(cx, x[0], x[1], m->args.smoothing), .inputs = 2);
OCT_MODULE_CREATE(cross_entropy_loss, (double smoothing), smoothing)

/* Counts the modules that were appended; the tree may have children beside them, which passes have added. */
static size_t count_items(const oct_sequential_module *m)
{
    size_t count = 0;
    while (count < OCT_SEQUENTIAL_MAX && m->items[count])
        count++;
    return count;
}

static oct_tensor *sequential_forward(oct_context *cx, oct_module *self, oct_tensor *const *x,
                                      int n)
{
    oct_sequential_module *m = (oct_sequential_module *)self;
    (void)n;
    oct_tensor *y = x[0];
    for (size_t i = 0, count = count_items(m); i < count; i++)
        y = oct_call(cx, m->items[i], y);
    return y;
}

static void describe_sequential(const oct_module *self, char *text, size_t size)
{
    snprintf(text, size, "%zu modules", count_items((const oct_sequential_module *)self));
}

const oct_module_type oct_sequential_type = {.name = "sequential",
                                             .forward = sequential_forward,
                                             .inputs = 1,
                                             .describe = describe_sequential,
                                             .calls_only = true};

oct_status oct_sequential_create(oct_module **m)
{
    return oct_module_alloc(m, &oct_sequential_type, sizeof(oct_sequential_module));
}

oct_status oct_sequential_append(oct_module *sequential, oct_module **item)
{
    oct_sequential_module *self = (oct_sequential_module *)sequential;
    const bool fits = self && sequential->type == &oct_sequential_type;
    const size_t at = fits ? count_items(self) : 0;
    OCT_CHECK(item && *item, OCT_USAGE, "the module to append to a sequential is NULL");
    if (!fits || at == OCT_SEQUENTIAL_MAX) {
        oct_module_destroy(item);
        return oct_fail(OCT_USAGE,
                        fits ? "a sequential holds at most %d modules; put one inside another"
                             : "modules can be appended only to a sequential, which holds up to %d",
                        OCT_SEQUENTIAL_MAX);
    }
    char name[24];
    snprintf(name, sizeof name, "%zu", at);
    self->items[at] = *item;
    *item = NULL;
    return oct_module_add_child(sequential, name, &self->items[at]);
}
