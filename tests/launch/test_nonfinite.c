/* Steps whose numbers are not finite (nonfinite.step): what is skipped leaves no bit after, on any number of ranks and
 * through a resume, and too many in a row end the run. */
#include "tests/launch/train_rig.h"
#include "tests/support/mpirun.h"

#include <unistd.h>

/* Bytes become floats, which may be NaN. */
static void make_floats(oct_dataset *data)
{
    oct_dataset floats;
    const oct_image sample = {.dtype = OCT_F32, .h = SIZE, .w = SIZE, .c = 1};
    cr_assert_eq(oct_memory_make(&floats, data->count, &sample, CLASSES), OCT_OK);
    for (int64_t i = 0; i < data->count * SIZE * SIZE; i++)
        ((float *)floats.store)[i] = (float)((uint8_t *)data->store)[i] / 255;
    memcpy(floats.labels, data->labels, (size_t)data->count * sizeof *floats.labels);
    oct_dataset_close(data);
    *data = floats;
}

static void set_up_floats(void)
{
    set_up();
    make_floats(&train_data);
    make_floats(&test_data);
}

TestSuite(nonfinite, .init = set_up_floats, .fini = tear_down, .timeout = 120);

#define SKIP_KEYS "nonfinite.step=skip data.crop_padding=0 data.flip=false calibrate.batches=3 "

/* One step on samples that are `value` everywhere. */
static oct_status step_on(oct_trainer *trainer, float value, oct_step_result *result)
{
    enum { NUMBERS = TRAIN * SIZE * SIZE };
    static float kept[NUMBERS];
    float *store = train_data.store;
    memcpy(kept, store, sizeof kept);
    for (int i = 0; i < NUMBERS; i++)
        store[i] = value;
    const oct_status status = oct_trainer_step(trainer, result);
    memcpy(store, kept, sizeof kept);
    return status;
}

static void skip_one(oct_trainer *trainer, float value)
{
    oct_step_result result;
    const int64_t step = trainer->step;
    const oct_status status = step_on(trainer, value, &result);
    cr_assert_eq(status, OCT_OK, "%s", status ? oct_error_message(0) : "");
    cr_assert(result.skipped && isnan(result.loss) && trainer->step == step + 1, "step %d, %g",
              (int)step, (double)value);
}

/* Runs to the end; samples are NaN in the steps of `damaged`, a bit for each. */
static void run_damaged(oct_trainer *trainer, uint64_t damaged)
{
    while (!oct_trainer_done(trainer)) {
        if (damaged >> trainer->step & 1)
            skip_one(trainer, NAN);
        else
            run_to(trainer, trainer->step + 1);
    }
}

static void check_skipped(const char *keys)
{
    char all[512];
    snprintf(all, sizeof all, SKIP_KEYS "%s", keys);
    const oct_recipe recipe = make_recipe(all);
    oct_trainer trainer;
    start(&trainer, &recipe);
    /* After these, codes know no infinity any more. */
    const int64_t steps = trainer.plan.begin[OCT_PHASE_QAT_SCALES_FROZEN];
    for (int64_t step = 0; step < steps; step++) {
        cr_assert_eq(oct_trainer_enter(&trainer, oct_plan_phase(&trainer.plan, step)), OCT_OK);
        const oct_optim *optim = oct_trainer_optim(&trainer);
        const int64_t updates = optim ? optim->updates : 0;
        const state_digest before = digest_of(&trainer);
        const bool skip = step % 2 == 0;
        if (skip)
            skip_one(&trainer, step % 4 ? INFINITY : NAN);
        else
            run_to(&trainer, step + 1);
        cr_assert_eq(same(before, digest_of(&trainer)), skip, "%s: step %d", keys, (int)step);
        if (optim) cr_assert_eq(optim->updates - updates, !skip);
        cr_assert_eq(trainer.skips.row, skip);
    }
    cr_assert_eq(trainer.skips.all, (steps + 1) / 2);
    oct_trainer_destroy(&trainer);
}

