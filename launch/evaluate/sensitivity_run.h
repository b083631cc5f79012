/* A sensitivity table is measured on a recipe's data. */
#pragma once

#include "io/dataset/dataset.h"
#include "io/recipe/recipe.h"
#include "launch/session/session.h"
#include "quant/prepare/sensitivity.h"

typedef struct oct_sensitivity_run {
    oct_module *model; /* prepared and calibrated */
    const oct_recipe *recipe;
    const oct_dataset *data;
    int64_t batches; /* how many of the first of the data, without augmentation */
} oct_sensitivity_run;

/* Collective, as oct_sensitivity_measure, with a meter. */
oct_status oct_sensitivity_run_it(const oct_sensitivity_run *run, oct_session *session,
                                  oct_sensitivity *table) OCT_NODISCARD;
