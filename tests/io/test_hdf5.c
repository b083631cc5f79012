/* Includes hdf5.h itself to make the files that must be refused and to read ours independently. */
#include "io/hdf5/hdf5.h"

#include "core/base/mem.h"
#include "io/file/file.h"
#include "tests/support/check_status.h"
#include "tests/support/process.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <hdf5.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reopens what has been written. */
static oct_h5 *reopen(oct_h5 **h5, void **bytes)
{
    size_t size;
    MUST(oct_h5_finish(h5, false, bytes, &size));
    MUST(oct_h5_open(h5, -1, *bytes, size, "test.h5"));
    return *h5;
}

Test(hdf5, gives_back_every_type_and_shape)
{
    static const oct_dtype dtypes[] = {OCT_F32, OCT_U8, OCT_S8, OCT_S16, OCT_S32, OCT_F64, OCT_S64};
    const oct_shape shapes[] = {{.ndim = 0},        OCT_SHAPE(0),          OCT_SHAPE(1),
                                OCT_SHAPE(1000),    OCT_SHAPE(3, 0, 2),    OCT_SHAPE(7, 5),
                                OCT_SHAPE(2, 3, 4), OCT_SHAPE(2, 3, 4, 5), OCT_SHAPE(70, 1, 90, 3)};
    static uint8_t data[70 * 90 * 3 * 8 + 8], back[70 * 90 * 3 * 8 + 8];
    char path[64];
    oct_h5 *h5;
    void *bytes;

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 37 + i / 256); /* NaN payloads and all */
    MUST(oct_h5_create(&h5, 0));
    for (size_t d = 0; d < OCT_COUNT(dtypes); d++) {
        for (size_t s = 0; s < OCT_COUNT(shapes); s++) {
            snprintf(path, sizeof path, "a/%s/%zu", oct_dtype_name(dtypes[d]), s);
            MUST(oct_h5_write(h5, path, dtypes[d], shapes[s], data + d));
        }
    }
    reopen(&h5, &bytes);
    for (size_t d = 0; d < OCT_COUNT(dtypes); d++) {
        for (size_t s = 0; s < OCT_COUNT(shapes); s++) {
            oct_dtype dtype;
            oct_shape shape;
            size_t size = (size_t)oct_shape_numel(&shapes[s]) * oct_dtype_bytes(dtypes[d]);
            snprintf(path, sizeof path, "a/%s/%zu", oct_dtype_name(dtypes[d]), s);
            MUST(oct_h5_describe(h5, path, &dtype, &shape));
            cr_assert(dtype == dtypes[d] && oct_shape_equal(&shape, &shapes[s]));
            memset(back, 0xee, sizeof back);
            MUST(oct_h5_read(h5, path, dtypes[d], shapes[s], back));
            cr_assert_eq(memcmp(back, data + d, size), 0, "%s", path);
            cr_assert_eq(back[size], 0xee);
            void *fresh;
            MUST(oct_h5_read_new(h5, path, dtypes[d], shapes[s], &fresh));
            cr_assert_eq(memcmp(fresh, data + d, size), 0, "%s", path);
            oct_free(&fresh);
        }
    }
    oct_h5_close(&h5);
    oct_free(&bytes);
    check_nothing_held();
}

