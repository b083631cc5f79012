/* The modules of a prepared model, and the stubs a user places.
 *
 * Each quantizes its output, never its input. On codes the forward is the deployed integer arithmetic
 * itself (quant/kernel); on float values, in the states OFF, CALIBRATE and SIMULATE, it is the float
 * model. The backward is straight-through: derivatives at the dequantized codes, cut where the clip
 * mask says so.
 *
 * All take their constants from their inputs' qparams at each call, so one module may get inputs of
 * different scales (a loop), and codes of 8 and 16 bits in any mixture.
 */
#pragma once

#include "core/nn/modules.h"
#include "core/base/text.h"
#include "quant/kernel/qconv.h"
#include "quant/module/fake_quant.h"
#include "quant/program/program.h"
#include "quant/target/target.h"

extern const oct_module_type oct_quant_stub_type, oct_dequant_stub_type, oct_qat_conv_type,
    oct_qat_batch_norm_type, oct_qat_add_type;

typedef enum oct_activation {
    OCT_ACT_NONE,
    OCT_ACT_RELU,
    OCT_ACT_RELU6,
    OCT_ACT_CLIP,
} oct_activation;

/* The beginning of every module that makes codes: those that hand on the qparams of their input (keeps_qparams of
 * quantized_impl.h) have no fake-quant of their own. */
typedef struct oct_quantized {
    oct_module base;
    /* Its child "fake_quant"; or another module's, borrowed, when two tensors share one quantizer;
     * or NULL: the output leaves the integer domain as float. */
    oct_module *fake_quant;
    const oct_target *target;  /* NULL before prepare */
    oct_activation activation; /* fused into it */
    oct_clip_args clip;        /* where OCT_ACT_CLIP cuts values; either may be infinite */
} oct_quantized;

/* Whether m may have a fake-quant, its own or a borrowed one, so that it begins with oct_quantized. */
static inline bool oct_is_quantized(const oct_module *m)
{
    return m->type->quantized;
}
/* Gives m a fake-quant of its own, as a child (*fq becomes NULL, also on failure). */
oct_status oct_quantized_adopt(oct_module *m, oct_fake_quant **fq);
/* Gives m the fake-quant of another module, which both then use. */
void oct_quantized_borrow(oct_module *m, oct_fake_quant *fq);

/* Whether accumulators are held between the passes over them; no bit depends on it. */
typedef enum oct_hold {
    OCT_HOLD_BY_SHAPE, /* where that is the cheaper way */
    OCT_HOLD_NEVER,    /* for tests */
    OCT_HOLD_ALWAYS,
} oct_hold;

/* Moments are sums over all that the windows of a layer see of its input, as whole numbers: of each term, and of the
 * products of each two of them (the matrix X X^T of second-order rounding). They are exact, so they are the same in
 * whatever order samples, threads and ranks add to them. */
typedef struct oct_moments {
    int64_t depth, groups; /* terms K of a window, of each group */
    int64_t windows;
    float scale;      /* of the input's codes */
    bool mixed;       /* inputs had several scales, so the sums mean nothing */
    int64_t *sum;     /* (groups, K): of code - zero_point */
    int64_t *product; /* (groups, K, K), the lower triangles; NULL: not wanted */
} oct_moments;

/* Begins sums of 0 for the inputs of a layer; products: of each two of them, too. */
oct_status oct_moments_create(oct_moments *moments, const oct_conv_shape *shape, bool products);
void oct_moments_free(oct_moments *moments);
/* Adds the windows of some samples of codes (N, H, W, C), or (N, C) of a linear layer. */
oct_status oct_moments_add(oct_moments *moments, const oct_conv_shape *shape, const oct_tensor *x);
/* Collective: sums the moments over the ranks. */
oct_status oct_moments_allreduce(oct_moments *moments, const oct_collective *group);

/* conv2d, conv_transpose2d or linear (+ batch norm) (+ add) (+ relu, relu6 or clip). With `add` it has two
 * inputs, x and the other addend, and the sum is taken before anything is rounded. With live batch
 * norm the codes of a training step come from the batch's statistics, summed from the integer
 * accumulators in double. Also, of the type oct_qat_batch_norm_type, a batch norm that follows no convolution (+ relu,
 * relu6 or clip); functions of weights are for the others. */
