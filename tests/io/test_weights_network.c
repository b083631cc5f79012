/* Initializers of an ONNX file, taken as weights, are those that the network built from it has. */
#include "core/base/mem.h"
#include "core/nn/network.h"
#include "io/onnx/build.h"
#include "io/onnx/fold.h"
#include "io/weights/fit.h"
#include "tests/support/check_status.h"

#include <stdio.h>

TestSuite(weights_network, .timeout = 120);

static oct_module *build(const char *path, const oct_onnx_build_options *options)
{
    oct_onnx_graph graph;
    oct_onnx_built built;
    oct_module *network = NULL;
    MUST(oct_onnx_read(&graph, path));
    MUST(oct_onnx_fold(&graph, options->h, options->w, options->c));
    MUST(oct_onnx_build(&network, &graph, options, &built));
    oct_onnx_free(&graph);
    return network;
}

/* Values that no file has. */
static oct_status overwrite(void *user, const oct_state_item *item)
{
    (void)user;
    for (int64_t i = 0; i < oct_numel(item->tensor); i++)
        oct_f32(item->tensor)[i] = 77;
    return OCT_OK;
}

typedef struct search {
    const char *path;
    const oct_tensor *found;
} search;

static oct_status find_item(void *user, const oct_state_item *item)
{
    search *s = user;
    if (strcmp(item->path, s->path) == 0) s->found = item->tensor;
    return OCT_OK;
}

static const oct_tensor *state_of(oct_module *root, const char *path)
{
    search s = {.path = path};
    MUST(oct_module_state(root, find_item, &s));
    cr_assert(s.found, "%s", path);
    return s.found;
}

/* h, w, c: of the images that the network was made for. */
static void check_file(const char *name, int64_t h, int64_t w, int64_t c)
{
    static const oct_texts none;
    const oct_onnx_build_options options = {.h = h, .w = w, .c = c};
    const oct_weight_rules rules = {&none, &none};
    const oct_network_name *names;
    char path[600];
    oct_weights weights;
    oct_weight_report report;
    snprintf(path, sizeof path, "%s/tests/golden/onnx/%s.onnx", OCT_SOURCE_DIR, name);
    oct_module *own = build(path, &options), *other = build(path, &options);
    MUST(oct_module_state(other, overwrite, NULL));
    MUST(oct_weights_read(&weights, path));
    MUST(oct_weights_load(&weights, other, OCT_EXAMPLE(OCT_SHAPE(1, h, w, c)), &rules, &report));
    const size_t count = oct_network_names(own, &names);
    cr_assert(count > 10 && report.taken >= (int64_t)count, "%s: %lld of %zu", name,
              (long long)report.taken, count);
    for (size_t i = 0; i < count; i++) {
        const oct_tensor *a = state_of(own, names[i].path), *b = state_of(other, names[i].path);
        cr_assert(memcmp(a->data, b->data, (size_t)oct_numel(a) * sizeof(float)) == 0, "%s: %s",
                  name, names[i].path);
    }
    oct_weight_report_free(&report);
    oct_weights_free(&weights);
    oct_module_destroy(&own);
    oct_module_destroy(&other);
    check_nothing_held();
}

Test(weights_network, of_files_that_pytorch_wrote_come_back)
{
    check_file("resnet18", 32, 32, 3);
    check_file("mobilenet_v2", 32, 32, 3);
    check_file("unet", 32, 32, 3);
    check_file("vit", 32, 32, 3);
    check_file("mobilenet_v3_small", 32, 32, 3);
}
