/* ONNX files: read, folded for a size of image, and built of modules. */
#include "core/base/mem.h"
#include "io/file/file.h"
#include "io/onnx/build.h"
#include "io/onnx/fold.h"
#include "tests/fuzz/fuzz.h"
#include "tests/golden/onnx_golden.h"

#include <stdio.h>
#include <zlib.h>

const char *const fuzz_name = "onnx";
static const char *const words[] = {
    "Conv",    "Reshape", "Shape", "Gather",   "Slice",           "Concat", "Expand", "Cast",
    "Range",   "Tile",    "Pad",   "Split",    "ConstantOfShape", "Mul",    "Div",    "Where",
    "Resize",  "MatMul",  "Gemm",  "MaxPool",  "Transpose",       "axis",   "axes",   "pads",
    "strides", "perm",    "to",    "auto_pad", "SAME_UPPER",      "value",  "\x1b",   "If",
    "Loop",    "Rank",    NULL};
const char *const *const fuzz_words = words;

static void seed_file(const char *name)
{
    char path[512];
    void *bytes = NULL;
    size_t size;
    snprintf(path, sizeof path, OCT_SOURCE_DIR "/tests/golden/onnx_cases/%s", name);
    MAKE(oct_file_read(path, 1 << 20, &bytes, &size));
    fuzz_seed(bytes, size);
    oct_free(&bytes);
}

void fuzz_seeds(void)
{
    uint8_t *bytes = NULL;
    uLongf size = ONNX_GOLDEN_BYTES;
    MAKE(oct_alloc(&bytes, size, 1));
    FUZZ_REQUIRE(uncompress(bytes, &size, onnx_golden_bytes, sizeof onnx_golden_bytes) == Z_OK,
                 "the golden networks");
    for (size_t i = 0; i < OCT_COUNT(onnx_golden); i++)
        fuzz_seed(bytes + onnx_golden[i].at, onnx_golden[i].size);
    oct_free(&bytes);
    /* Functions, branches and rounds. */
    seed_file("torch2_functions.onnx");
    seed_file("scripted.onnx");
}

/* Each value of a folded network is known, and as large as it says. */
static void check_graph(const oct_onnx_graph *g)
{
    for (int64_t i = 0; i < g->num_nodes; i++)
        for (int k = 0; k < g->nodes[i].inputs; k++) {
            const oct_onnx_value *v = oct_onnx_input(g, &g->nodes[i], k);
            FUZZ_REQUIRE(!v || (v->known && oct_onnx_numel(v) >= 0), "a value is not known");
            if (!v || !v->data) continue;
            uint8_t digest[32]; /* a sanitizer looks at each byte */
            oct_sha256(v->data, (size_t)oct_onnx_numel(v) * oct_dtype_bytes(v->dtype), digest);
        }
}

/* Builds it for images of the size that its input has now. */
static void build(const oct_onnx_graph *g)
{
    const unsigned allowed = FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA) | FUZZ_BIT(OCT_USAGE) |
                             FUZZ_BIT(OCT_PREPARE) | FUZZ_BIT(OCT_RESOURCE);
    oct_module *network = NULL;
    oct_onnx_built built;
    oct_onnx_build_options options = {.h = 1, .w = 1, .c = 1};
    if (g->num_inputs > 0) {
        const oct_onnx_value *in = &g->values[g->inputs[0]];
        options.c = oct_onnx_numel(in);
        if (in->ndim == 4) options.c = in->dim[1], options.h = in->dim[2], options.w = in->dim[3];
    }
    const oct_status status = oct_onnx_build(&network, g, &options, &built);
    FUZZ_REQUIRE((allowed & FUZZ_BIT(status)) != 0, "building failed otherwise than it may");
    FUZZ_REQUIRE((status == OCT_OK) == (network != NULL), "a network that failed is there");
    oct_module_destroy(&network);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char path[] = "input.onnx";
    const unsigned allowed =
        FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA) | FUZZ_BIT(OCT_USAGE) | FUZZ_BIT(OCT_PREPARE);
    const oct_onnx_source source = {data, size, path};
    oct_onnx_graph g;
    fuzz_call call = fuzz_begin(size);
    oct_status status = oct_onnx_read_bytes(&g, &source);
    fuzz_said(status, allowed, path);
    if (status == OCT_OK) {
        status = oct_onnx_fold(&g, 8, 8, 0);
        fuzz_said(status, allowed, path);
        if (status == OCT_OK) {
            check_graph(&g);
            build(&g);
        }
        oct_onnx_free(&g);
    }
    fuzz_end(&call, 4096, (size_t)64 << 20);
    return 0;
}
