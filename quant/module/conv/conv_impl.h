/* What the files of the QAT convolution share. Each calls only those below it:
 *     qat_conv.c               the modules: what is called, checks, the step of the program
 *     qat_conv_fold.c          a batch norm moved into its layer for good
 *     qat_conv_round.c         weights moved to codes that keep what the layer computes
 *     qat_conv_forward.c       a call on codes
 *     qat_conv_backward.c      its gradients
 *     grad_scales.c            the scales of int8 gradients
 *     norm_grad.c              gradients of batch norm
 *     qat_conv_accumulators.c  passes over the accumulators
 *     qat_conv_constants.c     from weights, batch norm and scales to the constants of the kernels
 */
#pragma once

#include "core/base/leaves.h"
#include "core/kernel/conv.h"
#include "core/op/norm_groups.h"
#include "quant/module/quant_modules.h"

/* What a call computes: the float layer after the module, and what follows it. A batch norm on its own is
 * the depthwise 1x1 convolution whose weights are 1 and whose plan is affine (quant/kernel/qconv.h). */
typedef struct oct_layer {
    oct_param *weight;         /* NULL: a batch norm on its own */
    oct_param *bias;           /* or NULL */
    oct_batch_norm_module *bn; /* or NULL */
    oct_activation activation;
    oct_clip_args clip;
    oct_fake_quant *fq;              /* of the output; NULL: it is float */
    const oct_weight_fake_quant *wq; /* or NULL */
    oct_hold hold;
    bool training;
    oct_requantizer requantizer; /* of the target */
    int64_t gate;                /* number of its gate, from 1 on; 0: none */
} oct_layer;

/* Arrays over the O output channels; those from `mean` on are of each norm group, one after another. */
typedef struct oct_channels {
    float *scale;      /* s_w of the raw weights */
    int64_t *offset;   /* zero_point * sum of the channel's codes */
    int32_t *offset32; /* the same, of 8-bit inputs */
    bool *silent;      /* its codes are all 0 */
    float *mean;       /* batch norm's, of the real convolution output */
    float *inv_std;
    int64_t *bias;   /* what the kernel adds: fold's bias - offset */
    int32_t *bias32; /* the same, of 8-bit inputs */
    float *multiplier;
    oct_fixed *fixed; /* the same as whole numbers, where the target's are */
    float *effective; /* the weight scale with batch norm's factor in it */
    bool *dead;       /* carried by its bias alone (qat_conv_constants.c) */
} oct_channels;

/* What a forward keeps for its backward. */
typedef struct oct_qat_saved {
    oct_layer layer;
    oct_qconv_plan plan;
    oct_channels ch;
    oct_norm_groups groups; /* one, unless batch norm is live */
    int8_t *codes;          /* of the weights (O, K) */
    uint8_t *mask; /* leaf by leaf, each from a byte of its own; NULL when nothing is clipped */
    int64_t mask_stride; /* bytes; the last leaf is followed by one more */
    char *acc;           /* accumulators of all samples, or NULL */
    bool live;           /* batch norm by the batch's statistics */
    uint32_t
        call; /* number of the forward's call: what its backward rounds at random follows from it */
} oct_qat_saved;

/* Allocates arrays of n channels, none dead: in a call's context, or where cx is NULL until oct_channels_free. */
oct_status oct_channels_alloc(oct_channels *ch, oct_context *cx, int64_t n, int64_t groups);
void oct_channels_free(oct_channels *ch);
/* Returns the arrays of norm group g: those that exist once for each group begin at its part. */
oct_channels oct_channels_of_group(const oct_channels *ch, int64_t n, int64_t g);

/* Returns the module that owns the layer and its batch norm. */
static inline const oct_qat_conv *oct_qat_conv_owner(const oct_qat_conv *m)
{
    return m->lender ? m->lender : m;
}

static inline bool oct_qat_is_linear(const oct_qat_conv *m)
{
    return m->layer && m->layer->type == &oct_linear_type;
}

static inline bool oct_qat_is_transposed(const oct_qat_conv *m)
{
    return m->layer && m->layer->type == &oct_conv_transpose2d_type;
}

/* Collects what a call of m computes with; parameters are those of the owner, where they are shared. */
oct_layer oct_qat_conv_layer(const oct_qat_conv *m);

