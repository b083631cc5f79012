/* The training step: forward, loss, backward, the sum of gradients over all ranks, the control reduction,
 * clipping, optimizer, observers. Your own programs take one after another; the octet program's trainer
 * (launch/train/trainer.h) puts phases and checkpoints around the same calls.
 *
 * Ranks synchronize in a step where something is summed over the batch (the loss with its metric, gradients,
 * statistics of batch norms), and once more for all that is small: the control reduction takes the maximum
 * over the ranks of a mark for a gradient that is not finite, of the caller's words and of the observers'
 * keys. Everything that a rank does afterwards follows from numbers that are the same on all ranks.
 *
 * A live batch norm synchronizes twice, in its forward and its backward, unless `norm_group` is set and all groups
 * are inside ranks: then a step synchronizes three times, whatever the model. Its running values move after
 * one sum for all batch norms, which goes with the gradients (core/op/norm_groups.h). Observers that count
 * (histograms) synchronize once more, and so does each quantizer of current scales.
 *
 * An update may be made of several batches, one after another in the memory of one (gradient accumulation):
 * their total gradients are added along the tree of core/base/leaves.h as those of leaves are, and the control
 * reduction, the optimizer and the observers follow once, after the last. So where a batch has a power of two
 * of leaves, and no batch norm uses its statistics, k batches learn what one of all their samples would learn,
 * bit for bit.
 */
#pragma once

#include "core/base/collective.h"
#include "core/op/loss.h"
#include "core/optim/optim.h"
#include "quant/module/fake_quant.h"
#include "quant/module/quant_modules.h"

/* Samples and what to make of them. Shapes are those of the global batch, whose samples all inputs have
 * in front; the arrays hold this rank's samples of it, as oct_leaves_split(samples, leaf, rank, size)
 * shares them out: with one rank, all of them. */
typedef struct oct_batch {
    int num_inputs;
    oct_shape shape[OCT_MODEL_INPUTS];
    const float *input[OCT_MODEL_INPUTS];
    /* The forward returns outputs (N, K), and a sample's goal is a label in [0, K), or K values, such as
     * the probability of each class: what the loss takes. Neither, the same on all ranks: the forward itself
     * returns the loss (oct_cross_entropy_loss), one number, of inputs among which its targets are. */
    const int32_t *labels;
    const float *targets;
    const float
        *teacher; /* another model's outputs for the samples, which distillation compares with */
    /* A goal for each of several places of a sample, such as its pixels: the forward returns (N, h, w, K), and
     * there are rows = h * w goals for each sample. 0 means 1. */
    int64_t rows;
    /* Rows whose label is negative, or `ignored`, count nothing. */
    bool ignores;
    int32_t ignored;
} oct_batch;

/* What a step reports: the same on all ranks. */
typedef struct oct_step_result {
    double loss; /* mean over the global batch */
    double
        metric; /* of the global batch before the update; NAN without a metric, or without goals */
    int64_t samples;
    double
        grad_norm; /* of all gradients together, before it was clipped; NAN where nothing clips */
    bool skipped;  /* it was undone: loss, metric and norm are NAN */
} oct_step_result;

/* What the batches of an update have made together so far. */
typedef struct oct_step_sums {
    int64_t batches, samples; /* as announced, with the learning rate */
    float lr;
    int64_t done, seen;     /* of them */
    double loss, metric;    /* means over what was seen */
    double weight, divisor; /* of the gradients */
    int waiting;            /* sums of gradients that wait for their right neighbour */
    bool skipped;           /* some batch had a number that is not finite */
} oct_step_sums;

/* The audit of a step: what one leaf of it adds to all sums is digested, and any rank can compute that leaf once more
 * (oct_train_step_replay_leaf), which gives the same digest where processor and memory do what they should. */
