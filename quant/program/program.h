/* The integer program: what convert makes, the model file holds and the runtime executes. Plain data:
 * no tape, no graph, no MPI, no file. */
#pragma once

#include "core/tensor/op_args.h"
#include "quant/kernel/qconv.h"

/* Every kind of step, and the name by which files know it: step_<name>.c describes it, or the file of its like (step.h). */
#define OCT_STEP_LIST(X)                                                                           \
    X(QUANTIZE, quantize)     /* float -> codes */                                                 \
    X(CONV, conv)             /* codes (and a second addend's) -> codes; linear layers too */      \
    X(CONV_FLOAT, conv_float) /* the same -> float, unquantized result */                          \
    X(AFFINE, affine)         /* a factor and a bias per channel: batch norm on its own */         \
    X(ADD, add)                                                                                    \
    X(MUL, mul)                                                                                    \
    X(LUT, lut)                 /* one table entry a code, or a table a channel */                 \
    X(SOFTMAX, softmax)         /* over the channels */                                            \
    X(CONCAT, concat)           /* along the channels */                                           \
    X(INTERPOLATE, interpolate) /* nearest or bilinear; keeps qparams, as the next three do */     \
    X(MAX_POOL, max_pool)                                                                          \
    X(AVG_POOL, avg_pool) /* global average pool: kernel = plane */                                \
    X(RELU, relu)         /* clamp to [lo, hi] */                                                  \
    X(RESHAPE, reshape)   /* the same numbers in another shape, of any type */                     \
    X(MOVE, move)         /* numbers of any type in another order, or some of them */              \
    X(PAD, pad)           /* codes around a plane; keeps qparams */                                \
    X(ARGMAX, argmax)     /* codes or float -> class numbers, over the channels */                 \
    X(DEQUANTIZE, dequantize)                                                                      \
    X(FLOAT, float) /* a float fallback: run by the host's modules */

typedef enum oct_step_kind {
#define X(name, text) OCT_STEP_##name,
    OCT_STEP_LIST(X)
#undef X
        OCT_STEP_KINDS
} oct_step_kind;

enum { OCT_PROGRAM_INPUTS = 8, OCT_STEP_INPUTS = 64, OCT_PIXEL_VALUES = 256 /* of a byte */ };

/* A float layer that stays in the program: what made it, and its state. */
typedef struct oct_fallback_array {
    char *name; /* "weight" */
    oct_dtype dtype;
    oct_shape shape;
    void *data;
} oct_fallback_array;

typedef struct oct_fallback {
    char type[64]; /* of the module */
    oct_op_args args;
    int dims[OCT_STEP_INPUTS]; /* of each input as the module is called with it: 1 to 4 */
    oct_fallback_array *arrays;
    int64_t num_arrays;
} oct_fallback;

/* Adds a copy of an array; *capacity: of the arrays, as oct_grow has it. */
oct_status oct_fallback_add_array(oct_fallback *fallback, size_t *capacity, const char *name,
                                  oct_dtype dtype, const oct_shape *shape, const void *data);

/* What a step of each kind has beside its inputs and output: a member of the union in oct_step, by the kind. RESHAPE,
 * CONCAT, ARGMAX and DEQUANTIZE have nothing. */
typedef struct oct_conv_step { /* CONV, CONV_FLOAT, AFFINE */
    oct_conv_shape shape;
    /* Of a transposed convolution: the input is dilated to `shape.in_*`: its values are this number of rows and columns
     * apart, with zeros between them; 1 or 0: it is not. */
    int input_step_h, input_step_w;
    int8_t *weight;          /* codes (O, kh, kw, I/groups), owned */
    int64_t *bias;           /* (O), owned; within +-2^30 unless input 0 has 16 bits */
    float *multiplier;       /* (O), owned; powers of two where the program shifts */
    float *weight_scale;     /* (O), owned: for inspection and export */
    float addend_multiplier; /* with two inputs: multiplier of the second's codes */
    int32_t lo, hi;          /* logical bounds */
} oct_conv_step;

