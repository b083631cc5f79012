/* Where threads cut leaves. */
#include "core/base/tiles.h"

#include "core/base/int_math.h"

enum { COLUMNS = 16 }; /* a cache line of floats */

oct_cut oct_cut_samples(const oct_leaves *leaves, int64_t step, int threads)
{
    return (oct_cut){oct_leaves_local_samples(leaves), leaves->leaf, step, threads};
}

bool oct_leaves_want_cut(const oct_leaves *leaves, int threads)
{
    return leaves->local < 2 * threads && leaves->local % threads != 0;
}

oct_cut oct_cut_columns(int64_t leaves, int64_t columns, int threads)
{
    int64_t step = COLUMNS;
    while (step > 1 && leaves * (columns / step) < 2 * threads)
        step /= 2;
    return (oct_cut){leaves * columns, columns, step, threads};
}

/* Returns where the units of thread t begin; total * t may be too large a number. */
static int64_t begin_of(const oct_cut *cut, int64_t t)
{
    if (t == cut->threads) return cut->total;
    const int64_t threads = cut->threads;
    const int64_t at = cut->total / threads * t + cut->total % threads * t / threads;
    return cut->units > 0 ? at - at % cut->units % cut->step : at;
}

oct_tile oct_tile_begin(const oct_cut *cut, int t)
{
    return (oct_tile){.next = begin_of(cut, t), .last = begin_of(cut, t + 1)};
}

bool oct_tile_next(const oct_cut *cut, oct_tile *tile)
{
    if (tile->next >= tile->last) return false;
    tile->leaf = tile->next / cut->units;
    tile->first = tile->next % cut->units;
    tile->end = oct_min_i64(cut->units, tile->first + tile->last - tile->next);
    tile->next += tile->end - tile->first;
    return true;
}
