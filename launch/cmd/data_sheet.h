/* The sheet of `octet data --preview`: what training makes of some samples. */
#pragma once

#include "core/base/text.h"
#include "io/dataset/dataset.h"
#include "io/recipe/recipe.h"

/* Writes an HTML page with `samples` training samples, each as evaluation would see it and as the first epochs of the
 * recipe will, with their labels. */
oct_status oct_data_sheet(const oct_recipe *recipe, const oct_dataset *data, int64_t samples,
                          oct_text *page) OCT_NODISCARD;
