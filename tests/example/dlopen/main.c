/* A program that knows nothing of Octet and has no OpenMP: ./main LIBRARY MODEL IMAGES loads the library, has it classify
 * 40 images of 12 x 12 bytes, and unloads it, 200 times. */
#include "frames.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { CYCLES = 200, IMAGES = 40, BYTES = 12 * 12 };

static int classify_once(const char *library, const char *model, const unsigned char *pixels,
                         int32_t *classes)
{
    int (*classify)(const char *, const unsigned char *, int, int32_t *);
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        return -1;
    }
    void *symbol = dlsym(handle, "frames_classify");
    memcpy(&classify, &symbol, sizeof classify);
    const int result = classify(model, pixels, IMAGES, classes);
    dlclose(handle);
    return result;
}

int main(int argc, char **argv)
{
    unsigned char pixels[IMAGES * BYTES];
    int32_t first[IMAGES], classes[IMAGES];
    int same = 0;
    FILE *images = argc == 4 ? fopen(argv[3], "rb") : NULL;
    if (!images || fread(pixels, BYTES, IMAGES, images) != IMAGES) {
        fprintf(stderr, "./main LIBRARY MODEL IMAGES: IMAGES has %d images of 12 x 12 bytes\n",
                IMAGES);
        return 2;
    }
    fclose(images);
    for (int cycle = 0; cycle < CYCLES; cycle++) {
        if (classify_once(argv[1], argv[2], pixels, classes) != 0) return 1;
        if (cycle == 0) memcpy(first, classes, sizeof first);
        same += memcmp(first, classes, sizeof first) == 0;
    }
    printf("the same %d classes %d times\n", IMAGES, same);
    return same == CYCLES ? 0 : 1;
}
