/* The log writes lines for people.
 *
 * Each line is put together whole and written in one call under one lock, so lines of threads never
 * mix. The bar is a line without its end: before any other line it is wiped.
 */
#include "core/base/log.h"

#include "core/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 20480 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static oct_log_level shown = OCT_LOG_SILENT;
static bool speaking = true, repeats;
static bool bar_shown;
static FILE *file;
static void (*listener)(const char *text);

/* Makes "octet: word: first line", the further lines of the text indented below. */
static void compose_line(char line[LINE_BYTES], oct_log_level level, const char *text)
{
    int head = snprintf(line, LINE_BYTES, "octet: %s",
                        level == OCT_LOG_ERROR  ? "error: "
                        : level == OCT_LOG_WARN ? "warning: "
                                                : "");
    size_t used = (size_t)head;
    size_t limit = LINE_BYTES - sizeof "\n   \n";
    for (; *text && used < limit; text++) {
        line[used++] = *text;
        if (*text == '\n') {
            memcpy(line + used, "   ", 3);
            used += 3;
        }
    }
    line[used++] = '\n';
    line[used] = '\0';
}

static void wipe_bar(void)
{
    if (bar_shown) fputs("\r\033[K", stderr);
    bar_shown = false;
}

static const char *write_time(char text[24])
{
    time_t seconds = time(NULL);
    struct tm parts;
    strftime(text, 24, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &parts));
    return text;
}

/* A log that cannot be written must not stop a training run: say so once and go on without it. */
static void append_to_file(const char *line)
{
    char time_text[24];
    if (!file || (fprintf(file, "%s %s", write_time(time_text), line) >= 0 && fflush(file) == 0))
        return;
    int error = errno;
    fclose(file);
    file = NULL;
    fprintf(stderr, "octet: warning: the log file cannot be written (%s); going on without it\n",
            strerror(error));
}

void oct_log_setup(oct_log_level level, bool speaks)
{
    pthread_mutex_lock(&lock);
    shown = level;
    speaking = speaks;
    pthread_mutex_unlock(&lock);
}

void oct_log_hear(void (*hear)(const char *text))
{
    listener = hear;
}

void oct_log_heard(const char *text)
{
    if (listener) listener(text);
}

void oct_log_again(bool again)
{
    pthread_mutex_lock(&lock);
    repeats = again;
    pthread_mutex_unlock(&lock);
}

/* Opens a log to append to; no link, which would lead out of its folder, and no pipe, which waits for a reader. */
static oct_status open_log_file(const char *path, FILE **opened)
{
    struct stat info;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    int error = fd < 0 ? errno : 0;
    bool plain = fd >= 0 && fstat(fd, &info) == 0 && !S_ISFIFO(info.st_mode);
    *opened = plain ? fdopen(fd, "a") : NULL;
    if (!*opened && fd >= 0) close(fd);
    OCT_CHECK(error == 0 || error == ELOOP || error == ENXIO, OCT_RESOURCE,
              "%s: cannot be opened for the log: %s", path, strerror(error));
    OCT_CHECK(plain, OCT_RESOURCE,
              "%s: the log is not written through a link or into a pipe; remove it", path);
    OCT_CHECK(*opened, OCT_RESOURCE, "%s: out of memory for the log", path);
    return OCT_OK;
}

oct_status oct_log_file(const char *path)
{
    FILE *opened = NULL;
    if (path && speaking) OCT_TRY(open_log_file(path, &opened));
    pthread_mutex_lock(&lock);
    if (file) fclose(file);
    file = opened;
    pthread_mutex_unlock(&lock);
    return OCT_OK;
}

void oct_log_append(const char *path, const char *text)
{
    struct stat info;
    char time_text[24];
    /* Neither a link nor a FIFO, which would block. */
    const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return; /* a log that cannot be written stops no run */
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        dprintf(fd, "%s %s", write_time(time_text), text);
    close(fd);
}

static void write_line(oct_log_level level, char *text)
{
    char line[LINE_BYTES];
    oct_text_clean(text);
    compose_line(line, level, text);
    pthread_mutex_lock(&lock);
    const bool left_out = repeats && level > OCT_LOG_ERROR;
    if (level == OCT_LOG_ERROR) oct_log_heard(line);
    if (level <= shown && !left_out) {
        wipe_bar();
        fputs(line, stderr);
        fflush(stderr);
    }
    if (!left_out) append_to_file(line);
    pthread_mutex_unlock(&lock);
}

void oct_log(oct_log_level level, const char *format, ...)
{
    char text[LINE_BYTES];
    if (!speaking) return;
    OCT_PRINT_ARGS(text, format);
    write_line(level, text);
}

void oct_log_anyone(oct_log_level level, const char *format, ...)
{
    char text[LINE_BYTES];
    OCT_PRINT_ARGS(text, format);
    write_line(level, text);
}

void oct_log_bar(const char *format, ...)
{
    if (!speaking || shown < OCT_LOG_INFO) return;
    char text[LINE_BYTES];
    OCT_PRINT_ARGS(text, format);
    oct_text_clean(text);
    pthread_mutex_lock(&lock);
    wipe_bar();
    fputs(text, stderr);
    fflush(stderr);
    bar_shown = true;
    pthread_mutex_unlock(&lock);
}

void oct_log_bar_end(void)
{
    pthread_mutex_lock(&lock);
    wipe_bar();
    fflush(stderr);
    pthread_mutex_unlock(&lock);
}
