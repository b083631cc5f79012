/* An arena holds the memory of one step.
 *
 * Chunks form a stack; the lowest is the block that a reset makes, the others are for a step that needs
 * more. Positions count through all of them, so a mark is one number.
 *
 * Borrowed blocks are in the lowest chunk, linked from its top downwards, each after a header of one cache
 * line; the gaps between them, which are few, are found by walking. The smallest gap that fits
 * is used, the room above the taken memory last. What fits nowhere is a block of its own.
 */
#include "core/base/arena.h"

#include "core/base/mem.h"

/* Chunks beyond the base are hardly larger than what is taken: what is left of them is lost, they are
 * many only in a first step, and that step's peak is a job's. */
enum { MIN_CHUNK = 16 << 10, GROWTH_OF_GAPS = 16 };

typedef struct chunk {
    struct chunk *previous;
    char *data;
    size_t size;
    size_t start; /* position of data */
} chunk;

/* The header before a borrowed block, whose `size` counts it. */
typedef struct block {
    struct block *above, *below; /* neighbours by address, or of the list of those on their own */
    size_t size;
    size_t missing; /* of a block of its own: how much longer the base would have to be */
    bool taken, alone;
} block;

struct oct_arena {
    chunk *top;
    chunk *base;                   /* the lowest, once a reset has found its size */
    size_t position;               /* bytes taken */
    block *highest, *lowest;       /* borrowed from the base */
    block *alone;                  /* borrowed blocks of their own */
    size_t borrowed;               /* bytes, headers too */
    size_t overflow, max_overflow; /* bytes for which the base had no room, now and at most */
    size_t peak;
    size_t wanted; /* size of the base to be made; 0: none */
};

_Static_assert(sizeof(block) <= OCT_CACHE_LINE,
               "the header of a borrowed block fits its cache line");

/* Rounds bytes, and `more` for a header, up to cache lines; false with a record where that overflows. */
static bool round_size(size_t bytes, size_t more, size_t *rounded)
{
    size_t most;
    if (bytes == 0) bytes = 1;
    if (__builtin_add_overflow(bytes, more + OCT_CACHE_LINE - 1, &most)) {
        (void)oct_mem_fail(bytes, "");
        return false;
    }
    *rounded = oct_cache_aligned(bytes + more);
    return true;
}

static void count_overflow(oct_arena *arena, size_t bytes)
{
    arena->overflow += bytes;
    if (arena->overflow > arena->max_overflow) arena->max_overflow = arena->overflow;
}

static void count_use(oct_arena *arena)
{
    size_t use = arena->position + arena->borrowed;
    if (use > arena->peak) arena->peak = use;
}

oct_status oct_arena_create(oct_arena **arena)
{
    return oct_alloc(arena, 1, sizeof **arena);
}

static void drop_top_chunk(oct_arena *arena)
{
    chunk *top = arena->top;
    arena->top = top->previous;
    if (top == arena->base) arena->base = NULL;
    oct_free(&top->data);
    oct_free(&top);
}

