/* A stream is read only when what was read before is given away, and given only where it can be taken: nothing here
 * blocks the process, which has mpirun and the ranks to look after.
 *
 * Lines of stderr that begin as mpirun's accounts and rules do are kept until it is known what they are; all others
 * pass as they come, whole or not. */
#include "launch/ranks/watch.h"

#include "dist/rank_table.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 64, LOOK_MS = 100, LOOKS_MAX = 20 };

typedef struct oct_relayed stream;

static bool has_unwritten(const stream *s)
{
    return s->written < s->length;
}

static void close_end(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

oct_status oct_relay_open(oct_relay *relay, const oct_relay_editor *editor,
                          int ends[OCT_RELAY_STREAMS])
{
    *relay = (oct_relay){.editor = *editor};
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

static bool is_temporary(int error)
{
    return error == EINTR || error == EAGAIN;
}

/* Passes lines of stderr on, and remembers the last of them. */
static void pass_stderr(oct_relay *relay, const char *text, size_t size)
{
    stream *s = &relay->stream[1];
    if (relay->tail_bytes + size > sizeof(relay->tail)) {
        const size_t gone = relay->tail_bytes + size - sizeof(relay->tail);
        relay->tail_bytes -= gone;
        memmove(relay->tail, relay->tail + gone, relay->tail_bytes);
    }
    memcpy(relay->tail + relay->tail_bytes, text, size);
    relay->tail_bytes += size;
    memcpy(s->text + s->length, text, size);
    s->length += size;
}

static void pass_kept_lines(oct_relay *relay, size_t size)
{
    pass_stderr(relay, relay->kept_text, size);
    relay->kept_bytes -= size;
    memmove(relay->kept_text, relay->kept_text + size, relay->kept_bytes);
}

static bool is_rule(const char *line, size_t length)
{
    enum { SHORTEST = 40 };
    const char mark[2] = {line[0], '\0'};
    return length > SHORTEST && strchr("-=", line[0]) && strspn(line, mark) + 1 >= length;
}

static bool is_account(const oct_relay *relay, const char *line, size_t length)
{
    for (const char *const *account = relay->editor.accounts; *account; account++)
        if (memmem(line, length, *account, strlen(*account))) return true;
    return false;
}

/* Decides after each kept line of stderr. mpirun's accounts of an ended rank are lines, or blocks between two rules of
 * - or =: they are dropped where Octet itself explains the end, and passed on otherwise, as all other lines are. */
static void decide_on_kept_lines(oct_relay *relay)
{
    const oct_relay_editor *e = &relay->editor;
    const char *text = relay->kept_text;
    const size_t first = (size_t)((const char *)memchr(text, '\n', relay->kept_bytes) + 1 - text);
    size_t last = relay->kept_bytes - 1; /* where the last line begins */
    while (last > 0 && text[last - 1] != '\n')
        last--;
    const bool block = is_rule(text, first),
               ruled = block && is_rule(text + last, relay->kept_bytes - last);
    const bool passes =
        last == (block ? first : 0) && !is_account(relay, text + last, relay->kept_bytes - last);
    if (block && last == 0) return; /* what is under it decides */
    if (last == first && ruled) /* the end of a block that has passed, and the rule of another */
        pass_kept_lines(relay, first);
    else if (block && !ruled && !passes)
        return;
    else if (!passes && e->explained(e->job))
        relay->kept_bytes = 0;
    else
        pass_kept_lines(relay, relay->kept_bytes);
}

/* Passes stderr on, but keeps lines that may be mpirun's accounts, and gives lines about ranks to the editor. */
static void filter_stderr(oct_relay *relay, const char *text, size_t size)
{
    static const char openers[] = OCT_RANK_MARK "-=[mUA"; /* of rules, lines and accounts */
    const oct_relay_editor *editor = &relay->editor;
    char host[256];
    int ranks;
    for (const char *at = text; at < text + size; at++) {
        if (!*at) continue; /* PRRTE passes the ends of its strings on */
        if (relay->passes_line || (relay->kept_bytes == 0 && !strchr(openers, *at))) {
            pass_stderr(relay, at, 1);
        } else {
            relay->kept_text[relay->kept_bytes++] = *at;
            if (*at == '\n' && relay->kept_text[0] == OCT_RANK_MARK[0]) {
                /* What ranks of another host say of their start is for the editor alone. */
                relay->kept_text[relay->kept_bytes - 1] = '\0';
                if (sscanf(relay->kept_text, OCT_RANK_MARK " %d %255s", &ranks, host) == 2)
                    editor->began(editor->job, ranks, host);
                relay->kept_bytes = 0;
            } else if (*at == '\n')
                decide_on_kept_lines(relay);
            if (relay->kept_bytes < sizeof(relay->kept_text)) continue;
            pass_kept_lines(relay, relay->kept_bytes);
        }
        relay->passes_line = *at != '\n';
    }
}

static void read_stream(oct_relay *relay, stream *s)
{
    char text[OCT_RELAY_BYTES];
    const ssize_t got = read(s->from, text, sizeof(text));
    s->written = s->length = 0;
    const bool is_stderr = s == &relay->stream[1];
    if (got > 0 && is_stderr) filter_stderr(relay, text, (size_t)got);
    if (got > 0 && !is_stderr) memcpy(s->text, text, s->length = (size_t)got);
    if (got == 0 || (got < 0 && !is_temporary(errno))) {
        close_end(&s->from);
        if (is_stderr) pass_kept_lines(relay, relay->kept_bytes);
    }
    if (s->to < 0) s->length = 0;
}

static void write_stream(oct_relay *relay, stream *s)
{
    const size_t left = s->length - s->written;
    const ssize_t gone =
        write(s->to, s->text + s->written, left < OCT_RELAY_BYTES ? left : OCT_RELAY_BYTES);
    if (gone >= 0) {
        s->written += (size_t)gone;
        if (s->to == STDERR_FILENO && gone > 0) relay->open_line = s->text[s->written - 1] != '\n';
    } else if (!is_temporary(errno)) {
        if (s->to == STDOUT_FILENO && relay->failed == 0) relay->failed = errno;
        s->to = -1;
        s->length = 0;
    }
}

/* Moves each stream by one read or write; false where none could be moved within patience_ms. */
static bool move_once(oct_relay *relay, int patience_ms)
{
    struct pollfd polled[OCT_RELAY_STREAMS];
    for (int i = 0; i < OCT_RELAY_STREAMS; i++) {
        const stream *s = &relay->stream[i];
        polled[i] = has_unwritten(s) ? (struct pollfd){.fd = s->to, .events = POLLOUT}
                                     : (struct pollfd){.fd = s->from, .events = POLLIN};
    }
    if (poll(polled, OCT_RELAY_STREAMS, patience_ms) <= 0) return false;
    for (int i = 0; i < OCT_RELAY_STREAMS; i++) {
        stream *s = &relay->stream[i];
        if (!polled[i].revents) continue;
        if (has_unwritten(s))
            write_stream(relay, s);
        else
            read_stream(relay, s);
    }
    return true;
}

void oct_relay_move(oct_relay *relay, int patience_ms)
{
    bool moved = move_once(relay, patience_ms);
    for (int i = 0; moved && i < ROUNDS; i++)
        moved = move_once(relay, 0);
}

/* True when each line of a text was among the last that came on stderr. */
static bool has_passed(const oct_relay *relay, const char *text)
{
    for (size_t length; *text; text += length + (text[length] == '\n')) {
        text += strspn(text, " ");
        length = strcspn(text, "\n");
        if (!memmem(relay->tail, relay->tail_bytes, text, length)) return false;
    }
    return true;
}

void oct_relay_close(oct_relay *relay, bool (*asked)(void))
{
    int looks = 0;
    while (true) {
        bool waits = false;
        oct_relay_move(relay, 0);
        for (int i = 0; i < OCT_RELAY_STREAMS; i++)
            waits = waits || has_unwritten(&relay->stream[i]);
        if (!waits && !move_once(relay, 0)) break;
        if (waits && !move_once(relay, LOOK_MS) && asked() && ++looks >= LOOKS_MAX) break;
    }
    /* The ranks can take their bar away no more, where they were killed. */
    if (relay->open_line && relay->stream[1].to >= 0)
        fputs(isatty(STDERR_FILENO) ? "\r\033[K" : "\n", stderr);
    for (int i = 0; i < OCT_RELAY_STREAMS; i++)
        close_end(&relay->stream[i].from);
    /* mpirun may end before it has passed on what a rank said last. */
    const char *words = oct_rank_table_words();
    if (!has_passed(relay, words)) fputs(words, stderr);
}
