#include "quant/module/conv/moments.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <string.h>

/* Windows at a time: products of 8-bit codes are below 2^16 and the sum of PART of them below 2^31; those of 16-bit
 * codes below 2^32 and 2^63. */
enum { PART = 256 };

int64_t oct_moments_bytes(const oct_conv_shape *s)
{
    const int64_t k = oct_conv_depth(s);
    return s->groups * k * k * (int64_t)sizeof(int64_t);
}

oct_status oct_moments_create(oct_moments *m, const oct_conv_shape *s, bool products)
{
    const int64_t k = oct_conv_depth(s);
    *m = (oct_moments){.depth = k, .groups = s->groups};
    OCT_TRY(oct_alloc(&m->sum, (size_t)(m->groups * k), sizeof *m->sum));
    return products ? oct_alloc(&m->product, (size_t)(m->groups * k * k), sizeof *m->product)
                    : OCT_OK;
}

void oct_moments_free(oct_moments *m)
{
    oct_free(&m->sum);
    oct_free(&m->product);
    *m = (oct_moments){0};
}

/* What the windows at hand see: (K, PART), in the type that their products need. */
typedef struct part {
    const oct_conv_shape *s;
    const oct_tensor *x;
    int64_t first, count; /* windows, over all samples */
    int16_t *narrow;
    int32_t *wide;
} part;

static int32_t code_at(const oct_tensor *x, int64_t i)
{
    return (x->dtype == OCT_U16 ? (int32_t)oct_u16(x)[i] : (int32_t)oct_u8(x)[i]) - x->q.zero_point;
}

/* The terms of window t of the part, in the order of the weights. */
static void gather_window(const part *p, int64_t group, int64_t t)
{
    const oct_conv_shape *s = p->s;
    const int64_t window = p->first + t, plane = s->out_h * s->out_w,
                  channels = s->in_c / s->groups;
    const int64_t n = window / plane, oy = window % plane / s->out_w, ox = window % s->out_w;
    int64_t k = 0;
    for (int ky = 0; ky < s->kernel_h; ky++) {
        const int64_t y = oy * s->stride_h - s->pad_top + (int64_t)ky * s->dilation_h;
        for (int kx = 0; kx < s->kernel_w; kx++) {
            const int64_t x = ox * s->stride_w - s->pad_left + (int64_t)kx * s->dilation_w;
            const bool inside = y >= 0 && y < s->in_h && x >= 0 && x < s->in_w;
            const int64_t at = ((n * s->in_h + y) * s->in_w + x) * s->in_c + group * channels;
            for (int64_t c = 0; c < channels; c++, k++) {
                const int32_t value = inside ? code_at(p->x, at + c) : 0;
                if (p->wide)
                    p->wide[k * PART + t] = value;
                else
                    p->narrow[k * PART + t] = (int16_t)value;
            }
        }
    }
}

OCT_CLONES
static int64_t narrow_dot(const int16_t *restrict a, const int16_t *restrict b)
{
    int32_t sum = 0;
    for (int64_t t = 0; t < PART; t++)
        sum += a[t] * b[t];
    return sum;
}

OCT_CLONES
static int64_t wide_dot(const int32_t *restrict a, const int32_t *restrict b)
{
    int64_t sum = 0;
    for (int64_t t = 0; t < PART; t++)
        sum += (int64_t)a[t] * b[t];
    return sum;
}

/* Adds the PART windows at hand to the sum of weight i's inputs, and to their products with those of weights 0 to i (the
 * lower triangle). */
static void add_row(oct_moments *m, const part *p, int64_t group, int64_t i)
{
    const int64_t k = m->depth;
    for (int64_t t = 0; t < PART; t++)
        m->sum[group * k + i] += p->wide ? p->wide[i * PART + t] : p->narrow[i * PART + t];
    if (!m->product) return;
    int64_t *row = m->product + (group * k + i) * k;
    for (int64_t j = 0; j <= i; j++)
        row[j] += p->wide ? wide_dot(p->wide + i * PART, p->wide + j * PART)
                          : narrow_dot(p->narrow + i * PART, p->narrow + j * PART);
}

/* Windows beyond the last one count as zeros. */
static void add_part(oct_moments *m, const part *p)
{
    for (int64_t group = 0; group < m->groups; group++) {
#pragma omp parallel for schedule(static) if (m->depth > 64)
        for (int64_t t = 0; t < p->count; t++)
            gather_window(p, group, t);
        for (int64_t k = 0; k < m->depth && p->count < PART; k++)
            for (int64_t t = p->count; t < PART; t++) {
                if (p->wide)
                    p->wide[k * PART + t] = 0;
                else
                    p->narrow[k * PART + t] = 0;
            }
#pragma omp parallel for schedule(dynamic, 8) if (m->depth > 64)
        for (int64_t i = 0; i < m->depth; i++)
            add_row(m, p, group, i);
    }
}

oct_status oct_moments_add(oct_moments *m, const oct_conv_shape *s, const oct_tensor *x)
{
    const int64_t samples = oct_numel(x) / (s->in_h * s->in_w * s->in_c);
    const int64_t windows = samples * s->out_h * s->out_w;
    const size_t room = (size_t)(m->depth * PART);
    part p = {.s = s, .x = x};
    oct_status status = OCT_OK;
    if (m->windows > 0 && m->scale != x->q.scale) m->mixed = true;
    m->scale = x->q.scale;
    if (x->dtype == OCT_U16)
        OCT_TRY_OUT(oct_alloc(&p.wide, room, sizeof *p.wide));
    else
        OCT_TRY_OUT(oct_alloc(&p.narrow, room, sizeof *p.narrow));
    for (p.first = 0; p.first < windows; p.first += PART) {
        p.count = oct_min_i64(windows - p.first, PART);
        add_part(m, &p);
    }
    m->windows += windows;
out:
    oct_free(&p.wide);
    oct_free(&p.narrow);
    return status;
}

/* Gives all ranks the input's scale; one without samples knows none. Positive floats are ordered as their
 * bits. */
static oct_status reduce_scale(oct_moments *m, const oct_collective *group)
{
    uint32_t bits;
    memcpy(&bits, &m->scale, sizeof bits);
    const bool seen = m->windows > 0;
    int64_t most[3] = {m->mixed, seen ? (int64_t)bits : INT64_MIN,
                       seen ? -(int64_t)bits : INT64_MIN};
    OCT_TRY(group->max_i64(group, most, 3));
    m->mixed = most[0] || (most[1] != INT64_MIN && most[1] != -most[2]);
    bits = most[1] == INT64_MIN ? 0 : (uint32_t)most[1];
    memcpy(&m->scale, &bits, sizeof bits);
    return OCT_OK;
}

oct_status oct_moments_allreduce(oct_moments *m, const oct_collective *group)
{
    const int64_t k = m->depth;
    OCT_TRY(reduce_scale(m, group));
    OCT_TRY(oct_sum_i64(group, &m->windows, 1));
    OCT_TRY(oct_sum_i64(group, m->sum, m->groups * k));
    return m->product ? oct_sum_i64(group, m->product, m->groups * k * k) : OCT_OK;
}
