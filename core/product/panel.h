/* The microkernel is a template that a kernel file includes once for each kind of word.
 *
 * A block of `rows` rows by `panels` panels of accumulators stays in registers while all words of the
 * rows go by: each word is broadcast over a vector once and multiplied with the tiles of all panels.
 * Rows and panels are spelled out instead of being arrays, which the compiler would keep in memory;
 * each shape is a function of its own, so that registers are given to one at a time.
 *
 * Before including, define
 *     PANEL_NAME          the name of the oct_product_fn that results
 *     PANEL_LANES         columns of a panel
 *     PANEL_TILE          bytes of a tile
 *     PANEL_ROWS_1 .. _4  max rows of a block with this many panels (at most 8; 0: no such blocks)
 *     PANEL_SUM           vector of accumulators; its elements are PANEL_ELEMENTs
 *     PANEL_WORD, PANEL_WEIGHT                 a word broadcast, a tile loaded
 *     PANEL_ZERO()                             -> PANEL_SUM
 *     PANEL_BROADCAST(at), PANEL_TILE_AT(at)   -> PANEL_WORD, PANEL_WEIGHT; at: const char *
 *     PANEL_MADD(sum, word, weight)            -> PANEL_SUM
 *     PANEL_READ(from, count), PANEL_WRITE(to, count, sum)   the first count columns (may be >= LANES)
 * for an instruction that is not for these operands but for similar ones
 *     PANEL_REST(rest, weight)   -> PANEL_SUM: adds what a tile leaves in the sums of all rows; it is subtracted
 * for an instruction that multiplies two words of each of two rows, where words of a row follow each other
 * (oct_product.word_step is 0)
 *     PANEL_TWO_ROWS             sums of two rows in a panel, which PANEL_MADD takes and gives
 *     PANEL_BROADCAST(at, next, words), PANEL_TILE_AT(at, words)   `words` words of both rows and as many tiles, 2 or,
 *                                at the end of a run, 1 and zeros
 *     PANEL_COMBINE(first, second), PANEL_SPLIT(sums, row)         of and to PANEL_SUMs; row: 0 or 1
 * for the bfloat16 products of float_kernel.h also
 *     PANEL_BLOCK         words of a block: its words of even number are a chain from 0, the others another, and both
 *                         are added to the sum, so that a sum takes three accumulators
 * or, in place of PANEL_READ and PANEL_WRITE, where sums are not written but become something else at once (and
 * oct_product.add is false),
 *     PANEL_STORE(panels, p, column, to, s0, s1, s2, s3)     a row's sums from `column` on, of `panels`
 *                                                           panels; to: PANEL_ELEMENT *
 * They are undefined again at the end, but where PANEL_MORE is defined: then another function of the same words
 * follows, which needs a name, an element, and what ends its sums.
 */
#include "core/base/cpu.h"
#include "core/product/product.h"

#include <stddef.h>

#define PANEL_PASTE2(a, b) a##b
#define PANEL_PASTE(a, b) PANEL_PASTE2(a, b)
#define PANEL_OWN(name) PANEL_PASTE(PANEL_NAME, name)
/* A row of a block has a vector for each panel. */
typedef struct PANEL_OWN(_quad) {
    PANEL_SUM p0, p1, p2, p3;
} PANEL_OWN(_quad);

typedef struct PANEL_OWN(_tiles) {
    PANEL_WEIGHT p0, p1, p2, p3;
} PANEL_OWN(_tiles);

/* A span is the columns that are worked: a few panels from `column` on. */
typedef struct PANEL_OWN(_span) {
    const oct_product *p;
    const char *panel;
    int64_t column, left; /* columns from here to the end */
} PANEL_OWN(_span);

