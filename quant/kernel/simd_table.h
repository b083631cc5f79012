/* The functions of every SIMD table: a template that a kernel file includes once, with the vectors of simd.h or vectors.h,
 * and with what it has of its instructions:
 *     COLUMNS, TILE_BYTES                  of a panel (core/product/panel.h); COLUMNS are those of a vector, too
 *     broadcast, add_products              PANEL_BROADCAST, PANEL_MADD; with PANEL_TWO_ROWS the file defines these
 *     interleave(at, count, out)           const uint8_t *at[DEPTHWISE_TAPS], whose first count channels may be read
 *                                          (<= DEPTHWISE_CHANNELS) -> DEPTHWISE_CHANNELS words
 * as macros
 *     PANEL_ROWS_1 .. _4, PANEL_WORD, PANEL_WEIGHT, PANEL_TILE_AT
 *     DEPTHWISE_TAPS                           taps of a word: 4 or 2
 *     DEPTHWISE_CHANNELS                       of a block: a multiple of 16, at most OCT_DEPTHWISE_MAX_CHANNELS
 *     DEPTHWISE_MADD(sum, codes, weight)       -> lanes; both const int8_t *, of one vector
 *     DEPTHWISE_MADD_NEXT(sum, codes, weight)  the same with the weights one tap further: what the next line of
 *                                              output has of these lines (oct_depthwise.pair); may be left out
 *
 * Depthwise convolutions: the taps of a column that a word can hold (4 codes, or 2 of 16 bits) are interleaved: word c of
 * the result holds those of channel c, as the product's instruction wants them. A line of output interleaves each
 * column once, for a block of channels that stays in the first-level cache, and then every position is a
 * sum over kernel_w interleaved columns. What lies outside is `fill`, so that there are no edges. Columns
 * are too far apart for the hardware prefetcher, so interleaving one fetches what the next line of output
 * interleaves.
 *
 * Weights are [C/16][kernel_w][kernel_h/taps][16 channels][taps], filled up with zeros.
 */
#include "quant/kernel/kernel.h"

#include <string.h>

enum {
    OCT_DEPTHWISE_WORD = 4,          /* bytes */
    OCT_DEPTHWISE_LANES = 16,        /* channels that weights lie side by side of */
    OCT_DEPTHWISE_MAX_CHANNELS = 64, /* channels of a block */
    OCT_DEPTHWISE_MIN_TAPS = 2,      /* taps of a word */
};

int64_t oct_depthwise_packed_bytes(int taps, int64_t channels, int kernel_h, int kernel_w);
void oct_depthwise_pack_taps(int taps, const oct_depthwise_weights *w, int8_t *packed);

#ifdef DEPTHWISE_TAPS

#ifndef DEPTHWISE_MADD_NEXT /* a table without pairs is never asked for one */
#define DEPTHWISE_MADD_NEXT(sum, codes, weight) (sum)
#endif

/* The bytes of an interleaved column, a group of taps. */
enum { DEPTHWISE_BYTES = DEPTHWISE_CHANNELS * OCT_DEPTHWISE_WORD };

/* A block of channels of a line. */
typedef struct channel_block {
    const oct_depthwise *d;
    int64_t first, count; /* channels */
    int64_t groups;       /* of taps of a column */
    int64_t columns;
    int8_t *codes; /* interleaved: (columns, groups, DEPTHWISE_BYTES) */
} channel_block;