void oct_arena_destroy(oct_arena **arena)
{
    if (!*arena) return;
    oct_arena_reset(*arena);
    while ((*arena)->top)
        drop_top_chunk(*arena);
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

/* Allocates the base, the lowest chunk, in the size that the last reset has planned (wanted; 0: none). */
static bool make_base(oct_arena *arena)
{
    if (arena->wanted == 0) return true;
    if (add_chunk(arena, arena->wanted) != OCT_OK) return false;
    arena->base = arena->top;
    arena->wanted = 0;
    return true;
}

void *oct_arena_take(oct_arena *arena, size_t bytes)
{
    size_t rounded;
    if (!round_size(bytes, 0, &rounded) || !make_base(arena)) return NULL;
    const chunk *top = arena->top;
    size_t room = 0; /* between the taken memory and the borrowed in the chunk on top */
    if (top) {
        const bool borrowed = top == arena->base && arena->lowest;
        room = (borrowed ? (size_t)((char *)arena->lowest - top->data) : top->size) -
               (arena->position - top->start);
    }
    if (!top || room < rounded) {
        size_t size = rounded < MIN_CHUNK ? MIN_CHUNK : rounded;
        if (add_chunk(arena, size) != OCT_OK) return NULL;
        count_overflow(arena, size);
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
    while (arena->top && arena->top != arena->base && arena->top->start >= mark) {
        arena->overflow -= arena->top->size;
        drop_top_chunk(arena);
    }
    arena->position = mark;
}

/* Returns the free bytes of the base between the taken memory at its bottom (which ends where the chunk on top of the
 * base, if any, was started) and the lowest borrowed block. */
static size_t middle_gap(const oct_arena *arena)
{
    const chunk *base = arena->base, *after_base = arena->top;
    while (after_base != base && after_base->previous != base)
        after_base = after_base->previous;
    size_t taken = after_base == base ? arena->position : after_base->start;
    char *end = arena->lowest ? (char *)arena->lowest : base->data + base->size;
    return (size_t)(end - base->data) - taken;
}

/* Finds the smallest gap of at least `size` bytes, and only if there is none the one in the middle: the block above it
 * (NULL: the top of the base) and where it ends. */
static bool find_gap(const oct_arena *arena, size_t size, block **above, char **end)
{
    const chunk *base = arena->base;
    size_t best = SIZE_MAX;
    char *bottom = base->data + base->size;
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

/* Cuts a block from the top of the smallest gap of the base that holds it; NULL: none does. */
static block *borrow_from_base(oct_arena *arena, size_t size)
{
    block *above;
    char *end;
    if (!arena->base || !find_gap(arena, size, &above, &end)) return NULL;
    block *head = (block *)(void *)(end - size);
    *head = (block){.above = above, .below = above ? above->below : arena->highest};
    *(above ? &above->below : &arena->highest) = head;
    *(head->below ? &head->below->above : &arena->lowest) = head;
    return head;
}

/* Allocates a block outside of the base, and counts in `missing` by how much the base was too small: where this is the
 * only such block, by what it exceeds the middle gap; else by all of it. */
static block *borrow_alone(oct_arena *arena, size_t size)
{
    block *head;
    if (oct_alloc(&head, 1, size) != OCT_OK) return NULL;
    bool only = arena->base && !arena->alone;
    *head = (block){
        .below = arena->alone, .missing = only ? size - middle_gap(arena) : size, .alone = true};
    if (head->below) head->below->above = head;
    arena->alone = head;
    count_overflow(arena, head->missing);
    return head;
}

void *oct_arena_borrow(oct_arena *arena, size_t bytes)
{
    size_t size;
    if (!round_size(bytes, OCT_CACHE_LINE, &size) || !make_base(arena)) return NULL;
    block *head = borrow_from_base(arena, size);
    if (!head && !(head = borrow_alone(arena, size))) return NULL;
    head->size = size;
    head->taken = true;
    arena->borrowed += size;
    count_use(arena);
    return (char *)head + OCT_CACHE_LINE;
}

/* Frees a block that has memory of its own because the base had no room for it. */
static void free_alone(oct_arena *arena, block *head)
{
    if (head->above)
        head->above->below = head->below;
    else
        arena->alone = head->below;
    if (head->below) head->below->above = head->above;
    arena->overflow -= head->missing;
    oct_free(&head);
}

void oct_arena_give(oct_arena *arena, void *memory)
{
    if (!memory) return;
    block *head = (block *)(void *)((char *)memory - OCT_CACHE_LINE);
    OCT_ASSERT(head->taken);
    head->taken = false;
    arena->borrowed -= head->size;
    if (head->alone) {
        free_alone(arena, head);
        return;
    }
    *(head->above ? &head->above->below : &arena->highest) = head->below;
    *(head->below ? &head->below->above : &arena->lowest) = head->above;
}

/* Frees the base and plans the next one (wanted): as large as the peak so far, or, where gaps made that too small,
 * larger by what overflowed, but at least by a sixteenth so that it is soon large enough. */
static void plan_base(oct_arena *arena)
{
    const chunk *base = arena->base;
    arena->wanted = arena->peak;
    if (base && base->size >= arena->peak) {
        size_t least = base->size / GROWTH_OF_GAPS;
        arena->wanted = base->size + (arena->max_overflow > least ? arena->max_overflow : least);
    }
    arena->wanted = oct_cache_aligned(arena->wanted); /* blocks are at its end */
    arena->max_overflow = 0;
    if (base) drop_top_chunk(arena);
    oct_mem_trim();
}

void oct_arena_reset(oct_arena *arena)
{
    while (arena->alone)
        free_alone(arena, arena->alone);
    arena->highest = arena->lowest = NULL;
    arena->borrowed = 0;
    oct_arena_rewind(arena, 0);
    if (arena->max_overflow > 0) plan_base(arena);
}

size_t oct_arena_peak(const oct_arena *arena)
{
    return arena->peak;
}
