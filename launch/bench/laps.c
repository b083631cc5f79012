/* Laps and medians. */
#include "launch/bench/laps.h"

#include "core/base/mem.h"
#include "core/base/text.h"

#include <stdlib.h>
#include <time.h>

oct_status oct_laps_create(oct_laps *laps, int64_t room)
{
    *laps = (oct_laps){.room = room};
    OCT_TRY(oct_alloc(&laps->seconds, (size_t)room, sizeof(double)));
    return oct_alloc(&laps->cpu, (size_t)room, sizeof(double));
}

void oct_laps_free(oct_laps *laps)
{
    oct_free(&laps->seconds);
    oct_free(&laps->cpu);
}

double oct_cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void oct_lap_begin(oct_laps *laps)
{
    OCT_ASSERT(laps->count < laps->room);
    laps->cpu_began = oct_cpu_seconds();
    laps->began = oct_seconds();
}

void oct_lap_end(oct_laps *laps)
{
    laps->seconds[laps->count] = oct_seconds() - laps->began;
    laps->cpu[laps->count] = oct_cpu_seconds() - laps->cpu_began;
    laps->count++;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double oct_median(double *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof(double), by_value);
    return values[n / 2];
}

oct_lap oct_laps_median(oct_laps *laps)
{
    double seconds = oct_median(laps->seconds, laps->count);
    return (oct_lap){
        .seconds = seconds,
        .least = laps->seconds[0],
        .cpu = oct_median(laps->cpu, laps->count),
    };
}