Test(nonfinite, a_skipped_step_leaves_no_bit_after)
{
    check_skipped("");
    check_skipped("optimizer.kind=adamw ema.decay=0.9");
    check_skipped("batch.accumulate=2 batch.size=8 quant.scales=current");
    check_skipped("quant.observer=min_max optimizer.clip_norm=1 qat.fold_batch_norm=true");
    check_skipped("numerics=int8");
}

/* A second run that is taken up after each step ends as the first one, and knows how many were skipped. */
Test(nonfinite, a_run_with_skipped_steps_can_be_taken_up_anywhere)
{
    enum { DAMAGED = 0x12c }; /* steps 2, 3, 5, 8: of 0 to 11 */
    const oct_recipe recipe = make_recipe(SKIP_KEYS "ema.decay=0.9"), stops = make_recipe(NULL);
    oct_trainer trainer;
    start(&trainer, &recipe);
    run_damaged(&trainer, DAMAGED);
    const state_digest end = digest_of(&trainer);
    cr_assert_eq(trainer.skips.all, 4);
    cr_assert_eq(recipe.nonfinite_step, OCT_NONFINITE_SKIP);
    cr_assert_eq(stops.nonfinite_step, OCT_NONFINITE_STOP);
    oct_trainer_destroy(&trainer);
    for (int64_t step = 1; step < STEPS; step += 2) {
        char name[32];
        snprintf(name, sizeof name, "step%d", (int)step);
        start(&trainer, &recipe);
        while (trainer.step < step)
            if (DAMAGED >> trainer.step & 1)
                skip_one(&trainer, NAN);
            else
                run_to(&trainer, trainer.step + 1);
        const oct_skips skips = trainer.skips;
        cr_assert_eq(oct_trainer_save(&trainer, oct_tmp_path(&tmp, name), NULL), OCT_OK);
        oct_trainer_destroy(&trainer);
        start(&trainer, &recipe);
        restore(&trainer, oct_tmp_path(&tmp, name));
        cr_assert(trainer.skips.all == skips.all && trainer.skips.row == skips.row);
        run_damaged(&trainer, DAMAGED);
        cr_assert(same(end, digest_of(&trainer)), "taken up after step %d", (int)step);
        oct_trainer_destroy(&trainer);
    }
}

static void check_ends(oct_trainer *trainer, const char *words)
{
    oct_step_result result;
    const int64_t step = trainer->step;
    const state_digest before = digest_of(trainer);
    cr_assert_eq(step_on(trainer, NAN, &result), OCT_NUMERIC);
    cr_assert(strstr(oct_error_message(0), words), "%s", oct_error_message(0));
    cr_assert(trainer->step == step && same(before, digest_of(trainer)));
    oct_fail_clear();
}

Test(nonfinite, too_many_in_a_row_end_the_run)
{
    const oct_recipe recipe = make_recipe(SKIP_KEYS "nonfinite.limit=2 batch.size=4");
    oct_trainer trainer;
    start(&trainer, &recipe);
    for (int time = 0; time < 2; time++) {
        skip_one(&trainer, NAN);
        skip_one(&trainer, NAN);
        if (time == 0) run_to(&trainer, 3); /* a good one between them */
    }
    check_ends(&trainer, "step 6 (epoch 1, phase float): features.1: the batch's mean or "
                         "variance is not finite; lower the learning rate (now 0.0");
    check_ends(&trainer, "; 2 steps before it were skipped; there is no checkpoint yet");
    oct_trainer_destroy(&trainer);
}

Test(nonfinite, a_calibration_without_a_good_batch_ends_the_run)
{
    const oct_recipe recipe = make_recipe(SKIP_KEYS);
    oct_trainer trainer;
    start(&trainer, &recipe);
    run_to(&trainer, 3);
    skip_one(&trainer, NAN);
    skip_one(&trainer, NAN);
    check_ends(&trainer, "step 6 (epoch 1, phase calibrate): ");
    run_to(&trainer, 6);
    cr_assert_eq(trainer.skips.all, 2);
    oct_trainer_destroy(&trainer);
}