typedef struct oct_qat_conv {
    oct_quantized q;
    /* Child "conv" or "linear": the float module, which owns the weights; NULL: a batch norm on its own. */
    oct_module *layer;
    oct_module *batch_norm; /* child "bn", or NULL */
    /* Child "weight_fake_quant", or NULL: scales of channels from their largest weights. */
    oct_module *weight_fake_quant;
    bool borrows; /* layer is another call site's child, whose others are used too: */
    const struct oct_qat_conv *lender; /* that one; or NULL */
    bool add;
    /* Fused by name with an add: the identity through which the layer's own operand comes, which must
     * be the first input. NULL: the order is known. */
    const oct_identity_module *operand;
    oct_hold hold;
    oct_moments *moments; /* of the codes that come in, while a correction collects them; or NULL */
    int64_t gate;         /* number of its gate, from 1 on; 0: it has none */
} oct_qat_conv;

/* The gate of int8 gradients. A layer's backward makes codes of the gradient of its sums twice, once for each of its
 * products. Where 8 bits are too few for one of them, since some values are far above the others of their scale, its codes
 * get two digits of 8 bits for a while.
 *
 * In every OCT_GATE_EVERY-th update a backward sums, in units of a 256th of a code, the squares of the errors (E) and of
 * what became codes (S). An error above 10 %, that is E * 100 > S, twice in succession gives the operand two digits for
 * OCT_GATE_UPDATES updates; then 8 bits are tried again. The sums are whole numbers over all leaves and ranks, so all
 * ranks decide the same, and neither ranks nor threads change it. The training step keeps the gates (train_step.h). */
enum { OCT_GATE_EVERY = 64, OCT_GATE_UPDATES = 4096 };
/* The operands of the gradients of the input and of the weights; the sums; what is kept from update to update: how often
 * the error was too large, in succession, and how many updates with two digits are left. */
enum { OCT_GATE_INPUT, OCT_GATE_WEIGHT, OCT_GATE_OPERANDS };
enum { OCT_GATE_ERROR, OCT_GATE_SIGNAL, OCT_GATE_SUMS };
enum { OCT_GATE_FAILURES, OCT_GATE_LEFT, OCT_GATE_STATES };

typedef struct oct_grad_gate {
    const oct_module *layer;         /* an oct_qat_conv */
    bool named;                      /* both operands have two digits for good */
    bool changed[OCT_GATE_OPERANDS]; /* from one digit to two or back, by the last update */
    int64_t sums[OCT_GATE_OPERANDS][OCT_GATE_SUMS]; /* of this rank; after the update: of all */
} oct_grad_gate;

typedef struct oct_grad_gates {
    oct_grad_gate *items; /* in order of the tree */
    size_t count, capacity;
    int64_t *state; /* (count, OCT_GATE_OPERANDS, OCT_GATE_STATES) */
    bool measures;  /* the update at hand is one that is judged */
} oct_grad_gates;

/* How many digits the codes of an operand have, 1 or 2; gate: its number. gates NULL: 1. */
static inline int oct_grad_gate_digits(const oct_grad_gates *gates, int64_t gate, int operand)
{
    const int64_t at = (gate - 1) * OCT_GATE_OPERANDS + operand;
    return gates && (gates->items[gate - 1].named ||
                     gates->state[at * OCT_GATE_STATES + OCT_GATE_LEFT] > 0)
               ? 2
               : 1;
}

/* Weight and bias of a conv2d, conv_transpose2d or linear; the bias may be NULL. */
static inline oct_param *oct_layer_weight(const oct_module *layer)
{
    return layer->type == &oct_linear_type ? ((const oct_linear_module *)layer)->weight
                                           : ((const oct_conv2d_module *)layer)->weight;
}
static inline oct_param *oct_layer_bias(const oct_module *layer)
{
    return layer->type == &oct_linear_type ? ((const oct_linear_module *)layer)->bias
                                           : ((const oct_conv2d_module *)layer)->bias;
}

/* Makes the QAT form of float modules, which it takes over (pointers set to NULL), also on failure. */
oct_status oct_qat_conv_create(oct_module **m, oct_module **float_layer, oct_module **batch_norm,
                               bool add, oct_activation activation);
/* Makes the module of a further call of `other`'s layer, whose weights it uses. */
oct_status oct_qat_conv_create_shared(oct_module **m, const oct_qat_conv *other, bool add,
                                      oct_activation activation);
