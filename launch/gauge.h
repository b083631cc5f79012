/* Memory above a start, measured twice: what the allocator gave out, and how far the process's resident
 * pages grew, as one would measure any other program. The larger of the two is the figure: the
 * allocator misses what libraries take, and resident pages miss what was resident before. */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

typedef struct oct_gauge {
    int64_t live, resident; /* bytes at the start */
} oct_gauge;

/* Starts; the allocator's peak begins anew. */
oct_gauge oct_gauge_begin(void);
/* Peaks of what is behind are forgotten, the start is not: for what is to be measured alone but keeps
 * something of what came before. Where the system cannot forget, the resident peak stays. */
void oct_gauge_again(void);

/* This process's resident bytes now, and at most since the last oct_gauge_again. 0: not known. */
int64_t oct_gauge_resident(void);
int64_t oct_gauge_resident_peak(void);
int64_t oct_gauge_virtual(void); /* address space that is in use */

typedef struct oct_gauge_peak {
    int64_t allocated, resident, larger; /* bytes above the start */
} oct_gauge_peak;
oct_gauge_peak oct_gauge_read(const oct_gauge *gauge);
