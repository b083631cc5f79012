/* Lifetimes free the activations of a forward without a tape when no later call site reads them.
 *
 * Who reads what last is learned. The first forward keeps the output of every call site and writes down
 * which call site read which; later ones that take the same way give each block of memory back after
 * its last reader. A forward that takes another way keeps what it has from there on. Should it read
 * what has gone already, it fails, and oct_lifetimes_diverged says that the failure is only this: let
 * the same forward run again without lifetimes.
 *
 * That holds for forwards that read tensors by modules and ops alone, since nothing else is seen:
 * oct_module_calls_only (core/nn/module.h).
 *
 * A tensor's id is here the number of its block, and views have that of what they look at.
 */
#pragma once

#include "core/autograd/call.h"
#include "core/base/arena.h"

typedef struct oct_lifetimes oct_lifetimes;

/* The caller sets them as cx->lifetimes before oct_context_begin; it serves forwards of one module
 * tree in one mode (training or evaluation) by one context. */
oct_status oct_lifetimes_create(oct_lifetimes **lifetimes) OCT_NODISCARD;
void oct_lifetimes_destroy(oct_lifetimes **lifetimes);

/* Ends a forward with its result y, which stays until the next oct_context_begin. */
void oct_lifetimes_end(oct_lifetimes *lifetimes, const oct_tensor *y);
/* Returns the most bytes that were needed at a time in the forward that was learned, had it freed
 * what is read no more; 0 before. */
int64_t oct_lifetimes_bytes(const oct_lifetimes *lifetimes);
/* True when the failed forward read what was gone. */
bool oct_lifetimes_diverged(const oct_lifetimes *lifetimes);

/* The rest is for the context and for calls while they apply (oct_context_frees). */

/* Starts a forward, whose blocks are borrowed from this arena. */
void oct_lifetimes_begin(oct_lifetimes *lifetimes, oct_arena *arena);
/* Takes the data of a tensor, and the number of its block; NULL with a record on failure. inner: an
 * atomic module makes it. */
void *oct_lifetimes_take(oct_lifetimes *lifetimes, size_t bytes, bool inner, int64_t *number);
/* Returns the block in which data lies, or -1. */
int64_t oct_lifetimes_number(const oct_lifetimes *lifetimes, const void *data);
/* False when the tensor's memory has gone: the forward has diverged. */
bool oct_lifetimes_readable(oct_lifetimes *lifetimes, const oct_tensor *x);
void oct_lifetimes_done(oct_lifetimes *lifetimes, const oct_site *executed);