/* Quantizes the weights of this step: fills codes and ch's scale, offset and silent. Symmetric, per channel
 * by this step's absmax, unless a fake-quant of the weights says otherwise. */
void oct_quantize_weights(const oct_layer *l, const oct_conv_shape *s, oct_qparams in,
                          int8_t *codes, oct_channels *ch);
/* A layer with the codes of its weights as they are now. */
typedef struct oct_coded_layer {
    oct_layer layer;
    oct_conv_shape shape;
    oct_channels ch;
    int8_t *codes;
} oct_coded_layer;
/* Quantizes the weights of m for inputs like these. Every begin needs an end, also one that failed. */
oct_status oct_coded_layer_begin(const oct_qat_conv *m, oct_qparams in, oct_coded_layer *c);
void oct_coded_layer_end(oct_coded_layer *c);
/* Takes mean and inv_std from the running statistics. */
void oct_running_statistics(const oct_layer *l, oct_channels *ch);
/* Computes gain and shift of channel o, with the mean and inv_std in ch. */
void oct_channel_affine(const oct_layer *l, const oct_channels *ch, int64_t o, double *gain,
                        double *shift);
/* Return the largest weight of a channel after its gain is moved into it, and the scale that it then has. */
float oct_folded_absmax(float weight_scale, double gain);
float oct_folded_scale(float weight_scale, double gain);
/* Computes the kernel's constants from mean, inv_std and the scales. OCT_NUMERIC when a parameter is not
 * finite. */
oct_status oct_fold_channels(const oct_layer *l, oct_qparams in, float output_scale,
                             oct_channels *ch, int64_t n);
/* Clears the weights of dead channels, whose accumulators count as 0: without weights they are. */
void oct_clear_dead_codes(const oct_channels *ch, const oct_conv_shape *s, int8_t *codes);
/* Describes how accumulators become outputs: constants of the channels, and bounds of the codes and of the gradient by
 * the activation. out NULL: a float output; addend: the second one, or NULL. */
oct_epilogue oct_epilogue_of(const oct_layer *l, oct_qparams in, const oct_qparams *out,
                             const oct_tensor *addend, const oct_channels *ch);

/* The accumulators of this rank's samples, which go by tile by tile, a block of positions at a time;
 * several times where batch norm or the scale follow from them. Scratch that ends with the op. */
typedef struct oct_accumulators {
    const oct_qconv_plan *plan;
    const oct_tensor *x;
    void *packed;  /* the layer's weights */
    char *buffer;  /* where those of all samples stay; NULL: every pass computes them */
    bool saved;    /* the buffer is the node's */
    bool computed; /* what the buffer is for is in it */
    bool
        shares_leaves; /* several threads take one leaf, so the buffer is filled before sums are taken from it */
    char *scratch; /* of each thread */
} oct_accumulators;

/* Begins passes over the accumulators of the saved weight codes; a backward finds those that its forward has kept.
 * several: there will be more than one pass; then there is a buffer where computing accumulators again would cost more
 * than their way through memory, or where threads share a leaf. keeps: a backward will want them, so they stay where
 * that is the better way. Neither changes a bit. False when the context has failed. Every begin needs an end, also one
 * that failed. */
bool oct_accumulators_begin(oct_context *cx, oct_qat_saved *saved, const oct_tensor *x,
                            bool several, bool keeps, oct_accumulators *a);
void oct_accumulators_end(oct_context *cx, oct_accumulators *a);
/* Computes all accumulators into the buffer, if there is one that is not filled yet; wanted: borrows one first where
 * there is none. */
void oct_accumulators_fill(oct_context *cx, oct_accumulators *a, bool wanted);
/* Cuts the local samples for the threads; masks: parts of a leaf's mask begin at a byte. */
oct_cut oct_accumulators_cut(const oct_context *cx, const oct_accumulators *a, bool masks);
/* Cuts the channels of each leaf for the threads, where the accumulators lie in the buffer; else a leaf is one piece. */
oct_cut oct_accumulators_cut_channels(const oct_context *cx, const oct_accumulators *a);
/* Gives local leaf i as a tile. */
oct_tile oct_whole_leaf(const oct_context *cx, int64_t i);
/* Calls visit with the accumulators of a tile, from the buffer or computed anew; positions are counted within the tile.
 * The visitor may change them unless a further pass follows, be it the backward's. */
