/* Kinds of steps of an integer program: one file step_<kind>.c and one line of program.h's
 * OCT_STEP_LIST each. */
#pragma once

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
    OCT_FALLBACK_ARRAYS_MAX = 64,
};

/* The numbers of a step in a model file: each has this number of whole cells and of factors, and each kind
 * says what its own mean. Cells that a kind does not use are 0. */
enum { OCT_STEP_CELLS = 48, OCT_STEP_FACTORS = 2 };

typedef enum oct_field_type {
    OCT_FIELD_BOOL,
    OCT_FIELD_S32,
    OCT_FIELD_S64,
    OCT_FIELD_F32, /* a factor; the others are cells */
} oct_field_type;

/* One number of a step. Files and messages know it by this description alone. */
typedef struct oct_step_field {
    const char *name;
    oct_field_type type;
    size_t offset;    /* in oct_step */
    int cell;         /* or factor */
    int64_t min, max; /* what a cell may hold; `check` has the last word */
} oct_step_field;

#define OCT_FIELD(member, where, low, high)                                                        \
    {                                                                                              \
        .name = #member,                                                                           \
        .type = _Generic(((oct_step *)0)->member, bool                                             \
                         : OCT_FIELD_BOOL, int32_t                                                 \
                         : OCT_FIELD_S32, int64_t                                                  \
                         : OCT_FIELD_S64, float                                                    \
                         : OCT_FIELD_F32),                                                         \
        .offset = offsetof(oct_step, member), .cell = (where), .min = (low), .max = (high)         \
    }
#define OCT_STEP_FIELDS(list) .fields = (list), .num_fields = (int)OCT_COUNT(list)
#define OCT_STEP_ARRAYS(list) .arrays = (list), .num_arrays = (int)OCT_COUNT(list)
#define OCT_FIELD_ANY(member, where) OCT_FIELD(member, where, INT32_MIN, INT32_MAX)
#define OCT_FIELD_FACTOR(member, where) OCT_FIELD(member, where, 0, 0)

/* Fields that kinds share: the planes of a member `of` of oct_step, these with its window, and two bounds. */
#define OCT_PLANE_FIELDS(of)                                                                       \
    OCT_FIELD(of.shape.in_h, 0, 0, OCT_DIM_MAX), OCT_FIELD(of.shape.in_w, 1, 0, OCT_DIM_MAX),      \
        OCT_FIELD(of.shape.in_c, 2, 0, OCT_DIM_MAX), OCT_FIELD(of.shape.out_h, 3, 0, OCT_DIM_MAX), \
        OCT_FIELD(of.shape.out_w, 4, 0, OCT_DIM_MAX), OCT_FIELD(of.shape.out_c, 5, 0, OCT_DIM_MAX)
#define OCT_WINDOW_FIELDS(of)                                                                      \
    OCT_PLANE_FIELDS(of), OCT_FIELD(of.shape.kernel_h, 6, 0, OCT_DIM_MAX),                         \
        OCT_FIELD(of.shape.kernel_w, 7, 0, OCT_DIM_MAX),                                           \
        OCT_FIELD(of.shape.stride_h, 8, 0, OCT_DIM_MAX),                                           \
        OCT_FIELD(of.shape.pad_top, 9, 0, OCT_DIM_MAX),                                            \
        OCT_FIELD(of.shape.groups, 10, 0, OCT_DIM_MAX),                                            \
        OCT_FIELD(of.shape.stride_w, 14, 0, OCT_DIM_MAX),                                          \
        OCT_FIELD(of.shape.pad_left, 15, 0, OCT_DIM_MAX),                                          \
        OCT_FIELD(of.shape.pad_bottom, 16, 0, OCT_DIM_MAX),                                        \
        OCT_FIELD(of.shape.pad_right, 17, 0, OCT_DIM_MAX),                                         \
        OCT_FIELD(of.shape.dilation_h, 18, 0, OCT_DIM_MAX),                                        \
        OCT_FIELD(of.shape.dilation_w, 19, 0, OCT_DIM_MAX)
