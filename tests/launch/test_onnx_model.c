/* Runs that train the network of an ONNX file: the same files on any number of ranks, through kill -9, and after
 * the file is removed; and the messages for files that do not fit. */
#include "core/base/status.h"
#include "tests/launch/small_data.h"
#include "tests/support/mpirun.h"

#include <string.h>
#include <unistd.h>

#define ZOO OCT_SOURCE_DIR "/tests/golden/onnx/"
#define CASES OCT_SOURCE_DIR "/tests/golden/onnx_cases/"

static const char *const recipe = "output: new\n"
                                  "model: {onnx: net.onnx}\n"
                                  "data: {format: cifar10, path: cifar}\n"
                                  "batch: {size: 16, leaf: 4}\n"
                                  "float: {epochs: 1, lr: 0.001}\n"
                                  "calibrate: {batches: 1}\n"
                                  "qat: {epochs: 2, lr: 0.001}\n"
                                  "checkpoint: {every: 2, keep: 20}\n";

static void enter(void)
{
    enter_folder();
    must("mkdir cifar && cp " ZOO "resnet8.onnx net.onnx");
    small_cifar("cifar");
    FILE *file = small_create(".", "r.yaml");
    fputs(recipe, file);
    fclose(file);
}

TestSuite(onnx_model, .init = enter, .fini = leave_folder, .timeout = 240);

static void train(const char *output, const char *ranks)
{
    char word[64];
    snprintf(word, sizeof word, "output=%s", output);
    OCTET("train", "r.yaml", word, "--ranks", ranks, "-q");
    oct_check_exit(job, 0);
}

static void check_same(const char *a, const char *b)
{
    char command[256];
    snprintf(
        command, sizeof command,
        "cmp %s/model.int8.h5 %s/model.int8.h5 && for c in $(ls %s/checkpoints | grep step); do "
        "cmp %s/checkpoints/$c %s/checkpoints/$c || exit 1; done",
        a, b, a, a, b);
    must(command);
}

Test(onnx_model, has_the_same_files_on_any_number_of_ranks)
{
    train("one", "1");
    train("three", "3");
    check_same("one", "three");
    if (!oct_test_is_long()) return;
    train("two", "2");
    check_same("one", "two");
}

Test(onnx_model, is_looked_at_by_every_command_when_its_file_has_gone)
{
    train("one", "1");
    must("cmp net.onnx one/model.onnx && rm net.onnx");
    {
        OCTET("eval", "one");
        oct_check_exit(job, 0);
    }
    {
        OCTET("convert", "one", "-o", "again.h5", "-q");
        oct_check_exit(job, 0);
        must("cmp again.h5 one/model.int8.h5");
    }
    {
        OCTET("inspect", "one", "--tree");
        oct_check_exit(job, 0);
        oct_check_said(job, "(fc): qat_conv");
    }
    {
        OCTET("verify", "one/model.int8.h5");
        oct_check_exit(job, 0);
    }
    {
        OCTET("compare", "one", "one/model.int8.h5");
        oct_check_exit(job, 0);
        oct_check_said(job, "every layer is the same, bit for bit");
    }
    {
        OCTET("sensitivity", "one", "-o", "table");
        oct_check_exit(job, 0);
    }
    must("cp one/checkpoints/step-00000010.h5 alone.h5");
    {
        OCTET("eval", "alone.h5", "--data", "cifar");
        oct_check_exit(job, 3);
        oct_check_said(job, "put the file beside the checkpoint as model.onnx");
    }
    must("cp one/model.onnx .");
    OCTET("eval", "alone.h5", "--data", "cifar");
    oct_check_exit(job, 0);
}

Test(onnx_model, is_resumed_after_kill_9_without_its_file)
{
    train("whole", "1");
    must(OCT_PROGRAM " train r.yaml output=killed -q & pid=$!\n"
                     "while [ ! -e killed/checkpoints/step-00000004.h5 ]; do sleep 0.01; done\n"
                     "kill -9 $pid; wait $pid; rm -f net.onnx killed/model.int8.h5\n");
    OCTET("train", "r.yaml", "output=killed", "--ranks", "2");
    oct_check_exit(job, 0);
    oct_check_said(job, "net.onnx is gone; using the run's copy");
    check_same("whole", "killed");
}

Test(onnx_model, starts_quantized_from_the_weights_of_the_file)
{
    OCTET("train", "r.yaml", "float.epochs=0", "qat.epochs=1", "qat.lr=0.000001");
    oct_check_exit(job, 0);
    oct_check_said(job, "logits that differ           0 of");
}

/* The last layer may be a convolution in front of a pool. */
/* Whether a file has this text, as a word of its own. */
static void has(const char *file, const char *text)
{
    char command[256];
    snprintf(command, sizeof command, "grep -aqw -- '%s' %s", text, file);
    must(command);
}

