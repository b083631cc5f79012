/* The CIFAR-10 binary format: NHWC from planes, files in order, and every kind of bad file. */
#include "core/base/mem.h"
#include "io/dataset/dataset.h"
#include "io/file/file.h"
#include "tests/io/data_memory.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { PLANE = 1024, RECORD = 3073, PER_FILE = 3 };

static uint8_t pixel(int record, int c, int p)
{
    return (uint8_t)(record * 31 + c * 101 + p * 7 + p / 256);
}

static void fill_records(uint8_t *records, int first, int count)
{
    for (int i = 0; i < count; i++, records += RECORD) {
        records[0] = (uint8_t)((first + i) % 10);
        for (int j = 0; j < 3 * PLANE; j++)
            records[1 + j] = pixel(first + i, j / PLANE, j % PLANE);
    }
}

static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

static void write_all(oct_tmp *tmp)
{
    static uint8_t records[PER_FILE * RECORD];
    for (int f = 0; f < 6; f++) {
        fill_records(records, PER_FILE * f, PER_FILE);
        oct_tmp_write(tmp, names[f], records, sizeof records);
    }
}

Test(cifar10, five_files_become_one_set_of_nhwc_images)
{
    oct_tmp tmp;
    oct_dataset data;
    uint8_t digest[32];
    oct_tmp_create(&tmp);
    write_all(&tmp);
    cr_assert(load_plain(&data, &oct_dataset_cifar10, tmp.path, OCT_TRAIN, 0) == OCT_OK, "%s",
              oct_error_message(0));
    cr_assert(data.count == 15 && data.h == 32 && data.w == 32 && data.c == 3 &&
              data.classes == 10);
    for (int i = 0; i < 15; i++) {
        cr_assert(data.labels[i] == i % 10);
        for (int p = 0; p < PLANE; p++)
            for (int c = 0; c < 3; c++)
                cr_assert(((uint8_t *)data.store)[(i * PLANE + p) * 3 + c] == pixel(i, c, p));
    }
    static uint8_t both[15 * 3 * PLANE + 15];
    memcpy(both, data.store, 15 * 3 * PLANE);
    for (int i = 0; i < 15; i++)
        both[15 * 3 * PLANE + i] = (uint8_t)data.labels[i];
    oct_sha256(both, sizeof both, digest);
    cr_assert(memcmp(digest, data.digest, 32) == 0);
    oct_dataset_close(&data);

    cr_assert(load_plain(&data, &oct_dataset_cifar10, tmp.path, OCT_TEST, 2) == OCT_OK);
    cr_assert(data.count == 2 && data.labels[0] == 5);
    oct_dataset_close(&data);
    oct_tmp_remove(&tmp);
    cr_assert(oct_mem_live() == 0);
}

static void check_refused(const char *folder, oct_split split, const char *path,
                          const char *sentence)
{
    oct_dataset data;
    char want[1000];
    cr_assert(load_plain(&data, &oct_dataset_cifar10, folder, split, 0) == OCT_DATA);
    snprintf(want, sizeof want, "%s: %s", path, sentence);
    cr_assert_str_eq(oct_error_message(0), want);
    cr_assert(data.store == NULL && data.labels == NULL && data.count == 0);
    cr_assert(oct_mem_live() == 0);
}

#define FILES                                                                                      \
    "expected files: data_batch_1.bin to data_batch_5.bin and test_batch.bin of the binary "       \
    "version of CIFAR-10"

Test(cifar10, bad_files_are_named)
{
    static uint8_t records[2 * RECORD];
    oct_tmp tmp;
    oct_tmp_create(&tmp);
    write_all(&tmp);

    fill_records(records, 0, 2);
    const char *path = oct_tmp_write(&tmp, "data_batch_4.bin", records, 2 * RECORD - 1);
    check_refused(tmp.path, OCT_TRAIN, path,
                  "6145 bytes are not a whole number of records of 3073 bytes; download it again, "
                  "and make sure that it is the binary version");
    records[RECORD] = 10;
    path = oct_tmp_write(&tmp, "data_batch_4.bin", records, 2 * RECORD);
    check_refused(tmp.path, OCT_TRAIN, path, "label 10 of record 1 is out of range 0..9");
    path = oct_tmp_write(&tmp, "data_batch_4.bin", "", 0);
    check_refused(tmp.path, OCT_TRAIN, path, "the file is empty");
    remove(path);
    check_refused(tmp.path, OCT_TRAIN, path, "there is no such file; " FILES);
    path = oct_tmp_path(&tmp, "test_batch.bin");
    remove(path);
    check_refused(tmp.path, OCT_TEST, path, "there is no such file; " FILES);
    path = oct_tmp_path(&tmp, "none");
    check_refused(path, OCT_TEST, path,
                  "there is no such folder; " FILES
                  "; name another with data.path=FOLDER or, where a model or checkpoint is given, "
                  "--data FOLDER");
    path = oct_tmp_path(&tmp, "data_batch_1.bin");
    check_refused(path, OCT_TEST, path,
                  "is a file, not a folder; data.path is the folder that holds the files");
    oct_tmp_remove(&tmp);
}

Test(cifar10, without_a_folder_it_says_how_to_name_one)
{
    oct_dataset data;
    cr_assert(load_plain(&data, &oct_dataset_cifar10, "", OCT_TRAIN, 0) == OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0),
                     "data.path: the format cifar10 has no default folder; write "
                     "data.path=FOLDER, or with a model or checkpoint --data "
                     "FOLDER; " FILES);
}

Test(cifar10, of_100_classes_the_fine_label_counts)
{
    enum { RECORD_100 = RECORD + 1 };
    static uint8_t records[PER_FILE * RECORD_100];
    oct_tmp tmp;
    oct_dataset data;
    oct_tmp_create(&tmp);
    for (int i = 0; i < PER_FILE; i++) {
        uint8_t *record = records + i * RECORD_100;
        record[0] = 19; /* coarse */
        record[1] = (uint8_t)(99 - i);
        for (int j = 0; j < 3 * PLANE; j++)
            record[2 + j] = pixel(i, j / PLANE, j % PLANE);
    }
    oct_tmp_write(&tmp, "train.bin", records, sizeof records);
    cr_assert(load_plain(&data, &oct_dataset_cifar100, tmp.path, OCT_TRAIN, 0) == OCT_OK, "%s",
              oct_error_message(0));
    cr_assert(data.count == PER_FILE && data.classes == 100 && data.c == 3);
    for (int i = 0; i < PER_FILE; i++)
        cr_assert(data.labels[i] == 99 - i &&
                  ((const uint8_t *)data.store)[i * 3 * PLANE + 1] == pixel(i, 1, 0));
    oct_dataset_close(&data);
    records[RECORD_100 + 1] = 100;
    oct_tmp_write(&tmp, "train.bin", records, sizeof records);
    cr_assert(load_plain(&data, &oct_dataset_cifar100, tmp.path, OCT_TRAIN, 0) == OCT_DATA);
    cr_assert(
        strstr(oct_error_message(0), "train.bin: label 100 of record 1 is out of range 0..99"));
    oct_tmp_remove(&tmp);
}

Test(cifar10, memory_that_runs_out_leaves_nothing)
{
    oct_tmp tmp;
    oct_tmp_create(&tmp);
    write_all(&tmp);
    check_memory_that_runs_out(&oct_dataset_cifar10, tmp.path);
    oct_tmp_remove(&tmp);
}
