/* Repetitions of something, timed by the clock and by the processor time that this process took for it.
 * On a machine with other work the second is the steadier one. */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

typedef struct oct_laps {
    int64_t count, room;
    double *seconds, *cpu; /* of each lap; cpu: of all threads together */
    double began, cpu_began;
} oct_laps;

/* Freed by oct_laps_free, also after a failure. */
oct_status oct_laps_create(oct_laps *laps, int64_t room) OCT_NODISCARD;
void oct_laps_free(oct_laps *laps);
void oct_lap_begin(oct_laps *laps);
void oct_lap_end(oct_laps *laps);

typedef struct oct_lap {
    double seconds, least, cpu; /* medians, and the least of the seconds */
} oct_lap;
oct_lap oct_laps_median(oct_laps *laps); /* of at least one; sorts them */

double oct_cpu_seconds(void);                 /* of this process so far */
double oct_median(double *values, int64_t n); /* of n > 0, which are sorted */
