/* Random numbers: the published known answers of Philox4x32-10, ranges, moments, permutations. */
#include "core/base/rng.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* From the known-answer file of the Random123 distribution: counter, key, output. */
static const struct {
    uint32_t counter[4], key[2], out[4];
} known[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

Test(rng, gives_the_known_answers)
{
    for (int i = 0; i < 3; i++) {
        const uint32_t *c = known[i].counter, *k = known[i].key;
        uint32_t out[4];
        oct_philox((uint64_t)k[1] << 32 | k[0], c[2], (uint64_t)c[1] << 32 | c[0], c[3], out);
        cr_assert_arr_eq(out, known[i].out, sizeof out, "vector %d", i);
    }
}

Test(rng, uniform_covers_zero_to_one_without_one)
{
    cr_assert_eq(oct_uniform(0), 0.0f);
    cr_assert_eq(oct_uniform(255), 0.0f);
    cr_assert_eq(oct_uniform(256), 0x1p-24f);
    cr_assert_eq(oct_uniform(0x80000000u), 0.5f);
    cr_assert_eq(oct_uniform(0xffffffffu), 1.0f - 0x1p-24f);
}

Test(rng, below_stays_below_and_reaches_both_ends)
{
    cr_assert_eq(oct_below(0, 10), 0);
    cr_assert_eq(oct_below(0xffffffffu, 10), 9);
    cr_assert_eq(oct_below(0xffffffffu, 1), 0);
    cr_assert_eq(oct_below(0xffffffffu, 0xffffffffu), 0xfffffffeu);
    cr_assert_eq(oct_below(0x80000000u, 10), 5);
}

Test(rng, a_fill_is_a_pure_function_of_its_place)
{
    float a[103], b[103], c[103];
    oct_fill_uniform(a, 103, 5, OCT_STREAM_TEST, 2, -1, 3);
    oct_fill_uniform(b, 50, 5, OCT_STREAM_TEST, 2, -1, 3);
    cr_assert_arr_eq(a, b, 50 * sizeof(float));
    for (int i = 0; i < 103; i++)
        cr_assert(a[i] >= -1 && a[i] < 3);
    uint32_t words[4];
    oct_philox(5, OCT_STREAM_TEST, 25, 2, words);
    cr_assert_eq(a[102], -1 + 4 * oct_uniform(words[2]));
    oct_fill_uniform(c, 103, 5, OCT_STREAM_TEST, 3, -1, 3);
    cr_assert(memcmp(a, c, sizeof a) != 0);
    oct_fill_uniform(c, 103, 6, OCT_STREAM_TEST, 2, -1, 3);
    cr_assert(memcmp(a, c, sizeof a) != 0);
    oct_fill_uniform(c, 103, 5, OCT_STREAM_INIT, 2, -1, 3);
    cr_assert(memcmp(a, c, sizeof a) != 0);
}

Test(rng, normals_have_the_moments_of_normals)
{
    enum { N = 200001 };
    static float x[N];
    oct_fill_normal(x, N, 11, OCT_STREAM_TEST, 0, 2, 3);
    double sum = 0, square = 0, fourth = 0;
    for (int i = 0; i < N; i++) {
        double z = ((double)x[i] - 2) / 3;
        cr_assert(isfinite(x[i]));
        sum += z;
        square += z * z;
        fourth += z * z * z * z;
    }
    /* Five standard errors: 1/sqrt(N), sqrt(2/N), sqrt(96/N). */
    cr_assert_lt(fabs(sum / N), 5 * sqrt(1.0 / N));
    cr_assert_lt(fabs(square / N - 1), 5 * sqrt(2.0 / N));
    cr_assert_lt(fabs(fourth / N - 3), 5 * sqrt(96.0 / N));
}

Test(rng, a_normal_pair_is_box_and_mullers)
{
    float x[4];
    uint32_t w[4];
    oct_fill_normal(x, 4, 3, OCT_STREAM_TEST, 9, 0, 1);
    oct_philox(3, OCT_STREAM_TEST, 0, 9, w);
    for (int pair = 0; pair < 2; pair++) {
        double u = ((double)w[2 * pair] + 1) / 4294967296.0,
               v = (double)w[2 * pair + 1] / 4294967296.0;
        cr_assert_float_eq(x[2 * pair], sqrt(-2 * log(u)) * cos(2 * acos(-1) * v), 1e-6);
        cr_assert_float_eq(x[2 * pair + 1], sqrt(-2 * log(u)) * sin(2 * acos(-1) * v), 1e-6);
    }
}

Test(rng, a_permutation_has_everything_once)
{
    enum { N = 1000 };
    int64_t order[N], same[N], other[N];
    for (int64_t n = 0; n <= N; n = 2 * n + 1) {
        bool seen[N] = {false};
        oct_permutation(order, n, 1, 4);
        for (int64_t i = 0; i < n; i++) {
            cr_assert(order[i] >= 0 && order[i] < n && !seen[order[i]]);
            seen[order[i]] = true;
        }
    }
    oct_permutation(order, N, 1, 4);
    oct_permutation(same, N, 1, 4);
    cr_assert_arr_eq(order, same, sizeof order);
    oct_permutation(other, N, 1, 5);
    cr_assert(memcmp(order, other, sizeof order) != 0);
    oct_permutation(other, N, 2, 4);
    cr_assert(memcmp(order, other, sizeof order) != 0);
}

Test(rng, all_permutations_of_four_are_about_as_frequent)
{
    enum { ROUNDS = 24000 };
    int seen[256] = {0}, kinds = 0;
    for (uint64_t epoch = 0; epoch < ROUNDS; epoch++) {
        int64_t o[4];
        oct_permutation(o, 4, 77, epoch);
        seen[o[0] << 6 | o[1] << 4 | o[2] << 2 | o[3]]++;
    }
    for (int i = 0; i < 256; i++) {
        if (!seen[i]) continue;
        kinds++;
        cr_assert(seen[i] > 800 && seen[i] < 1200, "%d of %d", seen[i], ROUNDS);
    }
    cr_assert_eq(kinds, 24);
}
