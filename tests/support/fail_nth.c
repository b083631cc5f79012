/* Preloaded into a program, makes its n-th call of a function fail once, as a full disk or exhausted memory
 * would: OCT_FAIL_CALL=alloc|write|fsync|rename|unlink, OCT_FAIL_AT=n. With OCT_FAIL_BY=kill the program is
 * killed there instead. Only calls from the program itself count; its libraries live undisturbed. Exits
 * nothing else and says nothing.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static uintptr_t text_begin, text_end;
static const char *wanted;
static long left;
static bool kills;

/* The first object is the program. */
static int find_text(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        text_begin = info->dlpi_addr + part->p_vaddr;
        text_end = text_begin + part->p_memsz;
    }
    return 1;
}

__attribute__((constructor)) static void start(void)
{
    const char *at = getenv("OCT_FAIL_AT");
    wanted = getenv("OCT_FAIL_CALL");
    const char *by = getenv("OCT_FAIL_BY");
    kills = by && strcmp(by, "kill") == 0;
    left = at ? strtol(at, NULL, 10) : 0;
    dl_iterate_phdr(find_text, NULL);
}

static bool fails(const char *call, const void *caller, int error)
{
    const uintptr_t from = (uintptr_t)caller;
    if (!wanted || from < text_begin || from >= text_end || strcmp(wanted, call) != 0) return false;
    if (__atomic_sub_fetch(&left, 1, __ATOMIC_RELAXED) != 0) return false;
    if (kills) kill(getpid(), SIGKILL);
    errno = error;
    return true;
}

#define NEXT(type, name)                                                                           \
    static type next;                                                                              \
    if (!next) {                                                                                   \
        void *symbol = dlsym(RTLD_NEXT, name);                                                     \
        memcpy(&next, &symbol, sizeof next);                                                       \
    }
#define CALLER __builtin_return_address(0)

typedef ssize_t (*write_fn)(int, const void *, size_t);
typedef int (*fd_fn)(int);
typedef int (*path_fn)(const char *);
typedef int (*paths_fn)(const char *, const char *);

/* dlsym allocates, so the library's own name for it is used. */
extern void *__libc_calloc(size_t count, size_t bytes);
void *calloc(size_t count, size_t bytes)
{
    return fails("alloc", CALLER, ENOMEM) ? NULL : __libc_calloc(count, bytes);
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    NEXT(write_fn, "write")
    return fails("write", CALLER, ENOSPC) ? -1 : next(fd, bytes, size);
}

int fsync(int fd)
{
    NEXT(fd_fn, "fsync")
    return fails("fsync", CALLER, EIO) ? -1 : next(fd);
}

int rename(const char *from, const char *to)
{
    NEXT(paths_fn, "rename")
    return fails("rename", CALLER, EACCES) ? -1 : next(from, to);
}

int unlink(const char *path)
{
    NEXT(path_fn, "unlink")
    return fails("unlink", CALLER, EACCES) ? -1 : next(path);
}
