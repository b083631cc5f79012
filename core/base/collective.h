/* A collective is what core and quant may ask of the other ranks. dist supplies the MPI one; the
 * default is one process. Every function is collective: all ranks call it, in the same order, and a rank that is alone
 * calls it in a training step as well, since where a leaf is computed again (oct_replay) the answer is of all leaves. */
#pragma once

#include "core/base/leaves.h"
#include "core/base/status.h"

typedef struct oct_rank_text {
    char text[128];
} oct_rank_text;

typedef struct oct_collective oct_collective;
struct oct_collective {
    int rank, size;
    /* Sum over the leaves of the global batch along the fixed tree. parts: this rank's parts, one
     * vector of n after another (as oct_tree_fold leaves them; overwritten); out: n, on every rank
     * the same bits; may be the first part. A rank without leaves passes no parts. width: bytes of an
     * element, sizeof(float) or sizeof(double). */
    oct_status (*tree_sum)(const oct_collective *self, const oct_leaves *leaves, void *parts,
                           int64_t n, size_t width, void *out);
    /* Element-wise maximum, in place. */
    oct_status (*max_i64)(const oct_collective *self, int64_t *values, int64_t n);
    oct_status (*broadcast)(const oct_collective *self, void *data, size_t bytes, int root);
    /* dst on rank 0 (size * bytes, in rank order; NULL elsewhere). */
    oct_status (*gather)(const oct_collective *self, const void *src, size_t bytes, void *dst);
    /* OK if OK on all ranks; otherwise `mine` where this rank failed and OCT_PEER elsewhere, with
     * the first failing rank's code and sentences copied into every record. */
    oct_status (*agree)(const oct_collective *self, oct_status mine);
    /* The same sum of floats while the rank does other things, other sums among them. The parts are rows
     * `stride` apart, and the total replaces the first of them (a rank without leaves has room for it). Sums
     * begin in the same order on all ranks; moving them on does not wait, and is for the thread that began
     * them; finish waits until all are over, and only then may the rows be touched. */
    oct_status (*sum_begin)(const oct_collective *self, const oct_leaves *leaves, float *parts,
                            int64_t stride, int64_t n);
    oct_status (*sums_move)(const oct_collective *self);
    oct_status (*sums_finish)(const oct_collective *self);
    /* Memory for the rows of sum_begin, zeroed, as oct_alloc and oct_free have it. Ranks of a host then add up
     * what is there in place of copies, and read the total where it is: rows_total returns where, after
     * sums_finish, for the columns that begin with these parts. It may be in another rank's memory, so it is
     * only read, and only until the ranks next synchronize; they must do so before the rows are written
     * again. Not collective; but each sum is of rows from here on all ranks, or on none. */
    oct_status (*rows_alloc)(const oct_collective *self, void *rows, size_t count,
                             size_t size);                     /* rows: T ** */
    void (*rows_free)(const oct_collective *self, void *rows); /* rows: T ** */
    const float *(*rows_total)(const oct_collective *self, const oct_leaves *leaves,
                               const float *parts, bool *lent); /* lent: others read it here, too */
    /* Not collective: how many seconds this rank has waited for others so far, and a rank's name with its host,
     * "rank 2 (node7)". */
    double (*waited)(const oct_collective *self);
    oct_rank_text (*name)(const oct_collective *self, int rank);
};

extern const oct_collective oct_collective_one; /* rank 0 of 1 */

/* Collective: sums whole numbers over the ranks, in place and exactly, while the sums fit into 64 bits. */
oct_status oct_sum_i64(const oct_collective *group, int64_t *values, int64_t n);

/* A replay lets one rank do again, alone, what the ranks have done together: it keeps the totals of a forward and
 * a backward, and returns them again.
 *
 *     oct_replay_begin(&replay, group);   work over &replay.face
 *     oct_replay_begin(&replay, NULL);    the same work, or what another rank did in it, over &replay.face
 */
typedef struct oct_replay {
    oct_collective face;         /* first: its functions find the rest after it */
    const oct_collective *ranks; /* borrowed */
    bool replays;                /* the calls return recorded totals */
    char *totals;                /* bytes: one total after the other */
    size_t used, capacity, next;
} oct_replay;

/* Records, in place of earlier records, what the collective calls over replay->face return from now on; sums of
 * gradients, which go on besides a backward, are not recorded. ranks NULL: from now on the calls return what was
 * recorded, and need no other rank. They must be the same calls in the same order; only one for more bytes than are
 * left is noticed: OCT_DEFECT. */
void oct_replay_begin(oct_replay *replay, const oct_collective *ranks);
void oct_replay_free(oct_replay *replay);
