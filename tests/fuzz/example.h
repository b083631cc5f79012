/* A deployment example as it is: EXAMPLE is its file. Its output is discarded. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>

#define main example_main
#define printf(...) snprintf(NULL, 0, __VA_ARGS__)
#include EXAMPLE
#undef main
#undef printf

/* Classifies black images; `model` is what the example takes. */
#define FUZZ_EXAMPLE(model)                                                                        \
    do {                                                                                           \
        static char pixels[4096];                                                                  \
        FILE *images = fmemopen(pixels, sizeof pixels, "rb");                                      \
        FUZZ_REQUIRE(images, "no images");                                                         \
        fuzz_said(classify(model, images),                                                         \
                  FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA) | FUZZ_BIT(OCT_PREPARE), NULL);            \
        fclose(images);                                                                            \
    } while (0)
