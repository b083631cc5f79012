/* What octet export writes: the files' own structure, read by other readers than the writers; equal models give equal
 * bytes; names and layouts are PyTorch's. What ONNX Runtime computes with them is for tests/onnx. */
#include "core/base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "io/dataset/npy_file.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5.h"
#include "io/model/model_file.h"
#include "io/onnx/graph.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"
#define SMALL_RUN_ONCE
#include "tests/launch/small_data.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

/* The run that small_start makes: float to step 3, calibration at step 4, QAT to step 7. */
#define FLOAT_END "run/checkpoints/step-00000003.h5"
#define MODEL "run/model.int8.h5"

TestSuite(export, .init = enter_with_run, .fini = leave_folder);

static void export_to(const char *file, const char *format, const char *out)
{
    OCTET("export", file, "--format", format, "-o", out);
    oct_check_exit(job, 0);
}

/* A safetensors file: its header, and its data. */
typedef struct tensors {
    void *bytes;
    size_t size;
    json_t *header;
    const uint8_t *data;
    size_t data_size;
} tensors;

static tensors open_tensors(const char *path)
{
    tensors t = {0};
    uint64_t length;
    cr_assert(oct_file_read(path, 1 << 28, &t.bytes, &t.size) == OCT_OK, "%s",
              oct_error_message(0));
    memcpy(&length, t.bytes, sizeof length);
    cr_assert(length % 8 == 0 && length <= t.size - 8);
    t.header = json_loadb((const char *)t.bytes + 8, length, 0, NULL);
    cr_assert(t.header, "the header is no JSON");
    t.data = (const uint8_t *)t.bytes + 8 + length;
    t.data_size = t.size - 8 - length;
    return t;
}

static void close_tensors(tensors *t)
{
    json_decref(t->header);
    oct_free(&t->bytes);
}

static const float *tensor_of(const tensors *t, const char *name, const char *shape)
{
    const json_t *entry = json_object_get(t->header, name);
    cr_assert(entry, "%s is missing", name);
    char *text = json_dumps(json_object_get(entry, "shape"), JSON_COMPACT);
    cr_assert_str_eq(text, shape);
    free(text);
    return (const float *)(const void *)(t->data + json_integer_value(json_array_get(
                                                       json_object_get(entry, "data_offsets"), 0)));
}

/* Reads an item of a checkpoint as its module has it. */
static void read_state(const char *file, const char *item, float *data, size_t room)
{
    void *bytes = NULL;
    size_t size;
    oct_h5 *h5 = NULL;
    oct_dtype dtype;
    oct_shape shape;
    cr_assert(oct_file_read(file, 1 << 28, &bytes, &size) == OCT_OK);
    cr_assert(oct_h5_open_checked(&h5, bytes, size, file) == OCT_OK);
    cr_assert(oct_h5_describe(h5, item, &dtype, &shape) == OCT_OK, "%s", oct_error_message(0));
    cr_assert((size_t)oct_shape_numel(&shape) <= room);
    cr_assert(oct_h5_read(h5, item, dtype, shape, data) == OCT_OK);
    oct_h5_close(&h5);
    oct_free(&bytes);
}

Test(export, safetensors_tile_their_file_and_have_the_names_of_the_float_model)
{
    export_to(FLOAT_END, "safetensors", "a.safetensors");
    tensors t = open_tensors("a.safetensors");
    const char *name;
    json_t *entry;
    size_t expected = 0, count = 0;
    json_object_foreach(t.header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) continue;
        const json_t *places = json_object_get(entry, "data_offsets");
        cr_assert_eq((size_t)json_integer_value(json_array_get(places, 0)), expected, "%s", name);
        expected = (size_t)json_integer_value(json_array_get(places, 1));
        count++;
    }
    cr_assert_eq(expected, t.data_size);
    cr_assert_eq(count, 4 + 4 * 4 + 4); /* convolutions, batch norms, linear layers with a bias */
    tensor_of(&t, "features.1.running_var", "[32]");
    close_tensors(&t);
}

Test(export, weights_of_convolutions_have_input_channels_before_rows_and_columns)
{
    enum { OUT = 64, IN = 32, SIDE = 3, NUMEL = OUT * IN * SIDE * SIDE };
    static float ours[NUMEL];
    export_to(FLOAT_END, "safetensors", "a.safetensors");
    tensors t = open_tensors("a.safetensors");
    const float *theirs = tensor_of(&t, "features.7.weight", "[64,32,3,3]");
    read_state(FLOAT_END, "state/features/7/weight", ours, NUMEL);
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++)
            for (int y = 0; y < SIDE; y++)
                for (int x = 0; x < SIDE; x++)
                    cr_assert_eq(theirs[((o * IN + i) * SIDE + y) * SIDE + x],
                                 ours[((o * SIDE + y) * SIDE + x) * IN + i]);
    close_tensors(&t);
}