Test(hdf5, gives_back_texts_and_numbers)
{
    oct_h5 *h5;
    void *bytes;
    char *text;
    int64_t value;
    MUST(oct_h5_create(&h5, 0));
    MUST(oct_h5_write_text(h5, "text", "a: 1\nb: \xc3\xa9\n"));
    MUST(oct_h5_write_text(h5, "empty", ""));
    MUST(oct_h5_write(h5, "nul", OCT_U8, OCT_SHAPE(3), "a\0b"));
    MUST(oct_h5_write_i64(h5, "least", INT64_MIN));
    reopen(&h5, &bytes);
    MUST(oct_h5_read_text(h5, "text", 100, &text));
    cr_assert_str_eq(text, "a: 1\nb: \xc3\xa9\n");
    oct_free(&text);
    MUST(oct_h5_read_text(h5, "empty", 0, &text));
    cr_assert_str_eq(text, "");
    oct_free(&text);
    cr_assert_eq(oct_h5_read_text(h5, "text", 5, &text), OCT_DATA);
    check_said("more than the 5 bytes allowed");
    cr_assert_null(text);
    cr_assert_eq(oct_h5_read_text(h5, "nul", 5, &text), OCT_DATA);
    check_said("NUL");
    cr_assert_null(text);
    cr_assert_eq(oct_h5_read_text(h5, "least", 5, &text), OCT_DATA);
    check_said("least is not a text");
    MUST(oct_h5_read_i64(h5, "least", INT64_MIN, 0, &value));
    cr_assert_eq(value, INT64_MIN);
    cr_assert_eq(oct_h5_read_i64(h5, "least", -5, 5, &value), OCT_DATA);
    check_said("test.h5: least is -9223372036854775808, outside -5 to 5");
    oct_h5_close(&h5);
    oct_free(&bytes);
    check_nothing_held();
}

Test(hdf5, says_what_is_missing_or_other_than_expected)
{
    float x[12] = {0};
    oct_h5 *h5;
    void *bytes;
    MUST(oct_h5_create(&h5, 0));
    MUST(oct_h5_write(h5, "g/x", OCT_F32, OCT_SHAPE(3, 4), x));
    reopen(&h5, &bytes);
    cr_assert_eq(oct_h5_read(h5, "g/x", OCT_F32, OCT_SHAPE(4, 3), x), OCT_DATA);
    check_said("test.h5: g/x is f32 (3, 4), not f32 (4, 3)");
    cr_assert_eq(oct_h5_read(h5, "g/x", OCT_S32, OCT_SHAPE(3, 4), x), OCT_DATA);
    check_said("not s32 (3, 4)");
    cr_assert_eq(oct_h5_read(h5, "g/y", OCT_F32, OCT_SHAPE(3, 4), x), OCT_DATA);
    check_said("g/y is missing");
    cr_assert_eq(oct_h5_read(h5, "g", OCT_F32, OCT_SHAPE(3, 4), x), OCT_DATA);
    check_said("g is not a data set");
    cr_assert_eq(oct_h5_read(h5, "g/x/z", OCT_F32, OCT_SHAPE(3, 4), x), OCT_DATA);
    static const char *const bad[] = {"", "/", "/g/x", "g/", "g//x", "./g/x", "g/.", "."};
    for (size_t i = 0; i < OCT_COUNT(bad); i++)
        cr_assert_eq(oct_h5_read(h5, bad[i], OCT_F32, OCT_SHAPE(3, 4), x), OCT_DATA, "%s", bad[i]);
    cr_assert(oct_h5_has(h5, "g") && oct_h5_has(h5, "g/x") && !oct_h5_has(h5, "x"));
    cr_assert(oct_h5_is_group(h5, "g") && !oct_h5_is_group(h5, "g/x"));
    oct_h5_close(&h5);
    oct_free(&bytes);
    check_nothing_held();
}

Test(hdf5, refuses_to_write_bad_or_taken_names)
{
    char deep[80] = "a", name[300];
    oct_h5 *h5;
    for (int i = 1; i < 33; i++)
        strcat(deep, "/a");
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    MUST(oct_h5_create(&h5, 0));
    MUST(oct_h5_write_i64(h5, "x/y", 1));
    const char *bad[] = {"", "x", "x/y", "x/y/z", "x/", "/x", "a//b", deep, name, "a/.", "./a"};
    for (size_t i = 0; i < OCT_COUNT(bad); i++) {
        cr_assert_eq(oct_h5_write_i64(h5, bad[i], 1), OCT_RESOURCE, "'%s'", bad[i]);
        check_said("cannot be written");
    }
    cr_assert_eq(oct_h5_write(h5, "n", OCT_F32, OCT_SHAPE(INT64_MAX, 4), NULL), OCT_RESOURCE);
    oct_h5_close(&h5);
    check_nothing_held();
}

