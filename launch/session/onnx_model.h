/* `model.onnx` of a recipe names a file whose network is trained, in place of a model of Octet's own. External
 * data become part of the file when it is read (io/onnx/graph.h). Only the digest of the whole is part of the recipe's
 * identity. The run folder keeps a copy of it, by which its checkpoints are understood when the file itself has
 * gone. */
#pragma once

#include "core/nn/module.h"
#include "io/dataset/dataset.h"
#include "io/recipe/recipe.h"
#include "launch/session/session.h"

/* Reads the file and sets its digest, where the recipe names one. OCT_USAGE when it is not the one whose digest
 * the recipe holds. */
oct_status oct_onnx_model_open(oct_recipe *recipe) OCT_NODISCARD;
/* Collective: rank 0 reads, all ranks have it. */
oct_status oct_onnx_model_share(oct_session *session, oct_recipe *recipe) OCT_NODISCARD;
/* Points the recipe of a checkpoint to the copy in its run folder, or beside it, or else to what that folder's
 * recipe names; `there` is that recipe, or NULL. */
oct_status oct_onnx_model_find(oct_recipe *recipe, const char *file,
                               const oct_recipe *there) OCT_NODISCARD;
/* Writes the copy. */
oct_status oct_onnx_model_keep(const oct_recipe *recipe, const char *folder) OCT_NODISCARD;
/* Builds the network for a data set, with the file's weights. */
oct_status oct_onnx_model_build(oct_module **model, const oct_recipe *recipe,
                                const oct_dataset *data) OCT_NODISCARD;
