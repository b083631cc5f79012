/* Kinds of steps of an integer program: one file step_<kind>.c, or a few lines in that of its like, and one line of
 * program.h's OCT_STEP_LIST each. */
#pragma once

#include "core/base/text.h"
#include "quant/program/program.h"

/* What a step needs to run over `samples` samples. */
typedef struct oct_step_run {
    const oct_program *program;
    const oct_step *step;
    const oct_kernel *kernel;
    const void *packed; /* what `pack` wrote */
    int64_t samples;
    const void *const *input;
    void *output;
    void *scratch; /* 64-byte aligned */
    /* In training, of kinds that see to it: the clip mask of the output, 1 bit an element, and the range of
     * its real values, which is merged into these two. Both may be NULL. */
    uint8_t *mask;
    float *range;
} oct_step_run;

/* Bounds that files and checks share. */
enum {
    OCT_DIM_MAX = 65536,
    OCT_WINDOW_MAX = 1024,
    OCT_TABLE_MAX = 65536,
    OCT_TABLES_MAX = 1 << 24, /* of all channels together */
    OCT_PROGRAM_STEPS_MAX = 65536,
    OCT_FALLBACK_ARRAYS_MAX = 64,
};

typedef enum oct_field_type {
    OCT_FIELD_BOOL,
    OCT_FIELD_S32,
    OCT_FIELD_S64,
    OCT_FIELD_F32,
    /* program_text.c alone */
    OCT_FIELD_F64,
    OCT_FIELD_TEXT,
} oct_field_type;

/* One number, list or text of a step, a value or a program. Files and messages know it by this description alone. */
typedef struct oct_field {
    const char *name;
    oct_field_type type; /* of a list that of its items */
    bool list;
    size_t offset, count; /* in the struct; of a list also that of the int that counts it */
    int64_t min,
        max; /* of a whole number, and the most items or bytes; `check` has the last word */
} oct_field;

#define OCT_FIELD_TYPE(number)                                                                     \
    _Generic((number), bool                                                                        \
             : OCT_FIELD_BOOL, int32_t                                                             \
             : OCT_FIELD_S32, int64_t                                                              \
             : OCT_FIELD_S64, float                                                                \
             : OCT_FIELD_F32, double                                                               \
             : OCT_FIELD_F64)
/* A field of any struct, and of the member `of` in a step's union. */
#define OCT_FIELD_IN(owner, member, text, low, high)                                               \
    {                                                                                              \
        .name = (text), .type = OCT_FIELD_TYPE(((owner *)0)->member),                              \
        .offset = offsetof(owner, member), .min = (low), .max = (high)                             \
    }
#define OCT_FIELD(of, member, low, high) OCT_FIELD_IN(oct_step, of.member, #member, low, high)
#define OCT_STEP_FIELDS(list) .fields = (list), .num_fields = (int)OCT_COUNT(list)
#define OCT_STEP_ARRAYS(list) .arrays = (list), .num_arrays = (int)OCT_COUNT(list)
#define OCT_FIELD_ANY(of, member) OCT_FIELD(of, member, INT32_MIN, INT32_MAX)
#define OCT_FIELD_FLOAT(of, member) OCT_FIELD(of, member, 0, 0)
#define OCT_FIELD_SIZE(of, member) OCT_FIELD(of, member, 0, OCT_DIM_MAX)

/* Fields that kinds share: the planes of a member's shape, these with its window, and two bounds. */
#define OCT_PLANE_FIELDS(of)                                                                       \
    OCT_FIELD_SIZE(of, shape.in_h), OCT_FIELD_SIZE(of, shape.in_w),                                \
        OCT_FIELD_SIZE(of, shape.in_c), OCT_FIELD_SIZE(of, shape.out_h),                           \
        OCT_FIELD_SIZE(of, shape.out_w), OCT_FIELD_SIZE(of, shape.out_c)
#define OCT_WINDOW_FIELDS(of)                                                                      \
    OCT_PLANE_FIELDS(of), OCT_FIELD_SIZE(of, shape.kernel_h), OCT_FIELD_SIZE(of, shape.kernel_w),  \
        OCT_FIELD_SIZE(of, shape.stride_h), OCT_FIELD_SIZE(of, shape.stride_w),                    \
        OCT_FIELD_SIZE(of, shape.pad_top), OCT_FIELD_SIZE(of, shape.pad_left),                     \
        OCT_FIELD_SIZE(of, shape.pad_bottom), OCT_FIELD_SIZE(of, shape.pad_right),                 \
        OCT_FIELD_SIZE(of, shape.dilation_h), OCT_FIELD_SIZE(of, shape.dilation_w),                \
        OCT_FIELD_SIZE(of, shape.groups)
#define OCT_POOL_FIELDS OCT_WINDOW_FIELDS(pool), OCT_FIELD(pool, ceil, 0, 1)
#define OCT_BOUND_FIELDS(of) OCT_FIELD_ANY(of, lo), OCT_FIELD_ANY(of, hi)

/* One array of a step, which owns it. In a file it is "program/<group>/<step's number>/<name>". */
typedef struct oct_step_array {
    const char *group, *name;
    oct_dtype dtype;
    bool parameters; /* counted as parameters of the layer */
    size_t offset;   /* in oct_step, of the pointer to its data */
    /* Its shape, as the step's fields have it; they are within their bounds. A sentence without the step's
     * name when nothing has such a shape. */
    oct_status (*shape)(const oct_step *step, oct_shape *shape);
} oct_step_array;

