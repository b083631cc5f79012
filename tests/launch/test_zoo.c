/* Every model of the zoo through the real program: the int8 model is the QAT model bit for bit (a run
 * ends with that certificate or fails), final checkpoint and model are the same bytes on other numbers
 * of ranks, and the methods of prepare train the same bits.
 *
 * Made-up images of 32 x 32 in CIFAR-10's layout, a few steps in each phase. Each model whose blocks no other has
 * gets a run on one rank. Ranks and methods are judged where a model has something that the ones before it lack;
 * with OCT_LONG=1 each model has all of them, on 1, 2 and 3 ranks.
 */
#include "io/model/model_file.h"
#include "tests/support/mpirun.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static oct_tmp tmp;

static void make_data(void)
{
    enum { RECORD = 3073, RECORDS = 8 };
    static unsigned char bytes[RECORDS * RECORD];
    static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
    uint32_t state = 1;
    oct_tmp_create(&tmp);
    for (int file = 0; file < 6; file++) {
        for (int i = 0; i < RECORDS * RECORD; i++) {
            state = state * 1664525u + 1013904223u;
            bytes[i] = i % RECORD == 0
                           ? (unsigned char)(state >> 24) % 10
                           : (unsigned char)(bytes[i - i % RECORD] * 16 + (state >> 26));
        }
        char name[64];
        snprintf(name, sizeof name, "cifar/%s", names[file]);
        oct_tmp_write(&tmp, name, bytes, sizeof bytes);
    }
}

static void remove_data(void)
{
    oct_tmp_remove(&tmp);
}

TestSuite(zoo, .init = make_data, .fini = remove_data, .timeout = 500);

/* Keys of a run's size: a whole batch and one of a single leaf make an epoch. */
typedef struct amount {
    const char *batch, *leaf, *images, *epochs;
} amount;

static const amount little = {"batch.size=8", "batch.leaf=2", "data.train_limit=10",
                              "float.epochs=1"},
                    more = {"batch.size=16", "batch.leaf=4", "data.train_limit=20",
                            "float.epochs=4"},
                    no_float = {"batch.size=16", "batch.leaf=4", "data.train_limit=20",
                                "float.epochs=0"};

