/* What the library of frames.c exports. */
#pragma once

#include <stdint.h>

/* The class of each of `count` images of 12 x 12 bytes, by the model in a file; -1 after a failure, which it prints. */
__attribute__((visibility("default"))) int
frames_classify(const char *model, const unsigned char *pixels, int count, int32_t *classes);