static void write_floats(const char *name, int64_t count, int64_t overflowing)
{
    const float huge = 3e38f; /* a sum over some of these is infinite */
    char header[119], text[96];
    FILE *file = fopen(oct_tmp_path(&tmp, name), "wb");
    cr_assert_not_null(file);
    snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d, %d), }",
             (int)count, SIZE, SIZE);
    snprintf(header, sizeof header, "%-117s\n", text);
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file);
    fwrite(header, 1, 118, file);
    fwrite(train_data.store, sizeof(float), (size_t)(count * SIZE * SIZE), file);
    if (overflowing >= 0) fseek(file, (long)(128 + overflowing * SIZE * SIZE * 4), SEEK_SET);
    for (int i = 0; overflowing >= 0 && i < SIZE * SIZE; i++)
        fwrite(&huge, sizeof huge, 1, file);
    fclose(file);
}

static void write_labels(const char *name, int count)
{
    char header[119], text[96];
    FILE *file = fopen(oct_tmp_path(&tmp, name), "wb");
    cr_assert_not_null(file);
    snprintf(text, sizeof text, "{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }",
             count);
    snprintf(header, sizeof header, "%-117s\n", text);
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file);
    fwrite(header, 1, 118, file);
    for (int i = 0; i < count; i++)
        fputc(i % CLASSES, file);
    fclose(file);
}

/* The program on a data set with one sample that is too large: once an epoch a step is skipped. */
static oct_process train(int ranks, const char *run, const char *step)
{
    char output[600], how[64];
    snprintf(output, sizeof output, "output=%s", oct_tmp_path(&tmp, run));
    snprintf(how, sizeof how, "nonfinite.step=%s", step);
    return oct_mpirun(ranks, 60, OCT_PROGRAM, "train", oct_tmp_path(&tmp, "r.yaml"), output, how,
                      NULL);
}

static void check_same_files(const char *a, const char *b)
{
    char command[1200];
    snprintf(command, sizeof command,
             "cd %s && for f in $(cd %s && ls checkpoints/*.h5 model.int8.h5); do "
             "cmp %s/$f %s/$f || exit 1; done",
             tmp.path, a, a, b);
    oct_process job = oct_process_run(20, "/bin/bash", "-c", command, NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
}

static void write_run(void)
{
    write_floats("train_images.npy", TRAIN, 17);
    write_floats("test_images.npy", TEST, -1);
    write_labels("train_labels.npy", TRAIN);
    write_labels("test_labels.npy", TEST);
    FILE *file = fopen(oct_tmp_path(&tmp, "r.yaml"), "w");
    cr_assert_not_null(file);
    fprintf(file, "%sdata.format: npy\ndata.path: %s\ncheckpoint: {every: 1, keep: 20}\n",
            "schema: 1\nmodel: {name: cnn-small}\nbatch: {size: 16, leaf: 4}\n"
            "float: {epochs: 2}\ncalibrate: {batches: 3}\nqat: {epochs: 1}\n",
            tmp.path);
    fclose(file);
}

Test(nonfinite, a_bad_sample_costs_its_steps_and_no_bit_depends_on_ranks)
{
    write_run();
    oct_process job = train(1, "stops", "stop");
    oct_check_exit(job, 5);
    oct_check_said(job, "not finite; lower the learning rate");
    oct_process_free(&job);
    for (int ranks = 1; ranks <= 3; ranks++) {
        static const char *const runs[] = {"", "one", "two", "three"};
        job = train(ranks, runs[ranks], "skip");
        oct_check_exit(job, 0);
        oct_check_said(job, "was skipped: ");
        oct_check_said(job, "4 of 12 steps were skipped");
        oct_process_free(&job);
        if (ranks > 1) check_same_files("one", runs[ranks]);
    }
    /* A run that stopped goes on with the other word. */
    job = train(2, "stops", "skip");
    oct_check_exit(job, 0);
    oct_check_said(job, "4 of 12 steps were skipped");
    oct_process_free(&job);
    check_same_files("one", "stops");
}
