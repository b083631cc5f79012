/* Random networks: a plan drawn from a seed, and module trees made of it. A body is a container whose
 * forward interprets a list of operations over the values made so far; a body may loop, in a marked
 * dynamic block, and may branch on training. The same plan gives the same tree as often as one likes. */
#pragma once

#include "core/base/rng.h"
#include "quant/convert/convert.h"
#include "quant/prepare/report.h"
#include "tests/quant/own_methods.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RN_OPS = 28,
    RN_VALUES = RN_OPS + 2,
    RN_CHILDREN = RN_OPS,
    RN_BODIES = 6,
    RN_SETTERS = 6,
    RN_HOOKS = 3,
    RN_PATHS = 96,
    RN_CHANNELS = 24, /* of a value, at most */
};

/* name, draws out of their sum */
#define RN_KINDS(X)                                                                                \
    X(CONV, "conv2d", 20)                                                                          \
    X(CONV_TRANSPOSE, "conv_transpose2d", 4)                                                       \
    X(LINEAR, "linear", 8)                                                                         \
    X(BATCH_NORM, "batch_norm", 8)                                                                 \
    X(RELU, "relu", 8)                                                                             \
    X(RELU6, "relu6", 4)                                                                           \
    X(ADD, "add", 12)                                                                              \
    X(MUL, "mul", 7)                                                                               \
    X(SUB, "sub", 4)                                                                               \
    X(CONCAT, "concat", 7)                                                                         \
    X(MAX_POOL, "max_pool", 4)                                                                     \
    X(AVG_POOL, "avg_pool", 3)                                                                     \
    X(GLOBAL_POOL, "global_avg_pool", 2)                                                           \
    X(FLATTEN, "flatten", 2)                                                                       \
    X(RESHAPE, "reshape", 2)                                                                       \
    X(SQUEEZE, "squeeze", 2)                                                                       \
    X(MOVE, "move", 6)                                                                             \
    X(PAD, "pad", 3)                                                                               \
    X(INTERPOLATE, "interpolate", 4)                                                               \
    X(SIGMOID, "sigmoid", 3)                                                                       \
    X(SILU, "silu", 2)                                                                             \
    X(HARD_SWISH, "hard_swish", 2)                                                                 \
    X(LEAKY_RELU, "leaky_relu", 2)                                                                 \
    X(HARD_SIGMOID, "hard_sigmoid", 3)                                                             \
    X(GELU, "gelu", 2)                                                                             \
    X(ABS, "abs", 1)                                                                               \
    X(CLIP, "clip", 3)                                                                             \
    X(SOFTMAX, "softmax", 2)                                                                       \
    X(ADD_SCALAR, "add_scalar", 2)                                                                 \
    X(MUL_SCALAR, "mul_scalar", 2)                                                                 \
    X(IDENTITY, "identity", 1)                                                                     \
    X(LAYER_NORM, "layer_norm", 2)                                                                 \
    X(GROUP_NORM, "group_norm", 1)                                                                 \
    X(ADD_PARAMETER, "add_parameter", 1)                                                           \
    X(MUL_PARAMETER, "mul_parameter", 1)                                                           \
    X(MEAN, "mean", 1)                                                                             \
    X(PRELU, "prelu", 2)                                                                           \
    X(DROPOUT, "dropout", 2)                                                                       \
    X(OWN, "random_own", 1)                                                                        \
    X(QUANT, "quant_stub", 1)                                                                      \
    X(DEQUANT, "dequant_stub", 1)                                                                  \
    X(BODY, "body", 6)

typedef enum rn_kind {
#define X(id, name, weight) RN_##id,
    RN_KINDS(X)
#undef X
        RN_COUNT
} rn_kind;

static const char *const rn_names[] = {
#define X(id, name, weight) name,
    RN_KINDS(X)
#undef X
};

/* What an operation is, whether a module or a function. */
typedef struct rn_layer {
    rn_kind kind;
    int inputs;
    oct_shape in[3], out; /* with a batch of 1 */
    oct_conv_geometry g;
    oct_pool_geometry pool;
    bool bias;
    double number;
    oct_interpolation mode;
    oct_move_map map;
    oct_padding padding;
    int body;
} rn_layer;

typedef enum rn_when { RN_ALWAYS, RN_TRAINING, RN_EVALUATION } rn_when;

typedef struct rn_op {
    rn_layer layer;
    rn_when when; /* in the other mode it hands input 0 on */
    int in[3];    /* values */
    int child;    /* -1: a function */
    int number;   /* of all operations of the plan */
} rn_op;

typedef struct rn_body {
    int inputs, num_ops, num_values, num_children, output;
    int first; /* value that may be read: those before it have stubs after them */
    oct_shape shape[RN_VALUES];
    bool used[RN_VALUES], loops;
    bool made[RN_VALUES]; /* by arithmetic: not an input in another shape */
    rn_op ops[RN_OPS];
    rn_layer child[RN_CHILDREN];
    char path[64]; /* with a dot after it; "" of the root */
} rn_body;

/* A user's hook that computes, on the module of a path. */
typedef struct rn_hook {
    char path[96];
    rn_kind kind;      /* of its op */
    bool pre, returns; /* returns: puts what it computes in place of what it gets */
} rn_hook;

typedef struct rn_plan {
    uint64_t seed, state;
    uint64_t
        skipped; /* operations left out where their input has their output's shape: to shrink */
    int limit, drawn; /* operations */
    rn_body body[RN_BODIES];
    int num_bodies;
    bool has_loop, branches, stubs_all_around;
    int num_stubs;
    char paths[RN_PATHS][96];
    int num_paths;
    rn_hook hooks[RN_HOOKS];
    int num_hooks;
    int runs; /* of each loop, in the next forward */
    oct_qconfig base, wide;
    oct_qconfig_setter setters[RN_SETTERS];
    oct_prepare_options options;
    oct_example example;
} rn_plan;

static inline uint32_t rn_draw(rn_plan *p, uint32_t n)
{
    uint32_t bits[4];
    oct_philox(p->seed, OCT_STREAM_TEST, p->state++, 7, bits);
    return oct_below(bits[0], n);
}

static inline bool rn_chance(rn_plan *p, uint32_t percent)
{
    return rn_draw(p, 100) < percent;
}

/* The user's own layer: a leaf of several ops, which no target knows. */
typedef struct rn_own {
    oct_module base;
    oct_scalar_args args; /* the factor */
} rn_own;

static oct_tensor *rn_own_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    return oct_add(cx, oct_mul_scalar(cx, x[0], ((rn_own *)self)->args.value),
                   oct_sigmoid(cx, x[0]));
}

static const oct_arg rn_own_arg[] = {OCT_ARG(oct_scalar_args, value, .least = -1e30, .most = 1e30)};
static const oct_arg_list rn_own_list = OCT_ARG_LIST(rn_own_arg, oct_scalar_args);
static const oct_module_type rn_own_type = {.name = "random_own",
                                            .forward = rn_own_forward,
                                            .atomic = true,
                                            OCT_MODULE_ARGS(rn_own_list, rn_own)};

