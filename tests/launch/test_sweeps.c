/* Whole commands whose n-th allocation, write, fsync or rename fails, or whose files may not grow: each
 * ends soon, with a documented status and a sentence, leaves nothing half-written, and the same command,
 * run again, gives the same bytes.
 *
 * Some n of each by default, more with OCT_LONG=1. OCT_SWEEP=all: each n; of the allocations, which are many, the first and the last by
 * each way that leads to one (tests/support/fail_nth.c). OCT_SWEEP=2/5: every fifth of all these, from the second on. */
#define PROGRAM_SECONDS 600 /* a long sweep runs beside other work, and last */
#include "core/base/text.h"
#include "tests/launch/small_data.h"

#include <string.h>

enum { DONE = 0, RESOURCE = 7 };

/* The tries of a sweep that are this process's: every `parts`-th. parts 0: some of each. */
static struct {
    int part, parts;
    int64_t tries;
} share;

static bool sweeps_all(void)
{
    return share.parts > 0;
}

static bool is_mine(void)
{
    return !sweeps_all() || share.tries++ % share.parts == share.part - 1;
}

/* A long sweep keeps the program that it began with, whatever is built meanwhile. */
static void start(void)
{
    const char *asked = getenv("OCT_SWEEP");
    char path[1100];
    if (asked && strcmp(asked, "all") == 0)
        share.part = share.parts = 1;
    else if (asked)
        cr_assert(sscanf(asked, "%d/%d", &share.part, &share.parts) == 2 && share.part >= 1 &&
                      share.part <= share.parts,
                  "OCT_SWEEP=%s: all, or a part such as 2/5", asked);
    enter_with_data();
    must("sed -i 's/size: 32/size: 8/; s/path: data/&\\n  train_limit: 24\\n  test_limit: 16/' "
         "r.yaml");
    must(OCT_PROGRAM " train r.yaml output=run >log 2>&1 || { cat log; exit 1; }");
    must("cp " OCT_PROGRAM " octet && cp " OCT_BINARY_DIR "/tests/libfail_nth.so shim.so");
    snprintf(path, sizeof path, "%s/octet", tmp.path);
    cr_assert(setenv("OCTET", path, 1) == 0);
    snprintf(path, sizeof path, "%s/shim.so", tmp.path);
    cr_assert(setenv("SHIM", path, 1) == 0);
    cr_assert(setenv("OMP_NUM_THREADS", "1", 1) == 0);
}

/* By command a part takes as long as it takes. */
TestSuite(sweeps, .init = start, .fini = leave_folder, .timeout = 36000);

static bool prints_control(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 && *text != '\n' && *text != '\t') return true;
    return false;
}

/* A command whose call number n fails. */
typedef struct
try {
    const char *call, *variables; /* variables: further ones of the shim */
    int64_t n;
    const char *command;
}
try;

static const char *name_of(const try *t)
{
    static char text[1000];
    snprintf(text, sizeof text, "%s: %s %s %lld", t->command, t->variables, t->call,
             (long long)t->n);
    return text;
}

/* Is what the last job said and did in order? True when it failed. */
static bool check_end(const char *what)
{
    cr_assert(!job.timed_out, "%s: no end\n%s", what, job.err);
    cr_assert(job.exit_code == DONE || job.exit_code == RESOURCE, "%s: exit %d\n%s", what,
              job.exit_code, job.err);
    cr_assert(!prints_control(job.err) && !prints_control(job.out), "%s: %s", what, job.err);
    cr_assert((job.exit_code != DONE) == (strstr(job.err, "octet: error: ") != NULL), "%s: %s",
              what, job.err);
    return job.exit_code != DONE;
}

static bool run_failing(const try *t)
{
    char script[1000];
    snprintf(script, sizeof script,
             "%s LD_PRELOAD=$SHIM OCT_FAIL_CALL=%s OCT_FAIL_AT=%lld exec $OCTET %s", t->variables,
             t->call, (long long)t->n, t->command);
    shell(script);
    return check_end(name_of(t));
}

