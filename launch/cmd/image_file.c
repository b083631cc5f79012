/* The kind of file is found by its first bytes. zlib reads both gzipped and plain files. */
#include "launch/cmd/run.h"

#include "core/base/mem.h"
#include "io/dataset/npy_file.h"
#include "io/file/file.h"
#include "io/image/decode.h"
#include "launch/cmd/begun_recipe.h"

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
    const oct_image_wanted *wanted;
    oct_image sample; /* type and size of the file's images */
} image_file;

/* Does it begin as IDX files of bytes in 3 or 4 dimensions? */
static bool is_idx(const image_file *f)
{
    const uint8_t *b = f->bytes;
    return !f->wanted->raw && f->size >= 4 && b[0] == 0 && b[1] == 0 && b[2] == 8 &&
           (b[3] == 3 || b[3] == 4);
}

/* Reads the file, inflated if it is gzipped; of an IDX file, which is read elsewhere, only the beginning. */
static oct_status inflate_file(image_file *f)
{
    struct stat info;
    OCT_CHECK(stat(f->path, &info) == 0, OCT_DATA, "%s: %s", f->path, strerror(errno));
    OCT_TRY(oct_file_check_regular(f->path, &info));
    errno = 0;
    gzFile file = gzopen(f->path, "rb");
    OCT_CHECK(file, OCT_DATA, "%s: %s", f->path, errno ? strerror(errno) : "not enough memory");
    oct_status status = OCT_OK;
    int got = 1;
    while (got > 0 && f->size <= FILE_BYTES_MAX && !is_idx(f)) {
        OCT_TRY_OUT(oct_grow(&f->bytes, &f->capacity, f->size + CHUNK, 1));
        got = gzread(file, f->bytes + f->size, CHUNK);
        if (got > 0) f->size += (size_t)got;
    }
    int code = Z_OK;
    const char *reason = gzerror(file, &code);
    OCT_CHECK_OUT(got >= 0 && code != Z_BUF_ERROR, OCT_DATA, "%s: damaged gzip data: %s", f->path,
                  reason);
    OCT_CHECK_OUT(f->size <= FILE_BYTES_MAX, OCT_DATA, "%s: larger than %s", f->path,
                  oct_text_size(FILE_BYTES_MAX).text);
    OCT_CHECK_OUT(f->size > 0, OCT_DATA, "%s: the file is empty", f->path);
out:
    gzclose(file);
    return status;
}

/* Checks that the model takes images of this size and these channels; with transforms any size up to
 * OCT_IMAGE_SIDE_MAX. */
static oct_status check_size(const char *name, const oct_image_wanted *m, int64_t h, int64_t w,
                             int64_t c)
{
    const int64_t most = OCT_IMAGE_SIDE_MAX;
    const bool possible = h >= 1 && w >= 1 && h <= most && w <= most && c == m->c;
    const bool channels_first = h == m->c && w == m->h && c == m->w;
    const char *remedy = "; convert them to as many channels";
    if (channels_first && c != m->c)
        remedy = "; its channels come first: save "
                 "numpy.ascontiguousarray(array.transpose(0, 2, 3, 1))";
    else if (c == m->c && m->augment)
        remedy = "; resize them"; /* a side is 0 or above OCT_IMAGE_SIDE_MAX */
    else if (c == m->c)
        remedy = "; resize them, or train with data.size, and the model resizes them itself";
    OCT_CHECK(possible && (m->augment || (h == m->h && w == m->w)), OCT_DATA,
              "%s: images of %" PRId64 "x%" PRId64 "x%" PRId64 ", but the model takes %" PRId64
              "x%" PRId64 "x%" PRId64 "%s",
              name, h, w, c, m->h, m->w, m->c, remedy);
    return OCT_OK;
}

static oct_status accept_size(image_file *f, int64_t h, int64_t w, int64_t c)
{
    OCT_TRY(check_size(f->path, f->wanted, h, w, c));
    f->sample.h = h;
    f->sample.w = w;
    f->sample.c = c;
    return OCT_OK;
}

/* Reads a number of a PNM header; comments run from # to the end of the line. -1 if there is none. */
static int64_t read_pnm_number(const image_file *f, size_t *at)
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

static oct_status read_pnm_header(image_file *f, size_t *begin, int64_t *images)
{
    int64_t c = f->bytes[1] == '6' ? 3 : 1;
    *begin = 2;
    int64_t w = read_pnm_number(f, begin), h = read_pnm_number(f, begin),
            most = read_pnm_number(f, begin);
    OCT_CHECK(w > 0 && h > 0 && most > 0, OCT_DATA, "%s: the PGM or PPM header is damaged",
              f->path);
    OCT_CHECK(most == 255, OCT_DATA, "%s: values up to %" PRId64 "; convert it to 8 bits (255)",
              f->path, most);
    OCT_TRY(accept_size(f, h, w, c));
    *begin += 1; /* one white space */
    OCT_CHECK(f->size >= *begin + (size_t)(h * w * c), OCT_DATA, "%s: the image is cut short",
              f->path);
    *images = 1;
    return OCT_OK;
}

