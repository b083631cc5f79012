/* Every sum over samples has one fixed shape (leaves.md shows it).
 *
 * The global batch is cut into leaves of `leaf` samples (the last may be short). A rank owns a
 * contiguous run of leaves. A sum is taken inside each leaf in a fixed order, then over leaves by
 * the balanced binary tree whose node (level j, index k) covers leaves [k 2^j, (k+1) 2^j) cut at
 * `count`; a node with one child is that child. So no bit depends on the number of ranks: a rank
 * folds its leaves into the maximal aligned subtrees of its range (parts), and the parts of all
 * ranks are added along the same tree.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct oct_leaves {
    int64_t samples; /* of the global batch */
    int64_t leaf;    /* samples in a full leaf */
    int64_t count;   /* leaves in the global batch */
    int64_t first;   /* first leaf of this rank */
    int64_t local;   /* leaves of this rank; may be 0 in a short last batch */
} oct_leaves;

enum { OCT_MAX_PARTS = 128 }; /* 2 log2(count) + 1 with room */

/* Rank `rank` of `size` owns leaves [rank*count/size, (rank+1)*count/size). */
oct_leaves oct_leaves_split(int64_t samples, int64_t leaf, int rank, int size);

/* These return the sample range of this rank in the global batch, and of local leaf i within the
 * rank's samples. */
int64_t oct_leaves_first_sample(const oct_leaves *leaves);
int64_t oct_leaves_local_samples(const oct_leaves *leaves);
int64_t oct_leaf_begin(const oct_leaves *leaves, int64_t i); /* offset in the local samples */
int64_t oct_leaf_size(const oct_leaves *leaves, int64_t i);
int64_t oct_leaf_samples(const oct_leaves *leaves, int64_t first, int64_t end); /* [first, end) */

typedef struct oct_subtree {
    int64_t first; /* leaf */
    int64_t span;  /* 2^j, may reach beyond count */
} oct_subtree;

/* Finds the maximal aligned subtrees of leaves [first, first+local) in ascending order; returns how
 * many. */
int oct_leaves_parts(const oct_leaves *leaves, oct_subtree parts[OCT_MAX_PARTS]);

/* Returns how many merges follow subtree i when the tree over `count` equal subtrees (the last may be
 * cut short) is summed one after the other, as a binary counter counts: what waits for its right neighbour
 * is on a stack, lower leaves below, and a merge makes one of the two on top. After the last subtree a
 * single sum is left. At least one merge where i is odd: its left neighbour waits on top. */
int oct_tree_merges(int64_t i, int64_t count);

/* rows: `local` vectors of n, one a leaf. Folds them in place; afterwards row p (p < the returned
 * number of parts) holds part p. */
int oct_tree_fold_f32(const oct_leaves *leaves, float *rows, int64_t n);
int oct_tree_fold_f64(const oct_leaves *leaves, double *rows, int64_t n);

/* Adds neighbouring parts, in ascending order, that together cover the leaves [first, first+local) of
 * `run`, into the maximal subtrees of that run; returns how many. vectors[p] points to the n elements of
 * part p, `width` bytes each: sizeof(float) or sizeof(double). Afterwards `parts` and `vectors` begin with
 * those of the subtrees; the vector of a subtree is that of its first part, and the others may be overwritten. */
int oct_tree_merge(const oct_leaves *run, oct_subtree *parts, void **vectors, int num_parts,
                   int64_t n, size_t width);

/* Threads share what leaves are made of.
 *
 * A leaf has units that are computed independently of each other: samples, or columns of a sum over its
 * samples. All units of all leaves are in one order; thread t of T has the t-th run of them, cut at the
 * borders of leaves into tiles. So more threads than leaves have work, no sum is ever cut, and as many
 * leaves for each thread are shared as whole ones.
 *
 *     #pragma omp parallel for schedule(static)
 *     for (int t = 0; t < cut.threads; t++)
 *         for (oct_tile p = oct_tile_begin(&cut, t); oct_tile_next(&cut, &p);)
 *             units [p.first, p.end) of leaf p.leaf
 */
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
/* Cuts leaves at multiples of `step` columns: a cache line of floats, or less until each thread has two steps. */
oct_cut oct_cut_columns(int64_t leaves, int64_t columns, int threads);

oct_tile oct_tile_begin(const oct_cut *cut, int t);
/* Moves to the thread's next tile; false at the end. No two tiles have the same leaf + t, and a later
 * tile has a greater one: less than the number of leaves + threads. */
bool oct_tile_next(const oct_cut *cut, oct_tile *tile);
