/* dist through mpirun: the checks are in tests/ranks, here the jobs are started and judged. */
#include "dist/comm.h"

#include "tests/support/mpirun.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LIMIT_S = 60 };

static const int rank_counts[] = {1, 2, 3, 4, 5};

/* --- sums, maxima, broadcasts ------------------------------------------------------------------ */

Test(comm, tree_sum_has_the_same_bits_on_any_number_of_ranks, .timeout = 240)
{
    for (size_t i = 0; i < OCT_COUNT(rank_counts); i++) {
        char said[64];
        snprintf(said, sizeof(said), "equal on %d ranks", rank_counts[i]);
        oct_process job = oct_mpirun(rank_counts[i], LIMIT_S, "rank_reduce", NULL);
        oct_check_exit(job, 0);
        oct_check_said(job, said);
        oct_process_free(&job);
    }
}

Test(comm, maximum_broadcast_and_gather_work_on_any_number_of_ranks, .timeout = 240)
{
    for (size_t i = 0; i < OCT_COUNT(rank_counts); i++) {
        char said[64];
        snprintf(said, sizeof(said), "collected on %d ranks", rank_counts[i]);
        oct_process job = oct_mpirun(rank_counts[i], LIMIT_S, "rank_collect", NULL);
        oct_check_exit(job, 0);
        oct_check_said(job, said);
        oct_process_free(&job);
    }
}

Test(comm, a_rank_whose_bits_differ_is_named, .timeout = 90)
{
    oct_process job = oct_mpirun(4, LIMIT_S, "rank_collect", "--differ=2", NULL);
    oct_check_exit(job, 3);
    oct_check_said(job, "rank 2 (");
    oct_check_said(job, ") reads other weights than rank 0 (");
    oct_check_said(job, "): their files differ; give all hosts the same ones");
    oct_process_free(&job);
}

/* --- agreement --------------------------------------------------------------------------------- */

Test(agree, says_ok_when_all_are, .timeout = 90)
{
    oct_process job = oct_mpirun(3, LIMIT_S, "rank_agree", NULL);
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job, "status 0 code 0"), 3);
    oct_process_free(&job);
}

Test(agree, one_failing_rank_is_named_and_all_leave_with_its_code, .timeout = 90)
{
    oct_process job = oct_mpirun(4, LIMIT_S, "rank_agree", "2", NULL);
    oct_check_exit(job, oct_status_exit(OCT_DATA));
    oct_check_said(job, "octet: error: rank 2 (");
    oct_check_said(job, "): batch_2.bin: truncated\nread 3 of 10 bytes\n");
    oct_check_said(job, "octet: error: second sentence of 2\n");
    oct_check_said(job, "rank 2 status 3 code 3");
    cr_assert_eq(oct_process_said_times(&job, "status 10 code 3"), 3);
    oct_process_free(&job);
}

Test(agree, the_first_of_two_failing_ranks_is_reported_and_both_keep_their_status, .timeout = 90)
{
    oct_process job = oct_mpirun(4, LIMIT_S, "rank_agree", "3", "1", NULL);
    oct_check_exit(job, 3);
    oct_check_said(job, "): batch_1.bin: truncated");
    cr_assert(!oct_process_said(&job, "batch_3.bin"), "%s", job.err);
    cr_assert_eq(oct_process_said_times(&job, "status 3 code 3"), 2);
    cr_assert_eq(oct_process_said_times(&job, "status 10 code 3"), 2);
    oct_process_free(&job);
}

Test(agree, rank_0_reports_its_own_failure_without_a_prefix, .timeout = 90)
{
    oct_process job = oct_mpirun(3, LIMIT_S, "rank_agree", "0", NULL);
    oct_check_exit(job, 3);
    oct_check_said(job, "octet: error: batch_0.bin: truncated");
    oct_process_free(&job);
}

Test(agree, a_failure_shared_by_all_is_one_message_without_a_rank, .timeout = 90)
{
    oct_process job = oct_mpirun(4, LIMIT_S, "rank_agree", "all", NULL);
    oct_check_exit(job, 2);
    cr_assert_eq(oct_process_said_times(&job, "octet: error:"), 2, "%s", job.err);
    oct_check_said(job, "octet: error: recipe.yaml:3: no such model\n");
    oct_check_said(job, "octet: error: recipe.yaml:9: no such optimizer\n");
    cr_assert_eq(oct_process_said_times(&job, "status 2 code 2"), 4);
    oct_process_free(&job);
}

