/* Data sets of arrays: which files and names they have, what their types and shapes mean, and samples of
 * them.
 *
 * The digest is of type and shape, of up to 64 samples that lie evenly over the array, and of the labels.
 */
#include "io/dataset/array_set.h"

#include "core/base/log.h"
#include "core/base/mem.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { IMAGES, LABELS };
enum { PROBES = 64, BLOCK_ELEMENTS = 4096 };

typedef struct array_store {
    oct_array images, maps;
    int64_t *positions; /* of the samples in the arrays; NULL: all */
    uint8_t fingerprint[32];
} array_store;

/* A split that is being opened. */
typedef struct opening {
    const oct_dataset_source *source;
    const oct_array_kind *kind;
    oct_split split;
    bool file;  /* data.path is one */
    bool drawn; /* the test is a share of the samples */
} opening;

/* The name of an array as it is given, or by default. */
static const char *array_name(const opening *r, int what)
{
    const char *given = what == IMAGES ? r->source->images : r->source->labels;
    if (given && *given) return given;
    return what == IMAGES ? r->kind->images[!r->file] : r->kind->labels[!r->file];
}

static const char split_mark[] = "{split}"; /* in names of arrays */

/* Opens the images or labels. {split} in their name becomes the split's word; r->drawn: neither the name nor a file of
 * its own says the split, so the test is drawn from the array. */
static oct_status open_array(opening *r, int what, oct_array *array)
{
    const char *given = array_name(r, what), *at = strstr(given, split_mark);
    const char *word = r->split == OCT_TRAIN ? "train" : "test";
    oct_path path, name;
    OCT_TRY(at ? oct_path_make(&name, "%.*s%s%s", (int)(at - given), given, word,
                               at + sizeof split_mark - 1)
               : oct_path_make(&name, "%s", given));
    r->drawn = !at;
    if (r->kind->one_each)
        OCT_TRY(oct_path_make(&path, "%s/%s%s", r->source->folder, name.text, r->kind->extension));
    else if (r->file)
        OCT_TRY(oct_path_make(&path, "%s", r->source->folder));
    else
        OCT_TRY(oct_split_file(r->source->folder, r->kind->extension, r->source->format->files,
                               r->split, &r->drawn, &path));
    OCT_TRY(r->kind->open(array, path.text, name.text));
    OCT_CHECK(array->shape.ndim > 0, OCT_DATA, "%s: has no dimension; 1 to %d dimensions are read",
              array->name, OCT_MAX_DIMS);
    return OCT_OK;
}

static oct_status check_source(opening *r)
{
    struct stat info;
    const bool images = strstr(array_name(r, IMAGES), split_mark),
               labels = strstr(array_name(r, LABELS), split_mark);
    r->file = stat(r->source->folder, &info) == 0 && !S_ISDIR(info.st_mode);
    OCT_CHECK(!r->file || !r->kind->one_each, OCT_DATA,
              "%s: is a file; data.path is the folder that holds the arrays' files; %s",
              r->source->folder, r->source->format->files);
    OCT_CHECK(images == labels || r->source->goal == OCT_GOAL_INPUT ||
                  r->source->goal == OCT_GOAL_NONE,
              OCT_USAGE,
              "data.images, data.labels: {split} is in one of them only; write it in both or "
              "in none");
    return OCT_OK;
}

oct_status oct_array_sample(const oct_array *array, oct_image *sample)
{
    const oct_dtype dtype = array->bytes > 1 ? OCT_F32 : array->kind == 'u' ? OCT_U8 : OCT_S8;
    *sample = (oct_image){.dtype = dtype};
    /* (N), (N, K), (N, H, W) or (N, H, W, C). */
    const int64_t *d = array->shape.dim;
    const int ndim = array->shape.ndim;
    sample->h = ndim > 2 ? d[1] : 1;
    sample->w = ndim > 2 ? d[2] : 1;
    sample->c = ndim == 2 ? d[1] : ndim == 4 ? d[3] : 1;
    const int64_t bytes = OCT_IMAGE_BYTES_MAX / 4;
    const bool sized = sample->h > 0 && sample->w > 0 && sample->c > 0 &&
                       sample->h <= OCT_IMAGE_SIDE_MAX && sample->w <= OCT_IMAGE_SIDE_MAX &&
                       sample->c <= bytes / (sample->h * sample->w);
    OCT_CHECK(sized && d[0] > 0, OCT_DATA,
              "%s: has the shape %s; samples are (N), (N, K), (N, H, W) or (N, H, W, C), each side "
              "from 1 to %d",
              array->name, oct_text_shape(&array->shape).text, OCT_IMAGE_SIDE_MAX);
    return OCT_OK;
}

