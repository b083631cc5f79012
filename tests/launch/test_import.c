/* octet import: what it says of a network, as a table and as JSON, and the recipe that it begins. */
#include "core/base/mem.h"
#include "io/file/file.h"
#include "tests/support/program.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

#define ZOO OCT_SOURCE_DIR "/tests/golden/onnx/"

TestSuite(import, .init = enter_folder, .fini = leave_folder, .timeout = 120);

Test(import, a_network_is_shown)
{
    OCTET("import", ZOO "resnet18.onnx");
    oct_check_exit(job, 0);
    oct_check_said(job, "producer    pytorch 1.13");
    oct_check_said(job, "format      opset 17, file format 8\n");
    oct_check_said(job, "inputs      input f32 (N, 3, 32, 32)\n");
    oct_check_said(job, "outputs     output f32 (N, 10)\n");
    oct_check_said(job, "parameters  37,402 in 62 tensors\n");
    oct_check_said(job, "nodes       69\n");
    oct_check_said(job, "BatchNormalization          20\n");
    oct_check_said(job, "conv2d                      20  quantized\n");
}

/* A message says where the int8 model differs from the file. */
Test(import, its_changes_are_reported)
{
    OCTET("import", ZOO "../onnx_cases/changed.onnx");
    oct_check_exit(job, 0);
    oct_check_said(job, "inputs      x f32 (N, 1, 6)\noutputs     probabilities f32 (N, 1, 6)\n");
    oct_check_said(job, "its Softmax at the end is left out, since the loss has its own");
    oct_check_said(job, "of its 2 outputs only one counts, probabilities");
    cr_assert(!strstr(job.out, "c0"), "its two uses stay one parameter:\n%s", job.out);
}

Test(import, shape_arithmetic_is_gone)
{
    json_error_t error;
    OCTET("import", ZOO "shufflenet_v2.onnx", "--json");
    oct_check_exit(job, 0);
    json_t *all = json_loads(job.out, 0, &error);
    cr_assert(all, "%s\n%s", error.text, job.out);
    const json_t *operators = json_object_get(all, "operators");
    cr_assert(json_object_get(operators, "Conv") && !json_object_get(operators, "Shape"));
    const json_t *modules = json_object_get(all, "modules");
    cr_assert(json_is_true(json_object_get(json_object_get(modules, "linear"), "quantized")));
    cr_assert(json_integer_value(json_object_get(all, "nodes")) <
              json_integer_value(json_object_get(all, "file_nodes")));
    json_decref(all);
}

/* JSON is UTF-8, and a name of a file need not be. */
Test(import, a_file_with_any_name_is_described_as_json)
{
    json_error_t error;
    cr_assert_eq(symlink(ZOO "resnet18.onnx", "n\xff.onnx"), 0);
    OCTET("import", "n\xff.onnx", "--json");
    oct_check_exit(job, 0);
    json_t *all = json_loads(job.out, 0, &error);
    cr_assert(all, "%s\n%s", error.text, job.out);
    cr_assert_str_eq(json_string_value(json_object_get(all, "file")), "n?.onnx");
    json_decref(all);
}

Test(import, a_recipe_begins)
{
    void *copy = NULL, *file = NULL, *recipe = NULL;
    size_t copied, size, length;
    OCTET("import", ZOO "unet.onnx", "--size", "64x48", "-o", "my nets/unet");
    oct_check_exit(job, 0);
    oct_check_said(job, "outputs     output f32 (N, 4, 64, 48)\n");
    oct_check_said(job, "written     my nets/unet/recipe.yaml, my nets/unet/model.onnx\n");
    cr_assert(oct_file_read("my nets/unet/model.onnx", 1 << 24, &copy, &copied) == OCT_OK);
    cr_assert(oct_file_read(ZOO "unet.onnx", 1 << 24, &file, &size) == OCT_OK);
    cr_assert(copied == size && memcmp(copy, file, size) == 0);
    cr_assert(oct_file_read("my nets/unet/recipe.yaml", 1 << 16, &recipe, &length) == OCT_OK);
    cr_assert(strstr(recipe, "name: unet\n") && strstr(recipe, "  size: 64x48\n"));
    cr_assert(strstr(recipe, "  onnx: \"my nets/unet/model.onnx\" #"));
    oct_free(&copy);
    oct_free(&file);
    oct_free(&recipe);
    OCTET("inspect", "my nets/unet/recipe.yaml");
    oct_check_exit(job, 0);
    oct_check_said(job, "my nets/unet/model.onnx");
}

Test(import, the_recipe_of_features_names_the_arrays_that_are_read)
{
    void *recipe = NULL;
    size_t length;
    OCTET("import", ZOO "../onnx_cases/conv_of_sequences.onnx", "-o", "features");
    oct_check_exit(job, 0);
    cr_assert(oct_file_read("features/recipe.yaml", 1 << 16, &recipe, &length) == OCT_OK);
    const char names[] = "train_images, train_labels, test_images, test_labels\n";
    cr_assert(strstr(recipe, names), "%s", (char *)recipe);
    oct_free(&recipe);
}
