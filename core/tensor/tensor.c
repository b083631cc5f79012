/* Data types and shapes are plain values. */
#include "core/tensor/tensor.h"

#include "core/base/cpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [OCT_F32] = {"f32", sizeof(float)},    [OCT_U8] = {"u8", sizeof(uint8_t)},
    [OCT_U16] = {"u16", sizeof(uint16_t)}, [OCT_S8] = {"s8", sizeof(int8_t)},
    [OCT_S16] = {"s16", sizeof(int16_t)},  [OCT_S32] = {"s32", sizeof(int32_t)},
    [OCT_F64] = {"f64", sizeof(double)},   [OCT_S64] = {"s64", sizeof(int64_t)},
};

bool oct_dtype_is_known(oct_dtype dtype)
{
    return (size_t)dtype < OCT_COUNT(dtypes);
}

size_t oct_dtype_bytes(oct_dtype dtype)
{
    OCT_ASSERT(oct_dtype_is_known(dtype));
    return dtypes[dtype].bytes;
}

const char *oct_dtype_name(oct_dtype dtype)
{
    OCT_ASSERT((size_t)dtype < OCT_COUNT(dtypes));
    return dtypes[dtype].name;
}

oct_shape oct_shape_of(int ndim, const int64_t *dims)
{
    OCT_ASSERT(ndim >= 0 && ndim <= OCT_MAX_DIMS);
    oct_shape shape = {.ndim = ndim};
    for (int i = 0; i < ndim; i++)
        shape.dim[i] = dims[i];
    return shape;
}

int64_t oct_shape_numel(const oct_shape *shape)
{
    if (shape->ndim < 0 || shape->ndim > OCT_MAX_DIMS) return -1;
    int64_t numel = 1;
    bool overflow = false;
    for (int i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] < 0) return -1;
        overflow |= __builtin_mul_overflow(numel, shape->dim[i], &numel);
    }
    return overflow ? -1 : numel;
}

bool oct_shape_equal(const oct_shape *a, const oct_shape *b)
{
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++) {
        if (a->dim[i] != b->dim[i]) return false;
    }
    return true;
}

oct_shape_text oct_text_shape(const oct_shape *shape)
{
    oct_shape_text t = {"("};
    size_t used = 1;
    for (int i = 0; i < shape->ndim && i < OCT_MAX_DIMS; i++)
        used += (size_t)snprintf(t.text + used, sizeof t.text - used, "%s%lld", i ? ", " : "",
                                 (long long)shape->dim[i]);
    snprintf(t.text + used, sizeof t.text - used, shape->ndim > OCT_MAX_DIMS ? ", ...)" : ")");
    return t;
}

int64_t oct_numel(const oct_tensor *t)
{
    return oct_shape_numel(&t->shape);
}

oct_dtype oct_tensor_dtype(const oct_tensor *x)
{
    return x ? x->dtype : OCT_F32;
}

int oct_tensor_ndim(const oct_tensor *x)
{
    return x ? x->shape.ndim : 0;
}

int64_t oct_tensor_dim(const oct_tensor *x, int i)
{
    const int n = oct_tensor_ndim(x), at = i < 0 ? n + i : i;
    return at >= 0 && at < n ? x->shape.dim[at] : 0;
}

int64_t oct_tensor_numel(const oct_tensor *x)
{
    return x ? oct_numel(x) : 0;
}

oct_shape oct_tensor_shape(const oct_tensor *x)
{
    return x ? x->shape : (oct_shape){0};
}

float *oct_tensor_values(const oct_tensor *x)
{
    return x && x->dtype == OCT_F32 ? oct_f32(x) : NULL;
}

const float *oct_tensor_grad(const oct_tensor *y)
{
    return y ? y->grad : NULL;
}

/* All exponent bits set is infinity or NaN; the loop has no branch so that it runs at memory speed. */
OCT_CLONES bool oct_all_finite(const float *x, int64_t n)
{
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof(bits));
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

OCT_CLONES void oct_scale_values(int64_t n, float factor, float *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

/* Returns the index of the first of the largest values; a NaN is the largest. */
static int32_t largest_f32(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n && !isnan(x[best]); i++)
        if (!(x[i] <= x[best])) best = i;
    return (int32_t)best;
}

#define LARGEST_CODE(name, type)                                                                   \
    static int32_t largest_##name(const type *x, int64_t n)                                        \
    {                                                                                              \
        int64_t best = 0;                                                                          \
        for (int64_t i = 1; i < n; i++)                                                            \
            if (x[i] > x[best]) best = i;                                                          \
        return (int32_t)best;                                                                      \
    }
LARGEST_CODE(u8, uint8_t)
LARGEST_CODE(u16, uint16_t)

void oct_argmax_rows(oct_dtype dtype, int64_t rows, int64_t n, const void *x, int32_t *index)
{
    for (int64_t r = 0; r < rows; r++)
        index[r] = dtype == OCT_U8    ? largest_u8((const uint8_t *)x + r * n, n)
                   : dtype == OCT_U16 ? largest_u16((const uint16_t *)x + r * n, n)
                                      : largest_f32((const float *)x + r * n, n);
}

oct_status oct_class_rows(const oct_tensor *y, int64_t samples, int64_t classes, float *rows)
{
    const int64_t numel = oct_numel(y);
    OCT_CHECK(
        (y->dtype == OCT_F32 && numel == samples * classes) ||
            (y->dtype == OCT_S32 && numel == samples),
        OCT_PREPARE,
        "the model returns %s %s for %lld samples of %lld classes; it must return a logit for "
        "each class (f32), or a class number (s32)",
        oct_dtype_name(y->dtype), oct_text_shape(&y->shape).text, (long long)samples,
        (long long)classes);
    if (y->dtype == OCT_F32) {
        memcpy(rows, y->data, (size_t)numel * sizeof(float));
        return OCT_OK;
    }
    const int32_t *number = y->data;
    for (int64_t i = 0; classes == 1 && i < samples; i++)
        rows[i] = (float)number[i];
    if (classes == 1) return OCT_OK;
    memset(rows, 0, (size_t)(samples * classes) * sizeof(float));
    for (int64_t i = 0; i < samples; i++) {
        OCT_CHECK(number[i] >= 0 && number[i] < classes, OCT_DATA,
                  "the model says class %d, but there are %lld classes", (int)number[i],
                  (long long)classes);
        rows[i * classes + number[i]] = 1.0F;
    }
    return OCT_OK;
}
