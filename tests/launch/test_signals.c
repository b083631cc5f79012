/* --ranks and signals: a request to stop reaches the ranks in time for a checkpoint, and a rank that
 * is killed is named. A small set is trained for far more epochs than a test lasts.
 */
#include "tests/launch/small_data.h"

#include <criterion/criterion.h>
#include <stdlib.h>

TestSuite(signals, .init = enter_with_data, .fini = leave_folder, .timeout = 300);

/* Starts training as $!, in a process group of its own, and waits for a checkpoint newer than this
 * call; then `action`; ends as octet does. $1 is the program. */
#define TRAIN TRAIN_WITH("--ranks 2")
#define TRAIN_WITH(words)                                                                          \
    "set -m; touch begin; "                                                                        \
    "\"$1\" train r.yaml float.epochs=10000 checkpoint.every=5 " words " & "                       \
    "until [ -n \"$(find new/checkpoints -name 'step-*.h5' -newer begin 2>/dev/null)\" ]; do "     \
    "kill -0 $! || exit 99; sleep 0.05; done; "

static void train_and(const char *action)
{
    char script[1024];
    snprintf(script, sizeof(script), TRAIN "%s; wait $!", action);
    RUN("bash", "-c", script, "bash", OCT_PROGRAM, NULL);
}

/* Wherever it was met: after a step with a checkpoint, or before there was one. */
static void check_request_was_honoured(void)
{
    oct_check_exit(job, 75);
    cr_assert_eq(oct_process_said_times(&job, "octet: stopped "), 1, "%s", job.err);
    cr_assert_eq(oct_process_said_times(&job, "error"), 0, "%s", job.err);
}

static void check_stopped(void)
{
    oct_check_exit(job, 75);
    cr_assert_eq(oct_process_said_times(&job, "stopped after step"), 1, "%s", job.err);
    cr_assert_eq(oct_process_said_times(&job, "error"), 0, "%s", job.err);
}

Test(signals, ctrl_c_saves_and_the_same_command_continues)
{
    train_and("kill -INT -$!");
    check_stopped();
    train_and("kill -TERM $!");
    check_stopped();
    oct_check_said(job, "continu");
    must("test $(grep -c 'Z octet: stopped after step' new/log.txt) = 2");
}

Test(signals, one_request_may_arrive_twice)
{
    train_and("kill -TERM $!; kill -TERM -$!");
    check_stopped();
}

Test(signals, a_killed_rank_is_named_and_the_same_command_continues)
{
    train_and("read -r m </proc/$!/task/$!/children; read -r rank more </proc/$m/task/$m/children; "
              "kill -KILL $rank");
    oct_check_exit(job, 6);
    oct_check_said(job, "octet: error: rank 0 (");
    oct_check_said(job, ") was ended by signal 9 (Killed) in step ");
    oct_check_said(job, "; repeat the command to continue from the newest checkpoint");
    cr_assert_eq(oct_process_said_times(&job, "error"), 1, "%s", job.err);
    must("grep -q '^[-0-9T:]*Z octet: error: rank 0 (.*) was ended by signal 9' new/log.txt");
    train_and("kill -INT $!");
    check_stopped();
}

#define MPIRUN "read -r m more </proc/$!/task/$!/children; "
/* The process of a rank, given by number. */
#define RANK(number)                                                                               \
    MPIRUN "for c in $(cat /proc/$m/task/*/children); do tr '\\0' '\\n' </proc/$c/environ | "      \
           "grep -qx OMPI_COMM_WORLD_RANK=" number " && rank=$c; done; "

Test(signals, the_rank_that_is_killed_is_the_one_that_is_named)
{
    train_and(RANK("1") "kill -SEGV $rank");
    oct_check_exit(job, 6);
    oct_check_said(job, "octet: error: rank 1 (");
    oct_check_said(job, ") was ended by signal 11 (Segmentation fault) in step ");
}

