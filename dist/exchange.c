/* All transfers in flight are waited for in one loop.
 *
 * Nothing blocks inside the transport: the loop tests, spins for some microseconds, then yields, then sleeps,
 * so more ranks than cores do not starve each other, and a clock that starts anew with each message
 * ends it when a peer is gone. After a failed wait the communicator is broken: what is still in
 * flight can be neither taken back nor trusted, so nothing is exchanged any more and the caller ends
 * the job.
 */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "dist/comm_impl.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A piece is short enough that a transfer which moves is never quiet for long. */
enum { PIECE_BYTES = 512 << 10, MAX_NAMED = 8 };
enum { KIND_BITS = 4, SEQUENCE_MASK = 0x7ff }; /* a tag has 15 bits at most */

enum { LENGTH_BITS = 28, LENGTH_MASK = (1 << LENGTH_BITS) - 1 };
enum { AFTER_YOU_MAX = 10 };

static const double spin_s = 50e-6, yield_s = 2e-3, sleep_s = 200e-6, after_you_s = 0.2;
static const double awake_s = 1, noted_s = 0.05, take_back_s = 1;

/* Transfers. */

static int exchange_tag(const oct_comm_state *s)
{
    return (int)s->exchange | (int)(s->sequence & SEQUENCE_MASK) << KIND_BITS;
}

static void sleep_for(double seconds)
{
    const time_t whole = (time_t)seconds;
    const struct timespec time = {whole, (long)((seconds - (double)whole) * 1e9)};
    nanosleep(&time, NULL);
}

/* Takes back the messages in flight, and waits a while for the end of those that MPI has begun to move. */
static void take_back(oct_comm_state *s)
{
    const double until = oct_seconds() + take_back_s;
    size_t ended = 0;
    if (s->pending == 0 || s->waits[0].progress > 0 || !s->transport->cancel) return;
    for (size_t i = 0; i < s->posted; i++)
        if (!s->waits[i].ended && s->waits[i].receives) s->transport->cancel(s->transport, i);
    while (s->pending > 0 && oct_seconds() < until &&
           s->transport->test(s->transport, s->posted, s->arrivals, &ended) == OCT_OK) {
        s->pending -= ended;
        if (ended == 0) sleep_for(sleep_s);
    }
}

void oct_exchange_give_up(const oct_comm *comm, oct_status status)
{
    for (; comm && comm->state; comm = comm->besides) {
        oct_comm_state *s = comm->state;
        s->broken = status;
        if (!oct_process_is_own()) take_back(s);
        s->pending = s->posted = 0;
    }
}

/* Forbids further exchanges and returns status. Of Octet's own processes several usually find out at once and each will
 * end the job; they wait in the order of their ranks, so that the user reads the sentence of one. */
static oct_status break_off(const oct_comm *comm, oct_status status)
{
    const int rank = comm->base.rank;
    oct_exchange_give_up(comm, status);
    if (oct_process_is_own())
        sleep_for(after_you_s * (rank < AFTER_YOU_MAX ? rank : AFTER_YOU_MAX));
    return status;
}

oct_status oct_exchange_check(const oct_comm *comm)
{
    const oct_comm_state *s = comm->state;
    OCT_CHECK(!comm->closed, OCT_USAGE,
              "the communicator is closed; destroy what works on it before oct_comm_close");
    if (s->broken == OCT_OK || oct_fail_code() == s->broken) return s->broken;
    return oct_fail(OCT_LOST, "ranks were lost in %s %u; nothing can be exchanged any more",
                    oct_exchange_name((int)s->exchange), s->sequence);
}

oct_status oct_exchange_begin(const oct_comm *comm, oct_exchange exchange)
{
    oct_comm_state *s = comm->state;
    s->syncs++;
    s->agreed = false;
    OCT_TRY(oct_exchange_check(comm));
    if (s->transport->check) OCT_TRY(s->transport->check());
    s->exchange = exchange;
    s->sequence++;
    oct_rank_note_operation((int)exchange, s->sequence);
    oct_exchange_announce(comm, 0);
    return OCT_OK;
}

/* Breaks off with a sentence that says in what, and with whom, the transport failed. */
static oct_status break_off_transport(const oct_comm *comm, int peer)
{
    return break_off(comm, oct_fail_prefix("%s in %s %u with %s",
                                           oct_text_rank(comm, comm->base.rank).text,
                                           oct_exchange_name((int)comm->state->exchange),
                                           comm->state->sequence, oct_text_rank(comm, peer).text));
}