#define OCT_POOL_FIELDS OCT_WINDOW_FIELDS(pool), OCT_FIELD(pool.ceil, 20, 0, 1)
#define OCT_BOUND_FIELDS(of) OCT_FIELD_ANY(of.lo, 12), OCT_FIELD_ANY(of.hi, 13)
#define OCT_CONV_FIELDS                                                                            \
    OCT_WINDOW_FIELDS(conv), OCT_FIELD(conv.input_step_h, 11, 0, OCT_DIM_MAX),                     \
        OCT_FIELD(conv.input_step_w, 20, 0, OCT_DIM_MAX), OCT_BOUND_FIELDS(conv)

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
    const oct_step_field *fields;
    int num_fields;
    const oct_step_array *arrays;
    int num_arrays;
    /* Everything that this kind relies on beyond what every step must be; sentences without the
     * step's name, which the caller puts in front. */
    oct_status (*check)(const oct_program *program, const oct_step *step);
    /* Constants in the kernel's own layout, made once; NULL: none. */
    int64_t (*packed_bytes)(const oct_program *program, const oct_step *step,
                            const oct_kernel *kernel);
    void (*pack)(const oct_program *program, const oct_step *step, const oct_kernel *kernel,
                 void *packed);
    int64_t (*scratch_bytes)(const oct_program *program, const oct_step *step,
                             const oct_kernel *kernel); /* NULL: none */
    void (*run)(const oct_step_run *r);                 /* NULL: the host runs it */
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

/* Writes the step's numbers as a file has them: cells[OCT_STEP_CELLS], factors[OCT_STEP_FACTORS]. */
void oct_step_get_fields(const oct_step *step, int64_t *cells, float *factors);
/* Sets the step's numbers from those of a file. OCT_DATA, without the step's number, when a cell is out of its
 * bounds, or not 0 though the kind does not use it. */
oct_status oct_step_set_fields(oct_step *step, const int64_t *cells,
                               const float *factors) OCT_NODISCARD;
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
oct_status oct_check_window(const oct_conv_shape *s, bool ceil, int max_padding) OCT_NODISCARD;
/* Checks that the shape is that of input 0, which may enter flattened, and of the output. */
oct_status oct_check_plane(const oct_program *program, const oct_step *step,
                           const oct_conv_shape *s) OCT_NODISCARD;
/* Checks both of a pool, each of whose windows sees a part of the input, and that channels and qparams
 * stay. */
oct_status oct_check_pool(const oct_program *program, const oct_step *step) OCT_NODISCARD;
/* Checks that the table is there, with one entry for each code of input 0. */
oct_status oct_check_table(const oct_program *program, const oct_step *step, const void *table,
                           int64_t size) OCT_NODISCARD;
/* Checks, after window and plane, that weight, bias, multiplier and weight_scale are there and finite and
 * that groups divide the channels. */
oct_status oct_check_weights(const oct_step *step) OCT_NODISCARD;
/* Checks that input i has the output's shape. */
oct_status oct_check_same_shape(const oct_program *program, const oct_step *step,
                                int i) OCT_NODISCARD;
/* Checks that the output has the shape that two inputs broadcast to (core/tensor/broadcast.h). */
oct_status oct_check_broadcast(const oct_program *program, const oct_step *step) OCT_NODISCARD;
/* Checks that lo and hi are bounds within the output's codes. */
oct_status oct_check_bounds(const oct_program *program, const oct_step *step, int32_t lo,
                            int32_t hi) OCT_NODISCARD;
/* Checks that the output has input 0's type, and of codes their meaning. */
oct_status oct_check_same_type(const oct_program *program, const oct_step *step) OCT_NODISCARD;
/* Checks that the output's codes mean what input 0's do. */
oct_status oct_check_same_qparams(const oct_program *program, const oct_step *step) OCT_NODISCARD;

/* Computes n elements of the output from as many codes of both inputs. */
typedef void oct_broadcast_fn(const oct_step_run *r, int64_t n, oct_qcodes a, oct_qcodes b,
                              const oct_qoutput *y);
/* Runs a step of two inputs, where one may be broadcast: all at once, or in blocks of elements. */
void oct_step_broadcast(const oct_step_run *r, oct_broadcast_fn *compute);
