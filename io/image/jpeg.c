/* JPEG by libturbojpeg, the one door to it.
 *
 * Its warnings are about data that is damaged or missing, for which it would put grey: here they are failures.
 * A Huffman-coded block of 64 values takes a bit at least, which bounds what a short file can claim.
 */
#include "io/image/decode.h"

#include "core/base/mem.h"

#include <string.h>
#include <turbojpeg.h>

enum { VALUES_A_BYTE = 512, LIBRARY_ROOM = 1 << 20 };
enum { FLAGS = TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS };

static oct_status damaged(const oct_encoded *file, tjhandle decoder)
{
    return oct_fail(OCT_DATA, "%s: is a JPEG file that is damaged, cut short or of a rare kind: %s",
                    file->name, tjGetErrorStr2(decoder));
}

static oct_status read_header(tjhandle decoder, const oct_encoded *file, oct_image_header *header)
{
    int w = 0, h = 0, sampling = 0, colours = 0;
    if (tjDecompressHeader3(decoder, file->bytes, file->size, &w, &h, &sampling, &colours) != 0)
        return damaged(file, decoder);
    *header = (oct_image_header){.h = h, .w = w, .c = colours == TJCS_GRAY ? 1 : 3};
    header->bytes_min = (size_t)h * (size_t)w / VALUES_A_BYTE;
    return OCT_OK;
}

static oct_status look(const oct_encoded *file, oct_image_header *header)
{
    tjhandle decoder = tjInitDecompress();
    OCT_CHECK(decoder, OCT_RESOURCE, "%s: cannot be decoded: out of memory", file->name);
    oct_status status = read_header(decoder, file, header);
    tjDestroy(decoder);
    return status;
}

static uint8_t times(unsigned a, unsigned b) /* a * b / 255, rounded */
{
    const unsigned product = a * b + 128;
    return (uint8_t)((product + (product >> 8)) >> 8);
}

/* Files store the complements of cyan, magenta, yellow and black, as Adobe's programs began to. */
static void from_cmyk(const uint8_t *cmyk, int64_t pixels, uint8_t *rgb)
{
    for (int64_t i = 0; i < pixels; i++)
        for (int k = 0; k < 3; k++) {
            const unsigned ink = UINT8_MAX - cmyk[4 * i + k], light = cmyk[4 * i + 3];
            rgb[3 * i + k] = (uint8_t)(light - times(ink, light));
        }
}

static oct_status decode_cmyk(tjhandle decoder, const oct_encoded *file,
                              const oct_image_header *header, uint8_t *pixels)
{
    const int64_t count = header->h * header->w;
    uint8_t *cmyk = NULL;
    OCT_TRY(oct_alloc(&cmyk, (size_t)count, 4));
    oct_status status = OCT_OK;
    if (tjDecompress2(decoder, file->bytes, file->size, cmyk, (int)header->w, 0, (int)header->h,
                      TJPF_CMYK, FLAGS) != 0)
        status = damaged(file, decoder);
    else
        from_cmyk(cmyk, count, pixels);
    oct_free(&cmyk);
    return status;
}

static oct_status decode_with(tjhandle decoder, const oct_encoded *file,
                              const oct_image_header *header, uint8_t *pixels)
{
    int w, h, sampling, colours = TJCS_RGB;
    if (tjDecompressHeader3(decoder, file->bytes, file->size, &w, &h, &sampling, &colours) != 0)
        return damaged(file, decoder);
    if (colours == TJCS_CMYK || colours == TJCS_YCCK)
        return decode_cmyk(decoder, file, header, pixels);
    if (tjDecompress2(decoder, file->bytes, file->size, pixels, (int)header->w, 0, (int)header->h,
                      header->c == 1 ? TJPF_GRAY : TJPF_RGB, FLAGS) != 0)
        return damaged(file, decoder);
    return OCT_OK;
}

static oct_status decode(const oct_encoded *file, const oct_image_header *header, uint8_t *pixels)
{
    /* A progressive file's coefficients lie in the library's memory: two bytes each, of four colours. */
    OCT_TRY(oct_mem_check_available(LIBRARY_ROOM + 8 * (size_t)(header->h * header->w)));
    tjhandle decoder = tjInitDecompress();
    OCT_CHECK(decoder, OCT_RESOURCE, "%s: cannot be decoded: out of memory", file->name);
    oct_status status = decode_with(decoder, file, header, pixels);
    tjDestroy(decoder);
    return status;
}

const oct_image_kind oct_image_kind_jpeg = {
    .name = "JPEG",
    .begin = "\xff\xd8\xff",
    .begin_bytes = 3,
    .look = look,
    .decode = decode,
};