/* Rows of an array that are converted into labels or values: those at `positions` (NULL: all). */
typedef struct conversion {
    const oct_array *array;
    const int64_t *positions;
    int64_t count;
    void *to;
    oct_status (*convert)(const struct conversion *t, int64_t i, const uint8_t *element);
} conversion;

/* Converts each element of the rows; rows that follow each other are read BLOCK_ELEMENTS elements at a time. */
static oct_status convert_rows(const conversion *t)
{
    const int64_t row = oct_array_row(t->array),
                  block_rows = row < BLOCK_ELEMENTS ? BLOCK_ELEMENTS / (row > 0 ? row : 1) : 1;
    OCT_OWNED(oct_free) uint8_t *rows = NULL;
    OCT_TRY(oct_alloc(&rows, (size_t)(block_rows * row), t->array->bytes));
    for (int64_t first = 0, n; first < t->count; first += n) {
        const int64_t left = t->count - first;
        n = t->positions ? 1 : left < block_rows ? left : block_rows;
        OCT_TRY(oct_array_read(t->array, t->positions ? t->positions[first] : first, n, rows));
        for (int64_t k = 0; k < n * row; k++)
            OCT_TRY(t->convert(t, first * row + k, rows + (size_t)k * t->array->bytes));
    }
    return OCT_OK;
}

static oct_status convert_label(const conversion *t, int64_t i, const uint8_t *element)
{
    int64_t label;
    OCT_CHECK(oct_array_whole(t->array, element, &label) && label >= INT32_MIN &&
                  label <= INT32_MAX,
              OCT_DATA, "%s: the label at index %" PRId64 " is out of range", t->array->name, i);
    ((int32_t *)t->to)[i] = (int32_t)label;
    return OCT_OK;
}

static oct_status convert_value(const conversion *t, int64_t i, const uint8_t *element)
{
    const double value = oct_array_real(t->array, element);
    OCT_CHECK(fabs(value) <= (double)FLT_MAX, OCT_DATA,
              "%s: the number at index %" PRId64 " is not finite", t->array->name, i);
    ((float *)t->to)[i] = (float)value;
    return OCT_OK;
}

static oct_status read_classes(oct_dataset *data, const oct_array *a, const int64_t *positions)
{
    OCT_CHECK(a->kind != 'f', OCT_DATA,
              "%s: holds floats; classes are whole numbers; data.goal=values takes floats",
              a->name);
    OCT_CHECK(oct_array_row(a) == 1 && a->shape.ndim <= 2, OCT_DATA,
              "%s: has the shape %s; classes are (N); data.goal=values takes several numbers for "
              "each sample, data.goal=map a map",
              a->name, oct_text_shape(&a->shape).text);
    OCT_TRY(oct_alloc(&data->labels, (size_t)data->count, sizeof *data->labels));
    const conversion t = {a, positions, data->count, data->labels, convert_label};
    return convert_rows(&t);
}

static oct_status read_values(oct_dataset *data, const oct_array *a, const int64_t *positions)
{
    OCT_CHECK(a->shape.ndim <= 2 && oct_array_row(a) > 0 && oct_array_row(a) <= OCT_CLASSES_MAX,
              OCT_DATA, "%s: has the shape %s; values are (N) or (N, K), K up to %d", a->name,
              oct_text_shape(&a->shape).text, OCT_CLASSES_MAX);
    data->classes = oct_array_row(a);
    OCT_TRY(oct_alloc(&data->values, (size_t)data->count, (size_t)data->classes * sizeof(float)));
    const conversion t = {a, positions, data->count, data->values, convert_value};
    return convert_rows(&t);
}

