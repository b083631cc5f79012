/* The directory at an archive's end says where members lie; archives of more than 4 GiB have a second end
 * record and wider numbers (zip64). Sizes are those of the directory: the header before a member only says
 * how long itself is.
 *
 * A deflated member cannot hold more than 1032 times its own size, and one that is not small may not hold
 * more than 64 times that, which bounds what a lying directory can make us allocate. Its checksum is
 * compared; of stored members, which are read a sample at a time, it is not.
 */
#include "io/dataset/zip_file.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <string.h>
#include <zlib.h>

enum { END = 22, END64 = 56, LOCATOR64 = 20, ENTRY = 46, LOCAL = 30, COMMENT_MAX = 65535 };
enum { STORED = 0, DEFLATED = 8, SHOWN = 8 };
enum { DEFLATE_RATIO = 1032, TRUSTED_RATIO = 64, SMALL_BYTES = 64 << 20 };
static const int64_t directory_max = (int64_t)1 << 26;

typedef struct archive {
    oct_span span;
    const char *path;
    uint8_t *directory;
    int64_t at, bytes, entries; /* of the directory */
} archive;

typedef struct entry {
    int64_t method, flags, packed, size, local;
    uint32_t sum;
} entry;

static uint64_t number(const uint8_t *b, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | b[i];
    return value;
}

static bool begins(const uint8_t *b, const char *signature)
{
    return memcmp(b, signature, 4) == 0;
}

static oct_status damaged(const archive *a)
{
    return oct_fail(OCT_DATA, "%s: is no .npz file, or it is damaged or cut short", a->path);
}

/* Is it a place in the file? */
static bool within(const archive *a, uint64_t at, uint64_t bytes)
{
    const uint64_t size = (uint64_t)a->span.size;
    return at <= size && bytes <= size - at;
}

static oct_status take_end64(archive *a, int64_t end_at)
{
    uint8_t locator[LOCATOR64], end[END64];
    if (end_at < LOCATOR64) return damaged(a);
    OCT_TRY(oct_span_read(&a->span, end_at - LOCATOR64, locator, sizeof locator, a->path));
    const uint64_t at = number(locator + 8, 8);
    if (!begins(locator, "PK\6\7") || !within(a, at, END64)) return damaged(a);
    OCT_TRY(oct_span_read(&a->span, (int64_t)at, end, sizeof end, a->path));
    if (!begins(end, "PK\6\6") || !within(a, number(end + 48, 8), number(end + 40, 8)))
        return damaged(a);
    a->entries = (int64_t)(number(end + 32, 8) & INT64_MAX);
    a->bytes = (int64_t)number(end + 40, 8);
    a->at = (int64_t)number(end + 48, 8);
    return OCT_OK;
}

static oct_status take_end(archive *a, const uint8_t *end, int64_t end_at)
{
    a->entries = (int64_t)number(end + 10, 2);
    a->bytes = (int64_t)number(end + 12, 4);
    a->at = (int64_t)number(end + 16, 4);
    if (a->entries == UINT16_MAX || a->bytes == UINT32_MAX || a->at == UINT32_MAX)
        OCT_TRY(take_end64(a, end_at));
    if (!within(a, (uint64_t)a->at, (uint64_t)a->bytes) || a->bytes > directory_max)
        return damaged(a);
    return OCT_OK;
}

/* The end record is followed by a comment alone. */
static oct_status find_end(archive *a)
{
    const int64_t most = END + COMMENT_MAX;
    const int64_t bytes = a->span.size < most ? a->span.size : most;
    uint8_t *tail = NULL;
    int64_t at = bytes - END;
    OCT_TRY(oct_alloc(&tail, (size_t)bytes, 1));
    oct_status status = oct_span_read(&a->span, a->span.size - bytes, tail, (size_t)bytes, a->path);
    while (status == OCT_OK && at >= 0 &&
           (!begins(tail + at, "PK\5\6") || (int64_t)number(tail + at + 20, 2) != bytes - END - at))
        at--;
    if (status == OCT_OK)
        status = at < 0 ? damaged(a) : take_end(a, tail + at, a->span.size - bytes + at);
    oct_free(&tail);
    return status;
}

static oct_status open_archive(archive *a, const char *path)
{
    *a = (archive){.path = path};
    OCT_TRY(oct_span_open(&a->span, path));
    oct_status status = find_end(a);
    if (status == OCT_OK) status = oct_alloc(&a->directory, (size_t)a->bytes, 1);
    if (status == OCT_OK)
        status = oct_span_read(&a->span, a->at, a->directory, (size_t)a->bytes, path);
    return status;
}

