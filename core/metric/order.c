/* Scores are sorted on rank 0, one column after another.
 *
 * What is counted along the sorted scores does not depend on the order of equal ones, so neither the number of
 * ranks nor the sort decides a bit. Rank 0 holds two numbers for each row of all ranks.
 */
#include "core/metric/order.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <math.h>
#include <stdlib.h>

/* The scores of a column: this rank's, padded to the largest share, and those of all ranks on rank 0. */
typedef struct order {
    const oct_metric *metric;
    const oct_collective *group;
    const oct_output_rows *rows;
    int64_t local, share, columns;
    oct_ranked *mine, *all;
} order;

static int descending(const void *a, const void *b)
{
    const double x = ((const oct_ranked *)a)->score, y = ((const oct_ranked *)b)->score;
    if (isnan(x) || isnan(y)) return !isnan(x) - !isnan(y);
    return (x < y) - (x > y);
}

static void rank_own(order *o, int64_t column)
{
    for (int64_t i = 0; i < o->share; i++) {
        o->mine[i] = (oct_ranked){.is_positive = -1};
        if (i >= o->local || oct_goals_ignore(&o->rows->goals, i)) continue;
        const oct_output_row row = oct_output_row_at(o->rows, i);
        o->mine[i] = o->metric->order->rank(&row, column);
    }
}

/* Keeps those that take part, in front. */
static int64_t compact(oct_ranked *all, int64_t count)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        if (all[i].is_positive >= 0) all[kept++] = all[i];
    return kept;
}

static oct_status sum_column(order *o, int64_t column, double *numbers)
{
    const oct_collective *group = o->group;
    rank_own(o, column);
    OCT_TRY(group->gather(group, o->mine, (size_t)o->share * sizeof *o->mine, o->all));
    if (!o->all) return OCT_OK;
    const int64_t count = compact(o->all, o->share * group->size);
    qsort(o->all, (size_t)count, sizeof *o->all, descending);
    o->metric->order->sum(o->all, count, column, numbers);
    return OCT_OK;
}

/* A rank without samples may not know the goals, so the others say how many columns there are. */
static oct_status measure(order *o, const oct_leaves *leaves)
{
    const oct_collective *group = o->group;
    o->local = oct_leaves_local_samples(leaves) * oct_goals_rows(&o->rows->goals);
    int64_t most[] = {o->local, o->metric->order->columns(o->rows)};
    OCT_TRY(group->max_i64(group, most, OCT_COUNT(most)));
    o->share = oct_max_i64(most[0], 1);
    o->columns = most[1];
    oct_status status = oct_alloc(&o->mine, (size_t)o->share, sizeof *o->mine);
    if (status == OCT_OK && group->rank == 0)
        status = oct_alloc(&o->all, (size_t)o->share * (size_t)group->size, sizeof *o->all);
    return group->agree(group, status);
}

oct_status oct_metric_sum_order(const oct_metric *metric, const oct_collective *group,
                                const oct_leaves *leaves, const oct_output_rows *rows,
                                double *numbers)
{
    const size_t bytes = (size_t)metric->numbers(rows->n) * sizeof *numbers;
    order o = {.metric = metric, .group = group, .rows = rows};
    oct_status status = OCT_OK;
    OCT_TRY_OUT(measure(&o, leaves));
    for (int64_t column = 0; column < o.columns; column++)
        OCT_TRY_OUT(sum_column(&o, column, numbers));
    status = group->broadcast(group, numbers, bytes, 0);
out:
    oct_free(&o.mine);
    oct_free(&o.all);
    return status;
}
