/* octet check: what it predicts is what a run takes, and what cannot be is refused with a remedy. */
#define PROGRAM_SECONDS 250
#include "core/base/status.h"
#include "tests/launch/small_data.h"

#include <jansson.h>
#include <string.h>
#include <sys/resource.h>

static void set_up(void)
{
    enter_folder();
    must("mkdir data");
    small_idx("data", "train", 192, 28);
    small_idx("data", "t10k", 96, 28);
    oct_tmp_write_text(
        &tmp, "r.yaml",
        "schema: 1\noutput: new\nmodel:\n  name: cnn-small\ndata:\n  path: data\nbatch:\n"
        "  size: 64\n  leaf: 8\nfloat:\n  epochs: 1\n  lr: 0.01\ncalibrate:\n  batches: 1\n"
        "qat:\n  epochs: 1\nthreads: 1\n");
}

TestSuite(check, .init = set_up, .fini = leave_folder, .timeout = 600);

static json_int_t said(const char *name)
{
    json_error_t error;
    json_t *document = json_loads(job.out, 0, &error);
    cr_assert_not_null(document, "%s\n%s", error.text, job.out);
    const json_t *value = json_object_get(document, name);
    cr_assert(json_is_integer(value), "%s\n%s", name, job.out);
    json_int_t number = json_integer_value(value);
    json_decref(document);
    return number;
}

/* Of the largest process that this one has waited for so far, or that its children have. */
static double peak_of_children(void)
{
    struct rusage usage;
    cr_assert_eq(getrusage(RUSAGE_CHILDREN, &usage), 0);
    return 1024.0 * (double)usage.ru_maxrss;
}

static void check_prediction(const char *keys, const char *ranks)
{
    char line[400];
    snprintf(line, sizeof line, OCT_PROGRAM " train r.yaml %s %s", keys, ranks);
    shell(line);
    oct_check_exit(job, 0);
    const double measured = peak_of_children();
    snprintf(line, sizeof line, OCT_PROGRAM " check r.yaml --json %s %s", keys, ranks);
    shell(line);
    oct_check_exit(job, 0);
    const double predicted = (double)said("memory_bytes");
    cr_assert_float_eq(predicted / measured, 1, 0.1, "%s: predicted %.1f MB, measured %.1f", keys,
                       1e-6 * predicted, 1e-6 * measured);
}

Test(check, predicts_memory_within_a_tenth_on_one_rank)
{
    check_prediction("model.name=resnet20", "");
}

Test(check, and_on_two)
{
    check_prediction("model.name=resnet20 batch.size=96 float.epochs=2 data.test_limit=16",
                     "--ranks 2");
}

Test(check, says_of_which_stage_the_peak_is)
{
    shell(OCT_PROGRAM " check r.yaml");
    oct_check_exit(job, 0);
    oct_check_said(job, "MB a rank at most, in training in float; ");
    oct_check_said(job, "  calibration   ");
    oct_check_said(job, "  QAT   ");
    oct_check_said(job, "  evaluation   ");
    oct_check_said(job, "  conversion   ");
    oct_check_said(job, " ms a step\n");
    oct_check_said(job, "OK          ready to train\n");
}

/* The limit simulates a small machine. Data and libraries take less than half of it. */
Test(check, refuses_what_does_not_fit_into_memory)
{
    shell("ulimit -v 200000; " OCT_PROGRAM " check r.yaml batch.size=192");
    oct_check_exit(job, 7);
    oct_check_said(job, "memory: 1 rank needs about ");
    oct_check_said(job, " MB are free; use a smaller batch.size, a smaller model or more machines");
    cr_assert_null(strstr(job.out, "ready to train"));
    shell("ulimit -v 160000; " OCT_PROGRAM " check r.yaml batch.size=192 batch.leaf=192");
    oct_check_exit(job, 7);
    oct_check_said(job, "memory: not even 192 images of 28x28 at a time can be trained in the ");
    oct_check_said(job, "use a smaller batch.leaf, ");
}

/* HDF5 that accepts no driver simulates another version of it. */
Test(check, and_training_refuse_a_library_that_writes_no_checkpoints)
{
    static const char *const commands[] = {"check r.yaml", "train r.yaml"};
    for (size_t i = 0; i < OCT_COUNT(commands); i++) {
        char line[500];
        snprintf(line, sizeof line,
                 "LD_PRELOAD=" OCT_BINARY_DIR "/tests/libfail_nth.so OCT_FAIL_CALL=driver "
                 "OCT_FAIL_AT=1 exec " OCT_PROGRAM " %s",
                 commands[i]);
        shell(line);
        oct_check_exit(job, 7);
        oct_check_said(job, "an HDF5 image cannot be made: HDF5 1.");
        oct_check_said(job, "; build Octet again on this machine");
        cr_assert_null(strstr(job.err, "step"), "%s", job.err);
    }
}

/* An empty file is found before the installed library. */
Test(check, and_training_want_openblas_where_a_recipe_or_the_environment_asks_for_it)
{
    must("mkdir none && : >none/libopenblas.so.0");
    setenv("LD_LIBRARY_PATH", "none", 1);
    static const char *const commands[] = {"check", "train"};
    for (size_t i = 0; i < OCT_COUNT(commands); i++) {
        OCTET(commands[i], "r.yaml", "quant.rounding=gptq");
        oct_check_exit(job, 7);
        oct_check_said(job, "quant.rounding: gptq: OpenBLAS cannot be loaded: ");
        oct_check_said(job, "install it (Debian: libopenblas0)");
        must("! test -e new");
    }
    setenv("OCT_ISA", "blas", 1);
    OCTET("check", "r.yaml");
    oct_check_exit(job, 7);
    oct_check_said(job, "OCT_ISA=blas: OpenBLAS cannot be loaded: ");
    unsetenv("OCT_ISA");
    OCTET("check", "r.yaml", "data.test_limit=8", "batch.size=16");
    oct_check_exit(job, 0);
}