Test(agree, too_many_sentences_are_cut_not_lost, .timeout = 90)
{
    oct_process job = oct_mpirun(2, LIMIT_S, "rank_agree", "long", NULL);
    oct_check_exit(job, 3);
    oct_check_said(job, "octet: error: rank 1 (");
    oct_check_said(job, "octet: error: problem 20: ");
    oct_process_free(&job);
}

/* --- faults ------------------------------------------------------------------------------------ */

Test(fault, a_killed_rank_ends_the_job_within_seconds, .timeout = 90)
{
    oct_process job = oct_mpirun(3, LIMIT_S, "rank_fault", "kill", "1", NULL);
    cr_assert(job.exit_code != 0 && !job.timed_out, "exit %d", job.exit_code);
    cr_assert_lt(job.seconds, 15.0);
    cr_assert(!oct_process_said(&job, "ended"));
    oct_process_free(&job);
}

Test(fault, a_rank_that_leaves_without_a_word_ends_the_job, .timeout = 90)
{
    oct_process job = oct_mpirun(3, LIMIT_S, "rank_fault", "exit", "2", NULL);
    cr_assert(job.exit_code != 0 && !job.timed_out, "exit %d", job.exit_code);
    cr_assert(!oct_process_said(&job, "ended"));
    oct_process_free(&job);
}

Test(fault, a_sleeping_rank_is_named_after_the_deadline, .timeout = 90)
{
    for (int guilty = 0; guilty < 4; guilty += oct_test_is_long() ? 1 : 3) {
        char rank[16], said[64];
        snprintf(rank, sizeof(rank), "%d", guilty);
        snprintf(said, sizeof(said), "octet: error: no answer from rank %d (", guilty);
        oct_process job = oct_mpirun(4, LIMIT_S, "rank_fault", "sleep", rank, "2", NULL);
        oct_check_exit(job, oct_status_exit(OCT_LOST));
        oct_check_said(job, said);
        oct_check_said(job, "in sum over leaves 23;");
        cr_assert_eq(oct_process_said_times(&job, "octet: error:"), 1, "%s", job.err);
        cr_assert_lt(job.seconds, 15.0);
        oct_process_free(&job);
    }
}

Test(fault, a_stopped_rank_is_named_and_goes_with_the_job, .timeout = 90)
{
    oct_process job = oct_mpirun(3, LIMIT_S, "rank_fault", "stopped", "1", "2", NULL);
    oct_check_exit(job, 6);
    oct_check_said(job, "no answer from rank 1 (");
    /* The last operation of each rank is reported once. */
    cr_assert_eq(oct_process_said_times(&job, "\n  rank 1 ("), 1, "%s", job.err);
    oct_check_said(job, ") is stopped, in or after maximum 22, begun ");
    cr_assert_eq(oct_process_said_times(&job, "\n  rank 0 ("), 1, "%s", job.err);
    cr_assert_eq(oct_process_said_times(&job, "\n  rank 2 ("), 1, "%s", job.err);
    oct_process_free(&job);
}

/* Some pieces of the bucket are summed, others are in the slots; or its rows are filled in and not summed. */
Test(fault, a_rank_that_stops_inside_of_a_buckets_sum_is_named, .timeout = 180)
{
    static const char *const kinds[] = {"bucket-stop", "rows-stop"};
    for (size_t i = 0; i < OCT_COUNT(kinds); i++) {
        oct_process job = oct_mpirun(3, LIMIT_S, "rank_fault", kinds[i], "1", "2", NULL);
        oct_check_exit(job, oct_status_exit(OCT_LOST));
        oct_check_said(job, "octet: error: no answer from rank 1 (");
        oct_check_said(job, "in sum of gradients ");
        cr_assert_eq(oct_process_said_times(&job, "octet: error:"), 1, "%s", job.err);
        cr_assert(!oct_process_said(&job, "ended"));
        oct_process_free(&job);
    }
}

