/* PNG by libpng, the one door to it: reading and writing.
 *
 * Its failures come by longjmp to the function that called setjmp, which therefore keeps all that must
 * live longer in a struct of its caller. Its memory is ours, counted. Only what makes pixels is looked at:
 * texts, profiles and times are passed over unread.
 */
#include "io/image/decode.h"

#include "core/base/mem.h"
#include "io/file/file.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_BYTES_MAX = 1 << 20, DEFLATE_RATIO = 1032 };

/* A PNG file that is read from `file`, `next` bytes of it so far, or else written. */
typedef struct png_job {
    const oct_encoded *file;
    size_t next;
    uint8_t *written;
    size_t written_bytes, capacity;
    png_structp png;
    png_infop info;
    bool no_memory, wide; /* wide: 16 bits */
    char reason[96];
} png_job;

static void on_error(png_structp png, png_const_charp message)
{
    png_job *job = png_get_error_ptr(png);
    snprintf(job->reason, sizeof job->reason, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png, (void)message;
}

static png_voidp allocate_memory(png_structp png, png_alloc_size_t bytes)
{
    png_job *job = png_get_mem_ptr(png);
    void *block = NULL;
    if (oct_alloc(&block, bytes, 1) != OCT_OK) job->no_memory = true;
    return block;
}

static void free_memory(png_structp png, png_voidp block)
{
    (void)png;
    oct_free(&block);
}

static void read_bytes(png_structp png, png_bytep to, size_t bytes)
{
    png_job *job = png_get_io_ptr(png);
    if (bytes > job->file->size - job->next) png_error(png, "the file ends too early");
    memcpy(to, job->file->bytes + job->next, bytes);
    job->next += bytes;
}

static void write_bytes(png_structp png, png_bytep from, size_t bytes)
{
    png_job *job = png_get_io_ptr(png);
    if (oct_grow(&job->written, &job->capacity, job->written_bytes + bytes, 1) != OCT_OK) {
        job->no_memory = true;
        png_error(png, "out of memory");
    }
    memcpy(job->written + job->written_bytes, from, bytes);
    job->written_bytes += bytes;
}

static void flush_nothing(png_structp png)
{
    (void)png;
}

static oct_status fail_png(const png_job *job)
{
    if (job->no_memory || !job->png || !job->info)
        return oct_fail(OCT_RESOURCE, "%s: out of memory", job->file ? job->file->name : "PNG");
    return oct_fail(OCT_DATA, "%s: is a damaged PNG file: %s", job->file->name, job->reason);
}

/* Reads up to the pixels; chunks that do not make them are skipped. */
static void read_header(png_job *job)
{
    static const uint8_t unread[] =
        "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0"
        "sPLT\0sRGB\0tEXt\0tIME\0zTXt";
    png_set_user_limits(job->png, OCT_IMAGE_SIDE_MAX, OCT_IMAGE_SIDE_MAX);
    png_set_chunk_malloc_max(job->png, CHUNK_BYTES_MAX);
    png_set_keep_unknown_chunks(job->png, PNG_HANDLE_CHUNK_NEVER, NULL, 0);
    png_set_keep_unknown_chunks(job->png, PNG_HANDLE_CHUNK_NEVER, unread, sizeof unread / 5);
    png_set_read_fn(job->png, job, read_bytes);
    png_read_info(job->png, job->info);
}

static void read_size(png_job *job, oct_image_header *header, uint8_t *pixels)
{
    (void)pixels;
    read_header(job);
    const bool colour = png_get_color_type(job->png, job->info) & PNG_COLOR_MASK_COLOR;
    header->h = png_get_image_height(job->png, job->info);
    header->w = png_get_image_width(job->png, job->info);
    const bool alpha = png_get_color_type(job->png, job->info) & PNG_COLOR_MASK_ALPHA ||
                       png_get_valid(job->png, job->info, PNG_INFO_tRNS);
    header->c = alpha ? 4 : colour ? 3 : 1;
    /* Interlaced or not, each row is of its bytes and one more. */
    header->bytes_min = (size_t)header->h * png_get_rowbytes(job->png, job->info) / DEFLATE_RATIO;
}

/* Reads the rows, interlaced or not, each of at most row_max bytes; returns how many it has. */
static size_t read_rows(png_job *job, int64_t h, size_t row_max, uint8_t *pixels)
{
    const int passes = png_set_interlace_handling(job->png);
    png_read_update_info(job->png, job->info);
    const size_t row = png_get_rowbytes(job->png, job->info);
    if (row > row_max) png_error(job->png, "an unknown kind of pixels");
    for (int pass = 0; pass < passes; pass++)
        for (int64_t y = 0; y < h; y++)
            png_read_row(job->png, pixels + (size_t)y * row, NULL);
    png_read_end(job->png, NULL);
    return row;
}

static void read_pixels(png_job *job, oct_image_header *header, uint8_t *pixels)
{
    const size_t row = (size_t)(header->w * header->c);
    read_header(job);
    png_set_expand(job->png); /* palettes, fewer than 8 bits, transparent colours */
    png_set_strip_16(job->png);
    if (header->c == 4) png_set_gray_to_rgb(job->png);
    if (read_rows(job, header->h, row, pixels) != row)
        png_error(job->png, "an unknown kind of pixels");
}

/* Numbers of pixels: indices of a palette, or grey without stretching. */
static void read_numbers(png_job *job, oct_image_header *header, uint8_t *numbers)
{
    const size_t wide_row = 2 * (size_t)header->w;
    read_header(job);
    const int colours = png_get_color_type(job->png, job->info);
    if (colours != PNG_COLOR_TYPE_GRAY && colours != PNG_COLOR_TYPE_PALETTE)
        png_error(job->png, "a map of classes is grey or has a palette");
    png_set_packing(job->png);
    job->wide = read_rows(job, header->h, wide_row, numbers) == wide_row;
}

typedef void read_function(png_job *job, oct_image_header *header, uint8_t *pixels);

static oct_status try_read(png_job *job, oct_image_header *header, uint8_t *pixels,
                           read_function *read)
{
    if (setjmp(png_jmpbuf(job->png))) return fail_png(job);
    read(job, header, pixels);
    return OCT_OK;
}

static oct_status read_png(png_job *job, oct_image_header *header, uint8_t *pixels,
                           read_function *read)
{
    job->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, job, on_error, on_warning, job,
                                        allocate_memory, free_memory);
    if (job->png) job->info = png_create_info_struct(job->png);
    const oct_status status = job->info ? try_read(job, header, pixels, read) : fail_png(job);
    png_destroy_read_struct(&job->png, &job->info, NULL);
    return status;
}

