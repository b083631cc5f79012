/* The walk goes over an image: superblock, object headers and their messages, groups. */
#include "io/hdf5_walk.h"

#include "core/base/mem.h"

#include <string.h>

enum {
    OBJECT_PIECES = 32, /* a header and its continuations */
    COMPACT_LINKS = 8,  /* in a header; more are stored densely */
    TYPE_BYTES = 20,    /* of the longest datatype message */
};

/* Kinds of messages that we write (IV.A.2). */
enum {
    NIL = 0,
    DATASPACE = 1,
    LINK_INFO = 2,
    DATATYPE = 3,
    FILL_VALUE = 5,
    LINK = 6,
    LAYOUT = 8,
    GROUP_INFO = 10,
    CONTINUATION = 16,
    KINDS
};

/* The flags of each kind of message: 1 for those that never change. The layout of an empty data set could
 * still change: it has 0 or 1. */
static const uint8_t message_flags[KINDS] = {
    [DATATYPE] = 1, [FILL_VALUE] = 1, [LAYOUT] = 1, [GROUP_INFO] = 1};

static bool has_flags(uint64_t kind, uint64_t flags)
{
    return flags == message_flags[kind] || (kind == LAYOUT && flags == 0);
}

typedef struct walker {
    oct_h5_claims claims;
    oct_h5_map *map;
} walker;

/* What the messages of an object's header say. */
typedef struct header {
    uint64_t at;
    bool has[KINDS];
    oct_h5_object object; /* its dtype and shape */
    uint64_t data, bytes; /* LAYOUT */
    uint64_t heap, tree;  /* LINK_INFO */
    oct_h5_link links[COMPACT_LINKS];
    size_t num_links;
    oct_h5_extent pieces[OBJECT_PIECES]; /* the continuations */
    size_t num_pieces;
} header;

/* IV.A.2.b, version 2: it is a scalar, or has up to four dimensions that cannot grow. */
static bool take_dataspace(oct_h5_cursor *c, oct_shape *shape)
{
    const uint64_t version = oct_h5_take(c, 1), rank = oct_h5_take(c, 1);
    const uint64_t flags = oct_h5_take(c, 1), kind = oct_h5_take(c, 1);
    const uint64_t wanted =
        rank > 0; /* flags: there are largest sizes; kind: simple, else scalar */
    if (version != 2 || rank > OCT_MAX_DIMS || flags != wanted || kind != wanted) return false;
    *shape = (oct_shape){.ndim = (int)rank};
    uint64_t dims[2][OCT_MAX_DIMS] = {{0}};
    for (int k = 0; k < 2; k++)
        for (uint64_t i = 0; i < rank; i++)
            dims[k][i] = oct_h5_take(c, 8);
    for (uint64_t i = 0; i < rank; i++) {
        if (dims[0][i] != dims[1][i] || dims[0][i] > INT64_MAX) return false;
        shape->dim[i] = (int64_t)dims[0][i];
    }
    return oct_shape_numel(shape) >= 0;
}

/* IV.A.2.d, version 1: fixed-point numbers (class 0) and IEEE numbers (class 1), little-endian. Size and
 * offset of the bits, then of IEEE numbers where exponent and mantissa lie, how long they are, and the
 * exponent's bias. */
static size_t datatype_message(oct_dtype dtype, uint8_t message[TYPE_BYTES])
{
    const uint8_t bytes = (uint8_t)oct_dtype_bytes(dtype), bits = (uint8_t)(8 * bytes);
    const bool is_signed =
        dtype == OCT_S8 || dtype == OCT_S16 || dtype == OCT_S32 || dtype == OCT_S64;
    if (dtype == OCT_F32)
        memcpy(message, "\x11\x20\x1f\0\x4\0\0\0\0\0\x20\0\x17\x8\0\x17\x7f\0\0\0", TYPE_BYTES);
    else if (dtype == OCT_F64)
        memcpy(message, "\x11\x20\x3f\0\x8\0\0\0\0\0\x40\0\x34\xb\0\x34\xff\x3\0\0", TYPE_BYTES);
    else
        memcpy(message, (uint8_t[12]){0x10, is_signed ? 8 : 0, 0, 0, bytes, 0, 0, 0, 0, 0, bits},
               12);
    return dtype == OCT_F32 || dtype == OCT_F64 ? TYPE_BYTES : 12;
}

