/* What the ranks did last is reported when one is lost: of those of this host by their table, of others by the messages
 * that have come from them. */
#include "core/base/text.h"
#include "dist/comm_impl.h"

#include <stdarg.h>
#include <stdio.h>

oct_rank_text oct_text_rank(const oct_comm *comm, int rank)
{
    oct_rank_text t;
    if (comm->hosts && comm->hosts[rank].name[0])
        snprintf(t.text, sizeof t.text, "rank %d (%s)", rank, comm->hosts[rank].name);
    else
        snprintf(t.text, sizeof t.text, "rank %d", rank);
    return t;
}

enum { ROWS_MAX = 32 };

const char *oct_exchange_name(int exchange)
{
    static const char *const names[] = {
#define X(name, text) text,
        OCT_EXCHANGE_LIST(X)
#undef X
    };
    return exchange >= 0 && (size_t)exchange < OCT_COUNT(names) ? names[exchange]
                                                                : "an unknown operation";
}

/* Text that grows up to its room; rows beyond the most are counted. */
typedef struct rank_report {
    char *text;
    size_t size, used;
    int rows;
} rank_report;

static OCT_PRINTF(2, 3) void add_text(rank_report *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = oct_vsnprintf(r->text + r->used, r->size - r->used, format, args);
    va_end(args);
    if (length > 0) r->used += (size_t)length;
    if (r->used >= r->size) r->used = r->size - 1;
}

/* Adds a line for each rank of this host, by the table of ranks. */
static void add_ranks_of_host(rank_report *r)
{
    char host[OCT_HOST_BYTES];
    oct_host_name(host);
    for (int i = 0; i < oct_rank_table_lines(); i++) {
        const oct_rank_view view = oct_rank_table_line(i);
        if (view.pid == 0 || r->rows++ >= ROWS_MAX) continue;
        const char state = view.stage == OCT_RANK_ENDED ? 'E' : oct_process_state(view.pid);
        add_text(r, "\n  rank %d (%s, process %d) %s", view.rank, host, view.pid,
                 state == 'E'                 ? "has ended"
                 : state == 'T'               ? "is stopped"
                 : state == 'Z' || state == 0 ? "is gone"
                 : view.waits_for >= 0        ? "waits"
                                              : "runs");
        if (view.step > 0) add_text(r, ", step %lld", (long long)view.step);
        if (view.operation < 0) continue;
        add_text(r, ", in or after %s %u, begun %.1f s ago", oct_exchange_name(view.operation),
                 view.sequence, oct_seconds() - view.since_s);
        if (view.waits_for >= 0) add_text(r, ", for rank %d", view.waits_for);
    }
}

void oct_ranks_report(const oct_comm *comm, char *text, size_t size)
{
    rank_report r = {.text = text, .size = size};
    text[0] = '\0';
    add_ranks_of_host(&r);
    for (int rank = 0; comm && comm->state->heard && rank < comm->base.size; rank++) {
        const oct_heard *heard = &comm->state->heard[rank];
        oct_rank_view view;
        if (rank == comm->base.rank || oct_rank_table_find(rank, &view) || r.rows++ >= ROWS_MAX)
            continue;
        add_text(&r, "\n  %s cannot be seen from here", oct_text_rank(comm, rank).text);
        if (heard->sequence > 0)
            add_text(&r, ", last heard of in %s %u, %.1f s ago",
                     oct_exchange_name((int)heard->exchange), heard->sequence,
                     oct_seconds() - heard->at_s);
    }
    if (r.rows > ROWS_MAX) add_text(&r, "\n  and %d more", r.rows - ROWS_MAX);
}
