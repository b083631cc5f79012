/* Host, environment and processes, as the system knows them. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

enum { OCT_HOST_BYTES = 64 };
/* The name of this host, cut where it is longer. */
void oct_host_name(char host[OCT_HOST_BYTES]);
/* Reads a file of a process from /proc, up to size - 1 bytes and a NUL; -1 when it cannot be opened. */
ssize_t oct_process_read(int pid, const char *file, char *text, size_t size);
/* 'R' and 'S' run or wait, 'T' is stopped, 'Z' has ended, 0 is gone. */
char oct_process_state(int pid);
