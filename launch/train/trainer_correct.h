/* The weights of a run are changed at the ends of its calibration, where the recipe asks for it: equalized before, rounded
 * by second moments and their bias corrected after. */
#pragma once

#include "launch/train/trainer.h"

/* Whether the recipe asks for what comes after calibration. */
bool oct_corrects(const oct_recipe *recipe);
/* Equalizes the prepared model, if the recipe asks for it. */
oct_status oct_trainer_equalize(oct_trainer *trainer) OCT_NODISCARD;
/* Collective: watches the batches of calibration once more, in codes, and corrects the weights. */
oct_status oct_trainer_correct(oct_trainer *trainer) OCT_NODISCARD;
