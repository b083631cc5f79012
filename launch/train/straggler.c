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

oct_status oct_straggler_init(oct_straggler *pace, const oct_collective *group)
{
    *pace = (oct_straggler){.group = group, .slow = -1};
    return oct_alloc(&pace->own_ns, (size_t)group->size, sizeof *pace->own_ns);
}

void oct_straggler_deinit(oct_straggler *pace)
{
    oct_free(&pace->own_ns);
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

/* Counts the ranks that take so much less than the slowest: together, and for each leaf. */
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

void oct_straggler_begin(oct_straggler *pace, const oct_leaves *leaves)
{
    const oct_collective *group = pace->group;
    for (int r = 0; r < group->size; r++)
        pace->own_ns[r] = 0;
    pace->own_ns[group->rank] = pace->spent_ns;
    pace->at_hand = *leaves;
    pace->begin_s = oct_seconds();
    pace->waited_s = group->waited(group);
}

static void name(oct_straggler *pace, int slowest, double factor)
{
    char who[128];
    oct_log(OCT_LOG_WARN,
            "%s is slow: in each of the last %d steps it took at least %.1f times as long as the "
            "median rank, now %.1f times (%.3g s), and all wait for it; look what else runs on its "
            "host, and whether that is throttled",
            pace->group->name(pace->group, slowest, who), STEPS_IN_A_ROW, slow_factor, factor,
            (double)pace->own_ns[slowest] * 1e-9);
    pace->named = true;
}

/* The times of the step before are known to all. */
static void judge(oct_straggler *pace)
{
    double factor;
    const int slowest =
        oct_straggler_slowest(pace->own_ns, pace->group->size, &pace->before, &factor);
    pace->steps = slowest < 0 ? 0 : slowest == pace->slow ? pace->steps + 1 : 1;
    pace->slow = slowest;
    pace->well = slowest < 0 ? pace->well + 1 : 0;
    if (pace->well >= STEPS_IN_A_ROW) pace->named = false;
    if (pace->steps >= STEPS_IN_A_ROW && !pace->named) name(pace, slowest, factor);
}

void oct_straggler_end(oct_straggler *pace)
{
    const oct_collective *group = pace->group;
    const double waited_s = group->waited(group) - pace->waited_s;
    const double took_s = oct_seconds() - pace->begin_s;
    const bool known = pace->spent_ns > 0;
    pace->took_s[pace->taken++ % OCT_STRAGGLER_STEPS] = took_s;
    pace->spent_ns = (int64_t)((took_s - waited_s) * 1e9);
    if (pace->spent_ns < 1) pace->spent_ns = 1;
    if (known && group->size > 1) judge(pace);
    pace->before = pace->at_hand;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double oct_straggler_deadline(const oct_straggler *pace)
{
    static const double least_s = 30, steps = 20;
    double took_s[OCT_STRAGGLER_STEPS];
    if (pace->taken < OCT_STRAGGLER_STEPS) return 0;
    memcpy(took_s, pace->took_s, sizeof took_s);
    qsort(took_s, OCT_STRAGGLER_STEPS, sizeof *took_s, by_size);
    return fmax(least_s, steps * took_s[OCT_STRAGGLER_STEPS / 2]);
}
