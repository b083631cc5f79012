/* What the files of qat_conv share: qat_conv.c (constants and convert), qat_conv_forward.c,
 * qat_conv_backward.c. */
#pragma once

#include "quant/module/quant_modules.h"

/* Arrays over the O output channels, in the arena. */
typedef struct oct_channels {
    float *scale; /* s_w of the raw weights */
    float *mean;  /* batch norm's, of the real convolution output */
    float *inv_std;
    int32_t *offset; /* zero_point * sum of the channel's codes */
    int32_t *bias;   /* what the kernel adds: fold's bias - offset */
    float *multiplier;
    float *effective; /* the weight scale with batch norm's factor in it */
    bool *dead;
} oct_channels;

typedef struct oct_qat_saved {
    oct_conv_shape shape;
    oct_channels ch;
    int8_t *codes;       /* (O, K) */
    uint8_t *mask;       /* leaf by leaf, each from a byte of its own; NULL for a float output */
    int64_t mask_stride; /* bytes */
    bool live;           /* batch norm by the batch's statistics */
    bool settle;         /* the scale follows from this step's range */
    bool held;           /* accumulators of all samples are held before codes are made */
} oct_qat_saved;

/* The float layer behind the module, conv2d and linear alike. */
typedef struct oct_layer {
    oct_param *weight, *bias;
    oct_batch_norm_module *bn;
    oct_fake_quant *fq;
} oct_layer;

/* What a forward or backward works with; scratch that ends with the op. */
typedef struct oct_work {
    int8_t *packed;
    int32_t *acc;  /* of all samples, when they are held */
    float *ranges; /* 2 a leaf */
    char *scratch;
    int64_t scratch_bytes; /* of one thread */
} oct_work;

oct_layer oct_layer_of(const oct_qat_conv *m);
oct_conv_shape oct_qat_conv_shape(const oct_qat_conv *m, int64_t in_h, int64_t in_w);

/* This step's weight codes: per channel, symmetric, by this step's absmax. */
void oct_quantize_weights(const float *weight, const oct_conv_shape *s, int32_t zero_point,
                          int8_t *codes, float *scale, int32_t *offset);
/* mean and inv_std of the running statistics. */
void oct_running_statistics(const oct_batch_norm_module *bn, oct_channels *ch, int64_t n);
/* Kernel constants from mean, inv_std and the scales. False when a parameter is not finite. */
bool oct_fold_channels(const oct_layer *l, float input_scale, float output_scale, oct_channels *ch,
                       int64_t n);
/* A dead channel's accumulator counts as 0: without weights it is. */
void oct_silence_codes(const oct_channels *ch, const oct_conv_shape *s, int8_t *codes);
/* Bounds of the codes and of the gradient, by the activation. */
oct_requant oct_requant_of(const oct_qat_conv *m, oct_qparams out, const oct_channels *ch);

/* Scratch for one forward or backward over the local samples; false when the context has failed.
 * Always to be ended. */
bool oct_work_begin(oct_context *cx, const oct_conv_shape *s, bool want_acc, oct_work *w);
void oct_work_end(oct_context *cx, oct_work *w);
/* Accumulators of all local samples, from packed weights in w. */
void oct_accumulate(oct_context *cx, const oct_conv_shape *s, const oct_tensor *x,
                    const oct_work *w, int32_t *acc);

oct_tensor *oct_qat_conv_integer(oct_context *cx, oct_qat_conv *m, oct_tensor *x);
void oct_qat_conv_backward(oct_context *cx, oct_node *node);
