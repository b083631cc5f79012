/* The IDX format, plain and gzipped: what is read, and every way in which a file can be wrong. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/dataset/dataset.h"
#include "io/file/file.h"
#include "tests/io/data_memory.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

enum { COUNT = 5, H = 3, W = 4, IMAGE = H * W, ROOM = 8192 };

typedef struct bytes {
    uint8_t data[ROOM];
    size_t size;
} bytes;

static void put_u32(bytes *b, uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        b->data[b->size++] = (uint8_t)(value >> shift);
}

static bytes make_images(uint32_t magic, uint32_t count, uint32_t h, uint32_t w, size_t pixels)
{
    bytes b = {.size = 0};
    put_u32(&b, magic);
    put_u32(&b, count);
    put_u32(&b, h);
    put_u32(&b, w);
    for (size_t i = 0; i < pixels; i++)
        b.data[b.size++] = (uint8_t)(i * 37 + 5);
    return b;
}

static bytes make_labels(uint32_t magic, uint32_t count, size_t labels)
{
    bytes b = {.size = 0};
    put_u32(&b, magic);
    put_u32(&b, count);
    for (size_t i = 0; i < labels; i++)
        b.data[b.size++] = (uint8_t)(i * 7 % 10);
    return b;
}

static bytes gzipped(const bytes *plain)
{
    bytes b = {.size = 0};
    z_stream z = {.next_in = (Bytef *)(uintptr_t)plain->data, .avail_in = (uInt)plain->size};
    z.next_out = b.data;
    z.avail_out = ROOM;
    cr_assert(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    cr_assert(deflate(&z, Z_FINISH) == Z_STREAM_END);
    b.size = z.total_out;
    deflateEnd(&z);
    return b;
}

#define IMAGES "train-images-idx3-ubyte"
#define LABELS "train-labels-idx1-ubyte"

static const char *write_bytes(oct_tmp *tmp, const char *name, bytes b)
{
    return oct_tmp_write(tmp, name, b.data, b.size);
}

static bytes good_images(void)
{
    return make_images(0x803, COUNT, H, W, COUNT * IMAGE);
}

static bytes good_labels(void)
{
    return make_labels(0x801, COUNT, COUNT);
}

static void check_good(const char *folder)
{
    oct_dataset data;
    uint8_t both[COUNT * IMAGE + COUNT], digest[32];
    bytes images = good_images(), labels = good_labels();
    cr_assert(load_plain(&data, &oct_dataset_idx, folder, OCT_TRAIN, 0) == OCT_OK, "%s",
              oct_error_message(0));
    cr_assert(data.count == COUNT && data.h == H && data.w == W && data.c == 1 &&
              data.classes == 9);
    cr_assert(memcmp(data.store, images.data + 16, COUNT * IMAGE) == 0);
    for (int i = 0; i < COUNT; i++)
        cr_assert(data.labels[i] == labels.data[8 + i]);
    memcpy(both, data.store, COUNT * IMAGE);
    memcpy(both + COUNT * IMAGE, labels.data + 8, COUNT);
    oct_sha256(both, sizeof both, digest);
    cr_assert(memcmp(data.digest, digest, 32) == 0);
    oct_dataset_close(&data);
    cr_assert(oct_mem_live() == 0);
}

Test(idx, plain_and_gzipped_files_give_the_same_data)
{
    oct_tmp tmp;
    bytes images = good_images(), labels = good_labels();
    oct_tmp_create(&tmp);
    write_bytes(&tmp, "plain/" IMAGES, images);
    write_bytes(&tmp, "plain/" LABELS, labels);
    write_bytes(&tmp, "mixed/" IMAGES ".gz", gzipped(&images));
    write_bytes(&tmp, "mixed/" LABELS, labels);
    write_bytes(&tmp, "gz/" IMAGES ".gz", gzipped(&images));
    write_bytes(&tmp, "gz/" LABELS ".gz", gzipped(&labels));
    check_good(oct_tmp_path(&tmp, "plain"));
    check_good(oct_tmp_path(&tmp, "mixed"));
    check_good(oct_tmp_path(&tmp, "gz"));
    bytes parts = {.size = 0};
    for (size_t at = 0, n; at < images.size;
         at += n) { /* each 7 bytes in a gzip member of its own */
        n = images.size - at < 7 ? images.size - at : 7;
        bytes piece = {.size = n};
        memcpy(piece.data, images.data + at, n);
        piece = gzipped(&piece);
        memcpy(parts.data + parts.size, piece.data, piece.size);
        parts.size += piece.size;
    }
    write_bytes(&tmp, "gz/" IMAGES ".gz", parts);
    check_good(oct_tmp_path(&tmp, "gz"));
    oct_tmp_remove(&tmp);
}