static oct_status count_raw_images(image_file *f, int64_t *images)
{
    int64_t image = f->wanted->h * f->wanted->w * f->wanted->c;
    OCT_CHECK((int64_t)f->size % image == 0, OCT_DATA,
              "%s: %zu bytes are not a whole number of images; the model takes %" PRId64 "x%" PRId64
              "x%" PRId64 " = %" PRId64 " bytes each",
              f->path, f->size, f->wanted->h, f->wanted->w, f->wanted->c, image);
    *images = (int64_t)f->size / image;
    return accept_size(f, f->wanted->h, f->wanted->w, f->wanted->c);
}

/* Files that people have, which are no images or none that are decoded here. */
static oct_status refuse_unknown_kind(const image_file *f)
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
    };
    for (size_t i = 0; i < OCT_COUNT(kinds); i++)
        OCT_CHECK(f->size < kinds[i].at + kinds[i].bytes ||
                      memcmp(f->bytes + kinds[i].at, kinds[i].begin, kinds[i].bytes) != 0,
                  OCT_DATA,
                  "%s: is %s file, which is not decoded here; convert it to PNG, such as with "
                  "ImageMagick: convert IN -resize '%" PRId64 "x%" PRId64
                  "!' -depth 8 OUT.png, or save arrays as .npy",
                  f->path, kinds[i].name, f->wanted->w, f->wanted->h);
    const bool hdf5 = f->size >= 4 && memcmp(f->bytes, "\x89HDF", 4) == 0;
    OCT_CHECK(!hdf5 && (f->size < 4 || memcmp(f->bytes, "PK\3\4", 4) != 0), OCT_DATA,
              "%s: is %s; arrays are read from a file NAME%s that Octet did not write", f->path,
              hdf5 ? "an HDF5 file" : "a zip archive", hdf5 ? ".h5" : ".npz");
    return oct_fail(OCT_DATA,
                    "%s: is no file of images that is known here (JPEG, PNG, .npy, IDX, CIFAR-10 "
                    "batch, PGM, PPM); with --raw its bytes are taken as images of %" PRId64
                    "x%" PRId64 "x%" PRId64,
                    f->path, f->wanted->h, f->wanted->w, f->wanted->c);
}

static oct_status check_pictures(const char *path, const oct_image_wanted *wanted)
{
    OCT_CHECK(wanted->c == 1 || wanted->c == 3 || wanted->c == 4, OCT_DATA,
              "%s: holds pictures of up to 4 channels, but the model takes %" PRId64, path,
              wanted->c);
    return OCT_OK;
}

