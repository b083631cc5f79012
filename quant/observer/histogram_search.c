/* The search of PyTorch's HistogramObserver: quantiles are cut off at either end, a hundred-thousandth of all values at
 * a time, always at the end where the bins that are cut are wider; of all ranges tried, the one with the least squared
 * error is taken.
 *
 * PyTorch stops where the error grows for the first time, which may be long before the least one, and jumps over empty
 * bins; here the search goes on until a hundredth is cut, and tries every bin on its way. PyTorch's bins have
 * one width, so it counts them where widths are compared here. */
#include "quant/observer/observer.h"

#include <math.h>

enum { SHARES = 100000, CUTS = SHARES / 100 };

/* What is kept of the histogram: bins from first to last, and the shares that were cut below and above them. */
typedef struct kept_bins {
    int first, last;
    int64_t below, above; /* values */
    int shares_below, shares_above;
} kept_bins;

static double width(int from, int to)
{
    return (double)oct_histogram_low(to) - (double)oct_histogram_low(from);
}

/* Cuts bins at the lower end as long as no more than one further share of all values is cut there. */
static kept_bins cut_below(kept_bins p, const int64_t *count, double share)
{
    const double most = share * ++p.shares_below;
    while (p.first < p.last && (double)(p.below + count[p.first]) <= most)
        p.below += count[p.first++];
    return p;
}

/* Cuts bins at the upper end as long as no more than one further share of all values is cut there. */
static kept_bins cut_above(kept_bins p, const int64_t *count, double share)
{
    const double most = share * ++p.shares_above;
    while (p.last > p.first && (double)(p.above + count[p.last]) <= most)
        p.above += count[p.last--];
    return p;
}

typedef struct search {
    const int64_t *count;
    const oct_observation *seen;
    oct_range best;
    double least;
} search;

/* Keeps the range of bins first to last as the best one if its squared error is less; the bin around 0 counts as 0. */
static void try_range(search *s, int first, int last)
{
    const float min = first == OCT_HISTOGRAM_ZERO ? 0.0f : oct_histogram_low(first);
    const float max = last == OCT_HISTOGRAM_ZERO ? 0.0f : oct_histogram_high(last);
    const double error =
        oct_histogram_error(s->count, s->seen->qparams(s->seen->fake_quant, min, max));
    if (!(error < s->least)) return;
    s->least = error;
    s->best.min = min;
    s->best.max = max;
}

/* Shrinks the range from its outer bins: CUTS times it cuts 1 / SHARES of the values at the end whose cut bins are wider.
 * Keeps the range, of all that are tried, with the least squared quantization error. */
static void search_range(oct_range *range, int64_t *histogram, const oct_observation *seen)
{
    oct_histogram_keep(range, histogram, seen);
    const double share = (double)oct_histogram_total(histogram) / SHARES;
    search s = {.count = histogram, .seen = seen, .best = *range, .least = INFINITY};
    kept_bins p = {.first = 0,
                   .last = OCT_HISTOGRAM_BINS - 1}; /* at first without empty bins at the ends */
    while (p.first < p.last && histogram[p.first] == 0)
        p.first++;
    while (p.last > p.first && histogram[p.last] == 0)
        p.last--;
    try_range(&s, p.first, p.last);
    for (int cuts = 0; cuts < CUTS; cuts++) {
        const kept_bins lower = cut_below(p, histogram, share),
                        upper = cut_above(p, histogram, share);
        const kept_bins next =
            width(p.first, lower.first) > width(upper.last, p.last) ? lower : upper;
        for (int first = p.first; first < next.first;)
            try_range(&s, ++first, p.last);
        for (int last = p.last; last > next.last;)
            try_range(&s, p.first, --last);
        p = next;
    }
    *range = s.best;
}

const oct_observer oct_observer_histogram_search = {.name = "histogram", .count = search_range};