/* Adds to what oct_exchange_wait waits for; at a time that is messages only or lines (progress > 0) only. */
static oct_status post_wait(const oct_comm *comm, oct_wait wait)
{
    oct_comm_state *s = comm->state;
    size_t need = s->posted + 1;
    oct_status status = oct_grow(&s->waits, &s->waits_capacity, need, sizeof(*s->waits));
    if (status == OCT_OK)
        status = oct_grow(&s->arrivals, &s->arrivals_capacity, need, sizeof(*s->arrivals));
    if (status != OCT_OK) return break_off(comm, status);
    OCT_ASSERT(s->posted == 0 || (s->waits[0].progress > 0) == (wait.progress > 0));
    s->waits[s->posted++] = wait;
    s->pending++;
    return OCT_OK;
}

/* Posts a transfer in pieces. */
static oct_status post_transfer(const oct_comm *comm, oct_transfer transfer, char *data)
{
    oct_comm_state *s = comm->state;
    const size_t bytes = transfer.bytes;
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        transfer.bytes = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        OCT_TRY(post_wait(comm, (oct_wait){.peer = transfer.peer,
                                           .receives = transfer.receives,
                                           .bytes = transfer.bytes}));
        const oct_status status =
            s->transport->begin(s->transport, s->posted - 1, &transfer, data + at, exchange_tag(s));
        if (status != OCT_OK) s->posted--, s->pending--; /* it is not in flight */
        if (status == OCT_LOST) return break_off_transport(comm, transfer.peer);
        if (status != OCT_OK) return break_off(comm, status);
    }
    return OCT_OK;
}

oct_status oct_exchange_receive(const oct_comm *comm, int peer, void *data, size_t bytes)
{
    return post_transfer(comm, (oct_transfer){.peer = peer, .receives = true, .bytes = bytes},
                         data);
}

oct_status oct_exchange_send(const oct_comm *comm, int peer, const void *data, size_t bytes)
{
    void *source;
    memcpy(&source, &data, sizeof(source)); /* one post for both ways; a send only reads */
    return post_transfer(comm, (oct_transfer){.peer = peer, .bytes = bytes}, source);
}

/* Breaks off since a peer is in another operation. */
static oct_status fail_other_order(const oct_comm *comm, int peer, int exchange, uint32_t sequence)
{
    const oct_comm_state *s = comm->state;
    return break_off(comm,
                     oct_fail(OCT_LOST,
                              "the ranks left their common order: %s is in %s %u, %s in %s %u; a "
                              "plug-in or a decision that depends on the rank does that",
                              oct_text_rank(comm, comm->base.rank).text,
                              oct_exchange_name((int)s->exchange), s->sequence & SEQUENCE_MASK,
                              oct_text_rank(comm, peer).text, oct_exchange_name(exchange),
                              sequence & SEQUENCE_MASK));
}

/* Breaks off since a peer is in the same operation with another length. */
static oct_status fail_other_length(const oct_comm *comm, int peer, const char *what, size_t bytes)
{
    const oct_comm_state *s = comm->state;
    return break_off(comm, oct_fail(OCT_LOST,
                                    "the ranks disagree about %s %u: %s %s of another length than "
                                    "the %zu bytes of %s",
                                    oct_exchange_name((int)s->exchange), s->sequence,
                                    oct_text_rank(comm, peer).text, what, bytes,
                                    oct_text_rank(comm, comm->base.rank).text));
}

/* Checks that a transfer that has ended brought a message of this operation and of the expected length. */
static oct_status check_arrival(const oct_comm *comm, const oct_arrival *arrival)
{
    const oct_comm_state *s = comm->state;
    oct_wait *wait = &s->waits[arrival->transfer];
    wait->ended = true;
    if (!wait->receives) return OCT_OK;
    if (arrival->tag != exchange_tag(s))
        return fail_other_order(comm, wait->peer, arrival->tag & ((1 << KIND_BITS) - 1),
                                (uint32_t)(arrival->tag >> KIND_BITS));
    s->heard[wait->peer] = (oct_heard){s->exchange, s->sequence, oct_seconds()};
    if (arrival->bytes != wait->bytes)
        return fail_other_length(comm, wait->peer, "sent a message", wait->bytes);
    return OCT_OK;
}

/* An operation is one word: its number, its kind, and a digest of its length, 0 where it has none. */
static uint64_t operation_word(const oct_comm_state *s)
{
    const uint64_t digest = s->length == 0 ? 0 : 1 + s->length % LENGTH_MASK;
    return (uint64_t)s->sequence << 32 | (uint64_t)s->exchange << LENGTH_BITS | digest;
}

