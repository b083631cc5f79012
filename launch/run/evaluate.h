/* Models are evaluated over a data set whose samples are split over ranks. */
#pragma once

#include "core/metric/metric.h"
#include "core/nn/module.h"
#include "io/dataset/dataset.h"
#include "io/recipe.h"

#include <jansson.h>

enum { OCT_METRICS_MAX = 16, OCT_SCORES_TEXT = 1024 };

/* What a model's outputs for a data set are worth: alike on all ranks. */
typedef struct oct_scores {
    int64_t images, correct; /* correct: the largest output is at the label */
    int num_metrics;         /* of the recipe's `metrics`, in their order */
    const oct_metric *metric[OCT_METRICS_MAX];
    double value[OCT_METRICS_MAX];
} oct_scores;

double oct_scores_accuracy(const oct_scores *scores); /* percent */
/* The metrics beside the accuracy, for people: ", top5 99.80 %" for each. Returns text. */
const char *oct_scores_text(const oct_scores *scores, char text[OCT_SCORES_TEXT]);
/* And as an object {"top5": 99.8} (new reference), NULL where there are none. */
json_t *oct_scores_json(const oct_scores *scores);

/* Collective: evaluates a module tree in eval mode over a data set. logits (may be NULL): count x classes
 * on rank 0, filled there. */
oct_status oct_evaluate(oct_module *model, const oct_collective *group, const oct_recipe *recipe,
                        const oct_dataset *data, oct_scores *scores, float *logits) OCT_NODISCARD;
/* The same in the memory of a context, whose forwards communicate with nobody. */
oct_status oct_evaluate_in(oct_context *cx, oct_module *model, const oct_collective *group,
                           const oct_recipe *recipe, const oct_dataset *data,
                           oct_scores *scores) OCT_NODISCARD;

/* Its parts, for who evaluates something else in the same split of the samples: */
oct_leaves oct_evaluation_leaves(const oct_recipe *recipe, const oct_dataset *data,
                                 const oct_collective *group);
/* How many samples go at a time, in whole leaves: at most a rank's share of a training step. */
int64_t oct_evaluation_batch(const oct_recipe *recipe, int ranks);
/* Gives images [first, first + n) of the data set as normalised floats. */
void oct_evaluation_images(const oct_recipe *recipe, const oct_dataset *data, int64_t first,
                           int64_t n, float *images);
/* Not collective: computes the logits of this rank's samples, in its own forwards of at most `batch`. */
oct_status oct_evaluate_local(oct_module *model, const oct_recipe *recipe, const oct_dataset *data,
                              const oct_leaves *leaves, int64_t batch, float *logits) OCT_NODISCARD;
/* Collective: scores the logits of all ranks, of which these are this rank's. */
oct_status oct_score(const oct_collective *group, const oct_recipe *recipe, const oct_dataset *data,
                     const oct_leaves *leaves, const float *logits,
                     oct_scores *scores) OCT_NODISCARD;
/* Collective: brings the rows of all ranks to rank 0, in order of samples. */
oct_status oct_gather_rows(const oct_collective *group, const oct_leaves *leaves, int64_t row,
                           const float *mine, float *all) OCT_NODISCARD;
