/* CIFAR-10 in its official binary version: records of one label byte and a planar RGB image of
 * 32 x 32, turned into NHWC while they are copied. The training data lie in five files.
 */
#include "io/dataset/dataset.h"

#include "core/base/mem.h"
#include "io/file.h"

#include <inttypes.h>

#define FILES                                                                                      \
    "it is to hold data_batch_1.bin to data_batch_5.bin and test_batch.bin of the binary version " \
    "of CIFAR-10"

enum { SIDE = 32, PLANE = SIDE * SIDE, CHANNELS = 3, RECORD = 1 + CHANNELS * PLANE, CLASSES = 10 };

static const size_t file_limit = (size_t)1 << 30;

typedef struct batch {
    char *path;
    void *bytes;
    size_t size;
} batch;

static const char *const train_files[] = {"data_batch_1.bin", "data_batch_2.bin",
                                          "data_batch_3.bin", "data_batch_4.bin",
                                          "data_batch_5.bin"};
static const char *const test_files[] = {"test_batch.bin"};

enum { MAX_FILES = OCT_COUNT(train_files) };

static oct_status read_batch(batch *b, const char *folder, const char *name)
{
    OCT_TRY(oct_format(&b->path, "%s/%s", folder, name));
    OCT_CHECK(oct_file_exists(b->path), OCT_DATA, "%s: there is no such file; " FILES, b->path);
    OCT_TRY(oct_file_read(b->path, file_limit, &b->bytes, &b->size));
    OCT_CHECK(b->size > 0, OCT_DATA, "%s: the file is empty", b->path);
    OCT_CHECK(b->size % RECORD == 0, OCT_DATA,
              "%s: %zu bytes are not a whole number of records of %d bytes; fetch it again, and "
              "see that it is the binary version",
              b->path, b->size, RECORD);
    const uint8_t *bytes = b->bytes;
    for (size_t i = 0; i < b->size / RECORD; i++)
        OCT_CHECK(bytes[i * RECORD] < CLASSES, OCT_DATA,
                  "%s: label %d of record %zu is out of range 0..%d", b->path, bytes[i * RECORD], i,
                  CLASSES - 1);
    return OCT_OK;
}

static void copy_batch(oct_dataset *data, const batch *b)
{
    const uint8_t *record = b->bytes;
    for (size_t i = 0; i < b->size / RECORD; i++, record += RECORD) {
        uint8_t *image = data->images + data->count * PLANE * CHANNELS;
        data->labels[data->count++] = record[0];
        for (int c = 0; c < CHANNELS; c++)
            for (int p = 0; p < PLANE; p++)
                image[p * CHANNELS + c] = record[1 + c * PLANE + p];
    }
}

static oct_status load(oct_dataset *data, const char *folder, oct_split split)
{
    const char *const *names = split == OCT_TRAIN ? train_files : test_files;
    size_t num_files = split == OCT_TRAIN ? OCT_COUNT(train_files) : OCT_COUNT(test_files);
    batch batches[MAX_FILES] = {0};
    size_t records = 0;
    oct_status status = OCT_OK;
    for (size_t i = 0; i < num_files; i++) {
        OCT_TRY_OUT(read_batch(&batches[i], folder, names[i]));
        records += batches[i].size / RECORD;
    }
    OCT_TRY_OUT(oct_alloc(&data->images, records, PLANE * CHANNELS));
    OCT_TRY_OUT(oct_alloc(&data->labels, records, 1));
    data->h = data->w = SIDE;
    data->c = CHANNELS;
    data->classes = CLASSES;
    for (size_t i = 0; i < num_files; i++)
        copy_batch(data, &batches[i]);
out:
    for (size_t i = 0; i < num_files; i++) {
        oct_free(&batches[i].bytes);
        oct_free(&batches[i].path);
    }
    return status;
}

const oct_dataset_format oct_dataset_cifar10 = {
    .name = "cifar10",
    .default_path = NULL,
    .files = FILES,
    .load = load,
};
