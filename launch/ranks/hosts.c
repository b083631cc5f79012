/* Names of hosts go to mpirun and ssh, so nothing but a name may pass for one. */
#include "launch/ranks/hosts.h"

#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/file/file.h"
#include "launch/ranks/spawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    FILE_BYTES_MAX = 1 << 20,
    SLOTS_MAX = 4096,
    AGENT_WORDS = 16,
    SHOWN = 40,
    LOOK_NS = 20000000
};

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

/* "localhost", or what gethostname says, with or without its domain. */
static bool is_here(const char *name)
{
    char own[256] = "";
    if (strcmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0) return true;
    if (gethostname(own, sizeof(own) - 1) != 0) return false;
    const size_t length = strcspn(own, ".");
    return strcmp(name, own) == 0 || (strlen(name) == length && strncmp(name, own, length) == 0);
}

static oct_status add_host(oct_rank_hosts *hosts, const char *name, size_t length, int64_t slots)
{
    for (size_t i = 0; i < hosts->count; i++) {
        oct_rank_host *host = &hosts->host[i];
        if (strlen(host->name) != length || strncmp(host->name, name, length) != 0) continue;
        OCT_CHECK(host->slots + slots <= SLOTS_MAX, OCT_USAGE,
                  "host %s has more than %d slots altogether", host->name, SLOTS_MAX);
        host->slots += slots;
        return OCT_OK;
    }
    OCT_TRY(oct_grow(&hosts->host, &hosts->capacity, hosts->count + 1, sizeof(*hosts->host)));
    oct_rank_host *host = &hosts->host[hosts->count++];
    *host = (oct_rank_host){.slots = slots};
    memcpy(host->name, name, length);
    host->here = is_here(host->name);
    return OCT_OK;
}

/* Reads one host: "node1", "node1:16" or "node1 slots=16". The text ends with the line. */
static oct_status read_host(oct_rank_hosts *hosts, const char *text)
{
    static const char slots_word[] = "slots";
    const size_t length = strspn(text, letters);
    const char *at = text + length;
    int64_t slots = 1;
    OCT_CHECK(length > 0 && text[0] != '-' && text[0] != '.' && strchr(" \t:", *at), OCT_USAGE,
              "'%.*s' is no host; write a name and how many ranks it takes: node1:16", SHOWN, text);
    OCT_CHECK(length < sizeof(hosts->host->name), OCT_USAGE,
              "'%.*s...' is no host: a name has less than %zu letters", SHOWN, text,
              sizeof(hosts->host->name));
    const bool colon = *at == ':';
    at += colon;
    at += strspn(at, " \t");
    if (!colon && strncmp(at, slots_word, strlen(slots_word)) == 0) {
        at += strlen(slots_word);
        at += strspn(at, " \t");
        OCT_CHECK(*at == '=', OCT_USAGE, "'%.*s': write slots=16", SHOWN, text);
        at += 1 + strspn(at + 1, " \t");
    } else {
        OCT_CHECK(colon || !*at, OCT_USAGE, "'%.*s': after a host write slots=16, :16 or nothing",
                  SHOWN, text);
    }
    OCT_CHECK((!colon && !*at && at == text + length) ||
                  (oct_parse_i64(at, &slots) && slots >= 1 && slots <= SLOTS_MAX),
              OCT_USAGE, "'%.*s': slots are a number from 1 to %d", SHOWN, text, SLOTS_MAX);
    return add_host(hosts, text, length, slots);
}

/* Cuts comment and blanks off a line. */
static char *trim(char *line)
{
    line[strcspn(line, "#\r")] = '\0';
    line += strspn(line, " \t");
    size_t length = strlen(line);
    while (length > 0 && strchr(" \t", line[length - 1]))
        line[--length] = '\0';
    return line;
}

static oct_status take_lines(oct_rank_hosts *hosts, const char *path, char *text, size_t size)
{
    size_t number = 1;
    OCT_CHECK(!memchr(text, '\0', size), OCT_USAGE, "%s: is no text", path);
    for (char *line = text, *next; line; line = next, number++) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        line = trim(line);
        if (!*line) continue;
        if (read_host(hosts, line) != OCT_OK) return oct_fail_prefix("%s:%zu", path, number);
    }
    OCT_CHECK(hosts->count > 0, OCT_USAGE, "%s: names no host; write lines such as node1 slots=16",
              path);
    return OCT_OK;
}

oct_status oct_rank_hosts_read(oct_rank_hosts *hosts, const char *path)
{
    void *bytes;
    size_t size;
    *hosts = (oct_rank_hosts){.file = -1};
    OCT_TRY(oct_file_read(path, FILE_BYTES_MAX, &bytes, &size));
    oct_status status = take_lines(hosts, path, bytes, size);
    oct_free(&bytes);
    return status;
}