static void interleave_group(const channel_block *b, int64_t group)
{
    const oct_depthwise *d = b->d;
    uint8_t fill[DEPTHWISE_CHANNELS];
    const uint8_t *at[DEPTHWISE_TAPS], *outside[DEPTHWISE_TAPS];
    int64_t step[DEPTHWISE_TAPS], below[DEPTHWISE_TAPS];
    memset(fill, d->fill, sizeof fill);
    for (int tap = 0; tap < DEPTHWISE_TAPS; tap++) {
        const int64_t ky = group * DEPTHWISE_TAPS + tap;
        const uint8_t *line = ky < d->kernel_h + d->pair ? d->line[ky] : NULL;
        outside[tap] = fill;
        at[tap] = line ? line + b->first : fill;
        step[tap] = line ? d->channels : 0;
        below[tap] = line ? (d->pair ? 2 : d->stride) * d->in_w * d->channels : 0;
    }
    int8_t *out = b->codes + group * DEPTHWISE_BYTES;
    const int64_t pitch = b->groups * DEPTHWISE_BYTES;
    for (int64_t x = 0; x < b->columns; x++, out += pitch) {
        if (x < d->padding || x >= d->padding + d->in_w) {
            interleave(outside, b->count, out);
            continue;
        }
        interleave(at, b->count, out);
        for (int tap = 0; tap < DEPTHWISE_TAPS; tap++) {
            __builtin_prefetch(at[tap] + below[tap]);
            at[tap] += step[tap];
        }
    }
}

/* Ends the sums of `positions` neighbours, 1 or 4, of a vector of channels; element `at` is the first. */
OCT_INLINE void end_positions(const oct_depthwise *d, const int positions, int64_t channel,
                              int64_t at, lanes s0, lanes s1, lanes s2, lanes s3)
{
    const int64_t live = d->channels - channel;
    if (d->epilogue) {
        store_positions(positions, d, channel, at, s0, s1, s2, s3);
        return;
    }
    int32_t *acc = d->acc + at;
    write_lanes(acc, live, s0);
    if (positions == 1) return;
    write_lanes(acc + d->channels, live, s1);
    write_lanes(acc + 2 * d->channels, live, s2);
    write_lanes(acc + 3 * d->channels, live, s3);
}

/* Sums `positions` neighbours of one line of output or, if `pair`, of two, each over `columns` words. */
OCT_INLINE void sum_positions(const channel_block *b, const int positions, const bool pair,
                              const int64_t columns, const int8_t *codes, const int8_t *w,
                              int64_t x, int64_t channel)
{
    const oct_depthwise *d = b->d;
    const int64_t apart = d->stride * b->groups * DEPTHWISE_BYTES, at = x * d->channels + channel;
    codes += x * apart;
    lanes s0 = {0}, s1 = s0, s2 = s0, s3 = s0;
    lanes t0 = s0, t1 = s0, t2 = s0, t3 = s0;
    for (int64_t column = 0; column < columns; column++) {
        s0 = DEPTHWISE_MADD(s0, codes, w);
        if (pair) t0 = DEPTHWISE_MADD_NEXT(t0, codes, w);
        if (positions > 1) {
            s1 = DEPTHWISE_MADD(s1, codes + apart, w);
            s2 = DEPTHWISE_MADD(s2, codes + 2 * apart, w);
            s3 = DEPTHWISE_MADD(s3, codes + 3 * apart, w);
        }
        if (positions > 1 && pair) {
            t1 = DEPTHWISE_MADD_NEXT(t1, codes + apart, w);
            t2 = DEPTHWISE_MADD_NEXT(t2, codes + 2 * apart, w);
            t3 = DEPTHWISE_MADD_NEXT(t3, codes + 3 * apart, w);
        }
        codes += DEPTHWISE_BYTES;
        w += OCT_DEPTHWISE_LANES * OCT_DEPTHWISE_WORD;
    }
    end_positions(d, positions, channel, at, s0, s1, s2, s3);
    if (pair) end_positions(d, positions, channel, at + d->out_w * d->channels, t0, t1, t2, t3);
}

/* Sums all positions of a vector of channels. pair and columns are known to the compiler where they are common. */
OCT_INLINE void sum_vector(const channel_block *b, const bool pair, const int64_t columns,
                           int64_t channel)
{
    const oct_depthwise *d = b->d;
    const int8_t *const w =
        d->packed +
        channel / OCT_DEPTHWISE_LANES * columns * OCT_DEPTHWISE_LANES * OCT_DEPTHWISE_WORD +
        channel % OCT_DEPTHWISE_LANES * OCT_DEPTHWISE_WORD;
    const int8_t *const codes = b->codes + (channel - b->first) * OCT_DEPTHWISE_WORD;
    int64_t x = 0;
    for (; x + 4 <= d->out_w; x += 4)
        sum_positions(b, 4, pair, columns, codes, w, x, channel);
    for (; x < d->out_w; x++)
        sum_positions(b, 1, pair, columns, codes, w, x, channel);
}

