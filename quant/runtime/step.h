/* Kinds of steps of an integer program: one file step_<kind>.c and one line of program.h's
 * OCT_STEP_LIST each. */
#pragma once

#include "quant/runtime/program.h"

/* One run of a step over `samples` samples. */
typedef struct oct_step_run {
    const oct_program *program;
    const oct_step *step;
    const oct_kernel *kernel;
    const void *packed; /* what `pack` wrote */
    int64_t samples;
    const void *const *input;
    void *output;
    void *scratch; /* 64-byte aligned */
} oct_step_run;

typedef struct oct_step_type {
    const char *name;
    int min_inputs, max_inputs;
    bool float_in, float_out; /* inputs and output are f32; otherwise codes */
    bool any_domain;          /* `check` looks at types itself */
    bool weights;             /* weight, bias, multiplier, weight_scale are there, as `conv` says */
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

const oct_step_type *oct_step_type_of(oct_step_kind kind);

static inline const oct_value *oct_step_input(const oct_program *program, const oct_step *step,
                                              int i)
{
    return &program->values[step->input[i]];
}
static inline const oct_value *oct_step_output(const oct_program *program, const oct_step *step)
{
    return &program->values[step->output];
}
/* Of one sample. */
int64_t oct_value_numel(const oct_value *value);
size_t oct_value_bytes(const oct_value *value);
int64_t oct_inputs_numel(const oct_program *program); /* all inputs together */
/* Input i, when it is codes. */
static inline oct_qcodes oct_step_codes(const oct_step_run *r, int i)
{
    return (oct_qcodes){.q = oct_step_input(r->program, r->step, i)->q, .data = r->input[i]};
}

/* What files and checks bound alike. */
enum { OCT_DIM_MAX = 65536, OCT_WINDOW_MAX = 1024, OCT_ISLAND_ARRAYS_MAX = 64 };
static inline bool oct_is_size(int64_t dim)
{
    return dim >= 1 && dim <= OCT_DIM_MAX;
}

/* For checks, before which inputs, output and their types are known to be right. */

/* Sizes of a window and the output plane that follows from it. */
oct_status oct_check_window(const oct_step *step, int most_padding) OCT_NODISCARD;
/* `conv` has the shapes of input 0, which may enter flattened or spread, and of the output. */
oct_status oct_check_plane(const oct_program *program, const oct_step *step) OCT_NODISCARD;
/* Behind both: weight, bias, multiplier and weight_scale are there and finite, groups divide the
 * channels. */
oct_status oct_check_weights(const oct_step *step) OCT_NODISCARD;
/* Input i has the output's shape. */
oct_status oct_check_same_shape(const oct_program *program, const oct_step *step,
                                int i) OCT_NODISCARD;
/* lo and hi are bounds within the output's codes. */
oct_status oct_check_bounds(const oct_program *program, const oct_step *step, int32_t lo,
                            int32_t hi) OCT_NODISCARD;
/* The output's codes mean what input 0's do. */
oct_status oct_check_same_qparams(const oct_program *program, const oct_step *step) OCT_NODISCARD;