typedef struct oct_step_type {
    const char *name;
    int inputs[2];            /* fewest and most */
    bool float_in, float_out; /* inputs and output are f32; otherwise codes */
    bool any_domain;          /* `check` looks at types itself */
    bool weights;             /* it has a `conv` with weight, bias, multiplier, weight_scale */
    const oct_field *fields;
    int num_fields;
    const oct_step_array *arrays;
    int num_arrays;
    /* Everything that this kind relies on beyond what every step must be; sentences without the
     * step's name, which the caller puts in front. */
    oct_status (*check)(const oct_program *program, const oct_step *step);
    /* Constants in the kernel's own layout, made once; NULL: none. samples: as in oct_packed_create. */
    int64_t (*packed_bytes)(const oct_program *program, const oct_step *step,
                            const oct_kernel *kernel, int64_t samples);
    void (*pack)(const oct_program *program, const oct_step *step, const oct_kernel *kernel,
                 int64_t samples, void *packed);
    int64_t (*scratch_bytes)(const oct_program *program, const oct_step *step,
                             const oct_kernel *kernel, int64_t samples); /* NULL: none */
    void (*run)(const oct_step_run *r); /* NULL: the host runs it */
} oct_step_type;

#define X(kind, name) extern const oct_step_type oct_step_##name;
OCT_STEP_LIST(X)
#undef X

const oct_step_type *oct_step_type_of(oct_step_kind kind); /* NULL: there is no such kind */

/* The shape of a step whose kernel slides over the input's plane, as in "3x3 s2" in text; NULL and "" of others. */
const oct_conv_shape *oct_step_window(const oct_step *step);
const char *oct_step_window_text(const oct_step *step, char text[OCT_WINDOW_TEXT]);
/* What the step computes: the name of its kind, or the type of a float fallback's module. */
const char *oct_step_operation(const oct_step *step);

static inline const oct_value *oct_step_input(const oct_program *program, const oct_step *step,
                                              int i)
{
    return &program->values[step->input[i]];
}
static inline const oct_value *oct_step_output(const oct_program *program, const oct_step *step)
{
    return &program->values[step->output];
}
/* Input i, when it is codes. */
static inline oct_qcodes oct_step_codes(const oct_step_run *r, int i)
{
    return (oct_qcodes){.q = oct_step_input(r->program, r->step, i)->q, .data = r->input[i]};
}

static inline bool oct_is_size(int64_t dim)
{
    return dim >= 1 && dim <= OCT_DIM_MAX;
}

/* Adds the program as text, without the numbers in its arrays (program_text.c says how). */
oct_status oct_program_write_text(const oct_program *program, oct_text *text);
/* Reads such a text, which need not end in NUL: OCT_DATA with the line and what is wrong with it. *program is to be freed
 * by the caller, also on failure. Arrays of steps are missing yet, as are the data of those of float fallbacks; numbers
 * are within the bounds of their fields; whether it is a program says oct_program_check. */
oct_status oct_program_read_text(oct_program *program, const char *text, size_t bytes);

/* The number of elements of an array, in a step that has passed the check. */
int64_t oct_step_array_numel(const oct_step *step, const oct_step_array *array);
/* The data of an array, NULL where it is missing; and the address of the pointer to it. */
const void *oct_step_data(const oct_step *step, const oct_step_array *array);
void *oct_step_slot(oct_step *step, const oct_step_array *array);
/* The arrays that every convolution owns. */
enum { OCT_CONV_ARRAYS = 4 };
extern const oct_step_array oct_conv_arrays[OCT_CONV_ARRAYS];

/* These are parts of checks, before which inputs, output and their types are known to be right. */

/* Checks the sizes of a window, none of whose pads is larger than max_padding, and the output plane that
 * follows from it; ceil: as oct_pool_geometry has it. */
oct_status oct_check_window(const oct_conv_shape *s, bool ceil, int max_padding);
/* Checks that s, the step's own shape, has the input shape of input 0 (as it is, flattened, or dilated as a transposed
 * convolution has it) and the output shape of the step's output; OCT_DATA. */
oct_status oct_check_step_shape(const oct_program *program, const oct_step *step,
                                const oct_conv_shape *s);
/* Checks the window and the plane of a pool, that each window sees a part of the input, and that channels and qparams
 * stay. */
oct_status oct_check_pool(const oct_program *program, const oct_step *step);
/* Checks that the table is there, with one entry for each code of input 0. */
oct_status oct_check_table(const oct_program *program, const oct_step *step, const void *table,
                           int64_t size);
/* Checks that input i has the output's shape. */
oct_status oct_check_same_shape(const oct_program *program, const oct_step *step, int i);
/* Checks that the output has the shape that two inputs broadcast to (core/tensor/broadcast.h). */
oct_status oct_check_broadcast(const oct_program *program, const oct_step *step);
/* Checks that lo and hi are bounds within the output's codes. */
oct_status oct_check_bounds(const oct_program *program, const oct_step *step, int32_t lo,
                            int32_t hi);
/* Checks that the output's codes mean what input 0's do. */
oct_status oct_check_same_qparams(const oct_program *program, const oct_step *step);

/* Makes codes of qparams q of n values as a step quantize does: bytes, or numbers of two bytes; mask and range as in
 * oct_step_run. */
void oct_step_quantize_values(const oct_step *step, oct_qparams q, const float *x, int64_t n,
                              void *codes, uint8_t *mask, float *range);

/* Computes n elements of the output from as many codes of both inputs. */
typedef void oct_broadcast_fn(const oct_step_run *r, int64_t n, oct_qcodes a, oct_qcodes b,
                              const oct_qoutput *y);
/* Runs a step of two inputs, where one may be broadcast: all at once, or in blocks of elements. */
void oct_step_broadcast(const oct_step_run *r, oct_broadcast_fn *compute);
