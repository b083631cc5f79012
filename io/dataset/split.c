/* Each sample draws a number; those with the smallest are the test. */
#include "io/dataset/dataset.h"

#include "core/base/mem.h"
#include "core/base/rng.h"

#include <stdlib.h>

typedef struct ticket {
    uint64_t number;
    int64_t position;
} ticket;

static int by_number(const void *a, const void *b)
{
    const ticket *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

static int by_position(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static int64_t test_count(const oct_split_draw *d)
{
    const int64_t wanted = (int64_t)((double)d->count * d->share + 0.5);
    if (d->share >= 1) return d->count;
    return wanted < 1 ? 1 : wanted >= d->count ? d->count - 1 : wanted;
}

oct_status oct_split_choose(const oct_split_draw *draw, oct_split split, int64_t **positions,
                            int64_t *chosen)
{
    OCT_ASSERT(draw->count >= 2 || draw->share >= 1);
    const int64_t test = test_count(draw);
    const int64_t first = split == OCT_TEST ? 0 : test;
    ticket *tickets = NULL;
    oct_status status = OCT_OK;
    *positions = NULL;
    *chosen = split == OCT_TEST ? test : draw->count - test;
    OCT_TRY_OUT(oct_alloc(&tickets, (size_t)draw->count, sizeof *tickets));
    OCT_TRY_OUT(oct_alloc(positions, (size_t)*chosen, sizeof **positions));
    for (int64_t i = 0; i < draw->count; i++) {
        uint32_t word[4];
        oct_philox(draw->seed, OCT_STREAM_SPLIT, (uint64_t)i, draw->part, word);
        tickets[i] = (ticket){(uint64_t)word[0] << 32 | word[1], i};
    }
    qsort(tickets, (size_t)draw->count, sizeof *tickets, by_number);
    for (int64_t i = 0; i < *chosen; i++)
        (*positions)[i] = tickets[first + i].position;
    qsort(*positions, (size_t)*chosen, sizeof **positions, by_position);
out:
    oct_free(&tickets);
    return status;
}

oct_status oct_split_file(const char *folder, const char *extension, const char *expected,
                          oct_split split, bool *drawn, char **path)
{
    static const char *const words[] = {"train", "test", "val"};
    char *file[3] = {0};
    oct_status status = OCT_OK;
    for (int i = 0; i < 3; i++)
        OCT_TRY_OUT(oct_format(&file[i], "%s/%s%s", folder, words[i], extension));
    OCT_CHECK_OUT(oct_file_exists(file[0]), OCT_DATA, "%s: holds no train%s; %s", folder, extension,
                  expected);
    const int test = oct_file_exists(file[1]) ? 1 : 2;
    *drawn = !oct_file_exists(file[test]);
    status = oct_strdup(path, file[*drawn || split == OCT_TRAIN ? 0 : test]);
out:
    for (int i = 0; i < 3; i++)
        oct_free(&file[i]);
    return status;
}
