/* Groups with many links: the links lie in a fractal heap (III.G), and a version 2 B-tree (III.A.2) has a
 * record for each, in the order of the checksums of the names.
 *
 * The heap's blocks double in size row by row. Their sizes and places in the heap follow from the
 * table's constants, which HDF5 fixes for groups, so only addresses are left to be read.
 */
#include "io/hdf5_part.h"

#include "core/base/mem.h"

#include <string.h>

/* Constants of the heaps of links. */
enum {
    ID_BYTES = 7,
    OFFSET_BYTES = 4, /* of an address in a heap */
    TABLE_WIDTH = 4,
    START_BYTES = 512, /* of the blocks of rows 0 and 1; then rows double */
    START_BITS = 9,
    DIRECT_BYTES_MAX = 65536,
    DIRECT_ROWS = 9, /* rows up to that size */
    HEAP_BITS = 32,
    ROWS_MAX = HEAP_BITS - (START_BITS + 2) + 1,
    ENTRY_BYTES_MAX = 4096,
    BLOCK_PREFIX = 4 + 1 + 8 + OFFSET_BYTES, /* signature, version, address of the heap, offset */
};

/* Constants of the trees over them. */
enum {
    NODE_BYTES = 512,
    RECORD_BYTES = 4 + ID_BYTES,
    NODE_PREFIX = 6,
    NODE_OVERHEAD = NODE_PREFIX + 4,
    DEPTH_MAX = 8,
    TREE_TYPE = 5, /* names of links */
};

/* A block of a heap that holds links. */
typedef struct direct_block {
    uint64_t offset, at, bytes; /* in the heap, in the file */
} direct_block;

typedef struct dense {
    oct_h5_claims *claims;
    uint64_t heap, tree;  /* the addresses of their headers */
    oct_h5_links *links;  /* found so far */
    direct_block *blocks; /* by offset */
    size_t num_blocks, capacity;
    uint64_t used; /* bytes of all blocks */
    /* The most records of a node at each height above the leaves: in it, and in all below it. */
    uint64_t node_records[DEPTH_MAX + 1], all_records[DEPTH_MAX + 1];
    uint32_t last_hash; /* of the record before */
} dense;

static size_t bytes_for(uint64_t largest)
{
    size_t bytes = 1;
    while (largest >>= 8)
        bytes++;
    return bytes;
}

/* The heap. */

static uint64_t row_bytes(int row)
{
    return (uint64_t)START_BYTES << (row > 0 ? row - 1 : 0);
}

/* Returns how much of a heap the rows of its root block cover; without rows that is a block itself. */
static uint64_t table_bytes(int rows)
{
    uint64_t bytes = rows > 0 ? 0 : START_BYTES;
    for (int row = 0; row < rows; row++)
        bytes += TABLE_WIDTH * row_bytes(row);
    return bytes;
}

/* Both kinds of blocks begin with this (III.G). */
static bool take_prefix(const dense *d, oct_h5_cursor *c, const char *signature, uint64_t offset)
{
    return oct_h5_take_word(c, signature) && oct_h5_take(c, 1) == 0 &&
           oct_h5_take(c, 8) == d->heap && oct_h5_take(c, OFFSET_BYTES) == offset;
}

/* The checksum of a direct block counts its own place as zeros. */
static oct_status check_direct(oct_h5_claims *claims, uint64_t at, size_t bytes)
{
    oct_h5_cursor there = {.next = claims->image + at + BLOCK_PREFIX,
                           .end = claims->image + at + bytes};
    if (!claims->block) OCT_TRY(oct_alloc(&claims->block, DIRECT_BYTES_MAX, 1));
    memcpy(claims->block, claims->image + at, bytes);
    memset(claims->block + BLOCK_PREFIX, 0, 4);
    OCT_H5_NEED(oct_h5_take(&there, 4) == oct_h5_checksum(claims->block, bytes), at,
                "a heap's block with a wrong checksum");
    return OCT_OK;
}

static oct_status walk_direct(dense *d, uint64_t at, uint64_t offset, uint64_t bytes)
{
    oct_h5_cursor c;
    OCT_TRY(oct_h5_claim(d->claims, at, bytes, &c));
    OCT_H5_NEED(take_prefix(d, &c, "FHDB", offset), at, "no heap's block");
    OCT_TRY(check_direct(d->claims, at, (size_t)bytes));
    OCT_TRY(oct_grow(&d->blocks, &d->capacity, d->num_blocks + 1, sizeof *d->blocks));
    d->blocks[d->num_blocks++] = (direct_block){offset, at, bytes};
    d->used += bytes;
    return OCT_OK;
}

