/* Least squared error: of all magnitudes at which the range may be cut, the one that loses least between rounding
 * what is inside and cutting off what is beyond. */
#include "quant/observer/observer.h"

#include <math.h>

/* A range of a sixteenth of the largest magnitude is the narrowest that is tried. */
enum { CANDIDATES = 4 * OCT_HISTOGRAM_STEPS };

/* Tries ranges that end at each of the largest magnitudes, and takes the one with the least squared error. */
static void choose_least_error(oct_range *range, int64_t *histogram, const oct_observation *seen)
{
    int64_t magnitudes[OCT_HISTOGRAM_BINS];
    oct_histogram_keep(range, histogram, seen);
    oct_histogram_magnitudes(histogram, magnitudes);
    int largest = OCT_HISTOGRAM_BINS - 1; /* the last bin with a value */
    while (largest > OCT_HISTOGRAM_ZERO && magnitudes[largest] == 0)
        largest--;
    oct_range best = *range;
    double least = INFINITY;
    for (int i = 0; i < CANDIDATES && (i == 0 || largest - i > OCT_HISTOGRAM_ZERO); i++) {
        oct_observer_cut(range, histogram, oct_histogram_high(largest - i));
        const oct_qparams q = seen->qparams(seen->fake_quant, range->min, range->max);
        const double error = oct_histogram_error(histogram, q);
        if (!(error < least)) continue;
        least = error;
        best = *range;
    }
    *range = best;
}

const oct_observer oct_observer_mse = {.name = "mse", .count = choose_least_error};