static void depthwise(const oct_depthwise *d)
{
    channel_block b = {.d = d,
                       .groups = (d->kernel_h + DEPTHWISE_TAPS - 1) / DEPTHWISE_TAPS,
                       .columns = (d->out_w - 1) * d->stride + d->kernel_w,
                       .codes = d->scratch};
    const int64_t columns = b.groups * d->kernel_w;
    for (; b.first < d->channels; b.first += DEPTHWISE_CHANNELS) {
        const int64_t left = d->channels - b.first;
        b.count = left < DEPTHWISE_CHANNELS ? left : DEPTHWISE_CHANNELS;
        for (int64_t group = 0; group < b.groups; group++)
            interleave_group(&b, group);
        for (int64_t c = b.first; c < b.first + b.count; c += COLUMNS)
            if (d->pair && columns == 3)
                sum_vector(&b, true, 3, c);
            else if (d->pair)
                sum_vector(&b, true, columns, c);
            else
                sum_vector(&b, false, columns, c);
    }
}

static int64_t depthwise_bytes(int64_t channels, int kernel_h, int kernel_w)
{
    return oct_depthwise_packed_bytes(DEPTHWISE_TAPS, channels, kernel_h, kernel_w);
}

static void depthwise_pack(const oct_depthwise_weights *w, int8_t *packed)
{
    oct_depthwise_pack_taps(DEPTHWISE_TAPS, w, packed);
}

#define PANEL_NAME product
#define PANEL_LANES COLUMNS
#define PANEL_TILE TILE_BYTES
#define PANEL_SUM lanes
#define PANEL_ELEMENT int32_t
#define PANEL_ZERO() ((lanes){0})
#ifndef PANEL_TWO_ROWS
#define PANEL_BROADCAST(at) broadcast(at)
#define PANEL_MADD(sum, word, w) add_products(sum, word, w)
#endif
#define PANEL_READ(from, count) read_lanes(from, count)
#define PANEL_WRITE(to, count, sum) write_lanes(to, count, sum)
#define PANEL_MORE
#include "core/product/panel.h"

#define PANEL_NAME product_and_requantize
#define PANEL_ELEMENT uint8_t
#define PANEL_STORE(panels, p, column, to, a, b, c, d) store_row(panels, p, column, to, a, b, c, d)
#include "core/product/panel.h"

/* A product whose sums become codes finds the coder of a call in `epilogue`, as depthwise does. */
OCT_INLINE void multiply_to_codes(oct_product_fn *product_to_codes, const oct_product *p,
                                  const oct_requant *q)
{
    const coder z = coder_of(q, p->acc);
    oct_product with_coder = *p;
    with_coder.epilogue = &z;
    product_to_codes(&with_coder);
}

static void product_codes(const oct_product *p, const oct_requant *q)
{
    multiply_to_codes(product_and_requantize, p, q);
}

static void depthwise_codes(const oct_depthwise *d, const oct_requant *q)
{
    const coder z = coder_of(q, d->codes);
    oct_depthwise with_coder = *d;
    with_coder.epilogue = &z;
    depthwise(&with_coder);
}

/* Members of the table; pack and pairs (oct_byte_product) may be NULL. */
#define OCT_SIMD_TABLE(pack, pairs, pairs_time)                                                    \
    .bytes = {COLUMNS, TILE_BYTES, pack, product, pairs, pairs_time},                              \
    .depthwise_bytes = depthwise_bytes, .depthwise_pack = depthwise_pack, .depthwise = depthwise,  \
    .product_codes = product_codes, .depthwise_codes = depthwise_codes, .requantize = requantize

#endif
