/* Models are evaluated over a data set whose samples are split over ranks. */
#pragma once

#include "core/autograd/context.h"
#include "core/metric/metric.h"
#include "core/nn/module.h"
#include "io/batch/loader.h"
#include "io/recipe/recipe.h"
#include "quant/layers/sensitivity.h"

#include <jansson.h>

enum { OCT_METRICS_MAX = 16, OCT_SCORES_TEXT = 1024 };

/* The scores of a model's outputs for a data set, the same on all ranks. */
typedef struct oct_scores {
    int64_t images, rows; /* rows: that count, such as pixels; images, where each has one */
    int64_t correct;      /* rows whose largest output is at the label; -1: rows have no classes */
    int num_metrics;      /* of the recipe's `metrics`, in their order */
    const oct_metric *metric[OCT_METRICS_MAX];
    double value[OCT_METRICS_MAX];
} oct_scores;

double oct_scores_accuracy(const oct_scores *scores); /* percent; -1: rows have no classes */
typedef struct oct_figure {
    char text[48];
} oct_figure;
/* A figure for people: "92.10 %", or "not defined". */
oct_figure oct_figure_text(const oct_metric *metric, double value);
/* All figures, for people: "accuracy 92.10 %, top5 99.80 %". Returns text. */
const char *oct_scores_text(const oct_scores *scores, char text[OCT_SCORES_TEXT]);
/* And as an object {"top5": 99.8} (new reference), NULL where there are none. */
json_t *oct_scores_json(const oct_scores *scores);

/* Collective: evaluates a module tree in eval mode over a data set. cx: a context whose forwards do not communicate, and
 * whose memory is used; NULL: one of its own. logits (may be NULL): count x rows x classes on rank 0, filled there. */
oct_status oct_evaluate(oct_context *cx, oct_module *model, const oct_collective *group,
                        const oct_recipe *recipe, const oct_dataset *data, oct_scores *scores,
                        float *logits);

/* Its parts, for who evaluates something else in the same split of the samples: */

/* The outputs of this rank's samples of a data set, and what they should be. */
typedef struct oct_outputs {
    oct_leaves leaves;
    int64_t samples;   /* of this rank */
    int64_t rows, row; /* rows a sample has, and numbers of a row */
    float *y;          /* samples x rows x row; owned */
    oct_goals goals;   /* of the same */
    int32_t *labels;   /* samples x rows, or NULL; owned */
    float *values;     /* as y, or NULL; owned */
    int64_t damaged;   /* samples that were passed over */
    char damaged_text[OCT_READ_TEXT];
} oct_outputs;

/* Allocates the outputs and goals of this rank's samples; oct_outputs_free frees them, also after a failure. */
oct_status oct_outputs_create(oct_outputs *outputs, const oct_recipe *recipe,
                              const oct_dataset *data, const oct_collective *group);
void oct_outputs_free(oct_outputs *outputs);

/* How many samples go at a time, in whole leaves: at most a rank's share of a training step. */
int64_t oct_evaluation_batch(const oct_recipe *recipe, int ranks);
/* Makes a loader read ahead as the recipe says, where what it reads comes in a row. */
void oct_loader_read_ahead(oct_loader *loader, const oct_recipe *recipe);
/* Collective, where damaged samples are passed over: logs how many were by all ranks, and the text of
 * the lowest rank that passed over any. what: "training", "test". */
oct_status oct_report_damaged(const oct_collective *group, int64_t damaged, const char *text,
                              const char *what);
/* Makes the loader that reads a data set as evaluation sees it: oct_loader_read. */
oct_status oct_evaluation_loader(oct_loader *loader, const oct_recipe *recipe,
                                 const oct_dataset *data);
/* Reads n samples of this rank, from local sample `from` on: their normalised inputs into images (n, h, w, c), their goals
 * and the damaged samples so far into outputs. */
oct_status oct_outputs_read(oct_outputs *outputs, oct_loader *loader, int64_t from, int64_t n,
                            float *images);
/* Not collective: computes the outputs of this rank's samples, in its own forwards of at most `batch`. */
oct_status oct_evaluate_local(oct_module *model, const oct_recipe *recipe, const oct_dataset *data,
                              int64_t batch, oct_outputs *outputs);
/* Collective: scores the outputs of all ranks; outputs: those of this rank. */
oct_status oct_score(const oct_collective *group, const oct_recipe *recipe,
                     const oct_outputs *outputs, oct_scores *scores);
/* Collective: brings the rows of all ranks to rank 0, in order of samples. */
oct_status oct_gather_rows(const oct_collective *group, const oct_leaves *leaves, int64_t row,
                           const float *mine, float *all);

/* A sample subset is some samples of a data set, spread evenly over it, as the model of a recipe takes them. */
typedef struct oct_sample_subset {
    const oct_dataset *data;
    oct_loader loader;
    int64_t count;
} oct_sample_subset;

/* Borrows both; at most `most` samples. */
oct_status oct_sample_subset_create(oct_sample_subset *subset, const oct_recipe *recipe,
                                    const oct_dataset *data, int64_t most);
void oct_sample_subset_free(oct_sample_subset *subset);
/* The number in the data of sample i of the subset. */
int64_t oct_sample_subset_number(const oct_sample_subset *subset, int64_t i);
oct_status oct_sample_subset_read(oct_sample_subset *subset, int64_t i, float *input);

/* Collective, as oct_sensitivity_measure, with a meter: on the first batches of the data, without augmentation. The model
 * is prepared and calibrated. */
oct_status oct_evaluate_sensitivity(oct_module *model, const oct_collective *group,
                                    const oct_recipe *recipe, const oct_dataset *data,
                                    int64_t batches, oct_sensitivity *table);

/* Evaluation and calibration run forwards without a tape over many samples, some at a time, in bounded memory.
 *
 * The first sample goes alone. It shows how much memory a sample takes, and, where the model's containers only hand
 * tensors on (oct_module_calls_only), who reads what last: from then on activations are freed after their last reader.
 * No bit depends on how many samples go together. */

typedef struct oct_forwards {
    oct_context *cx;   /* borrowed */
    oct_module *model; /* borrowed; its tree and mode stay as they are meanwhile */
    oct_lifetimes *lifetimes;
    int64_t sample_bytes; /* of activations at a time; 0: no sample has run yet */
} oct_forwards;

oct_status oct_forward_begin(oct_forwards *f, oct_context *cx, oct_module *model);
void oct_forward_end(oct_forwards *f);

/* How many samples may go next, of `most`: 1 at first, then as many as fit, at least one a thread. */
int64_t oct_forward_samples(const oct_forwards *f, int64_t most);
/* Runs the model on x, the leaves' local samples. *y lives until the next run. */
oct_status oct_forward_run(oct_forwards *f, oct_leaves leaves, const oct_example *x,
                           const oct_tensor **y);