/* Shapes: what an operation of this kind may be on its inputs. */

static inline int64_t rn_channels(const oct_shape *s)
{
    return s->dim[s->ndim - 1];
}

static inline bool rn_plane(const oct_shape *s)
{
    return s->ndim == 4;
}

/* Gives every side a kernel, stride, padding and dilation of its own. */
static inline void rn_uneven(rn_plan *p, oct_conv_geometry *g)
{
    g->kernel_w = 1 + (int)rn_draw(p, 3);
    g->stride_w = 1 + (int)rn_draw(p, 2);
    g->pad_top = (int)rn_draw(p, 3);
    g->pad_left = (int)rn_draw(p, 2);
    g->pad_bottom = (int)rn_draw(p, 2);
    g->pad_right = (int)rn_draw(p, 3);
    g->dilation_h = 1 + (int)rn_draw(p, 2);
    g->dilation_w = 1 + (int)rn_draw(p, 2);
}

static inline bool rn_conv(rn_plan *p, rn_layer *l, bool keep)
{
    const oct_shape *s = &l->in[0];
    int64_t in = rn_channels(s), out = 1 + rn_draw(p, rn_chance(p, 20) ? RN_CHANNELS : 9);
    int kernel = rn_chance(p, 50) ? 3 : rn_chance(p, 80) ? 1 : 2;
    int stride = rn_chance(p, 25) ? 2 : 1, groups = 1;
    if (!rn_plane(s)) return false;
    if (keep) out = in, stride = 1, kernel = kernel == 2 ? 3 : kernel;
    if (rn_chance(p, 20)) groups = (int)in, out = in * (keep || rn_chance(p, 70) ? 1 : 2);
    if (groups == 1 && in % 2 == 0 && out % 2 == 0 && rn_chance(p, 10)) groups = 2;
    int padding = rn_chance(p, 80) || keep ? kernel / 2 : 0;
    l->g = oct_conv_geometry_of(kernel, kernel, stride, padding, groups);
    if (!keep && rn_chance(p, 25)) rn_uneven(p, &l->g);
    l->bias = rn_chance(p, 50);
    const oct_conv_shape shape = oct_conv_shape_of(s->dim[1], s->dim[2], in, out, l->g);
    l->out = OCT_SHAPE(1, shape.out_h, shape.out_w, out);
    return shape.out_h >= 1 && shape.out_w >= 1 && shape.out_h <= 10 && shape.out_w <= 10 &&
           out <= RN_CHANNELS;
}

static inline bool rn_conv_transpose(rn_plan *p, rn_layer *l)
{
    const oct_shape *s = &l->in[0];
    int kernel = 2 + (int)rn_draw(p, 2), stride = 1 + (int)rn_draw(p, 2);
    int padding = (int)rn_draw(p, (uint32_t)kernel), groups = 1;
    int64_t in = rn_channels(s), out = 1 + rn_draw(p, 8);
    if (!rn_plane(s)) return false;
    if (in % 2 == 0 && out % 2 == 0 && rn_chance(p, 40)) groups = 2;
    if (rn_chance(p, 10)) groups = (int)in, out = in;
    l->g = oct_conv_geometry_of(kernel, kernel, stride, padding, groups);
    if (rn_chance(p, 50)) rn_uneven(p, &l->g);
    if (rn_chance(p, 30)) l->g.output_padding_h = l->g.stride_h - 1;
    if (rn_chance(p, 30)) l->g.output_padding_w = l->g.stride_w - 1;
    if (!oct_conv_transpose_geometry_fits(&l->g)) return false;
    l->bias = rn_chance(p, 50);
    const oct_conv_shape shape = oct_conv_transpose_shape_of(s->dim[1], s->dim[2], in, out, l->g);
    l->out = OCT_SHAPE(1, shape.out_h, shape.out_w, out);
    return shape.out_h > 0 && shape.out_w > 0 && shape.out_h <= 10 && shape.out_w <= 10;
}

static inline bool rn_pool(rn_plan *p, rn_layer *l)
{
    const oct_shape *s = &l->in[0];
    int kernel = 1 + (int)rn_draw(p, 3), stride = 1 + (int)rn_draw(p, 2);
    int padding = (int)rn_draw(p, (uint32_t)kernel / 2 + 1);
    oct_pool_geometry *g = &l->pool;
    if (!rn_plane(s)) return false;
    *g = oct_pool_geometry_of(kernel, stride, padding);
    if (rn_chance(p, 40)) {
        g->kernel_w = 1 + (int)rn_draw(p, 3);
        g->stride_w = 1 + (int)rn_draw(p, 2);
        g->pad_left = (int)rn_draw(p, (uint32_t)g->kernel_w);
        g->pad_bottom = (int)rn_draw(p, (uint32_t)kernel);
        g->pad_right = (int)rn_draw(p, (uint32_t)g->kernel_w);
    }
    g->ceil = rn_chance(p, 30);
    g->count_include_pad = l->kind == RN_AVG_POOL && rn_chance(p, 50);
    const oct_conv_shape shape = oct_pool_shape_of(s->dim[1], s->dim[2], rn_channels(s), *g);
    l->out = OCT_SHAPE(1, shape.out_h, shape.out_w, rn_channels(s));
    return oct_pool_geometry_fits(g) && shape.out_h >= 1 && shape.out_w >= 1;
}

static inline bool rn_reshape(rn_plan *p, rn_layer *l)
{
    int64_t n = oct_shape_numel(&l->in[0]), h = 1 + rn_draw(p, 4), w = 1 + rn_draw(p, 4);
    l->out = rn_chance(p, 25) ? OCT_SHAPE(1, n) : OCT_SHAPE(1, h, w, n / (h * w));
    return l->out.ndim == 2 || (n % (h * w) == 0 && n / (h * w) <= RN_CHANNELS);
}

/* Of all dimensions, or of one, which may have another size. What is left has four, or two. */
static inline bool rn_squeeze(rn_plan *p, rn_layer *l)
{
    const oct_shape *s = &l->in[0];
    int dim = rn_chance(p, 50) ? 0 : 1 + (int)rn_draw(p, (uint32_t)s->ndim - 1);
    l->number = dim;
    l->out = (oct_shape){.ndim = 1, .dim = {1}};
    for (int i = 1; i < s->ndim; i++)
        if (s->dim[i] != 1 || (dim != 0 && dim != i)) l->out.dim[l->out.ndim++] = s->dim[i];
    return l->out.ndim == 4 || l->out.ndim == 2;
}

