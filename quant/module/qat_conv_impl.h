/* What the files of qat_conv share: qat_conv.c (the module and its step), qat_conv_constants.c,
 * qat_conv_forward.c, qat_conv_backward.c, qat_conv_fold.c; and of it, what qat_batch_norm needs too. */
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
    int64_t mask_stride; /* bytes */
    bool live;           /* batch norm by the batch's statistics */
    bool settle;         /* the scale follows from this step's range */
    bool held;           /* accumulators of all samples are held before codes are made */
} oct_qat_saved;

/* The float layer behind the module, whichever it is. */
typedef struct oct_layer {
    oct_param *weight, *bias;
    oct_batch_norm_module *bn;
    oct_fake_quant *fq;
    bool shift; /* the target requantizes by shifts: every scale is a power of two */
} oct_layer;

/* What a forward or backward works with; scratch that ends with the op. */
typedef struct oct_work {
    void *ready;   /* the layer's weights, for the integer kernels */
    void *acc;     /* of all samples, when they are held: int32, of 16-bit inputs int64 */
    float *ranges; /* 2 a leaf */
    char *scratch;
    int64_t scratch_bytes; /* of one thread */
} oct_work;

oct_layer oct_layer_of(const oct_qat_conv *m);
bool oct_qat_conv_transposes(const oct_qat_conv *m);
/* in_h, in_w: of the module's input. A transposed layer's shape is that of the convolution over the
 * spread input. */
oct_conv_shape oct_qat_conv_shape(const oct_qat_conv *m, int64_t in_h, int64_t in_w);

/* The activation as a float op, and " + relu" for descriptions. */
oct_tensor *oct_float_activation(oct_context *cx, oct_activation activation, oct_tensor *y);
const char *oct_activation_words(oct_activation activation);

/* This step's weight codes, with ch's scale, offset and silent: per channel, symmetric, by this step's
 * absmax. */
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
 * summand, or NULL. */
oct_finish oct_finish_of(const oct_layer *l, oct_activation activation, oct_qparams in,
                         const oct_qparams *out, const oct_tensor *r, const oct_channels *ch);

/* For emit: bias, multiplier and weight_scale of a step whose weights (n, k) are there; multipliers
 * come out >= 0 (a negative channel has its codes and bias negated, which changes no bit). */
oct_status oct_step_take_channels(oct_step *step, const oct_channels *ch, int64_t n,
                                  int64_t k) OCT_NODISCARD;
/* lo and hi. Of a float output: 0 and 0 without an activation, 0 and INT32_MAX with relu, 0 and 6 with
 * relu6. */
void oct_step_take_bounds(oct_step *step, const oct_finish *f);

/* Notes leaves' ranges (2 each), which are in units of `scale`. */
void oct_observe_leaves(oct_context *cx, oct_fake_quant *fq, bool training, float scale,
                        const float *ranges);
void oct_start_ranges(float *ranges, int64_t leaves);
/* Through activation and quantizer, leaf by leaf: masks are mask_stride bytes apart, n elements a
 * sample. mask NULL: nothing was clipped. */
void oct_clip_backward(oct_context *cx, const oct_fake_quant *fq, const uint8_t *mask,
                       int64_t mask_stride, int64_t n, float *grad);
/* The batch's mean and variance of real values that are scale[o] * a + bias, from totals over a and
 * a*a (2, n) of `count` values: mean and inv_std in ch, and the update of the running values. False
 * when the context has failed. */
bool oct_take_statistics(oct_context *cx, oct_batch_norm_module *bn, const double *total,
                         double count, const double *scale, const float *bias, oct_channels *ch);

/* Makes x^, what batch norm has normalised, of `rows` rows of a leaf from element `at` on. */
typedef struct oct_normaliser {
    void (*leaf)(const void *args, int64_t at, int64_t rows, float *hat);
    const void *args;
    float *hat; /* of all local samples, filled leaf by leaf */
} oct_normaliser;
/* Backward of a batch norm of n channels over `pixels` rows a sample, in place of its output's
 * gradient; also the gradients of gamma and beta. */
void oct_normalised_backward(oct_context *cx, const oct_batch_norm_module *bn,
                             const oct_channels *ch, bool live, int64_t n, int64_t pixels,
                             const oct_normaliser *x, float *grad);

/* Scratch for one forward or backward over the local samples; false when the context has failed.
 * Always to be ended. */
bool oct_work_begin(oct_context *cx, const oct_conv_shape *s, oct_qparams in, bool want_acc,
                    oct_work *w);
void oct_work_end(oct_context *cx, oct_work *w);
/* Accumulators of all local samples, from the ready weights in w. */
void oct_accumulate(oct_context *cx, const oct_conv_shape *s, const oct_tensor *x,
                    const oct_work *w, void *acc);

/* r: the second summand, or NULL. */
oct_tensor *oct_qat_conv_integer(oct_context *cx, oct_qat_conv *m, oct_tensor *x, oct_tensor *r);
void oct_qat_conv_backward(oct_context *cx, oct_node *node);
