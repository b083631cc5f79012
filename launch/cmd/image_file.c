/* The kind of file is found by its first bytes. zlib reads gzipped and plain files alike. */
#include "launch/cmd/image_file.h"

#include "core/base/mem.h"
#include "io/dataset/npy_file.h"
#include "io/file/file.h"
#include "io/image/decode.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { FILE_BYTES_MAX = 1 << 28, CHUNK = 1 << 20 };

typedef struct image_file {
    const char *path;
    uint8_t *bytes;
    size_t size, capacity;
    int64_t h, w, c; /* wanted */
    const oct_augment *augment;
    oct_image sample; /* type and size of the file's images */
    bool raw;         /* they are as the model takes them */
} image_file;

static int64_t big_endian(const uint8_t *b)
{
    return (int64_t)b[0] << 24 | (int64_t)b[1] << 16 | (int64_t)b[2] << 8 | (int64_t)b[3];
}

static bool is_idx(const image_file *f)
{
    const uint8_t *b = f->bytes;
    return f->size >= 4 && b[0] == 0 && b[1] == 0 && b[2] == 8 && (b[3] == 3 || b[3] == 4);
}

/* Says how many bytes an IDX file claims to have; other files have no more than FILE_BYTES_MAX. */
static size_t bytes_declared(const image_file *f)
{
    if (!is_idx(f)) return FILE_BYTES_MAX;
    const size_t begin = 4 + 4 * (size_t)f->bytes[3];
    size_t bytes = 1;
    if (f->size < begin) return begin;
    for (size_t at = 4; at < begin; at += 4)
        if (__builtin_mul_overflow(bytes, (size_t)big_endian(f->bytes + at), &bytes) ||
            bytes > FILE_BYTES_MAX)
            return FILE_BYTES_MAX;
    return begin + bytes;
}

/* Inflates what is gzipped, and no more than the file says of itself. */
static oct_status read_all(image_file *f)
{
    struct stat info;
    OCT_CHECK(stat(f->path, &info) == 0, OCT_DATA, "%s: %s", f->path, strerror(errno));
    OCT_TRY(oct_file_check_regular(f->path, &info));
    errno = 0;
    gzFile file = gzopen(f->path, "rb");
    OCT_CHECK(file, OCT_DATA, "%s: %s", f->path, errno ? strerror(errno) : "not enough memory");
    oct_status status = OCT_OK;
    int got = 1;
    size_t most = FILE_BYTES_MAX;
    while (got > 0 && f->size <= most) {
        OCT_TRY_OUT(oct_grow(&f->bytes, &f->capacity, f->size + CHUNK, 1));
        got = gzread(file, f->bytes + f->size, CHUNK);
        if (got > 0) f->size += (size_t)got;
        most = bytes_declared(f);
    }
    int code = Z_OK;
    const char *reason = gzerror(file, &code);
    OCT_CHECK_OUT(got >= 0 && code != Z_BUF_ERROR, OCT_DATA, "%s: damaged gzip data: %s", f->path,
                  reason);
    OCT_CHECK_OUT(f->size <= most || is_idx(f), OCT_DATA, "%s: larger than %d MiB", f->path,
                  FILE_BYTES_MAX >> 20);
    OCT_CHECK_OUT(f->size > 0, OCT_DATA, "%s: the file is empty", f->path);
out:
    gzclose(file);
    return status;
}

/* Takes the size of the file's images, if the model can take them or transforms make it so. */
static oct_status take_size(image_file *f, int64_t h, int64_t w, int64_t c)
{
    const int64_t most = OCT_IMAGE_SIDE_MAX;
    const bool possible = h >= 1 && w >= 1 && h <= most && w <= most && c == f->c;
    OCT_CHECK(possible && (f->augment || (h == f->h && w == f->w)), OCT_DATA,
              "%s: images of %" PRId64 "x%" PRId64 "x%" PRId64 ", but the model takes %" PRId64
              "x%" PRId64 "x%" PRId64 "%s",
              f->path, h, w, c, f->h, f->w, f->c,
              !possible ? ""
                        : "; resize them, or train with data.size, and the model resizes them "
                          "itself");
    f->sample.h = h;
    f->sample.w = w;
    f->sample.c = c;
    return OCT_OK;
}

/* Finds where the images begin and how many there are: after magic 08 03 come count, h, w; 08 04 adds
 * c. */
