/* What the targets share, whoever drives them. */
#include "tests/fuzz/fuzz.h"

#include "core/base/mem.h"
#include "core/base/rng.h"

#include <dirent.h>
#include <fcntl.h>
#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fuzz_found(const char *file, int line, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    abort();
}

/* libFuzzer reads its corpus from a folder; driver.c has a definition of its own. */
__attribute__((weak)) void fuzz_seed(const void *data, size_t size)
{
    (void)data, (void)size;
}

/* Draws of one mutation. */
typedef struct draws {
    uint64_t seed;
    uint32_t next;
} draws;

static uint32_t draw(draws *d, uint32_t below)
{
    uint32_t word[4];
    oct_philox(d->seed, OCT_STREAM_TEST, d->next / 4, 0, word);
    return oct_below(word[d->next++ % 4], below);
}

/* A number that programs trip over, in 1, 2, 4 or 8 bytes of either order. */
static void put_number(uint8_t *data, size_t size, draws *d)
{
    static const int64_t edges[] = {0,         1,         -1,        2,         127,        128,
                                    255,       256,       32767,     32768,     65535,      65536,
                                    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, UINT32_MAX, 1 << 20,
                                    1 << 30,   4096,      -128,      -32768,    8,          64};
    size_t bytes = (size_t)1 << draw(d, 4);
    if (size < bytes) return;
    uint64_t value = (uint64_t)edges[draw(d, OCT_COUNT(edges))];
    if (draw(d, 4) == 0) value += draw(d, 9) - 4U;
    size_t at = draw(d, (uint32_t)(size - bytes + 1));
    if (draw(d, 2)) at -= at % bytes;
    bool big = draw(d, 4) == 0;
    for (size_t i = 0; i < bytes; i++)
        data[at + (big ? bytes - 1 - i : i)] = (uint8_t)(value >> (8 * i));
}

/* Puts a piece before position `at`, as far as there is room. */
static size_t insert(uint8_t *data, size_t size, size_t max, size_t at, const void *piece,
                     size_t bytes)
{
    if (bytes > max - size) return size;
    uint8_t copy[4096];
    if (bytes > sizeof copy) bytes = sizeof copy;
    memcpy(copy, piece, bytes);
    memmove(data + at + bytes, data + at, size - at);
    memcpy(data + at, copy, bytes);
    return size + bytes;
}

static size_t put_word(uint8_t *data, size_t size, size_t max, draws *d)
{
    size_t count = 0;
    while (fuzz_words && fuzz_words[count])
        count++;
    if (count == 0) return size;
    const char *word = fuzz_words[draw(d, (uint32_t)count)];
    return insert(data, size, max, draw(d, (uint32_t)size + 1), word, strlen(word));
}

size_t fuzz_mutate(uint8_t *data, size_t size, size_t max, uint64_t seed)
{
    draws d = {.seed = seed};
    if (size == 0) return insert(data, 0, max, 0, "\n", 1);
    uint32_t n = (uint32_t)size;
    size_t at = draw(&d, n), bytes = 1 + draw(&d, draw(&d, 4) == 0 ? n : 16);
    if (bytes > size - at) bytes = size - at;
    switch (draw(&d, fuzz_words ? 9 : 6)) {
    case 0:
        data[at] ^= (uint8_t)(1U << draw(&d, 8));
        return size;
    case 1:
        data[at] = (uint8_t)draw(&d, 256);
        return size;
    case 2:
        put_number(data, size, &d);
        return size;
    case 3: /* one place over another */
        memmove(data + draw(&d, (uint32_t)(size - bytes + 1)), data + at, bytes);
        return size;
    case 4:
        return insert(data, size, max, draw(&d, n + 1), data + at, bytes);
    case 5: /* rarely a cut at the end, else one from within */
        if (draw(&d, 8) == 0) return at;
        memmove(data + at, data + at + bytes, size - at - bytes);
        return size - bytes;
    default:
        return put_word(data, size, max, &d);
    }
}

static char folder[64];

static void remove_folder(void)
{
    char path[512];
    DIR *list = opendir(folder);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) unlink(path);
    }
    if (list) closedir(list);
    rmdir(folder);
}

const char *fuzz_folder(void)
{
    if (folder[0]) return folder;
    snprintf(folder, sizeof folder, "%s/octet-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_REQUIRE(mkdtemp(folder) != NULL, "no folder %s", folder);
    atexit(remove_folder);
    return folder;
}

const char *fuzz_file(const char *name, const void *data, size_t size)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % OCT_COUNT(paths)];
    snprintf(path, sizeof paths[0], "%s/%s", fuzz_folder(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_REQUIRE(fd >= 0, "cannot write %s", path);
    for (size_t at = 0; at < size;) {
        ssize_t written = write(fd, (const char *)data + at, size - at);
        FUZZ_REQUIRE(written > 0, "cannot write %s", path);
        at += (size_t)written;
    }
    close(fd);
    return path;
}

void fuzz_round_trip(const void *thing, oct_status (*print)(const void *thing, oct_text *text),
                     oct_status (*reprint)(const void *thing, const oct_text *first,
                                           oct_text *second))
{
    oct_text first = {0}, second = {0};
    MAKE(print(thing, &first));
    MAKE(reprint(thing, &first, &second));
    FUZZ_REQUIRE(strcmp(first.data, second.data) == 0, "%s\n---\n%s", first.data, second.data);
    oct_text_free(&first);
    oct_text_free(&second);
}

/* Inputs are small: threads would only wait for each other. */
__attribute__((constructor)) static void one_thread(void)
{
    omp_set_num_threads(1);
}

fuzz_call fuzz_begin(size_t size)
{
    oct_fail_clear();
    oct_mem_peak_reset();
    return (fuzz_call){.live = oct_mem_live(), .size = size};
}

void fuzz_said(oct_status status, unsigned allowed, const char *what)
{
    FUZZ_REQUIRE(allowed & FUZZ_BIT(status), "status %d: %s", (int)status,
                 oct_error_count() ? oct_error_message(0) : "without a sentence");
    if (status == OCT_OK) return;
    FUZZ_REQUIRE(oct_error_count() > 0, "a failure without a sentence");
    for (size_t i = 0; i < oct_error_count(); i++) {
        const char *text = oct_error_message(i);
        for (const char *c = text; *c; c++)
            FUZZ_REQUIRE((unsigned char)*c >= 0x20 || *c == '\n', "a control character: %s", text);
        FUZZ_REQUIRE(!strchr(text, 0x7f), "a control character: %s", text);
    }
    FUZZ_REQUIRE(!what || strstr(oct_error_message(0), what), "does not name %s: %s", what,
                 oct_error_message(0));
}

void fuzz_end(const fuzz_call *call, size_t factor, size_t fixed)
{
    FUZZ_REQUIRE(oct_mem_live() == call->live, "%zu bytes are held after the call",
                 oct_mem_live() - call->live);
    size_t taken = oct_mem_peak() - call->live;
    FUZZ_REQUIRE(taken <= factor * call->size + fixed, "%zu bytes taken for an input of %zu", taken,
                 call->size);
}