/* The output is called like a layer, which steps aside where each has a tensor. */
Test(onnx_model, keeps_the_names_of_its_input_and_output)
{
    static const char *const formats[] = {"onnx", "tflite"};
    OCTET("train", "r.yaml", "model.onnx=" CASES "tied_conv.onnx", "data.size=4",
          "model.new_head=true", "output=one", "-q");
    oct_check_exit(job, 0);
    {
        OCTET("export", "one", "--format", "onnx", "-o", "float.onnx");
        oct_check_exit(job, 0);
    }
    {
        OCTET("import", "float.onnx");
        oct_check_said(job, "inputs      image f32 (N, 3, 4, 4)\n");
        oct_check_said(job, "outputs     far f32 (N, 10)\n");
    }
    for (int i = 0; i < 2; i++) {
        OCTET("export", "one/model.int8.h5", "--format", formats[i], "--all-values", "-o",
              formats[i]);
        oct_check_exit(job, 0);
        has(formats[i], "image");
        has(formats[i], "far");
        has(formats[i], "far_");
        must("rm *.golden.npz");
    }
    OCTET("export", "one/model.int8.h5", "--format", "c", "-o", "net.c");
    oct_check_exit(job, 0);
    has("net.h", "The output is far of the network");
}

Test(onnx_model, learns_a_new_convolution_for_other_classes)
{
    OCTET("train", "r.yaml", "model.onnx=" ZOO "squeezenet1_1.onnx", "data.classes=12",
          "model.new_head=true", "-q");
    oct_check_exit(job, 0);
}

Test(onnx_model, learns_a_new_last_layer_for_other_classes)
{
    OCTET("train", "r.yaml", "model.onnx=" ZOO "mobilenet_v1.onnx", "data.size=48",
          "model.new_head=true", "output=one", "-q");
    oct_check_exit(job, 0);
    {
        OCTET("train", "r.yaml", "model.onnx=" ZOO "mobilenet_v1.onnx", "data.size=48",
              "model.new_head=true", "output=two", "--ranks", "2", "-q");
        oct_check_exit(job, 0);
    }
    check_same("one", "two");
    OCTET("eval", "one");
    oct_check_exit(job, 0);
}

/* PyTorch 2.x writes the weights into a file of their own. */
Test(onnx_model, may_have_its_data_beside_it)
{
    static const char *const more[] = {"1", "3", "2"};
    const size_t runs = oct_test_is_long() ? 3 : 2;
    must("cp " CASES "torch2_dynamo.onnx net.onnx && cp " CASES "torch2_dynamo.onnx.data .");
    for (size_t i = 0; i < runs; i++) {
        char output[32];
        snprintf(output, sizeof output, "output=ranks%s", more[i]);
        OCTET("train", "r.yaml", "data.size=12x10", "model.new_head=true", output, "--ranks",
              more[i], "-q");
        oct_check_exit(job, 0);
    }
    check_same("ranks1", "ranks3");
    if (runs > 2) check_same("ranks1", "ranks2");
    {
        OCTET("import", "net.onnx", "-o", "imported");
        oct_check_exit(job, 0);
        must("cmp imported/model.onnx ranks1/model.onnx");
    }
    must("printf x | dd of=torch2_dynamo.onnx.data bs=1 seek=100 conv=notrunc 2> dd.txt");
    {
        OCTET("train", "r.yaml", "data.size=12x10", "model.new_head=true", "output=ranks1");
        oct_check_exit(job, 2);
        oct_check_said(job, "model.onnx_sha256");
    }
    must("rm net.onnx torch2_dynamo.onnx.data");
    OCTET("eval", "ranks3/checkpoints", "--data", "cifar");
    oct_check_exit(job, 0);
}

Test(onnx_model, is_the_one_that_the_run_began_with)
{
    train("new", "1");
    must("cp " ZOO "mobilenet_v2.onnx net.onnx");
    OCTET("train", "r.yaml");
    oct_check_exit(job, 2);
    oct_check_said(job, "model.onnx_sha256");
}

static const struct {
    const char *word, *more, *said;
    int exit;
} mistakes[] = {
    {"model.onnx=there.onnx", NULL, "model.onnx: there.onnx", 3},
    {"model.onnx=r.yaml", NULL, "is no ONNX file", 3},
    {"model.name=cnn-small", NULL, "keep one of them", 2},
    {"model.onnx=" ZOO "mobilenet_v1.onnx", "data.size=48",
     "has 2 outputs, but the data 10 classes; write model.new_head: true", 2},
    {"model.onnx=" CASES "joined.onnx", "model.new_head=true",
     "by no way back to a linear layer or a convolution of its own", 4},
    {"model.onnx=" ZOO "unet.onnx", NULL, "gives 1024 rows of outputs for a sample", 2},
    {"model.output=second", NULL, "has no output 'second'; its first one is", 2},
    {"quant.method=eager", NULL, "net.onnx does not name its fusions", 2},
    {"model.onnx_sha256="
     "0000000000000000000000000000000000000000000000000000000000000000",
     NULL, "leave model.onnx_sha256 out, or name the file that it is of", 2},
};

Test(onnx_model, that_does_not_fit_is_refused_with_the_remedy)
{
    for (size_t i = 0; i < OCT_COUNT(mistakes); i++) {
        OCTET("train", "r.yaml", mistakes[i].word, mistakes[i].more ? mistakes[i].more : "seed=1",
              i < 2 || oct_test_is_long() ? "--ranks=2" : NULL);
        oct_check_exit(job, mistakes[i].exit);
        oct_check_said(job, mistakes[i].said);
        cr_assert(access("new", F_OK) != 0, "%s left a folder", mistakes[i].word);
    }
}