/* A table has rows of blocks with links, then rows of tables like this one, each with fewer rows. */
static oct_status walk_indirect(dense *d, uint64_t at, uint64_t offset, int rows)
{
    oct_h5_cursor c;
    OCT_TRY(oct_h5_claim(d->claims, at, BLOCK_PREFIX + 8 * TABLE_WIDTH * (uint64_t)rows + 4, &c));
    const uint8_t *begin = c.next;
    OCT_H5_NEED(take_prefix(d, &c, "FHIB", offset), at, "no heap's table of blocks");
    for (int i = 0; i < rows * TABLE_WIDTH; i++) {
        const int row = i / TABLE_WIDTH;
        const uint64_t child = oct_h5_take(&c, 8);
        if (child != OCT_H5_NOWHERE && row < DIRECT_ROWS)
            OCT_TRY(walk_direct(d, child, offset, row_bytes(row)));
        else if (child != OCT_H5_NOWHERE)
            OCT_TRY(walk_indirect(d, child, offset, row - 2));
        offset += row_bytes(row);
    }
    OCT_H5_NEED(oct_h5_take_checksum(&c, begin), at, "a heap's table with a wrong checksum");
    return OCT_OK;
}

/* A list tells what is free in a heap (III.H). Who only reads never looks there, but it takes bytes. */
static oct_status walk_free_space(oct_h5_claims *claims, uint64_t at)
{
    enum { BYTES = 82, LIST_PREFIX = 13 };
    oct_h5_cursor c;
    OCT_TRY(oct_h5_claim(claims, at, BYTES, &c));
    const uint8_t *begin = c.next;
    OCT_H5_NEED(oct_h5_take_word(&c, "FSHD") && oct_h5_take(&c, 2) == 0, at,
                "no list of a heap's free space");
    c.next += 4 * 8 + 4 * 2 + 8; /* counts, and the largest sizes */
    const uint64_t list = oct_h5_take(&c, 8), used = oct_h5_take(&c, 8), bytes = oct_h5_take(&c, 8);
    OCT_H5_NEED(oct_h5_take_checksum(&c, begin), at, "a heap's free space with a wrong checksum");
    if (list == OCT_H5_NOWHERE) return OCT_OK;
    OCT_H5_NEED(used >= LIST_PREFIX + 4 && used <= bytes, at,
                "a heap's free space of another form");
    OCT_TRY(oct_h5_claim(claims, list, bytes, &c));
    begin = c.next;
    OCT_H5_NEED(oct_h5_take_word(&c, "FSSE") && oct_h5_take(&c, 1) == 0 && oct_h5_take(&c, 8) == at,
                list, "no list of a heap's free space");
    c.next = begin + used - 4;
    OCT_H5_NEED(oct_h5_take_checksum(&c, begin), list, "a heap's free space with a wrong checksum");
    return OCT_OK;
}

/* The table of a heap has constants, then its root block. */
static bool take_table(oct_h5_cursor *c, uint64_t *root, uint64_t *rows)
{
    const bool known = oct_h5_take(c, 2) == TABLE_WIDTH && oct_h5_take(c, 8) == START_BYTES &&
                       oct_h5_take(c, 8) == DIRECT_BYTES_MAX && oct_h5_take(c, 2) == HEAP_BITS &&
                       oct_h5_take(c, 2) == 1; /* rows to begin with */
    *root = oct_h5_take(c, 8);
    *rows = oct_h5_take(c, 2);
    return known && *rows <= ROWS_MAX;
}

