/* Tensors have up to four dimensions and are dense and row-major. Activations are NHWC, convolution
 * weights OHWI.
 *
 * A tensor is a view: `data` belongs to the arena of the step (activations) or to the module
 * (parameters, buffers). A tensor of codes (OCT_U8, or OCT_U16 for 16-bit activations) carries its
 * qparams: real value = scale * (code - zero_point). Its gradient, like every gradient, is float and
 * is taken with respect to the real value.
 */
#pragma once

#include "core/base/status.h"

#include <octet/nn.h>
#include <octet/qparams.h>

bool oct_dtype_is_known(oct_dtype dtype);
size_t oct_dtype_bytes(oct_dtype dtype);
const char *oct_dtype_name(oct_dtype dtype); /* "f32", "u8" */

oct_shape oct_shape_of(int ndim, const int64_t *dims);
#define OCT_SHAPE(...)                                                                             \
    oct_shape_of((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                        \
                 (int64_t[]){__VA_ARGS__})
int64_t oct_shape_numel(const oct_shape *shape); /* 1 for ndim 0; -1 on overflow or negative dim */
bool oct_shape_equal(const oct_shape *a, const oct_shape *b);
typedef struct oct_shape_text {
    char text[96];
} oct_shape_text;
oct_shape_text oct_text_shape(const oct_shape *shape); /* "(8, 28, 28, 32)" */

/* What ReLU and ReLU6 make of values. */
typedef enum oct_bound { OCT_BOUND_NONE, OCT_BOUND_RELU, OCT_BOUND_RELU6 } oct_bound;

/* Values that are computed when they are first read: by oct_f32, by an operation that checks its inputs
 * (oct_inputs_ok), or by one that computes what it makes of them at once and so needs no memory for them. */
typedef struct oct_deferred oct_deferred;
struct oct_deferred {
    oct_context *cx;
    void (*settle)(const oct_tensor *t); /* oct_tensor_settle (core/autograd/context.h) */
    /* to = what `bound` makes of the values, to which others are added first where that is possible (NULL: none) */
    void (*write)(const oct_deferred *d, oct_bound bound, const float *addend, float *to);
    bool adds;
};

struct oct_tensor {
    oct_dtype dtype;
    oct_shape shape;
    void *data;
    oct_qparams q;   /* of codes; undefined for other dtypes */
    bool needs_grad; /* a gradient is wanted, here or further up */
    float *grad;     /* from the context's pool while a backward runs; NULL otherwise */
    oct_node *node;  /* the tape node that made it, or NULL */
    const oct_deferred *deferred; /* NULL: data are there */
    /* Value ids: in the trace at hand, or of its block among lifetimes; in the prepared graph that
     * runs. -1: none. */
    int64_t trace_value, graph_value;
};

static inline float *oct_f32(const oct_tensor *t)
{
    const oct_deferred *deferred = t->deferred;
    if (deferred) deferred->settle(t);
    return (float *)t->data;
}
static inline uint8_t *oct_u8(const oct_tensor *t)
{
    return (uint8_t *)t->data;
}
static inline uint16_t *oct_u16(const oct_tensor *t)
{
    return (uint16_t *)t->data;
}
static inline bool oct_is_codes(const oct_tensor *t)
{
    return t->dtype == OCT_U8 || t->dtype == OCT_U16;
}
/* The type is U16 when the codes reach beyond a byte. */
static inline oct_dtype oct_codes_dtype(oct_qparams q)
{
    return q.qmax > 255 ? OCT_U16 : OCT_U8;
}
static inline int64_t oct_dim(const oct_tensor *t, int i)
{
    return t->shape.dim[i];
}
static inline int64_t oct_last_dim(const oct_tensor *t)
{
    return t->shape.dim[t->shape.ndim - 1];
}
int64_t oct_numel(const oct_tensor *t);
bool oct_all_finite(const float *x, int64_t n);
void oct_scale_values(int64_t n, float factor, float *x); /* x *= factor */
/* Samples are dimension 0; a single number is one. */
static inline int64_t oct_samples(const oct_tensor *t)
{
    return t->shape.ndim > 0 ? t->shape.dim[0] : 1;
}

/* The index of the largest of several values has one definition for training, evaluation and the integer runtime.
 * index[r] = index of the largest of the n values of row r: of f32, or of u8 or u16 codes, whose order is
 * that of their values. Of equal ones the first; a NaN is larger than all, so that a broken run is
 * seen. n: 1 to 2^31 - 1. */
void oct_argmax_rows(oct_dtype dtype, int64_t rows, int64_t n, const void *x, int32_t *index);

/* What a model says of each sample, as rows of `classes` values that can be compared and counted: logits
 * as they are, class numbers as rows with a 1 at theirs and 0 elsewhere, or as they are where `classes` is 1. OCT_PREPARE when y is neither of
 * `samples` samples, OCT_DATA when a number is no class. */
oct_status oct_class_rows(const oct_tensor *y, int64_t samples, int64_t classes, float *rows);
