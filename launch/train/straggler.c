/* No median is sorted for: the slowest takes 1.5 times the median where more than half of the ranks take less than that
 * part of its time. */
#include "launch/train/straggler.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_IN_A_ROW = 20 };

static const double slow_factor = 1.5, least_ns = 1e6;

oct_status oct_straggler_init(oct_straggler *straggler, const oct_collective *group)
{
    *straggler = (oct_straggler){.group = group, .slow = -1};
    return oct_alloc(&straggler->own_ns, (size_t)group->size, sizeof *straggler->own_ns);
}

void oct_straggler_deinit(oct_straggler *straggler)
{
    oct_free(&straggler->own_ns);
}

static int64_t share(const oct_leaves *leaves, int rank, int ranks)
{
    return oct_leaves_split(leaves->samples, leaves->leaf, rank, ranks).local;
}

/* The lower median of all times. */
static int64_t median(const int64_t *own_ns, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        int below = 0, equal = 0;
        for (int i = 0; i < ranks; i++) {
            below += own_ns[i] < own_ns[r];
            equal += own_ns[i] == own_ns[r];
        }
        if (below <= (ranks - 1) / 2 && (ranks - 1) / 2 < below + equal) return own_ns[r];
    }
    return own_ns[0];
}

/* Do most ranks take less than the slowest by slow_factor, in all and for each leaf? */
static bool is_slow(const int64_t *own_ns, int ranks, const oct_leaves *leaves, int slowest)
{
    const double most = (double)own_ns[slowest], its_leaves = (double)share(leaves, slowest, ranks);
    int less = 0, less_a_leaf = 0;
    for (int r = 0; r < ranks; r++) {
        const double time = slow_factor * (double)own_ns[r];
        less += time <= most && (double)own_ns[r] + least_ns <= most;
        less_a_leaf += time * its_leaves <= most * (double)share(leaves, r, ranks);
    }
    return less > (ranks - 1) / 2 && less_a_leaf > (ranks - 1) / 2;
}

int oct_straggler_slowest(const int64_t *own_ns, int ranks, const oct_leaves *leaves,
                          double *factor)
{
    int slowest = 0;
    for (int r = 1; r < ranks; r++)
        if (own_ns[r] > own_ns[slowest]) slowest = r;
    if (!is_slow(own_ns, ranks, leaves, slowest)) return -1;
    const int64_t usual = median(own_ns, ranks);
    *factor = (double)own_ns[slowest] / (double)(usual > 0 ? usual : 1);
    return slowest;
}

void oct_straggler_begin(oct_straggler *straggler, const oct_leaves *leaves)
{
    const oct_collective *group = straggler->group;
    for (int r = 0; r < group->size; r++)
        straggler->own_ns[r] = 0;
    straggler->own_ns[group->rank] = straggler->spent_ns;
    straggler->at_hand = *leaves;
    straggler->begin_s = oct_seconds();
    straggler->waited_s = group->waited(group);
}

static void name_straggler(oct_straggler *straggler, int slowest, double factor)
{
    char who[128];
    oct_log(OCT_LOG_WARN,
            "%s is slow: in each of the last %d steps it took at least %.1f times as long as the "
            "median rank, now %.1f times (%.3g s), and all wait for it; look what else runs on its "
            "host, and whether that is throttled",
            straggler->group->name(straggler->group, slowest, who), STEPS_IN_A_ROW, slow_factor,
            factor, (double)straggler->own_ns[slowest] * 1e-9);
    straggler->named = true;
}

/* The times of the step before are known to all. */
static void judge_times(oct_straggler *straggler)
{
    double factor;
    const int slowest = oct_straggler_slowest(straggler->own_ns, straggler->group->size,
                                              &straggler->before, &factor);
    straggler->steps = slowest < 0 ? 0 : slowest == straggler->slow ? straggler->steps + 1 : 1;
    straggler->slow = slowest;
    straggler->well = slowest < 0 ? straggler->well + 1 : 0;
    if (straggler->well >= STEPS_IN_A_ROW) straggler->named = false;
    if (straggler->steps >= STEPS_IN_A_ROW && !straggler->named)
        name_straggler(straggler, slowest, factor);
}

void oct_straggler_end(oct_straggler *straggler)
{
    const oct_collective *group = straggler->group;
    const double waited_s = group->waited(group) - straggler->waited_s;
    const double took_s = oct_seconds() - straggler->begin_s;
    const bool known = straggler->spent_ns > 0;
    straggler->took_s[straggler->taken++ % OCT_STRAGGLER_STEPS] = took_s;
    straggler->spent_ns = (int64_t)((took_s - waited_s) * 1e9);
    if (straggler->spent_ns < 1) straggler->spent_ns = 1;
    if (known && group->size > 1) judge_times(straggler);
    straggler->before = straggler->at_hand;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double oct_straggler_deadline(const oct_straggler *straggler)
{
    static const double least_s = 30, steps = 20;
    double took_s[OCT_STRAGGLER_STEPS];
    if (straggler->taken < OCT_STRAGGLER_STEPS) return 0;
    memcpy(took_s, straggler->took_s, sizeof took_s);
    qsort(took_s, OCT_STRAGGLER_STEPS, sizeof *took_s, by_size);
    return fmax(least_s, steps * took_s[OCT_STRAGGLER_STEPS / 2]);
}
