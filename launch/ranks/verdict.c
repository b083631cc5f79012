/* mpirun's exit status alone does not show who was lost: 137 is any rank's end by signal 9, and 1 is mpirun's own end
 * as well as an answer; that of MPICH holds the bits of all ranks' statuses, and 9 for a rank's end by signal 9. The
 * table of ranks shows the rest. */
#include "launch/ranks/watch.h"

#include "core/base/log.h"
#include "launch/base/output.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

int64_t oct_ranks_begun(const oct_ranks_seen *seen)
{
    int64_t begun = seen->begun_elsewhere;
    for (int i = 0; i < oct_rank_table_lines(); i++)
        begun += oct_rank_table_line(i).pid > 0;
    return begun;
}

int oct_ranks_failed_status(void)
{
    const int lost = oct_status_exit(OCT_LOST);
    int failed = 0;
    for (int i = 0; i < oct_rank_table_lines(); i++) {
        const oct_rank_view view = oct_rank_table_line(i);
        if (view.stage != OCT_RANK_ENDED || view.exit_status == 0) continue;
        if (failed == 0 || failed == lost) failed = view.exit_status;
    }
    return failed;
}

bool oct_ranks_train(const oct_ranks_start *start)
{
    return strcmp(start->job.args->argv[1], "train") == 0;
}

static const char *remedy_text(const oct_ranks_seen *seen)
{
    if (seen->start->goes_on) return "";
    return oct_ranks_train(seen->start)
               ? "; repeat the command to continue from the newest checkpoint"
               : "; repeat the command";
}

/* "rank 1 (node7)"; "a rank" where it cannot be seen from this host. */
static const char *name_gone_rank(const oct_ranks_seen *seen, char text[128])
{
    char host[OCT_HOST_BYTES];
    oct_host_name(host);
    if (seen->rank_gone)
        snprintf(text, 128, "rank %d (%s)", seen->gone_rank.rank, host);
    else
        snprintf(text, 128, "a rank");
    return text;
}

static const char *step_of_gone_rank(const oct_ranks_seen *seen, char text[64])
{
    text[0] = '\0';
    if (seen->rank_gone && seen->gone_rank.step > 0)
        snprintf(text, 64, " in step %lld", (long long)seen->gone_rank.step);
    return text;
}

static bool some_rank_exited_with(int exit_status)
{
    for (int i = 0; i < oct_rank_table_lines(); i++) {
        const oct_rank_view view = oct_rank_table_line(i);
        if (view.stage == OCT_RANK_ENDED && view.exit_status == exit_status) return true;
    }
    return false;
}

static bool begun_on_no_host(const oct_ranks_seen *seen)
{
    return oct_rank_table_lines() > 0 && oct_ranks_begun(seen) == 0;
}

/* Whether all ranks got a request to stop: a signal to mpirun reaches all; where one ends by itself, mpirun asks only
 * the others. Of ranks on other hosts that is unknown. */
static bool all_ranks_were_asked(const oct_ranks_seen *seen)
{
    for (int i = 0; i < oct_rank_table_lines(); i++) {
        const oct_rank_view view = oct_rank_table_line(i);
        if (view.pid > 0 && !view.stops) return false;
    }
    return oct_ranks_begun(seen) - seen->begun_elsewhere >= seen->start->job.ranks;
}

static oct_status fail_stopped(const oct_ranks_seen *seen, const char *how)
{
    const oct_status status = oct_fail(OCT_STOPPED, "%s%s", how, remedy_text(seen));
    if (some_rank_exited_with(oct_status_exit(OCT_STOPPED)))
        oct_failure_silence(); /* and has reported it */
    return status;
}

static oct_status fail_signalled(const oct_ranks_seen *seen, int signal_number)
{
    char who[128], place[64];
    return oct_fail(
        OCT_LOST, "%s was ended by signal %d (%s)%s%s%s%s", name_gone_rank(seen, who),
        signal_number, strsignal(signal_number), step_of_gone_rank(seen, place), remedy_text(seen),
        signal_number == SIGKILL ? "\nif no user sent it, the kernel ended it, since memory was out"
                                 : "",
        seen->report);
}

/* mpirun was ended from outside. */
static oct_status fail_mpirun_signalled(const oct_ranks_seen *seen, int signal_number)
{
    const bool polite = signal_number == SIGTERM || signal_number == SIGINT ||
                        signal_number == SIGHUP || signal_number == SIGUSR1;
    if (polite) return fail_stopped(seen, "mpirun was stopped, and its ranks with it");
    return oct_fail(OCT_LOST, "mpirun itself was ended by signal %d (%s), and its ranks with it%s",
                    signal_number, strsignal(signal_number), remedy_text(seen));
}

/* Names the ranks of this host that never came as far as Octet, of a job of this host alone. */
static bool name_absent(const oct_ranks_seen *seen, char text[128])
{
    size_t used = 0;
    int absent = 0;
    if (seen->start->job.beyond || seen->start->job.hostfile || seen->begun_elsewhere > 0)
        return false;
    for (int i = 0; i < oct_rank_table_lines(); i++)
        if (oct_rank_table_line(i).pid == 0 && absent++ < 8)
            used += (size_t)snprintf(text + used, 128 - used, "%s%d", used > 0 ? ", " : "", i);
    if (absent > 8) snprintf(text + used, 128 - used, ", ...");
    return absent > 0;
}

/* Whether a status is mpirun's own: Octet exits with no such status, nor does it stand for a signal (128 + number).
 * Where a host is lost, it is that of the agent that reaches the host (255 of ssh), or Open MPI's 205. */
static bool is_status_of_mpirun(int exit_status)
{
    static const int ours[] = {
#define X(status, number, text) number,
        OCT_STATUS_LIST(X)
#undef X
    };
    for (size_t i = 0; i < OCT_COUNT(ours); i++)
        if (ours[i] == exit_status) return false;
    return exit_status < 128 || exit_status > 128 + SIGRTMAX;
}

