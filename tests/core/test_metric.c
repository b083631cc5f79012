/* Metrics of the list, and how their numbers are summed. */
#include "core/metric/metric.h"

#include "core/base/mem.h"
#include "tests/golden/task_golden.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static double value_of(const char *name, const float *y, int64_t rows, int64_t n, oct_goals goals)
{
    const oct_metric *metric = oct_metric_find(name);
    const oct_leaves leaves = oct_leaves_split(rows / oct_goals_rows(&goals), 2, 0, 1);
    const oct_output_rows all = {y, n, goals};
    double *numbers = NULL;
    cr_assert_not_null(metric);
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

Test(metric, wanted_values_give_a_class_as_well)
{
    static const float y[] = {1, 0, 0, 1}, goals[] = {0.6F, 0.4F, 0.6F, 0.4F};
    cr_assert_eq(value_of("top1", y, 2, 2, (oct_goals){.values = goals}), 50);
    cr_assert_eq(value_of("top1", y, 2, 2, (oct_goals){0}), 0, "nothing is known");
}

enum { MANY = OCT_COUNT(golden_classes), CLASSES = OCT_COUNT(golden_scores) / MANY };

static void check_golden(const char *name, const float *y, oct_goals goals, const float *wanted)
{
    cr_assert_float_eq(value_of(name, y, MANY, CLASSES, goals), (double)*wanted, 2e-5, "%s", name);
}

Test(metric, figures_are_those_of_the_definitions)
{
    int32_t classes[MANY];
    for (int i = 0; i < MANY; i++)
        classes[i] = (int32_t)golden_classes[i];
    const oct_goals of_classes = {.labels = classes}, of_several = {.values = golden_several};
    const oct_goals both = {.labels = classes, .values = golden_several};
    check_golden("precision", golden_scores, of_classes, golden_precision);
    check_golden("recall", golden_scores, of_classes, golden_recall);
    check_golden("f1", golden_scores, of_classes, golden_f1);
    check_golden("miou", golden_scores, of_classes, golden_miou);
    check_golden("confusion", golden_scores, of_classes, golden_balanced);
    check_golden("auc", golden_logits, of_classes, golden_auc);
    check_golden("multilabel_f1", golden_scores, of_several, golden_several_f1);
    check_golden("auc", golden_scores, of_several, golden_several_auc);
    check_golden("mean_ap", golden_scores, of_several, golden_several_ap);
    check_golden("mae", golden_scores, of_several, golden_mae_of_values);
    check_golden("rmse", golden_scores, of_several, golden_rmse_of_values);
    check_golden("auc", golden_scores, both, golden_anomaly_auc);
}

Test(metric, a_table_has_each_output)
{
    static const float y[] = {1, 0, 0, 1, 1, 0, 0, 1};
    static const int32_t labels[] = {0, 1, 1, 1};
    const oct_output_rows rows = {y, 2, {.labels = labels}};
    const oct_leaves leaves = oct_leaves_split(4, 2, 0, 1);
    const char *const names[] = {"confusion", "f1", "miou"};
    static const double wanted[][8] = {
        {1, 0, 1, 2}, {50, 100, 200.0 / 3, 1, 100, 200.0 / 3, 80, 3}, {50, 1, 200.0 / 3, 3}};
    for (size_t i = 0; i < OCT_COUNT(names); i++) {
        const oct_metric *metric = oct_metric_find(names[i]);
        const oct_metric_details *details = metric->details;
        double *numbers, cells[8];
        cr_assert_eq(oct_metric_sum(metric, &oct_collective_one, &leaves, &rows, &numbers), OCT_OK);
        details->fill(numbers, 2, cells);
        for (int k = 0; k < 2 * (details->columns ? details->num_columns : 2); k++)
            cr_assert_float_eq(cells[k], wanted[i][k], 1e-9, "%s, cell %d: %g", names[i], k,
                               cells[k]);
        oct_free(&numbers);
    }
}

Test(metric, ignored_rows_count_nothing)
{
    static const float y[] = {1, 0, 0, 1, 1, 0, 0, 1};
    static const int32_t labels[] = {0, 7, -1, 0};
    for (size_t i = 0; i < oct_registry_count(&oct_metric_table); i++) {
        const oct_metric *metric = oct_registry_at(&oct_metric_table, i);
        const oct_goals goals = {.labels = labels, .rows = 2, .ignores = true, .ignored = 7};
        const int32_t kept[] = {0, 0};
        const float rows[] = {1, 0, 0, 1};
        if (metric->of == OCT_METRIC_OF_VALUES) continue;
        const double all = value_of(metric->name, y, 4, 2, goals);
        const double few = value_of(metric->name, rows, 2, 2, (oct_goals){.labels = kept});
        cr_assert(all == few || (isnan(all) && isnan(few)), "%s: %g and %g", metric->name, all,
                  few);
    }
}

Test(metric, there_is_no_figure_of_nothing)
{
    static const float y[] = {1, 0}, goal[] = {1, 0};
    static const int32_t label[] = {0};
    cr_assert(isnan(value_of("auc", y, 1, 2, (oct_goals){.labels = label})), "one class only");
    cr_assert(isnan(value_of("mean_ap", y, 1, 2, (oct_goals){0})));
    cr_assert(isnan(value_of("f1", y, 0, 2, (oct_goals){.labels = label})));
    cr_assert(isnan(value_of("rmse", y, 0, 2, (oct_goals){.values = goal})));
    cr_assert_eq(value_of("mean_ap", y, 1, 2, (oct_goals){.values = goal}), 100);
}

Test(metric, a_nan_is_the_largest_score)
{
    const float y[] = {NAN, 0, 2, -1};
    static const float goal[] = {1, 0, 0, 1};
    cr_assert_eq(value_of("auc", y, 4, 1, (oct_goals){.values = goal}), 0.5);
}

static int64_t one_number(int64_t n)
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
        .name = "first", .unit = "", .numbers = one_number, .add = add_first, .value = sum};
    const float y[] = {1, 0x1p-24F, 0x1p30F, 0x1p-24F, 3, -0x1p30F};
    cr_assert_eq(oct_registry_add(&oct_metric_table, &mean), OCT_OK);
    double rows[6];
    for (int i = 0; i < 6; i++)
        rows[i] = (double)y[i];
    const oct_leaves leaves = oct_leaves_split(6, 2, 0, 1);
    double leaf[3] = {rows[0] + rows[1], rows[2] + rows[3], rows[4] + rows[5]};
    oct_tree_fold_f64(&leaves, leaf, 1);
    cr_assert_eq(value_of("first", y, 6, 1, (oct_goals){0}), leaf[0]);
    cr_assert_eq(oct_mem_live(), 0);
}
