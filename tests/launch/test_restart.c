/* A session in a folder whose last session failed: it resumes where that is possible, says what is missing, and
 * writes no record twice. */
#include "tests/launch/small_data.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(restart, .init = enter_with_data, .fini = leave_folder, .timeout = 200);

static void train(void)
{
    OCTET("train", "r.yaml");
}

static void finish_a_run(void)
{
    train();
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job, "is gone"), 0, "%s", job.err);
}

Test(restart, a_folder_that_was_killed_at_its_first_file_is_a_fresh_one)
{
    must("mkdir new; touch new/lock; echo sche >new/recipe.yaml.4711-0.tmp");
    finish_a_run();
    must("test -z \"$(find new -name '*.tmp')\"");
}

Test(restart, deleted_checkpoints_are_said_before_the_run_starts_again)
{
    finish_a_run();
    must("rm -r new/checkpoints new/model.int8.h5");
    train();
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job,
                                        "new: the checkpoint of step 7 is gone, and no other is "
                                        "left; starting again from step 0"),
                 1, "%s", job.err);
}

Test(restart, a_finished_run_says_that_its_last_checkpoint_is_gone)
{
    finish_a_run();
    must("rm -r new/checkpoints");
    train();
    oct_check_exit(job, 0);
    oct_check_said(job, "step-00000007.h5: the last checkpoint of this finished run is gone");
    oct_check_said(job, "int8 accuracy");
}

Test(restart, other_data_than_those_of_the_last_session_are_refused)
{
    finish_a_run();
    must("rm new/model.int8.h5; cp new/metrics.jsonl before; printf x | dd "
         "of=data/train-images-idx3-ubyte bs=1 "
         "seek=700 conv=notrunc status=none");
    train();
    oct_check_exit(job, 3);
    oct_check_said(
        job, "data.path: the data are not those of the last session of new: train.sha256 is ");
    oct_check_said(
        job, "(run.json); give it the data of then, choose another output=, or go on with these by "
             "data.changed=true");
    must("cmp before new/metrics.jsonl");
    OCTET("train", "r.yaml", "data.changed=true");
    oct_check_exit(job, 0);
    oct_check_said(job, "train.sha256 is ");
    must("rm new/model.int8.h5");
    finish_a_run(); /* the last session had these data */
}

Test(restart, a_finished_run_that_was_moved_names_its_files_where_they_are)
{
    finish_a_run();
    must("mv new moved");
    OCTET("train", "r.yaml", "output=moved");
    oct_check_exit(job, 0);
    cr_assert(strstr(job.out, " moved/model.int8.h5\n"), "%s", job.out);
    cr_assert(strstr(job.out, " moved/checkpoints/step-00000007.h5\n"), "%s", job.out);
}

Test(restart, an_end_that_was_killed_repeats_no_record)
{
    finish_a_run();
    must("grep -c '\"eval\"' new/metrics.jsonl >count");
    must("grep -v result new/metrics.jsonl >m; mv m new/metrics.jsonl; "
         "rm new/model.int8.h5");
    finish_a_run();
    must("test -z \"$(grep -oE '\"kind\":\"(eval|phase)\",\"step\":[0-9]+' "
         "new/metrics.jsonl | sort | uniq -d)\"");
    must("test $(grep -c '\"eval\"' new/metrics.jsonl) = $(cat count)");
}

/* It is killed after the manifest no longer names a file and before this file is deleted. A checkpoint of another run, a
 * damaged one and a link are in the folder too, which the run must not delete. */
Test(restart, a_run_that_is_killed_before_it_deletes_leaves_its_folder_in_order)
{
    must(OCT_PROGRAM " train r.yaml output=other qat.epochs=2 checkpoint.every=1 -q >log 2>&1");
    shell("LD_PRELOAD=" OCT_BINARY_DIR "/tests/libfail_nth.so OCT_FAIL_CALL=unlink OCT_FAIL_AT=1 "
          "OCT_FAIL_BY=kill exec " OCT_PROGRAM
          " train r.yaml checkpoint.every=1 checkpoint.keep=2");
    cr_assert_eq(job.exit_code, 128 + 9, "%s", job.err);
    must("cd new/checkpoints && ls step-*.h5 >../../left && "
         "grep -o 'step-[0-9]*.h5' manifest.json | sort >../../named && "
         "test \"$(comm -23 ../../left ../../named)\" = step-00000001.h5");
    must("cd new/checkpoints && cp ../../other/checkpoints/step-00000008.h5 . && "
         "head -c 5000 ../../other/checkpoints/step-00000009.h5 >step-00000009.h5 && "
         "ln -s step-00000003.h5 step-00000010.h5 && touch step-1.h5");
    OCTET("train", "r.yaml", "checkpoint.every=1", "checkpoint.keep=2");
    oct_check_exit(job, 0);
    must("cd new/checkpoints && test \"$(ls)\" = \"$(printf '%s\\n' manifest.json step-00000003.h5 "
         "step-00000006.h5 step-00000007.h5 step-00000008.h5 step-00000009.h5 step-00000010.h5 "
         "step-1.h5)\"");
    must(OCT_PROGRAM " train r.yaml output=whole -q && cmp new/model.int8.h5 whole/model.int8.h5");
}

