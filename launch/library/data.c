/* Arrays of a program's own as a data set, and what a network makes of their samples. */
#include "launch/library/library.h"

#include "core/base/cpu.h"
#include "core/graph/trace.h"

#include <fenv.h>

/* Numbers of a sample, and of all samples; so no size in bytes overflows. */
static const int64_t sample_numel_max = INT64_C(1) << 31, numel_max = INT64_C(1) << 56;

oct_data oct_data_of(int64_t count, const float *input, const int32_t *labels)
{
    return (oct_data){.count = count, .input = {input}, .labels = labels};
}

oct_status oct_dataset_of_dims(oct_dataset *shapes, const oct_dims *inputs)
{
    *shapes = (oct_dataset){
        .format = &oct_dataset_memory, .h = 1, .w = 1, .dtype = OCT_F32, .rows = 1, .classes = 1};
    OCT_CHECK(inputs, OCT_USAGE, "the dims of the inputs are missing (NULL)");
    for (int i = 0; i < OCT_INPUTS_MAX && inputs[i].c != 0; i++) {
        const oct_dims *d = &inputs[i];
        const bool plane = d->h != 0 || d->w != 0;
        const oct_shape shape = plane ? OCT_SHAPE(1, d->h, d->w, d->c) : OCT_SHAPE(1, d->c);
        const int64_t numel = oct_shape_numel(&shape);
        OCT_CHECK(
            numel > 0 && numel <= sample_numel_max, OCT_USAGE,
            "input %d has %lld rows, %lld columns and %lld channels; give numbers from 1 on, at "
            "most %lld together, or h and w 0 for features",
            i, (long long)d->h, (long long)d->w, (long long)d->c, (long long)sample_numel_max);
        shapes->input[shapes->num_inputs++] = shape;
        shapes->c += numel;
    }
    OCT_CHECK(shapes->num_inputs > 0, OCT_USAGE,
              "no input has dims; give rows, columns and channels, or features (c) alone");
    return OCT_OK;
}

oct_status oct_check_threads(void)
{
    int others = 0;
    OCT_TRY(oct_check_rounding());
#pragma omp parallel reduction(+ : others)
    others += fegetround() != FE_TONEAREST;
    OCT_CHECK(others == 0, OCT_USAGE,
              "%d threads of OpenMP do not round to nearest, as the one that started them did not; "
              "call fesetround(FE_TONEAREST) in a parallel region first",
              others);
    return OCT_OK;
}

oct_status oct_find_outputs(oct_module *root, const oct_dataset *shapes, int64_t *outputs,
                            int64_t *row, bool *class_numbers)
{
    const oct_example example = oct_dataset_inputs(shapes, NULL, 1, 0, 1);
    OCT_OWNED(oct_trace_free) oct_trace trace = {0};
    OCT_TRY(oct_check_threads());
    OCT_TRY(oct_trace_run(&trace, root, &example));
    const oct_trace_value *y = &trace.values[trace.output];
    const int ndim = y->shape.ndim;
    *class_numbers = y->dtype == OCT_S32;
    *outputs = ndim > 0 ? oct_shape_numel(&y->shape) : 0;
    *row = ndim > 0 && !*class_numbers ? y->shape.dim[ndim - 1] : 1;
    return OCT_OK;
}

oct_status oct_dataset_point(oct_dataset *data, const oct_data *samples, int64_t outputs,
                             int64_t row)
{
    OCT_CHECK(samples, OCT_USAGE, "the samples are missing (NULL)");
    const int64_t rows = samples->rows > 0 ? samples->rows : 1;
    OCT_CHECK(samples->count >= 1, OCT_USAGE, "there are %lld samples; give at least one",
              (long long)samples->count);
    OCT_CHECK(samples->count <= numel_max / (data->c > outputs ? data->c : outputs), OCT_USAGE,
              "%lld samples are more than a memory can have", (long long)samples->count);
    for (int i = 0; i < OCT_INPUTS_MAX; i++) {
        const bool wanted = i < data->num_inputs;
        OCT_CHECK(wanted == (samples->input[i] != NULL), OCT_USAGE,
                  "the array of input %d is %s, and the network has %d input%s", i,
                  wanted ? "missing (NULL)" : "given", data->num_inputs,
                  data->num_inputs == 1 ? "" : "s");
        data->array[i] = samples->input[i];
    }
    OCT_CHECK(!samples->labels || !samples->targets, OCT_USAGE,
              "the samples have both labels and targets; give one of them");
    OCT_CHECK(samples->rows >= 0, OCT_USAGE, "a sample has %lld rows; give 0 or more",
              (long long)samples->rows);
    OCT_CHECK(
        !samples->labels || outputs == 0 || rows * row == outputs, OCT_USAGE,
        "a sample has %lld label%s, but the network returns %lld rows of %lld outputs for it; "
        "write rows = %lld, or give another network",
        (long long)rows, rows == 1 ? "" : "s", (long long)(outputs / row), (long long)row,
        (long long)(outputs / row));
    OCT_CHECK(
        outputs % rows == 0, OCT_USAGE,
        "a sample has %lld rows of targets, but the network returns %lld outputs for it, which "
        "do not divide",
        (long long)rows, (long long)outputs);
    data->rows = samples->labels || samples->targets ? rows : outputs > 0 ? outputs / row : 1;
    data->classes = outputs > 0 ? outputs / data->rows : 1;
    data->labels = (int32_t *)(uintptr_t)samples->labels; /* nothing changes or frees them */
    data->values = (float *)(uintptr_t)samples->targets;
    data->goal = samples->targets   ? OCT_GOAL_VALUES
                 : !samples->labels ? OCT_GOAL_NONE
                 : rows > 1         ? OCT_GOAL_MAP
                                    : OCT_GOAL_CLASS;
    data->count = samples->count;
    return OCT_OK;
}