/* Maps stay in their file: the data set takes the array over. */
static oct_status keep_maps(oct_dataset *data, const oct_dataset_source *source, oct_array *a)
{
    array_store *s = data->store;
    OCT_CHECK(a->kind != 'f' && a->shape.ndim == 3 && a->shape.dim[1] == data->h &&
                  a->shape.dim[2] == data->w,
              OCT_DATA,
              "%s: is %c%zu of the shape %s; maps are whole numbers of (N, %" PRId64 ", %" PRId64
              "), as the samples",
              a->name, a->kind, a->bytes, oct_text_shape(&a->shape).text, data->h, data->w);
    OCT_CHECK(source->classes > 1, OCT_USAGE,
              "data.classes: say how many classes the maps have, for data.goal=map");
    data->classes = source->classes;
    s->maps = *a;
    *a = (oct_array){.span = OCT_SPAN_NONE};
    return OCT_OK;
}

/* Draws which of the samples are the split's, where the files do not say. */
static oct_status draw_split(const opening *r, const oct_array *images, int64_t **positions,
                             int64_t *count)
{
    const oct_split_draw d = {images->shape.dim[0], r->source->split, r->source->seed, 0};
    OCT_CHECK(d.count > 1 || d.share >= 1, OCT_DATA,
              "%s: holds one sample; two are needed, since a share of them is kept for the test",
              images->name);
    if (r->split == OCT_TRAIN)
        oct_log(OCT_LOG_INFO, "%s: no samples for the test; %g of all are kept for it",
                images->name, d.share);
    return oct_split_choose(&d, r->split, positions, count);
}

/* Digests type, size and up to PROBES samples at equal distances, since reading all could take long. */
static oct_status make_fingerprint(const oct_dataset *data, array_store *s)
{
    const oct_array *a = &s->images;
    const size_t bytes = (size_t)oct_array_row(a) * a->bytes;
    oct_sha256_state *state = NULL;
    OCT_OWNED(oct_free) uint8_t *sample = NULL;
    oct_status status = OCT_OK;
    OCT_TRY(oct_alloc(&sample, bytes, 1));
    OCT_TRY_OUT(oct_sha256_begin(&state));
    const int64_t head[] = {a->kind, (int64_t)a->bytes, data->count, data->h, data->w, data->c};
    oct_sha256_add(state, head, sizeof head);
    const int64_t count = a->shape.dim[0], probes = count < PROBES ? count : PROBES;
    for (int64_t i = 0; i < probes && status == OCT_OK; i++) {
        status = oct_array_read(a, i * (count / probes), 1, sample);
        oct_sha256_add(state, sample, bytes);
    }
out:
    oct_sha256_end(&state, s->fingerprint);
    return status;
}

/* Channels in front, as PyTorch has them, are rows here: an image of 1, 3 or 4 rows is hardly meant. */
static void warn_of_channels_first(const oct_array *a)
{
    const int64_t *d = a->shape.dim;
    if (a->shape.ndim != 4 || (d[1] != 1 && d[1] != 3 && d[1] != 4) || d[2] < 8 || 4 * d[3] < d[2])
        return;
    oct_log(OCT_LOG_WARN,
            "%s: has the shape %s, which is read as %" PRId64 " rows of %" PRId64
            " pixels with %" PRId64 " channels; if the channels come first, save "
            "numpy.ascontiguousarray(array.transpose(0, 2, 3, 1))",
            a->name, oct_text_shape(&a->shape).text, d[1], d[2], d[3]);
}

/* Opens the images, sets type, size and count of samples by them, and draws the split where files do not say it. */
static oct_status open_images(oct_dataset *data, opening *r)
{
    array_store *s = data->store;
    oct_image sample;
    OCT_TRY(open_array(r, IMAGES, &s->images));
    OCT_TRY(oct_array_sample(&s->images, &sample));
    data->dtype = sample.dtype;
    data->h = sample.h;
    data->w = sample.w;
    data->c = sample.c;
    data->count = s->images.shape.dim[0];
    if (r->split == OCT_TRAIN) warn_of_channels_first(&s->images);
    if (r->drawn) OCT_TRY(draw_split(r, &s->images, &s->positions, &data->count));
    return make_fingerprint(data, s);
}

