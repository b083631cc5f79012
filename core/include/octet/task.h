/* Losses and metrics of one's own: tables of functions over rows of outputs, for octet/plugin.h.
 *
 * A row is the K outputs of a sample (or of one of its pixels), and what they should be. A loss is a function of one row
 * and its gradient; the loss of a batch is the mean over the rows of all ranks, each row with its weight. A metric says how
 * good the outputs are: it adds rows to numbers of its own, which are summed over the samples of all ranks along a fixed
 * tree, so that it has the same bits on any number of ranks, and for a checkpoint and the int8 model made from it.
 *
 * The tables and what they point to live as long as the process. Functions are called by several threads at once, for
 * different rows; they compute from their arguments alone.
 */
#ifndef OCTET_TASK_H
#define OCTET_TASK_H

#include <octet/status.h>

OCT_BEGIN_DECLS

/* ---- rows ---- */

typedef struct oct_output_row {
    const float *y;    /* the outputs */
    int64_t n;         /* of them */
    int32_t label;     /* the true class, from 0 to n - 1; -1: not known */
    const float *goal; /* the n values that they should be; NULL: not known */
    const float
        *teacher; /* the n outputs of another model for the same sample; NULL: there is none */
} oct_output_row;

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
/* The label, or the place of the largest wanted value; -1: neither is known. */
OCT_API int32_t oct_output_class(const oct_output_row *row);

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

/* ---- losses ---- */

/* Options of a loss beside its rows; each loss uses those that its description names. */
typedef struct oct_loss_options {
    double smoothing;               /* share of a label that is spread over all classes */
    const double *class_weights;    /* of each output; NULL: all count the same */
    const double *positive_weights; /* of each output: what its positives count; NULL: 1 */
    double teacher_share;           /* of the loss, where rows have a teacher's outputs: 0 to 1 */
    double temperature;             /* at which teacher and model are compared; 0 stands for 1 */
    /* Those of single losses, which recipes call loss.<name>; 0 stands for the default. */
    double delta; /* of huber: errors beyond it count linearly */
} oct_loss_options;

/* What the derivative of one row's loss is multiplied and divided by to be that of the batch. */
typedef struct oct_loss_scale {
    double factor, divisor;
} oct_loss_scale;

static inline float oct_loss_scaled(oct_loss_scale scale, double derivative)
{
    return (float)(derivative * scale.factor / scale.divisor);
}

/* Which goals a loss takes: labels, a value for each output, or both together. */
enum { OCT_LOSS_OF_LABELS = 1, OCT_LOSS_OF_VALUES = 2, OCT_LOSS_OF_BOTH = 4 };

/* Which of the options it uses. */
enum {
    OCT_LOSS_USES_SMOOTHING = 1,
    OCT_LOSS_USES_CLASS_WEIGHTS = 2,
    OCT_LOSS_USES_POSITIVE_WEIGHTS = 4,
    OCT_LOSS_USES_TEACHER = 16 /* and rows with a teacher's outputs */
};

/* What it makes of outputs: quantities as they are, logits of classes, one of them right, or a logit for
 * each of several labels. */
typedef enum oct_output_kind {
    OCT_OUTPUTS_PLAIN,
    OCT_OUTPUTS_SOFTMAX,
    OCT_OUTPUTS_SIGMOID
} oct_output_kind;

typedef struct oct_loss_kind {
    const char *name; /* loss.kind */
    unsigned takes;   /* OCT_LOSS_OF_... */
    unsigned uses;    /* OCT_LOSS_USES_... */
    const char *
        keys; /* the options of single losses that it uses, between blanks: " delta "; NULL: none */
    oct_output_kind outputs;
    double (*value)(const oct_output_row *row, const oct_loss_options *options);
    /* grad: for each output, oct_loss_scaled of the derivative of the row's value. */
    void (*grad)(const oct_output_row *row, const oct_loss_options *options, oct_loss_scale scale,
                 float *grad);
    /* grad: the derivative by each wanted value instead; NULL: they are constants. */
    void (*goal_grad)(const oct_output_row *row, const oct_loss_options *options,
                      oct_loss_scale scale, float *grad);
    /* What the row counts in the mean; NULL: each counts 1. */
    double (*weight)(const oct_output_row *row, const oct_loss_options *options);
} oct_loss_kind;

/* ---- metrics ---- */

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

/* Which goals a metric needs: either; classes, as labels or as probabilities of classes; values. */
typedef enum oct_metric_of {
    OCT_METRIC_OF_ANY,
    OCT_METRIC_OF_CLASSES,
    OCT_METRIC_OF_VALUES
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
    /* Of the sums over all rows; NAN: there is none. */
    double (*value)(const double *numbers, int64_t n);
    const oct_metric_order *order;     /* or NULL */
    const oct_metric_details *details; /* or NULL */
} oct_metric;

OCT_END_DECLS

#endif
