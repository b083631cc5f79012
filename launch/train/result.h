/* The result of a run: its int8 model with its certificate, and the record of how accurate it is. */
#pragma once

#include "launch/train/training_impl.h"

/* Collective, after the last step, whose checkpoint is written: gives back the memory of the steps, converts,
 * certifies, and writes model and record. *result: on rank 0 the result record (new reference). */
oct_status oct_run_result(oct_training *run, json_t **result) OCT_NODISCARD;
