/* Gradients become codes by stochastic rounding, sixteen channels at a time. */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/kernel/conv.h"

#include <string.h>

enum { LANES = 16, ONE = 256 /* the step of a code in fixed point */ };

/* 2^32 divided by the golden ratio: its multiples are spread evenly (Knuth, The Art of Computer Programming 3, 6.4). */
static const uint32_t golden = 0x9e3779b9;
/* Floats from 2^23 to 2^24 are whole numbers: a sum with this one is rounded half to even, and its bits minus those of
 * the number added are what was rounded. */
static const float rounder = 0x1.8p23F;
static const int32_t rounder_bits = 0x4b400000;

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t hashes __attribute__((vector_size(4 * LANES)));
typedef int16_t shorts __attribute__((vector_size(2 * LANES)));
typedef uint8_t bytes __attribute__((vector_size(LANES)));

/* A row has channels of one group. */
typedef struct channels {
    int64_t n;
    const float *grad, *factor;
    uint32_t hash; /* of the row, at its first channel */
    uint8_t flip;
    uint8_t *codes, *low;
    int64_t *errors;
} channels;

/* Reads t = grad * factor, rounded and within +-most, of `count` channels. */
OCT_INLINE void read_fixed(const channels *r, int64_t at, int64_t count, int32_t most, ints *t)
{
    floats grad = {0}, factor = {0};
    memcpy(&grad, r->grad + at, (size_t)count * sizeof *r->grad);
    memcpy(&factor, r->factor + at, (size_t)count * sizeof *r->factor);
    *t = (ints)(grad * factor + rounder) - rounder_bits;
    for (int i = 0; i < LANES; i++) {
        (*t)[i] = (*t)[i] > most ? most : (*t)[i];
        (*t)[i] = (*t)[i] < -most ? -most : (*t)[i];
    }
}

/* Codes `count` channels from `at` on. */
OCT_INLINE void code_lanes(const channels *r, const hashes *steps, const bool wide, int64_t at,
                           int64_t count)
{
    ints t;
    read_fixed(r, at, count, wide ? OCT_GRAD_MOST_WIDE : OCT_GRAD_MOST, &t);
    const hashes noise = (*steps + (r->hash + (uint32_t)at * golden)) >> 24;
    const shorts code = __builtin_convertvector(wide ? t + ONE / 2 : t + (ints)noise, shorts) >> 8;
    const bytes flipped = __builtin_convertvector(code, bytes) ^ r->flip;
    memcpy(r->codes + at, &flipped, (size_t)count);
    if (!wide) return;
    const bytes low = __builtin_convertvector(__builtin_convertvector(t, shorts), bytes) ^ r->flip;
    memcpy(r->low + at, &low, (size_t)count); /* the lower byte of t */
}

/* Codes a row; the last lanes may be some of those before once more. */
OCT_INLINE void code_row(const channels *r, const hashes *steps, const bool wide)
{
    for (int64_t at = 0; at + LANES <= r->n; at += LANES)
        code_lanes(r, steps, wide, at, LANES);
    if (r->n < LANES)
        code_lanes(r, steps, wide, 0, r->n);
    else if (r->n % LANES != 0)
        code_lanes(r, steps, wide, r->n - LANES, LANES);
}

/* Adds the errors of a row's codes, and what they are to be compared with. */
OCT_INLINE void add_errors(const channels *r)
{
    for (int64_t at = 0, count; at < r->n; at += count) {
        ints t;
        count = oct_min_i64(LANES, r->n - at);
        read_fixed(r, at, count, OCT_GRAD_MOST, &t);
        for (int64_t i = 0; i < count; i++) {
            const int64_t error = ONE * (int8_t)(r->codes[at + i] ^ r->flip) - t[i];
            r->errors[0] += error * error;
            r->errors[1] += (int64_t)t[i] * t[i];
        }
    }
}

/* The hash of a row: mix of Wellons, github.com/skeeto/hash-prospector. */
static inline uint32_t hash_row(uint32_t key, uint32_t row)
{
    uint32_t hash = key + row * golden;
    hash = (hash ^ hash >> 16) * 0x7feb352d;
    hash = (hash ^ hash >> 15) * 0x846ca68b;
    return hash ^ hash >> 16;
}

/* Codes all rows of the group whose first channel is `first`; r: its first row. */
OCT_INLINE void code_group(const oct_conv_plan *p, const oct_grad_codes *c, channels r,
                           int64_t first, const bool wide)
{
    const int64_t filled = oct_round_up(r.n, OCT_WORD), outs = p->config.shape.out_c;
    hashes steps;
    for (int i = 0; i < LANES; i++)
        steps[i] = (uint32_t)i * golden;
    for (int64_t i = 0; i < c->rows; i++) {
        r.hash = hash_row(c->key, (uint32_t)(c->position + i)) + (uint32_t)first * golden;
        code_row(&r, &steps, wide);
        if (r.errors) add_errors(&r);
        for (int64_t o = r.n; o < filled; o++) { /* what fills a group up: zeros */
            r.codes[o] = r.flip;
            if (wide) r.low[o] = r.flip;
        }
        r.grad += outs;
        r.codes += p->grad_row_bytes;
        if (wide) r.low += p->grad_row_bytes;
    }
}

OCT_CLONES void oct_conv_grad_codes(const oct_conv_plan *p, const oct_grad_codes *c)
{
    const oct_conv_shape *s = &p->config.shape;
    const int64_t outs = s->out_c / s->groups;
    const int64_t groups = outs % OCT_WORD == 0 ? 1 : s->groups, n = s->out_c / groups;
    for (int64_t g = 0; g < groups; g++) {
        const int64_t to = g * oct_round_up(n, OCT_WORD);
        const channels r = {.n = n,
                            .grad = c->grad + g * n,
                            .factor = c->factor + g * n,
                            .flip = c->flip,
                            .codes = c->codes + to,
                            .low = c->low ? c->low + to : NULL,
                            .errors = c->errors};
        if (c->low)
            code_group(p, c, r, g * n, true);
        else
            code_group(p, c, r, g * n, false);
    }
}
