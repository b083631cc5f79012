/* This says what the machine has left for a run that begins now. */
#pragma once

#include <stdint.h>

/* Returns the bytes that processes may still take, by the kernel's estimate and the limits of this
 * process and of its control group. -1: not known. */
int64_t oct_machine_memory(void);
/* Returns the bytes that this user may still write below `folder`, or below the nearest folder above it
 * that exists. -1: not known. */
int64_t oct_machine_disk(const char *folder);
/* Counts the cores that this process was started on, or of how many its control groups give it the time; at least 1. */
int64_t oct_machine_cores(void);
/* OMP_PROC_BIND, OMP_PLACES and GOMP_CPU_AFFINITY have the OpenMP runtime bind this process before main, and would bind
 * all ranks of a host to the same cores: they are taken away, and the cores are those that it was started on. */
void oct_machine_unbind(void);
