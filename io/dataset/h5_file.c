/* Finds an array in an HDF5 file: superblock, groups along the path, the object's messages.
 *
 * Every place that the file names is read through its span, which knows the file's size; blocks are at most
 * BLOCK_MAX bytes, and a budget of bytes ends what goes in circles.
 */
#include "io/dataset/h5_file.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <string.h>

enum { BLOCK_MAX = 1 << 20, BUDGET = 1 << 26, A_READ = 64, LEVELS_MAX = 32, NAME_MAX_BYTES = 1024 };
enum { SPACE = 1, LINK_INFO = 2, TYPE = 3, LINK = 6, EXTERNAL = 7, LAYOUT = 8, FILTERS = 11 };
enum { CONTINUATION = 16, SYMBOLS = 17 };
static const uint64_t nowhere = UINT64_MAX;

typedef struct file {
    oct_array *array; /* its name and span */
    uint64_t base;    /* what addresses count from */
    int64_t budget;   /* bytes that may still be read */
} file;

oct_status oct_h5_array_damaged(const oct_array *array)
{
    return oct_fail(OCT_DATA, "%s: the HDF5 file is damaged or cut short", array->name);
}

static oct_status refused(const file *f, const char *what)
{
    return oct_fail(OCT_DATA, "%s: %s", f->array->name, what);
}

static oct_status damaged(const file *f)
{
    return oct_h5_array_damaged(f->array);
}

/* Reads at an address of the file. */
static oct_status get(file *f, uint64_t at, void *to, size_t bytes)
{
    const uint64_t size = (uint64_t)f->array->span.size;
    f->budget -= (int64_t)bytes + A_READ;
    if (f->budget < 0 || at > size || f->base > size - at || bytes > size - at - f->base)
        return damaged(f);
    return oct_span_read(&f->array->span, (int64_t)(at + f->base), to, bytes, f->array->name);
}

static bool begins(const uint8_t *b, const char *signature)
{
    return memcmp(b, signature, 4) == 0;
}

/* Of a block: before memory is taken for it. */
static uint64_t most_bytes(const file *f)
{
    const uint64_t size = (uint64_t)f->array->span.size;
    return size < BLOCK_MAX ? size : BLOCK_MAX;
}

/* Calls visit for each message of an object until it has found what it wants. */
typedef struct visit {
    file *f;
    oct_status (*take)(void *user, int type, const uint8_t *data, size_t bytes);
    void *user;
    bool two;      /* the header is of version 2 */
    uint8_t flags; /* of that version */
    int depth;     /* blocks within blocks */
} visit;

static oct_status walk_block(visit *v, uint64_t at, uint64_t bytes);

static oct_status take_message(visit *v, int type, int flags, const uint8_t *data, size_t bytes)
{
    enum { SHARED = 2 };
    if (type == CONTINUATION) {
        if (bytes < 16) return damaged(v->f);
        const uint64_t at = oct_h5_number(data, 8), length = oct_h5_number(data + 8, 8);
        if (++v->depth > LEVELS_MAX) return damaged(v->f);
        const oct_status status = walk_block(v, at, length);
        v->depth--;
        return status;
    }
    if (flags & SHARED)
        return type == TYPE ? refused(v->f, "is of a type that the file names elsewhere; write the "
                                            "numbers as plain integers or floats")
                            : OCT_OK;
    return v->take(v->user, type, data, bytes);
}

static oct_status walk_messages(visit *v, const uint8_t *b, size_t bytes)
{
    const size_t head = !v->two ? 8 : v->flags & 4 ? 6 : 4;
    for (size_t at = 0; bytes - at >= head;) {
        const uint8_t *m = b + at;
        const int type = v->two ? m[0] : (int)oct_h5_number(m, 2);
        const size_t length = (size_t)oct_h5_number(m + (v->two ? 1 : 2), 2);
        if (length > bytes - at - head) return damaged(v->f);
        OCT_TRY(take_message(v, type, m[v->two ? 3 : 4], m + head, length));
        at += head + length;
    }
    return OCT_OK;
}