#ifdef PANEL_STORE
OCT_INLINE PANEL_OWN(_quad) PANEL_OWN(_start)(const int panels, const PANEL_OWN(_span) * s,
                                              bool add, const PANEL_ELEMENT *acc)
{
    (void)panels, (void)s, (void)add, (void)acc;
    return (PANEL_OWN(_quad)){PANEL_ZERO(), PANEL_ZERO(), PANEL_ZERO(), PANEL_ZERO()};
}

OCT_INLINE void PANEL_OWN(_end)(const int panels, const PANEL_OWN(_span) * s,
                                const PANEL_OWN(_quad) * sum, PANEL_ELEMENT *acc)
{
    PANEL_STORE(panels, s->p, s->column, acc, sum->p0, sum->p1, sum->p2, sum->p3);
}
#else
OCT_INLINE PANEL_OWN(_quad) PANEL_OWN(_start)(const int panels, const PANEL_OWN(_span) * s,
                                              bool add, const PANEL_ELEMENT *acc)
{
    const int64_t left = s->left;
    PANEL_OWN(_quad) sum = {PANEL_ZERO(), PANEL_ZERO(), PANEL_ZERO(), PANEL_ZERO()};
    if (!add) return sum;
    sum.p0 = PANEL_READ(acc, left);
    if (panels > 1) sum.p1 = PANEL_READ(acc + PANEL_LANES, left - PANEL_LANES);
    if (panels > 2) sum.p2 = PANEL_READ(acc + 2 * PANEL_LANES, left - 2 * PANEL_LANES);
    if (panels > 3) sum.p3 = PANEL_READ(acc + 3 * PANEL_LANES, left - 3 * PANEL_LANES);
    return sum;
}

OCT_INLINE void PANEL_OWN(_end)(const int panels, const PANEL_OWN(_span) * s,
                                const PANEL_OWN(_quad) * sum, PANEL_ELEMENT *acc)
{
    const int64_t left = s->left;
    PANEL_WRITE(acc, left, sum->p0);
    if (panels > 1) PANEL_WRITE(acc + PANEL_LANES, left - PANEL_LANES, sum->p1);
    if (panels > 2) PANEL_WRITE(acc + 2 * PANEL_LANES, left - 2 * PANEL_LANES, sum->p2);
    if (panels > 3) PANEL_WRITE(acc + 3 * PANEL_LANES, left - 3 * PANEL_LANES, sum->p3);
}
#endif

/* How many rows of a block, and words of each, an instruction takes together; the sums of such rows. */
#ifdef PANEL_TWO_ROWS
#define PANEL_TOGETHER 2
#define PANEL_WORDS(at, next, words) PANEL_BROADCAST(at, next, words)
#define PANEL_TILES(at, words) PANEL_TILE_AT(at, words)

typedef struct PANEL_OWN(_sums) {
    PANEL_TWO_ROWS p0, p1, p2, p3;
} PANEL_OWN(_sums);
#else
#define PANEL_TOGETHER 1
#define PANEL_WORDS(at, next, words) PANEL_BROADCAST(at)
#define PANEL_TILES(at, words) PANEL_TILE_AT(at)
#define PANEL_COMBINE(first, second) (first)
#define PANEL_SPLIT(sums, row) (sums)

typedef PANEL_OWN(_quad) PANEL_OWN(_sums);
#endif

OCT_INLINE PANEL_OWN(_sums)
    PANEL_OWN(_combine)(const PANEL_OWN(_quad) * first, const PANEL_OWN(_quad) * second)
{
    (void)second;
    return (PANEL_OWN(_sums)){
        PANEL_COMBINE(first->p0, second->p0), PANEL_COMBINE(first->p1, second->p1),
        PANEL_COMBINE(first->p2, second->p2), PANEL_COMBINE(first->p3, second->p3)};
}

OCT_INLINE PANEL_OWN(_quad) PANEL_OWN(_split)(const PANEL_OWN(_sums) * sums, const int row)
{
    (void)row;
    return (PANEL_OWN(_quad)){PANEL_SPLIT(sums->p0, row), PANEL_SPLIT(sums->p1, row),
                              PANEL_SPLIT(sums->p2, row), PANEL_SPLIT(sums->p3, row)};
}

