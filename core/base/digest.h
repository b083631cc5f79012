/* A digest shows whether two runs of memory are the same. It is quick, and no proof against whoever makes
 * files; those have SHA-256 (io/file/file.h). */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Memory that differs in one word always has another digest. */
uint64_t oct_digest(const void *data, size_t bytes);