typedef struct oct_step_audit {
    bool on;             /* set by the caller before the step begins, and these: */
    int64_t batch, leaf; /* index of the batch in the update, and of the leaf in the batch */
    uint64_t digest;     /* after the step, of the rank that the leaf belongs to */
    /* The step's own. */
    oct_leaf_watch watch;
    oct_replay replay;  /* of what the ranks sent each other in that batch */
    oct_step_sums sums; /* as they were before it */
} oct_step_audit;

/* What becomes of a step in which a number is infinite or NaN. */
#define OCT_NONFINITE_LIST(X)                                                                      \
    X(OCT_NONFINITE_STOP, "stop") /* it fails */                                                   \
    X(OCT_NONFINITE_SKIP, "skip") /* it is undone, and the next one may go on */
typedef enum oct_nonfinite { OCT_NONFINITE_LIST(OCT_WORD_ID) } oct_nonfinite;
extern const oct_registry oct_nonfinite_table;

/* The state of training is what a checkpoint holds of a model and its optimizer, as it is in memory: parameters,
 * buffers, the optimizer's state, averages. It is the same on all ranks, to the bit. */
typedef struct oct_state_span {
    void *data;
    size_t bytes, offset; /* offset: in the state */
} oct_state_span;

typedef struct oct_step_state {
    oct_state_span *spans;
    size_t count, capacity, bytes; /* bytes: of all */
} oct_step_state;

/* Undoing a step: the state is copied before it, and put back when the step is not to count. So a step that was undone
 * leaves the same bits as one that was not taken. */
typedef struct oct_step_undo {
    uint8_t *copy; /* of the whole state; NULL: not made yet */
    int64_t updates;
    bool average_begun;
} oct_step_undo;

enum { OCT_STEP_FLAGS = 5 };

typedef struct oct_train_step {
    oct_module *root; /* borrowed */
    const oct_collective *group;
    oct_optim_config config;
    int64_t batch, leaf;
    /* The caller may set these between steps. */
    oct_loss_spec loss;    /* softmax cross-entropy, and the metric top1 beside it */
    oct_numerics numerics; /* OCT_NUMERICS_F32; int8 gradients have gates from the next rebind on */
    const oct_texts *int16_layers; /* whose int8 gradients have two digits; borrowed; or NULL */
    bool float_bf16; /* false; before prepare alone: a prepared model is what will be deployed */
    oct_nonfinite
        nonfinite; /* OCT_NONFINITE_STOP; skipping takes a copy of all state at each step */
    int64_t
        norm_group; /* leaves whose samples live batch norms take together, a power of two; 0: the batch */
    /* What dropout draws from, the same on all ranks: each update has a number, which rises by one with it. */
    uint64_t seed, update;
    /* Flags of the caller: a step reduces each to the largest value that a rank has set. */
    int64_t flag[OCT_STEP_FLAGS];
    int64_t *rank_flag; /* further ones, one for each rank; borrowed; NULL on all ranks: none */
    oct_step_audit audit;
    /* And these are the step's own. */
    oct_context *context;
    oct_params params;
    oct_optim optim;
    oct_quantizers quantizers; /* none before prepare */
    oct_grad_gates gates;      /* of int8 gradients; otherwise none */
    const void *graph;         /* of the prepare that this was bound after, or NULL */
    int64_t *control;          /* the numbers of the control reduction */
    oct_average_options average;
    oct_step_sums sums;
    float *waiting; /* rows of params.numel */
    int waiting_rows;
    float *notes; /* of batch norms, while they are summed */
    size_t notes_capacity;
    oct_step_state state;
    oct_step_undo undo;
    char why[256]; /* the last step that was skipped was so: a sentence */
} oct_train_step;

/* batch: samples of the largest global batch that a step takes. One of a model's training steps at a time can
 * be run: the last that was created or rebound. leaf: samples in a leaf, the unit of every sum over
 * samples. */
oct_status oct_train_step_create(oct_train_step *step, oct_module *root,
                                 const oct_optim_config *config, int64_t batch, int64_t leaf,
                                 const oct_collective *group);