Test(fault, a_rank_that_is_killed_inside_of_a_buckets_sum_ends_the_job, .timeout = 180)
{
    static const char *const kinds[] = {"bucket-kill", "rows-kill"};
    for (size_t i = 0; i < OCT_COUNT(kinds); i++) {
        oct_process job = oct_mpirun(3, LIMIT_S, "rank_fault", kinds[i], "1", NULL);
        cr_assert(job.exit_code != 0 && !job.timed_out, "exit %d", job.exit_code);
        oct_check_said(job, "signal 9");
        if (strcmp(OCT_MPI_NAME, "Open MPI") == 0) /* mpirun says it; MPICH's names no rank */
            oct_check_said(job, "rank 1 with PID");
        cr_assert_lt(job.seconds, 15.0);
        cr_assert(!oct_process_said(&job, "ended"));
        oct_process_free(&job);
    }
}

/* mpirun wakes it to end it; it must not accuse those that have gone. */
Test(fault, a_stopped_rank_is_warned_of_first_and_there_is_one_error, .timeout = 90)
{
    for (int ranks = oct_test_is_long() ? 2 : 3; ranks <= 3; ranks++) {
        oct_process job = oct_mpirun(ranks, LIMIT_S, "rank_fault", "stopped", "1", "4", NULL);
        oct_check_exit(job, 6);
        cr_assert_eq(oct_process_said_times(&job, "octet: warning:"), 1, "%s", job.err);
        oct_check_said(job, " has waited 2 s for rank 1 (");
        oct_check_said(job, "), whose process is stopped, in sum over leaves 23;");
        cr_assert_eq(oct_process_said_times(&job, "octet: error:"), 1, "%s", job.err);
        oct_process_free(&job);
    }
}

/* The mpirun of MPICH has a status of its own where a rank ends outside of MPI; that of Open MPI 4.1 now and then crashes
 * in its own PMIx_server_finalize, after the rank has reported its error. */
static void check_lost(const oct_process *job)
{
    if (strcmp(OCT_MPI_NAME, "MPICH") == 0 || oct_process_said(job, "PMIx_server_finalize"))
        cr_assert(job->exit_code != 0 && !job->timed_out, "%s", job->err);
    else
        oct_check_exit(*job, 6);
}

/* MPI itself waits for ever in these calls. */
Test(fault, a_rank_that_stands_still_where_mpi_starts_or_ends_is_named, .timeout = 180)
{
    static const struct {
        const char *call, *name, *rank;
    } halts[] = {
        {"init", "MPI_Init", "0"}, {"dup", "MPI_Comm_dup", "2"}, {"finalize", "MPI_Finalize", "1"}};
    for (size_t i = 0; i < OCT_COUNT(halts); i++) {
        char said[128];
        oct_process job =
            oct_mpirun(3, LIMIT_S, "rank_halt", halts[i].call, halts[i].rank, "6", NULL);
        check_lost(&job);
        snprintf(said, sizeof(said), "octet: error: %s waited 6", halts[i].name);
        oct_check_said(job, said);
        snprintf(said, sizeof(said), " for rank %s (its process is stopped) on ", halts[i].rank);
        cr_assert_eq(oct_process_said_times(&job, said), 2, "%s", job.err); /* warning and error */
        cr_assert_eq(oct_process_said_times(&job, "octet: error:"), 1, "%s", job.err);
        cr_assert_eq(oct_process_said_times(&job, "ended"), 0, "%s", job.out);
        oct_process_free(&job);
    }
}

/* Runs two ranks whose mpirun is stopped for a while. Once awake it may end the job before it has read their last words,
 * so these go to a file: `out` of the result, which has the job's status. */
static oct_process run_with_stopped_launcher(const char *words)
{
    oct_tmp tmp;
    char line[1024];
    oct_tmp_create(&tmp);
    snprintf(line, sizeof line, "exec " OCT_BINARY_DIR "/ranks/%s 2>>%s", words,
             oct_tmp_path(&tmp, "said"));
    oct_process job = oct_mpirun(2, LIMIT_S, "/bin/sh", "-c", line, NULL);
    oct_process said = oct_process_run(10, "/bin/cat", oct_tmp_path(&tmp, "said"), NULL);
    said.exit_code = job.exit_code;
    said.timed_out = job.timed_out;
    oct_process_free(&job);
    oct_tmp_remove(&tmp);
    return said;
}