static void close_archive(archive *a)
{
    oct_span_close(&a->span);
    oct_free(&a->directory);
}

/* Numbers that do not fit stand in an extra field of the entry, in this order, each only if needed. */
static bool widen(entry *e, const uint8_t *extra, size_t bytes)
{
    int64_t *const wide[] = {&e->size, &e->packed, &e->local};
    for (size_t at = 0; at + 4 <= bytes;) {
        const size_t length = (size_t)number(extra + at + 2, 2);
        size_t next = at + 4;
        if (length > bytes - next) return false;
        for (size_t i = 0; number(extra + at, 2) == 1 && i < OCT_COUNT(wide); i++) {
            if (*wide[i] != UINT32_MAX) continue;
            if (next + 8 > at + 4 + length) return false;
            *wide[i] = (int64_t)(number(extra + next, 8) & INT64_MAX);
            next += 8;
        }
        at += 4 + length;
    }
    return true;
}

static bool take_entry(const uint8_t *b, size_t name, size_t extra, entry *e)
{
    *e = (entry){.flags = (int64_t)number(b + 8, 2),
                 .method = (int64_t)number(b + 10, 2),
                 .sum = (uint32_t)number(b + 16, 4),
                 .packed = (int64_t)number(b + 20, 4),
                 .size = (int64_t)number(b + 24, 4),
                 .local = (int64_t)number(b + 42, 4)};
    return widen(e, b + ENTRY + name, extra);
}

static oct_status missing(const archive *a, const char *member, const oct_text *names)
{
    return oct_fail(OCT_DATA,
                    "%s: holds no %s%s%s; data.images and data.labels say what the arrays are "
                    "called",
                    a->path, oct_show(member, strlen(member)).text, names->length ? ", but " : "",
                    names->length ? names->data : "");
}

/* A place in the directory: an entry, and the lengths of what stands behind it. */
typedef struct walk {
    const uint8_t *b;
    size_t left, name, extra, bytes;
    int64_t number;
} walk;

/* Goes to the next entry; *more: there is one. Begin with b, left and number alone. */
static oct_status next_entry(const archive *a, walk *w, bool *more)
{
    w->b += w->bytes;
    w->left -= w->bytes;
    *more = w->number < a->entries;
    if (!*more) return OCT_OK;
    if (w->left < ENTRY || !begins(w->b, "PK\1\2")) return damaged(a);
    w->name = (size_t)number(w->b + 28, 2);
    w->extra = (size_t)number(w->b + 30, 2);
    w->bytes = ENTRY + w->name + w->extra + (size_t)number(w->b + 32, 2);
    w->number++;
    return w->bytes > w->left ? damaged(a) : OCT_OK;
}

static walk begin_walk(const archive *a)
{
    return (walk){.b = a->directory, .left = (size_t)a->bytes};
}

static oct_status find_entry(const archive *a, const char *member, entry *e, oct_text *names)
{
    walk w = begin_walk(a);
    for (bool more;;) {
        OCT_TRY(next_entry(a, &w, &more));
        if (!more) return missing(a, member, names);
        if (w.name == strlen(member) && memcmp(w.b + ENTRY, member, w.name) == 0)
            return take_entry(w.b, w.name, w.extra, e) ? OCT_OK : damaged(a);
        if (w.number <= SHOWN)
            OCT_TRY(oct_text_add(names, "%s%s", w.number > 1 ? ", " : "",
                                 oct_show((const char *)w.b + ENTRY, w.name).text));
    }
}

static oct_status check_entry(const archive *a, const char *member, const entry *e)
{
    const oct_shown name = oct_show(member, strlen(member));
    OCT_CHECK(!(e->flags & 1), OCT_DATA, "%s: %s is encrypted", a->path, name.text);
    OCT_CHECK(e->method == STORED || e->method == DEFLATED, OCT_DATA,
              "%s: %s is packed in a way (%" PRId64 ") that is not read; write it with numpy.savez",
              a->path, name.text, e->method);
    if (e->method == STORED && e->packed != e->size) return damaged(a);
    OCT_CHECK(
        e->size / DEFLATE_RATIO <= e->packed &&
            (e->method == STORED || e->size <= SMALL_BYTES || e->size / TRUSTED_RATIO <= e->packed),
        OCT_DATA,
        "%s: %s says that its %" PRId64 " bytes hold %" PRId64
        "; write it with numpy.savez if that is so",
        a->path, name.text, e->packed, e->size);
    return OCT_OK;
}

