/* What all kinds of encoded images have in common: the table, limits, and the number of channels. */
#include "io/image/decode.h"

#include "core/base/mem.h"
#include "io/file/file.h"

#include <inttypes.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 28 };

static const oct_image_kind *const kinds[] = {
#define OCT_IMAGE_KIND(file) &oct_image_kind_##file,
#include "io/image/kind_list.def"
#undef OCT_IMAGE_KIND
};

const oct_image_kind *oct_image_kind_of(const void *bytes, size_t size)
{
    for (size_t i = 0; i < OCT_COUNT(kinds); i++)
        if (size >= kinds[i]->begin_bytes &&
            memcmp(bytes, kinds[i]->begin, kinds[i]->begin_bytes) == 0)
            return kinds[i];
    return NULL;
}

/* Refuses an image without pixels, too large a one, or one that the bytes of its file cannot hold. */
static oct_status check_header(const oct_encoded *file, const oct_image_header *header)
{
    OCT_CHECK(header->h > 0 && header->w > 0, OCT_DATA, "%s: is damaged: it has no pixels",
              file->name);
    OCT_CHECK(header->h <= OCT_IMAGE_SIDE_MAX && header->w <= OCT_IMAGE_SIDE_MAX &&
                  header->h * header->w * 4 <= OCT_IMAGE_BYTES_MAX,
              OCT_DATA,
              "%s: its header says %" PRId64 "x%" PRId64
              " pixels; at most %d a side and %d million in all are read; make it smaller",
              file->name, header->h, header->w, OCT_IMAGE_SIDE_MAX,
              (int)(OCT_IMAGE_BYTES_MAX / 4 / 1000000));
    OCT_CHECK(file->size >= header->bytes_min, OCT_DATA,
              "%s: is damaged or cut short: its header says %" PRId64 "x%" PRId64
              " pixels, for which %zu bytes are too few",
              file->name, header->h, header->w, file->size);
    return OCT_OK;
}

/* Converts from_c to to_c channels in place: from the last pixel when pixels become larger, else from the first. */
static void convert_channels(uint8_t *data, int64_t pixels, int64_t from_c, int64_t to_c)
{
    const bool grows = to_c > from_c;
    for (int64_t n = 0; n < pixels && to_c != from_c; n++) {
        const int64_t i = grows ? pixels - 1 - n : n;
        uint8_t *to = data + i * to_c;
        const uint8_t *from = data + i * from_c;
        const uint32_t grey = 19595U * from[0] + 38470U * from[1] + 7471U * from[2] + 32768U;
        const uint8_t first = from_c >= 3 && to_c == 1 ? (uint8_t)(grey >> 16) : from[0];
        const uint8_t second = from[from_c >= 3], third = from[from_c >= 3 ? 2 : 0];
        to[0] = first;
        if (to_c >= 3) to[1] = second, to[2] = third;
        if (to_c == 4) to[3] = UINT8_MAX;
    }
}

oct_status oct_image_decode(oct_image *image, const oct_encoded *file, int64_t channels)
{
    const oct_image_kind *kind = oct_image_kind_of(file->bytes, file->size);
    const bool map = channels == OCT_CLASS_MAP;
    oct_image_header header = {0};
    OCT_ASSERT(map || channels == 1 || channels == 3 || channels == 4);
    OCT_CHECK(!map || (kind && kind->decode_numbers), OCT_DATA,
              "%s: a map of classes is a PNG file, which loses no number", file->name);
    OCT_CHECK(file->size > 0, OCT_DATA, "%s: the file is empty", file->name);
    OCT_CHECK(kind, OCT_DATA, "%s: is no JPEG or PNG file by its first bytes", file->name);
    OCT_TRY(kind->decode(file, &header, NULL));
    OCT_TRY(check_header(file, &header));
    if (map) {
        OCT_TRY(oct_image_resize(image, OCT_S32, header.h, header.w, 1));
        return kind->decode_numbers(file, &header, image->data);
    }
    const int64_t most = header.c > channels ? header.c : channels;
    OCT_TRY(oct_image_resize(image, OCT_U8, header.h, header.w, most));
    OCT_TRY(kind->decode(file, &header, image->data));
    convert_channels(image->data, header.h * header.w, header.c, channels);
    image->c = channels;
    image->warned = header.warnings > 0;
    return OCT_OK;
}

oct_status oct_image_read(oct_image *image, const char *path, int64_t channels)
{
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size;
    OCT_TRY(oct_file_read(path, FILE_BYTES_MAX, &bytes, &size));
    const oct_encoded file = {bytes, size, path};
    return oct_image_decode(image, &file, channels);
}
