/* The arena: alignment, reuse from both ends, marks, and that a steady step allocates nothing. */
#include "core/base/arena.h"
#include "core/base/mem.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

static void take_many(oct_arena *arena, unsigned char *blocks[100], size_t scale)
{
    for (size_t i = 0; i < 100; i++) {
        blocks[i] = oct_arena_take(arena, i * scale);
        cr_assert_not_null(blocks[i]);
        cr_assert_eq((uintptr_t)blocks[i] % 64, 0);
        memset(blocks[i], (int)i, i * scale);
    }
    for (size_t i = 0; i < 100; i++) {
        for (size_t j = 0; j < i * scale; j += 61)
            cr_assert_eq(blocks[i][j], i);
    }
}

Test(arena, blocks_are_aligned_and_do_not_overlap)
{
    oct_arena *arena;
    unsigned char *blocks[100];
    cr_assert_eq(oct_arena_create(&arena), OCT_OK);
    take_many(arena, blocks, 7);
    take_many(arena, blocks, 7777);
    void *empty = oct_arena_take(arena, 0), *other = oct_arena_take(arena, 0);
    cr_assert_not_null(empty);
    cr_assert_neq(empty, other);
    oct_arena_destroy(&arena);
    cr_assert_null(arena);
    oct_arena_destroy(&arena);
    cr_assert_eq(oct_mem_live(), 0);
}

Test(arena, a_steady_step_allocates_nothing)
{
    oct_arena *arena;
    unsigned char *blocks[100];
    cr_assert_eq(oct_arena_create(&arena), OCT_OK);
    for (int step = 0; step < 2; step++) {
        take_many(arena, blocks, 7777);
        oct_arena_reset(arena);
    }
    size_t live = oct_mem_live();
    oct_mem_fail_after(1);
    for (int step = 0; step < 5; step++) {
        take_many(arena, blocks, 7777);
        oct_arena_reset(arena);
        cr_assert_eq(oct_mem_live(), live);
    }
    oct_mem_fail_after(0);
    oct_arena_destroy(&arena);
}

Test(arena, after_a_reset_one_chunk_holds_what_was_used)
{
    oct_arena *arena;
    cr_assert_eq(oct_arena_create(&arena), OCT_OK);
    for (int i = 0; i < 50; i++)
        cr_assert_not_null(oct_arena_take(arena, 1000000));
    size_t used = 50 * 1000000;
    cr_assert_geq(oct_arena_peak(arena), used);
    cr_assert_leq(oct_arena_peak(arena), used + 50 * 64);
    oct_arena_reset(arena);
    cr_assert_lt(oct_mem_live(), 4096);
    for (int i = 0; i < 50; i++)
        cr_assert_not_null(oct_arena_take(arena, 1000000));
    cr_assert_lt(oct_mem_live(), used + 50 * 64 + 4096);
    oct_arena_destroy(&arena);
}

Test(arena, failure_is_null_with_a_record_and_leaves_it_usable)
{
    oct_arena *arena;
    cr_assert_eq(oct_arena_create(&arena), OCT_OK);
    for (int64_t n = 1; n <= 2; n++) {
        oct_mem_fail_after(n);
        cr_assert_null(oct_arena_take(arena, 100));
        cr_assert_eq(oct_fail_code(), OCT_RESOURCE);
        cr_assert(strstr(oct_error_message(0), "out of memory"));
    }
    cr_assert_null(oct_arena_take(arena, SIZE_MAX));
    cr_assert_null(oct_arena_take(arena, SIZE_MAX / 2));
    cr_assert_not_null(oct_arena_take(arena, 100));
    oct_arena_destroy(&arena);
    oct_mem_fail_after(1);
    cr_assert_eq(oct_arena_create(&arena), OCT_RESOURCE);
    cr_assert_null(arena);
    cr_assert_eq(oct_mem_live(), 0);
}

Test(arena, what_was_taken_since_a_mark_goes_back_at_once)
{
    oct_arena *arena;
    cr_assert_eq(oct_arena_create(&arena), OCT_OK);
    for (int step = 0; step < 3; step++) {
        char *kept = oct_arena_take(arena, 3000000);
        memset(kept, 5, 3000000);
        size_t mark = oct_arena_mark(arena);
        for (int i = 0; i < 20; i++)
            memset(oct_arena_take(arena, 1000000), 9, 1000000);
        oct_arena_rewind(arena, mark);
        cr_assert_eq(oct_arena_mark(arena), mark);
        char *next = oct_arena_take(arena, 500);
        if (step > 0) cr_assert_eq(next, kept + 3000000);
        for (int i = 0; i < 3000000; i += 999)
            cr_assert_eq(kept[i], 5);
        oct_arena_rewind(arena, 0);
        oct_arena_reset(arena);
    }
    oct_arena_destroy(&arena);
    cr_assert_eq(oct_mem_live(), 0);
}