OCT_INLINE PANEL_OWN(_tiles)
    PANEL_OWN(_load)(const int panels, const int words, const char *tile, int64_t stride)
{
    (void)words;
    PANEL_OWN(_tiles) w;
    w.p0 = PANEL_TILES(tile, words);
    w.p1 = panels > 1 ? PANEL_TILES(tile + stride, words) : w.p0;
    w.p2 = panels > 2 ? PANEL_TILES(tile + 2 * stride, words) : w.p0;
    w.p3 = panels > 3 ? PANEL_TILES(tile + 3 * stride, words) : w.p0;
    return w;
}

/* next: the same place of the next row, where rows go in twos. */
OCT_INLINE void PANEL_OWN(_step)(const int panels, const int words, PANEL_OWN(_sums) * sum,
                                 const char *at, const char *next, const PANEL_OWN(_tiles) * w)
{
    (void)words, (void)next;
    const PANEL_WORD word = PANEL_WORDS(at, next, words);
    sum->p0 = PANEL_MADD(sum->p0, word, w->p0);
    if (panels > 1) sum->p1 = PANEL_MADD(sum->p1, word, w->p1);
    if (panels > 2) sum->p2 = PANEL_MADD(sum->p2, word, w->p2);
    if (panels > 3) sum->p3 = PANEL_MADD(sum->p3, word, w->p3);
}

#define PANEL_EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#ifdef PANEL_BLOCK
/* Adds a chain of odd words to that of even ones, and both to a row's sum. A block that is not full counts as filled up
 * with zeros, which make +0 of a chain at -0. */
OCT_INLINE void PANEL_OWN(_merge)(bool full, PANEL_OWN(_quad) * sum, PANEL_OWN(_quad) * even,
                                  PANEL_OWN(_quad) * odd)
{
    const PANEL_SUM zero = PANEL_ZERO();
    if (!full) {
        even->p0 += zero, even->p1 += zero, even->p2 += zero, even->p3 += zero;
        odd->p0 += zero, odd->p1 += zero, odd->p2 += zero, odd->p3 += zero;
    }
    sum->p0 += even->p0 + odd->p0, sum->p1 += even->p1 + odd->p1;
    sum->p2 += even->p2 + odd->p2, sum->p3 += even->p3 + odd->p3;
    *even = *odd = (PANEL_OWN(_quad)){zero, zero, zero, zero};
}

