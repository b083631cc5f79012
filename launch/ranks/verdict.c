/* mpirun's exit status alone does not show who was lost: 137 is any rank's end by signal 9, and 1 is mpirun's own end
 * as well as an answer; that of MPICH holds the bits of all ranks' statuses, and 9 for a rank's end by signal 9. The
 * table of ranks shows the rest. */
#include "launch/ranks/watch.h"

#include "core/base/log.h"
#include "launch/base/failure.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int64_t oct_ranks_begun(const oct_ranks_seen *seen)
{
    int64_t begun = seen->elsewhere;
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

static const char *remedy(const oct_ranks_seen *seen)
{
    if (seen->start->goes_on) return "";
    return oct_ranks_train(seen->start)
               ? "; repeat the command to continue from the newest checkpoint"
               : "; repeat the command";
}

/* "rank 1 (node7)", with the step that it was in; "a rank" where it cannot be seen from here. */
static const char *name_gone(const oct_ranks_seen *seen, char text[128])
{
    char host[64] = "";
    if (gethostname(host, sizeof(host) - 1) != 0) snprintf(host, sizeof(host), "this host");
    if (seen->found)
        snprintf(text, 128, "rank %d (%s)", seen->gone.rank, host);
    else
        snprintf(text, 128, "a rank");
    return text;
}

static const char *place_of_gone(const oct_ranks_seen *seen, char text[64])
{
    text[0] = '\0';
    if (seen->found && seen->gone.step > 0)
        snprintf(text, 64, " in step %lld", (long long)seen->gone.step);
    return text;
}

static bool some_rank_said(int exit_status)
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

/* A signal to mpirun reaches all its ranks; where one ends by itself, mpirun asks the others alone. Of ranks on other
 * hosts that is unknown. */
static bool all_were_asked(const oct_ranks_seen *seen)
{
    for (int i = 0; i < oct_rank_table_lines(); i++) {
        const oct_rank_view view = oct_rank_table_line(i);
        if (view.pid > 0 && !view.stops) return false;
    }
    return oct_ranks_begun(seen) - seen->elsewhere >= seen->start->job.ranks;
}

static oct_status stopped(const oct_ranks_seen *seen, const char *how)
{
    const oct_status status = oct_fail(OCT_STOPPED, "%s%s", how, remedy(seen));
    if (some_rank_said(oct_status_exit(OCT_STOPPED)))
        oct_failure_silence(); /* and has reported it */
    return status;
}

static oct_status signalled(const oct_ranks_seen *seen, int signal_number)
{
    char who[128], place[64];
    return oct_fail(
        OCT_LOST, "%s was ended by signal %d (%s)%s%s%s%s", name_gone(seen, who), signal_number,
        strsignal(signal_number), place_of_gone(seen, place), remedy(seen),
        signal_number == SIGKILL ? "\nif no user sent it, the kernel ended it, since memory was out"
                                 : "",
        seen->report);
}

/* mpirun was ended from outside. */
static oct_status judge_signal(const oct_ranks_seen *seen, int signal_number)
{
    const bool polite = signal_number == SIGTERM || signal_number == SIGINT ||
                        signal_number == SIGHUP || signal_number == SIGUSR1;
    if (polite) return stopped(seen, "mpirun was stopped, and its ranks with it");
    return oct_fail(OCT_LOST, "mpirun itself was ended by signal %d (%s), and its ranks with it%s",
                    signal_number, strsignal(signal_number), remedy(seen));
}

/* Names the ranks of this host that never came as far as Octet, of a job of this host alone. */
static bool name_absent(const oct_ranks_seen *seen, char text[128])
{
    size_t used = 0;
    int absent = 0;
    if (seen->start->job.beyond || seen->start->job.hostfile || seen->elsewhere > 0) return false;
    for (int i = 0; i < oct_rank_table_lines(); i++)
        if (oct_rank_table_line(i).pid == 0 && absent++ < 8)
            used += (size_t)snprintf(text + used, 128 - used, "%s%d", used > 0 ? ", " : "", i);
    if (absent > 8) snprintf(text + used, 128 - used, ", ...");
    return absent > 0;
}

/* Of mpirun itself is what no rank of ours ends with and no signal stands for: where a host has gone, that is the
 * status of the agent that leads there (255 of ssh), or Open MPI's 205. */
static bool is_of_mpirun(int exit_status)
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
static oct_status judge_unsaid(const oct_ranks_seen *seen, int exit_status)
{
    char absent[128];
    const bool beyond = seen->start->job.beyond, answers = exit_status == oct_status_exit(OCT_NO);
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
                        exit_status, absent, remedy(seen));
    if (is_of_mpirun(exit_status) || (answers && oct_ranks_train(seen->start)))
        return oct_fail(OCT_LOST, "mpirun ended with status %d, which no rank gave%s%s",
                        exit_status, beyond ? ": a host is lost, or the way to it" : "",
                        remedy(seen));
    return OCT_OK;
}

static oct_status judge_gone(const oct_ranks_seen *seen, int exit_status, bool merges)
{
    char who[128], place[64];
    const bool in_mpi = seen->found && (seen->gone.stage == OCT_RANK_IN_INIT ||
                                        seen->gone.stage == OCT_RANK_IN_DUP);
    return oct_fail(OCT_LOST, "%s ended with %s %d%s%s%s%s", name_gone(seen, who),
                    merges ? "(by mpirun) status" : "status", exit_status,
                    in_mpi ? " where MPI starts: see MPI's output above for the reason"
                           : " and said nothing",
                    place_of_gone(seen, place), remedy(seen), seen->report);
}

oct_status oct_ranks_judge(const oct_ranks_seen *seen, int ended, int *exit_status)
{
    const bool merges = seen->start->mpirun.dialect->merges;
    const int failed = oct_ranks_failed_status(), lost = oct_status_exit(OCT_LOST);
    const int status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 0;
    *exit_status = status;
    if (WIFEXITED(ended) && status != 0 && some_rank_said(status)) return OCT_OK;
    const bool nobody = begun_on_no_host(seen) && !seen->start->job.beyond;
    if (WIFEXITED(ended) && status == 0 && failed == 0 && !seen->found && !nobody) return OCT_OK;
    if (seen->given_up && failed != 0) { /* which has its own reason */
        oct_log(OCT_LOG_ERROR, "%s", seen->given_up);
        *exit_status = failed;
        return OCT_OK;
    }
    if (seen->ends || (seen->asked && (WIFSIGNALED(ended) || status == 128 + SIGUSR1 ||
                                       oct_ranks_begun(seen) == 0)))
        return stopped(seen, "stopped as asked");
    if (seen->given_up) return oct_fail(OCT_LOST, "%s%s", seen->given_up, remedy(seen));
    if (WIFSIGNALED(ended)) return judge_signal(seen, WTERMSIG(ended));
    if (all_were_asked(seen)) return judge_signal(seen, SIGTERM);
    if (failed != 0 && (merges || status == 0) && (failed != lost || !seen->found)) {
        *exit_status = failed;
        return OCT_OK;
    }
    if (merges && status == SIGTERM) return judge_signal(seen, SIGTERM);
    if (merges && (status == SIGKILL || status == SIGSEGV)) return signalled(seen, status);
    if (status > 128 && !is_of_mpirun(status)) return signalled(seen, status - 128);
    char absent[128];
    const bool followed = seen->gone.stops && name_absent(seen, absent); /* one that never began */
    if (seen->found && !followed) return judge_gone(seen, status, merges);
    return judge_unsaid(seen, status);
}
