/* Where the values of a program live in one block of memory: values that are never needed at the same
 * time share bytes. */
#pragma once

#include "quant/program/program.h"

/* Bytes that are in use from a first to a last moment, both included. */
typedef struct oct_interval {
    int64_t first, last, offset, bytes;
} oct_interval;
/* Returns the lowest offset where x overlaps none of these that are in use at the same time. */
int64_t oct_lowest_fit(const oct_interval *placed, int64_t count, const oct_interval *x);

/* Finds offsets[num_values] and *bytes for one sample, in units of 64; n samples use n times both. The
 * program's inputs and output belong to the caller and get no offset (-1). */
oct_status oct_plan_values(const oct_program *program, int64_t *offsets,
                           int64_t *bytes) OCT_NODISCARD;
/* Sets last[v] to the last step that uses value v, or the one that makes it. */
void oct_find_last_uses(const oct_program *program, int64_t *last);
