/* The meter measures memory above a start, twice: what the allocator gave out, and how far the process's resident
 * pages grew, as one would measure any other program. The larger of the two is the figure: the
 * allocator misses what libraries take, and resident pages miss what was resident before. */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

typedef struct oct_memory_meter {
    int64_t live, resident; /* bytes at the start */
} oct_memory_meter;

/* Starts a measurement; resets the allocator's peak. */
oct_memory_meter oct_memory_meter_begin(void);
/* Forgets the peaks so far, but not the start: for what is measured alone but keeps memory of what came
 * before. Where the system cannot forget, the resident peak stays. */
void oct_memory_reset_peak(void);

/* This process's resident bytes now, and at most since the last oct_memory_reset_peak. 0: not known. */
int64_t oct_memory_resident(void);
int64_t oct_memory_resident_peak(void);
int64_t oct_memory_virtual(void); /* address space that is in use */

typedef struct oct_memory_growth {
    int64_t allocated, resident, larger; /* bytes above the start */
} oct_memory_growth;
oct_memory_growth oct_memory_meter_read(const oct_memory_meter *memory_meter);
