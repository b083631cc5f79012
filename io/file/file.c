/* Whole files are read and written here.
 *
 * A file appears complete or not at all: it is written under a temporary name in its own folder,
 * synced, renamed, and the folder is synced, since a rename is durable only with its folder. Space is
 * reserved first, so a full disk is met before the first byte.
 */
#include "io/file/file.h"

#include "core/base/log.h"
#include "core/base/mem.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Fails for a file that cannot be read: OCT_RESOURCE where the machine denies it; all else is the file's own fault. */
static oct_status read_failure(const char *path, int error)
{
    bool denied =
        error == EACCES || error == EPERM || error == ENOMEM || error == EMFILE || error == ENFILE;
    return oct_fail(denied ? OCT_RESOURCE : OCT_DATA, "%s: cannot be read: %s", path,
                    strerror(error));
}

static oct_status too_large(const char *path, size_t limit)
{
    return oct_fail(OCT_DATA, "%s: is larger than the %s that are read at most", path,
                    oct_text_size((int64_t)limit).text);
}

oct_status oct_file_check_regular(const char *path, const struct stat *info)
{
    OCT_CHECK(!S_ISDIR(info->st_mode), OCT_DATA, "%s: is a folder, not a file", path);
    OCT_CHECK(S_ISREG(info->st_mode), OCT_DATA,
              "%s: is a pipe or a device, not a file; copy its content into a file", path);
    return OCT_OK;
}

/* Opens a file, again while signals interrupt that, since they say nothing about the file. */
static int open_file(const char *path, int flags)
{
    return (int)TEMP_FAILURE_RETRY(open(path, flags | O_CLOEXEC, 0666));
}

oct_status oct_file_open(const char *path, size_t limit, int *fd, size_t *size)
{
    struct stat info = {0};
    /* Opening a pipe would wait for somebody to write into it. */
    *fd = open_file(path, O_RDONLY | O_NOCTTY | O_NONBLOCK);
    if (*fd < 0) return read_failure(path, errno);
    oct_status status =
        fstat(*fd, &info) == 0 ? oct_file_check_regular(path, &info) : read_failure(path, errno);
    if (status == OCT_OK && (uint64_t)info.st_size > limit) status = too_large(path, limit);
    if (status != OCT_OK) close(*fd);
    *size = (size_t)info.st_size;
    return status;
}

oct_status oct_file_read_at(int fd, uint64_t at, void *to, size_t bytes)
{
    for (char *next = to; bytes > 0;) {
        const ssize_t got = TEMP_FAILURE_RETRY(pread(fd, next, bytes, (off_t)at));
        OCT_CHECK(got > 0, OCT_DATA, "cannot be read: %s",
                  got < 0 ? strerror(errno) : "it has become shorter");
        next += got;
        at += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return OCT_OK;
}

oct_status oct_file_read(const char *path, size_t limit, void **bytes, size_t *size)
{
    enum { STRIDE = 1 << 16 };
    oct_status status = OCT_OK;
    char *data = NULL;
    size_t used = 0, capacity = 0, expected;
    int fd;
    *bytes = NULL;
    *size = 0;
    OCT_TRY(oct_file_open(path, limit, &fd, &expected));
    /* The size is only a first guess: a file may grow. Beside the content there is room for the byte
     * that would be too many and for the NUL. */
    OCT_TRY_OUT(oct_grow(&data, &capacity, expected + 2, 1));
    for (;;) {
        if (capacity - used < 2) OCT_TRY_OUT(oct_grow(&data, &capacity, capacity + STRIDE, 1));
        const ssize_t got = TEMP_FAILURE_RETRY(read(fd, data + used, capacity - used - 1));
        if (got < 0) {
            status = read_failure(path, errno);
            goto out;
        }
        if (got == 0) break;
        used += (size_t)got;
        if (used > limit) {
            status = too_large(path, limit);
            goto out;
        }
    }
    data[used] = '\0';
    *bytes = data;
    *size = used;
    data = NULL;
out:
    oct_free(&data);
    close(fd);
    return status;
}

static oct_status write_failure(const char *path, int error)
{
    const char *remedy = "";
    if (error == ENOSPC || error == EDQUOT || error == EFBIG)
        remedy = "; make room or choose another folder";
    else if (error == ENOENT)
        remedy = "; make its folder first or choose another";
    else if (error == ENOTDIR || error == EROFS || error == EACCES || error == EPERM)
        remedy = "; choose another folder";
    return oct_fail(OCT_RESOURCE, "%s: cannot be written: %s%s", path, strerror(error), remedy);
}

/* Returns the length of the folder part of a path, without the last slash; 0 for a bare name. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return 0;
    return slash == path ? 1 : (size_t)(slash - path);
}

oct_status oct_file_check_place(const char *path)
{
    OCT_OWNED(oct_free) char *folder = NULL;
    const size_t length = folder_length(path);
    OCT_TRY(oct_format(&folder, "%.*s/.", length ? (int)length : 1, length ? path : "."));
    const int error = access(folder, W_OK | X_OK) == 0 ? 0 : errno;
    return error ? write_failure(path, error) : OCT_OK;
}

/* Syncs a file, again while signals interrupt that; returns 0 or an errno. */
static int sync_file(int fd)
{
    return TEMP_FAILURE_RETRY(fsync(fd)) == 0 ? 0 : errno;
}

/* Syncs a folder; returns 0 or an errno. */
static int sync_folder(const char *folder)
{
    int fd = open_file(folder, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return errno;
    int error = sync_file(fd);
    close(fd);
    return error == EINVAL ? 0 : error; /* a file system whose folders need no sync */
}

struct oct_new_file {
    char *path, *temp, *folder;
    int fd;
    bool temp_exists;
    off_t written, sync_begun; /* bytes; of these the disk has begun to take */
};

void oct_new_file_discard(oct_new_file **file)
{
    oct_new_file *f = *file;
    if (!f) return;
    if (f->fd >= 0) close(f->fd);
    if (f->temp_exists) unlink(f->temp);
    OCT_FREE_ALL(&f->path, &f->temp, &f->folder, file);
}

/* Returns the length of NAME in "NAME.PID-COUNT.tmp", 0 where a name is none of these. */
static size_t temp_stem_length(const char *name)
{
    static const char end[] = ".tmp";
    size_t length = strlen(name);
    if (length <= sizeof end - 1) return 0;
    const char *at = name + length - (sizeof end - 1);
    if (strcmp(at, end) != 0) return 0;
    for (int number = 0; number < 2; number++) { /* from the end: COUNT, then PID */
        const char *digits_end = at;
        while (at > name && isdigit((unsigned char)at[-1]))
            at--;
        if (at == digits_end || at == name || *--at != (number == 0 ? '-' : '.')) return 0;
    }
    return (size_t)(at - name);
}

bool oct_file_is_temp(const char *name)
{
    return temp_stem_length(name) > 0;
}

/* Removes the temp files that killed writers left. A living writer holds the lock of its temp file, on any host and under
 * any process number. Where there are no locks, files of a folder with one writer are removed, and others stay.
 * base: only those of this file; NULL: all. open_flags: further ones for the folder. */
static void remove_temps(const char *folder, int open_flags, const char *base)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | open_flags);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) return;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        const char *name = entry->d_name;
        const size_t stem = temp_stem_length(name);
        if (stem == 0 || (base && (strlen(base) != stem || memcmp(name, base, stem) != 0)))
            continue;
        const int temp = openat(dirfd(dir), name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (temp < 0) continue;
        if (flock(temp, LOCK_EX | LOCK_NB) == 0 || (!base && errno != EWOULDBLOCK))
            unlinkat(dirfd(dir), name, 0);
        close(temp);
    }
    closedir(dir);
}