Test(check, refuses_ranks_that_fit_alone_but_not_together)
{
    shell("ulimit -v 400000; " OCT_PROGRAM " check r.yaml batch.size=64 --ranks 8");
    oct_check_exit(job, 7);
    oct_check_said(job, "memory: 8 ranks need about ");
    oct_check_said(job, "use a smaller batch.size, fewer ranks on this machine or more machines");
}

Test(check, refuses_what_does_not_fit_onto_the_disk)
{
    shell("LD_PRELOAD=" OCT_BINARY_DIR "/tests/libfail_nth.so OCT_DISK_FREE=1000000000 "
          "exec " OCT_PROGRAM " check r.yaml checkpoint.keep=1000 data.test_limit=8 batch.size=16");
    oct_check_exit(job, 7);
    oct_check_said(job, "output: the run's files take about ");
    oct_check_said(job, "choose another output, or a smaller checkpoint.keep (now 1000)");
}

Test(check, finds_a_plan_without_qat_and_a_batch_beyond_the_data)
{
    shell(OCT_PROGRAM " check r.yaml qat.epochs=0 data.test_limit=8 batch.size=16");
    oct_check_exit(job, 1);
    oct_check_said(job, "qat.epochs: 0, so nothing is trained as the int8 model that it will be");
    shell(OCT_PROGRAM " check r.yaml data.test_limit=8 batch.size=256 data.train_limit=24 --json");
    oct_check_exit(job, 1);
    oct_check_said(job, "batch.size: 256, but there are only 24 training images");
    cr_assert(said("memory_bytes") > 0);
}

/* A layer that stays float has no form in most formats, which training would show only at its end. */
Test(check, and_training_say_which_exports_there_will_be)
{
    shell(OCT_PROGRAM
          " check r.yaml data.test_limit=8 batch.size=16 'quant.float_layers=[features.7]'");
    oct_check_exit(job, 0);
    oct_check_said(job,
                   "exports     onnx\n            no c: features.7: C has no form for the step "
                   "float ");
    shell(OCT_PROGRAM
          " check r.yaml data.test_limit=8 batch.size=16 'export.formats=[onnx, c, tflite, flat]'");
    oct_check_exit(job, 0);
    oct_check_said(job, "exports     onnx, c, tflite, flat\n");
    shell(OCT_PROGRAM " train r.yaml 'quant.float_layers=[features.7]' 'export.formats=[c]'");
    oct_check_exit(job, 4);
    oct_check_said(job, "export.formats: no c: features.7: C has no form");
}

/* Groups of leaves that are inside ranks, or are not. */
Test(check, counts_the_synchronizations_of_ranks_and_names_the_group_that_leaves_three)
{
    shell(OCT_PROGRAM " check r.yaml data.test_limit=8 batch.leaf=4 --ranks 8 --json");
    oct_check_exit(job, 0);
    const json_int_t whole = said("syncs_per_step");
    cr_assert(whole > 3 && whole % 2 == 1, "%d", (int)whole);
    shell(OCT_PROGRAM " check r.yaml data.test_limit=8 batch.leaf=8 batch.size=128 --ranks 8");
    oct_check_exit(job, 0);
    cr_assert(strstr(job.out, "; batch_norm.group=16 leaves 3\n"), "%s", job.out);
    shell(OCT_PROGRAM
          " check r.yaml data.test_limit=8 batch.size=128 --ranks 8 batch_norm.group=16 --json");
    oct_check_exit(job, 0);
    cr_assert_eq(said("syncs_per_step"), 3);
    shell(OCT_PROGRAM
          " check r.yaml data.test_limit=8 batch.size=128 --ranks 8 batch_norm.group=32 --json");
    oct_check_exit(job, 0);
    cr_assert_eq(said("syncs_per_step"), whole);
}

Test(check, compares_the_gradients_of_a_checkpoint_with_those_of_float32)
{
    shell(OCT_PROGRAM " train r.yaml numerics=int8 checkpoint.every=2 checkpoint.keep=9 "
                      "batch.size=32 data.train_limit=96");
    oct_check_exit(job, 0);
    shell(OCT_PROGRAM " check new --gradients 2 --json");
    oct_check_exit(job, 0);
    json_t *document = json_loads(job.out, 0, NULL);
    const json_t *rows = json_object_get(document, "weights");
    cr_assert_gt(json_array_size(rows), 4, "%s", job.out);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const double cosine = json_number_value(json_object_get(row, "cosine"));
        const double error = json_number_value(json_object_get(row, "error"));
        const double projection = json_number_value(json_object_get(row, "projection"));
        cr_assert(cosine > 0.99 && error < 0.1 && projection > 0.95 && projection < 1.05, "%s",
                  job.out);
        if (i + 1 == json_array_size(rows)) cr_assert(error > 1e-4, "nothing was rounded");
    }
    json_decref(document);
    shell(OCT_PROGRAM " check new/checkpoints/step-00000002.h5 --gradients 1");
    oct_check_exit(job, 4);
    oct_check_said(job, "is of the phase float; take a checkpoint of QAT");
}
