/* The table of metrics, and their sums over ranks. */
#include "core/metric/metric.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/tensor/tensor.h"

#include <math.h>
#include <stdlib.h>

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
    int32_t class = row ? row->label : -1;
    if (row && class < 0 && row->goal) oct_argmax_rows(OCT_F32, 1, row->n, row->goal, &class);
    return class;
}

/* Sums the metric's numbers over all rows: along the tree over leaves, as float sums depend on their order; counts are
 * exact in any order, so each rank adds all its rows to one sum. */
static oct_status sum_all_rows(const oct_metric *metric, const oct_collective *group,
                               const oct_leaves *leaves, const oct_output_rows *rows,
                               double *numbers)
{
    const oct_leaves ranks = oct_leaves_split(group->size, 1, group->rank, group->size);
    const int64_t count = metric->numbers(rows->n);
    OCT_OWNED(oct_free) double *parts = NULL;
    oct_status status = oct_alloc(&parts, metric->counts ? 1 : (size_t)leaves->local,
                                  (size_t)count * sizeof *parts);
    OCT_TRY(group->agree(group, status));
    const int64_t rows_per_sample = oct_goals_rows(&rows->goals);
    for (int64_t leaf = 0; leaf < leaves->local; leaf++) {
        const int64_t first = oct_leaf_begin(leaves, leaf) * rows_per_sample;
        for (int64_t i = first; i < first + oct_leaf_size(leaves, leaf) * rows_per_sample; i++) {
            if (oct_goals_ignore(&rows->goals, i)) continue;
            const oct_output_row row = oct_output_row_at(rows, i);
            metric->add(&row, parts + (metric->counts ? 0 : leaf * count));
        }
    }
    if (!metric->counts) oct_tree_fold_f64(leaves, parts, count);
    return group->tree_sum(group, metric->counts ? &ranks : leaves, parts, count, sizeof(double),
                           numbers);
}

/* The scores of a column: this rank's, padded to the largest number that a rank has, and those of all ranks on rank 0. */
typedef struct ordering {
    const oct_metric *metric;
    const oct_collective *group;
    const oct_output_rows *rows;
    int64_t local, most_local, columns;
    oct_ranked *mine, *all;
} ordering;

static int compare_descending(const void *a, const void *b)
{
    const double x = ((const oct_ranked *)a)->score, y = ((const oct_ranked *)b)->score;
    if (isnan(x) || isnan(y)) return !isnan(x) - !isnan(y);
    return (x < y) - (x > y);
}

/* Sorts the scores of a column on rank 0 and adds what the metric makes of them; is_positive -1: padding, no row. */
static oct_status sum_column(ordering *o, int64_t column, double *numbers)
{
    const oct_collective *group = o->group;
    for (int64_t i = 0; i < o->most_local; i++) {
        o->mine[i] = (oct_ranked){.is_positive = -1};
        if (i >= o->local || oct_goals_ignore(&o->rows->goals, i)) continue;
        const oct_output_row row = oct_output_row_at(o->rows, i);
        o->mine[i] = o->metric->order->score(&row, column);
    }
    OCT_TRY(group->gather(group, o->mine, (size_t)o->most_local * sizeof *o->mine, o->all));
    if (!o->all) return OCT_OK;
    int64_t count = 0;
    for (int64_t i = 0; i < o->most_local * group->size; i++)
        if (o->all[i].is_positive >= 0) o->all[count++] = o->all[i];
    qsort(o->all, (size_t)count, sizeof *o->all, compare_descending);
    o->metric->order->sum(o->all, count, column, numbers);
    return OCT_OK;
}

/* Scores are sorted on rank 0, one column after another. The numbers do not depend on the order of equal scores, so
 * neither the number of ranks nor the sort decides a bit. Rank 0 holds two numbers for each row of all ranks. */
static oct_status sum_sorted_rows(const oct_metric *metric, const oct_collective *group,
                                  const oct_leaves *leaves, const oct_output_rows *rows,
                                  double *numbers)
{
    const size_t bytes = (size_t)metric->numbers(rows->n) * sizeof *numbers;
    ordering o = {.metric = metric, .group = group, .rows = rows};
    oct_status status = OCT_OK;
    o.local = oct_leaves_local_samples(leaves) * oct_goals_rows(&rows->goals);
    /* A rank without samples may not know the goals, so the others say how many columns there are. */
    int64_t most[] = {o.local, metric->order->columns(rows)};
    OCT_TRY_OUT(group->max_i64(group, most, OCT_COUNT(most)));
    o.most_local = oct_max_i64(most[0], 1);
    o.columns = most[1];
    status = oct_alloc(&o.mine, (size_t)o.most_local, sizeof *o.mine);
    if (status == OCT_OK && group->rank == 0)
        status = oct_alloc(&o.all, (size_t)o.most_local * (size_t)group->size, sizeof *o.all);
    OCT_TRY_OUT(group->agree(group, status));
    for (int64_t column = 0; column < o.columns; column++)
        OCT_TRY_OUT(sum_column(&o, column, numbers));
    status = group->broadcast(group, numbers, bytes, 0);
out:
    oct_free(&o.mine);
    oct_free(&o.all);
    return status;
}

oct_status oct_metric_sum(const oct_metric *metric, const oct_collective *group,
                          const oct_leaves *leaves, const oct_output_rows *rows, double **numbers)
{
    const size_t size = (size_t)metric->numbers(rows->n) * sizeof **numbers;
    oct_status status = oct_alloc(numbers, 1, size);
    OCT_TRY_OUT(group->agree(group, status));
    status = metric->order ? sum_sorted_rows(metric, group, leaves, rows, *numbers)
                           : sum_all_rows(metric, group, leaves, rows, *numbers);
out:
    if (status != OCT_OK) oct_free(numbers);
    return status;
}