void oct_file_clean(const char *folder)
{
    remove_temps(folder, O_NOFOLLOW, NULL); /* what a link leads to may be somebody else's */
}

/* Makes the temp file and locks it, under another name where a remover of temp files came before the lock. */
static oct_status make_temp(oct_new_file *f)
{
    static atomic_uint count;
    struct stat info;
    do {
        if (f->fd >= 0) close(f->fd);
        oct_free(&f->temp);
        OCT_TRY(oct_format(&f->temp, "%s.%ld-%u.tmp", f->path, (long)getpid(),
                           atomic_fetch_add(&count, 1)));
        f->fd = open_file(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
        if (f->fd < 0) return write_failure(f->path, errno);
    } while ((flock(f->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) ||
             (fstat(f->fd, &info) == 0 && info.st_nlink == 0));
    f->temp_exists = true;
    return OCT_OK;
}

/* Makes the temp file of a new file and reserves its space. */
static oct_status begin_file(oct_new_file *f, const char *path, size_t size)
{
    struct stat info;
    /* Renaming over a device or a folder would do harm or nothing. */
    OCT_CHECK(lstat(path, &info) != 0 || S_ISREG(info.st_mode) || S_ISLNK(info.st_mode),
              OCT_RESOURCE, "%s: cannot be written: it is not a plain file", path);
    const size_t length = folder_length(path);
    OCT_TRY(oct_strdup(&f->path, path));
    OCT_TRY(oct_format(&f->folder, "%.*s", length ? (int)length : 1, length ? path : "."));
    remove_temps(f->folder, 0, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    OCT_TRY(make_temp(f));
    /* Space is reserved where the file system can. */
    if (size > 0 && fallocate(f->fd, 0, 0, (off_t)size) != 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS && errno != EINTR)
        return write_failure(path, errno);
    return OCT_OK;
}

oct_status oct_new_file_begin(oct_new_file **file, const char *path, size_t size)
{
    OCT_TRY(oct_alloc(file, 1, sizeof **file));
    (*file)->fd = -1;
    const oct_status status = begin_file(*file, path, size);
    if (status != OCT_OK) oct_new_file_discard(file);
    return status;
}

oct_status oct_new_file_add(oct_new_file *file, const void *bytes, size_t size)
{
    for (const char *next = bytes; size > 0;) {
        const ssize_t written = TEMP_FAILURE_RETRY(write(file->fd, next, size));
        if (written < 0) return write_failure(file->path, errno);
        next += written;
        size -= (size_t)written;
        file->written += written;
    }
    /* The disk begins before the sync, which then has less to wait for. The sync reports whatever fails here. */
    enum { STRIDE = 8 << 20 };
    if (file->written - file->sync_begun >= STRIDE) {
        (void)sync_file_range(file->fd, file->sync_begun, file->written - file->sync_begun,
                              SYNC_FILE_RANGE_WRITE);
        file->sync_begun = file->written;
    }
    return OCT_OK;
}

/* The lock ends with the file's new name; what closing it may say, the sync has said. */
oct_status oct_new_file_commit(oct_new_file **file)
{
    oct_new_file *f = *file;
    oct_status status = OCT_OK;
    int error = sync_file(f->fd);
    if (!error && rename(f->temp, f->path) != 0) error = errno;
    if (!error) {
        f->temp_exists = false;
        error = sync_folder(f->folder);
    }
    if (error) status = write_failure(f->path, error);
    oct_new_file_discard(file);
    return status;
}

oct_status oct_file_write(const char *path, const void *bytes, size_t size)
{
    OCT_OWNED(oct_new_file_discard) oct_new_file *file = NULL;
    OCT_TRY(oct_new_file_begin(&file, path, size));
    OCT_TRY(oct_new_file_add(file, bytes, size));
    return oct_new_file_commit(&file);
}

/* Half an entry would hide all that follow, so the file is cut back to its good bytes. */
bool oct_file_append(int *fd, int64_t *length, const void *bytes, size_t size)
{
    const ssize_t written = TEMP_FAILURE_RETRY(write(*fd, bytes, size));
    if (written == (ssize_t)size) {
        *length += written;
        return true;
    }
    int error = written < 0 ? errno : ENOSPC;
    if (ftruncate(*fd, *length) != 0) {
        close(*fd);
        *fd = -1;
    }
    errno = error;
    return false;
}

/* Makes a folder; one that is there is fine. */
static oct_status make_folder(const char *path)
{
    struct stat info;
    if (mkdir(path, 0777) == 0) return OCT_OK;
    int error = errno;
    if (stat(path, &info) == 0) {
        OCT_CHECK(S_ISDIR(info.st_mode), OCT_RESOURCE,
                  "%s: is a file where a folder is needed; choose another place", path);
        return OCT_OK;
    }
    OCT_CHECK(lstat(path, &info) != 0, OCT_RESOURCE,
              "%s: is a link to what is not there; make that folder, or choose another place",
              path);
    return oct_fail(OCT_RESOURCE, "%s: the folder cannot be made: %s", path, strerror(error));
}

oct_status oct_make_folders(const char *path)
{
    OCT_OWNED(oct_free) char *copy = NULL;
    OCT_TRY(oct_strdup(&copy, path));
    for (char *p = copy; *p; p++) {
        if (*p != '/' || p == copy || p[-1] == '/') continue;
        *p = '\0';
        OCT_TRY(make_folder(copy));
        *p = '/';
    }
    return make_folder(copy);
}

bool oct_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

/* Reads who holds a lock, from the locked file; people see it, so only printable letters are kept. */
static void read_lock_holder(int fd, char *text, size_t size)
{
    ssize_t got = pread(fd, text, size - 1, 0);
    size_t length = got > 0 ? (size_t)got : 0;
    text[length] = '\0';
    text[strcspn(text, "\n")] = '\0';
    for (char *p = text; *p; p++) {
        if (!isprint((unsigned char)*p)) *p = '?';
    }
    if (!*text) snprintf(text, size, "another process");
}

oct_status oct_folder_lock(const char *folder, int *fd)
{
    oct_status status = OCT_OK;
    OCT_OWNED(oct_free) char *path = NULL, *holder = NULL;
    char text[256], host[128] = "";
    *fd = -1;
    OCT_TRY(oct_format(&path, "%s/lock", folder));
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    OCT_CHECK(file >= 0, OCT_RESOURCE, "%s: cannot be locked: %s", path, strerror(errno));
    int error = flock(file, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (error == EWOULDBLOCK) {
        read_lock_holder(file, text, sizeof text);
        close(file);
        return oct_fail(OCT_RESOURCE,
                        "%s: is in use by %s; wait until that ends or choose another folder",
                        folder, text);
    }
    /* Some network file systems know no locks; that must not forbid working there. */
    if (error)
        oct_log(OCT_LOG_WARN, "%s: cannot be locked (%s); make sure that only one run uses it",
                folder, strerror(error));
    *fd = file;
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    OCT_TRY_OUT(oct_format(&holder, "process %ld on host %s\n", (long)getpid(),
                           host[0] ? host : "unknown"));
    if (ftruncate(file, 0) != 0 || pwrite(file, holder, strlen(holder), 0) < 0)
        status = oct_fail(OCT_RESOURCE, "%s: cannot be written: %s", path, strerror(errno));
out:
    if (status != OCT_OK) oct_folder_unlock(fd);
    return status;
}

void oct_folder_unlock(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}
