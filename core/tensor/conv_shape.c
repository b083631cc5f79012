/* Shapes of windows are computed in integers. */
#include "core/tensor/conv_shape.h"

#include "core/base/int_math.h"

#include <stdio.h>
#include <string.h>

oct_conv_geometry oct_conv_geometry_of(int kernel_h, int kernel_w, int stride, int padding,
                                       int groups)
{
    return (oct_conv_geometry){.kernel_h = kernel_h,
                               .kernel_w = kernel_w,
                               .stride_h = stride,
                               .stride_w = stride,
                               .pad_top = padding,
                               .pad_left = padding,
                               .pad_bottom = padding,
                               .pad_right = padding,
                               .dilation_h = 1,
                               .dilation_w = 1,
                               .groups = groups};
}

oct_pool_geometry oct_pool_geometry_of(int kernel, int stride, int padding)
{
    return (oct_pool_geometry){.kernel_h = kernel,
                               .kernel_w = kernel,
                               .stride_h = stride,
                               .stride_w = stride,
                               .pad_top = padding,
                               .pad_left = padding,
                               .pad_bottom = padding,
                               .pad_right = padding};
}

/* Gives the windows of a pool as those of a convolution. */
static oct_conv_geometry windows_of(const oct_pool_geometry *g)
{
    oct_conv_geometry windows = oct_conv_geometry_of(g->kernel_h, g->kernel_w, g->stride_h, 0, 1);
    windows.stride_w = g->stride_w;
    windows.pad_top = g->pad_top;
    windows.pad_left = g->pad_left;
    windows.pad_bottom = g->pad_bottom;
    windows.pad_right = g->pad_right;
    return windows;
}

#define SIZES                                                                                      \
    "kernel, stride and dilation must be at least 1, the padding at least 0, all at most 16384"
const char oct_conv_geometry_rule[] = SIZES;
const char oct_conv_transpose_geometry_rule[] =
    SIZES ", the padding below what the kernel reaches, output padding below stride or dilation";
const char oct_pool_geometry_rule[] =
    "kernel and stride must be at least 1 and at most 16384, and the padding below the kernel";
#undef SIZES

static bool is_within(int value, int least, int most)
{
    return value >= least && value <= most;
}

/* Says whether sides are from 1 and pads from 0 to OCT_WINDOW_SIDE_MAX. */
static bool sizes_fit(const oct_conv_geometry *g)
{
    const int sides[] = {g->kernel_h, g->kernel_w,   g->stride_h,
                         g->stride_w, g->dilation_h, g->dilation_w};
    const int pads[] = {g->pad_top, g->pad_left, g->pad_bottom, g->pad_right};
    for (int i = 0; i < 6; i++)
        if (!is_within(sides[i], 1, OCT_WINDOW_SIDE_MAX)) return false;
    for (int i = 0; i < 4; i++)
        if (!is_within(pads[i], 0, OCT_WINDOW_SIDE_MAX)) return false;
    return true;
}

bool oct_conv_geometry_fits(const oct_conv_geometry *g)
{
    return sizes_fit(g) && g->output_padding_h == 0 && g->output_padding_w == 0;
}

bool oct_conv_transpose_geometry_fits(const oct_conv_geometry *g)
{
    if (!sizes_fit(g)) return false;
    const int64_t extent_h = oct_conv_extent(g->kernel_h, g->dilation_h);
    const int64_t extent_w = oct_conv_extent(g->kernel_w, g->dilation_w);
    return g->pad_top < extent_h && g->pad_bottom < extent_h && g->pad_left < extent_w &&
           g->pad_right < extent_w && g->output_padding_h >= 0 && g->output_padding_w >= 0 &&
           g->output_padding_h < oct_max_i64(g->stride_h, g->dilation_h) &&
           g->output_padding_w < oct_max_i64(g->stride_w, g->dilation_w);
}

bool oct_pool_geometry_fits(const oct_pool_geometry *g)
{
    const oct_conv_geometry windows = windows_of(g);
    return sizes_fit(&windows) && g->pad_top < g->kernel_h && g->pad_bottom < g->kernel_h &&
           g->pad_left < g->kernel_w && g->pad_right < g->kernel_w;
}

enum { PHRASE = 96 };

/* Writes `name` and 2, or 2x1 where the sides differ; nothing for what is the default. */
static void write_pair(char phrase[PHRASE], const char *name, int h, int w, int otherwise)
{
    phrase[0] = 0;
    if (h == w && h != otherwise) snprintf(phrase, PHRASE, "%s%d", name, h);
    if (h != w) snprintf(phrase, PHRASE, "%s%dx%d", name, h, w);
}

