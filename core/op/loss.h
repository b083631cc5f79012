/* Losses: what a training step makes small.
 *
 * A loss is a function of one row of outputs and what they should be (core/metric/metric.h), and its
 * gradient; the loss of a batch is the mean over the rows of all ranks, each row with its weight.
 * Everything else is here: sums leaf by leaf and along the tree, checks of labels, the record on the tape.
 * To add one, write a file in core/op/loss and a line in loss_list.def, or a plug-in.
 */
#pragma once

#include "core/autograd/tape.h"
#include "core/metric/metric.h"

/* Options of a loss beside its rows; each loss uses those that its description names. */
typedef struct oct_loss_options {
    double smoothing;               /* share of a label that is spread over all classes */
    const double *class_weights;    /* of each output; NULL: all count the same */
    const double *positive_weights; /* of each output: what its positives count; NULL: 1 */
    double teacher_share;           /* of the loss, where rows have a teacher's outputs: 0 to 1 */
    double temperature;             /* at which teacher and model are compared; 0 stands for 1 */
    /* Those of single losses; 0 stands for the default. */
#define OCT_LOSS_KEY(name, def, min, max, same, help) double name;
#include "core/op/loss_list.def"
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
    OCT_LOSS_USES_TEACHER = 16, /* and rows with a teacher's outputs */
};

/* What it makes of outputs: quantities as they are, logits of classes, one of them right, or a logit for
 * each of several labels. */
typedef enum oct_output_kind {
    OCT_OUTPUTS_PLAIN,
    OCT_OUTPUTS_SOFTMAX,
    OCT_OUTPUTS_SIGMOID,
} oct_output_kind;

typedef struct oct_loss_kind {
    const char *name; /* loss.kind */
    unsigned takes;   /* OCT_LOSS_OF_... */
    unsigned uses;    /* OCT_LOSS_USES_... */
    const char *keys; /* its options of loss_list.def, between blanks; NULL: none */
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

#define OCT_LOSS(name) extern const oct_loss_kind oct_loss_##name;
#include "core/op/loss_list.def"

/* Those of the list, then those that plug-ins added. */
extern oct_registry oct_loss_table;
const oct_loss_kind *oct_loss_find(const char *name); /* NULL */
/* Adds a plug-in's loss; losses live as long as the process. OCT_USAGE when another one has its name. */
oct_status oct_loss_register(const oct_loss_kind *kind) OCT_NODISCARD;

typedef struct oct_loss_spec {
    const oct_loss_kind *kind;
    oct_loss_options options;
    const oct_metric *metric; /* that adds, on the same rows and in the same reduction; or NULL */
    /* The gradient is that of the sum over the batch's rows, divided by the rows of this many samples: for a
     * caller that adds up several batches. 0: divided by the weight of the batch's rows. */
    int64_t divisor_samples;
} oct_loss_spec;

/* The result, the same on all ranks. */
typedef struct oct_loss {
    double loss_sum; /* over the global batch, by the fixed tree */
    double weight;   /* of its rows: divide by it */
    double counted;  /* the same, 0 where no row counts */
    double divisor;  /* of the gradient */
    double metric;   /* NAN where none is measured */
} oct_loss;

/* Collective: the loss of y as a scalar tensor, to run oct_backward from; its backward needs no gradient
 * given. y: (N, K); or (N, ..., K) where a sample has a row for each place between; or of any shape, each
 * sample one row of values. Labels are copied, what else the goals and the options point to must last until the
 * backward has run. OCT_DATA when a label is no class, OCT_PEER when one of another rank is none. */
oct_tensor *oct_loss_apply(oct_context *cx, const oct_loss_spec *spec, oct_tensor *y,
                           const oct_goals *goals, oct_loss *result);