static void check_datasets(const oct_h5 *h5, const char *prefix, const char *expected)
{
    char text[400] = "";
    const char *path;
    for (size_t next = 0; (path = oct_h5_next_dataset(h5, prefix, &next));)
        strcat(strcat(text, path), " ");
    cr_assert_str_eq(text, expected);
}

Test(hdf5, lists_data_sets_in_alphabetical_order)
{
    char name[32];
    oct_h5 *h5;
    void *bytes;
    MUST(oct_h5_create(&h5, 0));
    for (int i = 12; i-- > 0;) {
        snprintf(name, sizeof name, "g/%d", i);
        MUST(oct_h5_write_i64(h5, name, i));
    }
    MUST(oct_h5_write_i64(h5, "h", 0));
    MUST(oct_h5_write_i64(h5, "a/b", 0));
    reopen(&h5, &bytes);
    check_datasets(h5, "", "a/b g/0 g/1 g/10 g/11 g/2 g/3 g/4 g/5 g/6 g/7 g/8 g/9 h ");
    check_datasets(h5, "g/1", "g/1 g/10 g/11 ");
    check_datasets(h5, "h/", "");
    cr_assert(oct_h5_is_group(h5, "g") && !oct_h5_is_group(h5, "h") && !oct_h5_is_group(h5, "i"));
    oct_h5_close(&h5);
    oct_free(&bytes);
    check_nothing_held();
}

/* An image with a bit of everything, also a group of more names than fit into its header. */
static void build(void **bytes, size_t *size)
{
    float x[1000];
    char path[64];
    oct_h5 *h5;
    for (int i = 0; i < 1000; i++)
        x[i] = (float)i / 3;
    MUST(oct_h5_create(&h5, 0));
    for (int i = 0; i < 40; i++) {
        snprintf(path, sizeof path, "state/layers/%d/conv/weight", i);
        MUST(oct_h5_write(h5, path, OCT_F32, OCT_SHAPE(5, i % 7, 11), x));
    }
    MUST(oct_h5_write_text(h5, "info/text", "some text"));
    MUST(oct_h5_write_i64(h5, "info/step", 7));
    MUST(oct_h5_finish(&h5, true, bytes, size));
}

static void churn(int seed)
{
    void *blocks[200] = {0};
    for (int i = 0; i < 2000; i++) {
        void **block = &blocks[(i * 31 + seed) % 200];
        size_t size = (size_t)(i * 97 + seed * 13) % 9000 + 1;
        free(*block);
        *block = malloc(size);
        memset(*block, i, size);
    }
    for (int i = 0; i < 200; i++)
        free(blocks[i]);
}

Test(hdf5, equal_contents_give_equal_bytes_whatever_lies_in_the_heap)
{
    void *first, *again;
    size_t size, length;
    build(&first, &size);
    for (int i = 1; i < 4; i++) {
#ifndef __SANITIZE_ADDRESS__
        cr_assert_eq(mallopt(M_PERTURB, i * 77), 1);
#endif
        churn(i);
        sleep(i == 1); /* a time stamp would differ */
        build(&again, &length);
        cr_assert_eq(length, size);
        cr_assert_eq(memcmp(first, again, size), 0);
        oct_free(&again);
    }
    oct_free(&first);
}

/* Run as a program of its own by the next test. */
Test(hdf5, prints_the_digest_of_its_image)
{
    uint8_t digest[32];
    char text[65];
    void *bytes;
    size_t size;
    const char *path = getenv("OCT_TEST_DIGEST");
    build(&bytes, &size);
    oct_sha256(bytes, size, digest);
    oct_free(&bytes);
    if (path) MUST(oct_file_write(path, oct_hex(digest, text), 64));
}

