/* The guard reads a pipe whose other end only its owner has: the end of file is the owner's end, however it came. A
 * lock on the folder says that it is in use.
 *
 * The first guard runs before there is a folder, by a unique name. At each start of mpirun another one
 * takes over, who has the table of its ranks and the lock. */
#include "launch/ranks/guard.h"

#include "core/base/text.h"
#include "dist/process.h"
#include "dist/rank_table.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OPEN_FOLDERS = 16, LOOK_NS = 50000000, DISMISSED = -1 };

static const char place[] = "/dev/shm", prefix[] = "octet-job.";
static const double ends_within_s = 5;

static struct {
    bool running;
    int to,
        from; /* pipes; the guard writes a byte when it is ready, its end is that of the second */
    int lock;
    char folder[64];
} guard;

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    remove(path);
    return 0;
}

static void remove_folder(const char *path)
{
    nftw(path, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
}

/* Opens a folder of this user and takes its lock; -1 where it is taken. */
static int lock_folder(const char *path)
{
    struct stat info;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return -1;
    if (fstat(fd, &info) == 0 && info.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    close(fd);
    return -1;
}

static void remove_stale(void)
{
    DIR *all = opendir(place);
    if (!all) return;
    for (struct dirent *entry; (entry = readdir(all)) != NULL;) {
        char path[sizeof(place) + sizeof(entry->d_name)];
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) continue;
        snprintf(path, sizeof(path), "%s/%s", place, entry->d_name);
        const int lock = lock_folder(path);
        if (lock < 0) continue;
        remove_folder(path);
        close(lock);
    }
    closedir(all);
}

/* Somebody who looks for stale folders may take a new one before it is locked. */
static bool make_folder(void)
{
    struct stat info;
    if (mkdir(guard.folder, S_IRWXU) != 0) return false;
    guard.lock = lock_folder(guard.folder);
    if (guard.lock >= 0 && stat(guard.folder, &info) == 0) return true;
    if (guard.lock >= 0) close(guard.lock);
    return false;
}

void oct_guard_kill(pid_t mpirun)
{
    char path[64];
    int child;
    snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", (long)mpirun, (long)mpirun);
    FILE *children = fopen(path, "re");
    while (children && fscanf(children, "%d", &child) == 1)
        kill(child, SIGKILL);
    if (children) fclose(children);
    for (int i = 0; i < oct_rank_table_lines(); i++) {
        const oct_rank_view view = oct_rank_table_line(i);
        const char state = view.pid > 0 ? oct_process_state(view.pid) : 0;
        if (state != 0 && state != 'Z') kill(view.pid, SIGKILL);
    }
    kill(-mpirun, SIGKILL);
}

static bool is_left(pid_t mpirun)
{
    return kill(-mpirun, 0) == 0 || errno == EPERM;
}

/* A guard shares nothing with those who wait for the output or the terminal of its owner. */
static void leave_owner(void)
{
    static const int asks[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    setsid();
    for (size_t i = 0; i < OCT_COUNT(asks); i++)
        signal(asks[i], SIG_IGN);
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
}

static void stand_guard(int from, int to)
{
    pid_t mpirun = 0, got_pid;
    ssize_t got;
    leave_owner();
    if (write(to, "", 1) != 1) _exit(0); /* there is no owner any more, nor a folder */
    while ((got = read(from, &got_pid, sizeof(got_pid))) != 0) {
        if (got == sizeof(got_pid)) mpirun = got_pid;
        if (mpirun == DISMISSED) _exit(0);
    }
    if (mpirun > 0) {
        /* mpirun has had a SIGTERM when its parent ended, and sees it when it is not stopped. */
        const double until = oct_seconds() + ends_within_s;
        kill(-mpirun, SIGCONT);
        while (is_left(mpirun) && oct_seconds() < until)
            nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        if (is_left(mpirun)) oct_guard_kill(mpirun);
    }
    remove_folder(guard.folder);
    _exit(0);
}

static void send_to_guard(pid_t what)
{
    while (write(guard.to, &what, sizeof(what)) < 0 && errno == EINTR)
        continue;
}

/* Waits for the guard to be ready or, where it is over, for its end. */
static bool hear(int from)
{
    char nothing;
    ssize_t got;
    while ((got = read(from, &nothing, 1)) < 0 && errno == EINTR)
        continue;
    return got == 1;
}

static void leave_guard(void)
{
    close(guard.to);
    if (guard.running) hear(guard.from);
    close(guard.from);
    guard.running = false;
}

/* Starts a guard, who takes the place of the one before. */
static void start_guard(void)
{
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0) return;
    if (pipe2(from, O_CLOEXEC) != 0) {
        close(to[0]);
        close(to[1]);
        return;
    }
    /* The guard's parent ends at once: the children of the owner are mpirun alone. */
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0 && fork() != 0) _exit(0);
    if (child > 0) waitpid(child, NULL, 0);
    if (child == 0) {
        close(to[1]);
        close(from[0]);
        if (guard.running) close(guard.to); /* only the owner's end must stay open */
        stand_guard(to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    if (child < 0 || !hear(from[0])) {
        close(to[1]);
        close(from[0]);
        return;
    }
    if (guard.running) {
        send_to_guard(DISMISSED);
        leave_guard();
    }
    guard.to = to[1];
    guard.from = from[0];
    guard.running = true;
}

const char *oct_guard_begin(void)
{
    uint64_t own;
    remove_stale();
    if (getrandom(&own, sizeof(own), GRND_NONBLOCK) != (ssize_t)sizeof(own)) return NULL;
    snprintf(guard.folder, sizeof(guard.folder), "%s/%s%ld.%016" PRIx64, place, prefix,
             (long)getpid(), own);
    start_guard();
    if (make_folder()) return guard.folder;
    if (guard.running) leave_guard();
    guard.folder[0] = '\0';
    return NULL;
}

void oct_guard_watch(pid_t mpirun)
{
    if (!guard.folder[0]) return;
    if (guard.running) send_to_guard(mpirun);
    if (mpirun > 0) start_guard();
    if (mpirun > 0 && guard.running) send_to_guard(mpirun);
}

void oct_guard_end(void)
{
    if (!guard.folder[0]) return;
    if (guard.running) leave_guard();
    remove_folder(guard.folder); /* already removed where there was a guard */
    close(guard.lock);
    guard.folder[0] = '\0';
}