static oct_status find_idx(image_file *f, size_t *begin, int64_t *images)
{
    size_t ndim = f->bytes[3];
    *begin = 4 + 4 * ndim;
    OCT_CHECK(f->size >= *begin, OCT_DATA, "%s: the IDX header is cut short", f->path);
    int64_t c = ndim == 4 ? big_endian(f->bytes + 16) : 1;
    int64_t h = big_endian(f->bytes + 8), w = big_endian(f->bytes + 12);
    *images = big_endian(f->bytes + 4);
    OCT_TRY(take_size(f, h, w, c));
    int64_t there = (int64_t)(f->size - *begin) / (h * w * c);
    OCT_CHECK(there >= *images, OCT_DATA,
              "%s: the header says %" PRId64 " images, but there are only %" PRId64, f->path,
              *images, there);
    return OCT_OK;
}

/* Reads a number of a PNM header; comments run from # to the end of the line. -1 if there is none. */
static int64_t pnm_number(const image_file *f, size_t *at)
{
    int64_t value = -1;
    while (*at < f->size && (strchr(" \t\r\n#", f->bytes[*at]) && f->bytes[*at])) {
        bool comment = f->bytes[*at] == '#';
        while (comment && *at < f->size && f->bytes[*at] != '\n')
            (*at)++;
        if (*at < f->size) (*at)++;
    }
    for (; *at < f->size && f->bytes[*at] >= '0' && f->bytes[*at] <= '9' && value < 100000; (*at)++)
        value = (value < 0 ? 0 : value) * 10 + (f->bytes[*at] - '0');
    return value;
}

static oct_status find_pnm(image_file *f, size_t *begin, int64_t *images)
{
    int64_t c = f->bytes[1] == '6' ? 3 : 1;
    *begin = 2;
    int64_t w = pnm_number(f, begin), h = pnm_number(f, begin), most = pnm_number(f, begin);
    OCT_CHECK(w > 0 && h > 0 && most > 0, OCT_DATA, "%s: the PGM or PPM header is damaged",
              f->path);
    OCT_CHECK(most == 255, OCT_DATA, "%s: values up to %" PRId64 "; convert it to 8 bits (255)",
              f->path, most);
    OCT_TRY(take_size(f, h, w, c));
    *begin += 1; /* one white space */
    OCT_CHECK(f->size >= *begin + (size_t)(h * w * c), OCT_DATA, "%s: the image is cut short",
              f->path);
    *images = 1;
    return OCT_OK;
}

/* CIFAR-10 stores a label, then the planes; the planes become pixels here, in place of the file. */
enum { CIFAR_PLANE = 32 * 32, CIFAR_IMAGE = 3 * CIFAR_PLANE };

static bool is_cifar(const image_file *f)
{
    bool fits = f->h == 32 && f->w == 32 && f->c == 3 && f->size % (CIFAR_IMAGE + 1) == 0;
    return fits && f->size % CIFAR_IMAGE != 0;
}

static void take_cifar(image_file *f)
{
    size_t images = f->size / (CIFAR_IMAGE + 1);
    for (size_t i = 0; i < images; i++) {
        uint8_t planes[CIFAR_IMAGE];
        memcpy(planes, f->bytes + i * (CIFAR_IMAGE + 1) + 1, CIFAR_IMAGE);
        for (size_t p = 0; p < CIFAR_PLANE; p++)
            for (size_t c = 0; c < 3; c++)
                f->bytes[i * CIFAR_IMAGE + p * 3 + c] = planes[c * CIFAR_PLANE + p];
    }
    f->size = images * CIFAR_IMAGE;
}

static oct_status find_raw(image_file *f, int64_t *images)
{
    int64_t image = f->h * f->w * f->c;
    OCT_CHECK((int64_t)f->size % image == 0, OCT_DATA,
              "%s: %zu bytes are not a whole number of images; the model takes %" PRId64 "x%" PRId64
              "x%" PRId64 " = %" PRId64 " bytes each",
              f->path, f->size, f->h, f->w, f->c, image);
    *images = (int64_t)f->size / image;
    return take_size(f, f->h, f->w, f->c);
}

