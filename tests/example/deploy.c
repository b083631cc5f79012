/* An int8 model at work: ./deploy MODEL IMAGES, the images as raw bytes, height x width x channels. */
#include <octet.h>
#include <stdio.h>
#include <stdlib.h>

/* A line for each row of the output, such as a pixel: its class, or the best one by its logits. */
static void show(const oct_value *out, size_t classes, const void *output)
{
    const int32_t *numbers = output;
    const float *logits = output;
    const size_t numel = (size_t)oct_value_numel(out);
    for (size_t i = 0; out->dtype == OCT_S32 && i < numel; i++)
        printf("class %d\n", numbers[i]);
    for (size_t i = 0; out->dtype == OCT_F32 && i + classes <= numel; i += classes) {
        size_t best = 0;
        for (size_t k = 1; k < classes; k++)
            if (logits[i + k] > logits[i + best]) best = k;
        printf("class %zu, logit %.9g\n", best, (double)logits[i + best]);
    }
}

static oct_status classify(const oct_model *model, FILE *images)
{
    const oct_program *program = &model->program;
    oct_runtime *runtime;
    OCT_CHECK(program->num_inputs == 1, OCT_DATA, "the model takes %d inputs, and here is one",
              program->num_inputs);
    OCT_TRY(oct_runtime_create(&runtime, program, NULL));

    const oct_value *in = &program->values[program->inputs[0]];
    const oct_value *out = &program->values[program->output];
    const size_t size = (size_t)oct_value_numel(in);
    uint8_t *bytes = malloc(size);
    float *x = malloc(oct_value_bytes(in));
    void *output = malloc(oct_value_bytes(out));
    oct_status status = bytes && x && output ? OCT_OK : oct_fail(OCT_RESOURCE, "out of memory");
    while (status == OCT_OK && fread(bytes, 1, size, images) == size) {
        oct_normalise(bytes, in->h * in->w, in->c, model->mean, model->std, x);
        status = oct_runtime_run(runtime, 1, (const float *[]){x}, output);
        if (status == OCT_OK) show(out, (size_t)model->classes, output);
    }
    free(bytes), free(x), free(output);
    oct_runtime_destroy(&runtime);
    return status;
}

int main(int argc, char **argv)
{
    FILE *images = argc == 3 ? fopen(argv[2], "rb") : NULL;
    oct_model model;
    if (images &&
        oct_model_load(&model, argv[1], false) == OCT_OK && /* checks digest and program */
        classify(&model, images) == OCT_OK) {
        oct_model_free(&model);
        return 0;
    }
    fprintf(stderr, "deploy: %s\n",
            oct_error_count() ? oct_error_message(0) : "MODEL or IMAGES missing");
    return 1;
}