/* A block of messages; in version 2 between a signature and a checksum, unless it is the first. */
static oct_status walk_block(visit *v, uint64_t at, uint64_t bytes)
{
    uint8_t *b = NULL;
    if (bytes > most_bytes(v->f) || bytes < 8) return damaged(v->f);
    OCT_TRY(oct_alloc(&b, (size_t)bytes, 1));
    oct_status status = get(v->f, at, b, (size_t)bytes);
    if (status == OCT_OK && v->two && !begins(b, "OCHK")) status = damaged(v->f);
    if (status == OCT_OK)
        status = walk_messages(v, b + (v->two ? 4 : 0), (size_t)bytes - (v->two ? 8 : 0));
    oct_free(&b);
    return status;
}

static oct_status walk_first(visit *v, uint64_t at, uint64_t bytes)
{
    uint8_t *b = NULL;
    if (bytes > most_bytes(v->f)) return damaged(v->f);
    OCT_TRY(oct_alloc(&b, (size_t)bytes, 1));
    oct_status status = get(v->f, at, b, (size_t)bytes);
    if (status == OCT_OK) status = walk_messages(v, b, (size_t)bytes);
    oct_free(&b);
    return status;
}

static oct_status walk_object(visit *v, uint64_t at)
{
    uint8_t head[34] = {0};
    OCT_TRY(get(v->f, at, head, 16));
    v->two = begins(head, "OHDR");
    if (!v->two) {
        if (head[0] != 1) return damaged(v->f);
        return walk_first(v, at + 16, oct_h5_number(head + 8, 4));
    }
    v->flags = head[5];
    const int size = 1 << (v->flags & 3);
    const int begin = 6 + (v->flags & 32 ? 16 : 0) + (v->flags & 16 ? 4 : 0);
    OCT_TRY(get(v->f, at, head, (size_t)(begin + size)));
    return walk_first(v, at + (uint64_t)(begin + size), oct_h5_number(head + begin, size));
}

/* Looking for a name in a group. */
typedef struct search {
    file *f;
    const char *name;
    size_t bytes;
    uint64_t tree, heap; /* of a symbol table */
    uint64_t found;      /* where the object is */
    bool soft, dense;    /* the name is a link; the group's links lie in a heap */
    uint64_t heap_at, heap_bytes;
} search;

static oct_status take_link(search *s, const uint8_t *d, size_t bytes)
{
    size_t at = 2;
    if (bytes < 2) return damaged(s->f);
    const int flags = d[1], width = 1 << (flags & 3);
    const int type = flags & 8 && bytes > at ? d[at] : 0;
    at += (flags & 8 ? 1U : 0U) + (flags & 4 ? 8U : 0U) + (flags & 16 ? 1U : 0U);
    if (at + (size_t)width > bytes) return damaged(s->f);
    const uint64_t length = oct_h5_number(d + at, width);
    at += (size_t)width;
    if (length > bytes - at) return damaged(s->f);
    if (length != s->bytes || memcmp(d + at, s->name, s->bytes) != 0) return OCT_OK;
    s->soft = type != 0;
    if (!s->soft && bytes - at - (size_t)length < 8) return damaged(s->f);
    if (!s->soft) s->found = oct_h5_number(d + at + length, 8);
    return OCT_OK;
}

static oct_status take_group(void *user, int type, const uint8_t *d, size_t bytes)
{
    search *s = user;
    if (type == SYMBOLS) {
        if (bytes < 16) return damaged(s->f);
        s->tree = oct_h5_number(d, 8);
        s->heap = oct_h5_number(d + 8, 8);
    }
    if (type == LINK_INFO && bytes >= 18) {
        const size_t at = 2 + (d[1] & 1 ? 8U : 0U);
        s->dense |= bytes - at >= 8 && oct_h5_number(d + at, 8) != nowhere;
    }
    return type == LINK ? take_link(s, d, bytes) : OCT_OK;
}

static oct_status is_name(search *s, uint64_t offset, bool *same)
{
    char text[NAME_MAX_BYTES];
    *same = false;
    if (offset > s->heap_bytes || s->heap_bytes - offset < s->bytes + 1) return OCT_OK;
    OCT_TRY(get(s->f, s->heap_at + offset, text, s->bytes + 1));
    *same = memcmp(text, s->name, s->bytes) == 0 && text[s->bytes] == '\0';
    return OCT_OK;
}

