/* The table of ranks is in shared memory: in a file without a name of the process that started
 * mpirun, in the folder that Open MPI keeps for the time of its job, or, since MPICH has none, in a file that
 * the ranks name by mpirun's process and whose name is removed when all of them have it. */
#include "dist/rank_table.h"

#include "core/base/log.h"
#include "core/base/text.h"
#include "dist/comm_impl.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const uint64_t table_mark = 0x33656c6261742d72; /* "r-table3" */
static const double warn_every_s = 20, report_s = 5;

typedef struct rank_line {
    _Atomic int32_t pid, rank, exit_status;
    _Atomic int64_t noted[OCT_RANK_FIELDS]; /* of OCT_RANK_WAITS one more */
    _Atomic uint64_t operation;             /* 1 + it, and its number below */
    _Atomic int64_t since_ms;
} rank_line;

/* Zero is the state at first. */
typedef struct rank_table {
    _Atomic uint64_t mark;
    _Atomic int32_t stop, failed;
    _Atomic int64_t warned_ms;
    _Atomic int32_t speaker, spoken; /* the process that wrote `words`, and that they are whole */
    char words[4096];
    rank_line lines[];
} rank_table;

static rank_table *table;
static int num_lines;
static char name_of_table[128]; /* that is still to be taken away; empty: none */
static int file_of_table = -1;  /* of the process that made it, which has one at a time */
static rank_line *own_line;     /* NULL: not a rank, or no table */

static size_t bytes_for(int64_t lines)
{
    return sizeof(rank_table) + (size_t)lines * sizeof(rank_line);
}

static bool map_table(int fd, int64_t lines)
{
    table = oct_memory_map(fd, bytes_for(lines));
    if (!table) return false;
    num_lines = (int)lines;
    return true;
}

bool oct_rank_table_create(int64_t ranks, char path[64])
{
    int fd = memfd_create("octet-ranks", MFD_CLOEXEC);
    if (table) munmap(table, bytes_for(num_lines));
    if (file_of_table >= 0) close(file_of_table);
    table = NULL;
    num_lines = 0;
    file_of_table = fd;
    if (fd < 0 || ftruncate(fd, (off_t)bytes_for(ranks)) != 0 || !map_table(fd, ranks))
        return false;
    atomic_store(&table->mark, table_mark);
    snprintf(path, 64, "/proc/%ld/fd/%d", (long)getpid(), fd); /* open as long as this process */
    return true;
}

/* Opens the launcher's table; anything else at that path is left alone. */
static bool open_given(const char *path)
{
    struct stat info;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    bool opened =
        fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (size_t)info.st_size >= bytes_for(1) &&
        map_table(fd, ((int64_t)info.st_size - (int64_t)bytes_for(0)) / (int64_t)sizeof(rank_line));
    close(fd);
    if (opened && atomic_load(&table->mark) != table_mark) {
        munmap(table, bytes_for(num_lines));
        table = NULL;
        num_lines = 0;
    }
    return table != NULL;
}

/* Opens or makes the table in this file; one of another user or size is none of this job. It is opened before it is
 * checked, so that it cannot be exchanged in between. */
static bool open_named(const char *path, int64_t lines)
{
    enum { HOW = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK };
    struct stat info;
    int fd = open(path, HOW | O_CREAT | O_EXCL, 0600);
    if (fd < 0) fd = open(path, HOW);
    if (fd < 0) return false;
    const bool ours = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
                      (info.st_size == 0 || info.st_size == (off_t)bytes_for(lines));
    const bool opened = ours && ftruncate(fd, (off_t)bytes_for(lines)) == 0 && map_table(fd, lines);
    close(fd);
    if (opened) atomic_store(&table->mark, table_mark);
    return opened;
}

static const char names_folder[] = "/dev/shm", name_prefix[] = "octet-ranks.";

/* Removes names of tables whose mpirun is gone, which killed jobs have left. */
static void remove_stale_names(void)
{
    DIR *all = opendir(names_folder);
    if (!all) return;
    for (struct dirent *entry; (entry = readdir(all)) != NULL;) {
        int64_t pid;
        const bool is_ours = strncmp(entry->d_name, name_prefix, strlen(name_prefix)) == 0 &&
                             oct_parse_i64(entry->d_name + strlen(name_prefix), &pid) && pid > 0;
        if (is_ours && oct_process_state((int)pid) == 0) unlinkat(dirfd(all), entry->d_name, 0);
    }
    closedir(all);
}

/* Opens the file that is named by mpirun's process; does nothing where there is no such process. */
static bool open_by_launcher(int64_t lines)
{
    const int launcher = oct_launcher_process();
    if (launcher == 0) return false;
    remove_stale_names();
    snprintf(name_of_table, sizeof(name_of_table), "%s/%s%d", names_folder, name_prefix, launcher);
    if (open_named(name_of_table, lines)) return true;
    name_of_table[0] = '\0';
    return false;
}

static void remove_own_name(void)
{
    if (name_of_table[0]) unlink(name_of_table);
    name_of_table[0] = '\0';
}

/* Keeps an error message in the table, for oct_rank_table_words: the first that any rank says. */
static void note_words(const char *words)
{
    int32_t nobody = 0;
    if (!atomic_compare_exchange_strong(&table->speaker, &nobody, (int32_t)getpid())) return;
    snprintf(table->words, sizeof(table->words), "%s", words);
    atomic_store(&table->spoken, 1);
}