/* A slice, a transposition, a shuffle of channels, or an image repeated by a stride of 0. */
static inline bool rn_move(rn_plan *p, rn_layer *l)
{
    oct_shape *out = &l->out;
    oct_move_map *map = &l->map;
    const int last = out->ndim - 1, axis = 1 + (int)rn_draw(p, (uint32_t)last);
    *map = oct_move_over(last, out->dim + 1);
    if (rn_chance(p, 60)) {
        const int64_t n = out->dim[axis], step = 1 + rn_draw(p, 2),
                      count = 1 + rn_draw(p, (uint32_t)n);
        const bool back = rn_chance(p, 30);
        if ((count - 1) * step >= n) return false;
        map->offset = map->stride[axis - 1] * (back ? n - 1 : n - 1 - (count - 1) * step);
        map->stride[axis - 1] *= back ? -step : step;
        map->size[axis - 1] = out->dim[axis] = count;
    } else if (rn_chance(p, 60) && axis != last) {
        const int64_t size = map->size[last - 1], stride = map->stride[last - 1];
        map->size[last - 1] = out->dim[last] = map->size[axis - 1];
        map->stride[last - 1] = map->stride[axis - 1];
        map->size[axis - 1] = out->dim[axis] = size;
        map->stride[axis - 1] = stride;
    } else if (rn_chance(p, 60)) {
        const int64_t c = out->dim[last], groups = c % 3 ? 2 : 3;
        if (c % groups) return false;
        map->size[last - 1] = c / groups;
        map->size[last] = groups;
        map->stride[last] = c / groups;
        map->dims++;
    } else {
        map->stride[axis - 1] = 0;
    }
    map->out = *out;
    return rn_channels(out) <= (out->ndim == 4 ? RN_CHANNELS : 400) && out->dim[1] <= 400;
}

/* Around images: with 0, with a number, or with values from inside. */
static inline bool rn_pad(rn_plan *p, rn_layer *l)
{
    oct_pad_shape shape;
    oct_padding *a = &l->padding;
    const double values[] = {0, 0, 0.75, -1.25};
    *a = (oct_padding){rn_draw(p, 3), rn_draw(p, 3), rn_draw(p, 3), rn_draw(p, 3), 0, 0, 0, 0};
    if (rn_chance(p, 30)) a->channels_before = rn_draw(p, 3), a->channels_after = rn_draw(p, 3);
    a->mode = (oct_pad_mode)rn_draw(p, OCT_PAD_MODES);
    a->value = values[rn_draw(p, OCT_COUNT(values))];
    if (!rn_plane(&l->in[0])) return false;
    const bool fits = oct_pad_tensor_shape(&shape, a, &l->in[0], &l->out) == OCT_OK;
    oct_fail_clear();
    return fits && rn_channels(&l->out) <= RN_CHANNELS && l->out.dim[1] <= 12 &&
           l->out.dim[2] <= 12;
}

static inline bool rn_concat(rn_layer *l)
{
    int64_t channels = 0;
    for (int i = 0; i < l->inputs; i++) {
        for (int d = 0; d < l->in[0].ndim - 1; d++)
            if (l->in[i].ndim != l->in[0].ndim || l->in[i].dim[d] != l->in[0].dim[d]) return false;
        channels += rn_channels(&l->in[i]);
    }
    l->out = l->in[0];
    l->out.dim[l->out.ndim - 1] = channels;
    return channels <= (l->out.ndim == 4 ? RN_CHANNELS : 400);
}

static inline bool rn_flat(rn_plan *p, rn_layer *l)
{
    int64_t plane = l->in[0].dim[1] * l->in[0].dim[2];
    l->bias = rn_chance(p, 60);
    if (l->kind == RN_LINEAR) {
        l->out = l->in[0];
        l->out.dim[l->out.ndim - 1] = 1 + rn_draw(p, 12);
        return l->out.ndim == 2 || rn_chance(p, 20);
    }
    l->out = OCT_SHAPE(1, l->kind == RN_FLATTEN ? plane * rn_channels(&l->in[0])
                                                : rn_channels(&l->in[0]));
    return l->in[0].ndim == 4;
}

static inline bool rn_mean(rn_layer *l)
{
    l->out = OCT_SHAPE(1, 1, 1, rn_channels(&l->in[0]));
    return rn_plane(&l->in[0]);
}

static inline bool rn_interpolate(rn_plan *p, rn_layer *l)
{
    l->mode = (oct_interpolation)rn_draw(p, OCT_INTERPOLATIONS);
    l->out = OCT_SHAPE(1, 1 + rn_draw(p, 9), 1 + rn_draw(p, 9), rn_channels(&l->in[0]));
    return rn_plane(&l->in[0]);
}

/* Of one shape, or one repeats. */
static inline bool rn_two(rn_layer *l, bool keep)
{
    oct_broadcast b;
    if (!oct_broadcast_of(&l->in[0], &l->in[1], &b)) return false;
    l->out = l->in[oct_broadcast_larger(&b)];
    return !keep || oct_shape_equal(&l->in[0], &l->out);
}

/* Draws the rest of an operation; false: its inputs do not suit. keep: the output has the input's shape. */
static inline bool rn_settle(rn_plan *p, rn_layer *l, bool keep)
{
    l->out = l->in[0];
    l->number = (double)((int)rn_draw(p, 17) - 8) / 4;
    if (l->kind == RN_LEAKY_RELU) l->number = (1 + rn_draw(p, 4)) * 0.125;
    if (l->kind == RN_CONV) return rn_conv(p, l, keep);
    if (l->kind == RN_ADD || l->kind == RN_MUL || l->kind == RN_SUB) return rn_two(l, keep);
    if (l->kind == RN_PRELU || l->kind == RN_DROPOUT) return true;
    if (l->kind == RN_BATCH_NORM) return rn_channels(&l->in[0]) <= 64;
    if (l->kind == RN_SIGMOID || l->kind == RN_BATCH_NORM || l->kind == RN_OWN) return true;
    if (l->kind >= RN_LAYER_NORM && l->kind <= RN_MUL_PARAMETER) return true;
    if (l->kind >= RN_SILU && l->kind <= RN_IDENTITY) return true;
    if (l->kind == RN_RELU || l->kind == RN_RELU6) return true;
    if (keep || l->kind == RN_BODY) return false;
    if (l->kind == RN_QUANT || l->kind == RN_DEQUANT) return true;
    if (l->kind == RN_CONV_TRANSPOSE) return rn_conv_transpose(p, l);
    if (l->kind == RN_MAX_POOL || l->kind == RN_AVG_POOL) return rn_pool(p, l);
    if (l->kind == RN_RESHAPE) return rn_reshape(p, l);
    if (l->kind == RN_SQUEEZE) return rn_squeeze(p, l);
    if (l->kind == RN_MOVE) return rn_move(p, l);
    if (l->kind == RN_PAD) return rn_pad(p, l);
    if (l->kind == RN_CONCAT) return rn_concat(l);
    if (l->kind == RN_MEAN) return rn_mean(l);
    if (l->kind == RN_INTERPOLATE) return rn_interpolate(p, l);
    return rn_flat(p, l);
}

static inline bool rn_is_function(rn_kind kind)
{
    return kind != RN_CONV && kind != RN_CONV_TRANSPOSE && kind != RN_LINEAR &&
           kind != RN_BATCH_NORM && kind < RN_IDENTITY;
}