/* MPI waits for it where it ends, and where it is to end the job. */
Test(fault, a_stopped_mpirun_is_named_and_the_ranks_end, .timeout = 90)
{
    static const char stopped[] = ") is stopped, and kill -CONT ";
    if (strcmp(OCT_MPI_NAME, "MPICH") == 0) return; /* whose proxy loses what they say */
    oct_process job[] = {run_with_stopped_launcher("rank_halt finalize 1 6 mpirun"),
                         run_with_stopped_launcher("rank_fault mpirun 1 1")};
    oct_check_said(job[1], "no answer from rank 1 (");
    for (size_t i = 0; i < OCT_COUNT(job); i++) {
        cr_assert(job[i].exit_code != 0 && !job[i].timed_out, "exit %d", job[i].exit_code);
        cr_assert_eq(oct_process_said_times(&job[i], stopped), 2, "%s", job[i].out);
        cr_assert_eq(oct_process_said_times(&job[i], "is still there"), 0, "%s", job[i].out);
        oct_process_free(&job[i]);
    }
}

Test(fault, another_order_of_collectives_is_an_error_not_a_hang, .timeout = 90)
{
    oct_process job = oct_mpirun(3, LIMIT_S, "rank_fault", "order", "1", NULL);
    oct_check_exit(job, 6);
    oct_check_said(job, "the ranks left their common order: ");
    oct_check_said(job, "in maximum 23");
    oct_check_said(job, "in sum over leaves 23");
    cr_assert_eq(oct_process_said_times(&job, "octet: error:"), 1, "%s", job.err);
    oct_process_free(&job);
}

Test(fault, another_length_is_an_error_that_names_the_rank, .timeout = 90)
{
    oct_process job = oct_mpirun(3, LIMIT_S, "rank_fault", "length", "1", NULL);
    oct_check_exit(job, 6);
    oct_check_said(job, "the ranks disagree about sum over leaves 23: rank 1 (");
    oct_process_free(&job);
}

Test(fault, a_broken_invariant_on_one_rank_ends_the_job_as_a_defect, .timeout = 90)
{
    oct_process job = oct_mpirun(3, LIMIT_S, "rank_fault", "assert", "2", NULL);
    oct_check_exit(job, 70);
    oct_check_said(job, "broken invariant");
    oct_process_free(&job);
}

Test(fault, stop_ends_the_job_with_its_status_from_any_rank, .timeout = 90)
{
    oct_process job = oct_mpirun(3, LIMIT_S, "rank_fault", "stop", "1", NULL);
    oct_check_exit(job, 5);
    oct_process_free(&job);
}

Test(fault, stop_works_before_mpi_starts, .timeout = 90)
{
    oct_process job = oct_mpirun(2, LIMIT_S, "rank_fault", "before", "0", NULL);
    oct_check_exit(job, 6);
    oct_process_free(&job);
}

Test(fault, a_rank_that_is_only_late_is_waited_for, .timeout = 90)
{
    oct_process job = oct_mpirun(3, LIMIT_S, "rank_fault", "late", "1", "2", NULL);
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job, "ended"), 3);
    oct_process_free(&job);
}

Test(fault, ranks_end_with_their_mpirun_even_stopped_ones, .timeout = 90)
{
    static const char script[] = OCT_MPIEXEC
        " -n 2 -bind-to none " OCT_BINARY_DIR
        "/ranks/rank_fault stopped 1 50 >/dev/null 2>&1 & job=$!\n"
        "for i in $(seq 100); do\n"
        "  set -- $(cat /proc/$job/task/*/children)\n"
        "  [ $# = 1 ] && set -- $(cat /proc/$1/task/*/children) # of MPICH's proxy\n"
        "  ranks=$*; [ $# = 2 ] && break; sleep 0.1\n"
        "done\n"
        "[ $# = 2 ] || { echo started $# ranks; kill -9 $job; exit 1; }\n"
        "sleep 1; kill -9 $job; sleep 1\n"
        "for rank in $ranks; do grep -q rank_fault /proc/$rank/cmdline && echo alive; done "
        "2>/dev/null\n"
        "echo looked\n";
    oct_tmp own;
    oct_mpirun_begin(&own);
    oct_process job = oct_process_run(LIMIT_S, "bash", "-c", script, NULL);
    oct_tmp_remove(&own);
    oct_check_exit(job, 0);
    oct_check_said(job, "looked");
    cr_assert(!oct_process_said(&job, "alive"), "%s", job.out);
    oct_process_free(&job);
}

