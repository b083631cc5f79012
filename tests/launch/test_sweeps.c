/* Whole commands whose n-th allocation, write, fsync or rename fails, or whose files may not grow: each
 * ends soon, with a documented status and a sentence, leaves nothing half-written, and the same command
 * goes on to the same bytes. Some n of each by default; OCT_SWEEP=all: each n. */
#include "core/base/text.h"
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

/* what: further variables of the shim (tests/support/fail_nth.c). */
static bool run_failing_so(const char *what, const char *call, int n, const char *command)
{
    char script[1000];
    snprintf(script, sizeof(script),
             "%s LD_PRELOAD=" OCT_BINARY_DIR
             "/tests/libfail_nth.so OCT_FAIL_CALL=%s OCT_FAIL_AT=%d exec %s %s",
             what, call, n, OCT_PROGRAM, command);
    shell(script);
    return check_end(command, n);
}

static bool run_failing(const char *call, int n, const char *command)
{
    return run_failing_so("", call, n, command);
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

/* The calls of a save, and how they fail. hurts: a save cannot be done so. */
static const struct {
    const char *call, *error;
    bool hurts;
} save_calls[] = {
    {"mkdir", "ENOSPC", true}, {"open", "ENOSPC", true},      {"open", "EIO", true},
    {"open", "EINTR", false},  {"fallocate", "ENOSPC", true}, {"write", "ENOSPC", true},
    {"write", "EIO", true},    {"write", "EINTR", false},     {"write", "SHORT", false},
    {"fsync", "EIO", true},    {"fsync", "ENOSPC", true},     {"fsync", "EINTR", false},
    {"close", "EIO", true},    {"close", "EINTR", false},     {"rename", "EIO", true},
    {"unlink", "EIO", false},
};

/* What was committed is there with the bytes of an undisturbed run, whether the run ended well or not; what the run
 * noted as saved is among it, and the manifest names nothing else. */
static void check_saves(const char *what, int n, bool ended_well)
{
    if (ended_well)
        must("cmp new/model.int8.h5 all/model.int8.h5 && "
             "cmp new/checkpoints/step-00000007.h5 all/checkpoints/step-00000007.h5");
    shell(
        "cd new 2>/dev/null || exit 0; "
        "[ -e checkpoints/manifest.json ] || { ! grep -q '\"checkpoint\"' metrics.jsonl; exit; }; "
        "cd checkpoints; named=$(grep -o 'step-[0-9]*.h5' manifest.json); "
        "for f in $named; do cmp $f ../../all/checkpoints/$f || exit 1; "
        "grep -q $(sha256sum < $f | cut -c1-64) manifest.json || exit 1; done; "
        "for f in $(grep '\"kind\":\"checkpoint\"' ../metrics.jsonl | grep -o 'step-[0-9]*.h5'); "
        "do "
        "echo $named | grep -q $f || { echo $f is lost; exit 1; }; done");
    cr_assert(job.exit_code == 0, "%s at %d: %s%s", what, n, job.out, job.err);
}

/* How often a save of the run makes the call. */
static int64_t count_calls(const char *call)
{
    char script[600], count[32] = "";
    int64_t calls_made;
    snprintf(
        script, sizeof script,
        "rm -rf new; OCT_FAIL_COUNT=count OCT_FAIL_PATH=new/checkpoints LD_PRELOAD=" OCT_BINARY_DIR
        "/tests/libfail_nth.so OCT_FAIL_CALL=%s OCT_FAIL_AT=1000000 " OCT_PROGRAM
        " train r.yaml -q checkpoint.keep=20",
        call);
    must(script);
    FILE *file = fopen("count", "r");
    cr_assert(file && fgets(count, sizeof count, file));
    fclose(file);
    count[strcspn(count, "\n")] = '\0';
    cr_assert(oct_parse_i64(count, &calls_made));
    return calls_made;
}

/* A save fails at one of its calls, or at all from one on, as on a full disk. */
static void sweep_saves(size_t i, int64_t most, bool on)
{
    const char *call = save_calls[i].call, *error = save_calls[i].error;
    char what[200];
    snprintf(what, sizeof what, "%s OCT_FAIL_ERROR=%s OCT_FAIL_PATH=new/checkpoints",
             on ? "OCT_FAIL_ON=1" : "", error);
    const bool all = getenv("OCT_SWEEP") != NULL;
    const int first = all ? 1 : 1 + (int)i * 5 % (int)(most > 0 ? most : 1),
              step = all ? 1 : 1 + (int)most / 2;
    for (int n = first; n <= most; n += step) {
        must("rm -rf new");
        const bool bad = run_failing_so(what, call, n, "train r.yaml -q checkpoint.keep=20");
        cr_assert(!bad || (save_calls[i].hurts && strstr(job.err, "new/checkpoints")),
                  "%s %s %d: %s", call, error, n, job.err);
        check_saves(call, n, !bad);
    }
}

Test(sweeps, a_save_that_fails_loses_no_checkpoint)
{
    const bool all = getenv("OCT_SWEEP") != NULL;
    must(OCT_PROGRAM " train r.yaml -q output=all checkpoint.keep=20");
    for (size_t i = 0; i < sizeof save_calls / sizeof *save_calls; i++) {
        static int64_t most;
        if (i == 0 || strcmp(save_calls[i].call, save_calls[i - 1].call) != 0)
            most = count_calls(save_calls[i].call);
        const bool makes = strcmp(save_calls[i].call, "unlink") != 0;
        cr_assert(!makes || most > 0, "%s is never called", save_calls[i].call);
        sweep_saves(i, most, false);
        if (all && save_calls[i].hurts) sweep_saves(i, most, true);
    }
}