/* III.G, "Fractal Heap Header". *links: entries in it. */
static oct_status walk_heap(dense *d, uint64_t *links)
{
    enum { BYTES = 146 };
    uint64_t root, rows;
    oct_h5_cursor c;
    OCT_TRY(oct_h5_claim(d->claims, d->heap, BYTES, &c));
    const uint8_t *begin = c.next;
    OCT_H5_NEED(oct_h5_take_word(&c, "FRHP") && oct_h5_take(&c, 1) == 0 &&
                    oct_h5_take(&c, 2) == ID_BYTES && oct_h5_take(&c, 2) == 0 &&
                    oct_h5_take(&c, 1) == 2 && oct_h5_take(&c, 4) == ENTRY_BYTES_MAX,
                d->heap, "a heap of another form");
    bool plain = oct_h5_take(&c, 8) == 0 && oct_h5_take(&c, 8) == OCT_H5_NOWHERE; /* huge entries */
    c.next += 8;                                                                  /* free bytes */
    const uint64_t free_space = oct_h5_take(&c, 8);
    const uint64_t bytes = oct_h5_take(&c, 8), used = oct_h5_take(&c, 8), next = oct_h5_take(&c, 8);
    *links = oct_h5_take(&c, 8);
    for (int i = 0; i < 4; i++) /* no huge and no tiny entries */
        plain &= oct_h5_take(&c, 8) == 0;
    plain &= take_table(&c, &root, &rows);
    OCT_H5_NEED(plain && oct_h5_take_checksum(&c, begin), d->heap,
                "a heap of another form or with a wrong checksum");
    if (free_space != OCT_H5_NOWHERE) OCT_TRY(walk_free_space(d->claims, free_space));
    if (rows > 0)
        OCT_TRY(walk_indirect(d, root, 0, (int)rows));
    else
        OCT_TRY(walk_direct(d, root, 0, START_BYTES));
    OCT_H5_NEED(bytes == table_bytes((int)rows) && used == d->used && next <= bytes, d->heap,
                "a heap that counts its blocks wrongly");
    return OCT_OK;
}