OCT_INLINE void PANEL_OWN(_block)(const int rows, const int panels, const PANEL_OWN(_span) * s,
                                  const oct_row *row)
{
#define PANEL_BEGIN(r)                                                                             \
    PANEL_OWN(_quad) sum##r = zero, even##r = zero, odd##r = zero;                                 \
    const char *x##r = NULL;                                                                       \
    if (r < rows) {                                                                                \
        sum##r = PANEL_OWN(_start)(panels, s, s->p->add, acc + row[r].acc);                        \
        x##r = x + row[r].x;                                                                       \
    }
#define PANEL_STEP_EVEN(r)                                                                         \
    if (r < rows) PANEL_OWN(_step)(panels, 1, &even##r, x##r + at, NULL, &v);
#define PANEL_STEP_ODD(r)                                                                          \
    if (r < rows) PANEL_OWN(_step)(panels, 1, &odd##r, x##r + at + OCT_WORD, NULL, &w);
#define PANEL_MERGE(r)                                                                             \
    if (r < rows) PANEL_OWN(_merge)(left == 0, &sum##r, &even##r, &odd##r);
#define PANEL_END(r)                                                                               \
    if (r < rows) PANEL_OWN(_end)(panels, s, &sum##r, acc + row[r].acc);

    const PANEL_OWN(_quad) zero = {PANEL_ZERO(), PANEL_ZERO(), PANEL_ZERO(), PANEL_ZERO()};
    const char *const x = s->p->x;
    PANEL_ELEMENT *const acc = (PANEL_ELEMENT *)s->p->acc + s->column;
    const int64_t stride = s->p->panel_bytes;
    const oct_run *run = s->p->runs, *const end = run + s->p->num_runs;
    int64_t done = 0; /* words of the first run that belong to earlier blocks */
    PANEL_EACH_ROW(PANEL_BEGIN)
    while (run < end) {
        int64_t left = PANEL_BLOCK;
        while (run < end && left > 0) {
            const int64_t words = run->words - done < left ? run->words - done : left;
            const char *tile = s->panel + (run->tile + done) * PANEL_TILE;
            int64_t at = run->x + done * OCT_WORD;
            for (const int64_t last = at + words * OCT_WORD; at < last; at += 2 * OCT_WORD) {
                const PANEL_OWN(_tiles) v = PANEL_OWN(_load)(panels, 1, tile, stride);
                PANEL_EACH_ROW(PANEL_STEP_EVEN)
                const PANEL_OWN(_tiles) w = PANEL_OWN(_load)(panels, 1, tile + PANEL_TILE, stride);
                PANEL_EACH_ROW(PANEL_STEP_ODD)
                tile += 2 * PANEL_TILE;
            }
            left -= words;
            done += words;
            if (done == run->words) run++, done = 0;
        }
        PANEL_EACH_ROW(PANEL_MERGE)
    }
    PANEL_EACH_ROW(PANEL_END)
#undef PANEL_STEP_EVEN
#undef PANEL_STEP_ODD
#undef PANEL_MERGE
#undef PANEL_END
}
#else
/* The sums of what tiles leave in all rows, and a row's without them. */
OCT_INLINE void PANEL_OWN(_gather)(const int panels, PANEL_OWN(_quad) * rest,
                                   const PANEL_OWN(_tiles) * w)
{
    (void)panels, (void)rest, (void)w;
#ifdef PANEL_REST
    rest->p0 = PANEL_REST(rest->p0, w->p0);
    if (panels > 1) rest->p1 = PANEL_REST(rest->p1, w->p1);
    if (panels > 2) rest->p2 = PANEL_REST(rest->p2, w->p2);
    if (panels > 3) rest->p3 = PANEL_REST(rest->p3, w->p3);
#endif
}

OCT_INLINE PANEL_OWN(_quad) PANEL_OWN(_without)(PANEL_OWN(_quad) sum, const PANEL_OWN(_quad) * rest)
{
    (void)rest;
#ifdef PANEL_REST
    sum.p0 -= rest->p0, sum.p1 -= rest->p1, sum.p2 -= rest->p2, sum.p3 -= rest->p3;
#endif
    return sum;
}

/* Starts and ends the sums of one row, or of two; the second may be the first once more. */
OCT_INLINE PANEL_OWN(_sums) PANEL_OWN(_begin)(const int panels, const PANEL_OWN(_span) * s,
                                              const oct_row *row, const oct_row *next)
{
    const PANEL_ELEMENT *acc = (const PANEL_ELEMENT *)s->p->acc + s->column;
    const PANEL_OWN(_quad) first = PANEL_OWN(_start)(panels, s, s->p->add, acc + row->acc);
    if (next == row) return PANEL_OWN(_combine)(&first, &first);
    const PANEL_OWN(_quad) second = PANEL_OWN(_start)(panels, s, s->p->add, acc + next->acc);
    return PANEL_OWN(_combine)(&first, &second);
}

OCT_INLINE void PANEL_OWN(_finish)(const int panels, const PANEL_OWN(_span) * s,
                                   const PANEL_OWN(_sums) * sums, const PANEL_OWN(_quad) * rest,
                                   const oct_row *row, const oct_row *next)
{
    PANEL_ELEMENT *acc = (PANEL_ELEMENT *)s->p->acc + s->column;
    const PANEL_OWN(_quad) first = PANEL_OWN(_without)(PANEL_OWN(_split)(sums, 0), rest);
    PANEL_OWN(_end)(panels, s, &first, acc + row->acc);
    if (next == row) return;
    const PANEL_OWN(_quad) second = PANEL_OWN(_without)(PANEL_OWN(_split)(sums, 1), rest);
    PANEL_OWN(_end)(panels, s, &second, acc + next->acc);
}

OCT_INLINE void PANEL_OWN(_block)(const int rows, const int panels, const PANEL_OWN(_span) * s,
                                  const oct_row *row)
{
#define PANEL_HAS(r) ((r)*PANEL_TOGETHER < rows)
#define PANEL_ROW(r) (row + (r)*PANEL_TOGETHER)
#define PANEL_NEXT(r) (PANEL_ROW(r) + ((r)*PANEL_TOGETHER + 1 < rows ? PANEL_TOGETHER - 1 : 0))
#define PANEL_BEGIN(r)                                                                             \
    PANEL_OWN(_sums) sum##r = {0};                                                                 \
    const char *x##r = NULL, *y##r = NULL;                                                         \
    if (PANEL_HAS(r)) {                                                                            \
        sum##r = PANEL_OWN(_begin)(panels, s, PANEL_ROW(r), PANEL_NEXT(r));                        \
        x##r = x + PANEL_ROW(r)->x;                                                                \
        y##r = x + PANEL_NEXT(r)->x;                                                               \
    }
#define PANEL_STEP(r)                                                                              \
    if (PANEL_HAS(r)) PANEL_OWN(_step)(panels, words, &sum##r, x##r + at, y##r + at, &w);
#define PANEL_END(r)                                                                               \
    if (PANEL_HAS(r)) PANEL_OWN(_finish)(panels, s, &sum##r, &rest, PANEL_ROW(r), PANEL_NEXT(r));
#define PANEL_MULTIPLY(count)                                                                      \
    do {                                                                                           \
        const int words = (count);                                                                 \
        const PANEL_OWN(_tiles) w = PANEL_OWN(_load)(panels, words, tile, stride);                 \
        PANEL_OWN(_gather)(panels, &rest, &w);                                                     \
        PANEL_EACH_ROW(PANEL_STEP)                                                                 \
        at += words * step, tile += words * PANEL_TILE;                                            \
    } while (0)

    const char *const x = s->p->x;
    const int64_t stride = s->p->panel_bytes;
    const int64_t step = s->p->word_step ? s->p->word_step : OCT_WORD;
    const oct_run *run = s->p->runs, *const end = run + s->p->num_runs;
    PANEL_OWN(_quad) rest = {PANEL_ZERO(), PANEL_ZERO(), PANEL_ZERO(), PANEL_ZERO()};
    PANEL_EACH_ROW(PANEL_BEGIN)
    for (; run < end; run++) {
        const char *tile = s->panel + run->tile * PANEL_TILE;
        const int64_t last = run->x + run->words * step;
        int64_t at = run->x;
        while (at + (PANEL_TOGETHER - 1) * step < last)
            PANEL_MULTIPLY(PANEL_TOGETHER);
        if (at < last) PANEL_MULTIPLY(1);
    }
    PANEL_EACH_ROW(PANEL_END)
#undef PANEL_HAS
#undef PANEL_ROW
#undef PANEL_NEXT
#undef PANEL_MULTIPLY
#undef PANEL_END
}
#endif
#undef PANEL_EACH_ROW
#undef PANEL_BEGIN
#undef PANEL_STEP

typedef void PANEL_OWN(_fn)(const PANEL_OWN(_span) * s, const oct_row *row);

#define PANEL_SHAPE(rows, panels)                                                                  \
    static __attribute__((noinline)) void PANEL_PASTE(PANEL_OWN(_), rows##x##panels)(              \
        const PANEL_OWN(_span) * s, const oct_row *row)                                            \
    {                                                                                              \
        if (rows <= PANEL_ROWS_##panels) PANEL_OWN(_block)(rows, panels, s, row);                  \
    }
#define PANEL_SHAPES(panels)                                                                       \
    PANEL_SHAPE(1, panels)                                                                         \
    PANEL_SHAPE(2, panels)                                                                         \
    PANEL_SHAPE(3, panels)                                                                         \
    PANEL_SHAPE(4, panels)                                                                         \
    PANEL_SHAPE(5, panels)                                                                         \
    PANEL_SHAPE(6, panels)                                                                         \
    PANEL_SHAPE(7, panels)                                                                         \
    PANEL_SHAPE(8, panels)
PANEL_SHAPES(1)
PANEL_SHAPES(2)
PANEL_SHAPES(3)
PANEL_SHAPES(4)
#define PANEL_ENTRY(rows, panels) PANEL_PASTE(PANEL_OWN(_), rows##x##panels)
#define PANEL_ENTRIES(panels)                                                                      \
    {                                                                                              \
        PANEL_ENTRY(1, panels), PANEL_ENTRY(2, panels), PANEL_ENTRY(3, panels),                    \
            PANEL_ENTRY(4, panels), PANEL_ENTRY(5, panels), PANEL_ENTRY(6, panels),                \
            PANEL_ENTRY(7, panels), PANEL_ENTRY(8, panels)                                         \
    }

static void PANEL_NAME(const oct_product *p)
{
    static PANEL_OWN(_fn) *const shapes[4][8] = {PANEL_ENTRIES(1), PANEL_ENTRIES(2),
                                                 PANEL_ENTRIES(3), PANEL_ENTRIES(4)};
    static const int max_rows[4] = {PANEL_ROWS_1, PANEL_ROWS_2, PANEL_ROWS_3, PANEL_ROWS_4};
    const int64_t max = PANEL_ROWS_4 ? 4 : PANEL_ROWS_3 ? 3 : PANEL_ROWS_2 ? 2 : 1;
    int64_t left = (p->n + PANEL_LANES - 1) / PANEL_LANES, column = 0;
    while (left > 0) {
        int64_t take = left < max ? left : max;
        if (left == max + 1 && max > 2) take = max - 1; /* not one alone at the end */
        const PANEL_OWN(_span)
            s = {.p = p,
                 .panel = (const char *)p->packed + column / PANEL_LANES * p->panel_bytes,
                 .column = column,
                 .left = p->n - column};
        for (int64_t i = 0, count; i < p->m; i += count) {
            count = p->m - i < max_rows[take - 1] ? p->m - i : max_rows[take - 1];
            shapes[take - 1][count - 1](&s, p->rows + i);
        }
        left -= take;
        column += take * PANEL_LANES;
    }
}

#ifndef PANEL_MORE
#undef PANEL_LANES
#undef PANEL_BLOCK
#undef PANEL_TILE
#undef PANEL_ROWS_1
#undef PANEL_ROWS_2
#undef PANEL_ROWS_3
#undef PANEL_ROWS_4
#undef PANEL_SUM
#undef PANEL_WORD
#undef PANEL_WEIGHT
#undef PANEL_ZERO
#undef PANEL_BROADCAST
#undef PANEL_TILE_AT
#undef PANEL_MADD
#undef PANEL_REST
#undef PANEL_TWO_ROWS
#undef PANEL_COMBINE
#undef PANEL_SPLIT
#endif
#undef PANEL_MORE
#undef PANEL_NAME
#undef PANEL_ELEMENT
#undef PANEL_READ
#undef PANEL_WRITE
#undef PANEL_STORE
#undef PANEL_PASTE2
#undef PANEL_PASTE
#undef PANEL_OWN
#undef PANEL_TOGETHER
#undef PANEL_WORDS
#undef PANEL_TILES
#undef PANEL_SHAPE
#undef PANEL_SHAPES
#undef PANEL_ENTRY
#undef PANEL_ENTRIES