void oct_accumulators_pass(const oct_context *cx, const oct_accumulators *a, const oct_tile *tile,
                           oct_acc_visit *visit, void *args);
/* Describes a tile, some samples of a leaf, for the kernels; y: its accumulators in the buffer, or NULL. */
oct_qconv_pass oct_accumulators_of(const oct_context *cx, const oct_accumulators *a,
                                   const oct_tile *tile);
/* The scratch of this thread. */
void *oct_accumulators_scratch(const oct_accumulators *a);

/* Clears the sums of dead channels, whose outputs are their bias alone, in rows of accumulators. */
void oct_clear_dead_sums(const oct_accumulators *a, const bool *dead, int64_t rows, char *acc);

/* A pass that shows outputs as they are before the epilogue rounds them and after its activation, in units
 * of the scale that it is for. */
typedef struct oct_value_pass {
    const oct_epilogue *epilogue; /* of the leaf's group; its addend is that of leaf 0 */
    const bool *dead; /* channels whose accumulators count as 0 and are not; NULL: there are none */
    char *scratch;    /* oct_value_pass_bytes for each thread */
} oct_value_pass;
/* Takes the n values from number `first` of the leaf on. */
typedef void oct_value_visit(void *args, int64_t first, int64_t n, const float *v);
/* Calls visit for all outputs of local leaf i in ascending order. */
void oct_accumulators_values(const oct_context *cx, const oct_accumulators *a,
                             const oct_value_pass *pass, int64_t i, oct_value_visit *visit,
                             void *args);
int64_t oct_value_pass_bytes(int64_t channels);
/* Rows of n channels that stay in the first-level cache, and their floats: loops work on parts of a leaf of
 * that size. */
static inline int64_t oct_part_rows(int64_t n)
{
    return n < 1024 ? 2048 / n : 1;
}

static inline int64_t oct_part_floats(int64_t n)
{
    return oct_part_rows(n) * n;
}

/* The backward of a batch norm of n channels, in two sweeps over the leaves, with g the masked gradient of the output
 * and x^ what was normalized:
 *     dC = gamma/sigma * (g - mean(g) - x^ mean(g x^))   live
 *     dC = gamma/sigma * g                               frozen
 * Rows of all arrays are those of the norm groups. */
typedef struct oct_norm_grad {
    int64_t n;
    float *gain, *mean, *dot; /* (groups, n) */
    float *scale, *shift;     /* (groups, n): x^ = (acc - offset) * scale + shift */
    double *sums;             /* (local leaves, 2, n): g, g x^ */
} oct_norm_grad;

/* What a backward makes operands of the gradient with; all but the plan is for int8. */
typedef struct oct_grad_scales {
    const oct_conv_plan *plan;
    oct_grad_gates *gates;         /* or NULL */
    int digits[OCT_GATE_OPERANDS]; /* of the codes; 0: there are none */
    size_t digit_bytes;            /* from the rows of one digit to those of the next */
    /* (local samples, 2, channels): bits of the largest |g| and |x^|, which have the order of the magnitudes, a NaN above
     * all; then, of a segment's first sample, the factors of the weights' operand, and those of the input's. NULL: the
     * backward is not int8. */
    int32_t *most;
    float *input;  /* scales: (local samples) */
    float *weight; /* (local leaves, segments of a leaf, channels) */
    uint32_t *key; /* (local samples, operands) */
} oct_grad_scales;

/* What the sweeps of a backward go over. */
typedef struct oct_grad_sweep {
    const oct_qat_saved *saved;
    float *grad;          /* of the output, of all local samples */
    oct_accumulators acc; /* with batch norm, and so is the next one */
    oct_norm_grad norm;
    oct_grad_scales scales;
    char
        *scratch; /* of each thread, scratch_bytes; its first oct_part_floats floats are a part's */
    size_t scratch_bytes;
} oct_grad_sweep;