/* A child that could do this too, or -1: modules are called twice and thrice. */
static inline int rn_shared(rn_plan *p, const rn_body *b, rn_layer *l)
{
    int first = b->num_children ? (int)rn_draw(p, (uint32_t)b->num_children) : 0;
    for (int i = 0; i < b->num_children; i++) {
        int c = (first + i) % b->num_children;
        const rn_layer *child = &b->child[c];
        bool same = child->kind == l->kind && child->inputs == l->inputs;
        for (int k = 0; same && k < l->inputs; k++)
            same = oct_shape_equal(&child->in[k], &l->in[k]);
        if (!same || l->kind == RN_QUANT) continue;
        *l = *child;
        return c;
    }
    return -1;
}

static inline int rn_add_child(rn_plan *p, rn_body *b, const rn_layer *l)
{
    b->child[b->num_children] = *l;
    char path[96];
    snprintf(path, sizeof path, "%sc%d", b->path, b->num_children);
    if (p->num_paths < RN_PATHS) memcpy(p->paths[p->num_paths++], path, sizeof path);
    return b->num_children++;
}

static inline void rn_append(rn_plan *p, rn_body *b, const rn_layer *l, const int *in, int child)
{
    rn_op *op = &b->ops[b->num_ops++];
    *op = (rn_op){.layer = *l, .child = child, .number = p->drawn++};
    for (int k = 0; k < l->inputs; k++) {
        op->in[k] = in[k];
        b->used[in[k]] = true;
    }
    bool moves = l->kind == RN_IDENTITY || l->kind == RN_RESHAPE || l->kind == RN_FLATTEN ||
                 l->kind == RN_SQUEEZE || l->kind == RN_MOVE || l->kind == RN_PAD ||
                 l->kind == RN_QUANT || l->kind == RN_DEQUANT;
    const rn_body *body = &p->body[l->body];
    if (l->kind == RN_BODY) moves = !body->made[body->output];
    b->made[b->num_values] = b->made[in[0]] || !moves;
    b->shape[b->num_values++] = l->out;
}

/* Mostly the last value; sometimes one that has no reader yet, or any. */
static inline int rn_pick(rn_plan *p, const rn_body *b)
{
    int first = b->first;
    if (rn_chance(p, 50)) return b->num_values - 1;
    for (int v = b->num_values - 1; v >= first && rn_chance(p, 75); v--)
        if (!b->used[v]) return v;
    return first + (int)rn_draw(p, (uint32_t)(b->num_values - first));
}

/* A further operand: another value of the first one's shape or one that repeats, if there is one, sometimes the
 * same. */
static inline int rn_pick_other(rn_plan *p, const rn_body *b, int first)
{
    int from = (int)rn_draw(p, (uint32_t)(b->num_values - b->first));
    for (int i = 0; i < b->num_values - b->first && !rn_chance(p, 8); i++) {
        int v = b->first + (from + i) % (b->num_values - b->first);
        oct_broadcast shapes;
        if (v == first) continue;
        if (oct_shape_equal(&b->shape[v], &b->shape[first])) return v;
        if (oct_broadcast_of(&b->shape[v], &b->shape[first], &shapes) && rn_chance(p, 60)) return v;
    }
    return rn_chance(p, 30) ? first : rn_pick(p, b);
}

/* What tends to follow, so that there is something to fuse. */
static inline rn_kind rn_pick_kind(rn_plan *p, const rn_body *b)
{
    static const int weights[] = {
#define X(id, name, weight) weight,
        RN_KINDS(X)
#undef X
    };
    rn_kind last = b->num_ops ? b->ops[b->num_ops - 1].layer.kind : RN_COUNT;
    bool layer = last == RN_CONV || last == RN_CONV_TRANSPOSE || last == RN_LINEAR;
    if (layer && rn_chance(p, 50)) return RN_BATCH_NORM;
    if ((layer || last == RN_BATCH_NORM) && rn_chance(p, 30)) return RN_ADD;
    if ((layer || last == RN_BATCH_NORM || last == RN_ADD) && rn_chance(p, 45))
        return rn_chance(p, 75) ? RN_RELU : RN_RELU6;
    int sum = 0, drawn;
    for (int k = 0; k < RN_COUNT; k++)
        sum += weights[k];
    drawn = (int)rn_draw(p, (uint32_t)sum);
    for (int k = 0;; k++)
        if ((drawn -= weights[k]) < 0) return (rn_kind)k;
}

static inline void rn_grow(rn_plan *p, int body, int ops);

/* A body inside of this one: a container, or a loop over its first input. */
static inline bool rn_nest(rn_plan *p, rn_body *b, rn_layer *l)
{
    if (p->num_bodies == RN_BODIES || b->loops || p->num_paths > RN_PATHS / 2) return false;
    l->body = p->num_bodies++;
    rn_body *made = &p->body[l->body];
    char path[sizeof made->path];
    int paths = p->num_paths;
    *made = (rn_body){.inputs = l->inputs, .num_values = l->inputs, .loops = rn_chance(p, 35)};
    snprintf(path, sizeof path, "%.40sc%d.", b->path, b->num_children);
    memcpy(made->path, path, sizeof path);
    for (int k = 0; k < l->inputs; k++)
        made->shape[k] = l->in[k];
    rn_grow(p, l->body, 2 + (int)rn_draw(p, 5));
    l->out = made->shape[made->output];
    if (made->num_ops == 0) { /* there is no such body */
        p->num_bodies = l->body;
        p->num_paths = paths;
        return false;
    }
    p->has_loop |= made->loops;
    return true;
}

static inline bool rn_step(rn_plan *p, int body)
{
    rn_body *b = &p->body[body];
    rn_layer l = {.kind = rn_pick_kind(p, b), .inputs = 1};
    int in[3], child = -1;
    if (l.kind == RN_ADD || l.kind == RN_MUL || l.kind == RN_SUB) l.inputs = 2;
    if (l.kind == RN_CONCAT) l.inputs = 2 + (int)rn_draw(p, 2);
    if (l.kind == RN_BODY) l.inputs = 1 + (int)rn_draw(p, 2);
    for (int k = 0; k < l.inputs; k++) {
        in[k] = k == 0 ? rn_pick(p, b) : rn_pick_other(p, b, in[0]);
        l.in[k] = b->shape[in[k]];
    }
    bool shared = rn_chance(p, 20);
    if (shared) child = rn_shared(p, b, &l);
    if (child >= 0 && b->loops && !oct_shape_equal(&l.out, &l.in[0])) return false;
    if (child < 0) {
        bool fits = l.kind == RN_BODY ? rn_nest(p, b, &l) : rn_settle(p, &l, b->loops);
        if (!fits) return false;
        bool module = !rn_is_function(l.kind) || rn_chance(p, 40);
        if (module) child = rn_add_child(p, b, &l);
    }
    p->num_stubs += l.kind == RN_QUANT || l.kind == RN_DEQUANT;
    rn_append(p, b, &l, in, child);
    return true;
}

