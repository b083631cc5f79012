/* Probes are some samples of a data set, spread evenly over it, as the model of a recipe takes them. */
#pragma once

#include "io/batch/loader.h"
#include "io/recipe/recipe.h"

typedef struct oct_probes {
    const oct_dataset *data;
    oct_loader loader;
    int64_t count;
} oct_probes;

/* Borrows both; at most `most` samples. */
oct_status oct_probes_create(oct_probes *probes, const oct_recipe *recipe, const oct_dataset *data,
                             int64_t most) OCT_NODISCARD;
void oct_probes_free(oct_probes *probes);
/* The number in the data of probe i. */
int64_t oct_probe_number(const oct_probes *probes, int64_t i);
oct_status oct_probe_read(oct_probes *probes, int64_t i, float *input) OCT_NODISCARD;