/* Pixels take the place of the file that they are decoded from. */
static oct_status decode_picture(image_file *f, int64_t *images)
{
    const oct_encoded file = {f->bytes, f->size, f->path};
    oct_image image = {0};
    OCT_TRY(check_pictures(f->path, f->wanted));
    oct_status status = oct_image_decode(&image, &file, f->wanted->c);
    if (status == OCT_OK) status = accept_size(f, image.h, image.w, image.c);
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

/* An array of the shape that the model takes is one sample; otherwise its first axis counts samples. Its numbers
 * take the place of the file. */
static oct_status read_npy(image_file *f, int64_t *images)
{
    oct_span span = {.fd = -1, .memory = f->bytes, .size = (int64_t)f->size};
    oct_array array;
    oct_image *s = &f->sample;
    f->bytes = NULL; /* the array owns them */
    OCT_TRY(oct_npy_take(&array, &span, f->path, NULL));
    const oct_shape whole = array.shape, one = OCT_SHAPE(f->wanted->h, f->wanted->w, f->wanted->c),
                    grey = OCT_SHAPE(f->wanted->h, f->wanted->w);
    const bool single = oct_shape_equal(&whole, &one) ||
                        (f->wanted->c == 1 && f->wanted->h > 1 && oct_shape_equal(&whole, &grey));
    if (single) array.shape = OCT_SHAPE(1, f->wanted->h, f->wanted->w, f->wanted->c);
    oct_status status = oct_array_sample(&array, s);
    OCT_TRY_OUT(status);
    OCT_TRY_OUT(accept_size(f, s->h, s->w, s->c));
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

/* Finds the kind of the file and decodes it: *images images of pixels, from f->bytes + *begin on. */
static oct_status decode_images(image_file *f, size_t *begin, int64_t *images)
{
    const uint8_t *b = f->bytes;
    *begin = 0;
    if (f->wanted->raw) return count_raw_images(f, images);
    if (oct_image_kind_of(b, f->size)) return decode_picture(f, images);
    if (f->size >= 6 && memcmp(b, "\x93NUMPY", 6) == 0) return read_npy(f, images);
    /* IDX labels beside the images have the same name but for one word; their count is big-endian. */
    const bool labels =
        f->size >= 8 && memcmp(b, "\0\0\x8\x1", 4) == 0 &&
        f->size == 8 + ((size_t)b[4] << 24 | (size_t)b[5] << 16 | (size_t)b[6] << 8 | b[7]);
    OCT_CHECK(!labels, OCT_DATA, "%s: is an IDX file of labels; give the one that holds the images",
              f->path);
    if (f->size >= 2 && b[0] == 'P' && (b[1] == '5' || b[1] == '6'))
        return read_pnm_header(f, begin, images);
    const bool fits = f->wanted->h == 32 && f->wanted->w == 32 && f->wanted->c == 3;
    const size_t record = OCT_CIFAR_IMAGE + 1, records = f->size / record; /* a label, and planes */
    const bool cifar = fits && f->size % record == 0 && f->size % OCT_CIFAR_IMAGE != 0;
    if (!cifar) return refuse_unknown_kind(f);
    for (size_t i = 0; i < records; i++) { /* pixels take the place of the file */
        uint8_t planes[OCT_CIFAR_IMAGE];
        memcpy(planes, f->bytes + i * record + 1, sizeof planes);
        oct_cifar_pixels(planes, f->bytes + i * OCT_CIFAR_IMAGE);
    }
    f->size = records * OCT_CIFAR_IMAGE;
    return count_raw_images(f, images);
}

/* Arrays have the names that the model's recipe gives them, where it reads this format, too. */
static oct_status open_data_set(oct_dataset *data, const char *path, const oct_recipe *recipe,
                                const oct_image_wanted *wanted)
{
    oct_data_found found;
    OCT_TRY(oct_data_look(path, false, &found));
    const oct_dataset_format *format = oct_registry_find(&oct_dataset_id_table, found.format);
    const bool same = format == oct_registry_at(&oct_dataset_id_table, recipe->data_format);
    const char *usual = same ? recipe->data_images : NULL;
    const char *images = wanted->images ? wanted->images : found.images[0] ? found.images : usual;
    const oct_dataset_source source = {.format = format,
                                       .folder = found.path,
                                       .classes = 1,
                                       .channels = wanted->c,
                                       .images = images,
                                       .goal = OCT_GOAL_NONE,
                                       .split = 1};
    if (format->sample_name) OCT_TRY(check_pictures(path, wanted));
    return oct_dataset_open(data, &source, OCT_TEST);
}

static oct_status open_image_file(oct_dataset *data, const char *path,
                                  const oct_image_wanted *wanted)
{
    image_file f = {.path = path, .wanted = wanted, .sample = {.dtype = OCT_U8}};
    oct_status status = OCT_OK;
    size_t begin = 0;
    int64_t images = 0;
    OCT_TRY_OUT(inflate_file(&f));
    if (is_idx(&f)) {
        OCT_TRY_OUT(oct_idx_open_images(data, path));
        status = check_size(path, wanted, data->h, data->w, data->c);
        if (status != OCT_OK) oct_dataset_close(data);
        goto out;
    }
    OCT_TRY_OUT(decode_images(&f, &begin, &images));
    OCT_TRY_OUT(oct_memory_make(data, 0, &f.sample, 1));
    oct_free(&data->store);
    if (begin > 0) memmove(f.bytes, f.bytes + begin, f.size - begin);
    data->store = f.bytes;
    data->count = images;
    f.bytes = NULL;
out:
    oct_free(&f.bytes);
    return status;
}

oct_status oct_images_open(oct_dataset *data, const char *path, const oct_recipe *recipe,
                           const oct_image_wanted *wanted)
{
    struct stat info;
    /* The ending of its name says whether a file is a data set; a small .npy may be one sample, which open_image_file
     * finds out. */
    const bool small_npy =
        oct_ends_with(path, ".npy") && stat(path, &info) == 0 && info.st_size <= FILE_BYTES_MAX;
    const bool data_set = !wanted->raw && oct_data_is(path) && !small_npy;
    *data = (oct_dataset){0};
    return data_set ? open_data_set(data, path, recipe, wanted)
                    : open_image_file(data, path, wanted);
}

oct_status oct_images_read(const oct_dataset *data, int64_t i, const char *name,
                           const oct_image_wanted *wanted, oct_image *image)
{
    OCT_TRY(data->format->read(data, i, image, NULL));
    OCT_TRY(check_size(name, wanted, image->h, image->w, image->c));
    oct_image shape = *image;
    if (!wanted->augment || wanted->raw) return OCT_OK;
    /* The transforms come from a model, so sizes are not believed. */
    if (oct_augment_fit(wanted->augment, "data.test of the model's recipe", &shape) != OCT_OK)
        return oct_fail(OCT_DATA, "%s: %s", name, oct_error_message(0));
    OCT_TRY(oct_augment_run(wanted->augment, &(oct_draw){0}, image, NULL));
    OCT_CHECK(image->h == wanted->h && image->w == wanted->w, OCT_DATA,
              "%s: data.size and data.test of the model's recipe make %" PRId64 "x%" PRId64
              " of its images, but the model takes %" PRId64 "x%" PRId64,
              name, image->h, image->w, wanted->h, wanted->w);
    return OCT_OK;
}
