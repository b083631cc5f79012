/* What a TFLite model holds until it is written: for the writer, and for who looks at all of it. */
#pragma once

#include "core/base/arena.h"
#include "io/export/tflite_form.h"

enum { OPTIONS = 8 };

typedef struct tensor {
    oct_tflite_type type;
    int ndim;
    int64_t dims[OCT_TFLITE_DIMS];
    size_t scales; /* how many; their zero points are equal */
    float *scale;
    int64_t zero_point;
    int axis;
    const char *name;
    const void *data; /* NULL: no constant */
    size_t bytes;
} tensor;

typedef struct operator
{
    oct_tflite_operator kind;
    const char *layer;
    int inputs, outputs, options;
    int32_t *input, *output;
    oct_tflite_option option[OPTIONS];
}
operator;

typedef struct property {
    const char *key, *value;
} property;

/* A growing list of pointers into the arena. */
typedef struct list {
    void **item;
    size_t count, capacity;
} list;

struct oct_to_tflite_writer {
    oct_status status;
    oct_arena *arena;
    const char *layer;
    list tensors, operators, properties, inputs, outputs; /* the last two: tensors */
};
