/* The steps max_pool and avg_pool: the largest code of a window, where padding never counts, and the mean of one, rounded
 * to a code of the same scale. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "quant/program/step.h"

#include <math.h>

/* Finds the largest codes of a window of the plane (H, w, c), 16 channels at a time. */
#define OCT_LARGEST(name, code_t, lanes)                                                           \
    typedef code_t lanes                                                                           \
        __attribute__((vector_size(16 * sizeof(code_t)), aligned(sizeof(code_t)), may_alias));     \
                                                                                                   \
    OCT_CLONES                                                                                     \
    static void name(oct_window_span in_y, oct_window_span in_x, int64_t w, int64_t c,             \
                     const code_t *plane, code_t *y)                                               \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        for (; i + 16 <= c; i += 16) {                                                             \
            lanes most = {0};                                                                      \
            for (int64_t iy = in_y.first; iy < in_y.end; iy++) {                                   \
                for (int64_t ix = in_x.first; ix < in_x.end; ix++) {                               \
                    const lanes x = *(const lanes *)(plane + (iy * w + ix) * c + i);               \
                    const lanes larger = (lanes)(x > most);                                        \
                    most = (x & larger) | (most & ~larger);                                        \
                }                                                                                  \
            }                                                                                      \
            *(lanes *)(y + i) = most;                                                              \
        }                                                                                          \
        for (; i < c; i++) {                                                                       \
            y[i] = 0;                                                                              \
            for (int64_t iy = in_y.first; iy < in_y.end; iy++) {                                   \
                for (int64_t ix = in_x.first; ix < in_x.end; ix++) {                               \
                    const code_t x = plane[(iy * w + ix) * c + i];                                 \
                    y[i] = x > y[i] ? x : y[i];                                                    \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

OCT_LARGEST(largest8, uint8_t, lanes8)
OCT_LARGEST(largest16, uint16_t, lanes16)

void oct_qmax_pool(int64_t samples, const oct_conv_shape *s, oct_qcodes x, void *codes)
{
    const int64_t h = s->in_h, w = s->in_w, c = s->in_c, out_h = s->out_h, out_w = s->out_w;
    const bool bytes = oct_codes_dtype(x.q) == OCT_U8;
    for (int64_t i = 0; i < samples * out_h * out_w; i++) {
        const oct_window_span in_y = oct_pool_rows(s, i / out_w % out_h);
        const oct_window_span in_x = oct_pool_columns(s, i % out_w);
        const void *plane = oct_qcodes_from(x, i / (out_h * out_w) * h * w * c).data;
        void *y = oct_qcodes_place(codes, x.q, i * c);
        if (bytes)
            largest8(in_y, in_x, w, c, plane, y);
        else
            largest16(in_y, in_x, w, c, plane, y);
    }
}

static void run_max_pool(const oct_step_run *r)
{
    oct_qmax_pool(r->samples, &r->step->pool.shape, oct_step_codes(r, 0), r->output);
}

static const oct_field max_fields[] = {OCT_POOL_FIELDS};

const oct_step_type oct_step_max_pool = {.name = "max_pool",
                                         .inputs = {1, 1},
                                         OCT_STEP_FIELDS(max_fields),
                                         .check = oct_check_pool,
                                         .run = run_max_pool};

enum { POOL_CHANNELS = 256 }; /* whose sums are kept at a time */

/* The sum of `added` codes is divided by `count` positions, or multiplied by a factor that is not 0. */
typedef struct divisor {
    int64_t added, count;
    float factor;
} divisor;

#define OCT_ADD_UP(name, code_t, sum_t)                                                            \
    OCT_CLONES                                                                                     \
    static void name(int64_t n, const code_t *restrict x, sum_t *restrict sum)                     \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            sum[i] += x[i];                                                                        \
    }
OCT_ADD_UP(add_bytes, uint8_t, int32_t)
OCT_ADD_UP(add_wide, uint16_t, int64_t)

#define OCT_AVERAGE(average, code_t, sum_t, float_t, round)                                        \
    OCT_CLONES                                                                                     \
    static void average(int64_t n, const sum_t *restrict sum, divisor d, oct_qparams q,            \
                        code_t *restrict y)                                                        \
    {                                                                                              \
        const float_t zero_point = (float_t)q.zero_point, qmin = (float_t)q.qmin,                  \
                      qmax = (float_t)q.qmax;                                                      \
        const float_t one_over = d.factor != 0 ? (float_t)d.factor : 1 / (float_t)d.count;         \
        const sum_t offset = (sum_t)(d.added * q.zero_point);                                      \
        for (int64_t i = 0; i < n; i++) {                                                          \
            float_t code = round((float_t)(sum[i] - offset) * one_over) + zero_point;              \
            code = code > qmin ? code : qmin;                                                      \
            code = code < qmax ? code : qmax;                                                      \
            y[i] = (code_t)(int32_t)code;                                                          \
        }                                                                                          \
    }

static inline float half_up(float v)
{
    return floorf((float)((double)v + 0.5));
}

/* Windows have at most 2^20 positions: a sum of bytes is below 2^28. */
OCT_AVERAGE(average_bytes, uint8_t, int32_t, float, rintf)
OCT_AVERAGE(average_wide, uint16_t, int64_t, double, rint)
OCT_AVERAGE(average_bytes_up, uint8_t, int32_t, float, half_up)

/* By a rounding's own constants of 1/count. */
#define OCT_AVERAGE_BY(name, code_t, sum_t)                                                        \
    OCT_CLONES                                                                                     \
    static void name(int64_t n, const sum_t *sum, divisor d, const oct_rounding_row *by,           \
                     oct_qparams q, code_t *y)                                                     \
    {                                                                                              \
        int64_t mean[POOL_CHANNELS];                                                               \
        for (int64_t i = 0; i < n; i++)                                                            \
            mean[i] = sum[i] - d.added * q.zero_point;                                             \
        by->each(n, mean, by->constants_of(1 / (double)d.count), sizeof(code_t) > 1);              \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = (code_t)oct_min_i64(oct_max_i64(mean[i] + q.zero_point, q.qmin), q.qmax);       \
    }
OCT_AVERAGE_BY(average_by, uint8_t, int32_t)
OCT_AVERAGE_BY(average_by_wide, uint16_t, int64_t)

enum { SIGNED_ZERO = 128 }; /* the code whose signed byte is 0 */

/* Averages codes as signed bytes. Quotients of such whole numbers, rounded to doubles, lie on no other side of a whole
 * number. */
OCT_CLONES
static void average_signed(int64_t n, const int32_t *restrict sum, divisor d, oct_qparams q,
                           uint8_t *restrict y)
{
    /* Sums x - 128 instead of x; the positions in the padding have the zero point's code. */
    const int32_t offset =
        (int32_t)((d.count - d.added) * q.zero_point - d.count * (int64_t)SIGNED_ZERO);
    const int32_t half = (int32_t)(d.count / 2);
    const double count = (double)d.count;
    for (int64_t i = 0; i < n; i++) {
        const int32_t total = sum[i] + offset;
        const int32_t rounded = total > 0 ? total + half : total - half;
        y[i] = (uint8_t)((int32_t)((double)rounded / count) + SIGNED_ZERO);
    }
}

/* The part of a window that lies in the plane. */
typedef struct window {
    int64_t h, w;
    int64_t line, pixel; /* codes from one line of the plane, and from one pixel, to the next */
    int64_t count;       /* positions that the sum is divided by, unless there is a factor */
    const oct_qavg *how;
} window;

/* Averages the window whose first pixel is `corner`, for up to POOL_CHANNELS channels. */
static void average_codes(const window *p, const uint8_t *corner, int64_t channels, oct_qparams q,
                          uint8_t *y)
{
    int32_t sum[POOL_CHANNELS] = {0};
    for (int64_t ky = 0; ky < p->h; ky++)
        for (int64_t kx = 0; kx < p->w; kx++)
            add_bytes(channels, corner + ky * p->line + kx * p->pixel, sum);
    const divisor d = {p->h * p->w, p->count, p->how->factor};
    if (p->how->of_codes)
        average_signed(channels, sum, d, q, y);
    else if (p->how->rounding)
        average_by(channels, sum, d, p->how->rounding, q, y);
    else if (p->how->half_up)
        average_bytes_up(channels, sum, d, q, y);
    else
        average_bytes(channels, sum, d, q, y);
}

static void average_codes16(const window *p, const uint16_t *corner, int64_t channels,
                            oct_qparams q, uint16_t *y)
{
    int64_t sum[POOL_CHANNELS] = {0};
    for (int64_t ky = 0; ky < p->h; ky++)
        for (int64_t kx = 0; kx < p->w; kx++)
            add_wide(channels, corner + ky * p->line + kx * p->pixel, sum);
    const divisor d = {p->h * p->w, p->count, p->how->factor};
    if (p->how->rounding)
        average_by_wide(channels, sum, d, p->how->rounding, q, y);
    else
        average_wide(channels, sum, d, q, y);
}

float oct_qavg_factor(float scale, int64_t count)
{
    const float share = 1.0f / (float)count, product = scale * share;
    return product / scale;
}

/* Averages the windows of (N, h, w, c), each cut to the plane, in blocks of channels. */
void oct_qavg_pool(int64_t samples, const oct_conv_shape *s, const oct_qavg *how, oct_qcodes x,
                   void *codes)
{
    const int64_t h = s->in_h, w = s->in_w, c = s->in_c, out_h = s->out_h, out_w = s->out_w;
    const bool bytes = oct_codes_dtype(x.q) == OCT_U8;
    for (int64_t i = 0; i < samples * out_h * out_w; i++) {
        const int64_t n = i / (out_h * out_w), oy = i / out_w % out_h, ox = i % out_w;
        const oct_window_span in_y = oct_pool_rows(s, oy), in_x = oct_pool_columns(s, ox);
        const int64_t corner = ((n * h + in_y.first) * w + in_x.first) * c;
        const window p = {.h = in_y.end - in_y.first,
                          .w = in_x.end - in_x.first,
                          .line = w * c,
                          .pixel = c,
                          .count = oct_pool_count(s, how->include_pad, oy, ox),
                          .how = how};
        for (int64_t at = 0; at < c; at += POOL_CHANNELS) {
            const int64_t channels = oct_min_i64(c - at, POOL_CHANNELS);
            const void *from = oct_qcodes_from(x, corner + at).data;
            void *to = oct_qcodes_place(codes, x.q, i * c + at);
            if (bytes)
                average_codes(&p, from, channels, x.q, to);
            else
                average_codes16(&p, from, channels, x.q, to);
        }
    }
}

/* Checks a pool and how it rounds. A factor belongs to one number of positions; its products stay far below 2^60. */
static oct_status check_avg_pool(const oct_program *program, const oct_step *step)
{
    OCT_TRY(oct_check_pool(program, step));
    OCT_CHECK(!step->pool.of_codes || (oct_step_output(program, step)->dtype == OCT_U8 &&
                                       !oct_requantizer_shifts(program->requantizer)),
              OCT_DATA, "it averages signed codes, which are of 8 bits");
    OCT_CHECK(!step->pool.half_up || (oct_step_output(program, step)->dtype == OCT_U8 &&
                                      !step->pool.of_codes && step->pool.factor == 0.0f),
              OCT_DATA, "it rounds halves up, which is for values of 8 bits");
    OCT_CHECK(!step->pool.fixed ||
                  (oct_rounding_of(program->requantizer)->averages && !step->pool.of_codes &&
                   !step->pool.half_up && step->pool.factor == 0.0f),
              OCT_DATA,
              "it has a whole multiplier, but the program or the step rounds in another way");
    if (step->pool.factor == 0.0f) return OCT_OK;
    const bool counts = oct_conv_sees_padding(&step->pool.shape) && !step->pool.count_include_pad;
    OCT_CHECK(oct_qmul_fits(step->pool.factor, OCT_REQUANT_FLOAT), OCT_DATA,
              "its factor %g is not a number within 2^-60 and 2^60", (double)step->pool.factor);
    OCT_CHECK(!counts && !step->pool.ceil && !step->pool.of_codes &&
                  oct_step_output(program, step)->dtype == OCT_U8,
              OCT_DATA,
              "it has a factor, which is for windows that all have as many positions, and for "
              "8-bit codes");
    return OCT_OK;
}

static void run_avg_pool(const oct_step_run *r)
{
    const oct_qavg how = {r->step->pool.count_include_pad, r->step->pool.factor,
                          r->step->pool.of_codes, r->step->pool.half_up,
                          r->step->pool.fixed ? oct_rounding_of(r->program->requantizer) : NULL};
    oct_qavg_pool(r->samples, &r->step->pool.shape, &how, oct_step_codes(r, 0), r->output);
}

static const oct_field avg_fields[] = {OCT_POOL_FIELDS,
                                       OCT_FIELD(pool, count_include_pad, 0, 1),
                                       OCT_FIELD(pool, of_codes, 0, 1),
                                       OCT_FIELD(pool, half_up, 0, 1),
                                       OCT_FIELD(pool, fixed, 0, 1),
                                       OCT_FIELD_FLOAT(pool, factor)};

const oct_step_type oct_step_avg_pool = {.name = "avg_pool",
                                         .inputs = {1, 1},
                                         OCT_STEP_FIELDS(avg_fields),
                                         .check = check_avg_pool,
                                         .run = run_avg_pool};