Test(idx, the_test_split_has_its_own_files_and_a_limit_keeps_the_first)
{
    oct_tmp tmp;
    oct_dataset all, some;
    oct_tmp_create(&tmp);
    write_bytes(&tmp, "t10k-images-idx3-ubyte", good_images());
    write_bytes(&tmp, "t10k-labels-idx1-ubyte", good_labels());
    cr_assert(load_plain(&all, &oct_dataset_idx, tmp.path, OCT_TEST, 100) == OCT_OK);
    cr_assert(load_plain(&some, &oct_dataset_idx, tmp.path, OCT_TEST, 2) == OCT_OK);
    cr_assert(all.count == COUNT && some.count == 2);
    cr_assert(memcmp(all.store, some.store, 2 * IMAGE) == 0);
    cr_assert(memcmp(all.digest, some.digest, 32) != 0);
    oct_dataset_close(&all);
    oct_dataset_close(&some);
    oct_tmp_remove(&tmp);
}

static void check_refused(const char *folder, const char *where, const char *sentence)
{
    oct_dataset data;
    char want[1000];
    oct_mem_peak_reset();
    cr_assert(load_plain(&data, &oct_dataset_idx, folder, OCT_TRAIN, 0) == OCT_DATA, "accepted: %s",
              sentence);
    snprintf(want, sizeof want, "%s: %s", where, sentence);
    cr_assert_str_eq(oct_error_message(0), want);
    cr_assert(data.store == NULL && data.labels == NULL && data.count == 0);
    cr_assert(oct_mem_live() == 0);
    cr_assert(oct_mem_peak() < 1 << 20, "%zu bytes were taken", oct_mem_peak());
}

static void check_bad_images(oct_tmp *tmp, bytes images, const char *sentence)
{
    write_bytes(tmp, LABELS, good_labels());
    const char *path = write_bytes(tmp, IMAGES, images);
    check_refused(tmp->path, path, sentence);
    remove(path);
}

static void check_bad_gzip(oct_tmp *tmp, bytes gz, const char *sentence)
{
    write_bytes(tmp, LABELS, good_labels());
    const char *path = write_bytes(tmp, IMAGES ".gz", gz);
    check_refused(tmp->path, path, sentence);
    remove(path);
}

Test(idx, bad_headers_and_sizes_are_named_before_anything_is_allocated)
{
    oct_tmp tmp;
    bytes b;
    oct_tmp_create(&tmp);
    b = good_images();
    b.size = 0;
    check_bad_images(&tmp, b, "0 bytes are too short for an IDX header of 16 bytes");
    b.size = 15;
    check_bad_images(&tmp, b, "15 bytes are too short for an IDX header of 16 bytes");
    check_bad_images(&tmp, make_images(0x801, COUNT, H, W, COUNT * IMAGE),
                     "not an IDX file of 3 dimensions: magic number 0x00000801 where 0x00000803 is "
                     "expected");
    check_bad_images(&tmp, make_images(0x803, 0, H, W, 0), "declares 0 samples");
    check_bad_images(&tmp, make_images(0x803, COUNT, 0, W, 0),
                     "declares images of 0 x 4; allowed sides: 1 to 4096");
    check_bad_images(&tmp, make_images(0x803, COUNT, H, 4097, 0),
                     "declares images of 3 x 4097; allowed sides: 1 to 4096");
    check_bad_images(&tmp, make_images(0x803, COUNT, H, W, COUNT * IMAGE - 1),
                     "declares 60 bytes of data, but holds 59");
    check_bad_images(&tmp, make_images(0x803, COUNT, H, W, COUNT * IMAGE + 2),
                     "declares 60 bytes of data, but holds 62");
    check_bad_images(&tmp, make_images(0x803, 0xffffffff, 4096, 4096, 7),
                     "declares 72057594021150720 bytes of data, but holds 7");
    oct_tmp_remove(&tmp);
}