Test(signals, the_end_of_mpirun_is_not_the_answer_of_a_rank)
{
    train_and(MPIRUN "kill -TERM $m");
    oct_check_exit(job, 75);
    oct_check_said(job,
                   "mpirun was stopped, and its ranks with it; repeat the command to continue");
    train_and(MPIRUN "kill -KILL $m");
    oct_check_exit(job, 6);
    oct_check_said(job, "octet: error: mpirun itself was ended by signal 9 (Killed)");
    cr_assert_eq(oct_process_said_times(&job, "error"), 1, "%s", job.err);
}

/* Its first moment is when it listens to SIGUSR1: before, the loader has it, whose time depends on the machine. */
#define LISTENS                                                                                    \
    "until grep -Eq 'SigCgt:\t[0-9a-f]*[2367abef][0-9a-f]{2}$' /proc/$!/status; do :; done; "

Test(signals, a_request_is_honoured_from_the_first_moment)
{
    static const char *const delays[] = {"0", "0.15", "0.5", "0.3", "0.7"};
    const size_t count = oct_test_is_long() ? sizeof(delays) / sizeof(*delays) : 3;
    for (size_t i = 0; i < count; i++) {
        char script[400];
        snprintf(script, sizeof(script),
                 "\"$1\" train r.yaml float.epochs=10000 --ranks 2 & " LISTENS
                 "sleep %s; kill -%s $!; wait $!",
                 delays[i], i % 2 ? "TERM" : "USR1");
        RUN("bash", "-c", script, "bash", OCT_PROGRAM);
        check_request_was_honoured();
    }
    RUN("bash", "-c", "\"$1\" train r.yaml float.epochs=10000 & " LISTENS "kill -TERM $!; wait $!",
        "bash", OCT_PROGRAM);
    check_request_was_honoured();
}

/* Some launchers start their children with signals blocked or ignored. */
Test(signals, what_a_parent_has_blocked_or_ignored_is_heard)
{
    static const char *const starts[] = {"\"$1\" train r.yaml float.epochs=10000 --ranks 2",
                                         "\"$1\" train r.yaml float.epochs=10000"};
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
        char script[400];
        snprintf(script, sizeof(script),
                 "env --block-signal=TERM,INT,USR1,HUP --ignore-signal=CHLD %s & "
                 "until [ -e new/log.txt ]; do kill -0 $! || exit 99; sleep 0.05; done; "
                 "kill -TERM $!; for look in $(seq 300); do kill -0 $! 2>/dev/null || break; sleep "
                 "0.1; done; kill -KILL $! 2>/dev/null; wait $!",
                 starts[i]);
        RUN("bash", "-c", script, "bash", OCT_PROGRAM);
        check_request_was_honoured();
        must("rm -r new");
    }
    RUN("env", "--ignore-signal=CHLD", OCT_PROGRAM, "train", "r.yaml", "--ranks", "2", "--restart",
        "1");
    oct_check_exit(job, 0);
}

/* Batch systems send these before they kill. */
Test(signals, what_batch_systems_send_saves)
{
    train_and("kill -XCPU $!");
    check_stopped();
    RUN("bash", "-c", TRAIN_WITH("") "kill -USR2 $!; wait $!", "bash", OCT_PROGRAM);
    check_stopped();
}

/* As in a container of Kubernetes; Open MPI's own place is another then. */
Test(signals, ranks_start_where_shared_memory_is_small)
{
    RUN("unshare", "-m", "--propagation", "unchanged", "bash", "-c",
        "mount --make-private /dev/shm && mount -t tmpfs -o size=4m tmpfs /dev/shm || exit 99; "
        "exec \"$1\" train r.yaml --ranks 2",
        "bash", OCT_PROGRAM);
    if (job.exit_code == 99 || oct_process_said(&job, "unshare failed")) return;
    oct_check_exit(job, 0);
}

