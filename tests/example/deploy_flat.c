/* An int8 model at work without HDF5: ./deploy_flat MODEL.flat IMAGES, the images as raw bytes, height x width x
 * channels. */
#include "quant/runtime/flat.h"

#include <stdio.h>
#include <stdlib.h>

static oct_status classify(const char *path, FILE *images)
{
    oct_flat *flat;
    oct_runtime *runtime;
    OCT_TRY(oct_flat_open(&flat, path)); /* checks digest and program */
    const oct_program *program = oct_flat_program(flat);
    OCT_TRY(oct_runtime_create(&runtime, program, 1, NULL));

    const oct_value *in = &program->values[program->inputs[0]];
    size_t size = (size_t)(in->h * in->w * in->c), classes = (size_t)oct_flat_classes(flat), best;
    uint8_t *bytes = malloc(size);
    float *x = malloc(size * sizeof *x), *logits = malloc(classes * sizeof *logits);
    while (fread(bytes, 1, size, images) == size) {
        oct_flat_normalise(flat, bytes, x);
        OCT_TRY(oct_runtime_run(runtime, 1, (const float *[]){x}, logits));
        best = 0;
        for (size_t k = 1; k < classes; k++)
            if (logits[k] > logits[best]) best = k;
        printf("class %zu, logit %.9g\n", best, (double)logits[best]);
    }
    free(bytes), free(x), free(logits);
    oct_runtime_destroy(&runtime);
    oct_flat_close(&flat);
    return OCT_OK;
}

int main(int argc, char **argv)
{
    FILE *images = argc == 3 ? fopen(argv[2], "rb") : NULL;
    if (images && classify(argv[1], images) == OCT_OK) return 0;
    fprintf(stderr, "deploy_flat: %s\n",
            oct_fail_count() ? oct_fail_text(0) : "MODEL or IMAGES missing");
    return 1;
}