/* No rank has said this status: it is mpirun's, of a rank that Octet was not in, or of ranks that are not seen. */
static oct_status judge_other_status(const oct_ranks_seen *seen, int exit_status)
{
    char absent[128];
    const bool beyond = seen->start->job.beyond,
               answers = exit_status == oct_status_exit(OCT_MISMATCH);
    const bool seen_none = begun_on_no_host(seen);
    if (seen_none && (!beyond || (answers && oct_ranks_train(seen->start))))
        return oct_fail(OCT_RESOURCE,
                        "mpirun ended with status %d before a rank had started: it was stopped, or "
                        "see its output above for the reason",
                        exit_status);
    if (!seen_none && name_absent(seen, absent))
        return oct_fail(OCT_LOST,
                        "a rank ended with status %d before Octet began in it; ranks that never "
                        "began: %s%s",
                        exit_status, absent, remedy_text(seen));
    if (is_status_of_mpirun(exit_status) || (answers && oct_ranks_train(seen->start)))
        return oct_fail(OCT_LOST, "mpirun ended with status %d, which no rank gave%s%s",
                        exit_status, beyond ? ": a host is lost, or the way to it" : "",
                        remedy_text(seen));
    return OCT_OK;
}

/* A rank ended without a message. merges: mpirun's status merges those of all ranks. */
static oct_status fail_rank_gone(const oct_ranks_seen *seen, int exit_status, bool merges)
{
    char who[128], place[64];
    const bool in_mpi = seen->rank_gone && (seen->gone_rank.stage == OCT_RANK_IN_INIT ||
                                            seen->gone_rank.stage == OCT_RANK_IN_DUP);
    return oct_fail(OCT_LOST, "%s ended with %s %d%s%s%s%s", name_gone_rank(seen, who),
                    merges ? "(by mpirun) status" : "status", exit_status,
                    in_mpi ? " where MPI starts: see MPI's output above for the reason"
                           : " and said nothing",
                    step_of_gone_rank(seen, place), remedy_text(seen), seen->report);
}

/* How a start of mpirun ends, for its caller. */
typedef enum verdict {
    ITS_STATUS,          /* that of mpirun is the command's */
    RANK_STATUS,         /* that of a rank which failed */
    GIVEN_UP_BUT_FAILED, /* the same, though this process ended mpirun */
    GIVEN_UP,            /* this process ended mpirun */
    STOPPED,             /* as this process was asked */
    MPIRUN_SIGNALLED,    /* from outside */
    RANK_SIGNALLED,      /* a rank is lost: ended by a signal, */
    RANK_GONE,           /* or without a word */
    OTHER_STATUS         /* that no rank has reported */
} verdict;

oct_status oct_ranks_judge(const oct_ranks_seen *seen, int ended, int *exit_status)
{
    const bool merges = seen->start->mpirun.dialect->merges, exited = WIFEXITED(ended);
    const int failed = oct_ranks_failed_status(), lost = oct_status_exit(OCT_LOST);
    const int status = exited ? WEXITSTATUS(ended) : 0;
    const bool nobody = begun_on_no_host(seen) && !seen->start->job.beyond;
    const bool by_merged_signal = merges && (status == SIGKILL || status == SIGSEGV);
    const bool by_shell_rule = status > 128 && !is_status_of_mpirun(status);
    char absent[128];
    const bool followed =
        seen->gone_rank.stops && name_absent(seen, absent); /* one that never began */
    /* The first row that holds is the verdict. */
    const struct {
        bool holds;
        verdict verdict;
    } rows[] = {
        {exited && status != 0 && some_rank_exited_with(status), ITS_STATUS},
        {exited && status == 0 && failed == 0 && !seen->rank_gone && !nobody, ITS_STATUS},
        {seen->given_up && failed != 0, GIVEN_UP_BUT_FAILED},
        {seen->end_asked, STOPPED},
        {seen->stop_asked && (!exited || status == 128 + SIGUSR1 || oct_ranks_begun(seen) == 0),
         STOPPED},
        {seen->given_up, GIVEN_UP},
        {!exited || all_ranks_were_asked(seen), MPIRUN_SIGNALLED},
        {failed != 0 && (merges || status == 0) && (failed != lost || !seen->rank_gone),
         RANK_STATUS},
        {merges && status == SIGTERM, MPIRUN_SIGNALLED},
        {by_merged_signal || by_shell_rule, RANK_SIGNALLED},
        {seen->rank_gone && !followed, RANK_GONE},
        {true, OTHER_STATUS},
    };
    size_t row = 0;
    while (!rows[row].holds)
        row++;
    *exit_status = status;
    switch (rows[row].verdict) {
    case ITS_STATUS:
        return OCT_OK;
    case GIVEN_UP_BUT_FAILED:
        oct_log(OCT_LOG_ERROR, "%s", seen->given_up);
        *exit_status = failed;
        return OCT_OK;
    case RANK_STATUS:
        *exit_status = failed;
        return OCT_OK;
    case STOPPED:
        return fail_stopped(seen, "stopped as asked");
    case GIVEN_UP:
        return oct_fail(OCT_LOST, "%s%s", seen->given_up, remedy_text(seen));
    case MPIRUN_SIGNALLED:
        return fail_mpirun_signalled(seen, exited ? SIGTERM : WTERMSIG(ended));
    case RANK_SIGNALLED:
        return fail_signalled(seen, by_merged_signal ? status : status - 128);
    case RANK_GONE:
        return fail_rank_gone(seen, status, merges);
    case OTHER_STATUS:
        break;
    }
    return judge_other_status(seen, status);
}