/* A rank takes its line: of the table that the environment names, of the folder of its job, or of mpirun's process. */
void oct_rank_table_enter(void)
{
    int rank, all, local_rank, ranks;
    const char *given = getenv(OCT_RANK_TABLE_VARIABLE), *folder = getenv("PMIX_SERVER_TMPDIR");
    if (own_line || !oct_launched(&rank, &all) || !oct_launched_here(&local_rank, &ranks)) return;
    if (given && !open_given(given) && local_rank == 0) {
        char host[OCT_HOST_BYTES];
        oct_host_name(host);
        dprintf(STDERR_FILENO, OCT_RANK_MARK " %d %s\n", ranks, host);
    }
    if (!table && folder) {
        char path[4096];
        if ((size_t)snprintf(path, sizeof(path), "%s/octet-ranks", folder) < sizeof(path))
            (void)open_named(path, ranks);
    } else if (!table) {
        (void)open_by_launcher(ranks);
    }
    if (!table || local_rank >= num_lines) return;
    rank_line *line = &table->lines[local_rank];
    atomic_store(&line->rank, rank);
    atomic_store(&line->noted[OCT_RANK_STEP], 0);
    atomic_store(&line->noted[OCT_RANK_STAGE], OCT_RANK_STARTED);
    atomic_store(&line->pid, (int32_t)getpid());
    own_line = line;
    oct_log_hear(note_words);
    bool all_have_entered = true;
    for (int i = 0; i < num_lines; i++)
        all_have_entered &= atomic_load(&table->lines[i].pid) != 0;
    if (all_have_entered) remove_own_name();
}

void oct_rank_note(oct_rank_field field, int64_t value)
{
    if (own_line)
        atomic_store(&own_line->noted[field], field == OCT_RANK_WAITS ? value + 1 : value);
}

void oct_rank_note_operation(int operation, uint32_t sequence)
{
    if (!own_line) return;
    atomic_store_explicit(&own_line->operation, (uint64_t)(operation + 1) << 32 | sequence,
                          memory_order_relaxed);
    atomic_store_explicit(&own_line->since_ms, (int64_t)(oct_seconds() * 1e3),
                          memory_order_relaxed);
}

void oct_rank_note_end(int exit_status)
{
    if (!own_line) return;
    remove_own_name();
    atomic_store(&own_line->exit_status, exit_status);
    oct_rank_note(OCT_RANK_STAGE, OCT_RANK_ENDED);
}

const char *oct_rank_table_words(void)
{
    return table && atomic_load(&table->spoken) ? table->words : "";
}

int oct_rank_table_lines(void)
{
    return num_lines;
}

oct_rank_view oct_rank_table_line(int number)
{
    rank_line *line = &table->lines[number];
    const uint64_t operation = atomic_load(&line->operation);
    return (oct_rank_view){
        .rank = atomic_load(&line->rank),
        .pid = atomic_load(&line->pid),
        .stage = (oct_rank_stage)atomic_load(&line->noted[OCT_RANK_STAGE]),
        .exit_status = atomic_load(&line->exit_status),
        .stops = atomic_load(&line->noted[OCT_RANK_STOPS]) != 0,
        .step = atomic_load(&line->noted[OCT_RANK_STEP]),
        .waits_for = (int)atomic_load(&line->noted[OCT_RANK_WAITS]) - 1,
        .operation = (int)(operation >> 32) - 1,
        .sequence = (uint32_t)operation,
        .since_s = (double)atomic_load(&line->since_ms) * 1e-3,
    };
}

bool oct_rank_table_find(int rank, oct_rank_view *view)
{
    for (int i = 0; i < num_lines; i++) {
        *view = oct_rank_table_line(i);
        if (view->pid > 0 && view->rank == rank) return true;
    }
    return false;
}

void oct_rank_table_ask_to_stop(void)
{
    if (table) atomic_store(&table->stop, 1);
}

bool oct_rank_stop_asked(void)
{
    return table && atomic_load(&table->stop) != 0;
}

/* True while the process runs, is not stopped, and has not noted its end. */
static bool still_runs(int32_t pid)
{
    for (int i = 0; i < num_lines; i++) {
        const oct_rank_view view = oct_rank_table_line(i);
        if (view.pid != pid) continue;
        const char state = oct_process_state(pid);
        return view.stage != OCT_RANK_ENDED && state != 'T' && state != 'Z' && state != 0;
    }
    return false;
}

/* A rank that may not report is about to end the job; so it first waits, for a
 * while, until the reporter has ended. */
bool oct_rank_may_report(void)
{
    int32_t reporter = 0;
    if (!table || atomic_compare_exchange_strong(&table->failed, &reporter, (int32_t)getpid()) ||
        reporter == (int32_t)getpid())
        return true;
    const double until = oct_seconds() + report_s;
    while (still_runs(reporter) && oct_seconds() < until)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return false;
}

bool oct_rank_may_warn(void)
{
    if (!table) return true;
    int64_t now = (int64_t)(oct_seconds() * 1e3), last = atomic_load(&table->warned_ms);
    if (last > 0 && now - last < (int64_t)(warn_every_s * 1e3)) return false;
    return atomic_compare_exchange_strong(&table->warned_ms, &last, now);
}

double oct_warn_after(double deadline_s)
{
    return fmin(30, deadline_s / 2);
}