void oct_exchange_announce(const oct_comm *comm, size_t bytes)
{
    oct_comm_state *s = comm->state;
    s->length = bytes;
    if (s->node.memory)
        atomic_store_explicit(&s->node.lines[comm->base.rank - s->node.first].operation,
                              operation_word(s), memory_order_release);
}

void oct_exchange_signal(const oct_comm *comm, uint64_t progress)
{
    const oct_rank_node *node = &comm->state->node;
    atomic_store_explicit(&node->lines[comm->base.rank - node->first].progress, progress,
                          memory_order_release);
}

/* Posts a wait for each other rank of the node, until its line shows this progress. */
oct_status oct_exchange_await(const oct_comm *comm, uint64_t progress)
{
    const oct_rank_node *node = &comm->state->node;
    for (int r = node->first; r < node->first + node->ranks && progress > 0; r++)
        if (r != comm->base.rank)
            OCT_TRY(post_wait(comm, (oct_wait){.peer = r, .progress = progress}));
    return OCT_OK;
}

/* Fails where the line of a peer has this sequence number but another operation or length: it never comes as far. */
static oct_status check_operation(const oct_comm *comm, int peer, uint64_t peer_word)
{
    const oct_comm_state *s = comm->state;
    const uint64_t own_word = operation_word(s);
    const int kind = (int)(peer_word >> LENGTH_BITS & ((1 << KIND_BITS) - 1));
    if (peer_word >> 32 != own_word >> 32) return OCT_OK; /* not there yet */
    if (kind != (int)s->exchange)
        return fail_other_order(comm, peer, kind, (uint32_t)(peer_word >> 32));
    if ((peer_word & LENGTH_MASK) != 0 && peer_word != own_word)
        return fail_other_length(comm, peer, "sums a vector", s->length);
    return OCT_OK;
}

/* Counts the lines of the node that have newly reached the progress that this rank waits for. */
static oct_status poll_lines(const oct_comm *comm, size_t *ended)
{
    const oct_comm_state *s = comm->state;
    for (size_t i = 0; i < s->posted; i++) {
        oct_wait *wait = &s->waits[i];
        oct_rank_line *line = &s->node.lines[wait->peer - s->node.first];
        if (wait->ended) continue;
        OCT_TRY(check_operation(comm, wait->peer,
                                atomic_load_explicit(&line->operation, memory_order_acquire)));
        wait->ended = atomic_load_explicit(&line->progress, memory_order_acquire) >= wait->progress;
        *ended += wait->ended;
    }
    size_t none = 0; /* messages of other ranks are to move meanwhile */
    return *ended > 0 ? OCT_OK : s->transport->test(s->transport, 0, s->arrivals, &none);
}

/* Asks for the transfers that have ended. A failure names the first of arrivals, or this rank where it concerns none. */
static oct_status poll_messages(const oct_comm *comm, size_t *ended)
{
    const oct_comm_state *s = comm->state;
    const oct_status status = s->transport->test(s->transport, s->posted, s->arrivals, ended);
    if (status != OCT_OK)
        return break_off_transport(comm, *ended > 0 ? s->waits[s->arrivals[0].transfer].peer
                                                    : comm->base.rank);
    for (size_t i = 0; i < *ended; i++)
        OCT_TRY(check_arrival(comm, &s->arrivals[i]));
    return OCT_OK;
}

oct_status oct_exchange_poll(const oct_comm *comm, bool *moved)
{
    oct_comm_state *s = comm->state;
    size_t ended = 0;
    OCT_TRY(s->waits[0].progress > 0 ? poll_lines(comm, &ended) : poll_messages(comm, &ended));
    s->pending -= ended;
    if (s->pending == 0) s->posted = 0;
    *moved = ended > 0;
    return OCT_OK;
}

/* A rank that does not answer may itself wait for another. As far as the ranks of this host say for whom
 * they wait, that is followed to the one that waits for nobody, or does not run. */
static int find_missing_rank(const oct_comm *comm, int peer)
{
    int rank = peer;
    for (int hops = 0; hops < comm->base.size; hops++) {
        oct_rank_view view;
        if (!oct_rank_table_find(rank, &view)) return rank;
        char state = oct_process_state(view.pid);
        if (view.waits_for < 0 || state == 'T' || state == 'Z' || state == 0) return rank;
        rank = view.waits_for;
    }
    return peer; /* they wait in a circle */
}

static int find_unanswered(const oct_comm_state *s)
{
    for (size_t i = 0; i < s->posted; i++)
        if (!s->waits[i].ended) return s->waits[i].peer;
    return -1;
}