/* Gives the shape for a plane of the module's input. A transposed layer's shape is that of the convolution
 * over the dilated input. */
oct_conv_shape oct_qat_conv_shape(const oct_qat_conv *m, int64_t in_h, int64_t in_w);
/* Whether a parameter of its layer or batch norm is tied (core/nn/param.h), so that none of them may change alone. */
bool oct_qat_conv_is_tied(const oct_qat_conv *m);
/* Gives its layer a fake-quant of weights that follows the target's rules; none is needed for the built-in kind
 * with a scale per output channel. kind NULL: the built-in one. */
oct_status oct_qat_conv_quantize_weights(oct_qat_conv *m, const oct_fake_quant_kind *kind,
                                         const oct_target *target);
/* Writes the scale of each output channel's weights as they are now: scale (O). */
void oct_qat_conv_weight_scales(const oct_qat_conv *m, float *scale);
/* Moves the batch norm's factor and shift (running statistics) into weights and bias and destroys it. The layer gets a bias
 * if it has none. Weight codes (negated with gamma), integer biases, multipliers and so all codes of a forward stay, bit
 * for bit. Codes may change in channels whose weight scale is at its floor of 2^-23, before or after, unless the bias
 * alone determines them for inputs like `input`; and where the target wants one scale for the layer, which becomes the
 * largest of the channels'. A learned scale takes the factor, too, and there is one for each channel then. OCT_PREPARE for
 * a fake-quant of weights that derives scales by its own rule. After a failure weights and batch norm are as before. */
oct_status oct_qat_conv_fold(oct_qat_conv *m, oct_qparams input);
/* Gives the layer the form that folding gives it, for values that come from elsewhere: a bias and no batch norm. */
oct_status oct_qat_conv_drop_norm(oct_qat_conv *m);
/* Finds whether oct_qat_conv_fold would change no code, for inputs like these. */
oct_status oct_qat_conv_folds_exactly(const oct_qat_conv *m, oct_qparams input, bool *exactly);
/* How weights become codes. */
#define OCT_ROUNDING_LIST(X)                                                                       \
    X(OCT_ROUNDING_NEAREST, "nearest") /* each to the nearest */                                   \
    X(OCT_ROUNDING_GPTQ, "gptq") /* so that what a layer computes stays near: by second moments */
typedef enum oct_rounding { OCT_ROUNDING_LIST(OCT_WORD_ID) } oct_rounding;
extern const oct_registry oct_rounding_table;
/* Moves the weights to the centres of codes by GPTQ: one after the other, each error compensated by those that follow,
 * as the products of the layer's inputs say. Scales stay: the largest weight of a channel keeps its value. *rounded:
 * false where the fake-quant of the weights has scales that would not stay; nothing is changed then. */
oct_status oct_qat_conv_round(oct_qat_conv *m, const oct_moments *input, bool *rounded);
/* Subtracts from the bias, or adds to the running mean, what the rounding of the weights adds to the mean of each
 * channel. `exact`: the weights before they were rounded. *corrected: false where the layer has neither. */
oct_status oct_qat_conv_correct_bias(oct_qat_conv *m, const oct_moments *input, const float *exact,
                                     bool *corrected);
/* Folds float modules, before prepare: layer becomes what layer and batch norm computed with
 * running statistics, to float rounding. The batch norm itself is untouched. */
oct_status oct_fold_float(oct_module *layer, const oct_batch_norm_module *batch_norm);

/* Makes the QAT form of a batch norm on its own, which it takes over (set to NULL), also on failure. */
oct_status oct_qat_batch_norm_create(oct_module **m, oct_module **batch_norm,
                                     oct_activation activation);

/* The others are made by their rules (rule.h); prepare makes this one itself where a relu or clip follows. */
typedef struct oct_qat_binary {
    oct_quantized q; /* activation: none, relu or clip */
    bool subtract;   /* the second input */
} oct_qat_binary;
oct_status oct_qat_add_create(oct_module **m, oct_activation activation);

/* Largest number of products in one accumulator (kernel_h * kernel_w * input channels of a group)
 * for which no sum can leave int32: K * 255 * 127 < 2^30, which leaves room for the bias. 16-bit
 * inputs are multiplied byte by byte into two such accumulators, so the same bound holds. */
enum { OCT_MAX_PRODUCTS = (1 << 30) / (255 * OCT_WEIGHT_CODES) };
