/* Metrics: how good the outputs of a model are, as one figure over many rows, and as a table of figures.
 *
 * A row is the K outputs of a sample (or of one of its pixels), and what they should be. A metric adds rows to
 * numbers of its own; these are summed over the samples of all ranks along the fixed tree, so that a metric
 * has the same bits on any number of ranks, and for a checkpoint and the int8 model made from it.
 * Adding one: a file in this folder and a line in metric_list.def; or a plug-in's.
 */
#pragma once

#include "core/base/collective.h"
#include "core/base/registry.h"

typedef struct oct_output_row {
    const float *y;    /* the outputs */
    int64_t n;         /* of them */
    int32_t label;     /* the true class, from 0 to n - 1; -1: not known */
    const float *goal; /* the n values that they should be; NULL: not known */
    const float
        *teacher; /* the n outputs of another model for the same sample; NULL: there is none */
} oct_output_row;

/* What the rows of this rank should be, in their order; each of the arrays may be NULL. */
typedef struct oct_goals {
    const int32_t *labels;
    const float *values;  /* as many as outputs */
    const float *teacher; /* as many as outputs */
    int64_t rows;         /* of a sample, such as its pixels; 0 means 1 */
    /* Rows whose label is negative, or `ignored`, count nothing; otherwise such a label is none. */
    bool ignores;
    int32_t ignored;
} oct_goals;

/* Rows of n outputs, one after another. */
typedef struct oct_output_rows {
    const float *y;
    int64_t n;
    oct_goals goals;
} oct_output_rows;

int64_t oct_goals_rows(const oct_goals *goals); /* of a sample */
bool oct_goals_ignore(const oct_goals *goals, int64_t row);
/* Row i: its outputs, with the label, wanted values and teacher outputs that the goals have. */
oct_output_row oct_output_row_at(const oct_output_rows *rows, int64_t i);
/* Output k of a row should be this: a label means 1 at its class and 0 elsewhere. */
static inline double oct_output_wanted(const oct_output_row *row, int64_t k)
{
    if (row->goal) return (double)row->goal[k];
    return k == row->label ? 1.0 : 0.0;
}
static inline double oct_output_error(const oct_output_row *row, int64_t k)
{
    return (double)row->y[k] - oct_output_wanted(row, k);
}
/* The label, or the place of the largest wanted value. */
int32_t oct_output_class(const oct_output_row *row);

/* A column of what a metric knows of each output. */
typedef struct oct_metric_column {
    const char *name;
    int digits; /* after the point; 0: a count */
} oct_metric_column;

/* What a metric knows of each output (class, label, quantity) beside its value. */
typedef struct oct_metric_details {
    const oct_metric_column *columns; /* NULL: a count for each output, as in a confusion matrix */
    int num_columns;
    void (*fill)(const double *numbers, int64_t n, double *cells); /* n rows of columns */
} oct_metric_details;

/* One row among those that a metric of their order sorts. */
typedef struct oct_ranked {
    double score;
    double is_positive; /* 1 or 0; -1: the row is out of it */
} oct_ranked;

/* A metric of how rows are ordered by a score, such as the area under a curve, sees all of them sorted in
 * place of adding one after another. */
typedef struct oct_metric_order {
    /* How many orders there are: 1, or one for each output. The same on each rank. */
    int64_t (*columns)(const oct_output_rows *rows);
    oct_ranked (*score)(const oct_output_row *row, int64_t column);
    /* sorted: from the largest score down; a NaN is the largest. */
    void (*sum)(const oct_ranked *sorted, int64_t count, int64_t column, double *numbers);
} oct_metric_order;

/* Which goals a metric needs: classes, as labels or as probabilities of classes; values; either;
 * or values and labels of the same rows. */
typedef enum oct_metric_of {
    OCT_METRIC_OF_ANY,
    OCT_METRIC_OF_CLASSES,
    OCT_METRIC_OF_VALUES,
} oct_metric_of;

typedef struct oct_metric {
    const char *name;       /* the recipe's word: "top1" */
    const char *title;      /* its name in records and results: "accuracy" */
    const char *brief;      /* its name in a line of progress: "acc" */
    const char *unit;       /* of its value: "%" or "" */
    bool smaller_is_better; /* of its value, as of an error; otherwise larger is */
    /* Its numbers only count, so that they are exact in any order and need no row for each leaf. */
    bool counts;
    oct_metric_of of;
    int64_t most;                  /* outputs that it takes; 0: any number */
    int64_t (*numbers)(int64_t n); /* how many it keeps for rows of n outputs */
    void (*add)(const oct_output_row *row, double *numbers); /* NULL: it has an order */
    double (*value)(const double *numbers,
                    int64_t n);        /* of the sums over all rows; NAN: there is none */
    const oct_metric_order *order;     /* or NULL */
    const oct_metric_details *details; /* or NULL */
} oct_metric;

#define OCT_METRIC(name) extern const oct_metric oct_metric_##name;
#include "core/metric/metric_list.def"
#undef OCT_METRIC

/* Those of the list, then those that plug-ins added. */
extern oct_registry oct_metric_table;
const oct_metric *oct_metric_find(const char *name); /* NULL */
/* Adds a plug-in's metric; metrics live as long as the process. OCT_USAGE when another one has its name. */
oct_status oct_metric_register(const oct_metric *metric) OCT_NODISCARD;

/* Collective: the metric's sums over the rows of all ranks, the same on each of them. rows: those of
 * this rank's samples; numbers: metric->numbers(rows->n) of them, to be freed by the caller; NULL on failure.
 * Those of oct_metric_top1 are the rows whose largest output is that of their class, and all rows. */
oct_status oct_metric_sum(const oct_metric *metric, const oct_collective *group,
                          const oct_leaves *leaves, const oct_output_rows *rows,
                          double **numbers) OCT_NODISCARD;
