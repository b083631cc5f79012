/* Pictures in files, through the real program: the same checkpoints and model on any number of ranks, threads
 * that read ahead and batches in the queue, through a kill and a resume; a damaged one ends the run on
 * all ranks with its name, or all ranks skip it. */
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "io/image/decode.h"
#include "tests/support/program.h"

#include <stdio.h>
#include <sys/stat.h>

enum { SIDE = 16, CLASSES = 3, TRAIN = 20, TESTS = 5 };

/* Noise whose brightness depends on the class. */
static void write_picture(const char *split, int class, int number)
{
    oct_image image = {0};
    void *bytes = NULL;
    size_t size = 0;
    char name[64];
    cr_assert(oct_image_resize(&image, OCT_U8, SIDE, SIDE, 3) == OCT_OK);
    for (int64_t i = 0; i < oct_image_numel(&image); i++) {
        uint32_t draw[4];
        oct_philox(5, OCT_STREAM_TEST, (uint64_t)(number * 7919 + class), (uint32_t)i, draw);
        ((uint8_t *)image.data)[i] = (uint8_t)(draw[0] % 128 + 50u * (uint32_t) class);
    }
    cr_assert(oct_png_write(&image, &bytes, &size) == OCT_OK);
    snprintf(name, sizeof name, "data/%s/class%d/%03d.png", split, class, number);
    oct_tmp_write(&tmp, name, bytes, size);
    oct_free(&bytes);
    oct_image_free(&image);
}

static void make_pictures(void)
{
    static const char recipe[] = "schema: 1\nmodel: {name: cnn-small}\n"
                                 "data: {format: folder, path: data, size: 16, flip: true, "
                                 "crop_padding: 2, train: [color_jitter]}\n"
                                 "batch: {size: 24, leaf: 4}\nfloat: {epochs: 1, lr: 0.01}\n"
                                 "calibrate: {batches: 1}\nqat: {epochs: 2, lr: 0.01}\n"
                                 "checkpoint: {every: 2}\n";
    enter_folder();
    for (int class = 0; class < CLASSES; class ++) {
        for (int i = 0; i < TRAIN; i++)
            write_picture("train", class, i);
        for (int i = 0; i < TESTS; i++)
            write_picture("test", class, 100 + i);
    }
    oct_tmp_write(&tmp, "r.yaml", recipe, sizeof recipe - 1);
}

TestSuite(prefetch, .init = make_pictures, .fini = leave_folder, .timeout = 600);

static void train(const char *output, const char *options, int exit_code)
{
    char line[512];
    snprintf(line, sizeof line, OCT_PROGRAM " train r.yaml output=%s %s", output, options);
    shell(line);
    oct_check_exit(job, exit_code);
}

static void check_same_run(const char *output)
{
    char line[512];
    snprintf(
        line, sizeof line,
        "cmp one/model.int8.h5 %s/model.int8.h5 && for f in one/checkpoints/step-*.h5; do cmp $f "
        "%s/checkpoints/${f##*/} || exit 1; done",
        output, output);
    shell(line);
    oct_check_exit(job, 0);
}

Test(prefetch, leaves_the_same_files_on_any_ranks_threads_and_queues)
{
    train("one", "data.prefetch_threads=0", 0);
    train("two", "data.prefetch_threads=1", 0);
    check_same_run("two");
    train("three", "data.prefetch_threads=4 data.prefetch=1 --ranks 2", 0);
    check_same_run("three");
    train("four", "data.prefetch_threads=2 data.prefetch=9 data.cache=1 --ranks 3", 0);
    check_same_run("four");
    train("five", "data.prefetch_threads=2 data.prefetch=0 --ranks 5", 0);
    check_same_run("five");
}

Test(prefetch, a_killed_run_goes_on_with_other_threads_and_ranks)
{
    train("one", "data.prefetch_threads=0", 0);
    shell(OCT_PROGRAM " train r.yaml output=two data.prefetch_threads=3 & "
                      "for i in $(seq 400); do test -e two/checkpoints/step-00000002.h5 && break; "
                      "sleep 0.05; done; kill -9 $!; wait");
    train("two", "data.prefetch_threads=1 data.prefetch=5 --ranks 3", 0);
    check_same_run("two");
}

/* It is read by one of the ranks. */
Test(prefetch, a_damaged_picture_ends_the_run_of_all_ranks_or_is_passed_over)
{
    must("truncate -s 300 data/train/class1/007.png");
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        char options[64];
        snprintf(options, sizeof options, "--ranks %d", ranks);
        train("no", options, 3);
        oct_check_said(job, "class1/007.png: ");
        cr_assert(oct_process_said_times(&job, "error: ") == 1, "%s", job.err);
        must("rm -rf no");
    }
    train("one", "data.damaged=skip data.prefetch_threads=0", 0);
    oct_check_said(job, "training data: 1 damaged sample was passed over so far");
    oct_check_said(job, "class1/007.png: ");
    train("two", "data.damaged=skip data.prefetch_threads=3 --ranks 3", 0);
    oct_check_said(job, "training data: 1 damaged sample was passed over so far");
    check_same_run("two");
}