/* In a loop all values have the first input's shape; its output is the last value. */
static inline void rn_grow(rn_plan *p, int body, int ops)
{
    rn_body *b = &p->body[body];
    for (int tries = 0; tries < 40 && b->num_ops < ops && p->drawn < p->limit; tries++)
        rn_step(p, body);
    b->output = b->num_values - 1;
    if (!b->loops) return;
    while (b->output >= b->inputs && !oct_shape_equal(&b->shape[b->output], &b->shape[0]))
        b->output--;
    if (b->output < b->inputs) b->num_ops = 0; /* not what a loop could hand to itself */
}

static inline void rn_stub(rn_plan *p, rn_kind kind, int value)
{
    rn_body *b = &p->body[0];
    rn_layer l = {.kind = kind, .inputs = 1, .in = {b->shape[value]}, .out = b->shape[value]};
    rn_append(p, b, &l, &value, rn_add_child(p, b, &l));
    p->num_stubs++;
}

static inline void rn_draw_root(rn_plan *p)
{
    rn_body *b = &p->body[p->num_bodies++];
    int inputs = b->inputs = b->num_values = rn_chance(p, 25) ? 2 : 1;
    bool around = p->stubs_all_around = rn_chance(p, 50);
    p->example.count = inputs;
    for (int k = 0; k < inputs; k++) {
        bool flat = rn_chance(p, 8);
        int64_t h = 1 + rn_draw(p, 8), w = 1 + rn_draw(p, 8), c = 1 + rn_draw(p, 6);
        if (k > 0 && rn_chance(p, 50))
            b->shape[k] = b->shape[0];
        else
            b->shape[k] = flat ? OCT_SHAPE(1, 1 + h * c) : OCT_SHAPE(1, h, w, c);
        p->example.shape[k] = b->shape[k];
    }
    for (int k = 0; k < inputs; k++) {
        if (!around && !rn_chance(p, 15)) continue;
        rn_stub(p, RN_QUANT, k);
    }
    if (around) b->first = inputs;
    rn_grow(p, 0, RN_OPS - 6 - (int)rn_draw(p, 18));
    int last = b->num_values - 1;
    rn_layer shift = {.kind = RN_ADD_SCALAR, .inputs = 1, .number = 0.5};
    shift.in[0] = shift.out = b->shape[last];
    if (!b->made[last]) rn_append(p, b, &shift, &last, -1);
    if (around || rn_chance(p, 15)) rn_stub(p, RN_DEQUANT, b->num_values - 1);
    b->output = b->num_values - 1;
}

/* Methods of quantization that are a user's own. */
static inline void rn_draw_methods(rn_plan *p)
{
    const oct_fake_quant_kind *weights =
        rn_chance(p, 50) ? &lsq_fake_quant : &lsq_tensor_fake_quant;
    if (rn_chance(p, 20)) p->base.observer = p->wide.observer = &common_values_observer;
    if (rn_chance(p, 20)) p->base.weight_fake_quant = p->wide.weight_fake_quant = weights;
    const oct_fake_quant_kind *const kinds[] = {&lsq_fake_quant, &oct_fake_quant_asymmetric,
                                                &lsq_asymmetric_fake_quant};
    const uint32_t choice = p->options.target->zero_points ? 3 : 1;
    if (rn_chance(p, 40)) p->base.fake_quant = p->wide.fake_quant = kinds[rn_draw(p, choice)];
}

/* One of the list, mostly the first. Draws of its own, so that networks are those that they were with two
 * targets. */
static inline const oct_target *rn_target(const rn_plan *p, bool shift)
{
    rn_plan draws = {.seed = p->seed, .state = 1 << 22};
    const char *name = shift && rn_chance(&draws, 30)   ? "espdl-s3"
                       : shift && rn_chance(&draws, 30) ? "espdl-p4"
                       : shift                          ? "pow2"
                       : rn_chance(&draws, 30)          ? "onnxruntime"
                       : rn_chance(&draws, 30)          ? "tflite"
                       : rn_chance(&draws, 40)          ? "tflm"
                       : rn_chance(&draws, 20)          ? "bpu"
                                                        : "x86";
    return oct_target_find(name);
}

/* Setters and options; what the target forbids is not asked for. */
static inline void rn_draw_options(rn_plan *p)
{
    const bool shift = rn_chance(p, 20);
    const oct_target *target = rn_target(p, shift);
    const bool has_wide = target->wide_codes;
    int n = 0;
    p->base = oct_qconfig_default();
    p->base.current_scales = rn_chance(p, 30);
    if (rn_chance(p, 30)) p->base.observer = oct_observer_find("min_max");
    if (!shift && rn_chance(p, 10)) p->base.bits = has_wide ? 16 : 8;
    p->base.float_output = rn_chance(p, 20);
    p->wide = p->base;
    p->wide.bits = 16;
    for (int k = 0; k < 4 && p->num_paths; k++) {
        const char *path = p->paths[rn_draw(p, (uint32_t)p->num_paths)];
        bool none = rn_chance(p, 40), wide = rn_chance(p, 40);
        if (none)
            p->setters[n++] = oct_setter_by_name(path, NULL);
        else if (wide && has_wide)
            p->setters[n++] = oct_setter_by_name(path, &p->wide);
        if (rn_chance(p, 50)) break;
    }
    if (rn_chance(p, 20)) p->setters[n++] = oct_setter_float_output();
    p->setters[n++] = oct_setter_default(&p->base);
    p->options = (oct_prepare_options){.target = target,
                                       .setters = p->setters,
                                       .num_setters = (size_t)n,
                                       .fold_batch_norm = shift || rn_chance(p, 15),
                                       .shared_range = rn_chance(p, 20)};
    rn_draw_methods(p);
}

/* Networks in order, each a few operations: what comes before a stub, the stub, `length` operations that
 * may read what the stub made, in a loop or not, and a stub after them. Number by number they are all
 * that there are. */
enum { RN_SMALL_FRAMES = 3 * 2 * 2 * 2, RN_SMALL_OPS = 6 };

static inline long rn_small_count(int length)
{
    long count = RN_SMALL_FRAMES;
    for (int i = 0; i < length; i++)
        count *= RN_SMALL_OPS;
    return count;
}

static inline int rn_small_append(rn_plan *p, int body, rn_kind kind, int a, int b)
{
    rn_body *in = &p->body[body];
    rn_layer l = {.kind = kind, .inputs = kind == RN_ADD ? 2 : 1, .number = -1};
    int values[2] = {a, b}, child = -1;
    l.in[0] = l.in[1] = l.out = in->shape[a];
    l.g = oct_conv_geometry_of(1, 1, 1, 0, 1);
    p->num_stubs += kind == RN_QUANT || kind == RN_DEQUANT;
    if (!rn_is_function(kind)) child = rn_add_child(p, in, &l);
    rn_append(p, in, &l, values, child);
    return in->num_values - 1;
}

