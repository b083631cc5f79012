/* A row of channels is padded at once: what is inside by memcpy, the places around it one by one. */
#include "core/tensor/pad.h"

#include <stdio.h>
#include <string.h>

static const char *const sides[] = {"height", "width", "channels"};

oct_status oct_pad_check(const oct_pad_shape *shape, oct_status code)
{
    OCT_CHECK(shape->mode >= 0 && shape->mode < OCT_PAD_MODES, code,
              "its mode is %d; it is 0 (constant), 1 (reflect) or 2 (edge)", shape->mode);
    for (int d = 0; d < 3; d++) {
        const int64_t in = shape->in[d], before = shape->before[d];
        const int64_t around = shape->out[d] - in;
        OCT_CHECK(in >= 1 && before >= 0 && before <= around, code,
                  "%s %lld with %lld before it does not lie in %lld", sides[d], (long long)in,
                  (long long)before, (long long)shape->out[d]);
        OCT_CHECK(shape->mode != OCT_PAD_REFLECT || (before < in && around - before < in), code,
                  "a mirror of %s %lld cannot show %lld before it and %lld after it", sides[d],
                  (long long)in, (long long)before, (long long)(around - before));
    }
    return OCT_OK;
}

oct_status oct_pad_shape_of(oct_pad_shape *shape, const oct_padding *padding, int64_t h, int64_t w,
                            int64_t c)
{
    const int64_t after[] = {padding->bottom, padding->right, padding->channels_after};
    bool overflow = false;
    *shape = (oct_pad_shape){.in = {h, w, c},
                             .before = {padding->top, padding->left, padding->channels_before},
                             .mode = (int32_t)padding->mode};
    for (int d = 0; d < 3; d++) {
        overflow |= __builtin_add_overflow(shape->in[d], shape->before[d], &shape->out[d]);
        overflow |= __builtin_add_overflow(shape->out[d], after[d], &shape->out[d]);
    }
    const oct_shape out = {.ndim = 3, .dim = {shape->out[0], shape->out[1], shape->out[2]}};
    OCT_CHECK(!overflow && oct_shape_numel(&out) >= 0, OCT_USAGE,
              "what it makes has more values than can be counted");
    return oct_pad_check(shape, OCT_USAGE);
}

oct_status oct_pad_tensor_shape(oct_pad_shape *shape, const oct_padding *padding,
                                const oct_shape *from, oct_shape *out)
{
    const int n = from->ndim;
    *out = *from;
    OCT_CHECK(n >= 2 && (n >= 3 || (!padding->left && !padding->right)) &&
                  (n >= 4 || (!padding->top && !padding->bottom)),
              OCT_USAGE, "it has %d dimensions; the missing ones cannot be padded", n);
    OCT_TRY(oct_pad_shape_of(shape, padding, n >= 4 ? from->dim[1] : 1,
                             n >= 3 ? from->dim[n - 2] : 1, from->dim[n - 1]));
    for (int d = 1; d < n; d++)
        out->dim[d] = shape->out[3 - n + d];
    return OCT_OK;
}

void oct_padding_text(const oct_padding *padding, char *text, size_t size)
{
    const oct_padding *p = padding;
    static const char *const modes[] = {"constant", "reflect", "edge"};
    size_t used = (size_t)snprintf(
        text, size, "%lld, %lld above and below, %lld, %lld at the sides", (long long)p->top,
        (long long)p->bottom, (long long)p->left, (long long)p->right);
    if (used < size && p->channels_before + p->channels_after > 0)
        used += (size_t)snprintf(text + used, size - used, ", %lld, %lld channels",
                                 (long long)p->channels_before, (long long)p->channels_after);
    if (used < size) used += (size_t)snprintf(text + used, size - used, ", %s", modes[p->mode]);
    if (used < size && p->mode == OCT_PAD_CONSTANT)
        oct_snprintf(text + used, size - used, " %g", p->value);
}

int64_t oct_pad_source(const oct_pad_shape *s, int d, int64_t at)
{
    const int64_t in = s->in[d], place = at - s->before[d];
    if (place >= 0 && place < in) return place;
    if (s->mode == OCT_PAD_CONSTANT) return -1;
    if (s->mode == OCT_PAD_EDGE) return place < 0 ? 0 : in - 1;
    return place < 0 ? -place : 2 * (in - 1) - place;
}

static void fill_values(int64_t n, size_t bytes, const void *fill, uint8_t *y)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(y + i * (int64_t)bytes, fill, bytes);
}

/* Copies what channels [first, end) of a pixel show, which lie beside the input's channels. */
static void copy_channels_beside(const oct_pad_shape *s, size_t bytes, const uint8_t *x,
                                 int64_t first, int64_t end, uint8_t *y)
{
    for (int64_t c = first; c < end; c++)
        memcpy(y + c * (int64_t)bytes, x + oct_pad_source(s, 2, c) * (int64_t)bytes, bytes);
}

/* Writes all channels of a pixel of the output, padded; x: the pixel that it shows; NULL: the constant. */
static void copy_pixel(const oct_pad_shape *s, size_t bytes, const void *fill, const uint8_t *x,
                       uint8_t *y)
{
    const int64_t size = (int64_t)bytes, first = s->before[2], last = first + s->in[2];
    if (!x) {
        fill_values(s->out[2], bytes, fill, y);
        return;
    }
    memcpy(y + first * size, x, (size_t)(s->in[2] * size));
    if (s->mode == OCT_PAD_CONSTANT) {
        fill_values(first, bytes, fill, y);
        fill_values(s->out[2] - last, bytes, fill, y + last * size);
    } else {
        copy_channels_beside(s, bytes, x, 0, first, y);
        copy_channels_beside(s, bytes, x, last, s->out[2], y);
    }
}

void oct_pad_copy(const oct_pad_shape *shape, size_t bytes, const void *fill, const void *x,
                  void *restrict y)
{
    const oct_pad_shape *s = shape;
    const int64_t from = s->in[2] * (int64_t)bytes, to = s->out[2] * (int64_t)bytes;
    uint8_t *at = y;
    for (int64_t h = 0; h < s->out[0]; h++) {
        const int64_t row = oct_pad_source(s, 0, h);
        for (int64_t w = 0; w < s->out[1]; w++, at += to) {
            const int64_t column = oct_pad_source(s, 1, w);
            const bool inside = row >= 0 && column >= 0;
            copy_pixel(s, bytes, fill,
                       inside ? (const uint8_t *)x + (row * s->in[1] + column) * from : NULL, at);
        }
    }
}