void oct_train_step_destroy(oct_train_step *step);
/* Takes up the tree's parameters and quantizers as they are now, with memory of its own; the optimizer
 * starts anew. Call it when the tree has changed (oct_prepare, oct_fold_batch_norm), before the next step
 * or forward. */
oct_status oct_train_step_rebind(oct_train_step *step, oct_module *root);
/* Averages the weights from the next update on, in optim.average (core/optim/optim.h); what the average began
 * with is forgotten, also whenever the step is rebound. */
oct_status oct_train_step_average(oct_train_step *step, const oct_average_options *options);
/* Gives back the memory of forward and backward, and takes new: where a model starts to need less. */
oct_status oct_train_step_renew_memory(oct_train_step *step);

/* Collective: one step at this learning rate. OCT_NUMERIC when the loss, a gradient or a range is not finite;
 * nothing is learned then, and the next step goes on as if this one had not been (only batch norms may have seen
 * the batch, where it is finite, and ranges of current scales). OCT_NUMERIC too when the update made a parameter
 * not finite, which it names: the model is lost then; go on from its last saved state.
 * With OCT_NONFINITE_SKIP all of that is no failure: model, optimizer and averages are what they were before the step,
 * to the bit, result->skipped says so and step->why how it came. Only `update`, the number, goes on.
 * The backward gives back the memory of the forward while it goes: tensors of the forward may not be read
 * after it. */
oct_status oct_train_step_run(oct_train_step *step, const oct_batch *batch, float lr,
                              oct_step_result *result);
/* Collective: one step of several batches: begin, with their number and that of all their samples, then accumulate
 * for each of them, then update. After a failure the next begin forgets what was learned. */
oct_status oct_train_step_begin(oct_train_step *step, int64_t batches, int64_t samples, float lr);
/* Adds the gradients of one of the announced batches to the sums of the update. */
oct_status oct_train_step_accumulate(oct_train_step *step, const oct_batch *batch);
/* Updates parameters, ranges and averages by these sums, after the last batch. */
oct_status oct_train_step_update(oct_train_step *step, oct_step_result *result);
/* Not collective: computes the leaf of the last step's audit again, from the state before that step, which this rank
 * then has again as it was. batch: that of the leaf, but its arrays begin with the leaf's samples. Gradients are lost.
 * OCT_NUMERIC where what was finite is not. */
oct_status oct_train_step_replay_leaf(oct_train_step *step, const oct_batch *batch,
                                      uint64_t *digest);
/* Not collective: digests slice number `slice` (0 to slices - 1) when the bytes of the training state (model, optimizer,
 * averages) are cut into `slices` nearly equal parts. OCT_RESOURCE when memory runs out. */
oct_status oct_train_step_digest(oct_train_step *step, int64_t slice, int64_t slices,
                                 uint64_t *digest);
/* Collective: a forward of the batch's inputs that learns nothing, in the mode and state that root is in:
 * in training mode observers see it (calibration). y (may be NULL): the output of this rank's samples,
 * float or, of class numbers, int32_t. */
oct_status oct_train_step_forward(oct_train_step *step, const oct_batch *batch, void *y);
/* Collective: such a forward with loss and metric of the batch, both NaN where it has no goals. y: for who has run it
 * already, a few samples at a time, the n outputs of each of this rank's samples; or NULL. */
oct_status oct_train_step_evaluate(oct_train_step *step, const oct_batch *batch, float *y,
                                   int64_t n, oct_step_result *result);
/* Collective: oct_train_step_evaluate of several batches: begin (lr 0), then evaluate_add for each of them, then evaluate_end. */
oct_status oct_train_step_evaluate_add(oct_train_step *step, const oct_batch *batch, float *y,
                                       int64_t n);
/* Moves the ranges by what all batches have shown, and reports their mean loss and metric. */
oct_status oct_train_step_evaluate_end(oct_train_step *step, oct_step_result *result);