/* --- start ------------------------------------------------------------------------------------- */

#define HELLO OCT_BINARY_DIR "/ranks/rank_hello"

Test(start, without_a_launcher_there_is_one_rank_and_no_mpi, .timeout = 30)
{
    oct_process job = oct_process_run(LIMIT_S, HELLO, NULL);
    oct_check_exit(job, 0);
    oct_check_said(job, "rank 0 of 1, none, host known");
    oct_process_free(&job);
}

Test(start, under_mpirun_every_rank_knows_its_place, .timeout = 90)
{
    oct_process job = oct_mpirun(3, LIMIT_S, "rank_hello", NULL);
    oct_check_exit(job, 0);
    oct_check_said(job, "rank 0 of 3, " OCT_MPI_NAME " ");
    oct_check_said(job, "rank 1 of 3, " OCT_MPI_NAME " ");
    oct_check_said(job, "rank 2 of 3, " OCT_MPI_NAME " ");
    oct_process_free(&job);
}

/* The end of another job's mpirun, which clears its session away, must not reach into that of a test. */
Test(start, the_files_of_a_test_lie_in_a_folder_of_its_own, .timeout = 90)
{
    if (strcmp(OCT_MPI_NAME, "Open MPI") != 0) return;
    static const char name[] = "/octet-test-XXXXXX";
    oct_process job =
        oct_mpirun(1, LIMIT_S, "/bin/sh", "-c", "printf %s \"$PMIX_SERVER_TMPDIR\"", NULL);
    char *base = strstr(job.out, "/octet-test-");
    oct_check_exit(job, 0);
    cr_assert(base && strlen(base) > strlen(name), "%s", job.out);
    base[strlen(name)] = '\0';
    cr_assert_neq(access(job.out, F_OK), 0, "%s is still there", job.out);
    oct_process_free(&job);
}

/* Somebody who guesses the name of the table must not be given what ranks write, nor write what they read. */
Test(start, a_table_of_ranks_that_is_another_users_is_left_alone, .timeout = 90)
{
    static const char script[] =
        "folder=$(mktemp -d); trap 'rm -r $folder' EXIT; : >$folder/octet-ranks; "
        "chmod 666 $folder/octet-ranks; chown 54321 $folder/octet-ranks || exit 99; " OCT_MPIEXEC
        " -n 2 sh -c \"PMIX_SERVER_TMPDIR=$folder exec " HELLO "\"; "
        "stat -c 'bytes %s' $folder/octet-ranks";
    if (geteuid() != 0) return;
    oct_tmp own;
    oct_mpirun_begin(&own);
    oct_process job = oct_process_run(LIMIT_S, "bash", "-c", script, NULL);
    oct_tmp_remove(&own);
    oct_check_exit(job, 0);
    oct_check_said(job, "rank 1 of 2, ");
    oct_check_said(job, "bytes 0\n");
    oct_process_free(&job);
}

/* It ended well and before the others came to MPI_Init, so mpirun lets them wait there for it. */
Test(start, a_rank_that_is_another_program_is_named_at_once, .timeout = 90)
{
    oct_process job =
        oct_mpirun(2, 50, "/bin/sh", "-c",
                   "[ ${OMPI_COMM_WORLD_RANK-$PMI_RANK} = 1 ] && exit; sleep 1; exec " HELLO, NULL);
    check_lost(&job);
    oct_check_said(job, "octet: error: rank 1 on ");
    oct_check_said(job, "ended before it started MPI");
    cr_assert_eq(oct_process_said_times(&job, "octet: error:"), 1, "%s", job.err);
    oct_process_free(&job);
}

Test(start, srun_without_pmi_is_refused_with_the_remedy, .timeout = 30)
{
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    setenv("SLURM_PROCID", "2", 1);
    oct_process job = oct_process_run(LIMIT_S, HELLO, NULL);
    oct_check_exit(job, 2);
    oct_check_said(job, "srun started 4 tasks without PMI");
    oct_check_said(job, "srun --mpi=pmix");
    oct_process_free(&job);
    job = oct_process_run(LIMIT_S, HELLO, "environment", NULL);
    oct_check_said(job, "launched 1 rank 2 of 4");
    oct_process_free(&job);
}

