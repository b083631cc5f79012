/* The test part of data sets whose files have none: each sample draws a number; those with the smallest are the test. */
#include "io/dataset/dataset.h"

#include "core/base/mem.h"
#include "core/base/rng.h"

#include <stdlib.h>

typedef struct ticket {
    uint64_t number;
    int64_t position;
} ticket;

static int compare_numbers(const void *a, const void *b)
{
    const ticket *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

static int compare_positions(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

oct_status oct_split_choose(const oct_split_draw *draw, oct_split split, int64_t **positions,
                            int64_t *chosen)
{
    OCT_ASSERT(draw->count >= 2 || draw->share >= 1);
    const int64_t wanted = (int64_t)((double)draw->count * draw->share + 0.5);
    const int64_t test = draw->share >= 1        ? draw->count
                         : wanted < 1            ? 1
                         : wanted >= draw->count ? draw->count - 1
                                                 : wanted;
    const int64_t first = split == OCT_TEST ? 0 : test;
    OCT_OWNED(oct_free) ticket *tickets = NULL;
    *positions = NULL;
    *chosen = split == OCT_TEST ? test : draw->count - test;
    OCT_TRY(oct_alloc(&tickets, (size_t)draw->count, sizeof *tickets));
    OCT_TRY(oct_alloc(positions, (size_t)*chosen, sizeof **positions));
    for (int64_t i = 0; i < draw->count; i++) {
        uint32_t word[4];
        oct_philox(draw->seed, OCT_STREAM_SPLIT, (uint64_t)i, draw->part, word);
        tickets[i] = (ticket){(uint64_t)word[0] << 32 | word[1], i};
    }
    qsort(tickets, (size_t)draw->count, sizeof *tickets, compare_numbers);
    for (int64_t i = 0; i < *chosen; i++)
        (*positions)[i] = tickets[first + i].position;
    qsort(*positions, (size_t)*chosen, sizeof **positions, compare_positions);
    return OCT_OK;
}

oct_status oct_split_file(const char *folder, const char *extension, const char *expected,
                          oct_split split, bool *drawn, oct_path *path)
{
    static const char *const words[] = {"test", "val"};
    oct_path train;
    OCT_TRY(oct_path_make(&train, "%s/train%s", folder, extension));
    OCT_CHECK(oct_file_exists(train.text), OCT_DATA, "%s: holds no train%s; %s", folder, extension,
              expected);
    *drawn = true;
    for (size_t i = 0; i < OCT_COUNT(words) && *drawn; i++) {
        OCT_TRY(oct_path_make(path, "%s/%s%s", folder, words[i], extension));
        *drawn = !oct_file_exists(path->text);
    }
    if (*drawn || split == OCT_TRAIN) *path = train;
    return OCT_OK;
}
