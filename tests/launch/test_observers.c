/* Observers that count, in runs: on any number of ranks what was counted is the same to the last value, and so is all
 * that follows from it, through training and a resume. */
#include "quant/observer/observer.h"
#include "tests/launch/checkpoint_items.h"
#include "tests/launch/small_data.h"
#include "tests/support/mpirun.h"

TestSuite(observers, .init = enter_with_data, .fini = leave_folder, .timeout = 300);

static void train(const char *observer, int ranks, const char *epochs)
{
    char key[64], output[64];
    snprintf(key, sizeof key, "quant.observer=%s", observer);
    snprintf(output, sizeof output, "output=%s%d", observer, ranks);
    oct_process_free(&job);
    job = oct_mpirun(ranks, 120, OCT_PROGRAM, "train", "r.yaml", "calibrate.batches=2",
                     "checkpoint.keep=9", "evaluate.every=0", key, output, epochs, NULL);
    oct_check_exit(job, 0);
}

static void check_same(const char *observer, int ranks)
{
    char line[400];
    snprintf(line, sizeof line,
             "cd %s%d && for f in checkpoints/*.h5 model.int8.h5; do cmp $f ../%s1/$f || exit 1; "
             "done && [ $(ls checkpoints/*.h5 | wc -l) -gt 2 ]",
             observer, ranks, observer);
    must(line);
}

/* Two batches of 32 images of 12 x 12 were counted at the input, and the 8 channels after the first layer. */
static void check_counts(const char *file)
{
    static int64_t count[OCT_HISTOGRAM_BINS];
    read_item(file, "state/quant/fake_quant/histogram", count, sizeof count);
    cr_assert_eq(oct_histogram_total(count), 2 * 32 * 144);
    read_item(file, "state/features/0/fake_quant/histogram", count, sizeof count);
    cr_assert_eq(oct_histogram_total(count) % (2 * 32 * 144), 0);
    cr_assert_gt(oct_histogram_total(count), 0);
}

Test(observers, count_the_same_on_some_ranks)
{
    static const int some[] = {1, 3, 2, 5};
    const size_t tried = oct_test_is_long() ? OCT_COUNT(some) : 2;
    for (size_t i = 0; i < tried; i++) {
        train("histogram", some[i], "qat.epochs=1");
        if (i > 0) check_same("histogram", some[i]);
    }
    check_counts("histogram3/checkpoints/step-00000005.h5");
    train("mse", 1, "qat.epochs=1");
    train("mse", 2, "qat.epochs=1");
    check_same("mse", 2);
    train("percentile", 1, "qat.epochs=1");
    train("percentile", 3, "qat.epochs=1");
    check_same("percentile", 3);
}

Test(observers, go_on_counting_where_a_run_was_stopped)
{
    train("mse", 1, "checkpoint.every=1");
    must("cp -r mse1 whole && cd mse1 && rm model.int8.h5 run.json metrics.jsonl "
         "checkpoints/manifest.json checkpoints/step-0000000[678].h5");
    train("mse", 1, "checkpoint.every=1");
    must("cmp mse1/model.int8.h5 whole/model.int8.h5 && grep -q resuming mse1/log.txt");
}

Test(observers, take_their_keys_from_the_recipe)
{
    OCTET("train", "r.yaml", "quant.observer=percentile", "quant.percentile=40");
    oct_check_exit(job, 2);
    oct_check_said(job, "quant.percentile");
    OCTET("train", "r.yaml", "quant.observer=percentile", "quant.percentile=70", "output=low");
    oct_check_exit(job, 0);
    OCTET("train", "r.yaml", "quant.observer=percentile", "output=high");
    oct_check_exit(job, 0);
    must("! cmp -s low/model.int8.h5 high/model.int8.h5");
    OCTET("inspect", "--tree", "low");
    oct_check_said(job, "observer=percentile");
}