Test(start, a_batch_script_or_a_step_of_one_task_is_no_launcher, .timeout = 30)
{
    setenv("SLURM_NTASKS", "8", 1);
    setenv("SLURM_PROCID", "0", 1);
    oct_process job = oct_process_run(LIMIT_S, HELLO, NULL);
    oct_check_exit(job, 0);
    oct_check_said(job, "rank 0 of 1, none");
    oct_process_free(&job);
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    job = oct_process_run(LIMIT_S, HELLO, NULL);
    oct_check_exit(job, 0);
    oct_process_free(&job);
}

Test(start, the_mpirun_of_another_library_is_refused, .timeout = 60)
{
    setenv("PMI_RANK", "2", 1);
    setenv("PMI_SIZE", "4", 1);
    oct_process job = oct_process_run(LIMIT_S, HELLO, NULL);
    oct_check_exit(job, 2);
    oct_check_said(job, "the launcher started 4 ranks, but " OCT_MPI_NAME " ");
    oct_check_said(job, "another MPI library");
    oct_process_free(&job);
}

Test(start, one_process_agrees_with_itself)
{
    oct_comm *comm = NULL;
    cr_assert_eq(oct_comm_open(&comm, 5), OCT_OK);
    const oct_collective *all = oct_comm_collective(comm);
    cr_assert_eq(all->agree(all, OCT_OK), OCT_OK);
    cr_assert_eq(all->agree(all, OCT_DATA), OCT_DATA);
    cr_assert_eq(oct_comm_same(comm, "x", 1, "weights"), OCT_OK);
    oct_comm_close(&comm);
    cr_assert_null(comm);
    oct_comm_close(&comm);
}

/* --- programs that have MPI themselves ---------------------------------------------------------- */

/* Nothing is left of 200 communicators, of all ranks or a part, and MPI is still the program's. */
Test(guest, an_mpi_program_keeps_its_mpi_and_its_process, .timeout = 90)
{
    oct_process job = oct_process_run(LIMIT_S, OCT_BINARY_DIR "/ranks/rank_guest", "first", NULL);
    oct_check_exit(job, 0); /* MPI without mpirun sets a launcher's variables */
    oct_check_said(job, "a guest on 1 ranks");
    oct_process_free(&job);
    job = oct_mpirun(3, LIMIT_S, "rank_guest", "first", NULL);
    oct_check_exit(job, 0);
    oct_check_said(job, "a guest on 3 ranks");
    cr_assert_eq(oct_process_said_times(&job, "octet"), 0, "%s", job.err);
    oct_process_free(&job);
}

/* mpirun complains of ranks that leave without MPI_Finalize, by its exit status, too. */
Test(guest, what_octet_began_ends_once_with_the_program, .timeout = 90)
{
    oct_process job = oct_mpirun(2, LIMIT_S, "rank_guest", "began", NULL);
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job, "2 ranks\n"), 2, "%s", job.out);
    cr_assert_eq(oct_process_said_times(&job, "MPI ends\n"), 2, "%s", job.out);
    oct_process_free(&job);
}

Test(guest, threads_of_the_program_have_ranks_at_the_same_time, .timeout = 90)
{
    oct_process job = oct_mpirun(2, LIMIT_S, "rank_guest", "threads", NULL);
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job, "threads ended\n"), 2, "%s", job.out);
    oct_process_free(&job);
}

Test(guest, a_communicator_outlives_mpi_as_an_error, .timeout = 90)
{
    oct_process job = oct_mpirun(2, LIMIT_S, "rank_guest", "finalized", NULL);
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job, "closed\n"), 2, "%s", job.out);
    oct_process_free(&job);
}

Test(guest, a_lost_rank_is_an_error_and_the_program_lives, .timeout = 90)
{
    oct_process job = oct_mpirun(3, LIMIT_S, "rank_guest", "lost", NULL);
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job, "alive\n"), 3, "%s", job.out);
    cr_assert_eq(oct_process_said_times(&job, "octet: "), 0, "%s", job.err);
    oct_process_free(&job);
}