/* Fails after the deadline and names who did not answer. */
static oct_status fail_after_deadline(const oct_comm *comm, double waited_s)
{
    const oct_comm_state *s = comm->state;
    char names[MAX_NAMED * 130 + 64] = "", report[OCT_REPORT_BYTES];
    size_t length = 0;
    int named = 0, more = 0;
    for (size_t i = 0; i < s->posted; i++)
        if (!s->waits[i].ended) s->waits[i].peer = find_missing_rank(comm, s->waits[i].peer);
    for (int rank = 0; rank < comm->base.size; rank++) {
        bool unanswered = false;
        for (size_t i = 0; i < s->posted; i++)
            unanswered |= !s->waits[i].ended && s->waits[i].peer == rank;
        if (!unanswered) continue;
        if (named == MAX_NAMED) {
            more++;
            continue;
        }
        length += (size_t)snprintf(names + length, sizeof(names) - length, "%s%s",
                                   named ? ", " : "", oct_text_rank(comm, rank).text);
        named++;
    }
    if (more > 0) snprintf(names + length, sizeof(names) - length, " and %d more", more);
    oct_ranks_report(comm, report, sizeof(report));
    return break_off(comm,
                     oct_fail(OCT_LOST,
                              "no answer from %s: %s waited %.3g s in %s %u; stuck, stopped or cut "
                              "off: look at that rank's host, then start again%s%s",
                              names, oct_text_rank(comm, comm->base.rank).text, waited_s,
                              oct_exchange_name((int)s->exchange), s->sequence,
                              oct_launcher_stopped("; ").text, report));
}

/* A rank that waits for an answer which itself waits for somebody is given a fifth more for each such
 * step, but not less than a second, in which the one that is truly missing is named. */
static double extend_by_patience(double seconds, int patience)
{
    return seconds + (patience - 1) * fmin(seconds, fmax(seconds / 5, 1));
}

/* Warns with the name of the rank that this one waits for, and what can be seen of its process; returns that rank. */
static int warn_of_wait(const oct_comm *comm, double waited_s)
{
    const oct_comm_state *s = comm->state;
    const int missing = find_missing_rank(comm, find_unanswered(s));
    oct_rank_view view;
    const char state =
        oct_rank_table_find(missing, &view) ? oct_process_state(view.pid) : 'R' /* not known */;
    oct_log_anyone(
        OCT_LOG_WARN, "%s has waited %.0f s for %s%s in %s %u; the job ends after %.0f s%s",
        oct_text_rank(comm, comm->base.rank).text, waited_s, oct_text_rank(comm, missing).text,
        state == 'T'                 ? ", whose process is stopped,"
        : state == 'Z' || state == 0 ? ", whose process is gone,"
                                     : "",
        oct_exchange_name((int)s->exchange), s->sequence, s->deadline_s,
        oct_launcher_stopped("; ").text);
    return missing;
}

oct_status oct_exchange_wait(const oct_comm *comm, int patience)
{
    oct_comm_state *s = comm->state;
    const double warn_after = extend_by_patience(oct_warn_after(s->deadline_s), patience);
    const double deadline = extend_by_patience(s->deadline_s, patience);
    const double begin = oct_seconds();
    double last = begin, quiet_s = 0;
    int missing = -1; /* the rank that was warned of */
    oct_status status = OCT_OK;
    while (s->pending > 0) {
        bool moved = false;
        OCT_TRY_OUT(oct_exchange_poll(comm, &moved));
        if (comm->besides) OCT_TRY_OUT(comm->base.sums_move(&comm->base));
        /* Only time that this rank was awake counts, so that one that was stopped does not blame others when it
         * wakes. */
        double now = oct_seconds();
        quiet_s += fmin(now - last, awake_s);
        last = now;
        if (moved) {
            if (quiet_s > noted_s) oct_rank_note(OCT_RANK_WAITS, -1);
            if (missing >= 0) {
                oct_log_anyone(OCT_LOG_WARN, "%s goes on after %.0f s: it waited for %s",
                               oct_text_rank(comm, comm->base.rank).text, quiet_s,
                               oct_text_rank(comm, missing).text);
            }
            missing = -1;
            quiet_s = 0;
            continue;
        }
        if (quiet_s > noted_s) oct_rank_note(OCT_RANK_WAITS, find_unanswered(s));
        if (quiet_s > deadline) OCT_TRY_OUT(fail_after_deadline(comm, quiet_s));
        if (quiet_s > warn_after && missing < 0 && oct_rank_may_warn())
            missing = warn_of_wait(comm, quiet_s);
        if (quiet_s >= yield_s)
            sleep_for(sleep_s);
        else if (quiet_s >= spin_s)
            sched_yield();
    }
out:
    s->waited_s += oct_seconds() - begin;
    return status;
}