/* Sets the span to the bytes of the member, packed or not. */
static oct_status find_bytes(archive *a, const entry *e)
{
    uint8_t local[LOCAL];
    if (!within(a, (uint64_t)e->local, LOCAL)) return damaged(a);
    OCT_TRY(oct_span_read(&a->span, e->local, local, sizeof local, a->path));
    const uint64_t begin =
        (uint64_t)e->local + LOCAL + number(local + 26, 2) + number(local + 28, 2);
    if (!begins(local, "PK\3\4") || !within(a, begin, (uint64_t)e->packed)) return damaged(a);
    a->span.begin = (int64_t)begin;
    a->span.size = e->packed;
    return OCT_OK;
}

static bool inflate_all(const uint8_t *packed, const entry *e, uint8_t *to)
{
    z_stream z = {0};
    int64_t in = e->packed, out = e->size;
    int code = inflateInit2(&z, -15);
    if (code != Z_OK) return false;
    z.next_in = (uint8_t *)(uintptr_t)packed;
    z.next_out = to;
    do { /* zlib counts in 32 bits */
        const int64_t piece = 1 << 30;
        if (z.avail_in == 0) z.avail_in = (unsigned)(in < piece ? in : piece), in -= z.avail_in;
        if (z.avail_out == 0)
            z.avail_out = (unsigned)(out < piece ? out : piece), out -= z.avail_out;
        code = inflate(&z, Z_NO_FLUSH);
    } while (code == Z_OK && (z.avail_in > 0 || in > 0 || z.avail_out > 0 || out > 0));
    const bool whole = code == Z_STREAM_END && out == 0 && z.avail_out == 0;
    inflateEnd(&z);
    return whole;
}

static uint32_t sum_of(const uint8_t *bytes, int64_t size)
{
    uLong sum = crc32(0, NULL, 0);
    for (int64_t at = 0; at < size;) {
        const int64_t n = size - at < 1 << 30 ? size - at : 1 << 30;
        sum = crc32(sum, bytes + at, (unsigned)n);
        at += n;
    }
    return (uint32_t)sum;
}

static oct_status inflate_member(archive *a, const entry *e, oct_span *span)
{
    uint8_t *packed = NULL;
    oct_status status = OCT_OK;
    *span = (oct_span){.fd = -1, .size = e->size};
    OCT_TRY(oct_mem_check_available(SMALL_BYTES / 64)); /* zlib's window */
    OCT_TRY_OUT(oct_alloc(&packed, (size_t)e->packed, 1));
    OCT_TRY_OUT(oct_span_read(&a->span, 0, packed, (size_t)e->packed, a->path));
    OCT_TRY_OUT(oct_alloc(&span->memory, (size_t)e->size, 1));
    if (!inflate_all(packed, e, span->memory) || sum_of(span->memory, e->size) != e->sum)
        status = damaged(a);
out:
    oct_free(&packed);
    if (status != OCT_OK) oct_span_close(span);
    return status;
}

static oct_status take_member(archive *a, const char *member, oct_span *span)
{
    oct_text names = {0};
    entry e = {0};
    const oct_status status = find_entry(a, member, &e, &names);
    oct_text_free(&names);
    OCT_TRY(status);
    OCT_TRY(check_entry(a, member, &e));
    OCT_TRY(find_bytes(a, &e));
    if (e.method == DEFLATED) return inflate_member(a, &e, span);
    *span = a->span;
    a->span = OCT_SPAN_NONE;
    return OCT_OK;
}

oct_status oct_zip_member(oct_span *span, const char *path, const char *member)
{
    archive a;
    *span = OCT_SPAN_NONE;
    oct_status status = open_archive(&a, path);
    if (status == OCT_OK) status = take_member(&a, member, span);
    close_archive(&a);
    return status;
}

static oct_status visit_names(const archive *a, oct_zip_visit *visit, void *user)
{
    walk w = begin_walk(a);
    for (bool more;;) {
        OCT_TRY(next_entry(a, &w, &more));
        if (!more) return OCT_OK;
        OCT_TRY(visit(user, (const char *)w.b + ENTRY, w.name));
    }
}

oct_status oct_zip_names(const char *path, oct_zip_visit *visit, void *user)
{
    archive a;
    oct_status status = open_archive(&a, path);
    if (status == OCT_OK) status = visit_names(&a, visit, user);
    close_archive(&a);
    return status;
}
