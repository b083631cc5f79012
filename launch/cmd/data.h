/* What `octet data` finds: what a data set holds, by reading every sample of both splits once (data_survey.c); and the
 * sheet of --preview, what training makes of some samples (data_sheet.c). */
#pragma once

#include "core/base/text.h"
#include "io/dataset/dataset.h"
#include "io/recipe/recipe.h"

enum { OCT_SURVEY_CHANNELS = OCT_REALS_MAX, OCT_SURVEY_NAMED = 10 };

/* A sample as it is in the files. */
typedef struct oct_surveyed {
    uint8_t digest[32]; /* SHA-256 of type, size and values */
    int64_t index;      /* in its split */
    int32_t h, w;
    uint8_t split;
    bool damaged, warned; /* warned: read, although its decoder has warned */
} oct_surveyed;

typedef struct oct_survey_size {
    int64_t h, w, count, first; /* first: index of a sample that has it */
} oct_survey_size;

typedef struct oct_survey_split {
    const oct_dataset *data; /* borrowed; NULL: there is none */
    oct_surveyed *samples;   /* of each index */
    int64_t *of_class;       /* samples, of a map pixels; classes of them, or NULL */
    int64_t ignored;         /* pixels of maps without a class */
    oct_survey_size *sizes;  /* most frequent first */
    int64_t num_sizes;
    int64_t damaged, not_finite;      /* not_finite: float samples with infinity or NaN */
    int64_t warned, first_warned;     /* samples, and the index of the first */
    char *sentence[OCT_SURVEY_NAMED]; /* about the first damaged ones */
    int channels;                     /* of the figures below; 1: all channels together */
    double mean[OCT_SURVEY_CHANNELS], std[OCT_SURVEY_CHANNELS]; /* in the unit of data.mean */
} oct_survey_split;

/* A picture that is there more than once. */
typedef struct oct_survey_pair {
    const oct_surveyed *one, *other;
    bool labels_differ;
} oct_survey_pair;

typedef struct oct_survey {
    oct_survey_split split[2];
    int64_t repeated[2];    /* samples of a split that are equal to an earlier one of it */
    int64_t shared;         /* test samples that are in the training split too */
    int64_t contradictions; /* equal samples of different classes, in either way */
    oct_survey_pair pair[3 * OCT_SURVEY_NAMED];
    int num_pairs;
} oct_survey;

/* Reads both splits, on all threads, with a meter. */
oct_status oct_survey_make(oct_survey *survey, const oct_dataset data[2]);
void oct_survey_free(oct_survey *survey);

/* Writes an HTML page with `samples` training samples, each as evaluation would see it and as the first epochs of the
 * recipe will, with their labels. */
oct_status oct_data_sheet(const oct_recipe *recipe, const oct_dataset *data, int64_t samples,
                          oct_text *page);
