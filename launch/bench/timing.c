/* This keeps times and finds medians. */
#include "launch/bench/timing.h"

#include "core/base/mem.h"
#include "core/base/text.h"

#include <stdlib.h>
#include <time.h>

oct_status oct_timings_create(oct_timings *timings, int64_t room)
{
    *timings = (oct_timings){.room = room};
    OCT_TRY(oct_alloc(&timings->seconds, (size_t)room, sizeof(double)));
    return oct_alloc(&timings->cpu, (size_t)room, sizeof(double));
}

void oct_timings_free(oct_timings *timings)
{
    oct_free(&timings->seconds);
    oct_free(&timings->cpu);
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double oct_time_call(void (*call)(void *user), void *user, double at_least)
{
    const double begin = cpu_seconds();
    double passed = 0;
    int64_t calls = 0;
    do {
        call(user);
        calls++;
        passed = cpu_seconds() - begin;
    } while (passed < at_least);
    return passed / (double)calls;
}

void oct_timing_begin(oct_timings *timings)
{
    OCT_ASSERT(timings->count < timings->room);
    timings->cpu_began = cpu_seconds();
    timings->began = oct_seconds();
}

void oct_timing_end(oct_timings *timings)
{
    timings->seconds[timings->count] = oct_seconds() - timings->began;
    timings->cpu[timings->count] = cpu_seconds() - timings->cpu_began;
    timings->count++;
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

oct_timing oct_timings_median(oct_timings *timings)
{
    double seconds = oct_median(timings->seconds, timings->count);
    return (oct_timing){
        .seconds = seconds,
        .least = timings->seconds[0],
        .cpu = oct_median(timings->cpu, timings->count),
    };
}
