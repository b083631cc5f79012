/* The integer program: what convert makes, the model file holds and the runtime executes. Plain data:
 * no tape, no graph, no MPI, no file. */
#pragma once

#include "quant/kernel/qops.h"

/* name: meaning of the step */
#define OCT_STEP_LIST(X)                                                                           \
    X(QUANTIZE, "quantize")     /* float input -> codes */                                         \
    X(CONV, "conv")             /* codes -> codes (linear layers too) */                           \
    X(CONV_FLOAT, "conv_float") /* codes -> float, unquantized result */                           \
    X(ADD, "add")                                                                                  \
    X(MAX_POOL, "max_pool")                                                                        \
    X(AVG_POOL, "avg_pool") /* global average pool: kernel = plane */                              \
    X(DEQUANTIZE, "dequantize")

typedef enum oct_step_kind {
#define X(name, text) OCT_STEP_##name,
    OCT_STEP_LIST(X)
#undef X
        OCT_STEP_KINDS
} oct_step_kind;

typedef struct oct_step {
    oct_step_kind kind;
    char name[128];   /* the module's path */
    int32_t input[2]; /* value numbers */
    int32_t output;
    oct_conv_shape conv; /* CONV*; pools use in_*, out_*, kernel, stride, padding */
    int8_t *weight;      /* codes (O, kh, kw, I/groups), owned */
    int32_t *bias;       /* (O), owned */
    float *multiplier;   /* (O), owned */
    float *weight_scale; /* (O), owned: for inspection and export */
    int32_t lo, hi;      /* CONV: logical bounds */
    oct_qadd add;        /* ADD */
} oct_step;

typedef struct oct_value {
    oct_dtype dtype; /* U8 or F32 */
    int64_t h, w, c; /* of one sample; flattened values have h = w = 1 */
    oct_qparams q;   /* of U8 */
} oct_value;

typedef struct oct_program {
    int64_t num_steps, num_values;
    oct_step *steps;
    oct_value *values;
    int32_t input, output; /* value numbers; both F32 */
} oct_program;

void oct_program_free(oct_program *program);

/* Every invariant that the runtime relies on: numbers in range, each value made once before use,
 * shapes that fit, arrays present, overflow bounds, total sizes within limits. Programs from files
 * pass through here before anything else touches them. */
oct_status oct_program_check(const oct_program *program) OCT_NODISCARD;

/* A program made ready for this machine: weights packed, one block of memory planned. */
typedef struct oct_runtime oct_runtime;
/* max_batch: samples per run call. The program is borrowed and must outlive the runtime. */
oct_status oct_runtime_create(oct_runtime **runtime, const oct_program *program,
                              int64_t max_batch) OCT_NODISCARD;
void oct_runtime_destroy(oct_runtime **runtime);
/* input: samples x values[input], output: samples x values[output]. samples <= max_batch. Does not
 * allocate. */
void oct_runtime_run(oct_runtime *runtime, int64_t samples, const float *input, float *output);
/* Also calls watch for each value as it is made (data of all samples): certificates and golden
 * vectors look at every layer. watch NULL = run. */
typedef void (*oct_watch_fn)(void *user, int64_t value, const oct_step *step, const void *data,
                             size_t bytes);
void oct_runtime_watch(oct_runtime *runtime, int64_t samples, const float *input, float *output,
                       oct_watch_fn watch, void *user);
size_t oct_runtime_bytes(const oct_runtime *runtime);
