/* Data sets in the IDX format. The input's first byte says how the images come: as they are, gzipped, or as
 * a .gz file that may be none; the next two how long they are; the labels follow. */
#include "tests/fuzz/dataset.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

const char *const fuzz_name = "idx";
const char *const *const fuzz_words = NULL;

enum { PLAIN, GZIPPED, CLAIMED, WAYS, HEAD = 3, MOST = 8192 };

static void seed_of(uint8_t way, int count, int label_type)
{
    uint8_t input[HEAD + 16 + 64 + 8 + 64] = {0};
    const size_t images = 16 + (size_t)count * 4;
    uint8_t *at = input + HEAD;
    input[0] = way;
    input[1] = (uint8_t)images;
    memcpy(at, (const uint8_t[]){0, 0, 8, 3, 0, 0, 0, (uint8_t)count, 0, 0, 0, 2, 0, 0, 0, 2}, 16);
    for (int i = 0; i < 4 * count; i++)
        at[16 + i] = (uint8_t)(i * 37);
    at += images;
    memcpy(at, (const uint8_t[]){0, 0, (uint8_t)label_type, 1, 0, 0, 0, (uint8_t)count}, 8);
    const int width = label_type == 8 ? 1 : label_type == 11 ? 2 : 4;
    for (int i = 0; i < count; i++)
        at[8 + i * width + width - 1] = (uint8_t)(i % 3);
    fuzz_seed(input, HEAD + images + 8 + (size_t)(count * width));
}

void fuzz_seeds(void)
{
    for (uint8_t way = 0; way < WAYS; way++) {
        seed_of(way, 5, 8);
        seed_of(way, 3, 11);
        seed_of(way, 4, 12);
    }
}

static size_t gzip(const uint8_t *data, size_t size, uint8_t *out, size_t room)
{
    z_stream z = {0};
    FUZZ_REQUIRE(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, 0) == Z_OK, "no deflate");
    z.next_in = (uint8_t *)(uintptr_t)data;
    z.avail_in = (unsigned)size;
    z.next_out = out;
    z.avail_out = (unsigned)room;
    FUZZ_REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END, "no room to deflate");
    deflateEnd(&z);
    return z.total_out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char images_name[] = "t10k-images-idx3-ubyte",
                      labels_name[] = "t10k-labels-idx1-ubyte";
    static uint8_t packed[2 * MOST + 100];
    if (size < HEAD || size > MOST) return 0;
    uint8_t way = data[0] % WAYS;
    size_t images = (size_t)(data[1] | data[2] << 8), rest = size - HEAD;
    if (images > rest) images = rest;
    char path[128];
    snprintf(path, sizeof path, "%s/%s%s", fuzz_folder(), images_name, way == PLAIN ? ".gz" : "");
    unlink(path);
    if (way == PLAIN)
        fuzz_file(images_name, data + HEAD, images);
    else if (way == CLAIMED)
        fuzz_file("t10k-images-idx3-ubyte.gz", data + HEAD, images);
    else
        fuzz_file("t10k-images-idx3-ubyte.gz", packed,
                  gzip(data + HEAD, images, packed, sizeof packed));
    fuzz_file(labels_name, data + HEAD + images, rest - images);
    fuzz_dataset(&oct_dataset_idx, size);
    return 0;
}