static bool take_datatype(oct_h5_cursor *c, oct_dtype *dtype)
{
    static const oct_dtype all[] = {
#define X(name, type) OCT_##name,
        OCT_DTYPE_LIST(X)
#undef X
    };
    const size_t size = (size_t)(c->end - c->next);
    uint8_t message[TYPE_BYTES];
    for (size_t i = 0; i < OCT_COUNT(all); i++) {
        if (datatype_message(all[i], message) != size || memcmp(message, c->next, size) != 0)
            continue;
        *dtype = all[i];
        c->next = c->end;
        return true;
    }
    return false;
}

/* IV.A.2.i, version 3, class 1: contiguous. */
static bool take_layout(oct_h5_cursor *c, header *h)
{
    const bool contiguous = oct_h5_take(c, 1) == 3 && oct_h5_take(c, 1) == 1;
    h->data = oct_h5_take(c, 8);
    h->bytes = oct_h5_take(c, 8);
    return contiguous;
}

/* IV.A.2.c, version 0, without creation order. */
static bool take_link_info(oct_h5_cursor *c, header *h)
{
    const bool plain = oct_h5_take(c, 2) == 0;
    h->heap = oct_h5_take(c, 8);
    h->tree = oct_h5_take(c, 8);
    return plain && (h->heap == OCT_H5_NOWHERE) == (h->tree == OCT_H5_NOWHERE);
}

static oct_status take_continuation(oct_h5_cursor *c, header *h)
{
    OCT_H5_NEED(h->num_pieces < OBJECT_PIECES, h->at, "a header in too many pieces");
    oct_h5_extent *piece = &h->pieces[h->num_pieces++];
    piece->at = oct_h5_take(c, 8);
    piece->bytes = oct_h5_take(c, 8);
    return OCT_OK;
}

static oct_status take_compact_link(oct_h5_cursor *c, header *h)
{
    OCT_H5_NEED(h->num_links < COMPACT_LINKS, h->at, "a header with too many links");
    oct_h5_link *link = &h->links[h->num_links];
    OCT_TRY(oct_h5_take_link(c, h->at, link));
    for (size_t i = 0; i < h->num_links; i++)
        OCT_H5_NEED(oct_h5_compare_names(link->name, link->name_bytes, h->links[i].name,
                                         h->links[i].name_bytes) != 0,
                    h->at, "a name that is there twice");
    h->num_links++;
    return OCT_OK;
}

static oct_status take_message(oct_h5_cursor *c, uint64_t kind, header *h)
{
    const bool repeats = kind == NIL || kind == LINK || kind == CONTINUATION;
    OCT_H5_NEED(repeats || !h->has[kind], h->at, "a header that says a thing twice");
    h->has[kind] = true;
    bool good = true;
    switch (kind) {
    case NIL:
        good = oct_h5_take_zeros(c);
        break;
    case DATASPACE:
        good = take_dataspace(c, &h->object.shape);
        break;
    case LINK_INFO:
        good = take_link_info(c, h);
        break;
    case DATATYPE:
        good = take_datatype(c, &h->object.dtype);
        break;
    case FILL_VALUE: /* version 3; space is taken at once and never filled */
        good = oct_h5_take(c, 2) == 0x0503;
        break;
    case LINK:
        OCT_TRY(take_compact_link(c, h));
        break;
    case LAYOUT:
        good = take_layout(c, h);
        break;
    case GROUP_INFO: /* version 0; nothing but defaults */
        good = oct_h5_take(c, 2) == 0;
        break;
    case CONTINUATION:
        OCT_TRY(take_continuation(c, h));
        break;
    default:
        good = false;
    }
    OCT_H5_NEED(good && !c->short_of && c->next == c->end, h->at,
                "a header with a message of another form");
    return OCT_OK;
}

