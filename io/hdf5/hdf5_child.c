/* The program gets one socket and an environment with nothing but where libraries are found. Signals do not reach it
 * from the terminal; it ends with its socket, and by SIGKILL. Its process is held by a descriptor, so that it does not
 * matter who waits for children here, or that nobody may. */
#include "io/hdf5/hdf5_child.h"

#include "core/base/mem.h"
#include "core/base/text.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "octet-hdf5"

enum { SILENT_SECONDS_MAX = 600, CHUNK = 1 << 20, ASKED_MAX = 1 << 24 };

/* Starts the program at a path; the socket is its standard input, and LD_LIBRARY_PATH its whole environment. errno says
 * why it fails. */
static oct_status spawn(const char *path, int socket, pid_t *pid)
{
    char name[] = PROGRAM, unconfined[] = "unconfined", *environment[2] = {NULL};
    char *arguments[] = {name, getenv("OCT_HDF5_UNCONFINED") ? unconfined : NULL, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t all, blocked;
    for (char **e = environ; e && *e; e++)
        if (strncmp(*e, "LD_LIBRARY_PATH=", 16) == 0) environment[0] = *e;
    sigfillset(&all);
    sigfillset(&blocked);
    sigdelset(&blocked, SIGPROF); /* its limit of time comes by this one */
    posix_spawn_file_actions_init(&actions);
    /* Without memory for this, the program would have the standard input of this process. */
    errno = posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setsigmask(&attributes, &blocked);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    if (errno == 0) errno = posix_spawnp(pid, path, &actions, &attributes, arguments, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return errno == 0 ? OCT_OK : OCT_RESOURCE;
}

/* Starts the program that OCT_HDF5_PROGRAM names; or else the one beside this program, or where it is installed with the
 * shared object that this code is in, or in the package of Python; or where it was built or installed, or in the PATH. */
static oct_status find_and_spawn(int socket, pid_t *pid)
{
    char beside[4096] = "", installed[4096] = "", in_wheel[4096] = "";
    const char *given = getenv("OCT_HDF5_PROGRAM");
    const char *const paths[] = {beside,         installed,          in_wheel,
                                 OCT_HDF5_BUILT, OCT_HDF5_INSTALLED, PROGRAM};
    const ssize_t length = readlink("/proc/self/exe", beside, sizeof beside - sizeof PROGRAM);
    char *slash = length > 0 ? strrchr(beside, '/') : NULL;
    Dl_info object;
    if (slash) memcpy(slash + 1, PROGRAM, sizeof PROGRAM);
    const char *end = dladdr(OCT_HDF5_INSTALLED, &object) ? strrchr(object.dli_fname, '/') : NULL;
    if (end) {
        const int length_of_folder = (int)(end - object.dli_fname);
        snprintf(installed, sizeof installed, "%.*s/../bin/" PROGRAM, length_of_folder,
                 object.dli_fname);
        snprintf(in_wheel, sizeof in_wheel, "%.*s/../_bin/" PROGRAM, length_of_folder,
                 object.dli_fname);
    }
    if (given) {
        OCT_CHECK(spawn(given, socket, pid) == OCT_OK, OCT_RESOURCE,
                  "OCT_HDF5_PROGRAM: %s cannot be started: %s", given, strerror(errno));
        return OCT_OK;
    }
    /* No process is begun for a path where nothing is: valgrind, for one, does not say that its exec has failed. */
    for (size_t i = 0; i < OCT_COUNT(paths); i++)
        if ((paths[i] == paths[OCT_COUNT(paths) - 1] || access(paths[i], X_OK) == 0) &&
            spawn(paths[i], socket, pid) == OCT_OK)
            return OCT_OK;
    return oct_fail(OCT_RESOURCE,
                    "the program " PROGRAM ", which reads HDF5 files, cannot be started (%s); it "
                    "is beside octet, or where OCT_HDF5_PROGRAM says",
                    strerror(errno));
}

/* Fails because the program has closed its socket, and says how it ended where that is known. */
static oct_status fail_for_end(const oct_h5_child *child)
{
    siginfo_t how = {0};
    char cause[64] = "";
    if (child->process >= 0 && waitid(P_PIDFD, (id_t)child->process, &how, WEXITED) == 0)
        snprintf(cause, sizeof cause, " with %s %d",
                 how.si_code == CLD_EXITED ? "status" : "signal", how.si_status);
    /* No limit of its own ends it by SIGKILL. */
    const bool killed = how.si_code == CLD_KILLED && how.si_status == SIGKILL;
    return oct_fail(child->reading && !killed ? OCT_DATA : OCT_RESOURCE,
                    "%s: " PROGRAM ", which reads HDF5 files, ended%s%s", child->name, cause,
                    !child->reading ? " before it read"
                    : killed        ? ": somebody has killed it, or memory is out"
                                    : ": the file is damaged, or made to do harm");
}

oct_status oct_h5_child_nonsense(const oct_h5_child *child)
{
    return oct_fail(OCT_DATA,
                    "%s: is damaged, or made to do harm: " PROGRAM " says what no file can hold",
                    child->name);
}

oct_status oct_h5_child_take(oct_h5_child *child, void *to, size_t bytes)
{
    for (char *at = to; bytes > 0;) {
        const ssize_t got = TEMP_FAILURE_RETRY(recv(child->socket, at, bytes, 0));
        OCT_CHECK(got >= 0 || errno != EAGAIN, OCT_DATA,
                  "%s: " PROGRAM ", which reads HDF5 files, has been silent for %d seconds",
                  child->name, SILENT_SECONDS_MAX);
        if (got <= 0) return fail_for_end(child);
        at += got;
        bytes -= (size_t)got;
    }
    return OCT_OK;
}

static oct_status send_bytes(oct_h5_child *child, const void *from, size_t bytes)
{
    for (const char *at = from; bytes > 0;) {
        const ssize_t sent = TEMP_FAILURE_RETRY(send(child->socket, at, bytes, MSG_NOSIGNAL));
        if (sent <= 0) return fail_for_end(child);
        at += sent;
        bytes -= (size_t)sent;
    }
    return OCT_OK;
}

oct_status oct_h5_child_ask(oct_h5_child *child, const oct_h5_message *request)
{
    return send_bytes(child, request, sizeof *request);
}

/* Answers ASK: sends the program the bytes of the file that it has asked for. */
static oct_status send_file_bytes(oct_h5_child *child, int64_t at, int64_t bytes)
{
    OCT_OWNED(oct_free) uint8_t *chunk = NULL;
    if (at < 0 || bytes < 0 || at > child->file.size || bytes > child->file.size - at)
        return oct_h5_child_nonsense(child);
    OCT_TRY(oct_alloc(&chunk, (size_t)(bytes < CHUNK ? bytes : CHUNK), 1));
    while (bytes > 0) {
        const size_t now = (size_t)(bytes < CHUNK ? bytes : CHUNK);
        OCT_TRY(oct_span_read(&child->file, at, chunk, now, child->name));
        OCT_TRY(send_bytes(child, chunk, now));
        at += (int64_t)now;
        bytes -= (int64_t)now;
    }
    return OCT_OK;
}

/* Fails with the sentence of a refusal that the program has sent; m->at: which one, m->name: what it is about. */
static oct_status fail_for_refusal(oct_h5_child *child, const oct_h5_message *m)
{
    static const char *const sentences[] = {
#define X(name, sentence) (sentence),
        OCT_H5_REFUSALS(X)
#undef X
    };
    const size_t length = strnlen(m->name, sizeof m->name);
    if (m->at < 0 || m->at >= (int64_t)OCT_COUNT(sentences)) return oct_h5_child_nonsense(child);
    OCT_CHECK(m->at != OCT_H5_IS_UNCONFINED, OCT_RESOURCE,
              "%s: this system cannot confine " PROGRAM " (seccomp), which reads HDF5 files that "
              "may be crafted; OCT_HDF5_UNCONFINED=1 reads files that you trust",
              child->name);
    return oct_fail(OCT_DATA, "%s: %s%s%s", child->name,
                    length ? oct_show(m->name, length).text : "", length ? " " : "",
                    sentences[m->at]);
}

oct_status oct_h5_child_answer(oct_h5_child *child, oct_h5_kind kind, oct_h5_message *m, bool *done)
{
    for (int asked = 0; asked < ASKED_MAX; asked++) {
        OCT_TRY(oct_h5_child_take(child, m, sizeof *m));
        if (m->kind == OCT_H5_FAILED) return fail_for_refusal(child, m);
        if (done) *done = m->kind == OCT_H5_DONE;
        if (m->kind == (int64_t)kind || (done && *done)) return OCT_OK;
        if (m->kind != OCT_H5_ASK) break;
        OCT_TRY(send_file_bytes(child, m->at, m->bytes));
    }
    return oct_h5_child_nonsense(child);
}

oct_status oct_h5_child_start(oct_h5_child *child, const oct_span *file, const char *name)
{
    const struct timeval patience = {.tv_sec = SILENT_SECONDS_MAX};
    int ends[2];
    oct_h5_message hello;
    *child = (oct_h5_child){.file = *file, .name = name, .socket = -1, .process = -1, .pid = -1};
    OCT_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, OCT_RESOURCE,
              "%s: no socket can be made: %s", name, strerror(errno));
    child->socket = ends[0];
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    oct_status status = find_and_spawn(ends[1], &child->pid);
    close(ends[1]);
    if (status != OCT_OK) (void)oct_fail_prefix("%s", name);
    if (status == OCT_OK) child->process = pidfd_open(child->pid, 0);
    if (status == OCT_OK) status = oct_h5_child_take(child, &hello, sizeof hello);
    if (status == OCT_OK && hello.kind == OCT_H5_FAILED)
        status = fail_for_refusal(child, &hello);
    else if (status == OCT_OK && (hello.kind != OCT_H5_HELLO || hello.at != OCT_H5_PROTOCOL))
        status = oct_fail(OCT_RESOURCE, "%s: " PROGRAM " is not that of this Octet", name);
    child->reading = true;
    if (status != OCT_OK) oct_h5_child_end(child);
    return status;
}

void oct_h5_child_end(oct_h5_child *child)
{
    siginfo_t how;
    if (child->socket >= 0) close(child->socket);
    if (child->process >= 0) {
        pidfd_send_signal(child->process, SIGKILL, NULL, 0);
        waitid(P_PIDFD, (id_t)child->process, &how, WEXITED);
        close(child->process);
    } else if (child->pid > 0) { /* before Linux 5.3 */
        kill(child->pid, SIGKILL);
        waitpid(child->pid, NULL, 0);
    }
    *child = OCT_H5_NO_CHILD;
}