oct_geometry_text oct_text_conv_geometry(const oct_conv_geometry *g)
{
    oct_geometry_text t;
    char stride[PHRASE], pads[PHRASE], more[PHRASE], dilation[PHRASE], groups[PHRASE];
    write_pair(stride, ", stride ", g->stride_h, g->stride_w, 1);
    if (g->pad_top == g->pad_bottom && g->pad_left == g->pad_right)
        write_pair(pads, ", padding ", g->pad_top, g->pad_left, 0);
    else
        snprintf(pads, PHRASE, ", padding %d above, %d left, %d below, %d right", g->pad_top,
                 g->pad_left, g->pad_bottom, g->pad_right);
    write_pair(more, ", output padding ", g->output_padding_h, g->output_padding_w, 0);
    write_pair(dilation, ", dilation ", g->dilation_h, g->dilation_w, 1);
    write_pair(groups, ", groups ", g->groups, g->groups, 1);
    snprintf(t.text, sizeof t.text, "%dx%d%s%s%s%s%s", g->kernel_h, g->kernel_w, stride, pads, more,
             dilation, groups);
    return t;
}

oct_geometry_text oct_text_pool_geometry(const oct_pool_geometry *g)
{
    const oct_conv_geometry windows = windows_of(g);
    oct_geometry_text t = oct_text_conv_geometry(&windows);
    const size_t used = strlen(t.text);
    snprintf(t.text + used, sizeof t.text - used, "%s%s", g->ceil ? ", ceil" : "",
             g->count_include_pad ? ", padding counts" : "");
    return t;
}

const char *oct_window_text(const oct_conv_shape *s, char text[OCT_WINDOW_TEXT])
{
    char stride[PHRASE], dilation[PHRASE];
    write_pair(stride, " s", s->stride_h, s->stride_w, 1);
    write_pair(dilation, " d", s->dilation_h, s->dilation_w, 1);
    snprintf(text, OCT_WINDOW_TEXT, "%dx%d%.16s%.16s", s->kernel_h, s->kernel_w, stride, dilation);
    return text;
}

int64_t oct_conv_extent(int kernel, int dilation)
{
    return (int64_t)(kernel - 1) * dilation + 1;
}

int64_t oct_conv_out(int64_t size, int64_t extent, int stride)
{
    return size < extent ? 0 : (size - extent) / stride + 1;
}

void oct_conv_set_out(oct_conv_shape *s)
{
    s->out_h = oct_conv_out(s->in_h + s->pad_top + s->pad_bottom,
                            oct_conv_extent(s->kernel_h, s->dilation_h), s->stride_h);
    s->out_w = oct_conv_out(s->in_w + s->pad_left + s->pad_right,
                            oct_conv_extent(s->kernel_w, s->dilation_w), s->stride_w);
}

oct_conv_shape oct_conv_shape_of(int64_t in_h, int64_t in_w, int64_t in_c, int64_t out_c,
                                 oct_conv_geometry g)
{
    oct_conv_shape s = {.in_h = in_h,
                        .in_w = in_w,
                        .in_c = in_c,
                        .out_c = out_c,
                        .kernel_h = g.kernel_h,
                        .kernel_w = g.kernel_w,
                        .stride_h = g.stride_h,
                        .stride_w = g.stride_w,
                        .pad_top = g.pad_top,
                        .pad_left = g.pad_left,
                        .pad_bottom = g.pad_bottom,
                        .pad_right = g.pad_right,
                        .dilation_h = g.dilation_h,
                        .dilation_w = g.dilation_w,
                        .groups = g.groups};
    oct_conv_set_out(&s);
    return s;
}

/* Returns the positions along a side when the last window may reach beyond the padding: the sizes are those of
 * PyTorch, where it has to begin in the input or in the padding before it. */
static int64_t ceil_out(int64_t in, int pad, int pad_after, int kernel, int stride)
{
    const int64_t out = oct_conv_out(in + pad + pad_after + stride - 1, kernel, stride);
    return out > 0 && (out - 1) * stride >= in + pad ? out - 1 : out;
}

oct_conv_shape oct_pool_shape_of(int64_t in_h, int64_t in_w, int64_t c, oct_pool_geometry g)
{
    oct_conv_shape s = oct_conv_shape_of(in_h, in_w, c, c, windows_of(&g));
    if (g.ceil) {
        s.out_h = ceil_out(in_h, g.pad_top, g.pad_bottom, g.kernel_h, g.stride_h);
        s.out_w = ceil_out(in_w, g.pad_left, g.pad_right, g.kernel_w, g.stride_w);
    }
    return s;
}

oct_conv_shape oct_linear_shape(int64_t h, int64_t w, int64_t in, int64_t out)
{
    return oct_conv_shape_of(h, w, in, out, oct_conv_geometry_of(1, 1, 1, 0, 1));
}

oct_conv_shape oct_conv_transpose_shape_of(int64_t in_h, int64_t in_w, int64_t in_c, int64_t out_c,
                                           oct_conv_geometry g)
{
    const int reach_h = (int)oct_conv_extent(g.kernel_h, g.dilation_h) - 1;
    const int reach_w = (int)oct_conv_extent(g.kernel_w, g.dilation_w) - 1;
    const int64_t h = (in_h - 1) * g.stride_h + 1, w = (in_w - 1) * g.stride_w + 1;
    g.pad_top = reach_h - g.pad_top;
    g.pad_left = reach_w - g.pad_left;
    g.pad_bottom = reach_h - g.pad_bottom + g.output_padding_h;
    g.pad_right = reach_w - g.pad_right + g.output_padding_w;
    g.stride_h = g.stride_w = 1;
    return oct_conv_shape_of(h, w, in_c, out_c, g);
}

