/* What the files of qat_conv share: qat_conv.c (the module and its step), qat_conv_constants.c,
 * qat_conv_accumulators.c, qat_conv_forward.c, qat_conv_backward.c, qat_conv_fold.c; and of it, what
 * qat_batch_norm needs too. */
#pragma once

#include "quant/module/quant_modules.h"

/* Arrays over the O output channels. */
typedef struct oct_channels {
    float *scale; /* s_w of the raw weights */
    float *mean;  /* batch norm's, of the real convolution output */
    float *inv_std;
    int64_t *offset;   /* zero_point * sum of the channel's codes */
    int32_t *offset32; /* the same, of 8-bit inputs */
    int64_t *bias;     /* what the kernel adds: fold's bias - offset */
    int32_t *bias32;   /* the same, of 8-bit inputs */
    float *multiplier;
    float *effective; /* the weight scale with batch norm's factor in it */
    bool *dead;
    bool *silent; /* its codes are all 0 */
} oct_channels;

/* Arena memory for n channels; false when the context has failed. */
bool oct_channels_save(oct_context *cx, oct_channels *ch, int64_t n);
oct_status oct_channels_alloc(oct_channels *ch, int64_t n) OCT_NODISCARD;
void oct_channels_free(oct_channels *ch);

typedef struct oct_qat_saved {
    oct_conv_shape shape;
    oct_channels ch;
    int8_t *codes; /* (O, K) */
    uint8_t *mask; /* leaf by leaf, each from a byte of its own; NULL when nothing is clipped */
    int64_t mask_stride;  /* bytes; the last leaf is followed by one more */
    char *acc;            /* accumulators that are kept for the backward, or NULL */
    bool live;            /* batch norm by the batch's statistics */
    bool settle;          /* the scale follows from this step's range */
    oct_leaf_layout turn; /* of the weights' gradient */
} oct_qat_saved;

/* The float layer behind the module, whichever it is. */
typedef struct oct_layer {
    oct_param *weight, *bias;
    oct_batch_norm_module *bn;
    oct_fake_quant *fq;
    const oct_weight_fake_quant *wq; /* or NULL */
    bool shift; /* the target requantizes by shifts: every scale is a power of two */
} oct_layer;

/* What a forward or backward works with: the layer made ready, and the accumulators of this rank's
 * samples, which are gone through leaf by leaf, a block of positions at a time; several times where batch
 * norm or the scale follow from them. Scratch that ends with the op. */
typedef struct oct_accumulators {
    oct_conv_shape shape;
    const oct_tensor *x;
    void *ready; /* the layer's weights, for the integer kernels */
    char *held;  /* accumulators of all samples: int32, of 16-bit inputs int64. NULL: every pass
                  * computes them */
    bool kept;   /* what is held is the node's */
    bool made;   /* and there from the forward */
    char *scratch;
    int64_t scratch_bytes; /* of one thread */
} oct_accumulators;

oct_layer oct_layer_of(const oct_qat_conv *m);
bool oct_qat_conv_transposes(const oct_qat_conv *m);
/* in_h, in_w: of the module's input. A transposed layer's shape is that of the convolution over the
 * spread input. */
oct_conv_shape oct_qat_conv_shape(const oct_qat_conv *m, int64_t in_h, int64_t in_w);

/* The activation as a float op, and " + relu" for descriptions. */
oct_tensor *oct_float_activation(oct_context *cx, oct_activation activation, oct_tensor *y);
const char *oct_activation_words(oct_activation activation);

/* This step's weight codes, with ch's scale, offset and silent: symmetric, per channel by this step's absmax,
 * unless a fake-quant of the weights says otherwise. */
void oct_quantize_weights(const oct_layer *l, const oct_conv_shape *s, oct_qparams in,
                          int8_t *codes, oct_channels *ch);
/* mean and inv_std of the running statistics. */
void oct_running_statistics(const oct_batch_norm_module *bn, oct_channels *ch, int64_t n);
/* gain and shift of a channel, with the mean and inv_std in ch. */
void oct_channel_affine(const oct_layer *l, const oct_channels *ch, int64_t o, double *gain,
                        double *shift);
/* Kernel constants from mean, inv_std and the scales. False when a parameter is not finite. */
bool oct_fold_channels(const oct_layer *l, oct_qparams in, float output_scale, oct_channels *ch,
                       int64_t n);
