/* The second promise, through the real program: one recipe gives the same files on any number of
 * ranks and threads, and through kill -9 and a resume on another number of ranks.
 *
 * cnn-small runs on real Fashion-MNIST; resnet20 on made-up images in CIFAR-10's layout with random
 * crops and flips. In both a batch has eight leaves, so three ranks have shares that are no subtrees, and the last
 * batch of an epoch is a single leaf, so some ranks have none. All go through one rank and through three with two
 * threads, resnet20 also through two, cnn-small through two and four. tests/launch/matrix goes through 1 to 16 ranks and saves on some what others
 * go on from.
 */
#include "tests/support/mpirun.h"
#include "tests/support/tmp.h"

#include "core/base/cpu.h"
#include "core/base/rng.h"
#include "core/base/status.h"
#include "core/base/text.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FASHION OCT_SOURCE_DIR "/launch/recipes/fashion-mnist.yaml"
#define CIFAR OCT_SOURCE_DIR "/launch/recipes/cifar10-resnet20.yaml"

static oct_tmp tmp;

static void make_tmp(void)
{
    oct_tmp_create(&tmp);
}

static void remove_tmp(void)
{
    oct_tmp_remove(&tmp);
}

TestSuite(invariance, .init = make_tmp, .fini = remove_tmp, .timeout = 400);

/* A small data set in CIFAR-10's layout: noise whose brightness depends on the label. */
static void write_cifar(int records)
{
    enum { RECORD = 3073 };
    static unsigned char bytes[200 * RECORD];
    for (int file = 0; file < 6; file++) {
        for (int r = 0; r < records; r++) {
            unsigned char *record = bytes + r * RECORD;
            uint32_t draw[4];
            oct_philox(7, OCT_STREAM_TEST, (uint64_t)(file * 1000 + r), 0, draw);
            record[0] = (unsigned char)oct_below(draw[0], 10);
            for (int i = 1; i < RECORD; i++) {
                if (i % 4 == 1)
                    oct_philox(9, OCT_STREAM_TEST, (uint64_t)(file * 1000 + r), (uint32_t)i, draw);
                record[i] = (unsigned char)(draw[i % 4] % 64 + record[0] * 18);
            }
        }
        char name[64];
        if (file < 5)
            snprintf(name, sizeof name, "cifar/data_batch_%d.bin", file + 1);
        else
            snprintf(name, sizeof name, "cifar/test_batch.bin");
        oct_tmp_write(&tmp, name, bytes, (size_t)records * RECORD);
    }
}

/* The first images of Fashion-MNIST, as many as the largest run takes. */
static void write_fashion(void)
{
    char command[1024];
    if (access(oct_tmp_path(&tmp, "fashion"), F_OK) == 0) return;
    snprintf(command, sizeof command,
             ". " OCT_SOURCE_DIR "/tests/support/fashion.sh; fashion_cut %s 1000 100",
             oct_tmp_path(&tmp, "fashion"));
    oct_process job = oct_process_run(20, "/bin/bash", "-c", command, NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
}

static void check_same_file(const char *a, const char *b, const char *file)
{
    char command[2048];
    snprintf(command, sizeof command, "cmp %s/%s %s/%s", oct_tmp_path(&tmp, a), file,
             oct_tmp_path(&tmp, b), file);
    oct_process job = oct_process_run(20, "/bin/bash", "-c", command, NULL);
    cr_assert(job.exit_code == 0, "%s and %s differ: %s%s", a, b, job.out, job.err);
    oct_process_free(&job);
}

/* Every checkpoint that a run kept, and its int8 model. */
static void check_same_run(const char *a, const char *b)
{
    char command[2048];
    snprintf(
        command, sizeof command,
        "cd %s/checkpoints && test $(ls step-*.h5 | wc -l) -ge 2 && for f in step-*.h5; do cmp $f "
        "%s/checkpoints/$f || exit 1; done; diff <(ls *.h5) <(cd %s/checkpoints; ls *.h5)",
        oct_tmp_path(&tmp, a), oct_tmp_path(&tmp, b), oct_tmp_path(&tmp, b));
    oct_process job = oct_process_run(60, "/bin/bash", "-c", command, NULL);
    cr_assert(job.exit_code == 0, "checkpoints of %s and %s differ (exit %d): %s%s", a, b,
              job.exit_code, job.out, job.err);
    oct_process_free(&job);
    check_same_file(a, b, "model.int8.h5");
}

typedef struct setting {
    const char *recipe;
    const char *keys[20];
} setting;

static oct_process train(const setting *s, int ranks, int threads, const char *name)
{
    char output[512], count[32], data[512];
    const bool cifar = s->recipe[0] && strstr(s->recipe, "cifar");
    if (!cifar) write_fashion();
    snprintf(output, sizeof output, "output=%s", oct_tmp_path(&tmp, name));
    snprintf(count, sizeof count, "threads=%d", threads);
    snprintf(data, sizeof data, "data.path=%s", oct_tmp_path(&tmp, cifar ? "cifar" : "fashion"));
    const char *a[24] = {"train", s->recipe, output, count, data};
    int n = 5;
    for (int i = 0; s->keys[i]; i++)
        a[n++] = s->keys[i];
    return oct_mpirun(ranks, 180, OCT_PROGRAM, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8],
                      a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16], a[17], a[18], a[19],
                      a[20], NULL);
}