/* The user has no terminal, and the machine has no entry for the user's number. */
Test(signals, an_unknown_user_without_a_home_starts_ranks)
{
    if (geteuid() != 0) return;
    /* The user may not be able to read the checkout. */
    must("mkdir -m 777 his; cp -r r.yaml data " OCT_PROGRAM " " OCT_BINARY_DIR
         "/octet-hdf5 his; chmod -R a+rX .");
    RUN("bash", "-c",
        "cd his && exec setpriv --reuid 54321 --regid 54321 --clear-groups env -u HOME "
        "OMPI_MCA_orte_tmpdir_base=$PWD PRTE_MCA_prte_tmpdir_base=$PWD ./octet "
        "train r.yaml --ranks 2");
    oct_check_exit(job, 0);
}

/* What a closed terminal sends, and the shell again. */
Test(signals, a_closed_terminal_saves_unless_nohup_keeps_the_run)
{
    train_and("kill -HUP -$!; kill -HUP $!");
    check_stopped();
    RUN("bash", "-c", TRAIN_WITH("") "kill -HUP $!; kill -HUP $!; wait $!", "bash", OCT_PROGRAM);
    check_stopped();
    RUN("bash", "-c",
        "trap '' HUP; " TRAIN "kill -HUP -$!; sleep 1; kill -0 $! && kill -TERM $!; wait $!",
        "bash", OCT_PROGRAM);
    check_stopped();
    RUN("bash", "-c",
        "trap '' HUP; " TRAIN_WITH(
            "") "kill -HUP $!; sleep 1; kill -0 $! && kill -TERM $!; wait $!",
        "bash", OCT_PROGRAM);
    check_stopped();
}

/* The mpirun of Open MPI 4.1 crashes there by itself. */
Test(signals, a_reader_who_leaves_hinders_no_rank)
{
    RUN("bash", "-c",
        "\"$1\" train r.yaml float.epochs=12 log.every=0.1 --ranks 2 2>&1 | head -n 2; "
        "exit ${PIPESTATUS[0]}",
        "bash", OCT_PROGRAM);
    oct_check_exit(job, 0);
    cr_assert(oct_process_said(&job, "cnn-small"), "%s", job.out);
    must("grep -q '\"kind\":\"result\"' new/metrics.jsonl");
    must("! grep -q restart new/log.txt");
}

Test(signals, results_of_ranks_that_cannot_be_written_are_a_failure)
{
    RUN("bash", "-c", "\"$1\" train r.yaml --ranks 2 >/dev/full", "bash", OCT_PROGRAM);
    oct_check_exit(job, 7);
    cr_assert_eq(oct_process_said_times(
                     &job, "octet: error: standard output: cannot write results: No space left"),
                 1, "%s", job.err);
    RUN("bash", "-c", "\"$1\" train r.yaml --ranks 2 >&-", "bash", OCT_PROGRAM);
    oct_check_exit(job, 7);
    RUN("bash", "-c", "\"$1\" train r.yaml --ranks 2 | true; exit ${PIPESTATUS[0]}", "bash",
        OCT_PROGRAM);
    oct_check_exit(job, 0);
}

/* A warning names the stopped rank, then there is one error, and no process is left. */
Test(signals, a_stuck_rank_is_named_and_ends_too)
{
    RUN("bash", "-c",
        TRAIN_WITH("--ranks 3 ranks.deadline=4")
            RANK("1") "kill -STOP $rank; wait $!; code=$?; sleep 1; "
                      "[ -e /proc/$rank/exe ] && echo left over; exit $code",
        "bash", OCT_PROGRAM, NULL);
    oct_check_exit(job, 6);
    oct_check_said(job, " s for rank 1 (");
    oct_check_said(job, "), whose process is stopped, in ");
    oct_check_said(job, "no answer from rank 1 (");
    cr_assert_eq(oct_process_said_times(&job, "error"), 1, "%s", job.err);
    cr_assert(!oct_process_said(&job, "left over"), "%s", job.out);
    must("test $(grep -cE 'Z octet: error: .*no answer from rank 1|^ +rank [012] .*process' "
         "new/log.txt) = 4");
}

