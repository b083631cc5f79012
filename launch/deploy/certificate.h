/* A certificate proves that a converted model computes what was trained: QAT evaluation and integer program over
 * the whole test set, every logit compared bit for bit, and every layer on the golden images. */
#pragma once

#include "io/model/model_file.h"
#include "launch/evaluate/evaluate.h"
#include "quant/target/target.h"

enum { OCT_GOLDEN_IMAGES = 8 };

typedef struct oct_conversion {
    oct_module *root; /* prepared, its scales frozen */
    const oct_recipe *recipe;
    const oct_dataset *test_data;
    uint8_t checkpoint_digest[32];
    const oct_target *target; /* to convert for; NULL: what the model was prepared for */
    /* Takes the outputs of the int8 model for this rank's samples, to be freed by the caller; NULL: nobody wants
     * them. Empty on failure. */
    oct_outputs *outputs;
    /* Set by oct_certify, and not stored: */
    int64_t layers_compared;       /* on every golden image */
    oct_scores scores, qat_scores; /* of the int8 model and of QAT evaluation over the test data */
} oct_conversion;

/* Collective. Fills *model on every rank (the digest of the logits on rank 0), to be freed by the
 * caller. The model follows from the checkpoint and the test data alone: the float accuracy, which
 * only the log of the run knows, stays out. OCT_MISMATCH on all ranks, and an empty model, when anything
 * differs; OCT_DEFECT when a layer escaped the comparison. */
oct_status oct_certify(oct_model *model, oct_conversion *conversion, const oct_collective *group);

/* The first half of oct_certify, for models that follow from no recipe; not collective. Sets the program, the names of
 * layers that stay float and of ports, and the bounds of all sums. The caller frees *model, also after a failure. */
oct_status oct_model_convert(oct_model *model, const oct_conversion *conversion);
/* The second half, collective: compares every layer on the golden inputs, which are the first test images where the model
 * has none, and every output; sets counts and digests. */
oct_status oct_model_compare(oct_model *model, oct_conversion *conversion,
                             const oct_collective *group);

/* Reads the golden inputs: the first `count` test images, normalised. */
oct_status oct_golden_read(const oct_recipe *recipe, const oct_dataset *test_data, int64_t count,
                           float *samples);
/* Computes the SHA-256 of each value of the program for each golden sample (all inputs one after another):
 * count x num_values x 32. */
oct_status oct_golden_digests(const oct_program *program, const float *samples, int64_t count,
                              uint8_t *digests);
/* Checks that target, data format, mean and std are those of the recipe in the model: OCT_DATA. */
oct_status oct_model_check_recipe(const oct_model *model, const char *path);
/* Checks what commands that feed one image after another rely on: oct_model_check_recipe, and a program of one
 * input, else OCT_DATA. Loads the plug-ins that compute its float layers. */
oct_status oct_model_check_runnable(const oct_model *model, const char *path);
/* Numbers that are compared of each sample's output. */
int64_t oct_model_outputs(const oct_model *model);
/* Counts the layers that stay float. */
int64_t oct_count_fallbacks(const oct_program *program);

/* Not collective: computes the outputs of this rank's samples by the integer program, `batch` at a time. */
oct_status oct_program_evaluate(const oct_program *program, const oct_recipe *recipe,
                                const oct_dataset *data, int64_t batch, oct_outputs *outputs);
