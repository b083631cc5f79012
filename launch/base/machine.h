/* This says what the machine has left for a run that begins now. */
#pragma once

#include <stdint.h>

/* Returns the bytes that processes may still take, by the kernel's estimate and the limits of this
 * process, of its control group and of those above that. -1: not known. */
int64_t oct_machine_memory(void);
/* Returns the bytes that this user may still write below `folder`, or below the nearest folder above it
 * that exists. -1: not known. */
int64_t oct_machine_disk(const char *folder);
/* Returns how many cores this process was started on, or fewer where control groups limit its CPU time; at least 1. */
int64_t oct_machine_cores(void);
/* OMP_PROC_BIND, OMP_PLACES and GOMP_CPU_AFFINITY have the OpenMP runtime bind this process before main, and would bind
 * all ranks of a host to the same cores: they are taken away, and the cores are those that it was started on. */
void oct_machine_unbind(void);

/* The meter measures memory above a start, twice: what the allocator gave out, and how far the process's resident
 * pages grew, as one would measure any other program. The larger of the two is the figure: the
 * allocator misses what libraries take, and resident pages miss what was resident before. */
typedef struct oct_memory_meter {
    int64_t live, resident; /* bytes at the start */
} oct_memory_meter;

/* Starts a measurement; resets the allocator's peak. */
oct_memory_meter oct_memory_meter_begin(void);
/* Sets the peaks back to what is in use now; the start of the meter stays. For a part that is measured alone but keeps
 * memory of what came before. Where the system cannot do so, the resident peak stays. */
void oct_memory_reset_peak(void);

/* This process's resident bytes now, and at most since the last oct_memory_reset_peak. 0: not known. */
int64_t oct_memory_resident(void);
int64_t oct_memory_resident_peak(void);
int64_t oct_memory_virtual(void); /* address space that is in use */

typedef struct oct_memory_growth {
    int64_t allocated, resident, larger; /* bytes above the start */
} oct_memory_growth;
/* Returns how far memory was above the start of the meter, at its peak. */
oct_memory_growth oct_memory_meter_read(const oct_memory_meter *memory_meter);
