/* onnx_eval NETWORK.onnx MODEL.int8.h5 [FLOATS.raw]: what a float network makes of a batch, and how near an int8 model of it
 * comes by calibration alone. Without a file samples are made up; a model for use needs real ones. */
#include <math.h>
#include <octet/train.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 64 };

static oct_status evaluate(oct_module **root, const oct_training_options *options, float *x,
                           int64_t outputs, const char *path)
{
    const oct_data data = oct_data_of(N, x, NULL);
    oct_training *t = NULL;
    oct_model *model = NULL;
    float *y = calloc((size_t)(2 * N * outputs), sizeof *y), *q = y + N * outputs;
    double off = 0, largest = 0;
    oct_status status = oct_forward(*root, options->input, &data, y);
    if (status == OCT_OK) status = oct_training_create(&t, root, options);
    if (status == OCT_OK) status = oct_quantize(t, &data, NULL, &model);
    if (status == OCT_OK) status = oct_training_evaluate(t, &data, q, NULL, NULL);
    if (status == OCT_OK) status = oct_model_save(path, model);
    for (int64_t i = 0; i < N * outputs; i++) {
        off = fmax(off, fabs((double)(y[i] - q[i])));
        largest = fmax(largest, fabs((double)y[i]));
    }
    printf("outputs up to %g; those of the int8 model are off by %g at most\n", largest, off);
    oct_model_destroy(&model), oct_training_destroy(&t);
    free(y), free(x);
    return status;
}

int main(int argc, char **argv)
{
    oct_training_options options = {.batch = 32};
    oct_module *root;
    int64_t outputs;
    if (argc < 3) return puts("usage: onnx_eval NETWORK.onnx MODEL.int8.h5 [FLOATS.raw]"), 2;
    if (oct_module_from_onnx(&root, argv[1], NULL, options.input) != OCT_OK ||
        oct_module_outputs(root, options.input, &outputs) != OCT_OK)
        return puts(oct_error_message(0)), 1;
    const oct_dims d = options.input[0];
    const size_t count = (size_t)(N * d.h * d.w * d.c);
    float *x = malloc(count * sizeof *x);
    if (argc > 3 && !freopen(argv[3], "rb", stdin)) return perror(argv[3]), 1;
    for (size_t i = argc > 3 ? fread(x, sizeof *x, count, stdin) : 0; i < count; i++)
        x[i] = (float)(i * 7919 % 1009) / 504 - 1;
    if (evaluate(&root, &options, x, outputs, argv[2]) == OCT_OK) return 0;
    return puts(oct_error_message(0)), 1;
}
