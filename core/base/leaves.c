/* Leaves have maximal subtrees, and a tree sum has two halves: folding a rank's own, merging those
 * of all.
 *
 * Level by level from the bottom, row i takes row i + 2^j for i a multiple of 2^(j+1): inside an
 * aligned subtree this is the tree itself, cut where the leaves end. The work is done in blocks of
 * columns, so a block stays in the cache while the whole tree is summed over it.
 */
#include "core/base/leaves.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <string.h>

enum { COLUMNS = 2048 };

oct_leaves oct_leaves_split(int64_t samples, int64_t leaf, int rank, int size)
{
    OCT_ASSERT(samples >= 0 && leaf > 0 && rank >= 0 && rank < size);
    int64_t count = samples / leaf + (samples % leaf != 0);
    int64_t first = count * rank / size;
    int64_t end = count * (rank + 1) / size;
    return (oct_leaves){samples, leaf, count, first, end - first};
}

int64_t oct_leaves_first_sample(const oct_leaves *leaves)
{
    return oct_min_i64(leaves->first * leaves->leaf, leaves->samples);
}

int64_t oct_leaf_samples(const oct_leaves *leaves, int64_t first, int64_t end)
{
    return oct_min_i64((leaves->first + end) * leaves->leaf, leaves->samples) -
           oct_min_i64((leaves->first + first) * leaves->leaf, leaves->samples);
}

int64_t oct_leaves_local_samples(const oct_leaves *leaves)
{
    return oct_leaf_samples(leaves, 0, leaves->local);
}

int64_t oct_leaf_begin(const oct_leaves *leaves, int64_t i)
{
    return i * leaves->leaf;
}

int64_t oct_leaf_size(const oct_leaves *leaves, int64_t i)
{
    return oct_min_i64(leaves->leaf, leaves->samples - (leaves->first + i) * leaves->leaf);
}

/* Says whether a rank whose leaves end at `end` has all of the node of twice this span, cut at `count`. A node that its
 * left half already fills is that half, so it is not doubled to. */
static bool can_double(int64_t first, int64_t span, int64_t end, int64_t count)
{
    if (first % (2 * span) != 0) return false;
    return first + 2 * span <= end || (end == count && first + span < end);
}

int oct_leaves_parts(const oct_leaves *leaves, oct_subtree parts[OCT_MAX_PARTS])
{
    int n = 0;
    int64_t end = leaves->first + leaves->local;
    for (int64_t first = leaves->first; first < end;) {
        int64_t span = 1;
        while (can_double(first, span, end, leaves->count))
            span *= 2;
        OCT_ASSERT(n < OCT_MAX_PARTS);
        parts[n++] = (oct_subtree){first, span};
        first += span;
    }
    return n;
}

int oct_tree_merges(int64_t i, int64_t count)
{
    OCT_ASSERT(i >= 0 && i < count);
    if (i + 1 < count) return __builtin_ctzll((uint64_t)i + 1);
    return __builtin_popcountll((uint64_t)i);
}

