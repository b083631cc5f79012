/* Writes the float outputs that an imported network has for given inputs, for a comparison with other runtimes.
 *
 *     float_output NET.onnx OUTPUT SAMPLES IN.f32 OUT.f32
 *
 * IN and OUT hold float32, row-major in the order of the file's shapes; OUTPUT is a name, "" the first one. Ends with
 * the exit status that `octet import` would have; its sentences go to stderr. */
#include "core/autograd/context.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "core/nn/module.h"
#include "io/file/file.h"
#include "io/onnx/build.h"
#include "io/onnx/fold.h"

#include <stdio.h>

/* Copies samples of (C, pixels) to (pixels, C). */
static void turn(float *to, const float *from, int64_t samples, int64_t c, int64_t pixels)
{
    for (int64_t n = 0; n < samples; n++, to += c * pixels, from += c * pixels)
        for (int64_t i = 0; i < c; i++)
            for (int64_t p = 0; p < pixels; p++)
                to[p * c + i] = from[i * pixels + p];
}

static oct_status read_network(const char *path, const char *output, oct_module **network,
                               oct_shape *image, bool *first)
{
    oct_onnx_graph g;
    oct_onnx_built built;
    OCT_TRY(oct_onnx_read(&g, path));
    oct_status status = oct_onnx_fold(&g, 0, 0, 0);
    if (status == OCT_OK) {
        const oct_onnx_value *x = &g.values[g.inputs[0]];
        const int h = g.channels_last ? 1 : 2;
        oct_onnx_build_options options = {.h = 1, .w = 1, .c = oct_onnx_numel(x), .output = output};
        *first = x->ndim == 4 && !g.channels_last;
        if (x->ndim == 4)
            options = (oct_onnx_build_options){
                .h = x->dim[h], .w = x->dim[h + 1], .c = x->dim[*first ? 1 : 3], .output = output};
        *image = OCT_SHAPE(1, options.h, options.w, options.c);
        status = oct_onnx_build(network, &g, &options, &built);
    }
    oct_onnx_free(&g);
    return status;
}

static oct_status compute(char **word)
{
    oct_module *network = NULL;
    oct_context *cx = NULL;
    oct_shape shape;
    void *bytes = NULL;
    float *x = NULL, *y = NULL;
    size_t size;
    bool first;
    oct_status status = OCT_OK;
    int64_t samples;
    OCT_CHECK(oct_parse_i64(word[2], &samples), OCT_USAGE, "%s: is no number of samples", word[2]);
    OCT_TRY_OUT(read_network(word[0], word[1], &network, &shape, &first));
    const int64_t pixels = shape.dim[1] * shape.dim[2], c = shape.dim[3];
    OCT_TRY_OUT(oct_file_read(word[3], (size_t)1 << 32, &bytes, &size));
    if (size != (size_t)(samples * pixels * c) * sizeof(float)) {
        status = oct_fail(OCT_USAGE, "%s: has %zu bytes for %lld samples of %lld x %lld", word[3],
                          size, (long long)samples, (long long)pixels, (long long)c);
        goto out;
    }
    OCT_TRY_OUT(oct_alloc(&x, size / sizeof *x, sizeof *x));
    turn(x, bytes, samples, first ? c : 1, first ? pixels : pixels * c);
    shape.dim[0] = samples;
    oct_module_train(network, false);
    OCT_TRY_OUT(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(samples, samples < 8 ? samples : 8, 0, 1), false);
    const oct_tensor *out = oct_call(cx, network, oct_tensor_view(cx, OCT_F32, shape, x));
    OCT_TRY_OUT(oct_context_status(cx));
    const int64_t numel = oct_numel(out), *d = out->shape.dim;
    const bool map = out->shape.ndim == 4;
    OCT_TRY_OUT(oct_alloc(&y, (size_t)numel, sizeof *y));
    turn(y, oct_f32(out), samples, map ? d[1] * d[2] : 1, map ? d[3] : numel / samples);
    OCT_TRY_OUT(oct_file_write(word[4], y, (size_t)numel * sizeof *y));
out:
    oct_context_destroy(&cx);
    oct_module_destroy(&network);
    oct_free(&bytes);
    oct_free(&x);
    oct_free(&y);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 6) return 2;
    const oct_status status = compute(argv + 1);
    for (size_t i = 0; status != OCT_OK && i < oct_error_count(); i++)
        fprintf(stderr, "%s\n", oct_error_message(i));
    return oct_status_exit(status);
}
