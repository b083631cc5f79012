/* ONNX files for tests, written field by field: also such as no exporter would write. */
#pragma once

#include "core/base/mem.h"
#include "tests/support/proto.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* Numbers of fields and types in onnx.proto. */
enum {
    ONNX_FLOAT = 1,
    ONNX_UINT8 = 2,
    ONNX_INT8 = 3,
    ONNX_INT32 = 6,
    ONNX_INT64 = 7,
    ONNX_STRING = 8
};
enum { ONNX_BOOL = 9, ONNX_FLOAT16 = 10, ONNX_DOUBLE = 11, ONNX_UINT64 = 13, ONNX_BFLOAT16 = 16 };

typedef struct onnx_model {
    oct_proto graph, node; /* node: the one that attributes are added to */
    oct_proto more;        /* fields of the model beyond those that every one has */
    int64_t ir, opset;
} onnx_model;

static inline void onnx_end_node(onnx_model *m)
{
    if (m->node.length > 0) oct_proto_message(&m->graph, 1, &m->node);
}

static inline void onnx_words(oct_proto *to, int field, const char *words)
{
    char text[512];
    snprintf(text, sizeof text, "%s", words);
    for (char *at = text, *next; at && *text; at = next) {
        next = strchr(at, ' ');
        if (next) *next++ = '\0';
        oct_proto_text(to, field, strcmp(at, "-") == 0 ? "" : at);
    }
}

/* Adds a node; names of values have blanks between them, "-" is one that is left out. */
static inline void onnx_node(onnx_model *m, const char *type, const char *inputs,
                             const char *outputs)
{
    onnx_end_node(m);
    onnx_words(&m->node, 1, inputs);
    onnx_words(&m->node, 2, outputs);
    oct_proto_text(&m->node, 4, type);
}

/* The following add an attribute to the last node. */
static inline void onnx_int(onnx_model *m, const char *name, int64_t value)
{
    oct_proto a = {0};
    oct_proto_text(&a, 1, name);
    oct_proto_integer(&a, 3, value);
    oct_proto_integer(&a, 20, 2);
    oct_proto_message(&m->node, 5, &a);
}

static inline void onnx_float(onnx_model *m, const char *name, float value)
{
    oct_proto a = {0};
    oct_proto_text(&a, 1, name);
    oct_proto_float(&a, 2, value);
    oct_proto_integer(&a, 20, 1);
    oct_proto_message(&m->node, 5, &a);
}

static inline void onnx_text(onnx_model *m, const char *name, const char *value)
{
    oct_proto a = {0};
    oct_proto_text(&a, 1, name);
    oct_proto_bytes(&a, 4, value, strlen(value));
    oct_proto_integer(&a, 20, 3);
    oct_proto_message(&m->node, 5, &a);
}

static inline void onnx_ints_of(onnx_model *m, const char *name, const int64_t *values, size_t n)
{
    oct_proto a = {0};
    oct_proto_text(&a, 1, name);
    for (size_t i = 0; i < n; i++)
        oct_proto_integer(&a, 8, values[i]);
    oct_proto_integer(&a, 20, 7);
    oct_proto_message(&m->node, 5, &a);
}

#define ONNX_LIST(...)                                                                             \
    (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)
#define onnx_ints(m, name, ...) onnx_ints_of(m, name, ONNX_LIST(__VA_ARGS__))

/* A tensor with raw data. */
static inline oct_proto onnx_tensor(const char *name, int type, const int64_t *dims, size_t ndim,
                                    const void *raw, size_t bytes)
{
    oct_proto t = {0};
    for (size_t i = 0; i < ndim; i++)
        oct_proto_integer(&t, 1, dims[i]);
    oct_proto_integer(&t, 2, type);
    oct_proto_text(&t, 8, name);
    if (raw) oct_proto_bytes(&t, 9, raw, bytes);
    return t;
}

static inline void onnx_initializer(onnx_model *m, oct_proto t)
{
    oct_proto_message(&m->graph, 5, &t);
}

/* Real numbers 0.5, 1.5, 2.5, ... of a shape. */
static inline void onnx_weights_of(onnx_model *m, const char *name, const int64_t *dims,
                                   size_t ndim)
{
    float *values = NULL;
    size_t n = 1;
    for (size_t i = 0; i < ndim; i++)
        n *= (size_t)dims[i];
    cr_assert(oct_alloc(&values, n, sizeof *values) == OCT_OK);
    for (size_t i = 0; i < n; i++)
        values[i] = (float)i + 0.5F;
    onnx_initializer(m, onnx_tensor(name, ONNX_FLOAT, dims, ndim, values, n * sizeof *values));
    oct_free(&values);
}

#define onnx_weights(m, name, ...) onnx_weights_of(m, name, ONNX_LIST(__VA_ARGS__))

/* A list of 64-bit integers. */
static inline void onnx_longs_of(onnx_model *m, const char *name, const int64_t *values, size_t n)
{
    const int64_t dims[] = {(int64_t)n};
    onnx_initializer(m, onnx_tensor(name, ONNX_INT64, dims, 1, values, n * sizeof *values));
}

#define onnx_longs(m, name, ...) onnx_longs_of(m, name, ONNX_LIST(__VA_ARGS__))

/* An input or (field 12) output; a dimension of -1 is free. */
static inline void onnx_port_of(onnx_model *m, int field, const char *name, const int64_t *dims,
                                size_t ndim)
{
    oct_proto info = {0}, type = {0}, tensor = {0}, shape = {0};
    for (size_t i = 0; i < ndim; i++) {
        oct_proto d = {0};
        if (dims[i] >= 0)
            oct_proto_integer(&d, 1, dims[i]);
        else
            oct_proto_text(&d, 2, "batch");
        oct_proto_message(&shape, 1, &d);
    }
    oct_proto_integer(&tensor, 1, ONNX_FLOAT);
    oct_proto_message(&tensor, 2, &shape);
    oct_proto_message(&type, 1, &tensor);
    oct_proto_text(&info, 1, name);
    oct_proto_message(&info, 2, &type);
    oct_proto_message(&m->graph, field, &info);
}

#define onnx_in(m, name, ...) onnx_port_of(m, 11, name, ONNX_LIST(__VA_ARGS__))

static inline void onnx_out(onnx_model *m, const char *name)
{
    oct_proto info = {0};
    oct_proto_text(&info, 1, name);
    oct_proto_message(&m->graph, 12, &info);
}

/* The file's bytes; the caller frees them, the model is used up. */
static inline oct_proto onnx_file(onnx_model *m)
{
    oct_proto file = {0}, opset = {0};
    onnx_end_node(m);
    oct_proto_integer(&file, 1, m->ir ? m->ir : 8);
    oct_proto_text(&file, 2, "test");
    oct_proto_text(&opset, 1, "");
    oct_proto_integer(&opset, 2, m->opset ? m->opset : 13);
    oct_proto_message(&file, 8, &opset);
    oct_proto_message(&file, 7, &m->graph);
    if (m->more.length > 0) {
        oct_proto_append(&file, m->more.data, m->more.length);
        oct_proto_free(&m->more);
    }
    return file;
}
