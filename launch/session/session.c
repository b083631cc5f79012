/* Whether ranks may end together depends on whether all of them know of the failure. */
#include "launch/session/session.h"

#include "core/base/mem.h"
#include "dist/rank_table.h"
#include "launch/base/output.h"

#include <string.h>
#include <time.h>

/* Fails with the first line of `mine` that is another one in `first`. */
static oct_status fail_at_difference(const char *mine, const char *first)
{
    while (true) {
        size_t mine_bytes = strcspn(mine, "\n"), first_bytes = strcspn(first, "\n");
        OCT_CHECK(mine_bytes == first_bytes && memcmp(mine, first, mine_bytes) == 0, OCT_USAGE,
                  "the ranks were started differently: this one with %.*s, rank 0 with %.*s; give "
                  "all of them the same command line",
                  (int)mine_bytes, mine, (int)first_bytes, first);
        if (mine[mine_bytes] == '\0') return OCT_OK;
        mine += mine_bytes + 1;
        first += first_bytes + 1;
    }
}

oct_status oct_session_share(oct_session *session, void *block, size_t *bytes)
{
    const oct_collective *group = session->group;
    void *shared = NULL;
    oct_status status = OCT_OK;
    if (group->size == 1) return OCT_OK;
    OCT_TRY(group->broadcast(group, bytes, sizeof *bytes, 0));
    if (group->rank == 0)
        memcpy(&shared, block, sizeof shared);
    else if (*bytes > 0)
        status = oct_alloc(&shared, *bytes, 1);
    memcpy(block, &shared, sizeof shared);
    OCT_TRY(oct_session_agree(session, status));
    return group->broadcast(group, shared, *bytes, 0);
}

oct_status oct_session_same(oct_session *session, const oct_text *text)
{
    const bool is_first = session->group->rank == 0;
    char *first = is_first ? text->data : NULL;
    size_t bytes = text->length + 1;
    if (session->group->size == 1) return OCT_OK;
    oct_status status = oct_session_share(session, &first, &bytes);
    if (status == OCT_OK)
        status = oct_session_agree(session, fail_at_difference(text->data, first));
    if (!is_first) oct_free(&first);
    return status;
}

oct_status oct_session_open(oct_session *session, const oct_args *args, double deadline_s)
{
    const double given = args->deadline > 0 ? (double)args->deadline : deadline_s;
    *session = (oct_session){.args = args, .own_deadline = given <= 0};
    OCT_TRY(oct_comm_open(&session->comm, given > 0 ? given : OCT_DEADLINE_S));
    session->group = oct_comm_collective(session->comm);
    /* What may differ from host to host is left out, and so are the words of train, whose recipes are compared key by
     * key. */
    const bool train = strcmp(args->argv[1], "train") == 0;
    OCT_OWNED(oct_text_free) oct_text text = {0};
    oct_status status = oct_text_add(&text, "octet %s", args->argv[1]);
    for (int i = 2; i < args->argc && !train && status == OCT_OK; i++) {
        if (strncmp(args->argv[i], "--data=", 7) == 0) continue;
        if (strcmp(args->argv[i], "--data") == 0)
            i++;
        else
            status = oct_text_add(&text, " %s", args->argv[i]);
    }
    status = oct_session_agree(session, status);
    if (status == OCT_OK) status = oct_session_same(session, &text);
    return status == OCT_OK ? OCT_OK : oct_session_end(session, status);
}

void oct_session_set_deadline(oct_session *session, double deadline_s)
{
    if (session->own_deadline) oct_comm_set_deadline(session->comm, deadline_s);
}

oct_status oct_session_agree(oct_session *session, oct_status mine)
{
    return session->group->agree(session->group, mine);
}

/* Reports the failure of this rank alone, and ends the whole job, since the others wait for it. */
static void end_job_alone(oct_session *session, oct_status status)
{
    enum { TURNS_MAX = 16, TURN_MS = 250 };
    const int rank = session->group->rank;
    if (oct_fail_code() == OCT_LOST) {
        /* Every survivor sees a lost rank by itself; the lowest one that is alive speaks, and its stop ends the others
         * before their turn. */
        const int64_t ms = (rank < TURNS_MAX ? rank : TURNS_MAX) * TURN_MS;
        nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
        if (!oct_rank_may_report()) oct_failure_silence();
    } else if (strncmp(oct_error_message(0), "rank ", 5) != 0) {
        (void)oct_fail_prefix("rank %d (%s)", rank, oct_comm_host(session->comm));
    }
    oct_failure_print(status, session->args->argc, session->args->argv);
    oct_abort(oct_failure_exit(status));
}

oct_status oct_session_end(oct_session *session, oct_status status)
{
    const bool known_to_all = status == OCT_OK || oct_comm_agreed(session->comm) ||
                              status == OCT_PEER || status == OCT_NUMERIC ||
                              status == OCT_STOPPED || status == OCT_MISMATCH;
    if (status != OCT_OK && session->group->size > 1) {
        if (!known_to_all) end_job_alone(session, status);
        /* The failure is printed before the ranks part: the first that exits with one may end all of them. */
        if (session->group->rank == 0)
            oct_failure_print(status, session->args->argc, session->args->argv);
        oct_failure_silence();
    }
    oct_comm_close(&session->comm);
    session->group = NULL;
    return status;
}