/* The first `count` of these ranks and threads; with OCT_LONG=1 all of them. */
static void check_ranks(const setting *s, int count)
{
    static const int runs[][2] = {{1, 1}, {3, 2}, {2, 2}, {4, 1}, {3, 1}, {2, 1}, {1, 2}};
    if (oct_test_is_long()) count = (int)OCT_COUNT(runs);
    for (int i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "ranks%d-threads%d", runs[i][0], runs[i][1]);
        oct_process job = train(s, runs[i][0], runs[i][1], name);
        oct_check_exit(job, 0);
        oct_process_free(&job);
        if (i > 0) check_same_run("ranks1-threads1", name);
    }
}

static const setting cnn = {
    .recipe = FASHION,
    .keys = {"batch.size=32", "data.train_limit=36", "batch.leaf=4", "data.test_limit=20",
             "float.epochs=1", "calibrate.batches=2", "qat.epochs=2", "checkpoint.every=3",
             "checkpoint.keep=4", "evaluate.every=0"},
};

static const setting resnet = {
    .recipe = CIFAR,
    .keys = {"batch.size=32", "batch.leaf=4", "data.train_limit=36", "data.test_limit=12",
             "float.epochs=1", "float.warmup=0", "float.numerics=bf16", "calibrate.batches=1",
             "qat.epochs=2", "checkpoint.every=3", "checkpoint.keep=4", "evaluate.every=0"},
};

/* The model holds nothing of the run's log: metrics.jsonl, and with it the float accuracy, is not
 * beside the copy. */
