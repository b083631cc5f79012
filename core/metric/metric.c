/* The table of metrics, and their sums over ranks. */
#include "core/metric/metric.h"

#include "core/base/mem.h"
#include "core/metric/order.h"
#include "core/tensor/argmax.h"

static const void *const listed[] = {
#define OCT_METRIC(name) &oct_metric_##name,
#include "core/metric/metric_list.def"
#undef OCT_METRIC
};
oct_registry oct_metric_table = OCT_REGISTRY("a metric", listed);

const oct_metric *oct_metric_find(const char *name)
{
    return oct_registry_find(&oct_metric_table, name);
}

oct_status oct_metric_register(const oct_metric *metric)
{
    return oct_registry_add(&oct_metric_table, metric);
}

int64_t oct_goals_rows(const oct_goals *goals)
{
    return goals->rows > 0 ? goals->rows : 1;
}

bool oct_goals_ignore(const oct_goals *goals, int64_t row)
{
    if (!goals->ignores || !goals->labels) return false;
    return goals->labels[row] < 0 || goals->labels[row] == goals->ignored;
}

oct_output_row oct_output_row_at(const oct_output_rows *rows, int64_t i)
{
    const oct_goals *goals = &rows->goals;
    return (oct_output_row){.y = rows->y + i * rows->n,
                            .n = rows->n,
                            .label = goals->labels ? goals->labels[i] : -1,
                            .goal = goals->values ? goals->values + i * rows->n : NULL,
                            .teacher = goals->teacher ? goals->teacher + i * rows->n : NULL};
}

int32_t oct_output_class(const oct_output_row *row)
{
    int32_t class = row->label;
    if (class < 0 && row->goal) oct_argmax_rows(OCT_F32, 1, row->n, row->goal, &class);
    return class;
}

static void add_leaf(const oct_metric *metric, const oct_leaves *leaves, int64_t leaf,
                     const oct_output_rows *rows, double *numbers)
{
    const int64_t each = oct_goals_rows(&rows->goals), first = oct_leaf_begin(leaves, leaf) * each;
    for (int64_t i = first; i < first + oct_leaf_size(leaves, leaf) * each; i++) {
        if (oct_goals_ignore(&rows->goals, i)) continue;
        const oct_output_row row = oct_output_row_at(rows, i);
        metric->add(&row, numbers);
    }
}

static oct_status sum_rows(const oct_metric *metric, const oct_collective *group,
                           const oct_leaves *leaves, const oct_output_rows *rows, double *numbers)
{
    const oct_leaves ranks = oct_leaves_split(group->size, 1, group->rank, group->size);
    const int64_t count = metric->numbers(rows->n);
    double *parts = NULL;
    oct_status status = oct_alloc(&parts, metric->counts ? 1 : (size_t)leaves->local,
                                  (size_t)count * sizeof *parts);
    OCT_TRY_OUT(group->agree(group, status));
    for (int64_t leaf = 0; leaf < leaves->local; leaf++)
        add_leaf(metric, leaves, leaf, rows, parts + (metric->counts ? 0 : leaf * count));
    if (!metric->counts) oct_tree_fold_f64(leaves, parts, count);
    status = group->tree_sum_f64(group, metric->counts ? &ranks : leaves, parts, count, numbers);
out:
    oct_free(&parts);
    return status;
}

oct_status oct_metric_sum(const oct_metric *metric, const oct_collective *group,
                          const oct_leaves *leaves, const oct_output_rows *rows, double **numbers)
{
    const size_t size = (size_t)metric->numbers(rows->n) * sizeof **numbers;
    oct_status status = oct_alloc(numbers, 1, size);
    OCT_TRY_OUT(group->agree(group, status));
    status = metric->order ? oct_metric_sum_order(metric, group, leaves, rows, *numbers)
                           : sum_rows(metric, group, leaves, rows, *numbers);
out:
    if (status != OCT_OK) oct_free(numbers);
    return status;
}