static oct_status decode_png(const oct_encoded *file, oct_image_header *header, uint8_t *pixels)
{
    png_job job = {.file = file};
    return read_png(&job, header, pixels, pixels ? read_pixels : read_size);
}

static oct_status decode_png_numbers(const oct_encoded *file, oct_image_header *header,
                                     int32_t *numbers)
{
    const size_t pixels = (size_t)(header->h * header->w);
    png_job job = {.file = file};
    OCT_OWNED(oct_free) uint8_t *raw = NULL;
    OCT_TRY(oct_alloc(&raw, pixels, 2));
    const oct_status status = read_png(&job, header, raw, read_numbers);
    for (size_t i = 0; i < pixels; i++)
        numbers[i] = job.wide ? raw[2 * i] << 8 | raw[2 * i + 1] : raw[i];
    return status;
}

static oct_status try_write(png_job *job, const oct_image *image)
{
    const int colours = image->c == 1   ? PNG_COLOR_TYPE_GRAY
                        : image->c == 3 ? PNG_COLOR_TYPE_RGB
                                        : PNG_COLOR_TYPE_RGB_ALPHA;
    const uint8_t *pixels = image->data;
    if (setjmp(png_jmpbuf(job->png))) return fail_png(job);
    png_set_write_fn(job->png, job, write_bytes, flush_nothing);
    png_set_user_limits(job->png, OCT_IMAGE_SIDE_MAX, OCT_IMAGE_SIDE_MAX);
    png_set_IHDR(job->png, job->info, (png_uint_32)image->w, (png_uint_32)image->h, 8, colours,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(job->png, job->info);
    for (int64_t y = 0; y < image->h; y++)
        png_write_row(job->png, pixels + y * image->w * image->c);
    png_write_end(job->png, NULL);
    return OCT_OK;
}

oct_status oct_png_write(const oct_image *image, void **bytes, size_t *size)
{
    png_job job = {0};
    *bytes = NULL;
    *size = 0;
    OCT_ASSERT(image->dtype == OCT_U8 && (image->c == 1 || image->c == 3 || image->c == 4));
    OCT_ASSERT(image->h > 0 && image->w > 0 && image->h <= OCT_IMAGE_SIDE_MAX &&
               image->w <= OCT_IMAGE_SIDE_MAX);
    job.png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &job, on_error, on_warning, &job,
                                        allocate_memory, free_memory);
    if (job.png) job.info = png_create_info_struct(job.png);
    oct_status status = job.info ? try_write(&job, image) : fail_png(&job);
    png_destroy_write_struct(&job.png, &job.info);
    if (status == OCT_OK) {
        *bytes = job.written;
        *size = job.written_bytes;
    } else {
        oct_free(&job.written);
    }
    return status;
}

oct_status oct_png_base64(const oct_image *image, char **text)
{
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size;
    OCT_TRY(oct_png_write(image, &bytes, &size));
    return oct_base64(bytes, size, text);
}

const oct_image_kind oct_image_kind_png = {
    .name = "PNG",
    .begin = "\x89PNG\r\n\x1a\n",
    .begin_bytes = 8,
    .decode = decode_png,
    .decode_numbers = decode_png_numbers,
};
