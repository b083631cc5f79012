/* Proof by linking: this program uses the integer runtime and is linked with oct_runtime only, so the
 * runtime needs no tape, no graph and no MPI. It runs a program of two steps and checks the result. */
#include "quant/program/program.h"

#include <stdio.h>

int main(void)
{
    oct_value values[] = {
        {.dtype = OCT_F32, .h = 1, .w = 2, .c = 2},
        {.dtype = OCT_U8, .h = 1, .w = 2, .c = 2, .q = {0.5f, 128, 0, 255}},
        {.dtype = OCT_F32, .h = 1, .w = 2, .c = 2},
    };
    oct_step steps[] = {
        {.kind = OCT_STEP_QUANTIZE, .name = "quant", .num_inputs = 1, .input = {0}, .output = 1},
        {.kind = OCT_STEP_DEQUANTIZE,
         .name = "dequant",
         .num_inputs = 1,
         .input = {1},
         .output = 2},
    };
    const oct_program program = {.num_steps = 2,
                                 .num_values = 3,
                                 .steps = steps,
                                 .values = values,
                                 .num_inputs = 1,
                                 .inputs = {0},
                                 .output = 2};
    const float input[] = {1.2f, -0.2f, 1000.0f, -64.0f}, expected[] = {1.0f, 0.0f, 63.5f, -64.0f};
    float output[4];
    oct_runtime *runtime;
    if (oct_runtime_create(&runtime, &program, NULL) != OCT_OK ||
        oct_runtime_run(runtime, 1, (const float *[]){input}, output) != OCT_OK) {
        fprintf(stderr, "runtime_alone: %s\n", oct_error_message(0));
        return 1;
    }
    oct_runtime_destroy(&runtime);
    for (int i = 0; i < 4; i++) {
        if (output[i] == expected[i]) continue;
        fprintf(stderr, "runtime_alone: output %d is %g, not %g\n", i, (double)output[i],
                (double)expected[i]);
        return 1;
    }
    return 0;
}