static inline int rn_small_ops(rn_plan *p, int body, long number, int length, int last, int base)
{
    static const rn_kind kinds[RN_SMALL_OPS] = {RN_CONV, RN_ADD,        RN_BATCH_NORM,
                                                RN_RELU, RN_ADD_SCALAR, RN_QUANT};
    for (int i = 0; i < length; i++, number /= RN_SMALL_OPS)
        last = rn_small_append(p, body, kinds[number % RN_SMALL_OPS], last, base);
    p->body[body].output = last;
    return last;
}

static inline int rn_small_loop(rn_plan *p, long number, int length, int last)
{
    rn_body *loop = &p->body[p->num_bodies++];
    rn_layer l = {.kind = RN_BODY, .inputs = 2, .body = 1};
    l.in[0] = l.in[1] = l.out = p->body[0].shape[last];
    *loop = (rn_body){.inputs = 2, .num_values = 2, .loops = true};
    loop->shape[0] = loop->shape[1] = l.out;
    snprintf(loop->path, sizeof loop->path, "c%d.", p->body[0].num_children);
    int child = rn_add_child(p, &p->body[0], &l);
    rn_small_ops(p, 1, number, length, 0, 1);
    p->has_loop = true;
    rn_append(p, &p->body[0], &l, (int[]){last, last}, child);
    return p->body[0].num_values - 1;
}

static inline void rn_small(rn_plan *p, long number, int length)
{
    static const rn_kind before[] = {RN_COUNT, RN_ADD_SCALAR, RN_CONV};
    *p = (rn_plan){.seed = (uint64_t)number, .runs = 2, .num_bodies = 1};
    rn_body *root = &p->body[0];
    *root = (rn_body){.inputs = 1, .num_values = 1, .shape = {OCT_SHAPE(1, 2, 2, 2)}};
    p->example = (oct_example){.count = 1, .shape = {root->shape[0]}};
    int pre = (int)(number % 3), last = 0;
    bool stub = number / 3 % 2, tail = number / 6 % 2, loops = number / 12 % 2;
    if (pre) last = rn_small_append(p, 0, before[pre], last, last);
    if (stub) last = rn_small_append(p, 0, RN_QUANT, last, last);
    number /= RN_SMALL_FRAMES;
    last = loops ? rn_small_loop(p, number, length, last)
                 : rn_small_ops(p, 0, number, length, last, last);
    if (tail) last = rn_small_append(p, 0, RN_DEQUANT, last, last);
    root->output = last;
    p->stubs_all_around = !pre && stub && tail;
    p->base = oct_qconfig_default();
    p->setters[0] = oct_setter_default(&p->base);
    p->options = (oct_prepare_options){
        .target = oct_target_find("x86"), .setters = p->setters, .num_setters = 1};
}

/* A draw of its own, so that networks are those that they were without hooks. */
static inline void rn_draw_hooks(rn_plan *p)
{
    static const rn_kind kinds[] = {RN_RELU, RN_SIGMOID, RN_SOFTMAX, RN_MUL_SCALAR, RN_LEAKY_RELU};
    rn_plan draws = {.seed = p->seed, .state = 1 << 21};
    if (!p->num_paths || !rn_chance(&draws, 30)) return;
    for (int i = 0; i < RN_HOOKS; i++) {
        rn_hook *h = &p->hooks[p->num_hooks++];
        const char *path = p->paths[rn_draw(&draws, (uint32_t)p->num_paths)];
        *h = (rn_hook){.kind = kinds[rn_draw(&draws, OCT_COUNT(kinds))],
                       .pre = rn_chance(&draws, 50),
                       .returns = rn_chance(&draws, 70)};
        memcpy(h->path, path, sizeof h->path);
        if (rn_chance(&draws, 50)) break;
    }
}

/* Some operations become those of one mode only. */
static inline void rn_draw_branches(rn_plan *p)
{
    if (!rn_chance(p, 25)) return;
    for (int i = 0; i < p->num_bodies; i++)
        for (int k = 0; k < p->body[i].num_ops; k++) {
            rn_op *op = &p->body[i].ops[k];
            const rn_layer *l = &op->layer;
            bool stub = l->kind == RN_QUANT || l->kind == RN_DEQUANT;
            if (stub || !oct_shape_equal(&l->in[0], &l->out) || !rn_chance(p, 20)) continue;
            op->when = rn_chance(p, 50) ? RN_TRAINING : RN_EVALUATION;
            p->branches = true;
        }
}

/* limit: operations at most. */
static inline void rn_plan_draw(rn_plan *p, uint64_t seed, int limit)
{
    *p = (rn_plan){.seed = seed, .limit = limit, .runs = 2};
    rn_draw_root(p);
    rn_draw_options(p);
    rn_draw_hooks(p);
    rn_draw_branches(p);
}

/* Whether to hand input 0 on instead; stubs stay where they are. */
static inline bool rn_skips(const rn_plan *p, const rn_op *op)
{
    const rn_layer *l = &op->layer;
    return op->number < 64 && p->skipped >> op->number & 1 && l->kind != RN_QUANT &&
           l->kind != RN_DEQUANT && oct_shape_equal(&l->in[0], &l->out);
}

/* A body's module. */
typedef struct rn_module {
    oct_module base;
    oct_module *child[RN_CHILDREN];
    const rn_plan *plan;
    const rn_body *body;
} rn_module;

static inline oct_tensor *rn_function(oct_context *cx, const rn_layer *l, oct_tensor *const *x)
{
    switch ((int)l->kind) {
    case RN_RELU:
        return oct_relu(cx, x[0]);
    case RN_RELU6:
        return oct_relu6(cx, x[0]);
    case RN_ADD:
        return oct_add(cx, x[0], x[1]);
    case RN_MUL:
        return oct_mul(cx, x[0], x[1]);
    case RN_SUB:
        return oct_sub(cx, x[0], x[1]);
    case RN_HARD_SIGMOID:
        return oct_hard_sigmoid(cx, x[0], 0.2, 0.5);
    case RN_GELU:
        return oct_gelu(cx, x[0]);
    case RN_ABS:
        return oct_abs(cx, x[0]);
    case RN_CLIP:
        return oct_clip(cx, x[0], -fabs(l->number), 0.5);
    case RN_CONCAT:
        return oct_concat(cx, x, l->inputs);
    case RN_MAX_POOL:
        return oct_max_pool(cx, x[0], l->pool);
    case RN_AVG_POOL:
        return oct_avg_pool(cx, x[0], l->pool);
    case RN_GLOBAL_POOL:
        return oct_global_avg_pool(cx, x[0]);
    case RN_FLATTEN:
        return oct_flatten(cx, x[0]);
    case RN_RESHAPE:
        return oct_reshape(cx, x[0], l->out);
    case RN_SQUEEZE:
        return l->number > 0 ? oct_squeeze_dim(cx, x[0], (int)l->number) : oct_squeeze(cx, x[0]);
    case RN_MOVE:
        return oct_move(cx, x[0], &l->map);
    case RN_PAD:
        return oct_pad(cx, x[0], &l->padding);
    case RN_INTERPOLATE:
        return oct_interpolate(cx, x[0], l->out.dim[1], l->out.dim[2], l->mode);
    case RN_SIGMOID:
        return oct_sigmoid(cx, x[0]);
    case RN_SILU:
        return oct_silu(cx, x[0]);
    case RN_HARD_SWISH:
        return oct_hard_swish(cx, x[0]);
    case RN_LEAKY_RELU:
        return oct_leaky_relu(cx, x[0], l->number);
    case RN_SOFTMAX:
        return oct_softmax(cx, x[0]);
    case RN_ADD_SCALAR:
        return oct_add_scalar(cx, x[0], l->number);
    default:
        return oct_mul_scalar(cx, x[0], l->number);
    }
}

