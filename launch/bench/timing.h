/* A repetition is timed by the clock and by the processor time that this process took for it. On a
 * machine with other work the second is the steadier one. */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

typedef struct oct_timings {
    int64_t count, room;
    double *seconds, *cpu; /* of each repetition; cpu: of all threads together */
    double began, cpu_began;
} oct_timings;

/* Makes room; oct_timings_free frees it, also after a failure. */
oct_status oct_timings_create(oct_timings *timings, int64_t room) OCT_NODISCARD;
void oct_timings_free(oct_timings *timings);
void oct_timing_begin(oct_timings *timings);
void oct_timing_end(oct_timings *timings);

typedef struct oct_timing {
    double seconds, least, cpu; /* medians, and the least of the seconds */
} oct_timing;
oct_timing oct_timings_median(oct_timings *timings); /* of at least one; sorts them */

/* Repeats the call until that much of the processor's time has passed; the seconds of one. */
double oct_time_call(void (*call)(void *user), void *user, double at_least);
double oct_median(double *values, int64_t n); /* of n > 0, which are sorted */