Test(idx, bad_gzip_streams_are_named)
{
    oct_tmp tmp;
    bytes plain = good_images(), gz = gzipped(&plain), b;
    char want[200];
    oct_tmp_create(&tmp);

    for (size_t size = 2; size < gz.size; size++) {
        b = gz;
        b.size = size;
        snprintf(
            want, sizeof want,
            "cut short: the gzip stream has no end within the %zu bytes of the file; download it "
            "again",
            size);
        check_bad_gzip(&tmp, b, want);
    }
    b = gz;
    b.data[b.size - 8] ^= 1;
    check_bad_gzip(&tmp, b, "damaged gzip stream (incorrect data check); download it again");
    b = gz; /* another member after it */
    memcpy(b.data + b.size, gz.data, gz.size);
    b.size += gz.size;
    check_bad_gzip(&tmp, b, "declares 60 bytes of data, but holds more than 60");
    b = gz;
    memcpy(b.data + b.size, "garbage", 7);
    b.size += 7;
    check_bad_gzip(&tmp, b, "7 bytes of something else follow the gzip stream");

    plain = make_images(0x803, COUNT, H, W, COUNT * IMAGE - 1);
    check_bad_gzip(&tmp, gzipped(&plain), "declares 60 bytes of data, but holds 59");
    plain = make_images(0x803, COUNT, H, W, COUNT * IMAGE + 9);
    check_bad_gzip(&tmp, gzipped(&plain), "declares 60 bytes of data, but holds more than 60");
    plain = good_images();
    plain.size = 9;
    check_bad_gzip(&tmp, gzipped(&plain), "9 bytes are too short for an IDX header of 16 bytes");

    plain = make_images(0x803, 0xffffffff, 4096, 4096, 10);
    gz = gzipped(&plain);
    snprintf(want, sizeof want,
             "declares 72057594021150720 bytes of data, but its %zu bytes of gzip cannot hold more "
             "than %zu",
             gz.size, gz.size * 1032);
    check_bad_gzip(&tmp, gz, want);
    oct_tmp_remove(&tmp);
}

/* No flipped bit of a gzip stream changes what is read: it is met, or it was in a field that means
 * nothing for the data (time, system, level). */
Test(idx, a_flipped_bit_never_changes_the_data)
{
    oct_tmp tmp;
    bytes plain = good_images(), gz = gzipped(&plain);
    int refused = 0;
    oct_tmp_create(&tmp);
    write_bytes(&tmp, LABELS, good_labels());
    for (size_t bit = 0; bit < 8 * gz.size; bit++) {
        oct_dataset data;
        bytes b = gz;
        b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        write_bytes(&tmp, IMAGES ".gz", b);
        oct_status status = load_plain(&data, &oct_dataset_idx, tmp.path, OCT_TRAIN, 0);
        cr_assert(status == OCT_OK || status == OCT_DATA, "bit %zu: %s", bit, oct_error_message(0));
        refused += status == OCT_DATA;
        if (status == OCT_OK)
            cr_assert(memcmp(data.store, plain.data + 16, COUNT * IMAGE) == 0, "bit %zu", bit);
        oct_dataset_close(&data);
    }
    cr_assert(refused > (int)(8 * (gz.size - 10)) - 8);
    oct_tmp_remove(&tmp);
}

Test(idx, images_and_labels_must_belong_together)
{
    oct_tmp tmp;
    oct_tmp_create(&tmp);
    write_bytes(&tmp, IMAGES, good_images());
    write_bytes(&tmp, LABELS, make_labels(0x801, COUNT + 1, COUNT + 1));
    check_refused(tmp.path, tmp.path,
                  IMAGES " declares 5 images, but " LABELS
                         " 6 labels; they do not belong together");
    const char *path = write_bytes(&tmp, LABELS, good_images());
    check_refused(tmp.path, path,
                  "not an IDX file of 1 dimension: magic number 0x00000803 where 0x00000801, or "
                  "0x09, 0x0b or 0x0c in place of 0x08, is expected");
    oct_tmp_remove(&tmp);
}