/* One pass through a body's operations. */
static inline oct_tensor *rn_pass(oct_context *cx, rn_module *m, oct_tensor *const *in)
{
    const rn_body *b = m->body;
    oct_tensor *value[RN_VALUES] = {0};
    memcpy(value, in, (size_t)b->inputs * sizeof *in);
    for (int i = 0; i < b->num_ops; i++) {
        const rn_op *op = &b->ops[i];
        const rn_layer *l = &op->layer;
        oct_tensor *x[3] = {value[op->in[0]], value[op->in[1]], value[op->in[2]]}, *y = x[0];
        bool due = op->when != (m->base.training ? RN_EVALUATION : RN_TRAINING);
        if (due && !rn_skips(m->plan, op))
            y = op->child < 0 ? rn_function(cx, l, x)
                              : oct_module_call(cx, m->child[op->child], x, l->inputs);
        value[b->inputs + i] = y;
    }
    return value[b->output];
}

static oct_tensor *rn_forward(oct_context *cx, oct_module *self, oct_tensor *const *in, int n)
{
    rn_module *m = (rn_module *)self;
    oct_tensor *x[2] = {in[0], n > 1 ? in[1] : NULL};
    if (!m->body->loops) return rn_pass(cx, m, x);
    for (int i = 0; i < m->plan->runs; i++) {
        oct_dynamic_block_begin(cx, self, "turn");
        x[0] = rn_pass(cx, m, x);
        oct_dynamic_block_end(cx);
    }
    return x[0];
}

static const oct_module_type rn_type = {
    .name = "random", .forward = rn_forward, .calls_only = true};

static inline oct_status rn_build_body(oct_module **m, const rn_plan *p, int body);

static inline oct_status rn_build(oct_module **m, const rn_plan *p, const rn_layer *l)
{
    const oct_conv_geometry *g = &l->g;
    int64_t in = rn_channels(&l->in[0]), out = rn_channels(&l->out);
    switch ((int)l->kind) {
    case RN_CONV:
        return oct_conv2d_create(m, in, out, *g, l->bias);
    case RN_CONV_TRANSPOSE:
        return oct_conv_transpose2d_create(m, in, out, *g, l->bias);
    case RN_LINEAR:
        return oct_linear_create(m, in, out, l->bias);
    case RN_BATCH_NORM:
        return oct_batch_norm_create(m, in);
    case RN_RELU:
        return oct_relu_create(m);
    case RN_RELU6:
        return oct_relu6_create(m);
    case RN_ADD:
        return oct_add_create(m);
    case RN_MUL:
        return oct_mul_create(m);
    case RN_SUB:
        return oct_sub_create(m);
    case RN_HARD_SIGMOID:
        return oct_hard_sigmoid_create(m, 0.2, 0.5);
    case RN_GELU:
        return oct_gelu_create(m);
    case RN_ABS:
        return oct_abs_create(m);
    case RN_CLIP:
        return oct_clip_create(m, -fabs(l->number), 0.5);
    case RN_PRELU:
        return oct_prelu_create(m, l->number > 0 ? in : 1);
    case RN_DROPOUT:
        return oct_dropout_create(m, 0.25);
    case RN_CONCAT:
        return oct_concat_create(m);
    case RN_MAX_POOL:
        return oct_max_pool_create(m, l->pool);
    case RN_AVG_POOL:
        return oct_avg_pool_create(m, l->pool);
    case RN_GLOBAL_POOL:
        return oct_global_avg_pool_create(m);
    case RN_FLATTEN:
        return oct_flatten_create(m);
    case RN_RESHAPE:
        return oct_reshape_create(m, l->out);
    case RN_SQUEEZE:
        return l->number > 0 ? oct_squeeze_dim_create(m, (int)l->number) : oct_squeeze_create(m);
    case RN_MOVE:
        return oct_move_create(m, &l->map);
    case RN_PAD:
        return oct_pad_create(m, &l->padding);
    case RN_INTERPOLATE:
        return oct_interpolate_create(m, l->out.dim[1], l->out.dim[2], l->mode);
    case RN_SIGMOID:
        return oct_sigmoid_create(m);
    case RN_SILU:
        return oct_silu_create(m);
    case RN_HARD_SWISH:
        return oct_hard_swish_create(m);
    case RN_LEAKY_RELU:
        return oct_leaky_relu_create(m, l->number);
    case RN_SOFTMAX:
        return oct_softmax_create(m);
    case RN_ADD_SCALAR:
        return oct_add_scalar_create(m, l->number);
    case RN_MUL_SCALAR:
        return oct_mul_scalar_create(m, l->number);
    case RN_IDENTITY:
        return oct_identity_create(m);
    case RN_LAYER_NORM:
        return oct_layer_norm_create(m, in, 1e-2);
    case RN_GROUP_NORM:
        return oct_group_norm_create(m, in % 2 == 0 ? 2 : 1, in, 1e-2);
    case RN_ADD_PARAMETER:
        return oct_add_parameter_create(m, oct_shape_of(l->in[0].ndim - 1, l->in[0].dim + 1));
    case RN_MUL_PARAMETER:
        return oct_mul_parameter_create(m,
                                        l->in[0].ndim == 4 ? OCT_SHAPE(1, 1, in) : OCT_SHAPE(in));
    case RN_MEAN:
        return oct_mean_create(m, OCT_MEAN_PLANE, true);
    case RN_OWN:
        return oct_module_make(m, &rn_own_type, &(oct_scalar_args){l->number});
    case RN_QUANT:
        return oct_quant_stub_create(m);
    case RN_DEQUANT:
        return oct_dequant_stub_create(m);
    default:
        return rn_build_body(m, p, l->body);
    }
}

static inline oct_status rn_build_body(oct_module **m, const rn_plan *p, int body)
{
    OCT_TRY(oct_module_alloc(m, &rn_type, sizeof(rn_module)));
    rn_module *made = (rn_module *)*m;
    made->plan = p;
    made->body = &p->body[body];
    for (int c = 0; c < made->body->num_children; c++) {
        char name[16];
        snprintf(name, sizeof name, "c%d", c);
        OCT_TRY(rn_build(&made->child[c], p, &made->body->child[c]));
        OCT_TRY(oct_module_add_child(*m, name, &made->child[c]));
    }
    return OCT_OK;
}

