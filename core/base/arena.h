/* An arena is the memory of one training step: one block with two ends.
 *
 * From the bottom, oct_arena_take: tensors, tape nodes and what a backward needs. It lives until the
 * reset at the end of the step, or until everything taken since a mark is given back at once.
 * From the top, oct_arena_borrow: buffers with an early end (gradients of activations, scratch), given
 * back in any order. So what a backward has done with makes room for its gradients.
 *
 * A step that needs more than there is gets the rest from the memory door, and the next reset makes one
 * block of what was needed: a steady step allocates nothing.
 *
 * It belongs to the main thread: a thread of a parallel loop gets its scratch from outside the loop.
 */
#pragma once

#include "core/base/status.h"

typedef struct oct_arena oct_arena;

oct_status oct_arena_create(oct_arena **arena);
void oct_arena_destroy(oct_arena **arena);

/* Allocates at the bottom of the arena, until a rewind or reset. Memory taken or borrowed is 64-byte aligned and not
 * zeroed; NULL with a record on failure. */
void *oct_arena_take(oct_arena *arena, size_t bytes);
size_t oct_arena_mark(const oct_arena *arena); /* bytes taken so far */
/* Gives back what was taken since the mark. */
void oct_arena_rewind(oct_arena *arena, size_t mark);

/* Allocates at the top of the arena, in the smallest gap that is large enough, until oct_arena_give. */
void *oct_arena_borrow(oct_arena *arena, size_t bytes);
/* Gives a borrowed block back, in any order; NULL is fine. */
void oct_arena_give(oct_arena *arena, void *block);

/* Gives back all that was taken and borrowed, which is then invalid; plans a larger base where this step did not
 * fit. */
void oct_arena_reset(oct_arena *arena);
/* Returns the most bytes that were taken and borrowed at a time. */
size_t oct_arena_peak(const oct_arena *arena);