/* init: the folder of the run whose float phase is gone on from, or "null". */
static void train_for(const amount *a, const char *init, const char *model, const char *method,
                      int ranks, const char *name)
{
    char path[600], model_key[64], method_key[64], init_key[600], output[600];
    snprintf(init_key, sizeof init_key, "init=%s", init);
    snprintf(path, sizeof path, "data.path=%s", oct_tmp_path(&tmp, "cifar"));
    snprintf(model_key, sizeof model_key, "model.name=%s", model);
    snprintf(method_key, sizeof method_key, "quant.method=%s", method);
    snprintf(output, sizeof output, "output=%s", oct_tmp_path(&tmp, name));
    oct_process job = oct_mpirun(
        ranks, 200, OCT_PROGRAM, "train", OCT_SOURCE_DIR "/launch/recipes/cifar10-resnet20.yaml",
        model_key, method_key, path, output, a->batch, a->leaf, a->images, a->epochs,
        "data.test_limit=6", init_key, "float.warmup=0", "float.lr=0.01", "calibrate.batches=1",
        "qat.epochs=2", "checkpoint.every=100", "evaluate.every=0", NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
}

static void train(const char *model, const char *method, int ranks, const char *name)
{
    train_for(&little, "null", model, method, ranks, name);
}

/* A bash script, whose $1 and $2 are the folders of two runs, ends well. */
static void compare_runs(const char *a, const char *b, const char *script, const char *what)
{
    char first[600], second[600];
    snprintf(first, sizeof first, "%s", oct_tmp_path(&tmp, a));
    snprintf(second, sizeof second, "%s", oct_tmp_path(&tmp, b));
    oct_process job = oct_process_run(60, "/bin/bash", "-c", script, "check", first, second, NULL);
    cr_assert(job.exit_code == 0, "%s: %s and %s differ\n%s%s", what, a, b, job.out, job.err);
    oct_process_free(&job);
}

/* Two models compute the same: every value of the golden inputs, layer by layer, and all logits. */
static void check_same_codes(const char *a, const char *b)
{
    oct_model first, second;
    char path[600];
    snprintf(path, sizeof path, "%s/model.int8.h5", oct_tmp_path(&tmp, a));
    cr_assert_eq(oct_model_load(&first, path, false), OCT_OK, "%s", oct_error_message(0));
    snprintf(path, sizeof path, "%s/model.int8.h5", oct_tmp_path(&tmp, b));
    cr_assert_eq(oct_model_load(&second, path, false), OCT_OK, "%s", oct_error_message(0));
    cr_assert_eq(first.program.num_values, second.program.num_values, "%s", b);
    cr_assert_eq(first.certificate.golden_count, second.certificate.golden_count);
    size_t bytes = (size_t)(first.certificate.golden_count * first.program.num_values) * 32;
    cr_assert_arr_eq(first.golden_digest, second.golden_digest, bytes, "values of %s", b);
    cr_assert_arr_eq(first.certificate.logits_digest, second.certificate.logits_digest, 32,
                     "logits of %s", b);
    oct_model_free(&second);
    oct_model_free(&first);
}

typedef enum eager_kind {
    NOT_EAGER,
    EAGER,         /* trains, but fuses other sums than graphs do */
    EAGER_AS_GRAPH /* trains the same bits: has no sums */
} eager_kind;

/* What is tried of a model beside its run on one rank. */
enum {
    RANKS = 1,         /* three ranks write the same files */
    METHODS = 2,       /* all methods, on one and two ranks */
    METHODS_APART = 4, /* without jit, which leads where jit_strip does */
};

static void check_ranks(const char *model, int ranks)
{
    char name[64];
    snprintf(name, sizeof name, "ranks%d", ranks);
    train(model, "jit_strip", ranks, name);
    compare_runs("ranks1", name,
                 "cmp \"$(ls $1/checkpoints/step-*.h5 | tail -n 1)\" "
                 "\"$(ls $2/checkpoints/step-*.h5 | tail -n 1)\"",
                 "last checkpoint");
    compare_runs("ranks1", name, "cmp $1/model.int8.h5 $2/model.int8.h5", "int8 model");
}

/* The recipe, and so the method, is in the files: what the models compute is compared. */
static void check_method(const char *model, const char *method, int ranks)
{
    train(model, method, ranks, method);
    check_same_codes("ranks1", method);
}

static void check_model(const char *model, eager_kind eager, int parts)
{
    const bool all = oct_test_is_long();
    if (all) parts = RANKS | METHODS;
    train(model, "jit_strip", 1, "ranks1");
    if (all) check_ranks(model, 2);
    if (parts & RANKS) check_ranks(model, 3);
    if (parts & METHODS) check_method(model, "jit", 1);
    if (parts & (METHODS | METHODS_APART)) check_method(model, "symbolic", 2);
    if (eager == NOT_EAGER || !(parts & (METHODS | METHODS_APART))) return;
    train(model, "eager", 1, "eager");
    if (eager == EAGER_AS_GRAPH) check_same_codes("ranks1", "eager");
}

/* No sums; test_invariance trains it on many ranks. */
Test(zoo, cnn_small)
{
    check_model("cnn-small", EAGER_AS_GRAPH, METHODS);
}

/* The layers of cnn-small, with many more parameters. */
Test(zoo, vgg11c)
{
    check_model("vgg11c", EAGER_AS_GRAPH, 0);
}

/* Sums with an activation; test_invariance trains it on many ranks. */
Test(zoo, resnet20)
{
    check_model("resnet20", EAGER, METHODS);
}

Test(zoo, resnet18c)
{
    if (!oct_test_is_long()) cr_skip_test("resnet20 has its blocks; OCT_LONG=1 trains it, too");
    check_model("resnet18c", EAGER, 0);
}

/* Depthwise layers, sums without an activation, ReLU6. */
Test(zoo, mobilenetv2c)
{
    check_model("mobilenetv2c", EAGER, METHODS_APART);
}

Test(zoo, mobilenetv2c_relu)
{
    if (!oct_test_is_long())
        cr_skip_test("mobilenetv2c has its blocks, resnet20 its activation; OCT_LONG=1 trains it, "
                     "too");
    check_model("mobilenetv2c-relu", EAGER, 0);
}

/* The blocks of resnet20 but for a third convolution. It is so deep that the running values of its batch norms
 * need some steps to mean anything; methods differ after the float phase only. */
Test(zoo, resnet50)
{
    if (!oct_test_is_long()) cr_skip_test("test_recipes trains it; OCT_LONG=1 does it here, too");
    train_for(&more, "null", "resnet50", "jit_strip", 1, "graph");
    train_for(&no_float, oct_tmp_path(&tmp, "graph"), "resnet50", "eager", 1, "eager");
}

/* Concatenation and interpolation. */
Test(zoo, fpn_small)
{
    check_model("fpn-small", NOT_EAGER, RANKS | METHODS);
}
