/* The parent reads both pipes with poll until they close and the child is gone. A grandchild that
 * keeps a pipe open after the child's end gets one second. */
#include "tests/support/process.h"

#include "core/base/mem.h"
#include "core/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_ARGS = 256, MAX_TREE = 1024 };

static const double after_exit_s = 1.0;

typedef struct stream {
    int fd;
    char *data;
    size_t length, capacity;
} stream;

static void stream_take(stream *s)
{
    if (oct_grow(&s->data, &s->capacity, s->length + 4097, 1) != OCT_OK) {
        close(s->fd);
        s->fd = -1;
        return;
    }
    ssize_t got = read(s->fd, s->data + s->length, 4096);
    if (got > 0)
        s->length += (size_t)got;
    else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
        close(s->fd);
        s->fd = -1;
    }
    s->data[s->length] = '\0';
}

static char *stream_end(stream *s)
{
    if (s->fd >= 0) close(s->fd);
    if (!s->data && oct_strdup(&s->data, "") != OCT_OK) _exit(70);
    return s->data;
}

/* Descendants of pid, before pid itself, so that none is adopted by init unseen. */
static void collect_tree(pid_t pid, pid_t *tree, size_t *count)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "r");
    int child;
    while (file && *count + 1 < MAX_TREE && fscanf(file, "%d", &child) == 1)
        collect_tree(child, tree, count);
    if (file) fclose(file);
    tree[(*count)++] = pid;
}

static void kill_tree(pid_t pid)
{
    pid_t tree[MAX_TREE];
    size_t count = 0;
    collect_tree(pid, tree, &count);
    for (size_t i = 0; i < count; i++)
        kill(tree[i], SIGKILL);
    kill(-pid, SIGKILL);
}

/* As a terminal starts a program, however this one was started: shells ignore interrupts in the background, nohup hang-ups. */
static void reset_signals(void)
{
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGCHLD};
    sigset_t none;
    for (size_t i = 0; i < OCT_COUNT(signals); i++)
        signal(signals[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void child_main(const char *const *argv, int out, int err)
{
    char *args[MAX_ARGS] = {0};
    for (size_t i = 0; argv[i] && i + 1 < MAX_ARGS; i++)
        memcpy(&args[i], &argv[i], sizeof(char *));
    setpgid(0, 0);
    reset_signals();
    int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    dup2(out, 1);
    dup2(err, 2);
    execvp(args[0], args);
    dprintf(2, "cannot start %s: %s\n", args[0], strerror(errno));
    _exit(127);
}

/* A descriptor that poll finds readable once the child has ended; -1 where the system has none. A child closes its
 * pipes before it has ended: waiting for these alone would cost a turn of poll for each program. */
static int watch_end(pid_t pid)
{
#ifdef SYS_pidfd_open
    return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
#else
    (void)pid;
    return -1;
#endif
}

oct_process oct_run_args(double timeout_s, const char *const *argv)
{
    oct_process job = {.exit_code = 127};
    stream streams[2] = {{.fd = -1}, {.fd = -1}};
    int out[2], err[2], wait_status = 0;
    double start = oct_seconds(), ended = 0;
    pid_t pid = -1;

    if (pipe2(out, O_CLOEXEC) == 0) {
        if (pipe2(err, O_CLOEXEC) == 0) {
            pid = fork();
            if (pid == 0) child_main(argv, out[1], err[1]);
            close(err[1]);
            streams[1].fd = err[0];
        }
        close(out[1]);
        streams[0].fd = out[0];
    }
    if (pid > 0) setpgid(pid, pid);
    int end = watch_end(pid);

    bool running = pid > 0;
    while (running ||
           ((streams[0].fd >= 0 || streams[1].fd >= 0) && oct_seconds() - ended < after_exit_s)) {
        struct pollfd polled[3] = {{streams[0].fd, POLLIN, 0},
                                   {streams[1].fd, POLLIN, 0},
                                   {running ? end : -1, POLLIN, 0}};
        poll(polled, 3, 20);
        for (int i = 0; i < 2; i++)
            if (streams[i].fd >= 0 && polled[i].revents) stream_take(&streams[i]);
        if (running && waitpid(pid, &wait_status, WNOHANG) == pid) {
            running = false;
            ended = oct_seconds();
        }
        if (running && !job.timed_out && oct_seconds() - start > timeout_s) {
            job.timed_out = true;
            kill_tree(pid);
        }
    }
    if (end >= 0) close(end);
    if (pid > 0)
        job.exit_code =
            WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
    job.seconds = oct_seconds() - start;
    job.out = stream_end(&streams[0]);
    job.err = stream_end(&streams[1]);
    return job;
}

oct_process oct_process_run(double timeout_s, const char *program, ...)
{
    const char *argv[MAX_ARGS] = {program};
    va_list list;
    va_start(list, program);
    for (size_t i = 1; i + 1 < MAX_ARGS; i++)
        if (!(argv[i] = va_arg(list, const char *))) break;
    va_end(list);
    return oct_run_args(timeout_s, argv);
}

void oct_process_free(oct_process *job)
{
    oct_free(&job->out);
    oct_free(&job->err);
}

static int times(const char *text, const char *word)
{
    int count = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        count++;
    return count;
}

int oct_process_said_times(const oct_process *job, const char *text)
{
    return times(job->out, text) + times(job->err, text);
}

bool oct_process_said(const oct_process *job, const char *text)
{
    return oct_process_said_times(job, text) > 0;
}

bool oct_test_is_long(void)
{
    const char *asked = getenv("OCT_LONG");
    return asked && strcmp(asked, "1") == 0;
}
