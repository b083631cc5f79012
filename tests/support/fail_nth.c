/* Preloaded into a program, makes its n-th call of a function fail once, as a full disk or exhausted memory
 * would: OCT_FAIL_CALL=alloc|open|mkdir|fallocate|read|write|fsync|close|rename|unlink|stat|opendir|driver, OCT_FAIL_AT=n. Only calls from the
 * program itself count; its libraries live undisturbed. Exits nothing and says nothing.
 *
 * With OCT_FAIL_BY=kill the program is killed there instead.
 * OCT_FAIL_ERROR=ENOSPC|EIO|EINTR|EACCES says how, otherwise as the call usually does; SHORT lets a read or a write take half.
 * OCT_FAIL_ON=1: not once, but from the n-th on. OCT_FAIL_PATH=TEXT: only calls on paths that hold the text, and on
 * what was opened by such a path, count. OCT_FAIL_COUNT=FILE: how many there were is written there at the end.
 *
 * Calls from one place of the program by one way (the functions that led there) fail in the same way, so not all need be
 * tried: OCT_FAIL_PLACES=FILE writes a line "PLACE COUNT" for each way, and with OCT_FAIL_PLACE=PLACE only its calls
 * count.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <unistd.h>

enum { FILES = 1024, NO_FILE = -1, DEPTH = 64, PLACES = 1 << 14 };

static uintptr_t text_begin, text_end;
static const char *wanted, *part;
static long left;
static bool on, half, kills;
static int given; /* an errno, or 0 */
static bool marked[FILES];

static uint64_t only_place; /* 0: any */
static const char *places_file;
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint64_t place;
    long count;
} places[PLACES]; /* a hash table; place 0: free */

/* The first object is the program. */
static int find_text(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X)) continue;
        text_begin = info->dlpi_addr + segment->p_vaddr;
        text_end = text_begin + segment->p_memsz;
    }
    return 1;
}

static int error_of(const char *name)
{
    static const struct {
        const char *name;
        int error;
    } errors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO}, {"EINTR", EINTR}, {"EACCES", EACCES}};
    for (size_t i = 0; name && i < sizeof errors / sizeof *errors; i++)
        if (strcmp(name, errors[i].name) == 0) return errors[i].error;
    return 0;
}

__attribute__((constructor)) static void start(void)
{
    const char *at = getenv("OCT_FAIL_AT"), *error = getenv("OCT_FAIL_ERROR");
    wanted = getenv("OCT_FAIL_CALL");
    part = getenv("OCT_FAIL_PATH");
    on = getenv("OCT_FAIL_ON") != NULL;
    const char *by = getenv("OCT_FAIL_BY");
    kills = by && strcmp(by, "kill") == 0;
    half = error && strcmp(error, "SHORT") == 0;
    given = error_of(error);
    left = at ? strtol(at, NULL, 10) : 0;
    const char *place = getenv("OCT_FAIL_PLACE");
    only_place = place ? strtoull(place, NULL, 16) : 0;
    places_file = getenv("OCT_FAIL_PLACES");
    dl_iterate_phdr(find_text, NULL);
}

static void write_places(void)
{
    FILE *file = places_file ? fopen(places_file, "w") : NULL;
    if (!file) return;
    for (size_t i = 0; i < PLACES; i++)
        if (places[i].place)
            fprintf(file, "%016llx %ld\n", (unsigned long long)places[i].place, places[i].count);
    fclose(file);
}

__attribute__((destructor)) static void end(void)
{
    write_places();
    const char *path = getenv("OCT_FAIL_COUNT"), *at = getenv("OCT_FAIL_AT");
    FILE *file = path && at ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%ld\n", strtol(at, NULL, 10) - left);
    fclose(file);
}

static bool from_program(const void *caller)
{
    return (uintptr_t)caller >= text_begin && (uintptr_t)caller < text_end;
}

/* The way to a call: the addresses in the program that it returns to, wherever that was loaded. */
static uint64_t find_place(void)
{
    void *frames[DEPTH];
    const int depth = backtrace(frames, DEPTH);
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (int i = 0; i < depth; i++)
        if (from_program(frames[i]))
            hash = (hash ^ ((uintptr_t)frames[i] - text_begin)) * 1099511628211u;
    return hash ? hash : 1;
}

/* Counts a call of a place; a full table leaves new places out. */
static void count_place(uint64_t place)
{
    pthread_mutex_lock(&places_lock);
    size_t at = place % PLACES, tries = 0;
    while (places[at].place && places[at].place != place && tries++ < PLACES)
        at = (at + 1) % PLACES;
    if (!places[at].place || places[at].place == place) {
        places[at].place = place;
        places[at].count++;
    }
    pthread_mutex_unlock(&places_lock);
}

static bool is_of_place(void)
{
    if (!only_place && !places_file) return true;
    const uint64_t place = find_place();
    if (places_file) count_place(place);
    return !only_place || place == only_place;
}

/* Whether this is the call; path: that it is about, NULL: none, or that of a file. */
static bool chosen(const char *call, const void *caller, const char *path, int fd)
{
    if (!wanted || !from_program(caller) || strcmp(wanted, call) != 0) return false;
    if (part && path && !strstr(path, part)) return false;
    if (part && !path && (fd < 0 || fd >= FILES || !marked[fd])) return false;
    if (!is_of_place()) return false;
    const long now = __atomic_sub_fetch(&left, 1, __ATOMIC_RELAXED);
    const bool is = now == 0 || (on && now < 0);
    if (is && kills) kill(getpid(), SIGKILL);
    return is;
}

static bool fails(bool is_chosen, int error)
{
    if (is_chosen) errno = given ? given : error;
    return is_chosen;
}

