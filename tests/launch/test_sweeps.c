/* Whole commands whose n-th allocation, write, fsync or rename fails, or whose files may not grow: each
 * ends soon, with a documented status and a sentence, leaves nothing half-written, and the same command
 * goes on to the same bytes. Some n of each by default; OCT_SWEEP=all: each n. */
#include "tests/launch/small_data.h"

#include <string.h>

enum { DONE = 0, RESOURCE = 7 };

static void start(void)
{
    enter_with_run();
    cr_assert(setenv("OMP_NUM_THREADS", "1", 1) == 0);
}

TestSuite(sweeps, .init = start, .fini = leave_folder, .timeout = 3600);

static bool prints_control(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 && *text != '\n' && *text != '\t') return true;
    return false;
}

/* Is what the last job said and did in order? True when it failed. */
static bool check_end(const char *what, int n)
{
    cr_assert(!job.timed_out, "%s %d: no end\n%s", what, n, job.err);
    cr_assert(job.exit_code == DONE || job.exit_code == RESOURCE, "%s %d: exit %d\n%s", what, n,
              job.exit_code, job.err);
    cr_assert(!prints_control(job.err) && !prints_control(job.out), "%s %d: %s", what, n, job.err);
    cr_assert((job.exit_code != DONE) == (strstr(job.err, "octet: error: ") != NULL), "%s %d: %s",
              what, n, job.err);
    return job.exit_code != DONE;
}

static bool run_failing(const char *call, int n, const char *command)
{
    char script[1000];
    snprintf(script, sizeof(script),
             "LD_PRELOAD=" OCT_BINARY_DIR "/tests/libfail_nth.so OCT_FAIL_CALL=%s OCT_FAIL_AT=%d "
             "exec %s %s",
             call, n, OCT_PROGRAM, command);
    shell(script);
    return check_end(command, n);
}

/* The next n to try: all the first ones, then some. */
static int next(int n)
{
    const char *all = getenv("OCT_SWEEP");
    if (n < 3 || (all && strcmp(all, "all") == 0)) return n + 1;
    return n + n / 2 + n % 3;
}

/* Until the command no longer makes so many calls: then it ends well, and three in a row do. prepare and
 * check: what is to be done before and to hold after each try. */
static int sweep(const char *call, const char *command, const char *prepare, const char *check)
{
    int failed = 0, well = 0;
    for (int n = 1; well < 3; n = next(n)) {
        if (prepare) shell(prepare);
        bool bad = run_failing(call, n, command);
        failed += bad;
        well = bad ? 0 : well + 1;
        if (!check) continue;
        shell(check);
        cr_assert(job.exit_code == 0, "%s: %s %d: afterwards %s\n%s%s", command, call, n, check,
                  job.out, job.err);
    }
    return failed;
}

static const char *const calls[] = {"alloc", "write", "fsync", "rename"};

/* What a failed run leaves is gone on with, to the bytes of an undisturbed one. */
Test(sweeps, a_run_goes_on_after_any_failure)
{
    for (size_t i = 0; i < 4; i++) {
        int failed =
            sweep(calls[i], "train r.yaml -q", "rm -rf new",
                  OCT_PROGRAM " train r.yaml -q && cmp new/model.int8.h5 run/model.int8.h5 "
                              "&& cmp new/checkpoints/step-00000007.h5 "
                              "run/checkpoints/step-00000007.h5 && "
                              "! find new -name '*.tmp' | grep .");
        cr_assert_gt(failed, 2, "%s never failed", calls[i]);
    }
}

Test(sweeps, a_conversion_writes_all_or_nothing)
{
    for (size_t i = 0; i < 4; i++) {
        int failed = sweep(calls[i], "convert run -o out/m.int8.h5", "rm -rf out; mkdir out",
                           "[ ! -e out/m.int8.h5 ] || cmp out/m.int8.h5 run/model.int8.h5");
        cr_assert_gt(failed, 0, "%s never failed", calls[i]);
    }
}

Test(sweeps, commands_that_read_name_what_they_lack)
{
    static const char *const commands[] = {
        "check r.yaml",
        "eval run/model.int8.h5",
        "eval run",
        "verify run/model.int8.h5",
        "inspect run/model.int8.h5",
        "inspect --tree run",
        "run run/model.int8.h5 --input data/t10k-images-idx3-ubyte --count 3",
        "sensitivity run -o table",
    };
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        cr_assert_gt(sweep("alloc", commands[i], NULL, NULL), 2, "%s never failed", commands[i]);
}

/* In blocks of 1,024 bytes. */
Test(sweeps, a_limit_of_file_sizes_leaves_the_run_as_it_was)
{
    static const int blocks[] = {0, 1, 4, 16, 64, 256, 1024, 4096};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++) {
        char script[300];
        snprintf(script, sizeof(script),
                 "rm -rf new; (ulimit -f %d; exec " OCT_PROGRAM " train r.yaml -q) 2>&1 >log | "
                 "cat >&2; exit ${PIPESTATUS[0]}",
                 blocks[i]);
        shell(script);
        check_end("ulimit -f", blocks[i]);
        shell(OCT_PROGRAM " train r.yaml -q && cmp new/model.int8.h5 run/model.int8.h5");
        oct_check_exit(job, 0);
    }
}
