/* The guard reads a pipe whose other end only its owner has: the end of file is the owner's end, however it came. A
 * lock on the folder says that it is in use.
 *
 * The first guard runs before there is a folder, by a unique name. At each start of mpirun another one
 * takes over, who has the table of its ranks and the lock. */
#include "launch/ranks/watch.h"

#include "core/base/text.h"
#include "dist/rank_table.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OPEN_FOLDERS = 16, LOOK_NS = 50000000, DISMISSED = -1 };

static const char jobs_folder[] = "/dev/shm", name_prefix[] = "octet-job.";
static const double ends_within_s = 5;

static struct {
    bool running;
    int orders,
        answers; /* pipes; the guard writes a byte when it is ready, its end is that of the second */
    int lock;
    char folder[64];
} guard;

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    remove(path);
    return 0;
}

static void remove_folder(const char *path)
{
    nftw(path, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
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

/* Removes the folders of earlier jobs of this user whose lock nobody holds. */
static void remove_stale_folders(void)
{
    DIR *all = opendir(jobs_folder);
    if (!all) return;
    for (struct dirent *entry; (entry = readdir(all)) != NULL;) {
        char path[sizeof(jobs_folder) + sizeof(entry->d_name)];
        if (strncmp(entry->d_name, name_prefix, strlen(name_prefix)) != 0) continue;
        snprintf(path, sizeof(path), "%s/%s", jobs_folder, entry->d_name);
        const int lock = lock_folder(path);
        if (lock < 0) continue;
        remove_folder(path);
        close(lock);
    }
    closedir(all);
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

/* Whether mpirun or a process of its group is still there. */
static bool group_lives(pid_t mpirun)
{
    return kill(-mpirun, 0) == 0 || errno == EPERM;
}

/* The life of a guard: it reads the process ids of mpirun until its owner has ended, then ends and removes what is left. */
static void run_guard(int orders, int answers)
{
    static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    pid_t mpirun = 0, got_pid;
    ssize_t got;
    /* A guard shares nothing with those who wait for the output or the terminal of its owner. */
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    setsid();
    for (size_t i = 0; i < OCT_COUNT(stop_signals); i++)
        signal(stop_signals[i], SIG_IGN);
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
    if (write(answers, "", 1) != 1) _exit(0); /* there is no owner any more, nor a folder */
    while ((got = read(orders, &got_pid, sizeof(got_pid))) != 0) {
        if (got == sizeof(got_pid)) mpirun = got_pid;
        if (mpirun == DISMISSED) _exit(0);
    }
    if (mpirun > 0) {
        /* mpirun has had a SIGTERM when its parent ended, and sees it when it is not stopped. */
        const double until = oct_seconds() + ends_within_s;
        kill(-mpirun, SIGCONT);
        while (group_lives(mpirun) && oct_seconds() < until)
            nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        if (group_lives(mpirun)) oct_guard_kill(mpirun);
    }
    remove_folder(guard.folder);
    _exit(0);
}

static void send_to_guard(pid_t what)
{
    while (write(guard.orders, &what, sizeof(what)) < 0 && errno == EINTR)
        continue;
}

/* Waits until the guard is ready (true) or has ended. */
static bool wait_for_guard(int answers)
{
    char nothing;
    ssize_t got;
    while ((got = read(answers, &nothing, 1)) < 0 && errno == EINTR)
        continue;
    return got == 1;
}

/* Closes the pipe to the guard and waits for its end, before which it removes the folder unless it was dismissed. */
static void close_guard(void)
{
    close(guard.orders);
    if (guard.running) wait_for_guard(guard.answers);
    close(guard.answers);
    guard.running = false;
}

/* Starts a guard process, with a pipe of orders to it and one of answers from it, and dismisses the one before. */
static void start_guard(void)
{
    int orders[2], answers[2];
    if (pipe2(orders, O_CLOEXEC) != 0) return;
    if (pipe2(answers, O_CLOEXEC) != 0) {
        close(orders[0]);
        close(orders[1]);
        return;
    }
    /* The guard's parent ends at once: the children of the owner are mpirun alone. */
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0 && fork() != 0) _exit(0);
    if (child > 0) waitpid(child, NULL, 0);
    if (child == 0) {
        close(orders[1]);
        close(answers[0]);
        if (guard.running) close(guard.orders); /* only the owner's end must stay open */
        run_guard(orders[0], answers[1]);
    }
    close(orders[0]);
    close(answers[1]);
    if (child < 0 || !wait_for_guard(answers[0])) {
        close(orders[1]);
        close(answers[0]);
        return;
    }
    if (guard.running) {
        send_to_guard(DISMISSED);
        close_guard();
    }
    guard.orders = orders[1];
    guard.answers = answers[0];
    guard.running = true;
}

const char *oct_guard_begin(void)
{
    uint64_t unique;
    remove_stale_folders();
    if (getrandom(&unique, sizeof(unique), GRND_NONBLOCK) != (ssize_t)sizeof(unique)) return NULL;
    snprintf(guard.folder, sizeof(guard.folder), "%s/%s%ld.%016" PRIx64, jobs_folder, name_prefix,
             (long)getpid(), unique);
    start_guard();
    /* Another job that looks for stale folders may take this one before it is locked. */
    struct stat info;
    guard.lock = mkdir(guard.folder, S_IRWXU) == 0 ? lock_folder(guard.folder) : -1;
    if (guard.lock >= 0 && stat(guard.folder, &info) == 0) return guard.folder;
    if (guard.lock >= 0) close(guard.lock);
    if (guard.running) close_guard();
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
    if (guard.running) close_guard();
    remove_folder(guard.folder); /* already removed where there was a guard */
    close(guard.lock);
    guard.folder[0] = '\0';
}
