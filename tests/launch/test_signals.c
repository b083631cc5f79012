/* --ranks and signals: a request to stop reaches the ranks in time for a checkpoint, and a rank that
 * is killed is named. A small set is trained for far more epochs than a test lasts.
 */
#include "tests/launch/small_data.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <unistd.h>

enum { SECONDS = 60 };

static oct_tmp tmp;
static oct_job job;

static void start(void)
{
    oct_tmp_create(&tmp);
    cr_assert(chdir(tmp.path) == 0);
    small_shell(tmp.path, "mkdir data");
    small_idx("data", "train", 96, 12);
    small_idx("data", "t10k", 40, 12);
    FILE *file = small_create(tmp.path, "r.yaml");
    fputs(small_recipe, file);
    fclose(file);
}

static void clean_up(void)
{
    oct_job_free(&job);
    oct_tmp_remove(&tmp);
}

TestSuite(signals, .init = start, .fini = clean_up);

/* Starts training as $!, in a process group of its own, and waits for a checkpoint newer than this
 * call; then `action`; ends as octet does. $1 is the program. */
#define TRAIN                                                                                      \
    "set -m; touch begin; "                                                                        \
    "\"$1\" train r.yaml float.epochs=10000 checkpoint.every=5 --ranks 2 & "                       \
    "until [ -n \"$(find new/checkpoints -name 'step-*.h5' -newer begin 2>/dev/null)\" ]; do "     \
    "kill -0 $! || exit 99; sleep 0.05; done; "

static void train_and(const char *action)
{
    char script[1024];
    snprintf(script, sizeof(script), TRAIN "%s; wait $!", action);
    oct_job_free(&job);
    job = oct_job_run(SECONDS, "bash", "-c", script, "bash", OCT_PROGRAM, NULL);
}

static void check_stopped(void)
{
    oct_check_exit(job, 75);
    cr_assert_eq(oct_job_said_times(&job, "stopped after step"), 1, "%s", job.err);
    cr_assert_eq(oct_job_said_times(&job, "error"), 0, "%s", job.err);
}

Test(signals, ctrl_c_saves_and_the_same_command_continues)
{
    train_and("kill -INT -$!");
    check_stopped();
    train_and("kill -TERM $!");
    check_stopped();
    oct_check_said(job, "continu");
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
    cr_assert_eq(oct_job_said_times(&job, "a rank was ended by signal 9 (Killed); repeat the "
                                          "command to continue from the newest checkpoint"),
                 1, "%s", job.err);
    train_and("kill -INT $!");
    check_stopped();
}

Test(signals, without_mpirun_it_is_said_once)
{
    job = oct_job_run(SECONDS, "env", "PATH=/nowhere", OCT_PROGRAM, "train", "r.yaml", "--ranks",
                      "2", NULL);
    oct_check_exit(job, 7);
    cr_assert_eq(oct_job_said_times(&job, "mpirun cannot be started"), 1, "%s", job.err);
}
