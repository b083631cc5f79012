/* This says what the machine has left for a run that begins now. */
#pragma once

#include <stdint.h>

/* Returns the bytes that processes may still take, by the kernel's estimate and the limits of this
 * process and of its control group. -1: not known. */
int64_t oct_machine_memory(void);
/* Returns the bytes that this user may still write below `folder`, or below the nearest folder above it
 * that exists. -1: not known. */
int64_t oct_machine_disk(const char *folder);