OCT_CLONES static void add_f32(void *sum, const void *x, int64_t n)
{
    float *restrict to = sum;
    const float *restrict from = x;
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

OCT_CLONES static void add_f64(void *sum, const void *x, int64_t n)
{
    double *restrict to = sum;
    const double *restrict from = x;
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* Sums the rows (one a leaf) of each part (subtree) along its tree, in cache, and moves the sum to row p. Part p begins
 * at row >= p, so moving in ascending order overwrites only rows already summed. */
static int fold_rows(const oct_leaves *leaves, char *rows, int64_t n, size_t width,
                     void (*add)(void *sum, const void *x, int64_t n))
{
    oct_subtree parts[OCT_MAX_PARTS];
    int num_parts = oct_leaves_parts(leaves, parts);
    size_t row_bytes = (size_t)n * width;
    for (int64_t c = 0; c < n; c += COLUMNS) {
        int64_t columns = oct_min_i64(COLUMNS, n - c);
        char *block = rows + (size_t)c * width;
        for (int p = 0; p < num_parts; p++) {
            int64_t row = parts[p].first - leaves->first;
            char *part = block + (size_t)row * row_bytes, *home = block + (size_t)p * row_bytes;
            const int64_t count = oct_min_i64(parts[p].span, leaves->local - row);
            for (int64_t step = 1; step < count; step *= 2)
                for (int64_t i = 0; i + step < count; i += 2 * step)
                    add(part + (size_t)i * row_bytes, part + (size_t)(i + step) * row_bytes,
                        columns);
            if (part != home) memcpy(home, part, (size_t)columns * width);
        }
    }
    return num_parts;
}

int oct_tree_fold_f32(const oct_leaves *leaves, float *rows, int64_t n)
{
    return fold_rows(leaves, (char *)rows, n, sizeof *rows, add_f32);
}

int oct_tree_fold_f64(const oct_leaves *leaves, double *rows, int64_t n)
{
    return fold_rows(leaves, (char *)rows, n, sizeof *rows, add_f64);
}

/* Adds the vectors of a whole subtree of 4 or 8 into the first: all are read once, side by side, and one is
 * written. */
#define DEFINE_ADD_MORE(type, name)                                                                \
    OCT_CLONES static void add_4_##name(void *const *v, size_t at, int64_t n)                      \
    {                                                                                              \
        type *restrict a = (type *)((char *)v[0] + at);                                            \
        const type *restrict b = (type *)((char *)v[1] + at);                                      \
        const type *restrict c = (type *)((char *)v[2] + at);                                      \
        const type *restrict d = (type *)((char *)v[3] + at);                                      \
        for (int64_t i = 0; i < n; i++)                                                            \
            a[i] = (a[i] + b[i]) + (c[i] + d[i]);                                                  \
    }                                                                                              \
    OCT_CLONES static void add_8_##name(void *const *v, size_t at, int64_t n)                      \
    {                                                                                              \
        type *restrict a = (type *)((char *)v[0] + at);                                            \
        const type *restrict b = (type *)((char *)v[1] + at);                                      \
        const type *restrict c = (type *)((char *)v[2] + at);                                      \
        const type *restrict d = (type *)((char *)v[3] + at);                                      \
        const type *restrict e = (type *)((char *)v[4] + at);                                      \
        const type *restrict f = (type *)((char *)v[5] + at);                                      \
        const type *restrict g = (type *)((char *)v[6] + at);                                      \
        const type *restrict h = (type *)((char *)v[7] + at);                                      \
        for (int64_t i = 0; i < n; i++)                                                            \
            a[i] = ((a[i] + b[i]) + (c[i] + d[i])) + ((e[i] + f[i]) + (g[i] + h[i]));              \
    }

DEFINE_ADD_MORE(float, f32)
DEFINE_ADD_MORE(double, f64)

/* The walk over a tree whose lower nodes are parts keeps this. */
typedef struct merge_walk {
    const oct_subtree *parts;
    int num_parts, next;
    void **vectors;
    size_t at; /* bytes, where in each vector */
    int64_t n;
    void (*add)(void *sum, const void *x, int64_t n);
    void (*add_4)(void *const *v, size_t at, int64_t n);
    void (*add_8)(void *const *v, size_t at, int64_t n);
} merge_walk;

/* Says whether the next parts are `count` equal ones that make up the node [lo, lo + span). */
static bool is_made_of(const merge_walk *w, int64_t lo, int64_t span, int count)
{
    const int64_t each = span / count;
    if (span % count != 0 || w->num_parts - w->next < count) return false;
    for (int i = 0; i < count; i++) {
        const oct_subtree *part = &w->parts[w->next + i];
        if (part->first != lo + i * each || part->span != each) return false;
    }
    return true;
}

/* Sums the parts from w->next on that make up the node of leaves [lo, lo + span) into the vector of the first; four or
 * eight equal ones at once, in the order of the tree. */
static void sum_node(merge_walk *w, int64_t lo, int64_t span)
{
    const int head = w->next;
    OCT_ASSERT(span > 0 && w->parts[head].first == lo && w->parts[head].span <= span);
    if (w->parts[head].span == span) {
        w->next++;
        return;
    }
    if (is_made_of(w, lo, span, 8)) {
        w->add_8(w->vectors + head, w->at, w->n);
        w->next += 8;
        return;
    }
    if (is_made_of(w, lo, span, 4)) {
        w->add_4(w->vectors + head, w->at, w->n);
        w->next += 4;
        return;
    }
    sum_node(w, lo, span / 2);
    const int right = w->next;
    if (right == w->num_parts) return; /* the leaves end in the left half */
    sum_node(w, lo + span / 2, span / 2);
    w->add((char *)w->vectors[head] + w->at, (char *)w->vectors[right] + w->at, w->n);
}

int oct_tree_merge(const oct_leaves *run, oct_subtree *parts, void **vectors, int num_parts,
                   int64_t n, size_t width)
{
    const bool floats = width == sizeof(float);
    oct_subtree merged[OCT_MAX_PARTS];
    int heads[OCT_MAX_PARTS];
    const int count = oct_leaves_parts(run, merged);
    merge_walk w = {.parts = parts,
                    .num_parts = num_parts,
                    .vectors = vectors,
                    .add = floats ? add_f32 : add_f64,
                    .add_4 = floats ? add_4_f32 : add_4_f64,
                    .add_8 = floats ? add_8_f32 : add_8_f64};
    int64_t c = 0;
    do { /* at least once: how many parts there are is found for no elements, too */
        w.next = 0;
        w.at = (size_t)c * width;
        w.n = oct_min_i64(COLUMNS, n - c);
        for (int i = 0; i < count; i++) {
            heads[i] = w.next;
            sum_node(&w, merged[i].first, merged[i].span);
        }
        OCT_ASSERT(w.next == num_parts);
        c += COLUMNS;
    } while (c < n);
    for (int i = 0; i < count; i++) {
        parts[i] = merged[i];
        vectors[i] = vectors[heads[i]]; /* heads[i] >= i: not written yet */
    }
    return count;
}

oct_cut oct_cut_samples(const oct_leaves *leaves, int64_t step, int threads)
{
    return (oct_cut){oct_leaves_local_samples(leaves), leaves->leaf, step, threads};
}

bool oct_leaves_want_cut(const oct_leaves *leaves, int threads)
{
    return leaves->local < 2 * threads && leaves->local % threads != 0;
}

oct_cut oct_cut_columns(int64_t leaves, int64_t columns, int threads)
{
    int64_t step = OCT_CACHE_LINE / (int64_t)sizeof(float);
    while (step > 1 && leaves * (columns / step) < 2 * threads)
        step /= 2;
    return (oct_cut){leaves * columns, columns, step, threads};
}

/* Returns the first unit of thread t: total * t / threads, without overflow, at a multiple of `step` in its leaf. */
static int64_t thread_begin(const oct_cut *cut, int64_t t)
{
    if (t == cut->threads) return cut->total;
    const int64_t threads = cut->threads;
    const int64_t at = cut->total / threads * t + cut->total % threads * t / threads;
    return cut->units > 0 ? at - at % cut->units % cut->step : at;
}

oct_tile oct_tile_begin(const oct_cut *cut, int t)
{
    return (oct_tile){.next = thread_begin(cut, t), .last = thread_begin(cut, t + 1)};
}

/* A tile ends where its leaf ends, or the units of its thread. */
bool oct_tile_next(const oct_cut *cut, oct_tile *tile)
{
    if (tile->next >= tile->last) return false;
    tile->leaf = tile->next / cut->units;
    tile->first = tile->next % cut->units;
    tile->end = oct_min_i64(cut->units, tile->first + tile->last - tile->next);
    tile->next += tile->end - tile->first;
    return true;
}
