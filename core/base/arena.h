/* Memory of one training step.
 *
 * oct_arena: bump allocation; everything lives until the reset at the end of the step. For tensors,
 * tape nodes and what a backward needs.
 * oct_pool: buffers with an early end (gradients of activations, scratch): taken and given back,
 * reused by size, kept over steps, so a steady step allocates nothing.
 *
 * Both belong to the main thread: a thread of a parallel loop gets its scratch from outside the
 * loop.
 */
#pragma once

#include "core/base/status.h"

typedef struct oct_arena oct_arena;
typedef struct oct_pool oct_pool;

oct_status oct_arena_create(oct_arena **arena) OCT_NODISCARD;
void oct_arena_destroy(oct_arena **arena);
/* 64-byte aligned, not zeroed; NULL with a record on failure. The pool's take likewise. */
void *oct_arena_take(oct_arena *arena, size_t bytes);
void oct_arena_reset(oct_arena *arena);
size_t oct_arena_peak(const oct_arena *arena);

oct_status oct_pool_create(oct_pool **pool) OCT_NODISCARD;
void oct_pool_destroy(oct_pool **pool);
void *oct_pool_take(oct_pool *pool, size_t bytes);
void oct_pool_give(oct_pool *pool, void *block); /* NULL is fine */
/* Takes back all that was not given; who still holds a block holds it no longer. */
void oct_pool_reset(oct_pool *pool);
