/* What follows from the network is written, and comments where the user has to say something. */
#include "launch/cmd/import_recipe.h"

#include <inttypes.h>
#include <string.h>

void oct_begun_name(const char *path, char name[OCT_BEGUN_NAME])
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    const char *begin = path + end;
    while (begin > path && begin[-1] != '/')
        begin--;
    size_t length = strcspn(begin, "./");
    length = length < OCT_BEGUN_NAME - 1 ? length : OCT_BEGUN_NAME - 1;
    for (size_t i = 0; i < length; i++) {
        const char c = begin[i];
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '_' || c == '-';
        name[i] = plain ? c : '_';
    }
    memcpy(name + length, "", 1);
    if (length == 0) memcpy(name, "net", 4);
}

static oct_status add_data(const oct_onnx_graph *g, oct_text *text)
{
    const oct_onnx_value *x = &g->values[g->inputs[0]];
    const int channel = g->channels_last ? 3 : 1, h = g->channels_last ? 1 : 2;
    if (x->ndim != 4)
        return oct_text_add(
            text, "data:\n"
                  "  format: npz # octet help formats lists the others\n"
                  "  path: data.npz # train_images, train_labels, test_images, test_labels\n"
                  "  mean: [0] # octet data RECIPE counts them\n"
                  "  std: [1]\n");
    const int64_t channels = x->dim[channel];
    OCT_TRY(oct_text_add(text,
                         "data:\n"
                         "  format: folder # of pictures; octet help formats lists the others\n"
                         "  path: pictures # train/CLASS/*.jpg and test/CLASS/*.jpg\n"
                         "  channels: %" PRId64 "\n"
                         "  size: %" PRId64 "x%" PRId64 "\n",
                         channels, x->dim[h], x->dim[h + 1]));
    OCT_TRY(oct_text_add(text, "  train: [random_resized_crop scale=0.25..1, flip]\n"));
    if (channels == 3)
        return oct_text_add(text,
                            "  mean: [0.485, 0.456, 0.406] # of ImageNet: what most networks of "
                            "PyTorch were trained with; use yours\n"
                            "  std: [0.229, 0.224, 0.225]\n");
    return oct_text_add(text, "  mean: [0.5] # use those that the network was trained with\n"
                              "  std: [0.5]\n");
}

oct_status oct_begun_quoted(oct_text *text, const char *word)
{
    OCT_TRY(oct_text_add(text, "\""));
    for (const char *at = word; *at; at++)
        OCT_TRY(oct_text_add(text, "%s%c", *at == '"' || *at == '\\' ? "\\" : "", *at));
    return oct_text_add(text, "\"");
}

oct_status oct_import_recipe(const oct_onnx_graph *g, const char *path, const char *model,
                             bool untrained, oct_text *text)
{
    char name[OCT_BEGUN_NAME];
    oct_begun_name(path, name);
    OCT_TRY(oct_text_add(text,
                         "# %s, imported by octet import: fine-tuned for int8\n"
                         "#\n"
                         "# Say below which data it is for, then: octet check RECIPE, octet train "
                         "RECIPE\n"
                         "schema: 1\n"
                         "name: %s\n"
                         "output: runs/%s\n"
                         "seed: 1\n\n"
                         "model:\n"
                         "  onnx: ",
                         name, name, name));
    OCT_TRY(oct_begun_quoted(text, model));
    OCT_TRY(oct_text_add(text, " # its weights are the start\n\n"));
    OCT_TRY(add_data(g, text));
    return oct_text_add(text,
                        "\nbatch:\n"
                        "  size: 64\n"
                        "  leaf: 8\n\n"
                        "float:\n"
                        "  epochs: %s\n"
                        "  lr: 0.01\n\n"
                        "calibrate:\n"
                        "  batches: 32\n\n"
                        "qat:\n"
                        "  epochs: 2\n"
                        "  lr: 0.001\n"
                        "  schedule: cosine\n\n"
                        "quant:\n"
                        "  target: x86 # what the int8 model runs on: octet targets\n",
                        untrained ? "10 # the network was not trained yet"
                                  : "0 # more: fine-tune in float first");
}