oct_status oct_arrays_open(oct_dataset *data, const oct_dataset_source *source, oct_split split)
{
    opening r = {.source = source, .kind = source->format->arrays, .split = split};
    OCT_OWNED(oct_array_close) oct_array labels = {.span = OCT_SPAN_NONE};
    OCT_TRY(oct_alloc(&data->store, 1, sizeof(array_store)));
    OCT_TRY(check_source(&r));
    if (!source->labels_only) OCT_TRY(open_images(data, &r));
    /* What learns its input has labels only where they are named: which samples are unlike the others. */
    if (source->goal == OCT_GOAL_NONE) return OCT_OK;
    if (source->goal == OCT_GOAL_INPUT && !(source->labels && *source->labels)) return OCT_OK;
    array_store *s = data->store;
    OCT_TRY(open_array(&r, LABELS, &labels));
    if (source->labels_only) {
        data->count = labels.shape.dim[0];
        if (r.drawn) OCT_TRY(draw_split(&r, &labels, &s->positions, &data->count));
    } else {
        OCT_CHECK(labels.shape.dim[0] == s->images.shape.dim[0], OCT_DATA,
                  "%s: holds %" PRId64 " labels, but %s holds %" PRId64 " samples", labels.name,
                  labels.shape.dim[0], s->images.name, s->images.shape.dim[0]);
    }
    return source->goal == OCT_GOAL_VALUES ? read_values(data, &labels, s->positions)
           : source->goal == OCT_GOAL_MAP  ? keep_maps(data, source, &labels)
                                           : read_classes(data, &labels, s->positions);
}

/* Reads the class map of a sample, -1 for no class: a negative number, or 255 where there are fewer classes. */
static oct_status read_map(const oct_dataset *data, int64_t index, oct_image *map)
{
    const array_store *s = data->store;
    const oct_array *a = &s->maps;
    const int64_t h = a->shape.dim[1], w = a->shape.dim[2];
    OCT_OWNED(oct_free) uint8_t *raw = NULL;
    OCT_TRY(oct_image_resize(map, OCT_S32, h, w, 1));
    OCT_TRY(oct_alloc(&raw, (size_t)(h * w), a->bytes));
    OCT_TRY(oct_array_read(a, index, 1, raw));
    for (int64_t i = 0; i < h * w; i++) {
        int64_t number = -1;
        if (!oct_array_whole(a, raw + (size_t)i * a->bytes, &number) ||
            oct_is_no_class(data, number))
            number = -1;
        OCT_CHECK(number < data->classes, OCT_DATA,
                  "%s: sample %" PRId64 ", pixel (%" PRId64 ", %" PRId64 ") has class %" PRId64
                  ", but there are %" PRId64
                  "; raise data.classes or mend the map (255 is no class)",
                  a->name, index, i / w, i % w, number, data->classes);
        ((int32_t *)map->data)[i] = number < 0 ? -1 : (int32_t)number;
    }
    return OCT_OK;
}

/* Reads the image of a sample and, for OCT_GOAL_MAP, its class map. OCT_DATA where a float is not finite. */
oct_status oct_arrays_read(const oct_dataset *data, int64_t index, oct_image *image, oct_image *map)
{
    const array_store *s = data->store;
    const oct_array *a = &s->images;
    const int64_t at = s->positions ? s->positions[index] : index;
    OCT_TRY(oct_image_resize(image, data->dtype, data->read_h, data->read_w, data->read_c));
    OCT_TRY(oct_array_read_samples(a, at, 1, image->data));
    const float *x = image->data;
    if (data->dtype == OCT_F32) {
        for (int64_t i = 0; i < oct_image_numel(image); i++)
            OCT_CHECK(fabsf(x[i]) <= FLT_MAX, OCT_DATA,
                      "%s: sample %" PRId64 " holds a number that is not finite, at %" PRId64,
                      s->images.name, at, i);
    }
    return data->goal == OCT_GOAL_MAP ? read_map(data, at, map) : OCT_OK;
}

void oct_arrays_close(oct_dataset *data)
{
    array_store *s = data->store;
    if (!s) return;
    oct_array_close(&s->images);
    oct_array_close(&s->maps);
    oct_free(&s->positions);
    oct_free(&data->store);
}

void oct_arrays_digest(const oct_dataset *data, oct_sha256_state *state)
{
    const array_store *s = data->store;
    oct_sha256_add(state, s->fingerprint, sizeof s->fingerprint);
}