typedef struct oct_pool_step { /* MAX_POOL, AVG_POOL */
    oct_conv_shape shape;
    bool ceil; /* the last window may reach beyond the padding */
    /* AVG_POOL: oct_pool_count; of codes as signed bytes, halves up, or by a whole multiplier, as oct_qavg has it;
     * multiplier of a sum, or 0 */
    bool count_include_pad, of_codes, half_up, fixed;
    float factor;
} oct_pool_step;

typedef struct oct_step {
    oct_step_kind kind;
    char name[128]; /* the module's path */
    int num_inputs;
    int32_t input[OCT_STEP_INPUTS]; /* value numbers */
    int32_t output;
    union {                 /* the first member is the largest, so {0} clears all */
        oct_conv_step conv; /* CONV, CONV_FLOAT, AFFINE */
        oct_pool_step pool; /* MAX_POOL, AVG_POOL */
        struct {
            bool quotient; /* codes are x / scale; false: x * (1 / scale) */
        } quantize;
        oct_qadd add;
        struct {
            float factor;      /* multiplier of the product of codes */
            bool offset_first; /* the zero_point is added before rounding, in float */
        } mul;
        struct {
            int64_t size;
            uint16_t *table; /* output codes by input code, perhaps of each channel; owned */
        } lut;
        struct {
            int64_t size;
            int32_t *exponential; /* by distance from the largest code; owned */
        } softmax;
        struct {
            oct_conv_shape shape; /* in_*, out_* */
            int32_t mode;         /* an oct_interpolation */
        } interpolate;
        struct {
            int32_t lo, hi; /* logical bounds */
        } relu;
        oct_move_map move; /* `out` is not used */
        struct {
            oct_pad_shape shape;
            int32_t fill; /* the code of its constant */
        } pad;
        oct_fallback *fallback; /* FLOAT; owned */
    };
} oct_step;

typedef struct oct_value {
    oct_dtype dtype; /* U8, U16, F32, or S32: class numbers */
    int64_t h, w, c; /* of one sample; flattened values have h = w = 1 */
    oct_qparams q;   /* of codes */
} oct_value;

/* Numbers and bytes of one sample: what a buffer for an input or the output of a program must hold. */
int64_t oct_value_numel(const oct_value *value);
size_t oct_value_bytes(const oct_value *value);
/* Sets h, w and c to those of a tensor (N, ...) of this shape. */
void oct_value_set_plane(oct_value *value, const oct_shape *shape);
/* The shape of one sample with this number of dimensions, 1 to 4: (1, H, W, C) without the first of H, W and C. */
oct_shape oct_value_shape(const oct_value *value, int dims);

typedef struct oct_program {
    char target[32];
    oct_requantizer requantizer;
    int64_t num_steps, num_values;
    oct_step *steps;
    oct_value *values;
    int num_inputs;
    /* Value numbers: inputs are F32, the output is F32 or S32. */
    int32_t inputs[OCT_PROGRAM_INPUTS], output;
} oct_program;

int64_t oct_inputs_numel(const oct_program *program); /* of one sample, all inputs together */
/* Copies a program that has passed its check; *copy is to be freed by the caller, also on failure. */
oct_status oct_program_copy(oct_program *copy, const oct_program *program);
void oct_program_free(oct_program *program);

/* Every invariant that the runtime relies on: numbers in range, each value made once before use,
 * shapes that fit, arrays present, overflow bounds, total sizes within limits. Programs from files
 * pass through here before anything else touches them. */
oct_status oct_program_check(const oct_program *program);

/* Where the values of a program live in one block of memory: values that are never needed at the same time share bytes
 * (planner.c). */

/* Bytes that are in use from a first to a last moment, both included. */
typedef struct oct_interval {
    int64_t first, last, offset, bytes;
} oct_interval;
/* Returns the lowest offset where x overlaps none of these that are in use at the same time. */
int64_t oct_lowest_fit(const oct_interval *placed, int64_t count, const oct_interval *x);