#define FILES                                                                                      \
    "expected files: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte "    \
    "and t10k-labels-idx1-ubyte, each plain or .gz (Debian's package dataset-fashion-mnist has "   \
    "them)"

Test(idx, what_is_missing_is_named_with_the_remedy)
{
    oct_tmp tmp;
    oct_tmp_create(&tmp);
    write_bytes(&tmp, IMAGES, good_images());
    check_refused(tmp.path, tmp.path, "neither " LABELS " nor " LABELS ".gz exists; " FILES);
    const char *path = oct_tmp_path(&tmp, "none");
    check_refused(path, path,
                  "there is no such folder; " FILES
                  "; name another with data.path=FOLDER or, where a model or checkpoint is given, "
                  "--data FOLDER");
    oct_tmp_remove(&tmp);
}

/* A folder with images for these labels, of this IDX type, in both splits or in the first. */
static void write_labelled(oct_tmp *tmp, const char *split, uint32_t type, const int32_t *label,
                           uint32_t count)
{
    static const int width[] = {[0x08] = 1, [0x09] = 1, [0x0b] = 2, [0x0c] = 4};
    char name[64];
    bytes b = {.size = 0};
    put_u32(&b, type << 8 | 1);
    put_u32(&b, count);
    for (uint32_t i = 0; i < count; i++)
        for (int byte = width[type] - 1; byte >= 0; byte--)
            b.data[b.size++] = (uint8_t)((uint32_t)label[i] >> 8 * byte);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", split);
    write_bytes(tmp, name, b);
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", split);
    write_bytes(tmp, name, make_images(0x803, count, H, W, count * IMAGE));
}

Test(idx, labels_of_every_type_are_read_and_classes_are_counted_over_both_splits)
{
    static const struct {
        uint32_t type;
        int32_t train[3], test[2];
        int classes;
    } sets[] = {
        {0x08, {0, 1, 2}, {2, 1}, 3}, {0x08, {3, 1, 0}, {1, 2}, 4}, {0x09, {0, 5, 3}, {1, 2}, 6},
        {0x0b, {0, 1, 2}, {3, 4}, 5}, {0x0c, {0, 1, 2}, {0, 7}, 8},
    };
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
        oct_tmp tmp;
        oct_dataset data;
        oct_tmp_create(&tmp);
        write_labelled(&tmp, "train", sets[s].type, sets[s].train, 3);
        write_labelled(&tmp, "t10k", sets[s].type, sets[s].test, 2);
        for (int split = OCT_TRAIN; split <= OCT_TEST; split++) {
            const int32_t *want = split == OCT_TRAIN ? sets[s].train : sets[s].test;
            cr_assert(load_plain(&data, &oct_dataset_idx, tmp.path, (oct_split)split, 0) == OCT_OK,
                      "%s", oct_error_message(0));
            cr_assert(data.classes == sets[s].classes, "set %zu: %d", s, data.classes);
            for (int i = 0; i < data.count; i++)
                cr_assert(data.labels[i] == want[i]);
            oct_dataset_close(&data);
        }
        oct_tmp_remove(&tmp);
    }
    cr_assert(oct_mem_live() == 0);
}

Test(idx, more_classes_than_a_byte_holds)
{
    enum { MANY = 300 };
    int32_t labels[MANY];
    oct_tmp tmp;
    oct_dataset data;
    uint8_t digest[32];
    static uint8_t both[MANY * IMAGE + 4 * MANY];
    for (int i = 0; i < MANY; i++) {
        labels[i] = MANY - 1 - i;
        both[MANY * IMAGE + 4 * i] = (uint8_t)labels[i];
        both[MANY * IMAGE + 4 * i + 1] = (uint8_t)(labels[i] >> 8);
    }
    oct_tmp_create(&tmp);
    write_labelled(&tmp, "train", 0x0b, labels, MANY);
    cr_assert(load_plain(&data, &oct_dataset_idx, tmp.path, OCT_TRAIN, 0) == OCT_OK, "%s",
              oct_error_message(0));
    cr_assert(data.classes == MANY && data.labels[0] == MANY - 1 && data.labels[MANY - 1] == 0);
    memcpy(both, data.store, MANY * IMAGE);
    oct_sha256(both, sizeof both, digest);
    cr_assert(memcmp(digest, data.digest, 32) == 0);
    oct_dataset_close(&data);
    oct_tmp_remove(&tmp);
}

