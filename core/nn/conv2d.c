/* The convolution modules are conv2d and conv_transpose2d. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <stdio.h>

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_conv2d_module *m = (oct_conv2d_module *)self;
    if (!oct_needs_inputs(cx, self, n, 1)) return NULL;
    return oct_conv2d(cx, x[0], m->weight, m->bias, m->geometry);
}

static oct_tensor *transpose_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    oct_conv2d_module *m = (oct_conv2d_module *)self;
    if (!oct_needs_inputs(cx, self, n, 1)) return NULL;
    return oct_conv_transpose2d(cx, x[0], m->weight, m->bias, m->geometry);
}

/* Says "16 -> 32, 3x3, stride 2, padding 1, groups 4, bias", without what is the default. */
static void describe(const oct_module *self, char *text, size_t size)
{
    const oct_conv2d_module *m = (const oct_conv2d_module *)self;
    const oct_conv_geometry *g = &m->geometry;
    char stride[32] = "", padding[32] = "", groups[32] = "";
    if (g->stride != 1) snprintf(stride, sizeof stride, ", stride %d", g->stride);
    if (g->padding != 0) snprintf(padding, sizeof padding, ", padding %d", g->padding);
    if (g->groups != 1) snprintf(groups, sizeof groups, ", groups %d", g->groups);
    snprintf(text, size, "%lld -> %lld, %dx%d%s%s%s%s", (long long)m->in_channels,
             (long long)m->out_channels, g->kernel_h, g->kernel_w, stride, padding, groups,
             m->bias ? ", bias" : "");
}

static void get_args(const oct_module *self, oct_op_args *args)
{
    const oct_conv2d_module *m = (const oct_conv2d_module *)self;
    const oct_conv_geometry *g = &m->geometry;
    *args = *OCT_OP_ARGS((double)m->in_channels, (double)m->out_channels, g->kernel_h, g->kernel_w,
                         g->stride, g->padding, g->groups, m->bias != NULL);
}

/* The arguments are in, out, kernel_h, kernel_w, stride, padding, groups, bias. */
static oct_status from_args(oct_module **m, const char *name, const oct_op_args *args,
                            oct_status (*create)(oct_module **, int64_t, int64_t, oct_conv_geometry,
                                                 bool))
{
    *m = NULL;
    int64_t a[8];
    OCT_TRY(oct_args_integers(name, args, 8, a));
    oct_conv_geometry g = {.kernel_h = (int)a[2],
                           .kernel_w = (int)a[3],
                           .stride = (int)a[4],
                           .padding = (int)a[5],
                           .groups = (int)a[6]};
    return create(m, a[0], a[1], g, a[7] != 0);
}

static oct_status conv2d_from(oct_module **m, const oct_op_args *args)
{
    return from_args(m, "conv2d", args, oct_conv2d_create);
}

static oct_status transpose_from(oct_module **m, const oct_op_args *args)
{
    return from_args(m, "conv_transpose2d", args, oct_conv_transpose2d_create);
}

const oct_module_type oct_conv2d_type = {.name = "conv2d",
                                         .forward = forward,
                                         .describe = describe,
                                         .atomic = true,
                                         .create = conv2d_from,
                                         .args = get_args};
const oct_module_type oct_conv_transpose2d_type = {.name = "conv_transpose2d",
                                                   .forward = transpose_forward,
                                                   .describe = describe,
                                                   .atomic = true,
                                                   .create = transpose_from,
                                                   .args = get_args};

static oct_status check_channels(const char *name, int64_t in, int64_t out)
{
    OCT_CHECK(in >= 1 && out >= 1, OCT_USAGE, "a %s cannot have %lld -> %lld channels", name,
              (long long)in, (long long)out);
    return OCT_OK;
}

static oct_status check(int64_t in, int64_t out, const oct_conv_geometry *g)
{
    const int most = OCT_WINDOW_SIDE_MAX;
    OCT_TRY(check_channels("conv2d", in, out));
    OCT_CHECK(g->kernel_h >= 1 && g->kernel_h <= most && g->kernel_w >= 1 && g->kernel_w <= most &&
                  g->stride >= 1 && g->stride <= most && g->padding >= 0 && g->padding <= most,
              OCT_USAGE,
              "a conv2d cannot have kernel %dx%d, stride %d and padding %d; kernel and stride must "
              "be at least 1, the padding at least 0, and all at most %d",
              g->kernel_h, g->kernel_w, g->stride, g->padding, most);
    OCT_CHECK(g->groups >= 1 && in % g->groups == 0 && out % g->groups == 0, OCT_USAGE,
              "a conv2d with %lld -> %lld channels cannot have %d groups; groups must divide both",
              (long long)in, (long long)out, g->groups);
    return OCT_OK;
}

static oct_status create(oct_module **m, const oct_module_type *type, int64_t in, int64_t out,
                         oct_conv_geometry g, bool bias)
{
    const oct_shape weight = OCT_SHAPE(out, g.kernel_h, g.kernel_w, in / g.groups);
    OCT_TRY(oct_module_create(m, type, sizeof(oct_conv2d_module)));
    oct_conv2d_module *self = (oct_conv2d_module *)*m;
    self->geometry = g;
    self->in_channels = in;
    self->out_channels = out;
    return oct_add_weight(m, &weight, &self->weight, bias ? &self->bias : NULL);
}

oct_status oct_conv2d_create(oct_module **m, int64_t in, int64_t out, oct_conv_geometry g,
                             bool bias)
{
    *m = NULL;
    OCT_TRY(check(in, out, &g));
    return create(m, &oct_conv2d_type, in, out, g, bias);
}

oct_status oct_conv_transpose2d_create(oct_module **m, int64_t in, int64_t out, oct_conv_geometry g,
                                       bool bias)
{
    *m = NULL;
    OCT_TRY(check_channels("conv_transpose2d", in, out));
    OCT_CHECK(
        g.kernel_h >= 1 && g.kernel_h <= OCT_WINDOW_SIDE_MAX && g.kernel_h == g.kernel_w &&
            g.stride >= 1 && g.stride <= OCT_WINDOW_SIDE_MAX && g.padding >= 0 &&
            g.padding < g.kernel_h && g.groups == 1,
        OCT_USAGE,
        "a conv_transpose2d cannot have kernel %dx%d, stride %d, padding %d and groups %d; "
        "the kernel must be square, the stride at least 1, both at most %d, the padding below "
        "the kernel and groups 1",
        g.kernel_h, g.kernel_w, g.stride, g.padding, g.groups, OCT_WINDOW_SIDE_MAX);
    return create(m, &oct_conv_transpose2d_type, in, out, g, bias);
}
