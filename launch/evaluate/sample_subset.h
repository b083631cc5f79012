/* Probes are some samples of a data set, spread evenly over it, as the model of a recipe takes them. */
#pragma once

#include "io/batch/loader.h"
#include "io/recipe/recipe.h"

typedef struct oct_sample_subset {
    const oct_dataset *data;
    oct_loader loader;
    int64_t count;
} oct_sample_subset;

/* Borrows both; at most `most` samples. */
oct_status oct_sample_subset_create(oct_sample_subset *subset, const oct_recipe *recipe,
                                    const oct_dataset *data, int64_t most) OCT_NODISCARD;
void oct_sample_subset_free(oct_sample_subset *subset);
/* The number in the data of sample i of the subset. */
int64_t oct_sample_subset_number(const oct_sample_subset *subset, int64_t i);
oct_status oct_sample_subset_read(oct_sample_subset *subset, int64_t i, float *input) OCT_NODISCARD;