static oct_status search_node(search *s, uint64_t at)
{
    enum { HEAD = 8, ENTRY = 40, LINKED = 2 };
    uint8_t head[HEAD], entry[ENTRY];
    OCT_TRY(get(s->f, at, head, sizeof head));
    if (!begins(head, "SNOD")) return damaged(s->f);
    const uint64_t count = oct_h5_number(head + 6, 2);
    for (uint64_t i = 0; i < count && s->found == nowhere && !s->soft; i++) {
        bool same;
        OCT_TRY(get(s->f, at + HEAD + i * ENTRY, entry, sizeof entry));
        OCT_TRY(is_name(s, oct_h5_number(entry, 8), &same));
        if (!same) continue;
        s->soft = oct_h5_number(entry + 16, 4) == LINKED;
        s->found = oct_h5_number(entry + 8, 8);
    }
    return OCT_OK;
}

static oct_status search_tree(search *s, uint64_t at, int levels)
{
    enum { HEAD = 24, STEP = 16 };
    uint8_t head[HEAD], child[8];
    OCT_TRY(get(s->f, at, head, sizeof head));
    if (!begins(head, "TREE") || head[4] != 0 || head[5] >= levels) return damaged(s->f);
    const uint64_t count = oct_h5_number(head + 6, 2);
    for (uint64_t i = 0; i < count && s->found == nowhere && !s->soft; i++) {
        OCT_TRY(get(s->f, at + HEAD + 8 + i * STEP, child, sizeof child));
        const uint64_t next = oct_h5_number(child, 8);
        OCT_TRY(head[5] == 0 ? search_node(s, next) : search_tree(s, next, head[5]));
    }
    return OCT_OK;
}

static oct_status search_symbols(search *s)
{
    uint8_t heap[32];
    OCT_TRY(get(s->f, s->heap, heap, sizeof heap));
    if (!begins(heap, "HEAP")) return damaged(s->f);
    s->heap_bytes = oct_h5_number(heap + 8, 8);
    s->heap_at = oct_h5_number(heap + 24, 8);
    return search_tree(s, s->tree, LEVELS_MAX);
}

/* Goes from a group to what it calls by this name. */
static oct_status enter(file *f, const char *name, size_t bytes, uint64_t *at)
{
    search s = {.f = f, .name = name, .bytes = bytes, .tree = nowhere, .found = nowhere};
    visit v = {.f = f, .take = take_group, .user = &s};
    OCT_TRY(walk_object(&v, *at));
    if (s.tree != nowhere && s.found == nowhere) OCT_TRY(search_symbols(&s));
    OCT_CHECK(!s.soft, OCT_DATA, "%s: %.*s is a link; name the array itself", f->array->name,
              (int)bytes, name);
    OCT_CHECK(s.found != nowhere || !s.dense, OCT_DATA,
              "%s: a group of very many arrays (a dense one) is not read; write the file with "
              "h5py's libver='earliest'",
              f->array->name);
    OCT_CHECK(s.found != nowhere, OCT_DATA,
              "%s: there is no %.*s in the file; data.images and data.labels say what the arrays "
              "are called",
              f->array->name, (int)bytes, name);
    *at = s.found;
    return OCT_OK;
}

/* The object of an array. */
typedef struct object {
    file *f;
    bool space, type, layout;
    int how; /* the class of the layout */
    oct_h5_chunking chunking;
} object;

enum { COMPACT, CONTIGUOUS, CHUNKED };

static oct_status take_space(object *o, const uint8_t *d, size_t bytes)
{
    if (bytes < 4 || d[0] < 1 || d[0] > 2) return damaged(o->f);
    const size_t begin = d[0] == 1 ? 8 : 4, ndim = d[1];
    OCT_CHECK(ndim >= 1 && ndim <= OCT_MAX_DIMS, OCT_DATA,
              "%s: has %zu dimensions; 1 to %d are read", o->f->array->name, ndim, OCT_MAX_DIMS);
    if (bytes < begin + 8 * ndim) return damaged(o->f);
    oct_shape *shape = &o->f->array->shape;
    shape->ndim = (int)ndim;
    for (size_t i = 0; i < ndim; i++) {
        const uint64_t dim = oct_h5_number(d + begin + 8 * i, 8);
        if (dim > INT64_MAX / 8) return damaged(o->f);
        shape->dim[i] = (int64_t)dim;
    }
    if (oct_shape_numel(shape) < 0) return damaged(o->f);
    o->space = true;
    return OCT_OK;
}