/* Files that people have, which are no images or none that are decoded here. */
static oct_status refuse_unknown(const image_file *f)
{
    static const struct {
        const char *name, *begin;
        size_t at, bytes;
    } kinds[] = {
        {"a GIF", "GIF8", 0, 4},
        {"a TIFF", "II*\0", 0, 4},
        {"a TIFF", "MM\0*", 0, 4},
        {"a PDF", "%PDF-", 0, 5},
        {"a WebP or other RIFF", "RIFF", 0, 4},
        {"a HEIC, AVIF or MP4", "ftyp", 4, 4},
        {"a BMP", "BM", 0, 2},
        {"a text PNM", "P1", 0, 2},
        {"a text PNM", "P2", 0, 2},
        {"a text PNM", "P3", 0, 2},
        {"a PBM", "P4", 0, 2},
        {"a zip or NumPy .npz", "PK\3\4", 0, 4},
        {"an HDF5", "\x89HDF", 0, 4},
    };
    for (size_t i = 0; i < OCT_COUNT(kinds); i++)
        OCT_CHECK(f->size < kinds[i].at + kinds[i].bytes ||
                      memcmp(f->bytes + kinds[i].at, kinds[i].begin, kinds[i].bytes) != 0,
                  OCT_DATA,
                  "%s: is %s file, which is not decoded here; convert it to PNG, such as with "
                  "ImageMagick: convert IN -resize '%" PRId64 "x%" PRId64
                  "!' -depth 8 OUT.png, or save arrays as .npy",
                  f->path, kinds[i].name, f->w, f->h);
    return oct_fail(OCT_DATA,
                    "%s: is no file of images that is known here (JPEG, PNG, .npy, IDX, CIFAR-10 "
                    "batch, PGM, PPM); with --raw its bytes are taken as images of %" PRId64
                    "x%" PRId64 "x%" PRId64,
                    f->path, f->h, f->w, f->c);
}

/* IDX labels beside the images have the same name but for one word. */
static bool is_idx_labels(const image_file *f)
{
    static const uint8_t magic[] = {0, 0, 8, 1};
    return f->size >= 8 && memcmp(f->bytes, magic, sizeof magic) == 0 &&
           (int64_t)f->size == 8 + big_endian(f->bytes + 4);
}

/* Pixels take the place of the file that they are decoded from. */
static oct_status take_encoded(image_file *f, int64_t *images)
{
    const oct_encoded file = {f->bytes, f->size, f->path};
    oct_image image = {0};
    OCT_CHECK(f->c == 1 || f->c == 3 || f->c == 4, OCT_DATA,
              "%s: is a picture of up to 4 channels, but the model takes %" PRId64, f->path, f->c);
    oct_status status = oct_image_decode(&image, &file, f->c);
    if (status == OCT_OK) status = take_size(f, image.h, image.w, image.c);
    if (status == OCT_OK) {
        oct_free(&f->bytes);
        f->bytes = image.data;
        f->size = f->capacity = (size_t)oct_image_numel(&image);
        *images = 1;
        return OCT_OK;
    }
    oct_image_free(&image);
    return status;
}

static bool is_npy(const image_file *f)
{
    return f->size >= 6 && memcmp(f->bytes, "\x93NUMPY", 6) == 0;
}

/* An array of the shape that the model takes is one sample; otherwise its first axis counts samples. Its numbers
 * take the place of the file. */
static oct_status take_npy(image_file *f, int64_t *images)
{
    oct_span span = {.fd = -1, .memory = f->bytes, .size = (int64_t)f->size};
    oct_array array;
    oct_image *s = &f->sample;
    f->bytes = NULL; /* the array owns them */
    OCT_TRY(oct_npy_take(&array, &span, f->path, NULL));
    const oct_shape whole = array.shape, one = OCT_SHAPE(f->h, f->w, f->c),
                    grey = OCT_SHAPE(f->h, f->w);
    const bool single =
        oct_shape_equal(&whole, &one) || (f->c == 1 && f->h > 1 && oct_shape_equal(&whole, &grey));
    if (single) array.shape = OCT_SHAPE(1, f->h, f->w, f->c);
    oct_status status = oct_array_sample(&array, s);
    OCT_TRY_OUT(status);
    OCT_TRY_OUT(take_size(f, s->h, s->w, s->c));
    *images = array.shape.dim[0];
    OCT_TRY_OUT(
        oct_alloc(&f->bytes, (size_t)(*images * oct_image_numel(s)), oct_dtype_bytes(s->dtype)));
    OCT_TRY_OUT(oct_array_read_samples(&array, 0, *images, f->bytes));
    OCT_CHECK_OUT(s->dtype != OCT_F32 || oct_all_finite((const float *)(const void *)f->bytes,
                                                        *images * oct_image_numel(s)),
                  OCT_DATA, "%s: holds numbers that are not finite", f->path);
out:
    oct_array_close(&array);
    return status;
}

