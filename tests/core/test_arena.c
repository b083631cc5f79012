/* Arena and pool: alignment, reuse, and that a steady step allocates nothing. */
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
        cr_assert(strstr(oct_fail_text(0), "out of memory"));
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

Test(pool, blocks_of_every_size_are_aligned_and_writable)
{
    oct_pool *pool;
    cr_assert_eq(oct_pool_create(&pool), OCT_OK);
    size_t sizes = 0;
    for (size_t bytes = 0; bytes < 200000; bytes += 1 + bytes / 7, sizes++) {
        char *block = oct_pool_take(pool, bytes);
        cr_assert_not_null(block);
        cr_assert_eq((uintptr_t)block % 64, 0);
        memset(block, 1, bytes);
    }
    cr_assert_gt(sizes, 50);
    oct_pool_destroy(&pool);
    cr_assert_null(pool);
    oct_pool_destroy(&pool);
    cr_assert_eq(oct_mem_live(), 0);
}

Test(pool, at_most_a_quarter_is_wasted)
{
    for (size_t bytes = 64; bytes < 5000; bytes++) {
        oct_pool *pool;
        cr_assert_eq(oct_pool_create(&pool), OCT_OK);
        size_t before = oct_mem_live();
        cr_assert_not_null(oct_pool_take(pool, bytes));
        size_t block = oct_mem_live() - before - 64;
        cr_assert_geq(block, bytes);
        cr_assert_leq(4 * block, 5 * bytes, "%zu for %zu", block, bytes);
        oct_pool_destroy(&pool);
    }
}

Test(pool, a_given_block_serves_the_next_of_its_class)
{
    oct_pool *pool;
    cr_assert_eq(oct_pool_create(&pool), OCT_OK);
    void *a = oct_pool_take(pool, 1000);
    void *b = oct_pool_take(pool, 1000);
    cr_assert_neq(a, b);
    oct_pool_give(pool, a);
    oct_pool_give(pool, NULL);
    oct_mem_fail_after(1);
    cr_assert_eq(oct_pool_take(pool, 1010), a);
    cr_assert_null(oct_pool_take(pool, 1000));
    cr_assert_eq(oct_fail_code(), OCT_RESOURCE);
    cr_assert_null(oct_pool_take(pool, SIZE_MAX));
    oct_pool_destroy(&pool);
}

Test(pool, a_reset_takes_everything_back)
{
    oct_pool *pool;
    cr_assert_eq(oct_pool_create(&pool), OCT_OK);
    void *a = oct_pool_take(pool, 100), *b = oct_pool_take(pool, 100);
    oct_pool_give(pool, b);
    oct_pool_reset(pool);
    oct_mem_fail_after(1);
    void *c = oct_pool_take(pool, 100), *d = oct_pool_take(pool, 100);
    cr_assert((c == a && d == b) || (c == b && d == a));
    oct_mem_fail_after(0);
    oct_pool_destroy(&pool);
}

Test(pool, giving_twice_is_a_broken_invariant, .signal = SIGABRT)
{
    oct_pool *pool;
    cr_assert_eq(oct_pool_create(&pool), OCT_OK);
    void *a = oct_pool_take(pool, 100);
    oct_pool_give(pool, a);
    oct_pool_give(pool, a);
}