/* How often the command makes the call on files of this path (NULL: on any file). */
static int64_t count_calls(const char *call, const char *command, const char *path)
{
    char script[600], count[32] = "";
    int64_t calls_made;
    snprintf(script, sizeof script,
             "rm -rf new; OCT_FAIL_COUNT=count %s%s LD_PRELOAD=$SHIM OCT_FAIL_CALL=%s "
             "OCT_FAIL_AT=1000000 $OCTET %s >counted 2>&1",
             path ? "OCT_FAIL_PATH=" : "", path ? path : "", call, command);
    must(script);
    FILE *file = fopen("count", "r");
    cr_assert(file && fgets(count, sizeof count, file));
    fclose(file);
    count[strcspn(count, "\n")] = '\0';
    cr_assert(oct_parse_i64(count, &calls_made));
    return calls_made;
}

/* What is to be done before each try of a command, and to hold after it; NULL: nothing. */
typedef struct order {
    const char *command, *prepare, *check;
} order;

static bool try_one(const order *o, const try *t)
{
    if (o->prepare) shell(o->prepare);
    const bool bad = run_failing(t);
    if (!o->check) return bad;
    shell(o->check);
    cr_assert(job.exit_code == 0, "%s: afterwards %s\n%s%s", name_of(t), o->check, job.out,
              job.err);
    return bad;
}

/* The next n to try: all the first ones, then some, and the last. */
static int64_t next(int64_t n, int64_t most)
{
    if (sweeps_all() || n < 3) return n + 1;
    if (oct_test_is_long()) return n + n / 2 + n % 3;
    const int64_t further = 4 * n + n % 3;
    return n < most && further > most ? most : further;
}

static int sweep_calls(const order *o, const char *call)
{
    int failed = 0;
    shell(o->prepare ? o->prepare : ":");
    const int64_t most = count_calls(call, o->command, NULL);
    for (int64_t n = 1; n <= most; n = next(n, most))
        if (is_mine()) failed += try_one(o, &(try){call, "", n, o->command});
    return failed;
}

static int sweep_places(const order *o, const char *call)
{
    char script[600], place[20], variables[60];
    long long count;
    int failed = 0;
    shell(o->prepare ? o->prepare : ":");
    snprintf(script, sizeof script,
             "OCT_FAIL_PLACES=places LD_PRELOAD=$SHIM OCT_FAIL_CALL=%s OCT_FAIL_AT=1000000 "
             "$OCTET %s >counted 2>&1",
             call, o->command);
    must(script);
    FILE *file = fopen("places", "r");
    cr_assert(file);
    while (fscanf(file, "%19s %lld", place, &count) == 2) {
        snprintf(variables, sizeof variables, "OCT_FAIL_PLACE=%s", place);
        if (is_mine()) failed += try_one(o, &(try){call, variables, 1, o->command});
        if (count > 1 && is_mine())
            failed += try_one(o, &(try){call, variables, count, o->command});
    }
    fclose(file);
    return failed;
}

/* Returns how many of the tries failed. */
static int sweep(const order *o, const char *call)
{
    const bool many = strcmp(call, "alloc") == 0;
    return many && sweeps_all() ? sweep_places(o, call) : sweep_calls(o, call);
}

/* A small part may hold no try that fails. */
static void check_failed(int failed, const char *what)
{
    cr_assert(failed > 0 || share.parts > 1, "%s never failed", what);
}

static const char *const calls[] = {"alloc", "write", "fsync", "rename"};

/* What a failed run leaves is gone on with, to the bytes of an undisturbed one. Where it leaves nothing the next one is
 * undisturbed. */
Test(sweeps, a_run_goes_on_after_any_failure)
{
    const order o = {
        "train r.yaml -q", "rm -rf new",
        "[ ! -e new ] || { $OCTET train r.yaml -q && cmp new/model.int8.h5 run/model.int8.h5 "
        "&& cmp new/checkpoints/step-00000007.h5 "
        "run/checkpoints/step-00000007.h5 && "
        "! find new -name '*.tmp' | grep .; }"};
    for (size_t i = 0; i < 4; i++)
        check_failed(sweep(&o, calls[i]), calls[i]);
}