/* Returns whether the libraries could be loaded and begin; libgomp ends the process by itself where it cannot, and
 * GnuTLS, which comes with some builds of HDF5, crashes. */
static bool train_within(int kilobytes)
{
    char script[200];
    snprintf(script, sizeof(script), "rm -rf new; ulimit -v %d; exec \"$1\" train r.yaml",
             kilobytes);
    RUN("bash", "-c", script, "bash", OCT_PROGRAM);
    bool loader = job.exit_code == 127 || oct_process_said(&job, "error while loading") ||
                  oct_process_said(&job, "Error in GnuTLS initialization") ||
                  (oct_process_said(&job, "libgomp: Out of memory allocating 8 bytes") &&
                   !oct_process_said(&job, "octet: ")) ||
                  oct_process_said(&job, "Error in GnuTLS initialization"); /* by HDF5's libcurl */
    cr_assert(!job.timed_out && (loader || job.exit_code == 7 || job.exit_code == 0),
              "%d KB: exit %d\n%s", kilobytes, job.exit_code, job.err);
    return !loader;
}

/* A library's thread that waits for memory for ever would keep the process here; and where what is left is less than
 * a page or two, the stack could not grow. */
Test(restart, where_memory_is_limited_every_command_ends)
{
    int least = 0;
    for (int kilobytes = 24000; kilobytes <= 48000 || (least == 0 && kilobytes < 96000);
         kilobytes += 1500)
        if (train_within(kilobytes) && least == 0) least = kilobytes;
    cr_assert_gt(least, 0, "the libraries cannot be loaded");
    for (int kilobytes = least - 1500; kilobytes <= least + 1500; kilobytes += 60)
        train_within(kilobytes);
}

Test(restart, too_small_a_stack_is_refused)
{
    for (int kilobytes = 64; kilobytes < 512; kilobytes *= 2) {
        char script[200];
        snprintf(script, sizeof(script), "ulimit -s %d; exec \"$1\" train r.yaml", kilobytes);
        RUN("bash", "-c", script, "bash", OCT_PROGRAM);
        oct_check_exit(job, 7);
        oct_check_said(job, "octet: error: the stack is limited to ");
    }
}

Test(restart, a_pipe_is_no_file_for_any_command)
{
    static const char *const commands[][3] = {{"train", "pipe", NULL},
                                              {"check", "pipe", NULL},
                                              {"inspect", "pipe", NULL},
                                              {"eval", "pipe", NULL},
                                              {"verify", "pipe", NULL},
                                              {"train", "r.yaml", "quant.sensitivity=pipe"},
                                              {"train", "r.yaml", "plugins=[./pipe]"}};
    must("mkfifo pipe");
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        oct_process_free(&job);
        job = oct_process_run(PROGRAM_SECONDS, OCT_PROGRAM, commands[i][0], commands[i][1],
                              commands[i][2], NULL);
        cr_assert(!job.timed_out && job.exit_code >= 2 && job.exit_code <= 3, "%s %s: exit %d\n%s",
                  commands[i][0], commands[i][1], job.exit_code, job.err);
        oct_check_said(job, "pipe");
    }
}

Test(restart, the_log_goes_through_no_link_and_into_no_pipe)
{
    static const char *const makers[] = {"mkfifo new/log.txt", "ln -s ../elsewhere new/log.txt"};
    for (size_t i = 0; i < sizeof(makers) / sizeof(*makers); i++) {
        must("rm -rf new; mkdir new; cp r.yaml new/recipe.yaml");
        must(makers[i]);
        train();
        oct_check_exit(job, 7);
        oct_check_said(job, "new/log.txt: the log is not written through a link or into a pipe");
        must("test ! -e elsewhere");
    }
}
