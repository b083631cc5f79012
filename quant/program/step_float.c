/* The step float is a float fallback: a layer that stays float, computed by the host's modules. */
#include "quant/program/step.h"

#include <math.h>
#include <string.h>

enum { LONGEST_NAME = 63 };

static const int64_t max_array_bytes = INT64_C(1) << 31;

static bool is_name(const char *name)
{
    const size_t length = strlen(name);
    return length >= 1 && length <= LONGEST_NAME &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == length;
}

static oct_status check_array(const oct_fallback_array *array, int64_t number)
{
    OCT_CHECK(array->name && is_name(array->name), OCT_DATA,
              "the name of its array %lld is not a name", (long long)number);
    OCT_CHECK((int)array->dtype >= OCT_F32 && array->dtype <= OCT_S64, OCT_DATA,
              "its array %s is of a type that does not exist", array->name);
    const bool fits = array->shape.ndim >= 0 && array->shape.ndim <= OCT_MAX_DIMS;
    const int64_t numel = fits ? oct_shape_numel(&array->shape) : -1;
    OCT_CHECK(numel >= 0 && numel <= max_array_bytes / (int64_t)oct_dtype_bytes(array->dtype),
              OCT_DATA, "its array %s has a shape that cannot be or takes more than 2 GiB",
              array->name);
    OCT_CHECK(array->data, OCT_DATA, "its array %s is missing", array->name);
    return OCT_OK;
}

static oct_status check_float(const oct_program *program, const oct_step *step)
{
    const oct_fallback *fallback = step->fallback;
    OCT_CHECK(fallback, OCT_DATA, "what computes it is missing");
    OCT_CHECK(memchr(fallback->type, '\0', sizeof fallback->type) && is_name(fallback->type),
              OCT_DATA, "the type of its module is not a name");
    OCT_CHECK(fallback->args.count >= 0 && fallback->args.count <= OCT_MAX_ARGS, OCT_DATA,
              "%d arguments; 0 to %d are allowed", fallback->args.count, OCT_MAX_ARGS);
    for (int i = 0; i < fallback->args.count; i++)
        OCT_CHECK(!isnan(fallback->args.value[i]), OCT_DATA, "its argument %d is not a number", i);
    for (int i = 0; i < step->num_inputs; i++) {
        /* A value with h or w beyond 1 has four dimensions, or three; a single number has the batch's alone, or more. */
        const oct_value *x = oct_step_input(program, step, i);
        const int least = x->h > 1 ? 4 : x->w > 1 ? 3 : x->c > 1 ? 2 : 1;
        OCT_CHECK(fallback->dims[i] >= least && fallback->dims[i] <= 4, OCT_DATA,
                  "its input %d cannot have %d dimensions", i, fallback->dims[i]);
    }
    OCT_CHECK(fallback->num_arrays >= 0 && fallback->num_arrays <= OCT_FALLBACK_ARRAYS_MAX &&
                  (fallback->num_arrays == 0 || fallback->arrays),
              OCT_DATA, "%lld arrays; 0 to %d are allowed", (long long)fallback->num_arrays,
              OCT_FALLBACK_ARRAYS_MAX);
    for (int64_t i = 0; i < fallback->num_arrays; i++)
        OCT_TRY(check_array(&fallback->arrays[i], i));
    return OCT_OK;
}

const oct_step_type oct_step_float = {.name = "float",
                                      .inputs = {1, OCT_STEP_INPUTS},
                                      .float_in = true,
                                      .float_out = true,
                                      .check = check_float};
