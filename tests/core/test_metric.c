/* Metrics of the list, and how their numbers are summed. */
#include "core/metric/metric.h"

#include "core/base/mem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static double value_of(const char *name, const float *y, int64_t rows, int64_t n, oct_goals goals)
{
    const oct_metric *metric = oct_metric_find(name);
    const oct_leaves leaves = oct_leaves_split(rows, 2, 0, 1);
    const oct_output_rows all = {y, n, goals};
    double *numbers = NULL;
    cr_assert_not_null(metric);
    cr_assert_leq(metric->numbers(n), 4);
    cr_assert_eq(oct_metric_sum(metric, &oct_collective_one, &leaves, &all, &numbers), OCT_OK);
    const double value = metric->value(numbers, n);
    oct_free(&numbers);
    return value;
}

Test(metric, the_first_of_equal_outputs_is_the_largest)
{
    static const float y[] = {1, 1, 0, 0, 2, 2};
    static const int32_t labels[] = {0, 2}, others[] = {1, 1};
    cr_assert_eq(value_of("top1", y, 2, 3, (oct_goals){.labels = labels}), 50);
    cr_assert_eq(value_of("top1", y, 2, 3, (oct_goals){.labels = others}), 50);
}

Test(metric, a_nan_is_the_largest_output)
{
    const float y[] = {1, NAN, 5, 1, NAN, 5};
    static const int32_t labels[] = {1, 2};
    cr_assert_eq(value_of("top1", y, 2, 3, (oct_goals){.labels = labels}), 50);
}

Test(metric, top5_takes_the_first_five)
{
    static const float y[] = {6, 5, 4, 3, 2, 1, 0, 6, 5, 4, 3, 2, 1, 0,
                              6, 6, 6, 6, 6, 6, 0, 1, 1, 1, 1, 1, 1, 1};
    static const int32_t labels[] = {4, 5, 4, 5};
    cr_assert_eq(value_of("top5", y, 4, 7, (oct_goals){.labels = labels}), 50);
    static const int32_t few[] = {2, 0};
    cr_assert_eq(value_of("top5", y, 2, 3, (oct_goals){.labels = few}), 100, "of three outputs");
}

Test(metric, wanted_values_tell_a_class_as_well)
{
    static const float y[] = {1, 0, 0, 1}, goals[] = {0.6F, 0.4F, 0.6F, 0.4F};
    cr_assert_eq(value_of("top1", y, 2, 2, (oct_goals){.values = goals}), 50);
    cr_assert_eq(value_of("top1", y, 2, 2, (oct_goals){0}), 0, "nothing is known");
}

static int64_t one(int64_t n)
{
    (void)n;
    return 1;
}

static void add_first(const oct_output_row *row, double *numbers)
{
    numbers[0] += (double)row->y[0];
}

static double sum(const double *numbers, int64_t n)
{
    (void)n;
    return numbers[0];
}

/* Sums that round depend on their order, which is that of the tree over leaves. */
Test(metric, numbers_that_do_not_count_are_summed_along_the_tree)
{
    static const oct_metric mean = {
        .name = "first", .unit = "", .numbers = one, .add = add_first, .value = sum};
    const float y[] = {1, 0x1p-24F, 0x1p30F, 0x1p-24F, 3, -0x1p30F};
    cr_assert_eq(oct_metric_register(&mean), OCT_OK);
    double rows[6];
    for (int i = 0; i < 6; i++)
        rows[i] = (double)y[i];
    const oct_leaves leaves = oct_leaves_split(6, 2, 0, 1);
    double leaf[3] = {rows[0] + rows[1], rows[2] + rows[3], rows[4] + rows[5]};
    oct_tree_fold_f64(&leaves, leaf, 1);
    cr_assert_eq(value_of("first", y, 6, 1, (oct_goals){0}), leaf[0]);
    cr_assert_eq(oct_mem_live(), 0);
}
