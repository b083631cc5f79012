/* A network of an ONNX file, for programs of others. */
#include "core/base/cpu.h"
#include "core/base/mem.h"
#include "core/nn/module.h"
#include "io/onnx/build.h"
#include "launch/library/library.h"

#include <string.h>

oct_status oct_module_from_onnx(oct_module **root, const char *path,
                                const oct_onnx_options *options, oct_dims *inputs)
{
    static const oct_onnx_options standard;
    OCT_OWNED(oct_free) void *bytes = NULL;
    oct_status status = OCT_OK;
    oct_onnx_built built;
    OCT_NEED(root && path);
    const oct_onnx_options *o = options ? options : &standard;
    *root = NULL;
    OCT_TRY(oct_check_rounding());
    OCT_CHECK(o->h >= 0 && o->w >= 0 && (o->h == 0) == (o->w == 0) && o->new_head >= 0, OCT_USAGE,
              "h %lld, w %lld, new_head %lld: give none below 0, and h and w both or neither",
              (long long)o->h, (long long)o->w, (long long)o->new_head);
    oct_onnx_source source = {.path = path};
    oct_onnx_build_options build = {.h = o->h,
                                    .w = o->w,
                                    .output = o->output,
                                    .without_softmax = !o->keep_softmax,
                                    .without_sigmoid = o->drop_sigmoid};
    OCT_TRY(oct_onnx_load(path, &bytes, &source.size));
    source.bytes = bytes;
    OCT_TRY_OUT(oct_onnx_network(root, &source, &build, &built));
    if (o->new_head > 0) status = oct_onnx_new_head(*root, &built, o->new_head, o->seed);
    if (status != OCT_OK) goto out;
    if (inputs) memset(inputs, 0, OCT_INPUTS_MAX * sizeof *inputs);
    if (inputs) inputs[0] = (oct_dims){build.h, build.w, build.c};
out:
    return oct_module_made(root, status);
}