static oct_status find_images(image_file *f, size_t *begin, int64_t *images)
{
    const uint8_t *b = f->bytes;
    *begin = 0;
    if (f->raw) return find_raw(f, images);
    if (is_idx(f)) return find_idx(f, begin, images);
    if (oct_image_kind_of(b, f->size)) return take_encoded(f, images);
    if (is_npy(f)) return take_npy(f, images);
    OCT_CHECK(!is_idx_labels(f), OCT_DATA,
              "%s: is an IDX file of labels; give the one that holds the images", f->path);
    if (f->size >= 2 && b[0] == 'P' && (b[1] == '5' || b[1] == '6'))
        return find_pnm(f, begin, images);
    if (!is_cifar(f)) return refuse_unknown(f);
    take_cifar(f);
    return find_raw(f, images);
}

/* Copies an image as it is, or what the transforms make of it. */
static oct_status take_image(const image_file *f, const uint8_t *from, uint8_t *to)
{
    oct_image image = {0};
    const oct_image *s = &f->sample;
    const size_t element = oct_dtype_bytes(s->dtype);
    if (!f->augment || f->raw) {
        memcpy(to, from, (size_t)oct_image_numel(s) * element);
        return OCT_OK;
    }
    oct_status status = oct_image_resize(&image, s->dtype, s->h, s->w, s->c);
    OCT_TRY_OUT(status);
    memcpy(image.data, from, (size_t)oct_image_numel(s) * element);
    OCT_TRY_OUT(oct_augment_run(f->augment, &(oct_draw){0}, &image, NULL));
    OCT_CHECK_OUT(image.h == f->h && image.w == f->w, OCT_DATA,
                  "%s: data.size and data.test of the model's recipe make %" PRId64 "x%" PRId64
                  " of its images, but the model takes %" PRId64 "x%" PRId64,
                  f->path, image.h, image.w, f->h, f->w);
    memcpy(to, image.data, (size_t)oct_image_numel(&image) * element);
out:
    oct_image_free(&image);
    return status;
}

/* Can the transforms work on the file's images? They come from a model, so sizes are not believed. */
static oct_status check_transforms(const image_file *f)
{
    oct_image shape = f->sample;
    if (!f->augment || f->raw) return OCT_OK;
    if (oct_augment_fit(f->augment, "data.test of the model's recipe", &shape) != OCT_OK)
        return oct_fail(OCT_DATA, "%s: %s", f->path, oct_fail_text(0));
    return OCT_OK;
}

oct_status oct_image_file_read(const char *path, const oct_image_wanted *wanted, int64_t first,
                               int64_t count, oct_image_samples *samples)
{
    image_file f = {.path = path,
                    .h = wanted->h,
                    .w = wanted->w,
                    .c = wanted->c,
                    .augment = wanted->augment,
                    .raw = wanted->raw,
                    .sample = {.dtype = OCT_U8}};
    oct_status status = OCT_OK;
    size_t begin = 0;
    int64_t images = 0;
    *samples = (oct_image_samples){0};
    OCT_TRY_OUT(read_all(&f));
    OCT_TRY_OUT(find_images(&f, &begin, &images));
    OCT_CHECK_OUT(images > 0, OCT_DATA, "%s: holds no images", path);
    OCT_CHECK_OUT(first < images && count <= images - first, OCT_USAGE,
                  "command line: --index and --count ask for images %" PRId64 " to %" PRId64
                  ", but %s holds images 0 to %" PRId64,
                  first, first + count - 1, path, images - 1);
    OCT_TRY_OUT(check_transforms(&f));
    const size_t element = oct_dtype_bytes(f.sample.dtype);
    const size_t image = (size_t)(f.h * f.w * f.c) * element;
    const size_t from = (size_t)oct_image_numel(&f.sample) * element;
    samples->dtype = f.sample.dtype;
    OCT_TRY_OUT(oct_alloc(&samples->data, (size_t)count, image));
    for (int64_t i = 0; i < count && status == OCT_OK; i++)
        status = take_image(&f, f.bytes + begin + (size_t)(first + i) * from,
                            (uint8_t *)samples->data + (size_t)i * image);
    if (status != OCT_OK) oct_free(&samples->data);
out:
    oct_free(&f.bytes);
    return status;
}