Test(export, a_linear_layer_after_a_flattened_image_counts_channels_first)
{
    enum { OUT = 128, SIDE = 3, C = 64, IN = SIDE * SIDE * C };
    static float ours[OUT * IN];
    export_to(FLOAT_END, "safetensors", "a.safetensors");
    tensors t = open_tensors("a.safetensors");
    const float *theirs = tensor_of(&t, "head.0.weight", "[128,576]");
    read_state(FLOAT_END, "state/head/0/weight", ours, OUT * IN);
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < SIDE * SIDE; i++)
            for (int c = 0; c < C; c++)
                cr_assert_eq(theirs[o * IN + c * SIDE * SIDE + i], ours[o * IN + i * C + c]);
    close_tensors(&t);
}

Test(export, a_prepared_checkpoint_gives_its_parameters_under_the_names_of_the_float_model)
{
    static float ours[32 * 9], theirs[32];
    export_to("run", "safetensors", "a.safetensors");
    tensors t = open_tensors("a.safetensors");
    read_state("run/checkpoints/step-00000007.h5", "state/features/0/bn/running_mean", theirs, 32);
    cr_assert_arr_eq(tensor_of(&t, "features.1.running_mean", "[32]"), theirs, sizeof theirs);
    read_state("run/checkpoints/step-00000007.h5", "state/features/0/conv/weight", ours, 32 * 9);
    cr_assert_arr_eq(tensor_of(&t, "features.0.weight", "[32,1,3,3]"), ours, sizeof ours);
    cr_assert_eq(json_object_size(t.header), 1 + 4 + 4 * 4 + 4);
    close_tensors(&t);
}

Test(export, equal_models_give_equal_bytes)
{
    export_to(MODEL, "onnx", "a.onnx");
    export_to(MODEL, "onnx", "b.onnx");
    export_to("run", "onnx", "c.onnx");
    export_to("run", "onnx", "d.onnx");
    cr_assert(
        system(
            "cmp a.onnx b.onnx && cmp a.onnx.golden.npz b.onnx.golden.npz && cmp c.onnx d.onnx && "
            "cmp c.onnx.golden.npz d.onnx.golden.npz") == 0);
}

Test(export, files_of_others_are_overwritten_on_request_alone)
{
    export_to(MODEL, "onnx", "a.onnx");
    must("cp a.onnx want && echo mine >a.onnx && echo mine >a.onnx.golden.npz");
    OCTET("export", MODEL, "--format", "onnx", "-o", "a.onnx");
    oct_check_exit(job, 2);
    must("grep -q mine a.onnx && grep -q mine a.onnx.golden.npz");
    OCTET("export", MODEL, "--format", "onnx", "-o", "a.onnx", "--force");
    oct_check_exit(job, 0);
    must("cmp a.onnx want && ! grep -q mine a.onnx.golden.npz");
    OCTET("export", MODEL, "--format", "onnx", "-o", "run/../" MODEL, "--force");
    oct_check_exit(job, 2);
    oct_check_said(job, "is the file that is exported; choose another file name");
}

static int64_t count_nodes(const oct_onnx_graph *g, const char *type)
{
    int64_t count = 0;
    for (int64_t i = 0; i < g->num_nodes; i++)
        count += strcmp(g->nodes[i].type, type) == 0;
    return count;
}

Test(export, a_float_network_is_its_layers_with_their_own_names)
{
    oct_onnx_graph g;
    export_to(FLOAT_END, "onnx", "a.onnx");
    cr_assert(oct_onnx_read(&g, "a.onnx") == OCT_OK, "%s", oct_error_message(0));
    cr_assert_eq(g.opset, 13);
    cr_assert_eq(count_nodes(&g, "Conv"), 4);
    cr_assert_eq(count_nodes(&g, "BatchNormalization"), 4);
    cr_assert_eq(count_nodes(&g, "Gemm"), 2);
    cr_assert_eq(count_nodes(&g, "Transpose"), 0); /* the linear layer's weight is in their order */
    bool found = false;
    for (int64_t i = 0; i < g.num_values; i++)
        found = found || strcmp(g.values[i].name, "features.3.weight") == 0;
    cr_assert(found);
    oct_onnx_free(&g);
}

