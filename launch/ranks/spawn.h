/* Small programs are asked something while ranks are started. */
#pragma once

#include "core/base/status.h"

#include <sys/types.h>

/* Starts a program of PATH in a process group of its own, without stdin; stdout and stderr go to `out` (-1:
 * nowhere). *pid is to be ended by oct_spawn_end; false with errno where it cannot be started. */
bool oct_spawn(const char *const *argv, int out, pid_t *pid);
/* True when it has ended; *well: with status 0. */
bool oct_spawn_over(pid_t pid, bool *well);
/* Ends a program that has not ended, and its group. */
void oct_spawn_end(pid_t pid);
