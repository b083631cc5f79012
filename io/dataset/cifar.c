/* CIFAR-10 and CIFAR-100 in their official binary version: records of label bytes and a planar RGB image of 32 x 32,
 * which is turned into NHWC while it is copied. */
#include "io/dataset/dataset.h"

#include "core/base/mem.h"

enum { SIDE = 32, PLANE = SIDE * SIDE, CHANNELS = 3, IMAGE = OCT_CIFAR_IMAGE, MAX_FILES = 8 };

static const size_t file_limit = (size_t)1 << 30;

typedef struct batch {
    void *bytes;
    size_t size;
} batch;

void oct_cifar_pixels(const uint8_t *planes, uint8_t *pixels)
{
    for (int c = 0; c < CHANNELS; c++)
        for (int p = 0; p < PLANE; p++)
            pixels[p * CHANNELS + c] = planes[c * PLANE + p];
}

static size_t record_bytes(const oct_dataset_format *self)
{
    return (size_t)(self->label_bytes + IMAGE);
}

static oct_status read_batch(batch *b, const char *folder, const char *name,
                             const oct_dataset_format *self)
{
    const size_t record = record_bytes(self);
    oct_path path;
    OCT_TRY(oct_path_make(&path, "%s/%s", folder, name));
    OCT_CHECK(oct_file_exists(path.text), OCT_DATA, "%s: there is no such file; %s", path.text,
              self->files);
    OCT_TRY(oct_file_read(path.text, file_limit, &b->bytes, &b->size));
    OCT_CHECK(b->size > 0, OCT_DATA, "%s: the file is empty", path.text);
    OCT_CHECK(b->size % record == 0, OCT_DATA,
              "%s: %zu bytes are not a whole number of records of %zu bytes; download it again, "
              "and make sure that it is the binary version",
              path.text, b->size, record);
    const uint8_t *label = (const uint8_t *)b->bytes + self->label_bytes - 1;
    for (size_t i = 0; i < b->size / record; i++)
        OCT_CHECK(label[i * record] < self->classes, OCT_DATA,
                  "%s: label %d of record %zu is out of range 0..%d", path.text, label[i * record],
                  i, (int)self->classes - 1);
    return OCT_OK;
}

/* The `open` of CIFAR-10 and CIFAR-100: reads all files of the split and makes NHWC bytes of their planes. */
static oct_status open_cifar(oct_dataset *data, const oct_dataset_source *source, oct_split split)
{
    const oct_dataset_format *self = data->format;
    const char *const *names = self->batches[split];
    batch batches[MAX_FILES] = {0};
    size_t records = 0;
    oct_status status = OCT_OK;
    for (size_t i = 0; names[i]; i++) {
        OCT_ASSERT(i < MAX_FILES);
        OCT_TRY_OUT(read_batch(&batches[i], source->folder, names[i], self));
        records += batches[i].size / record_bytes(self);
    }
    OCT_TRY_OUT(oct_alloc(&data->store, records, IMAGE));
    OCT_TRY_OUT(oct_alloc(&data->labels, records, sizeof *data->labels));
    data->dtype = OCT_U8;
    data->h = data->w = SIDE;
    data->c = CHANNELS;
    for (size_t i = 0; names[i]; i++) {
        const uint8_t *record = batches[i].bytes, *end = record + batches[i].size;
        for (; record < end; record += record_bytes(self)) {
            const uint8_t *planes = record + self->label_bytes;
            uint8_t *image = (uint8_t *)data->store + data->count * IMAGE;
            data->labels[data->count++] = planes[-1];
            oct_cifar_pixels(planes, image);
        }
    }
out:
    for (size_t i = 0; i < MAX_FILES; i++)
        oct_free(&batches[i].bytes);
    return status;
}

static const char *const train_files[] = {"data_batch_1.bin", "data_batch_2.bin",
                                          "data_batch_3.bin", "data_batch_4.bin",
                                          "data_batch_5.bin", NULL};
static const char *const test_files[] = {"test_batch.bin", NULL};

const oct_dataset_format oct_dataset_cifar10 = {
    .name = "cifar10",
    .files =
        "expected files: data_batch_1.bin to data_batch_5.bin and test_batch.bin of the binary "
        "version of CIFAR-10",
    .label_file = {"data_batch_*.bin", "test_batch.bin"},
    .classes = 10,
    .open = open_cifar,
    OCT_MEMORY_MEMBERS,
    .batches = {train_files, test_files},
    .label_bytes = 1,
};

/* Records have a coarse and a fine label; the fine ones are the classes. */
static const char *const train_file[] = {"train.bin", NULL}, *const test_file[] = {"test.bin",
                                                                                   NULL};

const oct_dataset_format oct_dataset_cifar100 = {
    .name = "cifar100",
    .files = "expected files: train.bin and test.bin of the binary version of CIFAR-100",
    .label_file = {"train.bin", "test.bin"},
    .classes = 100,
    .open = open_cifar,
    OCT_MEMORY_MEMBERS,
    .batches = {train_file, test_file},
    .label_bytes = 2,
};
