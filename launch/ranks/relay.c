/* A stream is read only when what was read before is given away, and given only where it can be taken: nothing here
 * blocks the process, which has mpirun and the ranks to look after. */
#include "launch/ranks/relay.h"

#include "launch/base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 64, LOOK_MS = 100, LOOKS_MAX = 20 };

typedef struct oct_relayed stream;

static bool holds(const stream *s)
{
    return s->given < s->held;
}

static void close_end(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

oct_status oct_relay_open(oct_relay *relay, int ends[OCT_RELAY_STREAMS])
{
    *relay = (oct_relay){.failed = 0};
    for (int i = 0; i < OCT_RELAY_STREAMS; i++)
        relay->stream[i].from = relay->stream[i].to = ends[i] = -1;
    for (int i = 0; i < OCT_RELAY_STREAMS; i++) {
        int both[2];
        if (pipe2(both, O_CLOEXEC) != 0) {
            const int error = errno;
            close_end(&relay->stream[0].from);
            close_end(&ends[0]);
            return oct_fail(OCT_RESOURCE, "no pipe for the output of mpirun: %s", strerror(error));
        }
        fcntl(both[0], F_SETFL, O_NONBLOCK);
        relay->stream[i].from = both[0];
        relay->stream[i].to = STDOUT_FILENO + i;
        ends[i] = both[1];
    }
    return OCT_OK;
}

void oct_relay_enter(const int ends[OCT_RELAY_STREAMS])
{
    for (int i = 0; i < OCT_RELAY_STREAMS; i++)
        dup2(ends[i], STDOUT_FILENO + i);
}

static bool only_for_now(int error)
{
    return error == EINTR || error == EAGAIN;
}

static void take(stream *s)
{
    const ssize_t got = read(s->from, s->text, sizeof(s->text));
    s->given = 0;
    s->held = got > 0 ? (size_t)got : 0;
    if (s->to < 0) s->held = 0;
    if (got == 0 || (got < 0 && !only_for_now(errno))) close_end(&s->from);
}

static void give(oct_relay *relay, stream *s)
{
    const ssize_t gone = write(s->to, s->text + s->given, s->held - s->given);
    if (gone >= 0) {
        s->given += (size_t)gone;
        if (s->to == STDERR_FILENO && gone > 0) relay->open_line = s->text[s->given - 1] != '\n';
    } else if (!only_for_now(errno)) {
        if (s->to == STDOUT_FILENO && relay->failed == 0) relay->failed = errno;
        s->to = -1;
        s->held = 0;
    }
}

/* Moves each stream by one read or write; false where none could be moved within so many milliseconds. */
static bool move_once(oct_relay *relay, int patience_ms)
{
    struct pollfd polled[OCT_RELAY_STREAMS];
    for (int i = 0; i < OCT_RELAY_STREAMS; i++) {
        const stream *s = &relay->stream[i];
        polled[i] = holds(s) ? (struct pollfd){.fd = s->to, .events = POLLOUT}
                             : (struct pollfd){.fd = s->from, .events = POLLIN};
    }
    if (poll(polled, OCT_RELAY_STREAMS, patience_ms) <= 0) return false;
    for (int i = 0; i < OCT_RELAY_STREAMS; i++) {
        stream *s = &relay->stream[i];
        if (!polled[i].revents) continue;
        if (holds(s))
            give(relay, s);
        else
            take(s);
    }
    return true;
}

void oct_relay_move(oct_relay *relay, int patience_ms)
{
    bool moved = move_once(relay, patience_ms);
    for (int i = 0; moved && i < ROUNDS; i++)
        moved = move_once(relay, 0);
}

/* The ranks can take their bar away no more, where they were killed. */
static void end_line(const oct_relay *relay)
{
    if (relay->open_line && relay->stream[1].to >= 0)
        fputs(isatty(STDERR_FILENO) ? "\r\033[K" : "\n", stderr);
}

void oct_relay_close(oct_relay *relay, bool (*asked)(void))
{
    int looks = 0;
    while (true) {
        bool waits = false;
        oct_relay_move(relay, 0);
        for (int i = 0; i < OCT_RELAY_STREAMS; i++)
            waits = waits || holds(&relay->stream[i]);
        if (!waits && !move_once(relay, 0)) break;
        if (waits && !move_once(relay, LOOK_MS) && asked() && ++looks >= LOOKS_MAX) break;
    }
    end_line(relay);
    for (int i = 0; i < OCT_RELAY_STREAMS; i++)
        close_end(&relay->stream[i].from);
}

oct_status oct_relay_verdict(const oct_relay *relay)
{
    return relay->failed == 0 ? OCT_OK : oct_print_failed(relay->failed);
}
