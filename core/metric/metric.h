/* Metrics: how good the outputs of a model are, as one figure over many rows.
 *
 * A row is the K outputs of a sample, and what they should be. A metric adds rows to numbers of its own;
 * these are summed over the samples of all ranks along the fixed tree, so that a metric has the same bits
 * on any number of ranks, and for a checkpoint and the int8 model made from it.
 * Adding one: a file in this folder and a line in metric_list.def; or a plug-in's.
 */
#pragma once

#include "core/base/collective.h"
#include "core/base/registry.h"

typedef struct oct_output_row {
    const float *y;    /* the outputs */
    int64_t n;         /* of them */
    int32_t label;     /* the class that they should tell, from 0 to n - 1; -1: not known */
    const float *goal; /* the n values that they should be; NULL: not known */
} oct_output_row;

/* What the rows of this rank should be, in their order; either may be NULL. */
typedef struct oct_goals {
    const int32_t *labels;
    const float *values; /* as many as outputs */
} oct_goals;

/* Rows of n outputs, one behind the other. */
typedef struct oct_output_rows {
    const float *y;
    int64_t n;
    oct_goals goals;
} oct_output_rows;

oct_output_row oct_output_row_at(const oct_output_rows *rows, int64_t i);
/* The label, or the place of the largest wanted value. */
int32_t oct_output_class(const oct_output_row *row);

typedef struct oct_metric {
    const char *name;       /* the recipe's word: "top1" */
    const char *title;      /* its name in records and results: "accuracy" */
    const char *brief;      /* its name in a line of progress: "acc" */
    const char *unit;       /* of its value: "%" or "" */
    bool smaller_is_better; /* of its value, as of an error; otherwise larger is */
    /* Its numbers only count, so that they are exact in any order and need no row for each leaf. */
    bool counts;
    int64_t (*numbers)(int64_t n); /* how many it keeps for rows of n outputs */
    void (*add)(const oct_output_row *row, double *numbers);
    double (*value)(const double *numbers, int64_t n); /* of the sums over all rows */
} oct_metric;

#define OCT_METRIC(name) extern const oct_metric oct_metric_##name;
#include "core/metric/metric_list.def"
#undef OCT_METRIC

/* Those of the list, then those that plug-ins added. */
extern oct_registry oct_metric_table;
const oct_metric *oct_metric_find(const char *name); /* NULL */
/* Adds a plug-in's metric; metrics live as long as the process. OCT_USAGE when another one has its name. */
oct_status oct_metric_register(const oct_metric *metric) OCT_NODISCARD;

/* Collective: the metric's sums over the rows of all ranks, alike on each of them. rows: one for each of
 * this rank's samples; numbers: metric->numbers(rows->n) of them, to be freed by the caller; NULL on failure.
 * Those of oct_metric_top1 are the rows whose largest output tells their class, and all rows. */
oct_status oct_metric_sum(const oct_metric *metric, const oct_collective *group,
                          const oct_leaves *leaves, const oct_output_rows *rows,
                          double **numbers) OCT_NODISCARD;
