/* The step interpolate makes a plane of another size, of the nearest pixels or of four mixed. */
#include "core/base/cpu.h"
#include "quant/program/step.h"

#include <string.h>

enum { MIX_SHIFT = 22, MIX_HALF = 1 << (MIX_SHIFT - 1) };

/* The two pixels between which output pixel `at` lies, and the weight of the second, 2048 * part / unit, half up. */
oct_qtap oct_qtap_of(oct_interpolation mode, int64_t at, int64_t in, int64_t out)
{
    const oct_resize_place p = oct_resize_place_of(mode, at, in, out);
    return (oct_qtap){.low = p.low,
                      .high = p.high,
                      .weight = (int32_t)((2 * p.part * OCT_QTAP_ONE + p.unit) / (2 * p.unit))};
}

/* The weights of the four pixels add up to 2^22. Bytes: 2^22 * 255 + 2^21 < 2^31. */
#define OCT_MIX(name, code_t, sum_t)                                                               \
    OCT_CLONES                                                                                     \
    static void name(int64_t n, const int32_t *w, const code_t *const *p, code_t *restrict y)      \
    {                                                                                              \
        const code_t *a = p[0], *b = p[1], *c = p[2], *d = p[3];                                   \
        const sum_t wa = w[0], wb = w[1], wc = w[2], wd = w[3];                                    \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] =                                                                                 \
                (code_t)((wa * a[i] + wb * b[i] + wc * c[i] + wd * d[i] + MIX_HALF) >> MIX_SHIFT); \
    }

OCT_MIX(mix8, uint8_t, int32_t)
OCT_MIX(mix16, uint16_t, int64_t)

/* Writes a pixel of the output: the four around its place in the plane of width w, mixed by their weights. */
static void mix_pixels(int64_t c, oct_qtap y, oct_qtap x, int64_t w, oct_qcodes plane, void *codes)
{
    const int32_t wy = OCT_QTAP_ONE - y.weight, wx = OCT_QTAP_ONE - x.weight;
    const int32_t weight[4] = {wy * wx, wy * x.weight, y.weight * wx, y.weight * x.weight};
    const void *p[4] = {oct_qcodes_from(plane, (y.low * w + x.low) * c).data,
                        oct_qcodes_from(plane, (y.low * w + x.high) * c).data,
                        oct_qcodes_from(plane, (y.high * w + x.low) * c).data,
                        oct_qcodes_from(plane, (y.high * w + x.high) * c).data};
    if (oct_codes_dtype(plane.q) == OCT_U8)
        mix8(c, weight, (const uint8_t *const[]){p[0], p[1], p[2], p[3]}, codes);
    else
        mix16(c, weight, (const uint16_t *const[]){p[0], p[1], p[2], p[3]}, codes);
}

void oct_qinterpolate_forward(int64_t samples, const oct_conv_shape *s, oct_interpolation mode,
                              oct_qcodes x, void *codes)
{
    const int64_t h = s->in_h, w = s->in_w, c = s->in_c, out_h = s->out_h, out_w = s->out_w;
    const size_t pixel = (size_t)c * oct_dtype_bytes(oct_codes_dtype(x.q));
    uint8_t *to = codes;
    for (int64_t n = 0; n < samples; n++) {
        const oct_qcodes plane = oct_qcodes_from(x, n * h * w * c);
        for (int64_t oy = 0; oy < out_h; oy++) {
            const oct_qtap ty = oct_qtap_of(mode, oy, h, out_h);
            for (int64_t ox = 0; ox < out_w; ox++, to += pixel) {
                const oct_qtap tx = oct_qtap_of(mode, ox, w, out_w);
                if (oct_is_bilinear(mode))
                    mix_pixels(c, ty, tx, w, plane, to);
                else
                    memcpy(to, oct_qcodes_from(plane, (ty.low * w + tx.low) * c).data, pixel);
            }
        }
    }
}

static oct_status check_interpolate(const oct_program *program, const oct_step *step)
{
    const oct_conv_shape *s = &step->interpolate.shape;
    const oct_value *x = oct_step_input(program, step, 0), *y = oct_step_output(program, step);
    OCT_CHECK(s->in_h == x->h && s->in_w == x->w && s->in_c == x->c, OCT_DATA,
              "its input shape is not that of value %d", step->input[0]);
    OCT_CHECK(s->out_h == y->h && s->out_w == y->w && s->out_c == y->c, OCT_DATA,
              "its output shape is not that of value %d", step->output);
    OCT_CHECK(s->in_c == s->out_c, OCT_DATA, "its output has other channels than its input");
    OCT_CHECK(step->interpolate.mode >= 0 && step->interpolate.mode < OCT_INTERPOLATIONS, OCT_DATA,
              "its interpolation %d does not exist", step->interpolate.mode);
    return oct_check_same_qparams(program, step);
}

static void run_interpolate(const oct_step_run *r)
{
    oct_qinterpolate_forward(r->samples, &r->step->interpolate.shape,
                             (oct_interpolation)r->step->interpolate.mode, oct_step_codes(r, 0),
                             r->output);
}

static const oct_field fields[] = {OCT_PLANE_FIELDS(interpolate),
                                   OCT_FIELD(interpolate, mode, 0, OCT_INTERPOLATIONS - 1)};

const oct_step_type oct_step_interpolate = {.name = "interpolate",
                                            .inputs = {1, 1},
                                            OCT_STEP_FIELDS(fields),
                                            .check = check_interpolate,
                                            .run = run_interpolate};