static const direct_block *block_of(const dense *d, uint64_t offset)
{
    size_t low = 0, high = d->num_blocks; /* the first block behind `offset` lies between */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (d->blocks[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? &d->blocks[low - 1] : NULL;
}

/* Finds the link that a heap ID names: version 0 and kind "managed", offset in the heap, length. */
static oct_status find_link(dense *d, oct_h5_cursor *c, uint64_t node, oct_h5_link *link)
{
    const bool managed = oct_h5_take(c, 1) == 0;
    const uint64_t offset = oct_h5_take(c, OFFSET_BYTES), bytes = oct_h5_take(c, 2);
    const direct_block *block = block_of(d, offset);
    OCT_H5_NEED(managed && !c->short_of && block, node, "a link that is nowhere in its heap");
    const uint64_t within = offset - block->offset;
    OCT_H5_NEED(within >= BLOCK_PREFIX + 4 && within <= block->bytes &&
                    bytes <= block->bytes - within && bytes <= ENTRY_BYTES_MAX,
                node, "a link that is nowhere in its heap");
    oct_h5_cursor entry;
    OCT_TRY(oct_h5_claim_entry(d->claims, block->at + within, bytes, &entry));
    return oct_h5_take_link(&entry, block->at + within, link);
}

/* The tree. */

/* Records stand in the order of names, which no two share. */
static oct_status walk_record(dense *d, oct_h5_cursor *c, uint64_t node)
{
    oct_h5_link link = {0};
    const uint32_t hash = (uint32_t)oct_h5_take(c, 4);
    OCT_TRY(find_link(d, c, node, &link));
    OCT_H5_NEED(hash == oct_h5_checksum(link.name, link.name_bytes), node,
                "a link under another checksum than its name's");
    const oct_h5_links *all = d->links;
    const oct_h5_link *last = all->count > 0 ? &all->all[all->count - 1] : NULL;
    OCT_H5_NEED(!last || d->last_hash < hash ||
                    (d->last_hash == hash && oct_h5_compare_names(last->name, last->name_bytes,
                                                                  link.name, link.name_bytes) < 0),
                node, "links in another order");
    d->last_hash = hash;
    OCT_TRY(oct_grow(&d->links->all, &d->links->capacity, d->links->count + 1, sizeof link));
    d->links->all[d->links->count++] = link;
    return OCT_OK;
}

/* A node has records and, above the leaves, a child before, between and behind them. A child is an address, how many
 * records it has and, two above the leaves, how many there are from it on. */
static oct_status walk_node(dense *d, uint64_t at, int height, uint64_t records)
{
    oct_h5_cursor c, children;
    OCT_H5_NEED(records >= 1 && records <= d->node_records[height], at,
                "a B-tree's node of another size");
    OCT_TRY(oct_h5_claim(d->claims, at, NODE_BYTES, &c));
    const uint8_t *begin = c.next;
    OCT_H5_NEED(oct_h5_take_word(&c, height > 0 ? "BTIN" : "BTLF") && oct_h5_take(&c, 1) == 0 &&
                    oct_h5_take(&c, 1) == TREE_TYPE,
                at, "no node of a B-tree of links");
    const size_t count_bytes = bytes_for(d->node_records[0]);
    const size_t all_bytes = height > 1 ? bytes_for(d->all_records[height - 1]) : 0;
    const size_t child_bytes = height > 0 ? 8 + count_bytes + all_bytes : 0;
    children = (oct_h5_cursor){.next = c.next + records * RECORD_BYTES, .end = c.end};
    oct_h5_cursor last = {.next = children.next + (records + 1) * child_bytes, .end = c.end};
    OCT_H5_NEED(oct_h5_take_checksum(&last, begin), at, "a B-tree's node with a wrong checksum");
    for (uint64_t i = 0; i <= records; i++) {
        if (height > 0) {
            const uint64_t child = oct_h5_take(&children, 8);
            const uint64_t count = oct_h5_take(&children, count_bytes);
            const uint64_t all = oct_h5_take(&children, all_bytes), before = d->links->count;
            OCT_TRY(walk_node(d, child, height - 1, count));
            OCT_H5_NEED(height == 1 || d->links->count - before == all, at,
                        "a B-tree that counts wrongly");
        }
        if (i < records) OCT_TRY(walk_record(d, &c, at));
    }
    return OCT_OK;
}

/* Finds how many records nodes hold: what is left of them beside children, as H5B2__hdr_init counts. */
static void size_nodes(dense *d)
{
    d->node_records[0] = d->all_records[0] = (NODE_BYTES - NODE_OVERHEAD) / RECORD_BYTES;
    for (int height = 1; height <= DEPTH_MAX; height++) {
        const uint64_t below = d->all_records[height - 1];
        const uint64_t child =
            8 + bytes_for(d->node_records[0]) + (height > 1 ? bytes_for(below) : 0);
        const uint64_t most = (NODE_BYTES - NODE_OVERHEAD - child) / (RECORD_BYTES + child);
        d->node_records[height] = most;
        d->all_records[height] = (most + 1) * below + most;
    }
}

/* III.A.2, "Version 2 B-tree Header" */
static oct_status walk_tree(dense *d, uint64_t links)
{
    enum { BYTES = 38, SPLIT_PERCENT = 100, MERGE_PERCENT = 40 };
    oct_h5_cursor c;
    OCT_TRY(oct_h5_claim(d->claims, d->tree, BYTES, &c));
    const uint8_t *begin = c.next;
    OCT_H5_NEED(oct_h5_take_word(&c, "BTHD") && oct_h5_take(&c, 1) == 0 &&
                    oct_h5_take(&c, 1) == TREE_TYPE && oct_h5_take(&c, 4) == NODE_BYTES &&
                    oct_h5_take(&c, 2) == RECORD_BYTES,
                d->tree, "a B-tree of another form");
    const uint64_t depth = oct_h5_take(&c, 2);
    const bool known = oct_h5_take(&c, 1) == SPLIT_PERCENT && oct_h5_take(&c, 1) == MERGE_PERCENT;
    const uint64_t root = oct_h5_take(&c, 8), records = oct_h5_take(&c, 2),
                   all = oct_h5_take(&c, 8);
    OCT_H5_NEED(known && depth <= DEPTH_MAX && all == links && oct_h5_take_checksum(&c, begin),
                d->tree, "a B-tree of another form or with a wrong checksum");
    size_nodes(d);
    OCT_TRY(walk_node(d, root, (int)depth, records));
    OCT_H5_NEED(d->links->count == all, d->tree, "a B-tree that counts wrongly");
    return OCT_OK;
}

oct_status oct_h5_dense_links(oct_h5_claims *claims, uint64_t heap, uint64_t tree,
                              oct_h5_links *links)
{
    dense d = {.claims = claims, .heap = heap, .tree = tree, .links = links};
    uint64_t count = 0;
    oct_status status = walk_heap(&d, &count);
    if (status == OCT_OK) status = walk_tree(&d, count);
    oct_free(&d.blocks);
    return status;
}