Test(export, an_int8_model_has_codes_between_its_layers)
{
    oct_onnx_graph g;
    OCTET("export", MODEL, "--format", "onnx", "-o", "a.onnx", "--all-values");
    oct_check_exit(job, 0);
    cr_assert(oct_onnx_read(&g, "a.onnx") == OCT_OK, "%s", oct_error_message(0));
    cr_assert_eq(count_nodes(&g, "Conv"), 4);
    cr_assert_eq(count_nodes(&g, "QuantizeLinear"), 1 + 4 + 1);
    cr_assert_eq(g.num_outputs, 1 + 8); /* logits; codes of input, layers and pools */
    cr_assert_str_eq(g.values[g.outputs[1]].name, "quant");
    oct_onnx_free(&g);
}

Test(export, what_is_quantized_already_is_refused_with_one_sentence)
{
    export_to(MODEL, "onnx", "a.onnx");
    OCTET("import", "a.onnx");
    oct_check_exit(job, 3);
    oct_check_said(job, "a.onnx: node 'quant/QuantizeLinear_2' (QuantizeLinear): the network is "
                        "quantized already; ");
    cr_assert(!strstr(job.err, "constants alone"), "%s", job.err);
}

/* The numbers of a member of golden samples. */
static float *golden(const char *path, const char *member, const char *shape)
{
    oct_zip *zip = NULL;
    oct_span span;
    oct_array array;
    float *numbers;
    cr_assert(oct_zip_open(&zip, path) == OCT_OK, "%s", oct_error_message(0));
    cr_assert(oct_zip_member(zip, member, &span) == OCT_OK, "%s", oct_error_message(0));
    cr_assert(oct_npy_take(&array, &span, member, NULL) == OCT_OK, "%s", oct_error_message(0));
    oct_zip_close(&zip);
    cr_assert(array.kind == 'f' && array.bytes == sizeof(float));
    cr_assert_str_eq(oct_text_shape(&array.shape).text, shape);
    const int64_t numel = oct_shape_numel(&array.shape);
    cr_assert(oct_alloc(&numbers, (size_t)numel, sizeof *numbers) == OCT_OK);
    cr_assert(oct_array_read(&array, 0, array.shape.dim[0], numbers) == OCT_OK);
    oct_array_close(&array);
    return numbers;
}

/* tests/io/guest.c tries more by command. */
Test(export, a_model_is_a_guest_where_memory_runs_out_after_a_fork_and_in_threads)
{
    must(OCT_BINARY_DIR "/octet export " MODEL " --format flat --output net.flat --quiet");
    must("set -e; g=" OCT_BINARY_DIR "/tests/io/guest; $g alloc 40 net.flat; $g alloc 5 " MODEL
         "; $g fork 3 " MODEL "; $g threads 20 net.flat");
}

Test(export, golden_samples_are_those_of_the_model)
{
    enum { COUNT = 8, CLASSES = 10, IMAGE = 12 * 12 };
    oct_model model;
    oct_runtime *runtime = NULL;
    float logits[CLASSES];
    export_to(MODEL, "onnx", "a.onnx");
    float *input = golden("a.onnx.golden.npz", "input.npy", "(8, 1, 12, 12)");
    float *output = golden("a.onnx.golden.npz", "output.npy", "(8, 10)");
    cr_assert(oct_model_load(&model, MODEL, false) == OCT_OK, "%s", oct_error_message(0));
    cr_assert_arr_eq(input, model.golden_input, COUNT * IMAGE * sizeof(float));
    cr_assert(oct_runtime_create(&runtime, &model.program,
                                 &(oct_runtime_options){.host = &oct_module_fallbacks}) == OCT_OK);
    for (int i = 0; i < COUNT; i++) {
        const float *image = input + i * IMAGE;
        cr_assert(oct_runtime_run(runtime, 1, &image, logits) == OCT_OK);
        cr_assert_arr_eq(output + i * CLASSES, logits, sizeof logits);
    }
    oct_runtime_destroy(&runtime);
    oct_model_free(&model);
    oct_free(&input);
    oct_free(&output);
}