/* Is it float or double of IEEE 754, with the sign in the highest bit? */
static bool is_ieee(const uint8_t *d, size_t size)
{
    static const uint8_t single[] = {0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0};
    static const uint8_t twice[] = {0, 0, 64, 0, 52, 11, 0, 52, 255, 3, 0, 0};
    return (size == 4 && memcmp(d + 8, single, sizeof single) == 0 && d[2] == 31) ||
           (size == 8 && memcmp(d + 8, twice, sizeof twice) == 0 && d[2] == 63);
}

static oct_status take_type(object *o, const uint8_t *d, size_t bytes)
{
    enum { INTEGER = 0, FLOAT = 1, SIGNED = 8, BIG = 1 };
    if (bytes < 8) return damaged(o->f);
    oct_array *a = o->f->array;
    const int class = d[0] & 15;
    const uint64_t size = oct_h5_number(d + 4, 4);
    bool known = false;
    if (class == INTEGER && bytes >= 12)
        known = (size == 1 || size == 2 || size == 4 || size == 8) &&
                oct_h5_number(d + 8, 2) == 0 && oct_h5_number(d + 10, 2) == 8 * size;
    else if (class == FLOAT && bytes >= 20)
        known = is_ieee(d, (size_t)size) && !(d[1] & 64);
    if (!known)
        return refused(o->f, "holds neither integers nor floats of 4 or 8 bytes; convert it, such "
                             "as with numpy: array.astype('uint8')");
    a->kind = class == FLOAT ? 'f' : d[1] & SIGNED ? 'i' : 'u';
    a->bytes = (size_t)size;
    a->big = d[1] & BIG;
    o->type = true;
    return OCT_OK;
}

static oct_status take_chunking(object *o, const uint8_t *d, size_t bytes)
{
    oct_h5_chunking *c = &o->chunking;
    if (bytes < 11 || d[2] < 2 || bytes < 11 + 4 * (size_t)d[2]) return damaged(o->f);
    c->ndim = d[2] - 1;
    c->tree = oct_h5_number(d + 3, 8);
    if (c->ndim > OCT_MAX_DIMS) return damaged(o->f);
    for (int i = 0; i < c->ndim; i++)
        c->dim[i] = (int64_t)oct_h5_number(d + 11 + 4 * i, 4);
    return OCT_OK;
}

/* The span becomes that of the numbers; of compact ones, a copy of them. */
static oct_status take_place(object *o, const uint8_t *d, size_t bytes)
{
    oct_span *span = &o->f->array->span;
    if (o->how == CONTIGUOUS) {
        if (bytes < 18) return damaged(o->f);
        const uint64_t at = oct_h5_number(d + 2, 8), size = oct_h5_number(d + 10, 8);
        const uint64_t whole = (uint64_t)span->size;
        if (at == nowhere) return refused(o->f, "was made, but never filled");
        if (at > whole || o->f->base > whole - at || size > whole - at - o->f->base)
            return damaged(o->f);
        span->begin = (int64_t)(at + o->f->base);
        span->size = (int64_t)size;
        return OCT_OK;
    }
    if (bytes < 4 || oct_h5_number(d + 2, 2) > bytes - 4) return damaged(o->f);
    oct_span inner = {.fd = -1, .size = (int64_t)oct_h5_number(d + 2, 2)};
    OCT_TRY(oct_alloc(&inner.memory, (size_t)inner.size, 1));
    memcpy(inner.memory, d + 4, (size_t)inner.size);
    oct_span_close(span);
    *span = inner;
    return OCT_OK;
}

static oct_status take_layout(object *o, const uint8_t *d, size_t bytes)
{
    if (bytes < 4 || o->layout) return damaged(o->f);
    o->layout = true;
    o->how = d[1];
    if (d[0] < 3 || d[0] > 4 || (d[0] == 4 && o->how >= CHUNKED) || o->how > CHUNKED)
        return refused(o->f, "is laid out in a way that is not read (virtual, or in chunks of "
                             "libver='latest'); write it contiguous, or with h5py's "
                             "libver='earliest'");
    return o->how == CHUNKED ? take_chunking(o, d, bytes) : OCT_OK;
}

