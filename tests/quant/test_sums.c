/* Sums of accumulators against a plain loop: the same bits, for any number of channels and any cut of the
 * rows. */
#include "quant/kernel/qconv.h"

#include "tests/quant/every_kernel.h"
#include "tests/quant/quant_random.h"

enum { ROWS = 37, MOST = 100 };

static int64_t roll_acc(dice *d, int bits)
{
    return (int64_t)(((uint64_t)roll(d) << 32 | roll(d)) & (((uint64_t)1 << bits) - 1)) -
           ((int64_t)1 << (bits - 1));
}

static void plain(int64_t rows, int64_t n, const int64_t *acc, const int64_t *offset, double *sum)
{
    for (int64_t i = 0; i < rows * n; i++) {
        const double a = (double)(acc[i] - offset[i % n]);
        sum[i % n] += a;
        sum[n + i % n] += a * a;
    }
}

Test(acc_sums, take_the_terms_of_a_channel_in_order_of_the_rows)
{
    static int64_t acc[ROWS * MOST], offset[MOST];
    static int32_t acc32[ROWS * MOST], offset32[MOST];
    dice d = {.seed = 41};
    for (int64_t n = 1; n <= MOST; n++) {
        double expected[2 * MOST] = {0}, wide[2 * MOST] = {0}, sum[2 * MOST] = {0};
        const int64_t cut = roll_between(&d, 0, ROWS);
        for (int64_t i = 0; i < ROWS * n; i++)
            acc[i] = acc32[i] = (int32_t)roll_acc(&d, 31);
        for (int64_t c = 0; c < n; c++)
            offset[c] = offset32[c] = (int32_t)roll_acc(&d, 20);
        plain(ROWS, n, acc, offset, expected);
        oct_acc_sums16(cut, n, n, acc, offset, wide);
        oct_acc_sums16(ROWS - cut, n, n, acc + cut * n, offset, wide);
        cr_assert_arr_eq(wide, expected, (size_t)n * 16, "%lld channels", (long long)n);
        oct_acc_sums(cut, n, n, acc32, offset32, sum);
        oct_acc_sums(ROWS - cut, n, n, acc32 + cut * n, offset32, sum);
        cr_assert_arr_eq(sum, expected, (size_t)n * 16, "%lld channels", (long long)n);

        memset(expected, 0, sizeof expected);
        memset(wide, 0, sizeof wide);
        for (int64_t i = 0; i < ROWS * n; i++)
            acc[i] = roll_acc(&d, 47);
        plain(ROWS, n, acc, offset, expected);
        oct_acc_sums16(ROWS, n, n / 3, acc, offset, wide);
        oct_acc_sums16(ROWS, n, n - n / 3, acc + n / 3, offset + n / 3, wide + n / 3);
        cr_assert_arr_eq(wide, expected, (size_t)n * 16, "%lld channels", (long long)n);
    }
}