/* A dead channel's accumulator counts as 0: without weights it is. */
void oct_silence_codes(const oct_channels *ch, const oct_conv_shape *s, int8_t *codes);
/* Bounds of the codes and of the gradient, by the activation. out NULL: a float output; r: the second
 * addend, or NULL. */
oct_epilogue oct_epilogue_of(const oct_layer *l, oct_activation activation, oct_qparams in,
                             const oct_qparams *out, const oct_tensor *r, const oct_channels *ch);

/* For emit: bias, multiplier and weight_scale of a step whose weights (n, k) are there; multipliers
 * come out >= 0 (a negative channel has its codes and bias negated, which changes no bit). */
oct_status oct_step_take_channels(oct_step *step, const oct_channels *ch, int64_t n,
                                  int64_t k) OCT_NODISCARD;
/* lo and hi. Of a float output: 0 and 0 without an activation, 0 and INT32_MAX with relu, 0 and 6 with
 * relu6. */
void oct_step_take_bounds(oct_step *step, const oct_epilogue *f);

/* A histogram of values that a pass shows, times scale: args of the visitor. */
typedef struct oct_value_counter {
    float scale;
    int64_t count[OCT_HISTOGRAM_BINS];
} oct_value_counter;
void oct_count_values(void *args, int64_t first, int64_t n, const float *v);
/* Notes leaves' ranges (2 each), which are in units of `scale`. */
void oct_observe_leaves(oct_context *cx, oct_fake_quant *fq, bool training, float scale,
                        const float *ranges);
void oct_start_ranges(float *ranges, int64_t leaves);
/* What a leaf adds to the gradient of a learned scale, from values that a pass shows: args of the visitor. */
typedef struct oct_scale_grad {
    oct_slope_sum sum;
    const float *grad; /* of the leaf, not cut yet */
} oct_scale_grad;
void oct_scale_grad_add(void *args, int64_t first, int64_t n, const float *v);
/* Gradient through activation and quantizer of one leaf; fq NULL: the activation alone. */
void oct_clip_leaf(const oct_fake_quant *fq, const uint8_t *mask, int64_t n, float *grad);
/* Whether that may be done in parts, from element `first` of the leaf on; and that. */
bool oct_clips_in_parts(const oct_fake_quant *fq);
void oct_clip_part(const uint8_t *mask, int64_t first, int64_t n, float *grad);
/* The batch's mean and variance of real values that are scale[o] * a + bias, from totals over a and
 * a*a (2, n) of `count` values: mean and inv_std in ch, and the update of the running values. False
 * when the context has failed. */
bool oct_take_statistics(oct_context *cx, oct_batch_norm_module *bn, const double *total,
                         double count, const double *scale, const float *bias, oct_channels *ch);

/* Backward of a batch norm of n channels, in two sweeps over rows of g, the masked gradient of its
 * output, and x^, what it has normalised:
 *     dC = gamma/sigma * (g - mean(g) - x^ mean(g x^))   live
 *     dC = gamma/sigma * g                               frozen
 * begin; `sum` of every row, each leaf's in order; settle, which adds the gradients of gamma and beta;
 * `live` or `frozen` of every row, where out may be grad, or the memory of x^; end, always. Rows are best
 * worked in parts that stay in the first-level cache. */
typedef struct oct_norm_grad {
    int64_t n;
    float *gain, *mean, *dot; /* (n) */
    double *sums;             /* (local leaves, 2, n): g, g x^ */
} oct_norm_grad;

/* x^ (rows, n): as it is made, or (acc - offset[c]) * a[c] + b[c]. */
typedef struct oct_normalized {
    const float *made; /* or NULL: */
    const int32_t *acc, *offset;
    const float *a, *b;
} oct_normalized;

/* Some rows of a leaf. mask: the leaf's, of which element `first` is grad's first, and of which one byte
 * behind the last bit can be read; NULL: grad is clipped. */
typedef struct oct_norm_rows {
    int64_t rows;
    oct_normalized hat;
    const uint8_t *mask;
    int64_t first;
    float *grad;
} oct_norm_rows;