/* Finds offsets[num_values] and *bytes for one sample, in units of 64; n samples use n times both. The
 * program's inputs and output belong to the caller and get no offset (-1). */
oct_status oct_plan_values(const oct_program *program, int64_t *offsets, int64_t *bytes);
/* Sets last[v] to the last step that uses value v, or the one that makes it. */
void oct_find_last_uses(const oct_program *program, int64_t *last);

/* What running a program that has passed the check takes, for one sample: bytes of the values that are in
 * memory at a time, and time as the number of multiply-adds of 8-bit codes that take about as long. */
typedef struct oct_program_cost {
    int64_t bytes;
    double work;
} oct_program_cost;
/* Finds the cost of one sample by the memory plan and the shapes of the steps. */
oct_status oct_program_costs(const oct_program *program, oct_program_cost *cost);
/* Refuses a program that takes more than these for a sample, or more than twice the work for its golden inputs: a small
 * file may ask for a lot. OCT_DATA with what to do if it is trusted. */
#define OCT_PROGRAM_BYTES ((int64_t)1 << 28)
#define OCT_PROGRAM_WORK 0x1p36
#define OCT_ALLOW_LARGE                                                                            \
    "; if you trust it, --allow-large, or `large` in options, takes it all the same"
oct_status oct_program_check_costs(const oct_program *program, int64_t golden);

/* Who runs float fallbacks; the integer runtime itself knows no float layer. Samples are run one by
 * one, so results do not depend on who goes together in a batch. */
typedef struct oct_fallback_host {
    oct_status (*open)(void **state, const oct_program *program, const oct_step *step);
    oct_status (*run)(void *state, int64_t samples, const float *const *input, float *output);
    void (*close)(void *state);
} oct_fallback_host;

/* The constants of a program in the layout of this machine's kernels, which any number of its runtimes may share. */
typedef struct oct_packed oct_packed;
void oct_packed_destroy(oct_packed **packed);

/* A program made ready for this machine: weights packed, one block of memory planned. It is for one thread at a time. */
typedef struct oct_runtime oct_runtime;
/* How a program is run; zeros are the defaults. */
typedef struct oct_runtime_options {
    int64_t max_batch; /* samples that a run may have; 0: 1 */
    /* Of a run. 0: as many as OpenMP has. 1: the calling thread alone, and nothing of OpenMP is entered but by float
     * fallbacks. After a fork the child's runs have one. */
    int threads;
    const oct_fallback_host *host; /* NULL: there is none */
    const oct_packed *packed;      /* of the program, borrowed; NULL: the runtime makes its own */
} oct_runtime_options;
enum { OCT_RUNTIME_THREADS_MAX = 1024 };
/* options: of most of the runtimes, NULL for the defaults; which layout is fastest depends on the samples of a thread. */
oct_status oct_packed_create(oct_packed **packed, const oct_program *program,
                             const oct_runtime_options *options);
/* options: NULL for the defaults. The program is borrowed and must outlive the runtime. OCT_PREPARE if it has float
 * fallbacks and there is no host. */
oct_status oct_runtime_create(oct_runtime **runtime, const oct_program *program,
                              const oct_runtime_options *options);
void oct_runtime_destroy(oct_runtime **runtime);
/* input[i]: samples x values[inputs[i]], output: samples x values[output], float or, of class numbers,
 * int32_t; the bits do not depend on the rounding mode. OCT_USAGE for more samples than max_batch, and while another thread
 * runs it. Does not allocate. */
oct_status oct_runtime_run(oct_runtime *runtime, int64_t samples, const float *const *input,
                           void *output);
typedef void (*oct_watch_fn)(void *user, int64_t value, const oct_step *step, const void *data,
                             size_t bytes);
/* Runs and calls watch for each value as it is made (data of all samples): certificates and golden
 * vectors look at every layer. watch NULL: only runs. */
oct_status oct_runtime_watch(oct_runtime *runtime, int64_t samples, const float *const *input,
                             void *output, oct_watch_fn watch, void *user);
