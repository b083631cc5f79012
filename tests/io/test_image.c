/* Encoded images: the pixels of Pillow, files that are damaged, and what is written can be read. */
#include "core/base/mem.h"
#include "io/file/file.h"
#include "io/image/decode.h"
#include "tests/golden/image_golden.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <string.h>

static const int64_t channels[] = {1, 3, 4};

static oct_status decode(oct_image *image, const uint8_t *bytes, size_t size, int64_t c)
{
    const oct_encoded file = {bytes, size, "x.jpg"};
    return oct_image_decode(image, &file, c);
}

static void check_pixels(const oct_image *image, const char *name, const char *digest)
{
    uint8_t got[32];
    char text[65];
    cr_assert(image->h == IMAGE_GOLDEN_H && image->w == IMAGE_GOLDEN_W && image->dtype == OCT_U8);
    oct_sha256(image->data, (size_t)oct_image_numel(image), got);
    cr_expect_str_eq(oct_hex(got, text), digest, "%s with %d channels", name, (int)image->c);
}

Test(image, every_kind_of_file_gives_the_pixels_of_pillow)
{
    oct_image image = {0};
    for (size_t i = 0; i < OCT_COUNT(image_golden); i++)
        for (size_t k = 0; k < OCT_COUNT(channels); k++) {
            cr_assert(decode(&image, image_golden[i].bytes, image_golden[i].size, channels[k]) ==
                          OCT_OK,
                      "%s: %s", image_golden[i].name, oct_error_message(0));
            cr_assert(image.c == channels[k]);
            check_pixels(&image, image_golden[i].name, image_golden[i].digest[k]);
        }
    oct_image_free(&image);
    cr_assert(oct_mem_live() == 0);
}

Test(image, a_file_that_is_cut_short_is_refused_wherever_the_cut_is)
{
    oct_image image = {0};
    for (size_t i = 0; i < OCT_COUNT(image_golden); i++)
        for (size_t size = 0; size < image_golden[i].size; size++) {
            oct_status status = decode(&image, image_golden[i].bytes, size, 3);
            cr_assert(status == OCT_DATA, "%s cut to %zu: %d", image_golden[i].name, size, status);
            cr_assert(strncmp(oct_error_message(0), "x.jpg: ", 7) == 0, "%s", oct_error_message(0));
        }
    oct_image_free(&image);
    cr_assert(oct_mem_live() == 0);
}

Test(image, no_changed_byte_does_harm)
{
    static uint8_t changed[4096];
    oct_image image = {0};
    for (size_t i = 0; i < OCT_COUNT(image_golden); i++) {
        memcpy(changed, image_golden[i].bytes, image_golden[i].size);
        for (size_t at = 0; at < image_golden[i].size; at++)
            for (unsigned flip = 1; flip < 256; flip *= 8) {
                changed[at] ^= (uint8_t)flip;
                oct_status status = decode(&image, changed, image_golden[i].size, 1);
                changed[at] ^= (uint8_t)flip;
                cr_assert(status == OCT_OK || status == OCT_DATA, "%s at %zu: %s",
                          image_golden[i].name, at, oct_error_message(0));
            }
    }
    oct_image_free(&image);
    cr_assert(oct_mem_live() == 0);
}

static void check_refused(const uint8_t *bytes, size_t size, const char *sentence)
{
    oct_image image = {0};
    oct_mem_peak_reset();
    cr_assert(decode(&image, bytes, size, 3) == OCT_DATA);
    cr_assert_str_eq(oct_error_message(0), sentence);
    cr_assert(oct_mem_live() == 0 && oct_mem_peak() < 1 << 20);
}

/* A JPEG file with other sides in its header. */
static const uint8_t *jpeg_of(unsigned h, unsigned w)
{
    static uint8_t bytes[sizeof jpeg_444];
    memcpy(bytes, jpeg_444, sizeof bytes);
    uint8_t *at = memmem(bytes, sizeof bytes, "\xff\xc0", 2);
    at[5] = (uint8_t)(h >> 8), at[6] = (uint8_t)h, at[7] = (uint8_t)(w >> 8), at[8] = (uint8_t)w;
    return bytes;
}

Test(image, a_header_is_not_believed_before_memory_is_taken)
{
    check_refused(jpeg_of(65535, 10), sizeof jpeg_444,
                  "x.jpg: is a JPEG file that is damaged, cut short or of a rare kind: Maximum "
                  "supported image dimension is 65500 pixels");
    check_refused(jpeg_of(65500, 65500), sizeof jpeg_444,
                  "x.jpg: its header says 65500x65500 pixels; at most 65500 a side and 268 million "
                  "in all are read; make it smaller");
    check_refused(jpeg_of(16000, 16000), sizeof jpeg_444,
                  "x.jpg: is damaged or cut short: its header says 16000x16000 pixels, for which "
                  "992 bytes are too few");
    check_refused((const uint8_t *)"", 0, "x.jpg: the file is empty");
    check_refused((const uint8_t *)"GIF89a", 6, "x.jpg: is no JPEG or PNG file by its first bytes");
}

Test(image, what_is_written_as_png_is_read_again)
{
    oct_image image = {0}, again = {0};
    for (size_t k = 0; k < OCT_COUNT(channels); k++) {
        void *bytes = NULL;
        size_t size;
        cr_assert(oct_image_resize(&image, OCT_U8, 33, 7, channels[k]) == OCT_OK);
        for (int64_t i = 0; i < oct_image_numel(&image); i++)
            ((uint8_t *)image.data)[i] = (uint8_t)(i * i / 3);
        cr_assert(oct_png_write(&image, &bytes, &size) == OCT_OK);
        cr_assert(oct_image_kind_of(bytes, size) == &oct_image_kind_png);
        cr_assert(decode(&again, bytes, size, channels[k]) == OCT_OK);
        cr_assert(again.h == 33 && again.w == 7);
        cr_assert(memcmp(image.data, again.data, (size_t)oct_image_numel(&image)) == 0);
        oct_free(&bytes);
    }
    oct_image_free(&image);
    oct_image_free(&again);
    cr_assert(oct_mem_live() == 0);
}

Test(image, a_file_is_read_by_its_path_and_named)
{
    oct_tmp tmp;
    oct_image image = {0};
    oct_tmp_create(&tmp);
    const char *path = oct_tmp_write(&tmp, "a.png", png_rgb, sizeof png_rgb);
    cr_assert(oct_image_read(&image, path, 3) == OCT_OK);
    cr_assert(image.h == IMAGE_GOLDEN_H && image.c == 3);
    path = oct_tmp_path(&tmp, "none.png");
    cr_assert(oct_image_read(&image, path, 3) == OCT_DATA);
    cr_assert(strstr(oct_error_message(0), "none.png: ") != NULL);
    oct_image_free(&image);
    oct_tmp_remove(&tmp);
}

Test(image, memory_that_runs_out_is_said)
{
    for (size_t i = 0; i < OCT_COUNT(image_golden); i++) {
        int failures = 0;
        for (int64_t n = 1; n < 100; n++) {
            oct_image image = {0};
            oct_mem_fail_after(n);
            oct_status status = decode(&image, image_golden[i].bytes, image_golden[i].size, 4);
            oct_mem_fail_after(0);
            oct_image_free(&image);
            if (status == OCT_OK) break;
            failures++;
            cr_assert(status == OCT_RESOURCE && oct_mem_live() == 0, "%s at %d: %s",
                      image_golden[i].name, (int)n, oct_error_message(0));
        }
        cr_assert(failures > 1 && failures < 99, "%s: %d", image_golden[i].name, failures);
    }
}
