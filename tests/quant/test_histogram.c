/* Histograms: the grid, what is asked of counts, and that every module that quantizes its output shows its
 * values to an observer that counts. */
#include "quant/observer/observer.h"

#include "core/base/int_math.h"
#include "tests/quant/deploy.h"

#include <math.h>
#include <omp.h>

/* Any number of any size and sign. */
static float any_float(uint64_t i)
{
    uint32_t words[4];
    float x;
    oct_philox(3, OCT_STREAM_TEST, i, 0, words);
    memcpy(&x, &words[0], sizeof x);
    return isnan(x) ? 0.0f : x;
}

Test(histogram, bins_are_in_order_and_hold_their_values)
{
    for (int bin = 0; bin + 1 < OCT_HISTOGRAM_BINS; bin++) {
        cr_assert_lt(oct_histogram_low(bin), oct_histogram_high(bin));
        cr_assert_eq(oct_histogram_high(bin), oct_histogram_low(bin + 1), "bin %d", bin);
    }
    for (uint64_t i = 0; i < 1000000; i++) {
        const float x = any_float(i);
        const int bin = oct_histogram_bin(x);
        cr_assert_eq(oct_histogram_bin(-x), OCT_HISTOGRAM_BINS - 1 - bin);
        if (bin == 0 || bin == OCT_HISTOGRAM_BINS - 1) continue; /* without an end */
        cr_assert(oct_histogram_low(bin) <= x && x <= oct_histogram_high(bin), "%a in bin %d",
                  (double)x, bin);
        const float width = oct_histogram_high(bin) - oct_histogram_low(bin);
        cr_assert(bin == OCT_HISTOGRAM_ZERO || width <= fabsf(x) / 31.0f);
    }
    cr_assert_eq(oct_histogram_bin(0.0f), OCT_HISTOGRAM_ZERO);
    cr_assert_eq(oct_histogram_bin(0x1p-32f), OCT_HISTOGRAM_ZERO + 1);
    cr_assert_eq(oct_histogram_bin(1e38f), OCT_HISTOGRAM_BINS - 1);
    cr_assert_eq(oct_histogram_bin(-INFINITY), 0);
}

/* Many at once are counted as one by one, whatever their bits are and however many there are. */
Test(histogram, values_are_counted_in_their_bins)
{
    enum { N = 100000 };
    static float x[N];
    static int64_t count[OCT_HISTOGRAM_BINS], expected[OCT_HISTOGRAM_BINS];
    for (uint64_t i = 0; i < N; i++) {
        uint32_t words[4];
        oct_philox(5, OCT_STREAM_TEST, i, 0, words);
        if (words[1] % 3 == 0) words[0] = words[1] % 2 ? 0 : 0x80000000u;
        if (words[1] % 7 == 0) words[0] = 0x7f800000u | (words[0] & 0x80000001u);
        if (words[1] % 5 == 0) words[0] = 0x2f800000u + words[1] % 64 - 32; /* around 2^-32 */
        memcpy(&x[i], &words[0], sizeof *x);
    }
    for (int64_t first = 0, n = 1; first < N; first += n, n = n * 2 % 1013 + 1) {
        n = oct_min_i64(n, N - first);
        oct_histogram_add(x + first, n, count);
        for (int64_t i = first; i < first + n; i++)
            if (isfinite(x[i])) expected[oct_histogram_bin(x[i])]++;
    }
    cr_assert(memcmp(count, expected, sizeof count) == 0);
    cr_assert_gt(oct_histogram_total(count), N / 2);
}

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

Test(histogram, quantiles_are_those_of_the_sorted_values_to_the_width_of_a_bin)
{
    enum { N = 20000 };
    static float x[N];
    static int64_t count[OCT_HISTOGRAM_BINS], merged[OCT_HISTOGRAM_BINS];
    static const double shares[] = {0, 0.001, 0.01, 0.3, 0.5, 0.9, 0.999, 1};
    oct_fill_normal(x, N, 9, OCT_STREAM_TEST, 0, 0.3f, 2.0f);
    x[7] = NAN;
    oct_histogram_add(x, N, count);
    cr_assert_eq(oct_histogram_total(count), N - 1, "what is no number is left out");
    x[7] = x[6];
    count[oct_histogram_bin(x[7])]++;
    for (int64_t i = N; i > 0; i--) {
        int64_t one[OCT_HISTOGRAM_BINS] = {0};
        oct_histogram_add(x + i - 1, 1, one);
        oct_histogram_merge(one, merged);
    }
    cr_assert(memcmp(count, merged, sizeof count) == 0, "in any order, in any parts");
    qsort(x, N, sizeof *x, ascending);
    for (size_t i = 0; i < OCT_COUNT(shares); i++) {
        const int64_t at = (int64_t)(shares[i] * (N - 1));
        const float got = oct_histogram_quantile(count, shares[i]);
        cr_assert_leq(fabsf(got - x[at]), fabsf(x[at]) / 31.0f + 0.01f, "%g: %g, sorted %g",
                      shares[i], (double)got, (double)x[at]);
    }
    memset(count, 0, sizeof count);
    cr_assert_eq(oct_histogram_quantile(count, 0.5), 0.0f, "of nothing");
    count[OCT_HISTOGRAM_ZERO] = 3;
    cr_assert_eq(oct_histogram_quantile(count, 0.999), 0.0f);
}

