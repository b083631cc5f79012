/* The collective of a process that is alone: what it has is already the whole. */
#include "core/base/collective.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <string.h>

/* Copies the only part, which is the sum; that of no leaves at all is zero. */
static oct_status copy_only_part(const oct_leaves *leaves, const void *parts, size_t bytes,
                                 void *out)
{
    oct_subtree list[OCT_MAX_PARTS];
    OCT_CHECK(leaves->local == leaves->count, OCT_DEFECT,
              "one process was asked to sum %lld leaves but owns %lld", (long long)leaves->count,
              (long long)leaves->local);
    if (bytes == 0) return OCT_OK;
    if (!oct_leaves_parts(leaves, list))
        memset(out, 0, bytes);
    else if (out != parts)
        memmove(out, parts, bytes);
    return OCT_OK;
}

static oct_status alone_tree_sum_f32(const oct_collective *self, const oct_leaves *leaves,
                                     float *parts, int64_t n, float *out)
{
    (void)self;
    return copy_only_part(leaves, parts, (size_t)n * sizeof *out, out);
}

static oct_status alone_tree_sum_f64(const oct_collective *self, const oct_leaves *leaves,
                                     double *parts, int64_t n, double *out)
{
    (void)self;
    return copy_only_part(leaves, parts, (size_t)n * sizeof *out, out);
}

static oct_status alone_max_i64(const oct_collective *self, int64_t *values, int64_t n)
{
    (void)self, (void)values, (void)n;
    return OCT_OK;
}

static oct_status alone_broadcast(const oct_collective *self, void *data, size_t bytes, int root)
{
    (void)self, (void)data, (void)bytes, (void)root;
    return OCT_OK;
}

static oct_status alone_gather(const oct_collective *self, const void *src, size_t bytes, void *dst)
{
    (void)self;
    if (bytes) memcpy(dst, src, bytes);
    return OCT_OK;
}

static oct_status alone_agree(const oct_collective *self, oct_status mine)
{
    (void)self;
    return mine;
}

static oct_status alone_sum_begin(const oct_collective *self, const oct_leaves *leaves,
                                  float *parts, int64_t stride, int64_t n)
{
    (void)self, (void)stride;
    return copy_only_part(leaves, parts, (size_t)n * sizeof *parts, parts);
}

static oct_status alone_sums_done(const oct_collective *self)
{
    (void)self;
    return OCT_OK;
}

static oct_status alone_rows_alloc(const oct_collective *self, void *rows, size_t count,
                                   size_t size)
{
    (void)self;
    return oct_alloc(rows, count, size);
}

static void alone_rows_free(const oct_collective *self, void *rows)
{
    (void)self;
    oct_free(rows);
}

static const float *alone_rows_total(const oct_collective *self, const oct_leaves *leaves,
                                     const float *parts, bool *lent)
{
    (void)self, (void)leaves;
    *lent = false;
    return parts;
}

static double alone_waited(const oct_collective *self)
{
    (void)self;
    return 0;
}

static const char *alone_name(const oct_collective *self, int rank, char text[128])
{
    (void)self;
    snprintf(text, 128, "rank %d", rank);
    return text;
}

const oct_collective oct_collective_one = {
    .rank = 0,
    .size = 1,
    .tree_sum_f32 = alone_tree_sum_f32,
    .tree_sum_f64 = alone_tree_sum_f64,
    .max_i64 = alone_max_i64,
    .broadcast = alone_broadcast,
    .gather = alone_gather,
    .agree = alone_agree,
    .sum_begin = alone_sum_begin,
    .sums_move = alone_sums_done,
    .sums_finish = alone_sums_done,
    .rows_alloc = alone_rows_alloc,
    .rows_free = alone_rows_free,
    .rows_total = alone_rows_total,
    .waited = alone_waited,
    .name = alone_name,
};

/* A half has 32 bits, so sums of a million of them are exact in double: ranks are the leaves of a sum that there is
 * anyway. */
oct_status oct_sum_i64(const oct_collective *group, int64_t *values, int64_t n)
{
    enum { PART = 4096 };
    const oct_leaves ranks = oct_leaves_split(group->size, 1, group->rank, group->size);
    double half[2 * PART];
    if (group->size == 1) return OCT_OK;
    for (int64_t first = 0, some; first < n; first += some) {
        some = n - first < PART ? n - first : PART;
        for (int64_t i = 0; i < some; i++) {
            half[2 * i] = (double)(values[first + i] >> 32);
            half[2 * i + 1] = (double)(values[first + i] & 0xffffffff);
        }
        OCT_TRY(group->tree_sum_f64(group, &ranks, half, 2 * some, half));
        for (int64_t i = 0; i < some; i++)
            values[first + i] =
                (int64_t)half[2 * i] * ((int64_t)1 << 32) + (int64_t)half[2 * i + 1];
    }
    return OCT_OK;
}