bool oct_conv_sees_padding(const oct_conv_shape *s)
{
    const int64_t after_h =
        (s->out_h - 1) * s->stride_h + oct_conv_extent(s->kernel_h, s->dilation_h) - s->pad_top;
    const int64_t after_w =
        (s->out_w - 1) * s->stride_w + oct_conv_extent(s->kernel_w, s->dilation_w) - s->pad_left;
    return s->pad_top > 0 || s->pad_left > 0 || after_h > s->in_h || after_w > s->in_w;
}

int64_t oct_conv_depth(const oct_conv_shape *s)
{
    return (int64_t)s->kernel_h * s->kernel_w * (s->in_c / s->groups);
}

bool oct_conv_is_depthwise(const oct_conv_shape *s)
{
    return s->groups > 1 && s->groups == s->in_c && s->groups == s->out_c;
}

bool oct_conv_is_pointwise(const oct_conv_shape *s)
{
    return s->kernel_h == 1 && s->kernel_w == 1 && s->stride_h == 1 && s->stride_w == 1 &&
           s->pad_top == 0 && s->pad_left == 0 && s->out_h == s->in_h && s->out_w == s->in_w;
}

int64_t oct_conv_in_numel(const oct_conv_shape *s)
{
    return s->in_h * s->in_w * s->in_c;
}

int64_t oct_conv_out_numel(const oct_conv_shape *s)
{
    return s->out_h * s->out_w * s->out_c;
}

/* Returns the part of the window that begins at `start` which is in a side of `size`. */
static oct_window_span window_span(int64_t start, int kernel, int64_t size)
{
    return (oct_window_span){oct_max_i64(start, 0), oct_min_i64(start + kernel, size)};
}

oct_window_span oct_pool_rows(const oct_conv_shape *s, int64_t y)
{
    return window_span(y * s->stride_h - s->pad_top, s->kernel_h, s->in_h);
}

oct_window_span oct_pool_columns(const oct_conv_shape *s, int64_t x)
{
    return window_span(x * s->stride_w - s->pad_left, s->kernel_w, s->in_w);
}

int64_t oct_pool_count(const oct_conv_shape *s, bool include_pad, int64_t y, int64_t x)
{
    const int64_t top = y * s->stride_h - s->pad_top, left = x * s->stride_w - s->pad_left;
    oct_window_span rows = oct_pool_rows(s, y), columns = oct_pool_columns(s, x);
    if (include_pad) {
        rows = (oct_window_span){top, oct_min_i64(top + s->kernel_h, s->in_h + s->pad_bottom)};
        columns = (oct_window_span){left, oct_min_i64(left + s->kernel_w, s->in_w + s->pad_right)};
    }
    return (rows.end - rows.first) * (columns.end - columns.first);
}

oct_dilation oct_dilation_of(oct_shape x, int step_h, int step_w, oct_dtype dtype,
                             int32_t zero_point)
{
    return (oct_dilation){.h = x.dim[1],
                          .w = x.dim[2],
                          .c = x.dim[3],
                          .step_h = step_h,
                          .step_w = step_w,
                          .dtype = dtype,
                          .zero_point = zero_point,
                          .out_h = (x.dim[1] - 1) * step_h + 1,
                          .out_w = (x.dim[2] - 1) * step_w + 1};
}

/* Where pixel `at` of x is in y, in pixels. */
static int64_t dilated_position(const oct_dilation *d, int64_t at)
{
    return at / d->w * d->step_h * d->out_w + at % d->w * d->step_w;
}

void oct_dilate_image(const oct_dilation *d, const void *x, void *y)
{
    const int64_t bytes = d->c * (int64_t)oct_dtype_bytes(d->dtype);
    const int64_t n = d->out_h * d->out_w * d->c;
    for (int64_t i = 0; d->dtype == OCT_U16 && i < n; i++)
        ((uint16_t *)y)[i] = (uint16_t)d->zero_point;
    if (d->dtype != OCT_U16)
        memset(y, d->dtype == OCT_U8 ? d->zero_point : 0, (size_t)n * oct_dtype_bytes(d->dtype));
    for (int64_t at = 0; at < d->h * d->w; at++)
        memcpy((char *)y + dilated_position(d, at) * bytes, (const char *)x + at * bytes,
               (size_t)bytes);
}

void oct_undilate_image(const oct_dilation *d, const float *y, float *x)
{
    for (int64_t at = 0; at < d->h * d->w; at++)
        memcpy(x + at * d->c, y + dilated_position(d, at) * d->c, (size_t)d->c * sizeof *x);
}