Test(lending, blocks_of_every_size_are_aligned_and_do_not_overlap)
{
    enum { MOST = 100 };
    oct_arena *arena;
    cr_assert_eq(oct_arena_create(&arena), OCT_OK);
    for (int step = 0; step < 3; step++) {
        unsigned char *lent[MOST];
        size_t size[MOST];
        int n = 0;
        for (size_t bytes = 0; bytes < 200000; bytes += 1 + bytes / 7, n++) {
            cr_assert_lt(n, MOST);
            lent[n] = oct_arena_borrow(arena, size[n] = bytes);
            cr_assert_not_null(lent[n]);
            cr_assert_eq((uintptr_t)lent[n] % 64, 0);
            memset(lent[n], n, bytes);
            cr_assert_not_null(memset(oct_arena_take(arena, 777), 255, 777));
        }
        for (int i = 0; i < n; i++)
            for (size_t j = 0; j < size[i]; j++)
                cr_assert_eq(lent[i][j], i);
        oct_arena_reset(arena);
    }
    oct_arena_destroy(&arena);
    oct_arena_destroy(&arena);
    cr_assert_eq(oct_mem_live(), 0);
}

/* Takes and gives blocks as a random but always equal program says; what they hold must stay. */
static void work(oct_arena *arena)
{
    enum { BLOCKS = 24 };
    unsigned char *lent[BLOCKS] = {0};
    size_t size[BLOCKS], mark = 0;
    uint32_t state = 1;
    for (int i = 0; i < 2000; i++) {
        state = state * 1664525u + 1013904223u;
        unsigned char k = (unsigned char)((state >> 8) % BLOCKS);
        if (lent[k]) {
            for (size_t j = 0; j < size[k]; j += 61)
                cr_assert_eq(lent[k][j], k);
            oct_arena_give(arena, lent[k]);
            lent[k] = NULL;
        } else {
            lent[k] = oct_arena_borrow(arena, size[k] = (state >> 16) * 7);
            cr_assert_not_null(lent[k]);
            cr_assert_eq((uintptr_t)lent[k] % 64, 0, "blocks begin at a cache line");
            memset(lent[k], k, size[k]);
        }
        if (i == 300) mark = oct_arena_mark(arena);
        if (i < 1000)
            cr_assert_not_null(memset(oct_arena_take(arena, state >> 18), 99, state >> 18));
        if (i == 1000) oct_arena_rewind(arena, mark);
    }
    oct_arena_reset(arena);
}

Test(lending, soon_a_step_allocates_nothing)
{
    oct_arena *arena;
    cr_assert_eq(oct_arena_create(&arena), OCT_OK);
    for (int step = 0; step < 4; step++)
        work(arena);
    size_t live = oct_mem_live();
    oct_mem_fail_after(1);
    for (int step = 0; step < 3; step++)
        work(arena);
    oct_mem_fail_after(0);
    cr_assert_eq(oct_mem_live(), live);
    cr_assert_leq(live, oct_arena_peak(arena) * 5 / 4, "gaps waste a quarter at most");
    oct_arena_destroy(&arena);
}

Test(lending, rewound_memory_can_be_lent)
{
    oct_arena *arena;
    cr_assert_eq(oct_arena_create(&arena), OCT_OK);
    for (int step = 0; step < 4; step++) {
        if (step == 2) oct_mem_fail_after(1);
        cr_assert_not_null(oct_arena_take(arena, 10000000));
        oct_arena_rewind(arena, 0);
        void *a = oct_arena_borrow(arena, 6000000), *b = oct_arena_borrow(arena, 3900000);
        cr_assert(a && b);
        oct_arena_reset(arena);
    }
    oct_mem_fail_after(0);
    cr_assert_lt(oct_arena_peak(arena), 10000000 + 256);
    oct_arena_destroy(&arena);
}

Test(lending, failure_is_null_with_a_record)
{
    oct_arena *arena;
    cr_assert_eq(oct_arena_create(&arena), OCT_OK);
    for (int step = 0; step < 2; step++) { /* without and with one block for all */
        oct_mem_fail_after(1);
        cr_assert_null(oct_arena_borrow(arena, 1000));
        cr_assert_eq(oct_fail_code(), OCT_RESOURCE);
        oct_mem_fail_after(0);
        cr_assert_null(oct_arena_borrow(arena, SIZE_MAX));
        cr_assert_null(oct_arena_borrow(arena, SIZE_MAX - 64));
        oct_arena_give(arena, NULL);
        cr_assert_not_null(oct_arena_borrow(arena, 1000));
        oct_arena_reset(arena);
    }
    oct_arena_destroy(&arena);
    cr_assert_eq(oct_mem_live(), 0);
}

Test(lending, giving_twice_is_a_broken_invariant, .signal = SIGABRT)
{
    oct_arena *arena;
    cr_assert_eq(oct_arena_create(&arena), OCT_OK);
    cr_assert_not_null(oct_arena_borrow(arena, 100));
    oct_arena_reset(arena);
    void *a = oct_arena_borrow(arena, 100);
    oct_arena_give(arena, a);
    oct_arena_give(arena, a);
}