bool oct_norm_grad_begin(oct_context *cx, int64_t n, oct_norm_grad *v);
void oct_norm_grad_sum(const oct_norm_grad *v, int64_t leaf, const oct_norm_rows *r);
/* A collective call when live. pixels: rows of a sample. False when the context has failed. */
bool oct_norm_grad_reduce(oct_context *cx, const oct_batch_norm_module *bn, const oct_channels *ch,
                          bool live, int64_t pixels, oct_norm_grad *v);
/* out: times factor[o], unless that is NULL. keep: grad is clipped in its place, too. */
void oct_norm_grad_live(const oct_norm_grad *v, const oct_norm_rows *r, const float *factor,
                        bool keep, float *out);
/* Of what is clipped. */
void oct_norm_grad_frozen(const oct_norm_grad *v, int64_t rows, const float *grad, float *out);
void oct_norm_grad_end(oct_context *cx, oct_norm_grad *v);

/* Rows of n channels in such a part, and their floats. */
static inline int64_t oct_part_rows(int64_t n)
{
    return n < 1024 ? 2048 / n : 1;
}

static inline int64_t oct_part_floats(int64_t n)
{
    return oct_part_rows(n) * n;
}

/* Memory for accumulators that the backward will ask for again, where keeping them is the better way
 * (which changes no bit); NULL otherwise, or when the context has failed. */
char *oct_accumulators_save(oct_context *cx, const oct_qat_conv *m, const oct_conv_shape *s,
                            const oct_tensor *x);
/* Begins with the saved codes of the weights. more: there will be more than one pass; then accumulators
 * are held where computing them again would cost more than their way through memory (which changes no
 * bit). resume: a backward's passes, with the accumulators that were kept if there are any. False when
 * the context has failed. Always to be ended. */
bool oct_accumulators_begin(oct_context *cx, const oct_qat_conv *m, const oct_qat_saved *sv,
                            const oct_tensor *x, bool more, oct_accumulators *w);
bool oct_accumulators_resume(oct_context *cx, const oct_qat_conv *m, const oct_qat_saved *sv,
                             const oct_tensor *x, oct_accumulators *w);
void oct_accumulators_end(oct_context *cx, oct_accumulators *w);
/* The first pass over local leaf i, and those that follow; positions are counted within the leaf. visit
 * may change what it is handed unless a further pass follows, be it the backward's. first: visit may be
 * NULL. */
void oct_accumulators_compute(const oct_context *cx, const oct_accumulators *w, int64_t i,
                              oct_acc_visit *visit, void *args);
void oct_accumulators_revisit(const oct_context *cx, const oct_accumulators *w, int64_t i,
                              oct_acc_visit *visit, void *args);
/* Where leaf i's codes begin in x, and its accumulators where they are held. */
oct_qcodes oct_accumulators_input(const oct_context *cx, const oct_accumulators *w, int64_t i);
char *oct_accumulators_of_leaf(const oct_context *cx, const oct_accumulators *w, int64_t i);
/* The scratch of this thread. */
void *oct_accumulators_scratch(const oct_accumulators *w);

/* Takes n values, of which `first` is the first, counted within the leaf. */
typedef void oct_value_visit(void *args, int64_t first, int64_t n, const float *v);
typedef void oct_accumulators_pass(const oct_context *cx, const oct_accumulators *w, int64_t i,
                                   oct_acc_visit *visit, void *args);
/* Calls visit for all outputs of local leaf i in ascending order, as they are before f rounds them and behind its
 * activation, in units of the scale that f is for. f's addend is that of leaf 0. `pass`: one of the
 * two above. dead: channels whose accumulators count as 0 and are not; NULL: there are none. scratch: of
 * oct_accumulators_values_bytes. */
void oct_accumulators_values(const oct_context *cx, const oct_accumulators *w,
                             oct_accumulators_pass *pass, const oct_epilogue *f, const bool *dead,
                             int64_t i, oct_value_visit *visit, void *args, void *scratch);
int64_t oct_accumulators_values_bytes(int64_t channels);

/* r: the second addend, or NULL. */
oct_tensor *oct_qat_conv_integer(oct_context *cx, oct_qat_conv *m, oct_tensor *x, oct_tensor *r);
void oct_qat_conv_backward(oct_context *cx, oct_node *node);
/* From the layout in which backward sums the weights' gradient to their own. */
oct_leaf_layout oct_qat_conv_turn(const oct_conv_shape *s);