/* Messages stand here and, behind the last, at most three unused bytes. */
static oct_status take_messages(oct_h5_cursor *c, header *h)
{
    while (c->end - c->next >= 4) {
        const uint64_t kind = oct_h5_take(c, 1), bytes = oct_h5_take(c, 2),
                       flags = oct_h5_take(c, 1);
        OCT_H5_NEED(kind < KINDS && has_flags(kind, flags) && bytes <= (uint64_t)(c->end - c->next),
                    h->at, "a header with a message of another kind");
        oct_h5_cursor message = {.next = c->next, .end = c->next + bytes};
        c->next += bytes;
        OCT_TRY(take_message(&message, kind, h));
    }
    OCT_H5_NEED(oct_h5_take_zeros(c), h->at, "a header with something behind its messages");
    return OCT_OK;
}

/* Reads one piece of a header; its last four bytes hold the checksum. */
static oct_status take_piece(oct_h5_cursor *c, const uint8_t *begin, header *h)
{
    oct_h5_cursor last = {.next = c->end - 4, .end = c->end};
    OCT_H5_NEED(oct_h5_take_checksum(&last, begin), h->at, "a header with a wrong checksum");
    c->end -= 4;
    return take_messages(c, h);
}

/* IV.A.1.b: version 2, without times, attributes and creation order. */
static oct_status read_header(walker *w, header *h)
{
    enum { PREFIX = 6, LOOK = PREFIX + 4 };
    oct_h5_cursor c = {.next = w->claims.image + w->claims.size,
                       .end = w->claims.image + w->claims.size};
    if (h->at <= w->claims.size) {
        const uint64_t left = w->claims.size - h->at;
        OCT_TRY(oct_h5_fetch(&w->claims, h->at, left < LOOK ? left : LOOK));
        c.next = w->claims.image + h->at;
    }
    const bool known = oct_h5_take_word(&c, "OHDR") && oct_h5_take(&c, 1) == 2;
    const uint64_t flags = oct_h5_take(&c, 1);
    OCT_H5_NEED(known && !c.short_of && flags <= 2, h->at, "no object header that Octet writes");
    const size_t width = (size_t)1 << flags;
    const uint64_t bytes = oct_h5_take(&c, width);
    OCT_TRY(oct_h5_claim(&w->claims, h->at, PREFIX + width + bytes + 4, &c));
    const uint8_t *begin = c.next;
    c.next += PREFIX + width;
    return take_piece(&c, begin, h);
}

/* IV.A.1.b, "Object Header Continuation Block" */
static oct_status read_continuation(walker *w, const oct_h5_extent *piece, header *h)
{
    oct_h5_cursor c;
    OCT_H5_NEED(piece->bytes >= 8, h->at, "a header with an empty piece");
    OCT_TRY(oct_h5_claim(&w->claims, piece->at, piece->bytes, &c));
    const uint8_t *begin = c.next;
    OCT_H5_NEED(oct_h5_take_word(&c, "OCHK"), piece->at, "no piece of a header");
    return take_piece(&c, begin, h);
}

static oct_status check_dataset(walker *w, const header *h)
{
    uint64_t bytes;
    OCT_H5_NEED(h->has[DATASPACE] && h->has[DATATYPE] && h->has[FILL_VALUE] && h->has[LAYOUT] &&
                    !h->has[LINK] && !h->has[GROUP_INFO],
                h->at, "an object that is neither group nor data set");
    const bool overflow = __builtin_mul_overflow((uint64_t)oct_shape_numel(&h->object.shape),
                                                 oct_dtype_bytes(h->object.dtype), &bytes);
    OCT_H5_NEED(!overflow && bytes == h->bytes, h->at,
                "a data set whose bytes are not those of its shape");
    if (bytes > 0) return oct_h5_claim_values(&w->claims, h->data, bytes);
    OCT_H5_NEED(h->data == OCT_H5_NOWHERE, h->at, "an empty data set that lies somewhere");
    return OCT_OK;
}

static oct_status follow(walker *w, const oct_h5_link *link, size_t parent, int depth);

static oct_status follow_all(walker *w, const oct_h5_link *links, size_t count, size_t parent,
                             int depth)
{
    for (size_t i = 0; i < count; i++)
        OCT_TRY(follow(w, &links[i], parent, depth));
    return OCT_OK;
}

