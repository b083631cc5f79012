/* Whatever file people give to `octet run`: images of the wanted size, or refused by name. */
#include "core/base/mem.h"
#include "launch/cmd/run.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

const char *const fuzz_name = "image";
static const char *const words[] = {"P5",
                                    "P6",
                                    "P2",
                                    " 4 3 255\n",
                                    "#",
                                    "\n",
                                    "65535",
                                    "-1",
                                    "\x89PNG\r\n\x1a\n",
                                    "\xff\xd8\xff\xe0",
                                    "GIF89a",
                                    "\x1f\x8b\x08",
                                    "BM",
                                    "RIFF",
                                    NULL};
const char *const *const fuzz_words = words;

enum { H = 3, W = 4 };

void fuzz_seeds(void)
{
    static const char pgm[] = "P5\n# a comment\n4 3\n255\nabcdefghijkl";
    static const char ppm[] = "P6 4 3 255\nabcdefghijklabcdefghijklabcdefghijkl";
    static const uint8_t idx[16 + 24] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 9};
    static const uint8_t raw[48] = {1, 2, 3};
    static const char npy[] = "\x93NUMPY\1\0\x4d\0{'descr': '<f4', 'fortran_order': False, "
                              "'shape': (1, 3, 4, 1), }           \n"
                              "numbersnumbersnumbersnumbersnumbersnumbersnumber";
    fuzz_seed(pgm, sizeof pgm - 1);
    fuzz_seed(ppm, sizeof ppm - 1);
    fuzz_seed(idx, sizeof idx);
    fuzz_seed(raw, sizeof raw);
    fuzz_seed(npy, sizeof npy - 1);
}

static void read_as(const char *path, size_t size, int64_t c, bool to_size)
{
    static const oct_recipe recipe;
    const oct_augment augment = {.h = H, .w = W};
    const oct_image_wanted wanted = {
        .h = H, .w = W, .c = c, .augment = to_size ? &augment : NULL, .raw = c == 1};
    oct_dataset data;
    oct_image image = {0};
    fuzz_call call = fuzz_begin(size);
    oct_status status = oct_images_open(&data, path, &recipe, &wanted);
    const int64_t last = data.count - 1;
    if (status == OCT_OK && data.count > 0)
        status = oct_images_read(&data, last, path, &wanted, &image);
    fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA) | FUZZ_BIT(OCT_USAGE),
              status == OCT_DATA ? path : NULL);
    if (status == OCT_OK && data.count > 0) {
        volatile uint8_t sum = 0;
        for (size_t i = 0; i < (size_t)(H * W * c) * oct_dtype_bytes(image.dtype); i++)
            sum = (uint8_t)(sum + ((const uint8_t *)image.data)[i]);
    }
    oct_image_free(&image);
    oct_dataset_close(&data);
    fuzz_end(&call, 1100, (size_t)8 << 20);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file("input.img", data, size);
    read_as(path, size, 1, true);
    read_as(path, size, 1, false);
    read_as(path, size, 3, true);
    return 0;
}
