/* A side is one of the two networks that octet compare lays side by side. */
#pragma once

#include "io/dataset/dataset.h"
#include "io/model/model_file.h"
#include "launch/session/file_kind.h"
#include "launch/session/job.h"
#include "quant/layers/layer_source.h"

typedef struct oct_compare_side {
    const char *path; /* as the user wrote it */
    oct_file_kind kind;
    oct_checkpoint checkpoint; /* or: */
    oct_model model;
    oct_recipe recipe;
    oct_module *root; /* of a checkpoint */
    bool rounds;      /* it computes with codes */
    oct_layer_source source;
} oct_compare_side;

/* Reads the file and the recipe in it, whose data are where data_path says (NULL: where the run had them). */
oct_status oct_compare_side_open(oct_compare_side *side, const char *path,
                                 const char *data_path) OCT_NODISCARD;
/* Builds the network for data like these. A float model is prepared, so that its layers have the names of the
 * quantized ones, with its quantizers off; so are those of a prepared one that is `unquantized`. */
oct_status oct_compare_side_build(oct_compare_side *side, const oct_dataset *data,
                                  bool unquantized) OCT_NODISCARD;
void oct_compare_side_close(oct_compare_side *side);

/* The file that is compared: of a run folder its newest checkpoint. */
const char *oct_compare_side_file(const oct_compare_side *side);
/* "int8 model", or the phase of a checkpoint. */
const char *oct_compare_side_phase(const oct_compare_side *side);
/* "float", or the target whose codes it computes with. */
const char *oct_compare_side_arithmetic(const oct_compare_side *side);