/* A leaf in a sweep. */
typedef struct oct_grad_leaf {
    const oct_grad_sweep *sweep;
    int64_t number;
    float *grad;
    const uint8_t *mask; /* of what is clipped part by part, or NULL */
    float *part;
    int64_t plane;                      /* positions of a sample */
    int32_t *most;                      /* of the sweep, from the leaf's first sample on; or NULL */
    int64_t first_channel, end_channel; /* first sweep: those that are summed */
    oct_norm_grad norm;                 /* with batch norm: as the leaf's group has it */
} oct_grad_leaf;

/* x^ (rows, n): as values, or (acc - offset[c]) * scale[c] + shift[c]. */
typedef struct oct_normalized {
    const float *values; /* or NULL: */
    const int32_t *acc, *offset;
    const float *scale, *shift;
} oct_normalized;

/* Some rows of a leaf. mask: the leaf's, whose element `first` belongs to grad's first; one byte after its last
 * bit can be read; NULL: grad is clipped. */
typedef struct oct_norm_rows {
    int64_t rows;
    oct_normalized normalized;
    const uint8_t *mask;
    int64_t first;
    float *grad;
    int64_t first_channel, end_channel; /* those that are summed */
} oct_norm_rows;

/* Whether gradients are clipped part by part: fake-quants with a backward of their own clip a whole leaf at a time. */
static inline bool oct_clips_in_parts(const oct_fake_quant *fq)
{
    return !fq || !fq->qconfig.fake_quant->backward;
}

/* Runs the first sweep over the accumulators, which sums g and g x^, adds the gradients of gamma and beta, and takes
 * the means over each group where batch norm is live: as collective as oct_sum_over_groups. The caller ends sums and
 * gain, also where the context has failed. */
void oct_norm_grad_begin(oct_context *cx, oct_grad_sweep *sweep);
/* Gives a leaf (samples whose gradients are one sum) of this rank: its gradient, mask and constants. */
oct_grad_leaf oct_grad_leaf_of(const oct_context *cx, const oct_grad_sweep *sweep, int64_t number);
/* Gives gradient, mask and x^ = (acc - offset) * scale + shift of `rows` output positions of a block of accumulators
 * that begins at `position` of the leaf, from its row `row` on. Loops compute x^ from 32-bit accumulators as they go;
 * from 64-bit ones, which their vectors do not take, it is written to leaf->part. */
oct_norm_rows oct_grad_leaf_rows(const oct_grad_leaf *leaf, int64_t position, int64_t row,
                                 int64_t rows, const void *acc);
/* Writes dC of rows of a live batch norm to out, which may be grad or the memory of x^, times factor[o] unless that is
 * NULL. clips: grad is clipped in its place, too. */
void oct_norm_grad_live(const oct_norm_grad *v, const oct_norm_rows *r, const float *factor,
                        bool clips, float *out);
/* Writes dC of a frozen one from a gradient that is clipped already. */
void oct_norm_grad_frozen(int64_t rows, int64_t n, const float *gain, const float *grad,
                          float *out);

/* Where no batch norm is live, the largest magnitudes of n channels are raised to those of rows, which are clipped. */
void oct_grad_raise(int64_t rows, int64_t n, const float *grad, int32_t *most);
/* Makes scales, factors and keys of the largest magnitudes of a leaf, which all are there. */
void oct_grad_scale_leaf(const oct_context *cx, const oct_grad_sweep *sweep, int64_t number);
/* Turns rows of dC, the gradient of the sums, into rows of the products' operands, which begin at `to` for the leaf's position
 * 0, and adds them to the gradient of the bias (or NULL). Codes are arrays of digits, those of the input's operand first. */
void oct_grad_write_rows(const oct_context *cx, const oct_grad_leaf *leaf, int64_t position,
                         int64_t rows, const float *grad, float *bias, char *to);

/* A call on codes: the outputs of layer l over x, of shape `out`. */
typedef struct oct_qat_call {
    const char *op; /* on the tape */
    oct_layer layer;
    oct_conv_shape shape;
    oct_shape out;
    oct_tensor *x;
    oct_tensor *addend; /* or NULL */
} oct_qat_call;
/* Computes a call on codes, in integers as deployed, and records its backward. NULL: the context has failed. */
oct_tensor *oct_qat_conv_forward(oct_context *cx, const oct_qat_call *call);
/* The backward of oct_qat_conv_forward: gradients of inputs, weights, bias, batch norm and learned scale. */
void oct_qat_conv_backward(oct_context *cx, oct_node *node);
