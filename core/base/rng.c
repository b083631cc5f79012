/* Philox4x32-10: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11.
 *
 * Ten rounds of two 32x32-bit multiplications; the key moves by the golden ratio and sqrt(3) - 1
 * between rounds. Normals are Box and Muller's in double: both of a pair are used, in this order.
 */
#include "core/base/rng.h"

#include <math.h>

__extension__ typedef unsigned __int128 u128;

static uint64_t multiply(uint32_t a, uint32_t b)
{
    return (uint64_t)a * b;
}

void oct_philox(uint64_t seed, uint32_t stream, uint64_t index, uint32_t sub, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = stream, c3 = sub;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = multiply(0xD2511F53u, c0), p1 = multiply(0xCD9E8D57u, c2);
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0;
        c1 = (uint32_t)p1;
        c2 = n2;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

float oct_uniform(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

uint32_t oct_below(uint32_t bits, uint32_t n)
{
    return (uint32_t)(multiply(bits, n) >> 32);
}

void oct_fill_uniform(float *x, int64_t n, uint64_t seed, uint32_t stream, uint32_t sub, float lo,
                      float hi)
{
    for (int64_t i = 0; i < n; i += 4) {
        uint32_t words[4];
        oct_philox(seed, stream, (uint64_t)i / 4, sub, words);
        for (int64_t j = 0; j < 4 && i + j < n; j++)
            x[i + j] = lo + (hi - lo) * oct_uniform(words[j]);
    }
}

/* Makes two normals of two words; the first uniform is in (0, 1], so its logarithm is finite. */
static void box_muller(const uint32_t words[2], double normal[2])
{
    double radius = sqrt(-2.0 * log(((double)words[0] + 1.0) * 0x1p-32));
    double angle = 6.283185307179586 * ((double)words[1] * 0x1p-32);
    normal[0] = radius * cos(angle);
    normal[1] = radius * sin(angle);
}

void oct_fill_normal(float *x, int64_t n, uint64_t seed, uint32_t stream, uint32_t sub, float mean,
                     float std)
{
    for (int64_t i = 0; i < n; i += 4) {
        uint32_t words[4];
        double normal[4];
        oct_philox(seed, stream, (uint64_t)i / 4, sub, words);
        box_muller(words, normal);
        box_muller(words + 2, normal + 2);
        for (int64_t j = 0; j < 4 && i + j < n; j++)
            x[i + j] = (float)((double)mean + (double)std * normal[j]);
    }
}

/* Shuffles as Fisher and Yates do, from the top; the position is the draw's index, the epoch its
 * sub-stream. */
void oct_permutation(int64_t *order, int64_t n, uint64_t seed, uint64_t epoch)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        uint32_t words[4];
        oct_philox(seed, OCT_STREAM_SHUFFLE, (uint64_t)i, (uint32_t)epoch, words);
        uint64_t bits = (uint64_t)words[0] << 32 | words[1];
        int64_t j = (int64_t)((u128)bits * (uint64_t)(i + 1) >> 64);
        int64_t swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
}
