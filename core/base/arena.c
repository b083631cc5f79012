/* Memory of one step.
 *
 * The arena takes chunks from the memory door as it needs them. A reset of an arena that needed
 * several frees them all and remembers how much was used; the next take then gets one chunk of that
 * size. So from the second step of a kind on, there is one chunk and no allocation.
 *
 * The pool rounds sizes up to four classes per power of two (at most a quarter is wasted) and keeps
 * a free list per class. A header of one cache line in front of each block knows its class.
 */
#include "core/base/arena.h"

#include "core/base/mem.h"

enum { LINE = 64, MIN_CHUNK = 1 << 20, CLASSES = 4 * 64 };

typedef struct chunk {
    struct chunk *previous;
    char *data;
    size_t size, used;
} chunk;

struct oct_arena {
    chunk *top;
    size_t used;   /* since the reset, in all chunks */
    size_t wanted; /* size of the next chunk, at least */
    size_t peak;
};

typedef struct block {
    struct block *next;      /* of all blocks of the pool */
    struct block *next_free; /* of the same class */
    int class;
    bool taken;
} block;

struct oct_pool {
    block *all;
    block *free[CLASSES];
};

_Static_assert(sizeof(block) <= LINE, "the header of a pool block fits its cache line");

static bool round_up(size_t bytes, size_t *rounded)
{
    if (bytes == 0) bytes = 1;
    if (__builtin_add_overflow(bytes, (size_t)LINE - 1, rounded)) return false;
    *rounded &= ~(size_t)(LINE - 1);
    return true;
}

static void free_chunks(oct_arena *arena)
{
    while (arena->top) {
        chunk *top = arena->top;
        arena->top = top->previous;
        oct_free(&top->data);
        oct_free(&top);
    }
}

oct_status oct_arena_create(oct_arena **arena)
{
    OCT_TRY(oct_alloc(arena, 1, sizeof **arena));
    (*arena)->wanted = MIN_CHUNK;
    return OCT_OK;
}

void oct_arena_destroy(oct_arena **arena)
{
    if (*arena) free_chunks(*arena);
    oct_free(arena);
}

static oct_status add_chunk(oct_arena *arena, size_t bytes)
{
    chunk *added;
    OCT_TRY(oct_alloc(&added, 1, sizeof *added));
    added->size = bytes > arena->wanted ? bytes : arena->wanted;
    oct_status status = oct_alloc(&added->data, added->size, 1);
    if (status != OCT_OK) {
        oct_free(&added);
        return status;
    }
    added->previous = arena->top;
    arena->top = added;
    arena->wanted = arena->used / 4 > MIN_CHUNK ? arena->used / 4 : MIN_CHUNK;
    return OCT_OK;
}

void *oct_arena_take(oct_arena *arena, size_t bytes)
{
    size_t rounded;
    if (!round_up(bytes, &rounded)) {
        oct_fail(OCT_RESOURCE, "out of memory: %zu bytes asked", bytes);
        return NULL;
    }
    if (!arena->top || arena->top->size - arena->top->used < rounded) {
        if (add_chunk(arena, rounded) != OCT_OK) return NULL;
    }
    void *taken = arena->top->data + arena->top->used;
    arena->top->used += rounded;
    arena->used += rounded;
    if (arena->used > arena->peak) arena->peak = arena->used;
    return taken;
}

void oct_arena_reset(oct_arena *arena)
{
    if (arena->top && arena->top->previous) {
        free_chunks(arena);
        arena->wanted = arena->used;
    } else if (arena->top) {
        arena->top->used = 0;
    }
    arena->used = 0;
}

size_t oct_arena_peak(const oct_arena *arena)
{
    return arena->peak;
}

oct_status oct_pool_create(oct_pool **pool)
{
    return oct_alloc(pool, 1, sizeof **pool);
}

void oct_pool_destroy(oct_pool **pool)
{
    while (*pool && (*pool)->all) {
        block *head = (*pool)->all;
        (*pool)->all = head->next;
        oct_free(&head);
    }
    oct_free(pool);
}

/* Class of `bytes` and its size: (4 + quarter) * 2^(power - 2), so 64, 80, 96, 112, 128, 160. */
static int class_of(size_t bytes, size_t *size)
{
    if (bytes <= LINE) {
        *size = LINE;
        return 4 * 6;
    }
    int power = 63 - __builtin_clzll(bytes - 1); /* 2^power < bytes <= 2^(power+1) */
    size_t quarter = (size_t)1 << (power - 2);
    size_t quarters = (bytes - ((size_t)1 << power) + quarter - 1) / quarter; /* 1 to 4 */
    *size = ((size_t)1 << power) + quarters * quarter;
    return 4 * power + (int)quarters;
}

void *oct_pool_take(oct_pool *pool, size_t bytes)
{
    if (bytes > SIZE_MAX / 4) {
        oct_fail(OCT_RESOURCE, "out of memory: %zu bytes asked", bytes);
        return NULL;
    }
    size_t size;
    int class = class_of(bytes, &size);
    block *head = pool->free[class];
    if (head) {
        pool->free[class] = head->next_free;
    } else {
        if (oct_alloc(&head, 1, LINE + size) != OCT_OK) return NULL;
        head->class = class;
        head->next = pool->all;
        pool->all = head;
    }
    head->taken = true;
    return (char *)head + LINE;
}

static void put_back(oct_pool *pool, block *head)
{
    head->taken = false;
    head->next_free = pool->free[head->class];
    pool->free[head->class] = head;
}

void oct_pool_give(oct_pool *pool, void *memory)
{
    if (!memory) return;
    block *head = (block *)(void *)((char *)memory - LINE);
    OCT_ASSERT(head->taken);
    put_back(pool, head);
}

void oct_pool_reset(oct_pool *pool)
{
    for (block *head = pool->all; head; head = head->next) {
        if (head->taken) put_back(pool, head);
    }
}