/* Gammas below 0 and of 0, running statistics that are not those of a new layer. */
static inline oct_status rn_randomise(void *user, oct_module *m)
{
    rn_plan *draws = user;
    if (m->type != &oct_batch_norm_type) return OCT_OK;
    oct_batch_norm_module *bn = (oct_batch_norm_module *)m;
    for (int64_t c = 0; c < bn->args.channels; c++) {
        float sign = rn_chance(draws, 5) ? 0.0f : rn_chance(draws, 30) ? -1.0f : 1.0f;
        oct_f32(&bn->gamma->value)[c] = sign * (0.4f + 0.1f * (float)rn_draw(draws, 10));
        oct_f32(&bn->beta->value)[c] = 0.1f * (float)rn_draw(draws, 12) - 0.5f;
        bn->running_mean[c] = 0.05f * (float)rn_draw(draws, 8) - 0.2f;
        bn->running_var[c] = 0.3f + 0.2f * (float)rn_draw(draws, 6);
    }
    return OCT_OK;
}

static oct_tensor *rn_run_hook(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    const rn_hook *h = user;
    const rn_layer l = {.kind = h->kind, .number = 0.5};
    oct_tensor *y = rn_function(cx, &l, (oct_tensor *[]){value, value, value});
    (void)module;
    return h->returns ? y : NULL;
}

static inline oct_status rn_add_hooks(oct_module *root, rn_plan *p)
{
    for (int i = 0; i < p->num_hooks; i++) {
        rn_hook *h = &p->hooks[i];
        oct_module *m = oct_module_find(root, h->path);
        OCT_TRY(h->pre ? oct_module_pre_hook(m, rn_run_hook, h, NULL)
                       : oct_module_hook(m, rn_run_hook, h, NULL));
    }
    return OCT_OK;
}

/* The float model of a plan, which must outlive it. */
static inline oct_status rn_create(oct_module **root, rn_plan *p)
{
    rn_plan draws = {.seed = p->seed, .state = 1 << 20};
    OCT_TRY(rn_build_body(root, p, 0));
    OCT_TRY(oct_init_parameters(*root, p->seed));
    OCT_TRY(rn_add_hooks(*root, p));
    return oct_module_walk(*root, rn_randomise, &draws);
}

/* Whether every value reaches the output. */
static inline bool rn_all_used(const rn_plan *p)
{
    for (int i = 0; i < p->num_bodies; i++) {
        const rn_body *b = &p->body[i];
        if (b->output != b->num_values - 1) return false;
        for (int v = 0; v < b->output; v++)
            if (!b->used[v]) return false;
    }
    return true;
}

/* Whether a hook computes where jit_strip leaves all in float. */
static inline bool rn_hooks_outside(const rn_plan *p)
{
    const rn_body *b = &p->body[0];
    char path[96];
    for (int c = 0; c < b->num_children && p->num_stubs; c++) {
        bool quant = b->child[c].kind == RN_QUANT, dequant = b->child[c].kind == RN_DEQUANT;
        snprintf(path, sizeof path, "c%d", c);
        for (int i = 0; i < p->num_hooks; i++) {
            const rn_hook *h = &p->hooks[i];
            if (strcmp(h->path, path) == 0 && ((quant && h->pre) || (dequant && !h->pre)))
                return true;
        }
    }
    return false;
}

/* Whether jit_strip quantizes the same parts as the other methods. */
static inline bool rn_quantizes_the_same(const rn_plan *p)
{
    bool around = p->stubs_all_around && p->num_stubs == p->example.count + 1;
    return (around || p->num_stubs == 0) && rn_all_used(p) && !rn_hooks_outside(p) && !p->branches;
}

/* Whether anything that a body makes with this child in training reaches its output. */
static inline bool rn_reaches(const rn_plan *p, int body, int child)
{
    const rn_body *b = &p->body[body];
    bool live[RN_VALUES] = {0};
    live[b->output] = true;
    for (int i = b->num_ops - 1; i >= 0; i--) {
        const rn_op *op = &b->ops[i];
        bool due = op->when != RN_EVALUATION;
        if (!live[b->inputs + i]) continue;
        if (op->child == child && due) return true;
        for (int k = 0; k < (due ? op->layer.inputs : 1); k++)
            live[op->in[k]] = true;
    }
    return false;
}

static inline void rn_print_body(const rn_plan *p, int body, FILE *out)
{
    const rn_body *b = &p->body[body];
    fprintf(out, "  body %d%s '%s' of %d inputs gives v%d\n", body, b->loops ? " (loop)" : "",
            b->path, b->inputs, b->output);
    for (int i = 0; i < b->num_ops; i++) {
        const rn_op *op = &b->ops[i];
        const rn_layer *l = &op->layer;
        static const char *const when[] = {"", "in training ", "in evaluation "};
        fprintf(out, "    v%d = %s%s%s(", b->inputs + i, rn_skips(p, op) ? "skip " : "",
                when[op->when], rn_names[l->kind]);
        for (int k = 0; k < l->inputs; k++)
            fprintf(out, "%sv%d", k ? ", " : "", op->in[k]);
        fprintf(out, ")");
        if (op->child >= 0) fprintf(out, " by %sc%d", b->path, op->child);
        fprintf(out, " -> %s conv %s, pool %s, bias %d, %g, mode %d\n",
                oct_text_shape(&l->out).text, oct_text_conv_geometry(&l->g).text,
                oct_text_pool_geometry(&l->pool).text, l->bias, l->number, l->mode);
        if (l->kind == RN_BODY) rn_print_body(p, l->body, out);
    }
}

static inline void rn_print(const rn_plan *p, FILE *out)
{
    fprintf(out,
            "network %llu: target %s, fold %d, shared range %d, current %d, bits %d, %s, %s, %s\n",
            (unsigned long long)p->seed, p->options.target->name, p->options.fold_batch_norm,
            p->options.shared_range, p->base.current_scales, p->base.bits, p->base.observer->name,
            p->base.fake_quant->name, p->base.weight_fake_quant->name);
    for (size_t i = 0; i < p->options.num_setters; i++)
        fprintf(out, "  setter %s%s\n", p->setters[i].pattern ? p->setters[i].pattern : "",
                p->setters[i].qconfig == NULL       ? ": none"
                : p->setters[i].qconfig->bits == 16 ? ": 16 bits"
                                                    : "");
    for (int k = 0; k < p->example.count; k++)
        fprintf(out, "  input %s\n", oct_text_shape(&p->example.shape[k]).text);
    for (int i = 0; i < p->num_hooks; i++)
        fprintf(out, "  %s of %s: %s%s\n", p->hooks[i].pre ? "pre hook" : "hook", p->hooks[i].path,
                rn_names[p->hooks[i].kind], p->hooks[i].returns ? "" : ", for itself");
    rn_print_body(p, 0, out);
}
