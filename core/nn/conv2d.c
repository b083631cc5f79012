/* The convolution modules are conv2d and conv_transpose2d. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <stdio.h>

static oct_tensor *conv2d_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
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
    char windows[OCT_GEOMETRY_TEXT];
    snprintf(text, size, "%lld -> %lld, %s%s", (long long)m->in_channels,
             (long long)m->out_channels, oct_conv_geometry_text(&m->geometry, windows),
             m->bias ? ", bias" : "");
}

/* The arguments are in, out, kernel, stride, the four pads, dilation, groups, bias; of a transposed convolution
 * output padding comes after the pads. */
enum { CONV_ARGS = 14, TRANSPOSE_ARGS = 16, PAD_ARGS = 10 };

static void get_args(const oct_module *self, oct_op_args *args)
{
    const oct_conv2d_module *m = (const oct_conv2d_module *)self;
    const oct_conv_geometry *g = &m->geometry;
    *args = *OCT_OP_ARGS((double)m->in_channels, (double)m->out_channels, g->kernel_h, g->kernel_w,
                         g->stride_h, g->stride_w, g->pad_top, g->pad_left, g->pad_bottom,
                         g->pad_right, g->dilation_h, g->dilation_w, g->groups, m->bias != NULL);
}

static void get_transpose_args(const oct_module *self, oct_op_args *args)
{
    const oct_conv_geometry *g = &((const oct_conv2d_module *)self)->geometry;
    oct_op_args plain;
    get_args(self, &plain);
    *args = plain;
    args->count = TRANSPOSE_ARGS;
    args->value[PAD_ARGS] = g->output_padding_h;
    args->value[PAD_ARGS + 1] = g->output_padding_w;
    for (int i = PAD_ARGS; i < CONV_ARGS; i++)
        args->value[i + 2] = plain.value[i];
}

/* Gives the geometry of arguments from the kernel on, up to the pads, and from the dilation on. */
static oct_conv_geometry geometry_of(const int64_t *a, const int64_t *after)
{
    oct_conv_geometry g = oct_conv_geometry_from(a);
    g.dilation_h = (int)after[0];
    g.dilation_w = (int)after[1];
    g.groups = (int)after[2];
    return g;
}

static oct_status conv2d_from(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    int64_t a[CONV_ARGS];
    OCT_TRY(oct_args_integers("conv2d", args, CONV_ARGS, a));
    return oct_conv2d_create(m, a[0], a[1], geometry_of(a + 2, a + PAD_ARGS), a[13] != 0);
}

static oct_status transpose_from(oct_module **m, const oct_op_args *args)
{
    *m = NULL;
    int64_t a[TRANSPOSE_ARGS];
    OCT_TRY(oct_args_integers("conv_transpose2d", args, TRANSPOSE_ARGS, a));
    oct_conv_geometry g = geometry_of(a + 2, a + PAD_ARGS + 2);
    g.output_padding_h = (int)a[PAD_ARGS];
    g.output_padding_w = (int)a[PAD_ARGS + 1];
    return oct_conv_transpose2d_create(m, a[0], a[1], g, a[15] != 0);
}

const oct_module_type oct_conv2d_type = {.name = "conv2d",
                                         .forward = conv2d_forward,
                                         .describe = describe,
                                         .atomic = true,
                                         .create = conv2d_from,
                                         .args = get_args};
const oct_module_type oct_conv_transpose2d_type = {.name = "conv_transpose2d",
                                                   .forward = transpose_forward,
                                                   .describe = describe,
                                                   .atomic = true,
                                                   .create = transpose_from,
                                                   .args = get_transpose_args};

static oct_status check_conv(const char *name, int64_t in, int64_t out, const oct_conv_geometry *g)
{
    OCT_CHECK(in >= 1 && out >= 1, OCT_USAGE, "a %s cannot have %lld -> %lld channels", name,
              (long long)in, (long long)out);
    OCT_CHECK(g->groups >= 1 && in % g->groups == 0 && out % g->groups == 0, OCT_USAGE,
              "a %s with %lld -> %lld channels cannot have %d groups; groups must divide both",
              name, (long long)in, (long long)out, g->groups);
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
    char windows[OCT_GEOMETRY_TEXT];
    *m = NULL;
    OCT_CHECK(oct_conv_geometry_fits(&g), OCT_USAGE, "a conv2d cannot have windows of %s; %s",
              oct_conv_geometry_text(&g, windows), oct_conv_geometry_rule);
    OCT_TRY(check_conv("conv2d", in, out, &g));
    return create(m, &oct_conv2d_type, in, out, g, bias);
}

oct_status oct_conv_transpose2d_create(oct_module **m, int64_t in, int64_t out, oct_conv_geometry g,
                                       bool bias)
{
    char windows[OCT_GEOMETRY_TEXT];
    *m = NULL;
    OCT_CHECK(oct_conv_transpose_geometry_fits(&g), OCT_USAGE,
              "a conv_transpose2d cannot have windows of %s; %s",
              oct_conv_geometry_text(&g, windows), oct_conv_transpose_geometry_rule);
    OCT_TRY(check_conv("conv_transpose2d", in, out, &g));
    return create(m, &oct_conv_transpose2d_type, in, out, g, bias);
}
