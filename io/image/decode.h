/* Encoded images: files of JPEG and PNG become pixels. The kinds are a table (kind_list.def); a file's
 * first bytes say which it is, whatever its name.
 *
 * Files are untrusted: the size in the header is held against OCT_IMAGE_SIDE_MAX, OCT_IMAGE_BYTES_MAX and
 * what the file's bytes can unfold to, before memory is taken. A file that is cut short or damaged is
 * refused, also where a viewer would show the part that is there; what libjpeg only warns of is read and reported.
 *
 * The same file gives the same pixels on every machine: JPEG by the accurate integer DCT with smooth
 * upsampling, 16-bit PNG by the upper byte, colour to grey as (19595 R + 38470 G + 7471 B + 32768) / 65536
 * rounded down, CMYK by multiplying with the black's complement; alpha is dropped unless 4 channels are
 * wanted. That is what Pillow computes, but for grey PNG of 16 bits: Pillow reads its numbers and clips them at 255 when
 * they become 8 bits, so that all but the darkest pixels are white. Colour profiles, gamma and the orientation in EXIF data change
 * nothing, as in PyTorch's ImageFolder and TensorFlow. */
#pragma once

#include "io/image/image.h"

/* The bytes of a file; all borrowed. */
typedef struct oct_encoded {
    const uint8_t *bytes;
    size_t size;
    const char *name; /* of the file, for messages */
} oct_encoded;

/* What a kind's header says. */
typedef struct oct_image_header {
    int64_t h, w;
    int64_t c;        /* 1 grey, 3 colour, 4 colour and alpha */
    size_t bytes_min; /* a file of such an image cannot have fewer bytes */
    int64_t warnings; /* of the decoder, about rules that the file breaks; set by decode */
} oct_image_header;

typedef struct oct_image_kind {
    const char *name;  /* "JPEG" */
    const char *begin; /* the bytes that such a file begins with */
    size_t begin_bytes;
    /* pixels NULL: fills the header; else the h x w x c bytes that it says. OCT_DATA names the file and the damage. */
    oct_status (*decode)(const oct_encoded *file, oct_image_header *header, uint8_t *pixels);
    /* Fills the numbers that pixels have in the file, h x w of them; NULL where it has none. */
    oct_status (*decode_numbers)(const oct_encoded *file, oct_image_header *header,
                                 int32_t *numbers);
} oct_image_kind;

#define OCT_IMAGE_KIND(file) extern const oct_image_kind oct_image_kind_##file;
#include "io/image/kind_list.def"
#undef OCT_IMAGE_KIND

/* Finds the kind by a file's first bytes; NULL when it is none of the table. */
const oct_image_kind *oct_image_kind_of(const void *bytes, size_t size);

/* In place of channels: a map of class numbers (OCT_S32, h x w x 1), which is a PNG file of grey or of a palette, whose
 * numbers are taken as they are. */
enum { OCT_CLASS_MAP = 0 };
/* Gives bytes (OCT_U8) of 1, 3 or 4 channels, whatever the file has, or OCT_CLASS_MAP. */
oct_status oct_image_decode(oct_image *image, const oct_encoded *file, int64_t channels);
/* Reads the file at a path and decodes it. OCT_DATA when it is missing, of no kind, damaged. */
oct_status oct_image_read(oct_image *image, const char *path, int64_t channels);

/* Writes bytes of 1, 3 or 4 channels as a PNG file in memory; *bytes is oct_alloc'ed. */
oct_status oct_png_write(const oct_image *image, void **bytes, size_t *size);
/* Writes an image of bytes as a PNG file in base64; *text is oct_alloc'ed. */
oct_status oct_png_base64(const oct_image *image, char **text);