oct_status oct_rank_hosts_parse(oct_rank_hosts *hosts, const char *list)
{
    char *text;
    oct_status status = OCT_OK;
    *hosts = (oct_rank_hosts){.file = -1};
    OCT_TRY(oct_strdup(&text, list));
    for (char *one = text, *next; one && status == OCT_OK; one = next) {
        next = strchr(one, ',');
        if (next) *next++ = '\0';
        status = read_host(hosts, one);
    }
    oct_free(&text);
    return status == OCT_OK ? OCT_OK : oct_fail_prefix("command line: --hosts");
}

void oct_rank_hosts_free(oct_rank_hosts *hosts)
{
    if (hosts->file >= 0) close(hosts->file);
    hosts->file = -1;
    hosts->count = 0;
    oct_free(&hosts->host);
}

int64_t oct_rank_hosts_slots(const oct_rank_hosts *hosts)
{
    int64_t slots = 0;
    for (size_t i = 0; i < hosts->count; i++)
        slots += hosts->host[i].silent ? 0 : hosts->host[i].slots;
    return slots;
}

bool oct_rank_hosts_beyond(const oct_rank_hosts *hosts)
{
    for (size_t i = 0; i < hosts->count; i++)
        if (!hosts->host[i].here) return true;
    return false;
}

oct_status oct_rank_hosts_write(oct_rank_hosts *hosts, const oct_mpirun_dialect *dialect,
                                char path[64])
{
    bool written = true;
    if (hosts->file >= 0) close(hosts->file);
    hosts->file = memfd_create("octet-hosts", MFD_CLOEXEC);
    for (size_t i = 0; i < hosts->count; i++) {
        const oct_rank_host *host = &hosts->host[i];
        if (host->silent) continue;
        written = dprintf(hosts->file, "%s%s%lld\n", host->name, dialect->slots,
                          (long long)host->slots) > 0 &&
                  written;
    }
    OCT_CHECK(hosts->file >= 0 && written, OCT_RESOURCE, "no memory for the list of hosts");
    snprintf(path, 64, "/proc/%ld/fd/%d", (long)getpid(), hosts->file);
    return OCT_OK;
}

/* Splits the agent that mpirun uses into words. "ssh : rsh" names two agents. */
static size_t agent_words(char *text, const char **argv)
{
    size_t n = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, " ", &rest); word && strcmp(word, ":") != 0 && n < AGENT_WORDS;
         word = strtok_r(NULL, " ", &rest))
        argv[n++] = word;
    return n;
}

static bool begin_to_ask(const char *name, const oct_mpirun_dialect *dialect, pid_t *pid)
{
    char own[1024] = "ssh -o BatchMode=yes -o ConnectTimeout=5";
    const char *argv[AGENT_WORDS + 3], *agent = getenv(dialect->agent);
    if (agent && *agent) snprintf(own, sizeof(own), "%s", agent);
    size_t n = agent_words(own, argv);
    argv[n++] = name;
    argv[n++] = "true";
    argv[n] = NULL;
    return oct_spawn(argv, -1, pid);
}

/* Notes which of those that are still asked have answered; returns how many have not ended. */
static size_t collect_answers(oct_rank_hosts *hosts, pid_t *asked)
{
    size_t left = 0;
    for (size_t i = 0; i < hosts->count; i++) {
        bool well;
        if (asked[i] <= 0) continue;
        if (oct_spawn_over(asked[i], &well)) {
            hosts->host[i].silent = !well;
            asked[i] = 0;
        } else {
            left++;
        }
    }
    return left;
}

oct_status oct_rank_hosts_ask(oct_rank_hosts *hosts, const oct_mpirun_dialect *dialect,
                              double patience_s)
{
    pid_t *asked;
    OCT_TRY(oct_alloc(&asked, hosts->count, sizeof(*asked)));
    for (size_t i = 0; i < hosts->count; i++) {
        oct_rank_host *host = &hosts->host[i];
        if (host->here || host->silent) continue;
        host->silent = !begin_to_ask(host->name, dialect, &asked[i]);
    }
    const double until = oct_seconds() + patience_s;
    while (collect_answers(hosts, asked) > 0 && oct_seconds() < until)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    for (size_t i = 0; i < hosts->count; i++) {
        if (asked[i] <= 0) continue;
        hosts->host[i].silent = true;
        oct_spawn_end(asked[i]);
    }
    oct_free(&asked);
    return OCT_OK;
}