#define NEXT(type, name)                                                                           \
    static type next;                                                                              \
    if (!next) {                                                                                   \
        void *symbol = dlsym(RTLD_NEXT, name);                                                     \
        memcpy(&next, &symbol, sizeof next);                                                       \
    }
#define CALLER __builtin_return_address(0)

typedef int (*open_fn)(const char *, int, ...);
typedef int (*mode_fn)(const char *, mode_t);
typedef int (*path_fn)(const char *);
typedef int (*paths_fn)(const char *, const char *);
typedef int (*space_fn)(int, int, off_t, off_t);
typedef int (*fd_fn)(int);
typedef ssize_t (*write_fn)(int, const void *, size_t);
typedef ssize_t (*read_fn)(int, void *, size_t);
typedef ssize_t (*read_at_fn)(int, void *, size_t, off_t);
typedef int (*stat_fn)(const char *, struct stat *);
typedef int (*fd_stat_fn)(int, struct stat *);
typedef int (*disk_fn)(const char *, struct statvfs *);
typedef DIR *(*folder_fn)(const char *);
typedef int64_t (*driver_fn)(const void *);

/* dlsym allocates, so the library's own name for it is used. */
extern void *__libc_calloc(size_t count, size_t bytes);
void *calloc(size_t count, size_t bytes)
{
    return fails(chosen("alloc", CALLER, NULL, NO_FILE), ENOMEM) ? NULL
                                                                 : __libc_calloc(count, bytes);
}

int open(const char *path, int flags, ...)
{
    NEXT(open_fn, "open")
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (fails(chosen("open", CALLER, path, NO_FILE), ENOSPC)) return -1;
    const int fd = next(path, flags, mode);
    if (fd >= 0 && fd < FILES) marked[fd] = part && from_program(CALLER) && strstr(path, part);
    return fd;
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(mode_fn, "mkdir")
    return fails(chosen("mkdir", CALLER, path, NO_FILE), ENOSPC) ? -1 : next(path, mode);
}

int fallocate(int fd, int mode, off_t at, off_t size)
{
    NEXT(space_fn, "fallocate")
    return fails(chosen("fallocate", CALLER, NULL, fd), ENOSPC) ? -1 : next(fd, mode, at, size);
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    NEXT(write_fn, "write")
    const bool now = chosen("write", CALLER, NULL, fd);
    if (now && half && size > 1) return next(fd, bytes, size / 2);
    return fails(now && !half, ENOSPC) ? -1 : next(fd, bytes, size);
}

ssize_t read(int fd, void *bytes, size_t size)
{
    NEXT(read_fn, "read")
    const bool now = chosen("read", CALLER, NULL, fd);
    if (now && half && size > 1) return next(fd, bytes, size / 2);
    return fails(now && !half, EIO) ? -1 : next(fd, bytes, size);
}

ssize_t pread(int fd, void *bytes, size_t size, off_t at)
{
    NEXT(read_at_fn, "pread")
    const bool now = chosen("read", CALLER, NULL, fd);
    if (now && half && size > 1) return next(fd, bytes, size / 2, at);
    return fails(now && !half, EIO) ? -1 : next(fd, bytes, size, at);
}

int stat(const char *restrict path, struct stat *restrict info)
{
    NEXT(stat_fn, "stat")
    return fails(chosen("stat", CALLER, path, NO_FILE), EIO) ? -1 : next(path, info);
}

int lstat(const char *restrict path, struct stat *restrict info)
{
    NEXT(stat_fn, "lstat")
    return fails(chosen("stat", CALLER, path, NO_FILE), EIO) ? -1 : next(path, info);
}

int fstat(int fd, struct stat *info)
{
    NEXT(fd_stat_fn, "fstat")
    return fails(chosen("stat", CALLER, NULL, fd), EIO) ? -1 : next(fd, info);
}

DIR *opendir(const char *path)
{
    NEXT(folder_fn, "opendir")
    return fails(chosen("opendir", CALLER, path, NO_FILE), EIO) ? NULL : next(path);
}

int fsync(int fd)
{
    NEXT(fd_fn, "fsync")
    return fails(chosen("fsync", CALLER, NULL, fd), EIO) ? -1 : next(fd);
}

/* The file is closed all the same, as Linux does it. */
int close(int fd)
{
    NEXT(fd_fn, "close")
    const bool now = chosen("close", CALLER, NULL, fd);
    if (fd >= 0 && fd < FILES) marked[fd] = false;
    const int done = next(fd);
    return fails(now, EIO) ? -1 : done;
}

int rename(const char *from, const char *to)
{
    NEXT(paths_fn, "rename")
    return fails(chosen("rename", CALLER, to, NO_FILE), EACCES) ? -1 : next(from, to);
}

int unlink(const char *path)
{
    NEXT(path_fn, "unlink")
    return fails(chosen("unlink", CALLER, path, NO_FILE), EIO) ? -1 : next(path);
}

/* HDF5 takes a file driver; its hid_t is an int64_t. */
int64_t H5FDregister(const void *driver)
{
    NEXT(driver_fn, "H5FDregister")
    return fails(chosen("driver", CALLER, NULL, NO_FILE), EINVAL) ? -1 : next(driver);
}

/* OCT_DISK_FREE=BYTES: that much is free on each disk. */
int statvfs(const char *path, struct statvfs *disk)
{
    NEXT(disk_fn, "statvfs")
    const char *bytes = getenv("OCT_DISK_FREE");
    const int status = next(path, disk);
    if (status == 0 && bytes) disk->f_bavail = strtoull(bytes, NULL, 10) / disk->f_frsize;
    return status;
}
