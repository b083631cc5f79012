/* Turns a float model into a QAT model, in place (README.md here has pictures):
 *
 *     replace   functional ops become generated modules
 *     fuse      conv/linear + batch norm + add + relu become one module (fusion_list.def)
 *     convert   float modules become their quantized forms (module/rule_list.def)
 *     place     exactly one fake-quant per tensor; stubs around float fallbacks
 *     check     everything that could fail later fails here; the check report
 *
 * One pipeline for four methods:
 *     eager       no replacing, no fusing (oct_fuse_modules before), stubs as the user placed them;
 *                 afterwards the user's forward runs without anything in between
 *     symbolic    the recorded graph runs, the user's forward no longer
 *     jit         the user's forward runs, its call sites handled by the graph
 *     jit_strip   as jit, but only what is between QuantStubs and DeQuantStubs is quantized
 */
#pragma once

#include "quant/graph/graph.h"
#include "quant/module/qconfig.h"

#define OCT_BATCH_NORM_LIST(X)                                                                     \
    X(OCT_BATCH_NORM_LIVE, "live")     /* keeps learning its statistics */                         \
    X(OCT_BATCH_NORM_FOLDED, "folded") /* goes into the weights at prepare */
typedef enum oct_batch_norm_mode { OCT_BATCH_NORM_LIST(OCT_WORD_ID) } oct_batch_norm_mode;
extern const oct_registry oct_batch_norm_mode_table;

typedef struct oct_prepare_options {
    oct_prepare_method method; /* JIT_STRIP when zeroed */
    const oct_target *target;
    const oct_qconfig_setter *setters; /* from high to low priority */
    size_t num_setters;
    bool fold_batch_norm; /* into the weights, now; otherwise live */
    bool shared_range;    /* a module that is called twice has one range, not one per call site */
    bool drop_hooks;      /* hooks that fusion cannot keep are dropped; otherwise an error */
} oct_prepare_options;

/* Prepares *root, which must be in training mode. On OCT_PREPARE the record holds every problem
 * with the module's path and the remedy; the model must then be thrown away. report (may be NULL)
 * receives the check report (report.h). */
oct_status oct_prepare(oct_module **root, const oct_example *example,
                       const oct_prepare_options *options, oct_text *report);

/* Makes live batch norms use their running statistics even in training, in all QAT modules below
 * root. */
void oct_freeze_batch_norm(oct_module *root, bool frozen);
/* Folds every fused batch norm into its layer (oct_qat_conv_fold) where that changes no code: a layer keeps
 * its batch norm if the scale of one of its channels would fall below the smallest one. Parameters change, so their
 * holders must collect them again. */
oct_status oct_fold_batch_norm(oct_module *root);

/* What the fake-quants of a model do. QAT observes and quantizes and needs training mode;
 * CALIBRATION observes the float model and needs training mode; it freezes batch norm, which is
 * live again afterwards; VALIDATION quantizes and never observes, and needs eval mode; FLOAT does
 * neither. */
typedef enum oct_fake_quant_state {
    OCT_STATE_CALIBRATION,
    OCT_STATE_QAT,
    OCT_STATE_VALIDATION,
    OCT_STATE_FLOAT,
} oct_fake_quant_state;
/* Puts the model into a state; OCT_USAGE saying what to do first. */
oct_status oct_set_fake_quant(oct_module *root, oct_fake_quant_state state);