Test(hdf5, equal_contents_give_equal_bytes_in_every_process)
{
    oct_tmp tmp;
    char texts[2][65] = {""};
    oct_tmp_create(&tmp);
    for (int i = 0; i < 2; i++) {
        char self[4096] = "";
        void *bytes;
        size_t size;
        const char *path = oct_tmp_path(&tmp, i ? "one" : "two");
        cr_assert(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
        unsetenv("BXFI_MAP"); /* with it, Criterion marks a child process */
        setenv("OCT_TEST_DIGEST", path, 1);
        setenv("MALLOC_PERTURB_", i ? "165" : "90", 1);
        oct_process job =
            oct_process_run(20, self, "--filter", "hdf5/prints_the_digest_of_its_image", NULL);
        oct_check_exit(job, 0);
        oct_process_free(&job);
        MUST(oct_file_read(path, 64, &bytes, &size));
        snprintf(texts[i], sizeof texts[i], "%s", (char *)bytes);
        oct_free(&bytes);
    }
    cr_assert_str_eq(texts[0], texts[1]);
    oct_tmp_remove(&tmp);
}

Test(hdf5, other_readers_open_a_file_with_a_checksum)
{
    oct_tmp tmp;
    void *bytes;
    size_t size;
    int64_t step = 0;
    oct_tmp_create(&tmp);
    build(&bytes, &size);
    const char *path = oct_tmp_path(&tmp, "a.h5");
    MUST(oct_file_write(path, bytes, size));
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    cr_assert(file >= 0);
    hid_t dataset = H5Dopen2(file, "/info/step", H5P_DEFAULT);
    cr_assert(H5Dread(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &step) >= 0);
    cr_assert_eq(step, 7);
    H5Dclose(dataset);
    H5Fclose(file);
    oct_free(&bytes);
    oct_tmp_remove(&tmp);
}

Test(hdf5, every_flip_and_every_truncation_breaks_the_checksum)
{
    void *bytes;
    size_t size;
    oct_h5 *h5;
    build(&bytes, &size);
    uint8_t *byte = bytes;
    cr_assert(oct_h5_checksum_fits(bytes, size));
    for (size_t i = 0; i < size; i += i < 200 ? 1 : 23) {
        byte[i] ^= (uint8_t)(1 << i % 8);
        cr_assert_not(oct_h5_checksum_fits(bytes, size), "%zu", i);
        byte[i] ^= (uint8_t)(1 << i % 8);
    }
    for (size_t i = 0; i < size; i += i < 200 ? 1 : 29)
        cr_assert_not(oct_h5_checksum_fits(bytes, i), "%zu", i);
    cr_assert_eq(oct_h5_open_checked(&h5, bytes, size - 1, "x.h5"), OCT_DATA);
    check_said("x.h5: is damaged: its SHA-256 differs");
    cr_assert_eq(oct_h5_open_checked(&h5, bytes, size - OCT_CHECKSUM_BYTES, "x.h5"), OCT_DATA);
    check_said("x.h5: is an HDF5 file without the SHA-256 that ends each int8 model");
    cr_assert_null(h5);
    MUST(oct_h5_open_checked(&h5, bytes, size, "x.h5"));
    oct_h5_close(&h5);
    oct_free(&bytes);
}

Test(hdf5, refuses_what_is_not_hdf5)
{
    oct_h5 *h5;
    char zeros[2000] = {0};
    cr_assert_eq(oct_h5_open(&h5, -1, zeros, sizeof zeros, "x.h5"), OCT_DATA);
    check_said("x.h5: is not an HDF5 file");
    cr_assert_null(h5);
    cr_assert_eq(oct_h5_open(&h5, -1, zeros, 0, "x.h5"), OCT_DATA);
    cr_assert_eq(oct_h5_open(&h5, -1, NULL, 0, "x.h5"), OCT_DATA);
    check_nothing_held();
}

Test(hdf5, several_images_are_open_at_once)
{
    oct_h5 *a, *b;
    void *x, *y;
    int64_t value;
    H5E_auto2_t before, after;
    void *data;
    unsigned plugins[2];
    H5Eget_auto2(H5E_DEFAULT, &before, &data);
    H5PLget_loading_state(&plugins[0]);
    MUST(oct_h5_create(&a, 0));
    MUST(oct_h5_create(&b, 0));
    MUST(oct_h5_write_i64(a, "v", 1));
    MUST(oct_h5_write_i64(b, "v", 2));
    reopen(&a, &x);
    reopen(&b, &y);
    MUST(oct_h5_read_i64(a, "v", 0, 9, &value));
    cr_assert_eq(value, 1);
    MUST(oct_h5_read_i64(b, "v", 0, 9, &value));
    cr_assert_eq(value, 2);
    oct_h5_close(&a);
    oct_h5_close(&b);
    oct_free(&x);
    oct_free(&y);
    H5Eget_auto2(H5E_DEFAULT, &after, &data);
    H5PLget_loading_state(&plugins[1]);
    cr_assert(before && after == before && plugins[1] == plugins[0],
              "the program's own HDF5 is as it was");
}

Test(hdf5, survives_a_lack_of_memory_at_every_place)
{
    float x[4] = {0};
    for (int64_t n = 1;; n++) {
        oct_h5 *h5 = NULL;
        void *bytes = NULL, *fresh = NULL;
        size_t size;
        oct_mem_fail_after(n);
        oct_status status = oct_h5_create(&h5, 0);
        if (status == OCT_OK) status = oct_h5_write(h5, "x", OCT_F32, OCT_SHAPE(4), x);
        if (status == OCT_OK) status = oct_h5_finish(&h5, true, &bytes, &size);
        oct_h5_close(&h5);
        if (status == OCT_OK) status = oct_h5_open_checked(&h5, bytes, size, "x.h5");
        if (status == OCT_OK) status = oct_h5_read_new(h5, "x", OCT_F32, OCT_SHAPE(4), &fresh);
        oct_mem_fail_after(0);
        oct_h5_close(&h5);
        oct_free(&bytes);
        oct_free(&fresh);
        cr_assert_eq(oct_mem_live(), 0);
        if (status == OCT_OK) break;
        cr_assert_eq(status, OCT_RESOURCE);
        cr_assert(n < 50);
    }
}

/* Crafted files: whatever HDF5 can express and Octet does not write. Each is like a file of Octet but for
 * one thing, so it is that thing which is refused. */

static hid_t crafted, plain_group, plain_data;

static void craft(void)
{
    hid_t options = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_fapl_core(options, 1 << 16, 0);
    H5Pset_libver_bounds(options, H5F_LIBVER_V18, H5F_LIBVER_V18);
    H5Pset_obj_track_times(creation, false);
    crafted = H5Fcreate("crafted", H5F_ACC_TRUNC, creation, options);
    H5Pclose(options);
    H5Pclose(creation);
    plain_group = H5Pcreate(H5P_GROUP_CREATE);
    H5Pset_obj_track_times(plain_group, false);
    plain_data = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(plain_data, false);
    H5Pset_layout(plain_data, H5D_CONTIGUOUS);
    H5Pset_alloc_time(plain_data, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(plain_data, H5D_FILL_TIME_NEVER);
    cr_assert(crafted >= 0);
}

static void group(const char *name)
{
    H5Gclose(H5Gcreate2(crafted, name, H5P_DEFAULT, plain_group, H5P_DEFAULT));
}

static void dataset(const char *name, hid_t type, int ndim, const hsize_t *dims, hid_t options)
{
    hid_t space = H5Screate_simple(ndim, dims, NULL);
    hid_t id = H5Dcreate2(crafted, name, type, space, H5P_DEFAULT, options, H5P_DEFAULT);
    cr_assert(id >= 0, "%s", name);
    H5Dclose(id);
    H5Sclose(space);
}

static void plain_dataset(const char *name)
{
    dataset(name, H5T_STD_I32LE, 1, (hsize_t[]){4}, plain_data);
}

static oct_status open_crafted(oct_h5 **h5, void **bytes)
{
    H5Fflush(crafted, H5F_SCOPE_GLOBAL);
    ssize_t size = H5Fget_file_image(crafted, NULL, 0);
    MUST(oct_alloc(bytes, (size_t)size, 1));
    H5Fget_file_image(crafted, *bytes, (size_t)size);
    H5Fclose(crafted);
    uint8_t *image = *bytes; /* whose superblock has the checksum of a file that is being written */
    uint32_t checksum = oct_h5_checksum(image, 44);
    memcpy(image + 44, &checksum, 4);
    return oct_h5_open(h5, -1, *bytes, (size_t)size, "crafted.h5");
}

static void check_refused(const char *why)
{
    oct_h5 *h5;
    void *bytes;
    size_t before = oct_mem_live();
    oct_mem_peak_reset();
    cr_assert_eq(open_crafted(&h5, &bytes), OCT_DATA, "%s", why);
    check_said("crafted.h5: ");
    check_said(why);
    cr_assert_null(h5);
    cr_assert(oct_mem_peak() - before < (1 << 18));
    oct_free(&bytes);
    check_nothing_held();
}

Test(hdf5, takes_a_plain_file_made_by_others)
{
    int32_t data[4] = {1, -2, 3, -4}, back[4];
    oct_h5 *h5;
    void *bytes;
    craft();
    group("g");
    plain_dataset("g/x");
    hid_t id = H5Dopen2(crafted, "g/x", H5P_DEFAULT);
    H5Dwrite(id, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
    H5Dclose(id);
    MUST(open_crafted(&h5, &bytes));
    MUST(oct_h5_read(h5, "g/x", OCT_S32, OCT_SHAPE(4), back));
    cr_assert_eq(memcmp(back, data, sizeof data), 0);
    oct_h5_close(&h5);
    oct_free(&bytes);
}

Test(hdf5, takes_no_soft_and_no_external_link)
{
    for (int kind = 0; kind < 3; kind++) {
        craft();
        plain_dataset("x");
        if (kind == 0) H5Lcreate_soft("/x", crafted, "soft", H5P_DEFAULT, H5P_DEFAULT);
        if (kind == 1) H5Lcreate_soft("/nothing", crafted, "dangling", H5P_DEFAULT, H5P_DEFAULT);
        if (kind == 2)
            H5Lcreate_external("/etc/passwd", "/x", crafted, "external", H5P_DEFAULT, H5P_DEFAULT);
        check_refused("is a link of another kind than hard ones");
    }
}

Test(hdf5, takes_no_object_that_is_reached_twice)
{
    craft();
    group("g");
    H5Lcreate_hard(crafted, "g", crafted, "g/g", H5P_DEFAULT, H5P_DEFAULT); /* a circle */
    check_refused("has a name that is too long or nested too deep");
    craft();
    plain_dataset("x");
    H5Lcreate_hard(crafted, "x", crafted, "y", H5P_DEFAULT, H5P_DEFAULT);
    check_refused("holds what Octet does not write: y, which overlaps something else");
}

Test(hdf5, takes_no_names_that_are_odd_or_nested_too_deep)
{
    char path[400] = "g";
    craft();
    plain_dataset("a\033[31m");
    check_refused("more than printable letters");
    craft();
    plain_dataset("caf\xc3\xa9");
    check_refused("more than printable letters");
    craft();
    group("g");
    for (int i = 0; i < 40; i++)
        group(strcat(path, "/g"));
    check_refused("nested too deep");
}

Test(hdf5, takes_only_its_own_types)
{
    hid_t text = H5Tcopy(H5T_C_S1), odd = H5Tcopy(H5T_STD_I32LE);
    H5Tset_size(text, 8);
    H5Tset_precision(odd, 17);
    hid_t pair = H5Tcreate(H5T_COMPOUND, 8);
    H5Tinsert(pair, "a", 0, H5T_STD_I32LE);
    H5Tinsert(pair, "b", 4, H5T_IEEE_F32LE);
    const hid_t types[] = {
        H5T_IEEE_F32BE, H5T_STD_I64BE, H5T_STD_U16BE,   H5T_STD_U32LE,           H5T_STD_U64LE, odd,
        text,           pair,          H5T_STD_REF_OBJ, H5Tcreate(H5T_OPAQUE, 4)};
    for (size_t i = 0; i < OCT_COUNT(types); i++) {
        craft();
        dataset("x", types[i], 1, (hsize_t[]){2}, plain_data);
        check_refused(i < 6 ? "x, which is of another type or is not in one piece"
                            : "x holds neither integers nor floats");
    }
}

Test(hdf5, takes_only_plain_storage_within_the_file)
{
    hsize_t dims[] = {64};
    for (int kind = 0; kind < 4; kind++) {
        craft();
        hid_t options = kind == 3 ? H5Pcreate(H5P_DATASET_CREATE) : plain_data;
        if (kind == 0) H5Pset_layout(options, H5D_COMPACT);
        if (kind == 1 || kind == 2) H5Pset_chunk(options, 1, dims);
        if (kind == 2) H5Pset_deflate(options, 5);
        if (kind == 3) H5Pset_external(options, "/etc/passwd", 0, 64);
        dataset("x", H5T_STD_U8LE, 1, dims, options);
        check_refused(kind == 3 ? "x has its numbers in another file" : "is not in one piece");
    }
}

Test(hdf5, takes_only_shapes_of_tensors_that_are_there)
{
    craft();
    dataset("x", H5T_STD_U8LE, 5, (hsize_t[]){1, 1, 1, 1, 1}, plain_data);
    check_refused("x has no dimension, or too many");
    craft();
    H5Pset_alloc_time(plain_data, H5D_ALLOC_TIME_LATE); /* never written: only a fill value */
    dataset("x", H5T_IEEE_F32LE, 1, (hsize_t[]){10}, plain_data);
    check_refused("is not in one piece");
    craft();
    hid_t null = H5Screate(H5S_NULL);
    H5Dclose(H5Dcreate2(crafted, "x", H5T_STD_U8LE, null, H5P_DEFAULT, plain_data, H5P_DEFAULT));
    check_refused("x has no dimension, or too many");
}

/* Changed files: the metadata of a good image is changed in every place and its checksums are repaired,
 * as somebody would who means harm. */

/* Where an image holds structures with a checksum, by their signatures. */
static void repair(uint8_t *image, size_t size, const uint8_t *good)
{
    for (size_t at = 0; at + 12 < size; at++) {
        size_t bytes = 0;
        uint32_t checksum;
        if (memcmp(good + at, "OHDR", 4) == 0)
            bytes = (good[at + 5] & 1 ? 8 + 256U * good[at + 7] : 7U) + good[at + 6];
        if (memcmp(good + at, "FRHP", 4) == 0) bytes = 142;
        if (memcmp(good + at, "BTHD", 4) == 0) bytes = 34;
        if (memcmp(good + at, "FSHD", 4) == 0) bytes = 78;
        if (bytes == 0 || at + bytes + 4 > size) continue;
        checksum = oct_h5_checksum(image + at, bytes);
        memcpy(image + at + bytes, &checksum, 4);
    }
    uint32_t checksum = oct_h5_checksum(image, 44);
    memcpy(image + 44, &checksum, 4);
}

/* What is taken in spite of a change must be as it says: everything can be read. */
static void read_all_of(oct_h5 *h5)
{
    const char *path;
    oct_dtype dtype;
    oct_shape shape;
    void *data;
    for (size_t next = 0; (path = oct_h5_next_dataset(h5, "", &next));) {
        MUST(oct_h5_describe(h5, path, &dtype, &shape));
        MUST(oct_h5_read_new(h5, path, dtype, shape, &data));
        oct_free(&data);
    }
}

/* A group of more names than fit into its header, and little else. */
static void build_small(void **bytes, size_t *size)
{
    char path[32];
    oct_h5 *h5;
    MUST(oct_h5_create(&h5, 0));
    for (int i = 0; i < 10; i++) {
        snprintf(path, sizeof path, "state/%d", i);
        MUST(oct_h5_write(h5, path, OCT_U8, OCT_SHAPE(i % 3, 2), path));
    }
    MUST(oct_h5_write_i64(h5, "info/step", 7));
    MUST(oct_h5_finish(&h5, false, bytes, size));
}

Test(hdf5, every_change_of_metadata_is_refused_or_harmless)
{
    static const int changes[] = {1, -1, 0x80};
    void *bytes;
    uint8_t *image;
    size_t size, taken = 0, refused = 0;
    build_small(&bytes, &size);
    MUST(oct_alloc(&image, size, 1));
    const uint8_t *good = bytes;
    size_t zeros = 0; /* of a run of them only every 32nd byte is changed */
    for (size_t at = 0; at < size; at++) {
        zeros = good[at] == 0 ? zeros + 1 : 0;
        if ((zeros > 8 && zeros % 32 != 0) || at % 67 != 0) continue; /* tests/fuzz tries all */
        for (size_t v = 0; v < OCT_COUNT(changes); v++) {
            oct_h5 *opened = NULL;
            memcpy(image, good, size);
            image[at] = (uint8_t)(good[at] + changes[v]);
            repair(image, size, good);
            oct_status status = oct_h5_open(&opened, -1, image, size, "changed.h5");
            if (status == OCT_OK)
                read_all_of(opened);
            else
                cr_assert_eq(status, OCT_DATA);
            *(status == OCT_OK ? &taken : &refused) += 1;
            oct_h5_close(&opened);
        }
    }
    /* What may change are numbers of data sets, names, and bytes that belong to nothing. */
    cr_assert(refused > 20 && taken > 3, "%zu refused, %zu taken", refused, taken);
    oct_free(&image);
    oct_free(&bytes);
    check_nothing_held();
}

/* Two names for one data set, without the count of links that HDF5 would keep. */
Test(hdf5, takes_no_two_links_to_one_place)
{
    void *bytes;
    size_t size;
    oct_h5 *h5;
    MUST(oct_h5_create(&h5, 0));
    MUST(oct_h5_write_i64(h5, "alpha", 1));
    MUST(oct_h5_write_i64(h5, "omega", 2));
    MUST(oct_h5_finish(&h5, false, &bytes, &size));
    uint8_t *image = bytes, *alpha = memmem(image, size, "alpha", 5),
            *omega = memmem(image, size, "omega", 5);
    memcpy(omega + 5, alpha + 5, 8);
    repair(image, size, image);
    cr_assert_eq(oct_h5_open(&h5, -1, image, size, "x.h5"), OCT_DATA);
    check_said("omega, which overlaps something else");
    memset(alpha + 5, 0, 8);
    alpha[5] = 48; /* the root itself */
    repair(image, size, image);
    cr_assert_eq(oct_h5_open(&h5, -1, image, size, "x.h5"), OCT_DATA);
    check_said("nested too deep");
    oct_free(&bytes);
}

/* Names at every size of a group: in the header, in one block, in tables of blocks within tables, under
 * trees of several heights. */
Test(hdf5, walks_groups_of_every_size)
{
    static const int sizes[] = {1, 7, 8, 9, 45, 46, 100, 2000, 26000};
    char name[64];
    for (size_t i = 0; i < OCT_COUNT(sizes); i++) {
        oct_h5 *h5;
        void *bytes;
        int64_t value;
        MUST(oct_h5_create(&h5, 0));
        for (int n = 0; n < sizes[i]; n++) {
            snprintf(name, sizeof name, "g/a_name_of_some_length_%d", n * 7919 % sizes[i]);
            MUST(oct_h5_write_i64(h5, name, n));
        }
        reopen(&h5, &bytes);
        for (int n = 0; n < sizes[i]; n += 1 + sizes[i] / 100) {
            snprintf(name, sizeof name, "g/a_name_of_some_length_%d", n * 7919 % sizes[i]);
            MUST(oct_h5_read_i64(h5, name, n, n, &value));
        }
        oct_h5_close(&h5);
        oct_free(&bytes);
    }
    check_nothing_held();
}

Test(hdf5, names_items_that_nobody_has_read)
{
    oct_h5 *h5;
    void *bytes;
    int64_t value;
    MUST(oct_h5_create(&h5, 0));
    MUST(oct_h5_write_i64(h5, "g/a", 1));
    MUST(oct_h5_write_i64(h5, "g/b/c", 2));
    reopen(&h5, &bytes);
    MUST(oct_h5_read_i64(h5, "g/a", 0, 9, &value));
    cr_assert_eq(oct_h5_check_all_read(h5), OCT_DATA);
    check_said("test.h5: holds 1 data set that this Octet does not know there, such as g/b/c");
    MUST(oct_h5_read_i64(h5, "g/b/c", 0, 9, &value));
    MUST(oct_h5_check_all_read(h5));
    oct_h5_close(&h5);
    oct_free(&bytes);
}
