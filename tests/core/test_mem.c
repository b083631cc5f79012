/* The memory door: alignment, zeroing, accounting, overflow, failure on demand. */
#include "core/base/mem.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

Test(mem, blocks_are_aligned_and_zero_at_every_size)
{
    for (size_t bytes = 0; bytes < 3000; bytes = bytes * 5 / 4 + 1) {
        char *block, *dirty;
        cr_assert_eq(oct_alloc(&dirty, bytes, 1), OCT_OK);
        memset(dirty, 0xA5, bytes);
        oct_free(&dirty);
        cr_assert_eq(oct_alloc(&block, bytes, 1), OCT_OK);
        cr_assert_not_null(block);
        cr_assert_eq((uintptr_t)block % 64, 0);
        for (size_t i = 0; i < bytes; i++)
            cr_assert_eq(block[i], 0);
        oct_free(&block);
    }
}

Test(mem, free_clears_the_pointer_and_takes_null)
{
    int *block;
    cr_assert_eq(oct_alloc(&block, 3, sizeof *block), OCT_OK);
    oct_free(&block);
    cr_assert_null(block);
    oct_free(&block);
    cr_assert_null(block);
}

Test(mem, live_and_peak_are_counted)
{
    size_t start = oct_mem_live();
    char *a, *b;
    cr_assert_eq(oct_alloc(&a, 1000, 1), OCT_OK);
    cr_assert_eq(oct_alloc(&b, 500, 2), OCT_OK);
    cr_assert_eq(oct_mem_live(), start + 2000);
    oct_free(&a);
    cr_assert_eq(oct_mem_live(), start + 1000);
    cr_assert_geq(oct_mem_peak(), start + 2000);
    oct_mem_peak_reset();
    cr_assert_eq(oct_mem_peak(), start + 1000);
    oct_free(&b);
    cr_assert_eq(oct_mem_live(), start);
}

Test(mem, overflow_is_a_sentence)
{
    char *block = (char *)&block;
    cr_assert_eq(oct_alloc(&block, SIZE_MAX / 2, 3), OCT_RESOURCE);
    cr_assert_null(block);
    cr_assert(strstr(oct_error_message(0), "more than any machine has"));
    cr_assert_eq(oct_alloc(&block, SIZE_MAX, 1), OCT_RESOURCE);
    cr_assert_eq(oct_alloc(&block, SIZE_MAX / 4, 1), OCT_RESOURCE);
    cr_assert(strstr(oct_error_message(0), "more than any machine has"));
    cr_assert_eq(oct_mem_live(), 0);
}

Test(mem, the_nth_allocation_fails_when_asked_to)
{
    int *block[3];
    oct_mem_fail_after(2);
    cr_assert_eq(oct_alloc(&block[0], 1, 4), OCT_OK);
    cr_assert_eq(oct_alloc(&block[1], 1, 4), OCT_RESOURCE);
    cr_assert_null(block[1]);
    cr_assert_str_eq(oct_error_message(0),
                     "out of memory: 4 bytes asked, 4 bytes in use; use a smaller "
                     "batch or more memory");
    cr_assert_eq(oct_alloc(&block[2], 1, 4), OCT_OK);
    oct_mem_fail_after(1);
    oct_mem_fail_after(0);
    cr_assert_eq(oct_alloc(&block[1], 1, 4), OCT_OK);
    for (int i = 0; i < 3; i++)
        oct_free(&block[i]);
}

Test(mem, growing_keeps_contents_and_zeroes_the_rest)
{
    int *block = NULL;
    size_t capacity = 0;
    for (int i = 0; i < 1000; i++) {
        cr_assert_eq(oct_grow(&block, &capacity, (size_t)i + 1, sizeof *block), OCT_OK);
        cr_assert_gt(capacity, (size_t)i);
        for (size_t j = (size_t)i; j < capacity; j++)
            cr_assert_eq(block[j], 0);
        block[i] = i + 1;
    }
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(block[i], i + 1);
    size_t before = capacity;
    cr_assert_eq(oct_grow(&block, &capacity, 5, sizeof *block), OCT_OK);
    cr_assert_eq(capacity, before);
    cr_assert_eq(oct_grow(&block, &capacity, SIZE_MAX / 2, sizeof *block), OCT_RESOURCE);
    cr_assert_eq(capacity, before);
    cr_assert_eq(block[999], 1000);
    oct_free(&block);
}

Test(mem, texts_are_copied_and_formatted)
{
    char *copy, *text;
    cr_assert_eq(oct_strdup(&copy, "layers.0"), OCT_OK);
    cr_assert_eq(oct_format(&text, "%s.%s %d", copy, "weight", 7), OCT_OK);
    cr_assert_str_eq(text, "layers.0.weight 7");
    oct_free(&copy);
    oct_free(&text);
    oct_mem_fail_after(1);
    cr_assert_eq(oct_strdup(&copy, "x"), OCT_RESOURCE);
    cr_assert_null(copy);
    oct_mem_fail_after(1);
    cr_assert_eq(oct_format(&text, "%d", 1), OCT_RESOURCE);
    cr_assert_null(text);
}

static void *allocate_much(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        char *block;
        if (oct_alloc(&block, (size_t)(i % 100), 1) == OCT_OK) oct_free(&block);
    }
    return NULL;
}

Test(mem, counting_survives_threads)
{
    size_t start = oct_mem_live();
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, allocate_much, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    cr_assert_eq(oct_mem_live(), start);
}
