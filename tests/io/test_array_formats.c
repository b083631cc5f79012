/* Data sets in files of numpy and h5py: what those wrote is what is read; everything else is refused by
 * name. */
#include "core/base/mem.h"
#include "io/dataset/array_set.h"
#include "tests/io/golden_file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { H = 5, W = 4, C = 2, SAMPLE = H * W * C, TRAIN = 6, TEST = 4 };

static oct_status open_set(oct_dataset *data, const oct_dataset_format *format, const char *path,
                           oct_split split)
{
    const oct_dataset_source source = {
        .format = format, .folder = path, .split = 0.5, .seed = 1, .channels = 3};
    return oct_dataset_open(data, &source, split);
}

/* What make_array_golden.py says. */
static void check_sample(const oct_dataset *data, int64_t index, int first, int64_t label)
{
    oct_image image = {0};
    cr_assert(data->format->read(data, index, &image, NULL) == OCT_OK, "%s", oct_error_message(0));
    cr_assert(image.h == H && image.w == W && image.c == C && image.dtype == data->dtype);
    for (int i = 0; i < SAMPLE; i++) {
        const int code = (first + i) % 256;
        if (data->dtype == OCT_U8) cr_assert(((const uint8_t *)image.data)[i] == code);
        if (data->dtype == OCT_S8) cr_assert(((const int8_t *)image.data)[i] == code - 128);
        if (data->dtype == OCT_F32) cr_assert(((const float *)image.data)[i] * 8 == (float)code);
    }
    cr_assert(data->labels[index] == label);
    oct_image_free(&image);
}

static void check_split(const oct_dataset_format *format, const char *path, oct_split split,
                        oct_dtype dtype)
{
    oct_dataset data;
    cr_assert(open_set(&data, format, path, split) == OCT_OK, "%s: %s", path, oct_error_message(0));
    cr_assert(data.count == (split == OCT_TRAIN ? TRAIN : TEST) && data.classes == 3);
    cr_assert(data.h == H && data.w == W && data.c == C && data.dtype == dtype);
    for (int64_t i = 0; i < data.count; i++)
        check_sample(&data, i, (int)i * SAMPLE + (split == OCT_TEST ? 100 : 0), i % 3);
    oct_dataset_close(&data);
    cr_assert(oct_mem_live() == 0);
}

Test(arrays, what_numpy_and_h5py_wrote_is_read)
{
    static const struct {
        const char *name, *as;
        const oct_dataset_format *format;
        oct_dtype dtype;
    } files[] = {
        {"npz_u1", "u1.npz", &oct_dataset_npz, OCT_U8},
        {"npz_i1", "i1.npz", &oct_dataset_npz, OCT_S8},
        {"npz_f4_packed", "f4.npz", &oct_dataset_npz, OCT_F32},
        {"h5_u1", "u1.h5", &oct_dataset_hdf5, OCT_U8},
        {"h5_f4_big", "big.h5", &oct_dataset_hdf5, OCT_F32},
        {"h5_i1_latest", "latest.h5", &oct_dataset_hdf5, OCT_S8},
        {"h5_u1_chunks", "chunks.h5", &oct_dataset_hdf5, OCT_U8},
        {"h5_f4_packed", "packed.h5", &oct_dataset_hdf5, OCT_F32},
        {"h5_u1_v110", "v110.h5", &oct_dataset_hdf5, OCT_U8},
        {"h5_u1_compact", "compact.h5", &oct_dataset_hdf5, OCT_U8},
    };
    oct_tmp tmp;
    oct_tmp_create(&tmp);
    for (size_t i = 0; i < OCT_COUNT(files); i++) {
        const char *path = golden_file(&tmp, files[i].name, files[i].as);
        check_split(files[i].format, path, OCT_TRAIN, files[i].dtype);
        check_split(files[i].format, path, OCT_TEST, files[i].dtype);
    }
    golden_npy(&tmp);
    check_split(&oct_dataset_npy, tmp.path, OCT_TRAIN, OCT_U8);
    check_split(&oct_dataset_npy, tmp.path, OCT_TEST, OCT_U8);
    oct_tmp_remove(&tmp);
}