Test(signals, ranks_that_were_started_differently_are_distinguished)
{
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    RUN("bash", "-c",
        "mpirun --oversubscribe -n 3 sh -c '[ $OMPI_COMM_WORLD_RANK = 2 ] && lr=float.lr=0.02; "
        "exec \"$0\" train r.yaml $lr' \"$1\"",
        "bash", OCT_PROGRAM);
    oct_check_exit(job, 2);
    oct_check_said(job, "octet: error: rank 2 (");
    oct_check_said(job, "this one with float.lr: 0.02, rank 0 with float.lr: 0.01");
    cr_assert_eq(oct_process_said_times(&job, "octet: error"), 1, "%s", job.err);
    RUN("bash", "-c",
        "mpirun --oversubscribe -n 2 sh -c '[ $OMPI_COMM_WORLD_RANK = 1 ] && exec \"$0\" eval r; "
        "exec \"$0\" bench reduce' \"$1\"",
        "bash", OCT_PROGRAM);
    oct_check_exit(job, 2);
    oct_check_said(job, "this one with octet eval r, rank 0 with octet bench reduce");
}

/* mpirun waits without end for a process that hangs before it becomes a rank. */
Test(signals, an_mpirun_that_starts_no_rank_is_ended)
{
    must("printf '#!/bin/sh\\nsleep 100 & echo $! >pid; wait\\n' >mpirun; "
         "chmod +x mpirun");
    job = oct_process_run(PROGRAM_SECONDS, "bash", "-c",
                          "PATH=.:$PATH exec \"$1\" train r.yaml --ranks 2 --deadline 2", "bash",
                          OCT_PROGRAM, NULL);
    oct_check_exit(job, 6);
    oct_check_said(job, "octet: error: mpirun started no rank before the deadline");
    must("! kill -0 $(cat pid) || grep -q Z /proc/$(cat pid)/stat");
}

/* An mpirun that does not end, here because it runs in a shell, has nothing more to do. */
Test(signals, an_mpirun_that_outlives_its_ranks_is_ended)
{
    must("printf '#!/bin/sh\\n%s \"$@\"\\nsleep 100\\n' $(command -v mpirun) >mpirun; "
         "chmod +x mpirun");
    job = oct_process_run(PROGRAM_SECONDS, "bash", "-c",
                          "PATH=$PWD:$PATH exec \"$1\" train r.yaml --ranks 2 --deadline 5", "bash",
                          OCT_PROGRAM, NULL);
    oct_check_exit(job, 6);
    oct_check_said(job, "octet: error: mpirun did not end with its ranks (stopped or stuck)");
    oct_check_said(job, "int8 accuracy");
}

/* The other ranks have ended by then, so only mpirun still waits for the stopped one, without end. */
Test(signals, a_rank_that_is_stopped_after_the_last_synchronization_is_named_and_ended)
{
    RUN("bash", "-c",
        "LD_PRELOAD=" OCT_BINARY_DIR "/tests/libhalt_after.so "
        "\"$1\" train r.yaml --ranks 2 --deadline 4",
        "bash", OCT_PROGRAM, NULL);
    oct_check_exit(job, 6);
    oct_check_said(job, "octet: warning: rank 1 (process ");
    oct_check_said(job,
                   ", which is stopped) did not end within 2 s of another; the job ends after 4 s");
    oct_check_said(job, "octet: error: rank 1 (process ");
    oct_check_said(job,
                   ") did not end within 4 s of another and was killed; repeat the command to");
    oct_check_said(job, "int8 accuracy");
    cr_assert_eq(oct_process_said_times(&job, "error"), 1, "%s", job.err);
}

/* Within 10 s; three looks in a row, since a listing may leave a name out while others come and go beside it. */
#define LEAVES_NO_FOLDER                                                                           \
    "gone=0; for look in $(seq 200); do gone=$((gone + 1)); "                                      \
    "if ls -d /dev/shm/octet-job.$octet.* >said 2>&1; then gone=0; fi; "                           \
    "[ $gone = 3 ] && break; sleep 0.05; done; [ $gone = 3 ] || { cat said; false; }"