Test(sweeps, a_conversion_writes_all_or_nothing)
{
    const order o = {"convert run -o out/m.int8.h5", "rm -rf out; mkdir out",
                     "[ ! -e out/m.int8.h5 ] || cmp out/m.int8.h5 run/model.int8.h5"};
    for (size_t i = 0; i < 4; i++)
        check_failed(sweep(&o, calls[i]), calls[i]);
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
        check_failed(sweep(&(order){commands[i], NULL, NULL}, "alloc"), commands[i]);
}

/* In blocks of 1,024 bytes. */
Test(sweeps, a_limit_of_file_sizes_leaves_the_run_as_it_was)
{
    static const int blocks[] = {0, 1, 4, 16, 64, 256, 1024, 4096};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++) {
        char script[300], what[32];
        if (!is_mine() || (i % 2 > 0 && share.parts == 0 && !oct_test_is_long())) continue;
        snprintf(script, sizeof(script),
                 "rm -rf new; (ulimit -f %d; exec $OCTET train r.yaml -q) 2>&1 >log | "
                 "cat >&2; exit ${PIPESTATUS[0]}",
                 blocks[i]);
        shell(script);
        snprintf(what, sizeof what, "ulimit -f %d", blocks[i]);
        check_end(what);
        shell("$OCTET train r.yaml -q && cmp new/model.int8.h5 run/model.int8.h5");
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
    {"unlink", "EIO", false},  {"read", "EIO", true},         {"read", "EINTR", false},
    {"read", "SHORT", false},  {"stat", "EIO", true},         {"opendir", "EIO", true},
};

static const char *const saving = "train r.yaml -q checkpoint.keep=20";

/* What was committed is there with the bytes of an undisturbed run, whether the run ended well or not; what the run
 * noted as saved is among it, and the manifest names nothing else. */
static void check_saves(const try *t, bool ended_well)
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
    cr_assert(job.exit_code == 0, "%s: %s%s", name_of(t), job.out, job.err);
}

/* A save fails at one of its calls, or at all from one on, as on a full disk. */
static void try_save(size_t i, int64_t n, bool on)
{
    char variables[200];
    snprintf(variables, sizeof variables, "%s OCT_FAIL_ERROR=%s OCT_FAIL_PATH=new/checkpoints",
             on ? "OCT_FAIL_ON=1" : "", save_calls[i].error);
    const try t = {save_calls[i].call, variables, n, saving};
    if (!is_mine()) return;
    must("rm -rf new");
    const bool bad = run_failing(&t);
    cr_assert(!bad || (save_calls[i].hurts && strstr(job.err, "new/checkpoints")), "%s: %s",
              name_of(&t), job.err);
    check_saves(&t, !bad);
}

static void start_saves(void)
{
    must("$OCTET train r.yaml -q output=all checkpoint.keep=20 >counted 2>&1");
}

Test(sweeps, a_save_that_fails_loses_no_checkpoint)
{
    start_saves();
    for (size_t i = 0; i < sizeof save_calls / sizeof *save_calls; i++) {
        static int64_t most;
        if (i == 0 || strcmp(save_calls[i].call, save_calls[i - 1].call) != 0)
            most = count_calls(save_calls[i].call, saving, "new/checkpoints");
        const bool makes = strcmp(save_calls[i].call, "unlink") != 0;
        cr_assert(!makes || most > 0, "%s is never called", save_calls[i].call);
        const int64_t first = sweeps_all() ? 1 : 1 + (int64_t)i * 5 % (most > 0 ? most : 1),
                      step = sweeps_all()         ? 1
                             : oct_test_is_long() ? 1 + most / 2
                                                  : most;
        for (int64_t n = first; n <= most; n += step) {
            try_save(i, n, false);
            if (sweeps_all() && save_calls[i].hurts) try_save(i, n, true);
        }
    }
}

/* After the last save the manifest and checkpoints are read: no older one replaces one that cannot be read. */
Test(sweeps, a_model_is_made_of_the_last_checkpoint_or_not_at_all)
{
    enum { LAST = 7, OPEN_EIO = 2 };
    start_saves();
    const int64_t most = count_calls("open", saving, "new/checkpoints");
    for (int64_t n = most - LAST; n <= most; n++)
        try_save(OPEN_EIO, n, false);
}