/* What an observer gets agrees with itself: the ends of the counts are those of the range, to a bin that
 * rounding may move them. */
static int64_t shown;
static int calls;

static void witness(oct_range *state, int64_t *kept, const oct_observation *batch)
{
    int low = 0, high = OCT_HISTOGRAM_BINS - 1;
    while (batch->count[low] == 0)
        low++;
    while (batch->count[high] == 0)
        high--;
    cr_assert_leq(abs(low - oct_histogram_bin(batch->min)), 1, "from %g: bins %d and %d",
                  (double)batch->min, low, oct_histogram_bin(batch->min));
    cr_assert_leq(abs(high - oct_histogram_bin(batch->max)), 1, "to %g: bins %d and %d",
                  (double)batch->max, high, oct_histogram_bin(batch->max));
    oct_histogram_merge(batch->count, kept);
    shown += oct_histogram_total(batch->count);
    calls++;
    state->min = batch->min;
    state->max = batch->max;
    state->updates++;
}

static const oct_observer witness_observer = {.name = "witness", .count = witness};

/* One of each: stub, convolution with all its followers, batch norm alone, sums, products, tables, concat,
 * linear; and how many numbers they quantize in a sample. */
enum { PLANE = 6 * 6, QUANTIZED = PLANE * (4 + 6 * 8) + 5 };

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    parts *p = (parts *)self;
    (void)n;
    oct_tensor *a = oct_relu(cx, oct_call(cx, p->m[1], oct_call(cx, p->m[0], x[0])));
    oct_tensor *b = oct_sigmoid(cx, oct_call(cx, p->m[2], a));
    oct_tensor *c = oct_add(cx, oct_mul(cx, b, a), a);
    oct_tensor *d = oct_concat(cx, (oct_tensor *[]){c, oct_call(cx, p->m[3], c)}, 2);
    return oct_call(cx, p->m[4], oct_global_avg_pool(cx, d));
}

static const oct_module_type type = {.name = "of_everything", .forward = forward};

static void build(oct_module **root)
{
    *root = parts_create(&type);
    PART(*root, 0, oct_conv2d_create(&item, 4, 8, deploy_conv(3, 1), false));
    PART(*root, 1, oct_batch_norm_create(&item, 8));
    PART(*root, 2, oct_batch_norm_create(&item, 8));
    PART(*root, 3, oct_conv2d_create(&item, 8, 8, deploy_conv(3, 1), true));
    PART(*root, 4, oct_linear_create(&item, 16, 5, true));
}

static void check_shown(const oct_qconfig *qconfig, int threads)
{
    deployment d;
    oct_module *root;
    const oct_qconfig_setter setter = oct_setter_default(qconfig);
    const oct_prepare_options options = {
        .method = OCT_METHOD_JIT, .target = &oct_target_x86, .setters = &setter, .num_setters = 1};
    omp_set_num_threads(threads);
    build(&root);
    deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 4)));
    calls = 0;
    deploy_train(&d, &options);
    cr_assert(qconfig->current_scales || calls == 3 * (int)d.quantizers.count, "%d calls", calls);
    oct_module_train(d.root, true);
    oct_quantizers_set_state(&d.quantizers, OCT_QUANT_QAT);
    shown = 0;
    deploy_forward(&d);
    if (!qconfig->current_scales) deploy_update(&d);
    /* Where the two inputs of the concat settle one scale after the other, it shows the first again. */
    const int64_t again = qconfig->current_scales ? PLANE * 8 : 0;
    cr_assert_eq(shown, (int64_t)DEPLOY_SAMPLES * (QUANTIZED + again), "%lld values",
                 (long long)shown);
    deploy_end(&d);
}

Test(histogram, is_of_every_value_that_is_quantized)
{
    oct_qconfig qconfig = oct_qconfig_default();
    qconfig.observer = &witness_observer;
    check_shown(&qconfig, 1);
    check_shown(&qconfig, 3);
    qconfig.bits = 16;
    check_shown(&qconfig, 2);
    qconfig.current_scales = true;
    check_shown(&qconfig, 2);
    qconfig.bits = 8;
    check_shown(&qconfig, 2);
}
