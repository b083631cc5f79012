/* The collective of a process that is alone: what it has is already the whole. */
#include "core/base/collective.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <string.h>

/* The leaves of a single process are the whole batch, and so one part (subtree), or none. */
static oct_status alone_tree_sum(const oct_collective *self, const oct_leaves *leaves, void *parts,
                                 int64_t n, size_t width, void *out)
{
    oct_subtree list[OCT_MAX_PARTS];
    const size_t bytes = (size_t)n * width;
    (void)self;
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
    (void)stride;
    return alone_tree_sum(self, leaves, parts, n, sizeof *parts, parts);
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

static oct_rank_text alone_name(const oct_collective *self, int rank)
{
    oct_rank_text t;
    (void)self;
    snprintf(t.text, sizeof t.text, "rank %d", rank);
    return t;
}

const oct_collective oct_collective_one = {
    .rank = 0,
    .size = 1,
    .tree_sum = alone_tree_sum,
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

/* Sums upper and lower 32 bits as doubles, with ranks as the leaves: that is exact for up to 2^21 ranks. */
oct_status oct_sum_i64(const oct_collective *group, int64_t *values, int64_t n)
{
    enum { CHUNK = 4096 };
    const oct_leaves ranks = oct_leaves_split(group->size, 1, group->rank, group->size);
    double half[2 * CHUNK];
    if (group->size == 1) return OCT_OK;
    for (int64_t first = 0, count; first < n; first += count) {
        count = n - first < CHUNK ? n - first : CHUNK;
        for (int64_t i = 0; i < count; i++) {
            half[2 * i] = (double)(values[first + i] >> 32);
            half[2 * i + 1] = (double)(values[first + i] & 0xffffffff);
        }
        OCT_TRY(group->tree_sum(group, &ranks, half, 2 * count, sizeof(double), half));
        for (int64_t i = 0; i < count; i++)
            values[first + i] =
                (int64_t)half[2 * i] * ((int64_t)1 << 32) + (int64_t)half[2 * i + 1];
    }
    return OCT_OK;
}

/* The calls of a replay. What a call gives each rank is all that has to be kept of it. */
static oct_replay *replay_of(const oct_collective *self)
{
    return (oct_replay *)(uintptr_t)self;
}

/* Appends what a collective call returned to the recorded totals. */
static oct_status record_total(oct_replay *r, const void *total, size_t bytes)
{
    OCT_TRY(oct_grow(&r->totals, &r->capacity, r->used + bytes, 1));
    if (bytes > 0) memcpy(r->totals + r->used, total, bytes);
    r->used += bytes;
    return OCT_OK;
}

/* Returns the next recorded total in place of a collective call. */
static oct_status replay_total(oct_replay *r, void *total, size_t bytes)
{
    OCT_CHECK(r->used - r->next >= bytes, OCT_DEFECT,
              "what is done again asks the other ranks for more than the first time");
    if (bytes > 0) memcpy(total, r->totals + r->next, bytes);
    r->next += bytes;
    return OCT_OK;
}

static oct_status replay_tree_sum(const oct_collective *self, const oct_leaves *leaves, void *parts,
                                  int64_t n, size_t width, void *out)
{
    oct_replay *r = replay_of(self);
    const size_t bytes = (size_t)n * width;
    if (r->replays) return replay_total(r, out, bytes);
    OCT_TRY(r->ranks->tree_sum(r->ranks, leaves, parts, n, width, out));
    return record_total(r, out, bytes);
}

static oct_status replay_max_i64(const oct_collective *self, int64_t *values, int64_t n)
{
    oct_replay *r = replay_of(self);
    const size_t bytes = (size_t)n * sizeof *values;
    if (r->replays) return replay_total(r, values, bytes);
    OCT_TRY(r->ranks->max_i64(r->ranks, values, n));
    return record_total(r, values, bytes);
}

static oct_status replay_broadcast(const oct_collective *self, void *data, size_t bytes, int root)
{
    oct_replay *r = replay_of(self);
    if (r->replays) return replay_total(r, data, bytes);
    OCT_TRY(r->ranks->broadcast(r->ranks, data, bytes, root));
    return record_total(r, data, bytes);
}

static oct_status replay_agree(const oct_collective *self, oct_status mine)
{
    const oct_replay *r = replay_of(self);
    return r->replays ? mine : r->ranks->agree(r->ranks, mine);
}

static double replay_waited(const oct_collective *self)
{
    const oct_replay *r = (const oct_replay *)self;
    return r->ranks->waited(r->ranks);
}

static oct_rank_text replay_name(const oct_collective *self, int rank)
{
    const oct_replay *r = (const oct_replay *)self;
    return r->ranks->name(r->ranks, rank);
}

void oct_replay_begin(oct_replay *replay, const oct_collective *ranks)
{
    replay->replays = !ranks;
    replay->next = 0;
    if (!ranks) return;
    replay->face = (oct_collective){.rank = ranks->rank,
                                    .size = ranks->size,
                                    .tree_sum = replay_tree_sum,
                                    .max_i64 = replay_max_i64,
                                    .broadcast = replay_broadcast,
                                    .agree = replay_agree,
                                    .waited = replay_waited,
                                    .name = replay_name};
    replay->ranks = ranks;
    replay->used = 0;
}

void oct_replay_free(oct_replay *replay)
{
    oct_free(&replay->totals);
    *replay = (oct_replay){0};
}
