/* An arena holds the memory of one step.
 *
 * Chunks form a stack; the lowest is the block that a reset makes, the others are for a step that needs
 * more. Positions count through all of them, so a mark is one number.
 *
 * Lent blocks lie in the lowest chunk, linked from its top downwards, each behind a header of one cache
 * line; the gaps between them are found by walking, of which there are few. The smallest gap that fits
 * serves, the room above the taken memory last. What fits nowhere is a block of its own.
 */
#include "core/base/arena.h"

#include "core/base/cache_line.h"
#include "core/base/mem.h"

/* Chunks beyond the ground are hardly larger than what is taken: what is left of them is lost, they are
 * many only in a first step, and that step's peak is a job's. */
enum { MIN_CHUNK = 16 << 10, GROWTH_OF_GAPS = 16 };

typedef struct chunk {
    struct chunk *previous;
    char *data;
    size_t size;
    size_t start; /* position of data */
} chunk;

/* This header stands in front of a lent block, whose `size` counts it. */
typedef struct block {
    struct block *above, *below; /* neighbours by address, or of the list of those on their own */
    size_t size;
    size_t missing; /* of a block of its own: how much longer the ground would have to be */
    bool taken, alone;
} block;

struct oct_arena {
    chunk *top;
    chunk *ground;              /* the lowest, once a reset has told its size */
    size_t position;            /* bytes taken */
    block *highest, *lowest;    /* lent of the ground */
    block *alone;               /* lent blocks of their own */
    size_t lent;                /* bytes, headers too */
    size_t beyond, most_beyond; /* bytes for which the ground had no room, now and at most */
    size_t peak;
    size_t wanted; /* size of the ground to be made; 0: none */
};

_Static_assert(sizeof(block) <= OCT_CACHE_LINE, "the header of a lent block fits its cache line");

static bool round_up(size_t bytes, size_t more, size_t *rounded)
{
    size_t most;
    if (bytes == 0) bytes = 1;
    if (__builtin_add_overflow(bytes, more + OCT_CACHE_LINE - 1, &most)) {
        oct_fail(OCT_RESOURCE, "out of memory: %zu bytes asked", bytes);
        return false;
    }
    *rounded = oct_cache_aligned(bytes + more);
    return true;
}

static void count_beyond(oct_arena *arena, size_t bytes)
{
    arena->beyond += bytes;
    if (arena->beyond > arena->most_beyond) arena->most_beyond = arena->beyond;
}

static void count_use(oct_arena *arena)
{
    size_t use = arena->position + arena->lent;
    if (use > arena->peak) arena->peak = use;
}

oct_status oct_arena_create(oct_arena **arena)
{
    return oct_alloc(arena, 1, sizeof **arena);
}

static void drop_top(oct_arena *arena)
{
    chunk *top = arena->top;
    arena->top = top->previous;
    if (top == arena->ground) arena->ground = NULL;
    oct_free(&top->data);
    oct_free(&top);
}

void oct_arena_destroy(oct_arena **arena)
{
    if (!*arena) return;
    oct_arena_reset(*arena);
    while ((*arena)->top)
        drop_top(*arena);
    oct_free(arena);
}

static oct_status add_chunk(oct_arena *arena, size_t size)
{
    chunk *added;
    OCT_TRY(oct_alloc(&added, 1, sizeof *added));
    oct_status status = oct_alloc(&added->data, size, 1);
    if (status != OCT_OK) {
        oct_free(&added);
        return status;
    }
    oct_mem_advise_huge_pages(added->data, size);
    added->size = size;
    added->start = arena->position;
    added->previous = arena->top;
    arena->top = added;
    return OCT_OK;
}

static bool make_ground(oct_arena *arena)
{
    if (arena->wanted == 0) return true;
    if (add_chunk(arena, arena->wanted) != OCT_OK) return false;
    arena->ground = arena->top;
    arena->wanted = 0;
    return true;
}

/* Returns the bytes between the taken memory and the lent in the chunk on top. */
static size_t room(const oct_arena *arena)
{
    const chunk *top = arena->top;
    if (!top) return 0;
    size_t end = top->size;
    if (top == arena->ground && arena->lowest) end = (size_t)((char *)arena->lowest - top->data);
    return end - (arena->position - top->start);
}

void *oct_arena_take(oct_arena *arena, size_t bytes)
{
    size_t rounded;
    if (!round_up(bytes, 0, &rounded) || !make_ground(arena)) return NULL;
    if (room(arena) < rounded) {
        size_t size = rounded < MIN_CHUNK ? MIN_CHUNK : rounded;
        if (add_chunk(arena, size) != OCT_OK) return NULL;
        count_beyond(arena, size);
    }
    void *taken = arena->top->data + (arena->position - arena->top->start);
    arena->position += rounded;
    count_use(arena);
    return taken;
}