static oct_status take_filters(object *o, const uint8_t *d, size_t bytes)
{
    oct_h5_chunking *c = &o->chunking;
    if (bytes < 2 || d[0] < 1 || d[0] > 2) return damaged(o->f);
    const bool one = d[0] == 1;
    size_t at = one ? 8 : 2;
    for (int i = 0; i < d[1]; i++) {
        if (at + 8 > bytes) return damaged(o->f);
        const int id = (int)oct_h5_number(d + at, 2);
        if ((id != OCT_H5_DEFLATE && id != OCT_H5_SHUFFLE) || c->filters == OCT_H5_FILTERS_MAX)
            return refused(o->f, "is packed by a filter that is not read; use gzip, shuffle, or "
                                 "none");
        const size_t name = one ? (size_t)oct_h5_number(d + at + 2, 2) : 0;
        const size_t values = (size_t)oct_h5_number(d + at + (one ? 6 : 4), 2);
        at += (one ? 8 : 6) + (name + 7) / 8 * 8 + 4 * values + (one && values % 2 ? 4 : 0);
        c->filter[c->filters++] = id;
    }
    return OCT_OK;
}

static oct_status take_array(void *user, int type, const uint8_t *d, size_t bytes)
{
    object *o = user;
    switch (type) {
    case SPACE:
        return take_space(o, d, bytes);
    case TYPE:
        return take_type(o, d, bytes);
    case LAYOUT:
        return take_layout(o, d, bytes);
    case FILTERS:
        return take_filters(o, d, bytes);
    case EXTERNAL:
        return refused(o->f, "has its numbers in another file; write them into this one");
    case SYMBOLS:
    case LINK_INFO:
        return refused(o->f, "is a group, not an array");
    default:
        return OCT_OK;
    }
}

/* The place comes last, since it takes the file's span away. */
static oct_status take_only_place(void *user, int type, const uint8_t *d, size_t bytes)
{
    return type == LAYOUT ? take_place(user, d, bytes) : OCT_OK;
}

static oct_status read_object(file *f, uint64_t at)
{
    object o = {.f = f};
    visit v = {.f = f, .take = take_array, .user = &o};
    oct_array *a = f->array;
    OCT_TRY(walk_object(&v, at));
    if (!o.space || !o.type || !o.layout) return refused(f, "is no array");
    if (o.how == CHUNKED) {
        a->span.begin = (int64_t)f->base;
        a->span.size -= (int64_t)f->base;
        return oct_h5_chunks_find(a, &o.chunking);
    }
    v = (visit){.f = f, .take = take_only_place, .user = &o};
    OCT_TRY(walk_object(&v, at));
    return oct_array_check_size(a);
}

static oct_status find_root(file *f, uint64_t *at)
{
    uint8_t b[80] = {0};
    const size_t most = f->array->span.size < 80 ? (size_t)f->array->span.size : sizeof b;
    OCT_TRY(get(f, 0, b, most));
    if (memcmp(b, "\x89HDF\r\n\x1a\n", 8) != 0) return refused(f, "is in no HDF5 file");
    const int version = b[8];
    if (version > 3) return refused(f, "is in an HDF5 file of a newer format");
    const uint8_t *widths = version < 2 ? b + 13 : b + 9;
    if (widths[0] != 8 || widths[1] != 8) return refused(f, "is in an HDF5 file of another width");
    const size_t base = version == 0 ? 24 : version == 1 ? 28 : 12;
    *at = oct_h5_number(b + base + (version < 2 ? 40 : 24), 8);
    f->base = oct_h5_number(b + base, 8);
    if (f->base > (uint64_t)f->array->span.size) return damaged(f);
    return OCT_OK;
}

static oct_status find_array(oct_array *a, const char *name)
{
    file f = {.array = a, .budget = BUDGET};
    uint64_t at = 0;
    OCT_TRY(find_root(&f, &at));
    while (*name) {
        const size_t length = strcspn(name, "/");
        OCT_CHECK(length < NAME_MAX_BYTES, OCT_USAGE, "%s: the name is too long", a->name);
        if (length > 0) OCT_TRY(enter(&f, name, length, &at));
        name += length + (name[length] == '/');
    }
    return read_object(&f, at);
}

oct_status oct_h5_array_open(oct_array *array, const char *path, const char *name)
{
    oct_span span;
    *array = (oct_array){.span = OCT_SPAN_NONE};
    OCT_TRY(oct_span_open(&span, path));
    oct_status status = oct_format(&array->name, "%s/%s", path, name);
    if (status != OCT_OK) {
        oct_span_close(&span);
        return status;
    }
    array->span = span;
    status = find_array(array, name);
    if (status != OCT_OK) oct_array_close(array);
    return status;
}
