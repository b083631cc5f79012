/* A communicator starts and ends the ranks. */
#include "dist/comm.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "dist/comm_impl.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static double seconds_waited(const oct_collective *self)
{
    const oct_comm *comm = oct_comm_of(self);
    return comm->state->waited_s + (comm->besides ? comm->besides->state->waited_s : 0);
}

static const char *rank_name(const oct_collective *self, int rank, char text[128])
{
    return oct_rank_text(oct_comm_of(self), rank, text);
}

static oct_status open_state(oct_comm *comm, oct_transport *transport, double deadline_s,
                             size_t slot_bytes)
{
    OCT_TRY(oct_alloc(&comm->state, 1, sizeof(*comm->state)));
    comm->state->transport = transport;
    comm->state->deadline_s = deadline_s;
    comm->state->rows = &comm->state->own_rows;
    if (transport->size == 1) return OCT_OK;
    comm->base = (oct_collective){.rank = transport->rank,
                                  .size = transport->size,
                                  .waited = seconds_waited,
                                  .name = rank_name};
    oct_supply_sums(&comm->base);
    oct_supply_rows(&comm->base);
    oct_supply_collect(&comm->base);
    OCT_TRY(oct_alloc(&comm->state->heard, (size_t)transport->size, sizeof(*comm->state->heard)));
    return oct_rank_node_enter(comm, slot_bytes);
}

/* The communicator owns the transport, even after a failure. */
static oct_status open_over(oct_comm **comm, oct_transport *transport, double deadline_s,
                            size_t slot_bytes)
{
    oct_comm *opened = NULL;
    *comm = NULL;
    oct_status status = oct_alloc(&opened, 1, sizeof(*opened));
    if (status == OCT_OK) {
        opened->base = oct_collective_one;
        opened->library = transport ? transport->name : "none";
        oct_host_name(opened->host);
        if (transport && transport->host)
            snprintf(opened->host, sizeof(opened->host), "%s", transport->host);
        if (transport) status = open_state(opened, transport, deadline_s, slot_bytes);
    }
    if (transport && (!opened || !opened->state)) transport->close(transport, true);
    if (status != OCT_OK) oct_comm_close(&opened);
    *comm = opened;
    return status;
}

oct_status oct_comm_over(oct_comm **comm, oct_transport *transport, double deadline_s)
{
    OCT_TRY(open_over(comm, transport, deadline_s, OCT_NODE_SLOT_BYTES));
    if (!transport || (*comm)->base.size == 1) return OCT_OK;
    /* The lanes for sums besides other work are a list, each with a duplicate of the transport. */
    const size_t slot_bytes = (*comm)->state->node.memory ? OCT_NODE_SLOT_BYTES : 0;
    oct_comm *last = *comm;
    oct_status status = OCT_OK;
    for (int i = 0; i < OCT_SUMS_BESIDES; i++, last = last->besides) {
        oct_transport *duplicate;
        OCT_TRY_OUT(transport->duplicate(transport, &duplicate));
        OCT_TRY_OUT(open_over(&last->besides, duplicate, deadline_s, slot_bytes));
        last->besides->state->rows = (*comm)->state->rows;
    }
out:
    if (status != OCT_OK) oct_comm_close(comm);
    return status;
}

static void abort_after_defect(void)
{
    oct_abort(oct_status_exit(OCT_DEFECT));
}

oct_status oct_comm_open(oct_comm **comm, double deadline_s)
{
    int rank, size;
    oct_transport *transport = NULL;
    *comm = NULL;
    oct_assert_hook(abort_after_defect);
    OCT_TRY(oct_launcher_check());
    if (oct_launched(&rank, &size)) OCT_TRY(oct_transport_mpi(&transport, deadline_s));
    return oct_comm_over(comm, transport, deadline_s);
}

/* The transport may wait for all ranks without a deadline where it ends, so ours comes first. */
static void synchronize_at_end(const oct_comm *comm)
{
    int64_t here = 0;
    oct_status status = OCT_OK;
    if (comm->base.size == 1) return;
    OCT_TRY_OUT(oct_exchange_begin(comm, OCT_EXCHANGE_CLOSE));
    OCT_TRY_OUT(oct_exchange_max(comm, &here, 1));
    return;
out:
    if (oct_rank_may_report()) oct_log_anyone(OCT_LOG_ERROR, "%s", oct_fail_text(0));
    oct_abort(oct_status_exit(status));
}

void oct_comm_close(oct_comm **comm)
{
    if (!*comm) return;
    if ((*comm)->state && !(*comm)->state->broken) synchronize_at_end(*comm);
    const oct_comm *lane = (*comm)->besides;
    if ((*comm)->state && lane && lane->state) lane->state->broken |= (*comm)->state->broken;
    oct_comm_close(&(*comm)->besides);
    oct_comm_state *s = (*comm)->state;
    if (s) {
        oct_sums_free(&s->sums);
        s->transport->close(s->transport, !s->broken);
        oct_rank_node_leave(&s->node);
        oct_free(&s->heard);
        oct_free(&s->waits);
        oct_free(&s->parts);
        oct_free(&s->vectors);
        oct_free(&s->arrivals);
        oct_free(&s->scratch);
        oct_free(&s);
    }
    oct_free(&(*comm)->hosts);
    oct_free(comm);
}

const oct_collective *oct_comm_collective(const oct_comm *comm)
{
    return &comm->base;
}

int64_t oct_comm_syncs(const oct_comm *comm)
{
    return comm->state ? comm->state->syncs : 0;
}

bool oct_comm_agreed(const oct_comm *comm)
{
    return comm->state && comm->state->agreed;
}

void oct_comm_go_on(oct_comm *comm)
{
    if (comm->state) comm->state->agreed = false;
}

int oct_comm_rank(const oct_comm *comm)
{
    return comm->base.rank;
}

int oct_comm_size(const oct_comm *comm)
{
    return comm->base.size;
}

const char *oct_comm_host(const oct_comm *comm)
{
    return comm->host;
}

const char *oct_comm_library(const oct_comm *comm)
{
    return comm->library;
}

void oct_comm_set_deadline(oct_comm *comm, double deadline_s)
{
    if (comm->state) comm->state->deadline_s = deadline_s;
    if (comm->besides) oct_comm_set_deadline(comm->besides, deadline_s);
}

oct_status oct_comm_sum_native(const oct_comm *comm, float *x, int64_t n)
{
    if (comm->base.size == 1) return OCT_OK;
    oct_transport *transport = comm->state->transport;
    OCT_CHECK(transport->sum_native, OCT_USAGE, "%s has no sum of its own", comm->library);
    return transport->sum_native(transport, x, n);
}
