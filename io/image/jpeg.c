/* JPEG by libjpeg-turbo, the one door to it. Another libjpeg would give other bits.
 *
 * Its failures come by longjmp to the function that called setjmp. It warns of files that break a rule, such as by
 * bytes between two markers or a code that is none; these are read, as by Pillow, and counted. A file that is cut short is
 * refused: it would put grey for what is missing.
 * A Huffman-coded block of 64 values takes a bit at least, which bounds what a short file can claim; and a
 * progressive file may go over its pixels SCANS_MAX times, which bounds how long it keeps us busy.
 */
#include "io/image/decode.h"

#include "core/base/mem.h"

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jerror.h>

#ifndef LIBJPEG_TURBO_VERSION
#error "libjpeg-turbo is needed: another libjpeg gives other pixels"
#endif

enum { VALUES_A_BYTE = 512, LIBRARY_ROOM = 1 << 20, SCANS_MAX = 500 };

/* A JPEG file while it is read. */
typedef struct jpeg_job {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    const oct_encoded *file;
    uint8_t *cmyk; /* a row of it */
    jmp_buf failed;
    char reason[JMSG_LENGTH_MAX];
} jpeg_job;

static void on_error(j_common_ptr jpeg)
{
    jpeg_job *job = jpeg->client_data;
    jpeg->err->format_message(jpeg, job->reason);
    longjmp(job->failed, 1);
}

static void on_message(j_common_ptr jpeg, int level)
{
    if (level >= 0) return;
    if (jpeg->err->msg_code == JWRN_JPEG_EOF) on_error(jpeg);
    jpeg->err->num_warnings++;
}

/* libjpeg calls this as it decodes: refuses files of very many scans, since each takes the time of an image. */
static void on_progress(j_common_ptr jpeg)
{
    jpeg_job *job = jpeg->client_data;
    if (job->jpeg.input_scan_number <= SCANS_MAX) return;
    snprintf(job->reason, sizeof job->reason, "it has more than %d scans", SCANS_MAX);
    longjmp(job->failed, 1);
}

/* rgb = stored ink * stored black / 255, rounded: files hold the inks' complements, as Adobe's programs began to. */
static void convert_cmyk(const uint8_t *cmyk, int64_t pixels, uint8_t *rgb)
{
    for (int64_t i = 0; i < pixels; i++)
        for (int k = 0; k < 3; k++) {
            const unsigned ink = UINT8_MAX - cmyk[4 * i + k], light = cmyk[4 * i + 3];
            const unsigned product = ink * light + 128; /* a 255th of it is taken off */
            rgb[3 * i + k] = (uint8_t)(light - ((product + (product >> 8)) >> 8));
        }
}

static void read_pixels(jpeg_job *job, const oct_image_header *header, uint8_t *pixels)
{
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    const bool inks = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    jpeg->out_color_space = header->c == 1 ? JCS_GRAYSCALE : inks ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *to = pixels + jpeg->output_scanline * (size_t)(header->w * header->c);
        JSAMPROW row = inks ? job->cmyk : to;
        jpeg_read_scanlines(jpeg, &row, 1);
        if (inks) convert_cmyk(job->cmyk, header->w, to);
    }
    jpeg_finish_decompress(jpeg);
}

/* Reads the header, or with `pixels` the pixels; errors in libjpeg jump back to its begin. */
static oct_status try_read(jpeg_job *job, oct_image_header *header, uint8_t *pixels)
{
    if (setjmp(job->failed))
        return job->errors.msg_code == JERR_OUT_OF_MEMORY
                   ? oct_fail(OCT_RESOURCE, "%s: cannot be decoded: out of memory", job->file->name)
                   : oct_fail(OCT_DATA,
                              "%s: is a JPEG file that is damaged, cut short or of a rare kind: %s",
                              job->file->name, job->reason);
    jpeg_create_decompress(&job->jpeg);
    job->jpeg.progress = &job->progress;
    jpeg_mem_src(&job->jpeg, job->file->bytes, job->file->size);
    jpeg_read_header(&job->jpeg, TRUE);
    if (pixels) {
        read_pixels(job, header, pixels);
        header->warnings = job->errors.num_warnings;
        return OCT_OK;
    }
    const int64_t h = job->jpeg.image_height, w = job->jpeg.image_width;
    *header = (oct_image_header){.h = h,
                                 .w = w,
                                 .c = job->jpeg.jpeg_color_space == JCS_GRAYSCALE ? 1 : 3,
                                 .bytes_min = (size_t)h * (size_t)w / VALUES_A_BYTE};
    return OCT_OK;
}

static oct_status decode_jpeg(const oct_encoded *file, oct_image_header *header, uint8_t *pixels)
{
    jpeg_job job = {.file = file};
    /* A progressive file's coefficients lie in the library's memory: two bytes each, of four colours. */
    if (pixels)
        OCT_TRY(oct_mem_check_available(LIBRARY_ROOM + 8 * (size_t)(header->h * header->w)));
    if (pixels) OCT_TRY(oct_alloc(&job.cmyk, (size_t)header->w, 4));
    job.jpeg.err = jpeg_std_error(&job.errors);
    job.jpeg.client_data = &job;
    job.errors.error_exit = on_error;
    job.errors.emit_message = on_message;
    job.progress.progress_monitor = on_progress;
    const oct_status status = try_read(&job, header, pixels);
    jpeg_destroy_decompress(&job.jpeg);
    oct_free(&job.cmyk);
    return status;
}

const oct_image_kind oct_image_kind_jpeg = {
    .name = "JPEG",
    .begin = "\xff\xd8\xff",
    .begin_bytes = 3,
    .decode = decode_jpeg,
};
