/* The grid of histograms, and what is asked of them. */
#include "quant/observer/observer.h"

#include <math.h>
#include <string.h>

/* A bin is named by the bits of its floats without the lowest DROPPED ones; MIN_BITS are the bits of 2^-32. */
enum { DROPPED = 18, MIN_BITS = (127 - 32) << 23, INF_BITS = 255 << 23 };

/* The bits of a float without the lowest ones number the bins of its sign. */
int oct_histogram_bin(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude < MIN_BITS) return OCT_HISTOGRAM_ZERO;
    uint32_t step = (magnitude - MIN_BITS) >> DROPPED;
    if (step >= OCT_HISTOGRAM_SIDE) step = OCT_HISTOGRAM_SIDE - 1;
    const int distance = 1 + (int)step;
    return bits >> 31 ? OCT_HISTOGRAM_ZERO - distance : OCT_HISTOGRAM_ZERO + distance;
}

/* The smallest magnitude of the bin that is this far from the middle one. */
static float smallest_magnitude(int distance)
{
    const uint32_t bits = MIN_BITS + ((uint32_t)(distance - 1) << DROPPED);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float oct_histogram_low(int bin)
{
    const int distance = bin - OCT_HISTOGRAM_ZERO;
    return distance > 0 ? smallest_magnitude(distance) : -smallest_magnitude(1 - distance);
}

float oct_histogram_high(int bin)
{
    return -oct_histogram_low(2 * OCT_HISTOGRAM_ZERO - bin);
}

/* Computes the bins of n values, as oct_histogram_bin does; of one that is not finite there is none. Nothing here
 * branches, so that compilers take several values at a time. */
static void find_bins(const uint32_t *bits, int n, int32_t *bin, int32_t *finite)
{
    for (int i = 0; i < n; i++) {
        const int32_t magnitude = (int32_t)(bits[i] & 0x7fffffffu);
        const int32_t step = (magnitude - MIN_BITS) >> DROPPED;
        const int32_t last = step < OCT_HISTOGRAM_SIDE - 1 ? step : OCT_HISTOGRAM_SIDE - 1;
        const int32_t distance = last < 0 ? 0 : 1 + last;
        const int32_t sign = -(int32_t)(bits[i] >> 31);
        bin[i] = OCT_HISTOGRAM_ZERO + ((distance ^ sign) - sign);
        finite[i] = magnitude < INF_BITS;
    }
}

/* Zeros, which a relu makes at many random places, are counted separately and without a branch: no branch is
 * mispredicted, and no count waits for the one before it. */
void oct_histogram_add(const float *x, int64_t n, int64_t *count)
{
    enum { BLOCK = 256 };
    uint32_t bits[BLOCK];
    int32_t bin[BLOCK], finite[BLOCK], others[BLOCK];
    if (!x || !count) return;
    for (int64_t first = 0; first < n; first += BLOCK) {
        const int size = n - first < BLOCK ? (int)(n - first) : BLOCK;
        int num_others = 0, zeros = 0;
        memcpy(bits, x + first, (size_t)size * sizeof *bits);
        find_bins(bits, size, bin, finite);
        for (int i = 0; i < size; i++) {
            const int zero = bin[i] == OCT_HISTOGRAM_ZERO;
            others[num_others] = bin[i];
            num_others += finite[i] & !zero;
            zeros += zero;
        }
        for (int i = 0; i < num_others; i++)
            count[others[i]]++;
        count[OCT_HISTOGRAM_ZERO] += zeros;
    }
}

void oct_histogram_merge(const int64_t *other, int64_t *count)
{
    for (int bin = 0; other && count && bin < OCT_HISTOGRAM_BINS; bin++)
        count[bin] += other[bin];
}

void oct_histogram_keep(oct_range *range, int64_t *histogram, const oct_observation *seen)
{
    if (!range || !histogram || !seen) return;
    const int64_t life = (int64_t)(1.0f / seen->averaging);
    const bool halves = !seen->calibrating && range->updates % life == life - 1;
    for (int bin = 0; halves && bin < OCT_HISTOGRAM_BINS; bin++)
        histogram[bin] /= 2;
    oct_histogram_merge(seen->count, histogram);
    range->updates++;
}

void oct_histogram_magnitudes(const int64_t *count, int64_t *magnitudes)
{
    if (!count || !magnitudes) return;
    memset(magnitudes, 0, OCT_HISTOGRAM_ZERO * sizeof *magnitudes);
    memcpy(magnitudes + OCT_HISTOGRAM_ZERO, count + OCT_HISTOGRAM_ZERO,
           (OCT_HISTOGRAM_SIDE + 1) * sizeof *magnitudes);
    for (int distance = 1; distance <= OCT_HISTOGRAM_SIDE; distance++)
        magnitudes[OCT_HISTOGRAM_ZERO + distance] += count[OCT_HISTOGRAM_ZERO - distance];
}

int64_t oct_histogram_total(const int64_t *count)
{
    int64_t total = 0;
    for (int bin = 0; count && bin < OCT_HISTOGRAM_BINS; bin++)
        total += count[bin];
    return total;
}

float oct_histogram_quantile(const int64_t *count, double share)
{
    const double wanted = share * (double)oct_histogram_total(count);
    int64_t below = 0;
    int last = OCT_HISTOGRAM_ZERO;
    double share_of_bin = 0; /* of the last bin, which holds the quantile */
    for (int bin = 0; count && bin < OCT_HISTOGRAM_BINS; bin++) {
        if (count[bin] == 0) continue;
        last = bin;
        share_of_bin = (wanted - (double)below) / (double)count[bin];
        below += count[bin];
        if ((double)below >= wanted) break;
    }
    if (last == OCT_HISTOGRAM_ZERO) return 0.0f;
    const double low = (double)oct_histogram_low(last), high = (double)oct_histogram_high(last);
    return (float)(low + fmin(fmax(share_of_bin, 0), 1) * (high - low));
}

/* The integral from 0 to v of the squared distance to the nearest whole number in [least, most], in closed form: a
 * cell around a whole number gives 1/12, and what is left of the last one, or is beyond the ends, a cube. */
static double error_integral(double v, double least, double most)
{
    const double nearest = fmin(fmax(rint(v), least), most), rest = v - nearest;
    return nearest / 12 + rest * rest * rest / 3;
}

/* Each bin has the mean of the squared error over its width, for each value counted. */
double oct_histogram_error(const int64_t *count, oct_qparams q)
{
    const double scale = (double)q.scale, least = q.qmin - q.zero_point,
                 most = q.qmax - q.zero_point;
    double sum = 0;
    for (int bin = 0; count && bin < OCT_HISTOGRAM_BINS; bin++) {
        if (count[bin] == 0 || bin == OCT_HISTOGRAM_ZERO) continue;
        const double low = (double)oct_histogram_low(bin) / scale,
                     high = (double)oct_histogram_high(bin) / scale;
        const double part = error_integral(high, least, most) - error_integral(low, least, most);
        sum += (double)count[bin] * (part / (high - low));
    }
    return sum * scale * scale;
}
