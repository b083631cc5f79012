/* JPEG and PNG files: pixels, or refused by name. The checksums of PNG's chunks are put right, so that
 * what they protect is looked at. */
#include "core/base/mem.h"
#include "io/image/decode.h"
#include "tests/fuzz/fuzz.h"
#include "tests/golden/image_golden.h"

#include <string.h>
#include <zlib.h>

const char *const fuzz_name = "picture";
const char *const *const fuzz_words = NULL;

void fuzz_seeds(void)
{
    for (size_t i = 0; i < OCT_COUNT(image_golden); i++)
        fuzz_seed(image_golden[i].bytes, image_golden[i].size);
}

static void repair_chunks(uint8_t *data, size_t size)
{
    enum { SIGNATURE = 8, AROUND = 12 };
    for (size_t at = SIGNATURE; size >= AROUND && at <= size - AROUND;) {
        const size_t bytes = (size_t)data[at] << 24 | (size_t)data[at + 1] << 16 |
                             (size_t)data[at + 2] << 8 | (size_t)data[at + 3];
        if (bytes > size - at - AROUND) return;
        const uint32_t sum = (uint32_t)crc32(0, data + at + 4, (unsigned)bytes + 4);
        for (size_t i = 0; i < 4; i++)
            data[at + 8 + bytes + i] = (uint8_t)(sum >> (24 - 8 * i));
        at += AROUND + bytes;
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    size = fuzz_mutate(data, size, max, seed);
    if (oct_image_kind_of(data, size) == &oct_image_kind_png && seed % 8 > 0)
        repair_chunks(data, size);
    return size;
}

static void decode_as(const uint8_t *data, size_t size, int64_t channels)
{
    oct_image image = {0};
    const oct_encoded file = {data, size, "some.picture"};
    fuzz_call call = fuzz_begin(size);
    oct_status status = oct_image_decode(&image, &file, channels);
    fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA), "some.picture");
    if (status == OCT_OK) {
        volatile uint8_t sum = 0;
        FUZZ_REQUIRE(image.h > 0 && image.w > 0 && image.c == channels, "an empty image");
        for (int64_t i = 0; i < oct_image_numel(&image); i++)
            sum = (uint8_t)(sum + ((const uint8_t *)image.data)[i]);
    }
    oct_image_free(&image);
    fuzz_end(&call, 8 * 1032 * 4, (size_t)1 << 20);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    decode_as(data, size, 3);
    decode_as(data, size, 1);
    return 0;
}