/* At the first moment at which there is a folder. */
Test(signals, a_job_that_is_killed_after_its_folder_leaves_none)
{
    RUN("bash", "-c",
        "OCT_KILL_AFTER_FOLDER=1 LD_PRELOAD=" OCT_BINARY_DIR "/tests/libhalt_after.so "
        "\"$1\" train r.yaml --ranks 2 & octet=$!; wait $octet; [ $? = 137 ] && " LEAVES_NO_FOLDER,
        "bash", OCT_PROGRAM);
    oct_check_exit(job, 0);
}

/* And at others of its first milliseconds, drawn by a seed; half of them as soon as the folder is seen. */
Test(signals, a_job_that_is_killed_in_its_first_milliseconds_leaves_nothing)
{
    RUN("bash", "-c",
        "RANDOM=7; for try in $(seq $((OCT_LONG ? 12 : 8))); do \"$1\" train r.yaml --ranks 2 "
        "2>log & octet=$!; "
        "if [ $((try % 2)) = 0 ]; then sleep 0.0$((RANDOM % 30 + 10)); "
        "else until compgen -G \"/dev/shm/octet-job.$octet.*\" >said || ! kill -0 $octet; do :; "
        "done; fi; kill -KILL $octet; wait $octet 2>log; { " LEAVES_NO_FOLDER "; } || exit 1; done",
        "bash", OCT_PROGRAM);
    oct_check_exit(job, 0);
}

/* Seen in run.json, which holds the environment of rank 0. */
Test(signals, threads_that_share_cores_wait_asleep_unless_the_user_says_otherwise)
{
    static const struct {
        const char *command;
        bool asleep, soon;
    } starts[] = {
        {"$0 $words threads=$((2*cores)) --ranks 2", true, false},
        {"mpirun --oversubscribe --bind-to none -n 2 $0 $words threads=$((2*cores))", true, false},
        {"GOMP_SPINCOUNT=1 $0 $words threads=$((2*cores)) --ranks 2", false, false},
        {"taskset -c 0 $0 $words threads=2", true, false},
        {"$0 $words threads=2", false, true},
        {"$0 $words threads=1", false, false},
    };
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    unsetenv("OMP_WAIT_POLICY");
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
        char script[400];
        if (starts[i].soon && sysconf(_SC_NPROCESSORS_ONLN) < 2) continue;
        snprintf(script, sizeof(script),
                 "rm -rf new; cores=$(nproc); words='train r.yaml float.epochs=0'; "
                 "%s >log 2>&1 || { cat log; exit 1; }; "
                 "grep -c '\"OMP_WAIT_POLICY\": \"passive\"' new/run.json; "
                 "grep -c '\"GOMP_SPINCOUNT\": \"2000\"' new/run.json",
                 starts[i].command);
        RUN("bash", "-c", script, OCT_PROGRAM);
        cr_assert_str_eq(job.out,
                         starts[i].asleep ? "1\n0\n"
                         : starts[i].soon ? "0\n1\n"
                                          : "0\n0\n",
                         "%s: %s", starts[i].command, job.out);
    }
}

/* libgomp binds the process that starts the ranks before main, and all ranks would inherit that. */
Test(signals, ranks_have_the_cores_that_their_parent_was_started_on)
{
    static const char *const binds[] = {"OMP_PROC_BIND=true", "GOMP_CPU_AFFINITY=0-1",
                                        "OMP_PLACES=cores"};
    const size_t count = oct_test_is_long() ? 3 : 2;
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) return;
    for (size_t i = 0; i < count; i++) {
        RUN("env", binds[i], "taskset", "-c", "0,1", OCT_PROGRAM, "train", "r.yaml", "qat.epochs=0",
            "--ranks", "2");
        oct_check_exit(job, 0);
        cr_assert_eq(oct_process_said_times(&job, "warning"), 0, "%s", job.err);
        must("! grep -E 'OMP_PROC_BIND|OMP_PLACES|GOMP_CPU' new/run.json; rm -r new");
    }
}

