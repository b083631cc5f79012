/* The fake-quant of one activation tensor: a module without a forward that owns the tensor's
 * observer state and scale. Placed once per tensor by prepare, as the child "fake_quant" of the
 * module that makes the tensor.
 *
 * Delayed scales: the scale used in a step comes from the statistics up to the step before. A forward
 * notes its batch's min and max; at the end of the step the trainer exchanges them as keys and
 * updates the state (oct_quantizers_*).
 * Current scales: the batch is observed first and quantized with the scale that follows, as PyTorch
 * does; each layer computes its range in a pass of its own and the ranks meet at each fake-quant.
 */
#pragma once

#include "core/nn/module.h"
#include "quant/observer/observer.h"
#include "quant/qparams.h"

/* What the quantizers of a model do. Observing happens in training mode only, whatever the state. */
#define OCT_QUANT_STATE_LIST(X)                                                                    \
    X(OFF, "off")             /* neither: float */                                                 \
    X(CALIBRATE, "calibrate") /* observe the float model */                                        \
    X(QAT, "qat")             /* observe and quantize */                                           \
    X(FROZEN, "frozen")       /* quantize; scales stay */

typedef enum oct_quant_state {
#define X(name, text) OCT_QUANT_##name,
    OCT_QUANT_STATE_LIST(X)
#undef X
} oct_quant_state;

typedef struct oct_fake_quant {
    oct_module base;
    const oct_observer *observer;
    float averaging;
    bool current;   /* scales of this very step */
    bool is_signed; /* zero_point 128; otherwise values are >= 0 and zero_point is 0 */
    oct_quant_state state;
    float *min, *max; /* buffers of one element: the observer's range */
    int64_t *updates;
    float *scale;
    float
        batch_range[2]; /* this step's min and max on this rank; +inf, -inf when nothing was seen */
} oct_fake_quant;

extern const oct_module_type oct_fake_quant_type;

oct_status oct_fake_quant_create(oct_fake_quant **fq, const oct_observer *observer, float averaging,
                                 bool is_signed) OCT_NODISCARD;
oct_qparams oct_fake_quant_qparams(const oct_fake_quant *fq);
/* Merges a range seen by a forward in training into the step's, when the state observes. */
void oct_fake_quant_observe(oct_fake_quant *fq, bool training, float min, float max);
/* The same from values in memory (float modules while calibrating). */
void oct_fake_quant_observe_values(oct_fake_quant *fq, bool training, const float *x, int64_t n);
static inline bool oct_fake_quant_quantizes(const oct_fake_quant *fq)
{
    return fq->state == OCT_QUANT_QAT || fq->state == OCT_QUANT_FROZEN;
}

/* Whether a forward in this mode has to settle the scale before it quantizes. */
static inline bool oct_fake_quant_settles(const oct_fake_quant *fq, bool training)
{
    return fq->current && training && fq->state == OCT_QUANT_QAT;
}
/* Collective: merges the range that the forward has noted over all ranks and updates observer and
 * scale at once. OCT_NUMERIC as oct_quantizers_update. */
oct_status oct_fake_quant_settle(oct_fake_quant *fq, const oct_collective *group) OCT_NODISCARD;

/* All fake-quants below a module, in order of the tree: alike on every rank. */
typedef struct oct_quantizers {
    oct_fake_quant **items;
    size_t count;
} oct_quantizers;

oct_status oct_quantizers_collect(oct_quantizers *quantizers, oct_module *root) OCT_NODISCARD;
void oct_quantizers_free(oct_quantizers *quantizers);
void oct_quantizers_set_state(const oct_quantizers *quantizers, oct_quant_state state);
/* The step's ranges as 2 * count keys whose element-wise maximum over ranks is the global range. */
void oct_quantizers_keys(const oct_quantizers *quantizers, int64_t *keys);
/* Updates observers and scales from the global keys and starts the next step's range. A quantizer
 * that saw nothing stays as it is; a range that is not finite is OCT_NUMERIC naming the module. */
oct_status oct_quantizers_update(const oct_quantizers *quantizers,
                                 const int64_t *keys) OCT_NODISCARD;
