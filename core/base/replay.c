/* What a call gives each rank is all that has to be kept of it. */
#include "core/base/replay.h"

#include "core/base/mem.h"

#include <string.h>

static oct_replay *replay_of(const oct_collective *self)
{
    return (oct_replay *)(uintptr_t)self;
}

static oct_status keep_total(oct_replay *r, const void *total, size_t bytes)
{
    OCT_TRY(oct_grow(&r->totals, &r->capacity, r->used + bytes, 1));
    if (bytes > 0) memcpy(r->totals + r->used, total, bytes);
    r->used += bytes;
    return OCT_OK;
}

static oct_status read_total(oct_replay *r, void *total, size_t bytes)
{
    OCT_CHECK(r->used - r->at >= bytes, OCT_DEFECT,
              "what is done again asks the other ranks for more than the first time");
    if (bytes > 0) memcpy(total, r->totals + r->at, bytes);
    r->at += bytes;
    return OCT_OK;
}

static oct_status tree_sum_f32(const oct_collective *self, const oct_leaves *leaves, float *parts,
                               int64_t n, float *out)
{
    oct_replay *r = replay_of(self);
    const size_t bytes = (size_t)n * sizeof *out;
    if (r->again) return read_total(r, out, bytes);
    OCT_TRY(r->ranks->tree_sum_f32(r->ranks, leaves, parts, n, out));
    return keep_total(r, out, bytes);
}

static oct_status tree_sum_f64(const oct_collective *self, const oct_leaves *leaves, double *parts,
                               int64_t n, double *out)
{
    oct_replay *r = replay_of(self);
    const size_t bytes = (size_t)n * sizeof *out;
    if (r->again) return read_total(r, out, bytes);
    OCT_TRY(r->ranks->tree_sum_f64(r->ranks, leaves, parts, n, out));
    return keep_total(r, out, bytes);
}

static oct_status max_i64(const oct_collective *self, int64_t *values, int64_t n)
{
    oct_replay *r = replay_of(self);
    const size_t bytes = (size_t)n * sizeof *values;
    if (r->again) return read_total(r, values, bytes);
    OCT_TRY(r->ranks->max_i64(r->ranks, values, n));
    return keep_total(r, values, bytes);
}

static oct_status broadcast(const oct_collective *self, void *data, size_t bytes, int root)
{
    oct_replay *r = replay_of(self);
    if (r->again) return read_total(r, data, bytes);
    OCT_TRY(r->ranks->broadcast(r->ranks, data, bytes, root));
    return keep_total(r, data, bytes);
}

static oct_status agree(const oct_collective *self, oct_status mine)
{
    const oct_replay *r = replay_of(self);
    return r->again ? mine : r->ranks->agree(r->ranks, mine);
}

static double waited(const oct_collective *self)
{
    const oct_replay *r = (const oct_replay *)self;
    return r->ranks->waited(r->ranks);
}

static const char *rank_name(const oct_collective *self, int rank, char text[128])
{
    const oct_replay *r = (const oct_replay *)self;
    return r->ranks->name(r->ranks, rank, text);
}

void oct_replay_record(oct_replay *replay, const oct_collective *ranks)
{
    replay->face = (oct_collective){.rank = ranks->rank,
                                    .size = ranks->size,
                                    .tree_sum_f32 = tree_sum_f32,
                                    .tree_sum_f64 = tree_sum_f64,
                                    .max_i64 = max_i64,
                                    .broadcast = broadcast,
                                    .agree = agree,
                                    .waited = waited,
                                    .name = rank_name};
    replay->ranks = ranks;
    replay->again = false;
    replay->used = replay->at = 0;
}

void oct_replay_again(oct_replay *replay)
{
    replay->again = true;
    replay->at = 0;
}

void oct_replay_free(oct_replay *replay)
{
    oct_free(&replay->totals);
    *replay = (oct_replay){0};
}
