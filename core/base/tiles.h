/* Threads share what leaves are made of.
 *
 * A leaf has units that are computed independently of each other: samples, or columns of a sum over its
 * samples. All units of all leaves go by in order; thread t of T has the t-th run of them, cut at the
 * borders of leaves into tiles. So more threads than leaves have work, no sum is ever cut, and as many
 * leaves for each thread are shared as whole ones.
 *
 *     #pragma omp parallel for schedule(static)
 *     for (int t = 0; t < cut.threads; t++)
 *         for (oct_tile p = oct_tile_begin(&cut, t); oct_tile_next(&cut, &p);)
 *             units [p.first, p.end) of leaf p.leaf
 */
#pragma once

#include "core/base/leaves.h"

typedef struct oct_cut {
    int64_t total; /* units of all leaves */
    int64_t units; /* of a leaf; the last may have fewer */
    int64_t step;  /* leaves are cut at multiples of this many units; `units`: not at all */
    int threads;
} oct_cut;

typedef struct oct_tile {
    int64_t leaf, first, end;
    int64_t next, last; /* units of the thread that are left, of all */
} oct_tile;

/* Cuts the local samples; each `step` of them stay together. */
oct_cut oct_cut_samples(const oct_leaves *leaves, int64_t step, int threads);
/* Says whether threads that take whole leaves would leave much time unused. */
bool oct_leaves_want_cut(const oct_leaves *leaves, int threads);
/* Cuts `leaves` leaves of `columns` columns: in steps of 16 or, where that makes tiles of unequal size, of
 * fewer. */
oct_cut oct_cut_columns(int64_t leaves, int64_t columns, int threads);

oct_tile oct_tile_begin(const oct_cut *cut, int t);
/* Goes on to the thread's next tile; false at the end. No two tiles have the same leaf + t, and one that
 * is after another has a greater one: less than the number of leaves + threads. */
bool oct_tile_next(const oct_cut *cut, oct_tile *tile);
