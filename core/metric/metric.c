/* The table of metrics, and their sums over ranks. */
#include "core/metric/metric.h"

#include "core/base/mem.h"
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

oct_output_row oct_output_row_at(const oct_output_rows *rows, int64_t i)
{
    const oct_goals *goals = &rows->goals;
    return (oct_output_row){.y = rows->y + i * rows->n,
                            .n = rows->n,
                            .label = goals->labels ? goals->labels[i] : -1,
                            .goal = goals->values ? goals->values + i * rows->n : NULL};
}

int32_t oct_output_class(const oct_output_row *row)
{
    int32_t class = row->label;
    if (class < 0 && row->goal) oct_argmax_rows(OCT_F32, 1, row->n, row->goal, &class);
    return class;
}

oct_status oct_metric_sum(const oct_metric *metric, const oct_collective *group,
                          const oct_leaves *leaves, const oct_output_rows *rows, double **numbers)
{
    const oct_leaves ranks = oct_leaves_split(group->size, 1, group->rank, group->size);
    const int64_t count = metric->numbers(rows->n);
    const size_t size = (size_t)count * sizeof **numbers;
    double *parts = NULL;
    oct_status status = oct_alloc(numbers, 1, size);
    if (status == OCT_OK)
        status = oct_alloc(&parts, metric->counts ? 1 : (size_t)leaves->local, size);
    OCT_TRY_OUT(group->agree(group, status));
    for (int64_t leaf = 0; leaf < leaves->local; leaf++) {
        const int64_t first = oct_leaf_begin(leaves, leaf);
        for (int64_t i = first; i < first + oct_leaf_size(leaves, leaf); i++) {
            const oct_output_row row = oct_output_row_at(rows, i);
            metric->add(&row, parts + (metric->counts ? 0 : leaf * count));
        }
    }
    if (!metric->counts) oct_tree_fold_f64(leaves, parts, count);
    status = group->tree_sum_f64(group, metric->counts ? &ranks : leaves, parts, count, *numbers);
out:
    oct_free(&parts);
    if (status != OCT_OK) oct_free(numbers);
    return status;
}