Test(idx, classes_can_be_said_and_may_begin_above_0)
{
    enum { LETTERS = 26 };
    int32_t letters[LETTERS];
    for (int i = 0; i < LETTERS; i++)
        letters[i] = 1 + (i + 25) % LETTERS;
    oct_tmp tmp;
    oct_dataset data;
    oct_tmp_create(&tmp);
    write_labelled(&tmp, "train", 0x08, letters, LETTERS);
    oct_dataset_source source = {.format = &oct_dataset_idx, .folder = tmp.path};
    cr_assert(oct_dataset_open(&data, &source, OCT_TRAIN) == OCT_OK);
    cr_assert(data.classes == 27 && data.labels[0] == 26);
    oct_dataset_close(&data);
    source.first_label = 1;
    cr_assert(oct_dataset_open(&data, &source, OCT_TRAIN) == OCT_OK);
    cr_assert(data.classes == 26 && data.labels[0] == 25 && data.labels[1] == 0);
    oct_dataset_close(&data);
    source.classes = 40;
    cr_assert(oct_dataset_open(&data, &source, OCT_TRAIN) == OCT_OK);
    cr_assert(data.classes == 40 && data.labels[0] == 25);
    oct_dataset_close(&data);
    oct_tmp_remove(&tmp);
}

static void check_bad_labels(uint32_t type, const int32_t *labels, uint32_t count,
                             oct_dataset_source source, const char *where, const char *sentence)
{
    oct_tmp tmp;
    oct_dataset data;
    char want[1000];
    oct_tmp_create(&tmp);
    write_labelled(&tmp, "train", type, labels, count);
    source.format = &oct_dataset_idx;
    source.folder = tmp.path;
    oct_mem_peak_reset();
    cr_assert(oct_dataset_open(&data, &source, OCT_TRAIN) == OCT_DATA, "accepted: %s", sentence);
    snprintf(want, sizeof want, "%s%s: %s", tmp.path, where, sentence);
    cr_assert_str_eq(oct_error_message(0), want);
    cr_assert(oct_mem_live() == 0 && oct_mem_peak() < 1 << 20);
    oct_tmp_remove(&tmp);
}

Test(idx, labels_that_are_no_classes_are_named)
{
    check_bad_labels(
        0x09, (int32_t[]){0, 1, -1}, 3, (oct_dataset_source){0}, "/" LABELS,
        "label -1 at index 2 is below the first label, 0; number the classes from 0 on");
    check_bad_labels(
        0x0c, (int32_t[]){0, INT32_MIN}, 2, (oct_dataset_source){0}, "/" LABELS,
        "label -2147483648 at index 1 is below the first label, 0; number the classes from 0 on");
    check_bad_labels(0x08, (int32_t[]){1, 2, 0}, 3, (oct_dataset_source){.first_label = 1},
                     "/" LABELS,
                     "label 0 at index 2 is below the first label, 1; set data.first_label to the "
                     "smallest label");
    check_bad_labels(0x08, (int32_t[]){1, 2, 11}, 3, (oct_dataset_source){.classes = 11},
                     "/" LABELS,
                     "label 11 at index 2 is out of range 0..10; raise data.classes, or take data "
                     "of these classes");
    check_bad_labels(0x0c, (int32_t[]){0, INT32_MAX}, 2, (oct_dataset_source){0}, "/" LABELS,
                     "label 2147483647 at index 1 is out of range 0..65535; number the classes "
                     "without gaps, from 0 on");
    check_bad_labels(0x0c, (int32_t[]){0, 7, 60000}, 3, (oct_dataset_source){0}, "/" LABELS,
                     "label 60000 at index 2, although only 3 different labels occur; number the "
                     "classes without gaps, or write data.classes=60001 if that many are meant");
}

Test(idx, memory_that_runs_out_leaves_nothing)
{
    oct_tmp tmp;
    bytes images = good_images();
    oct_tmp_create(&tmp);
    write_bytes(&tmp, IMAGES ".gz", gzipped(&images));
    write_bytes(&tmp, LABELS, good_labels());
    check_memory_that_runs_out(&oct_dataset_idx, tmp.path);
    oct_tmp_remove(&tmp);
}