size_t oct_arena_mark(const oct_arena *arena)
{
    return arena->position;
}

void oct_arena_rewind(oct_arena *arena, size_t mark)
{
    OCT_ASSERT(mark <= arena->position);
    while (arena->top && arena->top != arena->ground && arena->top->start >= mark) {
        arena->beyond -= arena->top->size;
        drop_top(arena);
    }
    arena->position = mark;
}

/* Returns the bytes between the taken memory of the ground and the lent. */
static size_t middle_gap(const oct_arena *arena)
{
    const chunk *ground = arena->ground, *over = arena->top;
    while (over != ground && over->previous != ground)
        over = over->previous;
    size_t taken = over == ground ? arena->position : over->start;
    char *end = arena->lowest ? (char *)arena->lowest : ground->data + ground->size;
    return (size_t)(end - ground->data) - taken;
}

/* Finds the smallest gap of at least `size` bytes, by the block above it (NULL: the top of the
 * ground). */
static bool find_gap(const oct_arena *arena, size_t size, block **above, char **end)
{
    const chunk *ground = arena->ground;
    size_t best = SIZE_MAX;
    char *bottom = ground->data + ground->size;
    for (block *b = arena->highest, *upper = NULL; b; upper = b, b = b->below) {
        size_t gap = (size_t)(bottom - ((char *)b + b->size));
        if (gap >= size && gap < best) {
            best = gap;
            *above = upper;
            *end = bottom;
        }
        bottom = (char *)b;
    }
    if (best < SIZE_MAX) return true;
    *above = arena->lowest;
    *end = bottom;
    return middle_gap(arena) >= size;
}

static block *place(oct_arena *arena, size_t size)
{
    block *above;
    char *end;
    if (!arena->ground || !find_gap(arena, size, &above, &end)) return NULL;
    block *head = (block *)(void *)(end - size);
    *head = (block){.above = above, .below = above ? above->below : arena->highest};
    *(above ? &above->below : &arena->highest) = head;
    *(head->below ? &head->below->above : &arena->lowest) = head;
    return head;
}

static block *place_alone(oct_arena *arena, size_t size)
{
    block *head;
    if (oct_alloc(&head, 1, size) != OCT_OK) return NULL;
    bool only = arena->ground && !arena->alone;
    *head = (block){
        .below = arena->alone, .missing = only ? size - middle_gap(arena) : size, .alone = true};
    if (head->below) head->below->above = head;
    arena->alone = head;
    count_beyond(arena, head->missing);
    return head;
}

void *oct_arena_borrow(oct_arena *arena, size_t bytes)
{
    size_t size;
    if (!round_up(bytes, OCT_CACHE_LINE, &size) || !make_ground(arena)) return NULL;
    block *head = place(arena, size);
    if (!head && !(head = place_alone(arena, size))) return NULL;
    head->size = size;
    head->taken = true;
    arena->lent += size;
    count_use(arena);
    return (char *)head + OCT_CACHE_LINE;
}

static void unlink_alone(oct_arena *arena, block *head)
{
    *(head->above ? &head->above->below : &arena->alone) = head->below;
    if (head->below) head->below->above = head->above;
    arena->beyond -= head->missing;
    oct_free(&head);
}

static void unlink_placed(oct_arena *arena, block *head)
{
    *(head->above ? &head->above->below : &arena->highest) = head->below;
    *(head->below ? &head->below->above : &arena->lowest) = head->above;
}

void oct_arena_give(oct_arena *arena, void *memory)
{
    if (!memory) return;
    block *head = (block *)(void *)((char *)memory - OCT_CACHE_LINE);
    OCT_ASSERT(head->taken);
    head->taken = false;
    arena->lent -= head->size;
    if (head->alone)
        unlink_alone(arena, head);
    else
        unlink_placed(arena, head);
}

/* Plans one block of what was needed: of the peak, or, where gaps made that too small, of more, and
 * enough more that it is soon found. */
static void plan_ground(oct_arena *arena)
{
    const chunk *ground = arena->ground;
    arena->wanted = arena->peak;
    if (ground && ground->size >= arena->peak) {
        size_t least = ground->size / GROWTH_OF_GAPS;
        arena->wanted = ground->size + (arena->most_beyond > least ? arena->most_beyond : least);
    }
    arena->wanted = oct_cache_aligned(arena->wanted); /* blocks lie at its end */
    arena->most_beyond = 0;
    if (ground) drop_top(arena);
    oct_mem_trim();
}

void oct_arena_reset(oct_arena *arena)
{
    while (arena->alone)
        unlink_alone(arena, arena->alone);
    arena->highest = arena->lowest = NULL;
    arena->lent = 0;
    oct_arena_rewind(arena, 0);
    if (arena->most_beyond > 0) plan_ground(arena);
}

size_t oct_arena_peak(const oct_arena *arena)
{
    return arena->peak;
}