Test(arrays, a_share_of_the_samples_is_drawn_where_there_is_no_test)
{
    oct_tmp tmp;
    oct_dataset part[2];
    int seen[TRAIN] = {0};
    oct_tmp_create(&tmp);
    golden_file(&tmp, "npy_train_images", "x.npy");
    golden_file(&tmp, "npy_train_labels", "y.npy");
    for (int s = 0; s < 2; s++) {
        const oct_dataset_source source = {.format = &oct_dataset_npy,
                                           .folder = tmp.path,
                                           .split = 0.34,
                                           .seed = 7,
                                           .images = "x",
                                           .labels = "y"};
        cr_assert(oct_dataset_open(&part[s], &source, (oct_split)s) == OCT_OK, "%s",
                  oct_error_message(0));
        for (int64_t i = 0; i < part[s].count; i++) {
            oct_image image = {0};
            cr_assert(part[s].format->read(&part[s], i, &image, NULL) == OCT_OK);
            const int n = *(const uint8_t *)image.data / SAMPLE; /* its first number */
            cr_assert(part[s].labels[i] == n % 3);
            seen[n]++;
            oct_image_free(&image);
        }
    }
    cr_assert(part[0].count == 4 && part[1].count == 2);
    for (int n = 0; n < TRAIN; n++)
        cr_assert(seen[n] == 1);
    oct_dataset_close(&part[0]);
    oct_dataset_close(&part[1]);
    oct_tmp_remove(&tmp);
}

static oct_status try_all(const oct_dataset_format *format, const char *path)
{
    oct_dataset data;
    oct_image image = {0};
    OCT_TRY(open_set(&data, format, path, OCT_TEST));
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < data.count && status == OCT_OK; i++)
        status = data.format->read(&data, i, &image, NULL);
    oct_image_free(&image);
    oct_dataset_close(&data);
    return status;
}

static void check_damage(const char *name, const char *as, const oct_dataset_format *format)
{
    oct_tmp tmp;
    uint8_t *bytes = NULL;
    oct_tmp_create(&tmp);
    const size_t size = golden_bytes(name, &bytes), live = oct_mem_live();
    /* A program of its own reads HDF5 each time; tests/fuzz tries more of them. */
    const size_t sparse = format == &oct_dataset_hdf5 ? 72 : 1;
    for (size_t cut = 0; cut < size; cut += (cut < 200 ? 1 : 37) * sparse) {
        const char *path = oct_tmp_write(&tmp, as, bytes, cut);
        const oct_status status = try_all(format, path);
        cr_assert(status == OCT_DATA || (status == OCT_OK && format == &oct_dataset_hdf5),
                  "%s cut to %zu: %d", name, cut, status);
        if (status != OCT_OK)
            cr_assert(strstr(oct_error_message(0), as), "%s", oct_error_message(0));
    }
    for (size_t at = 0; at < size; at += (at < 300 ? 1 : 7) * sparse) {
        bytes[at] ^= 0x81;
        const oct_status status = try_all(format, oct_tmp_write(&tmp, as, bytes, size));
        bytes[at] ^= 0x81;
        cr_assert(status == OCT_OK || status == OCT_DATA, "%s at %zu: %s", name, at,
                  oct_error_message(0));
        cr_assert(oct_mem_live() == live, "%s at %zu: %s", name, at,
                  oct_error_count() ? oct_error_message(0) : "");
        oct_fail_clear();
    }
    oct_free(&bytes);
    oct_tmp_remove(&tmp);
    cr_assert(oct_mem_live() == 0);
}

Test(arrays, damaged_files_are_refused)
{
    check_damage("npz_u1", "a.npz", &oct_dataset_npz);
    check_damage("npz_f4_packed", "b.npz", &oct_dataset_npz);
    check_damage("h5_u1", "a.h5", &oct_dataset_hdf5);
    check_damage("h5_f4_packed", "b.h5", &oct_dataset_hdf5);
    check_damage("h5_i1_latest", "c.h5", &oct_dataset_hdf5);
}

/* A .npy file of version 1 with this header. */
static void write_npy(oct_tmp *tmp, const char *name, const char *header, size_t numbers)
{
    uint8_t bytes[512] = "\x93NUMPY\1";
    const size_t length = strlen(header);
    bytes[8] = (uint8_t)length;
    memcpy(bytes + 10, header, length);
    oct_tmp_write(tmp, name, bytes, 10 + length + numbers);
}