/* mpirun would pin the rank to core 0. */
Test(signals, ranks_stay_on_the_cores_that_taskset_gave)
{
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) return;
    must("printf '#!/bin/sh\\n[ $1 = --version ] || echo \"$@\" >asked\\nexec %s \"$@\"\\n' "
         "$(command -v mpirun) >mpirun; chmod +x mpirun");
    RUN("bash", "-c", "PATH=$PWD:$PATH exec taskset -c 1 \"$1\" train r.yaml --ranks 1", "bash",
        OCT_PROGRAM);
    oct_check_exit(job, 0);
    must("grep -e '-bind-to none' asked");
}

/* Where this user may make control groups: half of a processor's time is one core. */
Test(signals, the_quota_of_a_control_group_counts_as_cores)
{
    RUN("bash", "-c",
        "v1=/sys/fs/cgroup/cpu/octet-test.$$ v2=/sys/fs/cgroup/octet-test.$$; "
        "trap 'echo $$ >${group%/*}/cgroup.procs; rmdir $group' EXIT; "
        "if mkdir $v1 && echo 50000 >$v1/cpu.cfs_quota_us; then group=$v1; "
        "elif mkdir $v2 && echo 50000 100000 >$v2/cpu.max; then group=$v2; else trap - EXIT; exit "
        "99; fi; "
        "echo $$ >$group/cgroup.procs && \"$1\" train r.yaml --ranks 2",
        "bash", OCT_PROGRAM);
    if (job.exit_code == 99) return;
    oct_check_exit(job, 0);
    oct_check_said(job, "2 ranks of 1 thread on 1 core: this is slow");
}

Test(signals, far_more_ranks_than_cores_are_refused_at_once)
{
    job = oct_process_run(PROGRAM_SECONDS, OCT_PROGRAM, "train", "r.yaml", "--ranks", "4096", NULL);
    if (sysconf(_SC_NPROCESSORS_ONLN) < 256) oct_check_exit(job, 2);
    oct_check_said(job, "command line: --ranks 4096 on ");
    cr_assert_lt(job.seconds, 10);
}

/* Nothing but mpirun --version is started. On a disk without room a run that is new says it before its first step, and
 * leaves nothing. */
Test(signals, what_recipe_and_disk_rule_out_is_refused_before_ranks_start)
{
    must("printf '#!/bin/sh\\n[ $1 = --version ] || : >asked\\nexec %s \"$@\"\\n' "
         "$(command -v mpirun) >mpirun; chmod +x mpirun");
    RUN("bash", "-c", "PATH=$PWD:$PATH exec \"$1\" train r.yaml --ranks 9", "bash", OCT_PROGRAM);
    oct_check_exit(job, 2);
    oct_check_said(job, "octet: error: more ranks (9) than leaves (");
    RUN("unshare", "-m", "--propagation", "unchanged", "bash", "-c",
        "mkdir -p full && mount -t tmpfs -o size=100k tmpfs full || exit 99; "
        "\"$1\" train r.yaml output=full/new; [ $? = 7 ] && [ ! -e full/new ] || exit 1; "
        "mkdir -p full/new/checkpoints; echo '{\"schema\": 1, \"checkpoints\": [{\"file\": "
        "\"step-00000002.h5\", \"step\": 2, \"bytes\": 200000, \"sha256\": \"'"
        "$(printf '%064d' 0)'\"}]}' >full/new/checkpoints/manifest.json; "
        "PATH=$PWD:$PATH exec \"$1\" train r.yaml output=full/new --ranks 2",
        "bash", OCT_PROGRAM);
    must("test ! -e asked");
    if (job.exit_code == 99 || oct_process_said(&job, "unshare failed")) return;
    oct_check_exit(job, 7);
    cr_assert_eq(oct_process_said_times(&job, ", and full/new has room for "), 2, "%s", job.err);
}

Test(signals, without_mpirun_it_is_said_once)
{
    job = oct_process_run(PROGRAM_SECONDS, "env", "PATH=/nowhere", OCT_PROGRAM, "train", "r.yaml",
                          "--ranks", "2", NULL);
    oct_check_exit(job, 7);
    cr_assert_eq(oct_process_said_times(&job, "mpirun cannot be started"), 1, "%s", job.err);
}