static void check_copy_converts(const char *name)
{
    char checkpoint[600], model[600], command[2048];
    snprintf(checkpoint, sizeof checkpoint, "%s/end.h5", oct_tmp_path(&tmp, "elsewhere"));
    snprintf(model, sizeof model, "%s/model.int8.h5", oct_tmp_path(&tmp, "elsewhere"));
    snprintf(command, sizeof command,
             "grep -q '\"float_accuracy\": *[0-9]' %s/metrics.jsonl && mkdir %s && "
             "cp $(ls %s/checkpoints/step-*.h5 | tail -n 1) %s",
             oct_tmp_path(&tmp, name), oct_tmp_path(&tmp, "elsewhere"), oct_tmp_path(&tmp, name),
             checkpoint);
    oct_process job = oct_process_run(20, "/bin/bash", "-c", command, NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
    job = oct_process_run(60, OCT_PROGRAM, "convert", checkpoint, "-o", model, NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
    check_same_file(name, "elsewhere", "model.int8.h5");
}

Test(invariance,
     cnn_small_gives_the_same_files_on_any_ranks_and_threads_and_from_a_copied_checkpoint)
{
    check_ranks(&cnn, 4);
    check_copy_converts("ranks1-threads1");
}

/* And with another instruction set than the best of this machine: other kernels, emulated bfloat16. */
Test(invariance,
     resnet20_with_crops_and_flips_gives_the_same_files_on_any_ranks_threads_and_instruction_set)
{
    static const char *const sets[] = {"avx512bf16", "avx512vnni", "avx2"};
    size_t first = OCT_COUNT(sets); /* that is less than this machine's: others are its own again */
    while (first > 0 && strcmp(sets[first - 1], oct_isa_best()) != 0)
        first--;
    write_cifar(30);
    check_ranks(&resnet, 3);
    for (size_t i = first; i < OCT_COUNT(sets); i++) {
        setenv("OCT_ISA", sets[i], 1);
        oct_process job = train(&resnet, 1, 1, sets[i]);
        oct_check_exit(job, 0);
        oct_process_free(&job);
        check_same_run("ranks1-threads1", sets[i]);
    }
}

static setting with(const setting *base, const char *a, const char *b)
{
    setting more = *base;
    int keys = 0;
    while (more.keys[keys])
        keys++;
    more.keys[keys] = a;
    more.keys[keys + 1] = b;
    return more;
}

/* Everything that is random about samples at once: transforms, noise, and labels that are mixed. */
Test(invariance, transforms_and_mixed_labels_give_the_same_files_on_any_ranks_and_threads)
{
    setting base = with(&resnet,
                        "data.train=[random_resized_crop 32 scale=0.3..1, rotate 10, "
                        "color_jitter 0.4 0.4 0.4 0.1, rand_augment, noise 0.02]",
                        "data.mixup=0.4");
    setting mixed = with(&base, "data.cutmix=1", "data.test=[resize 36, center_crop 32]");
    write_cifar(30);
    check_ranks(&mixed, 2);
}

/* OpenBLAS gives other bits than our kernels do, but the same ones to any share of a batch. */
Test(invariance, products_of_openblas_give_the_same_files_on_any_ranks_and_threads)
{
    static const setting small = {
        .recipe = FASHION,
        .keys = {"batch.size=32", "data.train_limit=36", "batch.leaf=4", "data.test_limit=10",
                 "float.epochs=2", "calibrate.batches=1", "qat.epochs=1", "checkpoint.every=2",
                 "checkpoint.keep=4", "evaluate.every=0"},
    };
    char command[1024];
    setenv("OCT_ISA", "blas", 1);
    check_ranks(&small, 2);
    snprintf(command, sizeof command,
             "grep -q '\"float_kernel\": \"OpenBLAS 0' %s/run.json && cat %s/run.json",
             oct_tmp_path(&tmp, "ranks3-threads2"), oct_tmp_path(&tmp, "ranks3-threads2"));
    oct_process job = oct_process_run(20, "/bin/bash", "-c", command, NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
    unsetenv("OCT_ISA");
    job = train(&small, 1, 1, "own");
    oct_check_exit(job, 0);
    oct_process_free(&job);
    snprintf(command, sizeof command, "cmp -s %s/model.int8.h5 %s/model.int8.h5",
             oct_tmp_path(&tmp, "own"), oct_tmp_path(&tmp, "ranks1-threads1"));
    job = oct_process_run(20, "/bin/bash", "-c", command, NULL);
    oct_check_exit(job, 1);
    oct_process_free(&job);
}

/* Two layers have codes of 16 bits. */
Test(invariance, int8_gradients_give_the_same_files_on_any_ranks_threads_and_instruction_set)
{
    setting codes = with(&resnet, "numerics=int8", "numerics_int16=[stem.0, blocks.4.add]");
    write_cifar(30);
    check_ranks(&codes, 2);
    setenv("OCT_ISA", "avx2", 1);
    oct_process job = train(&codes, 1, 1, "avx2");
    oct_check_exit(job, 0);
    oct_process_free(&job);
    check_same_run("ranks1-threads1", "avx2");
}

Test(invariance, a_recorded_graph_with_16_bits_gives_the_same_files_on_any_ranks_and_threads)
{
    setting recorded = with(&cnn, "quant.method=symbolic", "quant.bits=16");
    check_ranks(&recorded, 2);
}

Test(invariance, folding_in_training_gives_the_same_files_on_any_ranks_and_threads)
{
    setting folding = with(&cnn, "quant.method=jit", "qat.fold_batch_norm=true");
    check_ranks(&folding, 2);
}

Test(invariance, a_second_target_gives_the_same_files_on_any_ranks_and_threads)
{
    setting pow2 = with(&cnn, "quant.target=pow2", "quant.batch_norm=folded");
    check_ranks(&pow2, 2);
}

Test(invariance, one_scale_a_layer_gives_the_same_files_on_any_ranks_and_threads)
{
    setting per_tensor = with(&cnn, "quant.target=espdl-s3", "quant.batch_norm=folded");
    check_ranks(&per_tensor, 2);
}

Test(invariance, two_roundings_and_current_scales_give_the_same_files_on_any_ranks_and_threads)
{
    setting twice = with(&resnet, "quant.target=tflm", "quant.scales=current");
    write_cifar(30);
    check_ranks(&twice, 2);
}

/* Kills the whole job, mpirun first, as soon as the checkpoint of `step` is there. */
static void train_and_kill(const setting *s, int ranks, int step, const char *name)
{
    char keys[1024] = "", command[4096];
    for (int i = 0; s->keys[i]; i++)
        snprintf(keys + strlen(keys), sizeof keys - strlen(keys), " %s", s->keys[i]);
    const char *out = oct_tmp_path(&tmp, name);
    snprintf(
        command, sizeof command,
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1\n"
        "mpirun --oversubscribe --bind-to none -n %d %s train %s data.path=%s%s output=%s "
        "</dev/null "
        ">/dev/null 2>&1 &\n"
        "for i in $(seq 3000); do [ -e %s/checkpoints/step-%08d.h5 ] && break; sleep 0.02; done\n"
        "pkill -9 -f 'output=%s$'\n"
        "sleep 0.3; ! pgrep -f 'octet train.*output=%s$'",
        ranks, OCT_PROGRAM, s->recipe, oct_tmp_path(&tmp, "fashion"), keys, out, out, step, out,
        out);
    oct_process job = oct_process_run(120, "/bin/bash", "-c", command, NULL);
    oct_process_free(&job);
    char path[600];
    snprintf(path, sizeof path, "%s/checkpoints/manifest.json", out);
    cr_assert(access(path, F_OK) == 0, "the run was killed before its first checkpoint");
    snprintf(path, sizeof path, "%s/model.int8.h5", out);
    cr_assert(access(path, F_OK) != 0, "the run had ended before it was killed");
}

Test(invariance, a_run_killed_twice_and_resumed_on_other_ranks_ends_in_the_same_files)
{
    /* 8 steps an epoch: 8 float, 2 calibrate, 16 qat */
    setting longer = with(&cnn, "numerics=int8", NULL);
    longer.keys[0] = "batch.size=64";
    longer.keys[1] = "data.train_limit=500";
    longer.keys[2] = "batch.leaf=8";
    longer.keys[7] = "checkpoint.every=3";
    oct_process job = train(&longer, 2, 1, "undisturbed");
    oct_check_exit(job, 0);
    oct_process_free(&job);

    train_and_kill(&longer, 2, 6, "killed");  /* in the middle of the float epoch */
    train_and_kill(&longer, 3, 15, "killed"); /* in the middle of the first qat epoch */
    job = train(&longer, 1, 1, "killed");
    oct_check_exit(job, 0);
    oct_process_free(&job);
    check_same_run("undisturbed", "killed");
}

/* Updates of two batches, clipped, by LARS, with averaged weights. Learning rates that are too small in the float
 * phase and too large in QAT let both end early. */
static const setting courses = {
    .recipe = FASHION,
    .keys = {"batch.size=32", "batch.leaf=4", "batch.accumulate=2", "data.train_limit=200",
             "data.test_limit=100", "calibrate.batches=2", "qat.epochs=8", "checkpoint.every=3",
             "checkpoint.keep=2", "ema.decay=0.9", "optimizer.kind=lars", "optimizer.clip_norm=1",
             "evaluate.best=top1", "evaluate.patience=1", "qat.lr=50"},
};

/* The step of a run's record of this kind; the run must have one. */
static int64_t step_of_record(const char *name, const char *kind)
{
    char command[1024];
    snprintf(command, sizeof command,
             "grep -h '\"kind\":\"%s\"' %s/metrics.jsonl | tail -n 1 | sed 's/.*\"step\":"
             "\\([0-9]*\\),\"phase.*/\\1/'",
             kind, oct_tmp_path(&tmp, name));
    oct_process job = oct_process_run(20, "/bin/bash", "-c", command, NULL);
    oct_check_exit(job, 0);
    int64_t step;
    job.out[strcspn(job.out, "\n")] = '\0';
    cr_assert(oct_parse_i64(job.out, &step), "no record '%s': %s", kind, job.out);
    oct_process_free(&job);
    return step;
}

Test(invariance, a_run_that_ends_early_with_its_best_state_is_the_same_on_any_ranks_and_killed)
{
    static const int ranks[] = {1, 3, 5};
    const size_t runs = oct_test_is_long() ? OCT_COUNT(ranks) : 2;
    char name[32], best[64];
    for (size_t i = 0; i < runs; i++) {
        snprintf(name, sizeof name, "ranks%d", ranks[i]);
        oct_process job = train(&courses, ranks[i], 1, name);
        oct_check_exit(job, 0);
        oct_process_free(&job);
        if (i > 0) check_same_run("ranks1", name);
    }
    const int64_t end = step_of_record("ranks1", "end"), chosen = step_of_record("ranks1", "best");
    cr_assert(chosen < end && end < 46, "best after %d, end after %d", (int)chosen, (int)end);
    snprintf(best, sizeof best, "checkpoints/step-%08d.h5", (int)chosen);
    check_same_file("ranks1", "ranks3", best);

    train_and_kill(&courses, 2, 3, "killed");
    train_and_kill(&courses, 3, 9, "killed"); /* the float phase has ended by now */
    oct_process job = train(&courses, 1, 1, "killed");
    oct_check_exit(job, 0);
    oct_process_free(&job);
    check_same_run("ranks1", "killed");
}
