/* A recipe becomes data and a model here: built, prepared, and in the form that a phase has. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "io/dataset/dataset.h"
#include "launch/session/plan.h"
#include "launch/session/session.h"
#include "quant/prepare/prepare.h"

/* Opens one split of the data set that a recipe names. Collective where there is a group, else NULL. */
oct_status oct_load_data(const oct_recipe *recipe, oct_split split, const oct_collective *group,
                         oct_dataset *data);
/* Builds the float model of a recipe for a data set, with initial parameters, or with those of its ONNX file. */
oct_status oct_build_model(oct_module **model, const oct_recipe *recipe, const oct_dataset *data);
/* Says what an import has changed (core/nn/network.h). Warns when a model without a float phase, and without weights from
 * elsewhere, has batch norms that have seen no data: calibration would watch other values than training has. */
void oct_warn_of_model(const oct_recipe *recipe, oct_module *model);
/* Makes a float model ready for QAT, with fake quantizers as the recipe asks; report as for oct_prepare. */
oct_status oct_prepare_model(oct_module **model, const oct_recipe *recipe, const oct_dataset *data,
                             oct_text *report);
/* Makes a prepared model do what the phase asks, but for folding, which changes it (oct_fold_batch_norm). */
void oct_set_phase(oct_module *model, const oct_quantizers *quantizers, oct_phase phase);
/* Whether a model may have folded batch norms in this phase (qat.fold_batch_norm). */
bool oct_folds_by(const oct_recipe *recipe, oct_phase phase);
/* Brings a model as oct_build_model makes it into the form that it has in a checkpoint: prepared, folded, its quantizers
 * set. *phase: of the checkpoint. */
oct_status oct_bring_to_phase(oct_module **model, const oct_checkpoint *checkpoint,
                              const oct_recipe *recipe, const oct_dataset *data, oct_phase *phase);
/* Builds the model in the phase of a checkpoint (prepared if it was) and loads its state. */
oct_status oct_build_from_checkpoint(oct_module **model, const oct_checkpoint *checkpoint,
                                     const oct_recipe *recipe, const oct_dataset *data,
                                     bool *prepared);

/* `model.onnx` of a recipe names a file whose network is trained, in place of a model of Octet's own. External
 * data become part of the file when it is read (io/onnx/graph.h). Only the digest of the whole is part of the recipe's
 * identity. The run folder keeps a copy of it, by which its checkpoints are understood when the file itself has
 * gone. */

#define OCT_ONNX_COPY "model.onnx"

/* Reads the file and sets its digest, where the recipe names one. OCT_USAGE when it is not the one whose digest
 * the recipe holds. */
oct_status oct_onnx_model_open(oct_recipe *recipe);
/* Collective: rank 0 reads the ONNX file of the recipe, if any; all ranks have its bytes and set its digest. */
oct_status oct_onnx_model_share(oct_session *session, oct_recipe *recipe);