Test(arrays, what_is_wrong_with_an_array_is_said)
{
    static const struct {
        const char *header, *sentence;
        size_t numbers;
    } cases[] = {
        {"{'descr': '|u1', 'fortran_order': True, 'shape': (4, 3), }",
         "is in Fortran's order; convert it with numpy: numpy.ascontiguousarray(array)", 12},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (4, 3), }",
         "is damaged or cut short: (4, 3) numbers of 1 bytes are not the 11 bytes that are there",
         11},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2, 1, 2, 1), }",
         "has too many dimensions; 1 to 4 dimensions are read", 4},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (), }",
         "has no dimension; 1 to 4 dimensions are read", 1},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (4, 0), }",
         "has the shape (4, 0); samples are (N), (N, K), (N, H, W) or (N, H, W, C), each side from "
         "1 to 65500",
         0},
        {"{'descr': [('a', '|u1'), (']', '<f4', (2,))], 'fortran_order': False, 'shape': (4,), }",
         "holds structures of several fields; save each field as an array of its own: "
         "numpy.ascontiguousarray(array['FIELD'])",
         36},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (4L, 3L), }",
         "is damaged or cut short: (4, 3) numbers of 1 bytes are not the 11 bytes that are there",
         11},
        {"{'descr': '|u1', 'shape': (4,), }", "is no .npy file, or its header is damaged", 4},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (999999999999999999, "
         "999999999999999999, 9), }",
         "is damaged or cut short: (999999999999999999, 999999999999999999, 9) numbers of 1 bytes "
         "are not the 4 bytes that are there",
         4},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (3, 4), }",
         "holds 4 labels, but SAMPLES holds 3 samples", 12},
    };
    oct_tmp tmp;
    oct_tmp_create(&tmp);
    golden_npy(&tmp);
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_dataset data;
        char want[1000], samples[600];
        const bool counts = strstr(cases[i].sentence, "SAMPLES") != NULL;
        write_npy(&tmp, "test_images.npy", cases[i].header, cases[i].numbers);
        oct_mem_peak_reset();
        cr_assert(open_set(&data, &oct_dataset_npy, tmp.path, OCT_TEST) == OCT_DATA);
        snprintf(samples, sizeof samples, "%s/test_images.npy", tmp.path);
        if (counts)
            snprintf(want, sizeof want,
                     "%s/test_labels.npy: holds 4 labels, but %s holds 3 samples", tmp.path,
                     samples);
        else
            snprintf(want, sizeof want, "%s: %s", samples, cases[i].sentence);
        cr_assert_str_eq(oct_error_message(0), want);
        cr_assert(oct_mem_live() == 0 && oct_mem_peak() < 1 << 20);
    }
    oct_tmp_remove(&tmp);
}

Test(arrays, a_name_that_is_not_there_is_said_with_those_that_are)
{
    oct_tmp tmp;
    oct_dataset data;
    char want[1000];
    oct_tmp_create(&tmp);
    const char *path = golden_file(&tmp, "npz_u1", "a.npz");
    const oct_dataset_source source = {
        .format = &oct_dataset_npz, .folder = path, .images = "x_{split}", .labels = "y_{split}"};
    cr_assert(oct_dataset_open(&data, &source, OCT_TRAIN) == OCT_DATA);
    snprintf(want, sizeof want,
             "%s: holds no x_train.npy, but train_images.npy, test_images.npy, train_labels.npy, "
             "test_labels.npy; data.images and data.labels say what the arrays are called "
             "(octet run: --images)",
             path);
    cr_assert_str_eq(oct_error_message(0), want);
    oct_tmp_remove(&tmp);
}

Test(arrays, values_and_maps_are_goals_too)
{
    oct_tmp tmp;
    oct_dataset data;
    oct_image image = {0}, map = {0};
    oct_tmp_create(&tmp);
    golden_npy(&tmp);
    oct_dataset_source source = {
        .format = &oct_dataset_npy, .folder = tmp.path, .goal = OCT_GOAL_VALUES};
    cr_assert(oct_dataset_open(&data, &source, OCT_TRAIN) == OCT_OK, "%s", oct_error_message(0));
    cr_assert(data.classes == 1 && data.values[4] == 1.0F && !data.labels);
    oct_dataset_close(&data);
    const char *header = "{'descr': '|u1', 'fortran_order': False, 'shape': (6, 5, 4), }";
    write_npy(&tmp, "train_labels.npy", header, 120);
    source.goal = OCT_GOAL_MAP;
    cr_assert(oct_dataset_open(&data, &source, OCT_TRAIN) == OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0), "data.classes: say how many classes the maps have, for "
                                           "data.goal=map");
    source.classes = 2;
    cr_assert(oct_dataset_open(&data, &source, OCT_TRAIN) == OCT_OK, "%s", oct_error_message(0));
    cr_assert(data.rows == 20 && data.classes == 2);
    cr_assert(data.format->read(&data, 3, &image, &map) == OCT_OK, "%s", oct_error_message(0));
    cr_assert(map.dtype == OCT_S32 && map.h == 5 && map.w == 4 && map.c == 1);
    oct_dataset_close(&data);
    oct_image_free(&image);
    oct_image_free(&map);
    oct_tmp_remove(&tmp);
    cr_assert(oct_mem_live() == 0);
}
