/* Agreement is dist's (collective->agree, which names the rank that failed); the session remembers
 * whether the failure at hand went through it, and so whether the ranks may end together.
 */
#include "launch/session.h"

#include "launch/failure.h"

#include <string.h>

/* How long a rank may wait for another before that is called lost. Writing a checkpoint to a slow
 * disk and reading a data set must fit. */
static const double deadline_s = 600;

oct_status oct_session_open(oct_session *session, const oct_args *args)
{
    *session = (oct_session){.args = args};
    OCT_TRY(oct_comm_open(&session->comm, deadline_s));
    session->group = oct_comm_collective(session->comm);
    return OCT_OK;
}

oct_status oct_session_agree(oct_session *session, oct_status mine)
{
    oct_status status = session->group->agree(session->group, mine);
    session->agreed = status != OCT_OK && oct_fail_code() != OCT_LOST;
    return status;
}

static bool alike_on_all_ranks(oct_status status)
{
    return status == OCT_PEER || status == OCT_NUMERIC || status == OCT_STOPPED || status == OCT_NO;
}

oct_status oct_session_end(oct_session *session, oct_status status)
{
    const oct_collective *group = session->group;
    bool lone = status != OCT_OK && !session->agreed && !alike_on_all_ranks(status);
    if (lone && group->size > 1) {
        if (strncmp(oct_fail_text(0), "rank ", 5) != 0)
            oct_fail_prefix("rank %d (%s)", group->rank, oct_comm_host(session->comm));
        oct_failure_print(status, session->args->argc, session->args->argv);
        oct_stop(oct_failure_exit(status));
    }
    oct_comm_close(&session->comm);
    return status;
}
