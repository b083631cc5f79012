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

oct_status oct_arena_create(oct_arena **arena) OCT_NODISCARD;
void oct_arena_destroy(oct_arena **arena);

/* Memory taken or borrowed is 64-byte aligned and not zeroed; NULL with a record on failure. */
void *oct_arena_take(oct_arena *arena, size_t bytes);
/* A mark says how much is taken; a rewind gives back what was taken since. */
size_t oct_arena_mark(const oct_arena *arena);
void oct_arena_rewind(oct_arena *arena, size_t mark);

void *oct_arena_borrow(oct_arena *arena, size_t bytes);
void oct_arena_give(oct_arena *arena, void *block); /* NULL is fine */

/* Takes back all that was taken and borrowed; who still holds some holds it no longer. */
void oct_arena_reset(oct_arena *arena);
/* Returns the most bytes that were taken and borrowed at a time. */
size_t oct_arena_peak(const oct_arena *arena);