Test(export, pixels_go_in_as_bytes_that_become_the_same_values)
{
    oct_onnx_graph g;
    OCTET("export", MODEL, "--format", "onnx", "-o", "a.onnx", "--pixels");
    oct_check_exit(job, 0);
    cr_assert(oct_onnx_read(&g, "a.onnx") == OCT_OK, "%s", oct_error_message(0));
    cr_assert_eq(g.values[g.inputs[0]].dtype, OCT_U8);
    cr_assert_eq(count_nodes(&g, "Cast"), 1);
    oct_onnx_free(&g);
}

Test(export, tflite_is_for_int8_models_and_says_what_may_differ)
{
    void *bytes[2] = {NULL};
    size_t size[2];
    OCTET("export", MODEL, "--format", "tflite", "-o", "a.tflite");
    oct_check_exit(job, 0);
    oct_check_said(job,
                   "head.2: hands over floats, which TFLite computes in floats: outputs differ");
    export_to(MODEL, "tflite", "b.tflite");
    cr_assert(oct_file_read("a.tflite", 1 << 28, &bytes[0], &size[0]) == OCT_OK);
    cr_assert(oct_file_read("b.tflite", 1 << 28, &bytes[1], &size[1]) == OCT_OK);
    cr_assert(size[0] == size[1] && memcmp(bytes[0], bytes[1], size[0]) == 0);
    cr_assert_arr_eq((const char *)bytes[0] + 4, "TFL3", 4);
    oct_free(&bytes[0]);
    oct_free(&bytes[1]);
    float *input = golden("a.tflite.golden.npz", "input.npy", "(8, 12, 12, 1)");
    oct_free(&input);
    OCTET("export", "run", "--format", "tflite", "-o", "c.tflite");
    oct_check_exit(job, 2);
    oct_check_said(job, "command line: --format tflite: is for int8 models, but run is a ");
    OCTET("export", MODEL, "--format", "onnx", "-o", "c.onnx", "--codes");
    oct_check_exit(job, 2);
    oct_check_said(job, "command line: --codes is for formats whose inputs and outputs may be");
    cr_assert(!oct_file_exists("c.tflite") && !oct_file_exists("c.onnx"));
}

/* What commands say of a flat file is what they say of its model, but for its name. */
Test(export, commands_read_a_flat_file_as_the_model_that_it_was_made_of)
{
    static const char *const commands[] = {
        "inspect",
        "inspect --json",
        "inspect --device",
        "verify",
        "verify --json",
        "check",
        "eval --json",
        "compare --json run",
        "export --format c -o x",
        "export --format flat -o y.flat",
        "run --json --input data/t10k-images-idx3-ubyte --count 40",
    };
    export_to(MODEL, "flat", "run/a.flat");
    for (size_t i = 0; i < OCT_COUNT(commands); i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "for f in run/a.flat " MODEL "; do rm -f x.c x.h y.flat; " OCT_PROGRAM
                 " %s $f >$(basename $f).said 2>&1; "
                 "echo status $? >>$(basename $f).said; cat x.c x.h y.flat 2>/dev/null "
                 ">>$(basename $f).said; "
                 "done 2>&1; sed -i -E 's/run.(a.flat|model.int8.h5)//; "
                 "/size  |sha256|SHA256|\"bytes\"|per_s|ms_per/d' *.said; cmp *.said && "
                 "grep -aq 'status 0' a.flat.said",
                 commands[i]);
        shell(line);
        cr_assert_eq(job.exit_code, 0, "%s: %s%s", commands[i], job.out, job.err);
    }
    OCTET("verify", "run/a.flat");
    oct_check_said(job, "verified: 8 golden inputs, all ");
    oct_check_said(job, "verified: 40 test images: every logit as QAT evaluation computed it");
}

Test(export, a_network_that_was_not_trained_is_known_as_such)
{
    void *recipe = NULL;
    size_t length;
    OCTET("train", "r.yaml", "output=new", "float.epochs=0", "checkpoint.every=1",
          "checkpoint.keep=9");
    oct_check_exit(job, 0);
    oct_check_said(job, "float.epochs: is 0, but cnn-small has seen no data yet (its ");
    export_to("new/checkpoints/step-00000001.h5", "onnx", "new.onnx"); /* of the calibration */
    OCTET("import", "new.onnx", "-o", "net");
    oct_check_exit(job, 0);
    oct_check_said(job,
                   "untrained   its batch norms have seen no data (mean 0, variance 1): train");
    cr_assert(oct_file_read("net/recipe.yaml", 1 << 16, &recipe, &length) == OCT_OK);
    cr_assert(strstr(recipe, "  epochs: 10 # the network was not trained yet\n"));
    oct_free(&recipe);
}
