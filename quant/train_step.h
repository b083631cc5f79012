/* One training step after another, for programs of one's own: forward, softmax cross-entropy, backward,
 * the sum over all ranks, optimizer, observers. The octet program's trainer (launch/run/trainer.h) has
 * phases, checkpoints and checks around the same calls.
 */
#pragma once

#include "core/op/ops.h"
#include "core/optim/optim.h"
#include "quant/module/fake_quant.h"

/* Samples and what to make of them. Shapes are those of the global batch, whose samples all inputs have
 * in front; the arrays hold this rank's samples of it, as oct_leaves_split(samples, leaf, rank, size)
 * shares them out: with one rank, all of them. */
typedef struct oct_batch {
    int num_inputs;
    oct_shape shape[OCT_MAX_INPUTS];
    float *input[OCT_MAX_INPUTS];
    /* The forward returns logits (N, K), and a sample's goal is a label in [0, K), or the probability of
     * each class. Neither, alike on all ranks: the forward itself returns the loss (oct_cross_entropy_loss), one number, of
     * inputs among which its targets are. */
    const int32_t *labels;
    const float *probabilities;
} oct_batch;

typedef struct oct_train_step {
    oct_module *root; /* borrowed */
    const oct_collective *group;
    oct_optim_config config;
    int64_t batch, leaf;
    oct_context *context;
    oct_params params;
    oct_optim optim;
    oct_quantizers quantizers; /* none before prepare */
    const void *graph;         /* of the prepare that this was bound behind, or NULL */
    int64_t *keys;
} oct_train_step;

/* batch: samples of the largest global batch that a step takes. One learner at a time can take steps: the last
 * that was created or rebound. leaf: samples in a leaf, the unit of every sum over
 * samples. */
oct_status oct_train_step_create(oct_train_step *learner, oct_module *root,
                                 const oct_optim_config *config, int64_t batch, int64_t leaf,
                                 const oct_collective *group) OCT_NODISCARD;
void oct_train_step_destroy(oct_train_step *learner);
/* To be called when the tree has changed (oct_prepare, oct_fold_batch_norm), before the next step or
 * forward: takes up its parameters and quantizers as they are now; the optimizer starts anew. */
oct_status oct_train_step_rebind(oct_train_step *learner, oct_module *root) OCT_NODISCARD;

/* Collective: one step at this learning rate. OCT_NUMERIC when the loss, a gradient or a range is not finite;
 * nothing is learned then, and the next step goes on as if this one had not been (only batch norms may have seen
 * the batch, where it is finite, and ranges of current scales). OCT_NUMERIC too when the update made a parameter not finite, which it names:
 * the model is lost then, its last good state is whoever saved one. loss->correct is -1 where the forward
 * returns the loss. */
oct_status oct_train_step_run(oct_train_step *learner, const oct_batch *batch, float lr,
                              oct_loss *loss) OCT_NODISCARD;
/* Collective: a forward of the batch's inputs that learns nothing, in the mode and state that root is in:
 * in training mode observers see it (calibration). y (may be NULL): the output of this rank's samples,
 * float or, of class numbers, int32_t. */
oct_status oct_train_step_forward(oct_train_step *learner, const oct_batch *batch,
                                  void *y) OCT_NODISCARD;
