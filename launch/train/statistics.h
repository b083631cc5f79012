/* The statistics of a run are made at its end, of the int8 model: layers.json, worst.json and the confusion record. */
#pragma once

#include "launch/evaluate/evaluate.h"
#include "launch/train/training_impl.h"
#include "quant/program/program.h"

/* Larger confusion matrices are not written. */
enum { OCT_CONFUSION_CLASSES = 100 };

/* Collective: makes and writes all of them. outputs: of the int8 model, for this rank's test samples. The same bytes
 * for any number of ranks; a file that cannot be written costs a warning. */
oct_status oct_statistics_write(oct_training *run, const oct_program *program,
                                const oct_outputs *outputs) OCT_NODISCARD;
