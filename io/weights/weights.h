/* Named arrays of floats from files of other frameworks: safetensors, NumPy's .npz, the initializers of an ONNX
 * file. A format brings what lists the arrays of its kind of file and reads one; the rest is here.
 *
 * Files are untrusted: a format has held the size that an array says against what is there before memory is
 * taken for it. */
#pragma once

#include "core/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { OCT_WEIGHT_DIMS = 8 };

typedef struct oct_weight {
    int64_t name_begin; /* among the names */
    int64_t data_begin; /* among the values */
    int64_t dim[OCT_WEIGHT_DIMS];
    int32_t ndim;
    int32_t place;   /* for the format */
    bool transposed; /* a matrix (in, out) of the file that is given as (out, in) */
} oct_weight;

/* All arrays of a file, in three blocks that ranks can share as they are. */
typedef struct oct_weights {
    char *path;      /* NULL: there are none; owned */
    char digest[65]; /* SHA-256 of the file */
    oct_weight *arrays;
    int64_t count;
    char *names; /* one after another, each with its NUL */
    int64_t name_bytes;
    float *values;
    int64_t num_values;
    int64_t others; /* arrays of the file that hold no floating-point numbers */
} oct_weights;

/* Is a path a file of one of the formats, by its name or its first bytes? */
bool oct_weights_is(const char *path);
/* Reads all arrays of F64, F32, F16 and BF16 of a file as floats, and its digest. OCT_DATA with one sentence. */
oct_status oct_weights_read(oct_weights *weights, const char *path);
void oct_weights_free(oct_weights *weights);

static inline const char *oct_weight_name(const oct_weights *weights, const oct_weight *array)
{
    return weights->names + array->name_begin;
}
/* Elements of an array; -1 when they are more than can be counted. */
int64_t oct_weight_numel(const oct_weight *array);
enum { OCT_WEIGHT_SHAPE_BYTES = 192 };
/* Writes a shape into text, which it returns: "(64, 3, 7, 7)". */
const char *oct_weight_shape_text(int ndim, const int64_t *dim, char text[OCT_WEIGHT_SHAPE_BYTES]);