static oct_status walk_group(walker *w, const header *h, size_t number, int depth)
{
    OCT_H5_NEED(h->has[GROUP_INFO] && !h->has[DATASPACE] && !h->has[DATATYPE] &&
                    !h->has[FILL_VALUE] && !h->has[LAYOUT],
                h->at, "an object that is neither group nor data set");
    if (h->heap == OCT_H5_NOWHERE) {
        OCT_H5_NEED(h->num_links > 0 || number == 0, h->at, "a group with nothing in it");
        return follow_all(w, h->links, h->num_links, number, depth);
    }
    OCT_H5_NEED(h->num_links == 0, h->at, "a group with links in two places");
    oct_h5_links dense = {0};
    oct_status status = oct_h5_dense_links(&w->claims, h->heap, h->tree, &dense);
    if (status == OCT_OK) status = follow_all(w, dense.all, dense.count, number, depth);
    oct_free(&dense.all);
    return status;
}

/* Goes on to where a link leads; parent: the number of its group, at `depth` names below the root. */
static oct_status follow(walker *w, const oct_h5_link *link, size_t parent, int depth)
{
    oct_h5_map *map = w->map;
    header h = {.at = link->target};

    OCT_H5_NEED(depth <= OCT_H5_DEPTH, h.at, "names that are nested too deep");
    OCT_TRY(read_header(w, &h));
    for (size_t i = 0; i < h.num_pieces; i++)
        OCT_TRY(read_continuation(w, &h.pieces[i], &h));
    h.object.name = link->name;
    h.object.name_bytes = link->name_bytes;
    h.object.parent = parent;
    h.object.group = h.has[LINK_INFO];
    h.object.at = h.data;
    OCT_TRY(oct_grow(&map->objects, &map->capacity, map->count + 1, sizeof *map->objects));
    const size_t number = map->count++;
    map->objects[number] = h.object;
    return h.object.group ? walk_group(w, &h, number, depth + 1) : check_dataset(w, &h);
}

/* II.A: version 2, at the beginning of the file, which it knows the end of. */
static oct_status walk_superblock(walker *w)
{
    enum { BYTES = 48 };
    static const char signature[] = "\x89HDF\r\n\x1a\n";
    oct_h5_cursor c;
    oct_h5_link root = {0};

    OCT_TRY(oct_h5_fetch(&w->claims, 0, w->claims.size < BYTES ? w->claims.size : BYTES));
    OCT_CHECK(w->claims.size >= BYTES &&
                  memcmp(w->claims.image, signature, sizeof signature - 1) == 0,
              OCT_DATA, "is not an HDF5 file");
    OCT_TRY(oct_h5_claim(&w->claims, 0, BYTES, &c));
    c.next += sizeof signature - 1;
    /* Version, bytes of an address and of a length, flags; then what the addresses are counted from. */
    const bool plain = oct_h5_take(&c, 4) == 0x00080802 && oct_h5_take(&c, 8) == 0 &&
                       oct_h5_take(&c, 8) == OCT_H5_NOWHERE;
    OCT_H5_NEED(plain, 0, "a superblock of another form");
    OCT_H5_NEED(oct_h5_take(&c, 8) == w->claims.size, 0, "a superblock of a file of another size");
    root.target = oct_h5_take(&c, 8);
    OCT_H5_NEED(oct_h5_take_checksum(&c, w->claims.image), 0, "a superblock with a wrong checksum");
    return follow(w, &root, 0, 0);
}

static oct_status walk(oct_h5_map *map, const oct_h5_claims *claims)
{
    oct_status status;
    walker w = {.claims = *claims, .map = map};

    *map = (oct_h5_map){0};
    OCT_TRY_OUT(walk_superblock(&w));
    if (!map->objects[0].group) {
        status = oct_h5_refuse(0, "a data set in the place of the root group");
        goto out;
    }
    status = oct_h5_claims_check(&w.claims);
out:
    oct_h5_claims_free(&w.claims);
    if (status != OCT_OK) oct_h5_map_free(map);
    return status;
}

oct_status oct_h5_walk(oct_h5_map *map, const void *image, size_t size)
{
    return walk(map, &(oct_h5_claims){.image = image, .size = size});
}

oct_status oct_h5_walk_file(oct_h5_map *map, const oct_h5_source *source, size_t size)
{
    return walk(map, &(oct_h5_claims){.image = source->image, .source = source, .size = size});
}

void oct_h5_map_free(oct_h5_map *map)
{
    oct_free(&map->objects);
    *map = (oct_h5_map){0};
}
