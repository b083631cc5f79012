/* One data set in every format: the same numbers in the same order train to the same parameters, on any number of
 * ranks; pictures in folders bring the names of their classes. */
#include "core/base/mem.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5.h"
#include "io/image/decode.h"
#include "tests/launch/small_data.h"

#include <criterion/criterion.h>
#include <string.h>
#include <zlib.h>

enum { SIDE = 12, IMAGE = SIDE * SIDE, MOST = 96, CLASSES = 10 };

/* A split of the set in data/, which small_make wrote. */
typedef struct split {
    const char *name, *idx;
    int64_t count;
    uint8_t images[MOST * IMAGE], labels[MOST];
} split;

static split splits[2] = {{.name = "train", .idx = "train", .count = 96},
                          {.name = "test", .idx = "t10k", .count = 40}};

static void take_idx(const char *name, size_t begin, uint8_t *to, size_t bytes)
{
    void *file = NULL;
    size_t size;
    cr_assert(oct_file_read(name, 1 << 20, &file, &size) == OCT_OK);
    cr_assert(size == begin + bytes);
    memcpy(to, (uint8_t *)file + begin, bytes);
    oct_free(&file);
}

static void take_split(split *s)
{
    char name[64];
    snprintf(name, sizeof name, "data/%s-images-idx3-ubyte", s->idx);
    take_idx(name, 16, s->images, (size_t)s->count * IMAGE);
    snprintf(name, sizeof name, "data/%s-labels-idx1-ubyte", s->idx);
    take_idx(name, 8, s->labels, (size_t)s->count);
}

static void write_picture(const char *path, const uint8_t *pixels)
{
    oct_image image = {0};
    void *bytes = NULL;
    size_t size;
    cr_assert(oct_image_resize(&image, OCT_U8, SIDE, SIDE, 1) == OCT_OK);
    memcpy(image.data, pixels, IMAGE);
    cr_assert(oct_png_write(&image, &bytes, &size) == OCT_OK);
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(bytes, 1, size, file) == size);
    fclose(file);
    oct_free(&bytes);
    oct_image_free(&image);
}

static void write_csv(const split *s)
{
    char path[64];
    snprintf(path, sizeof path, "%s.csv", s->name);
    FILE *table = small_create("csv", path);
    for (int64_t i = 0; i < s->count; i++) {
        snprintf(path, sizeof path, "csv/%s-%02d.png", s->name, (int)i);
        write_picture(path, s->images + i * IMAGE);
        fprintf(table, "%s,%d\n", path + 4, s->labels[i]);
    }
    fclose(table);
}

static void write_folder(const split *s)
{
    for (int64_t i = 0; i < s->count; i++) {
        char path[64], command[80];
        const int label = s->labels[i];
        snprintf(path, sizeof path, "folder/%s/kind-%d", s->name, label);
        snprintf(command, sizeof command, "mkdir -p %s", path);
        if (i < CLASSES) must(command);
        snprintf(path, sizeof path, "folder/%s/kind-%d/%02d.png", s->name, label, (int)i);
        write_picture(path, s->images + i * IMAGE);
    }
}

/* A .npy file in memory; returns its bytes. */
static size_t make_npy(uint8_t *to, const char *shape, const uint8_t *data, size_t bytes)
{
    const int length = snprintf((char *)to + 10, 118,
                                "{'descr': '|u1', 'fortran_order': False, 'shape': (%s), }", shape);
    memcpy(to, "\x93NUMPY\1\0", 8);
    to[8] = (uint8_t)length;
    to[9] = 0;
    memcpy(to + 10 + length, data, bytes);
    return 10 + (size_t)length + bytes;
}

static size_t make_images(const split *s, uint8_t *to)
{
    char shape[32];
    snprintf(shape, sizeof shape, "%d, %d, %d", (int)s->count, SIDE, SIDE);
    return make_npy(to, shape, s->images, (size_t)s->count * IMAGE);
}

static size_t make_labels(const split *s, uint8_t *to)
{
    char shape[32];
    snprintf(shape, sizeof shape, "%d,", (int)s->count);
    return make_npy(to, shape, s->labels, (size_t)s->count);
}

static uint8_t bytes[MOST * IMAGE + 128];

static void write_npy(const split *s)
{
    char name[64];
    for (int labels = 0; labels < 2; labels++) {
        snprintf(name, sizeof name, "%s_%s.npy", s->name, labels ? "labels" : "images");
        FILE *file = small_create("npy", name);
        const size_t size = labels ? make_labels(s, bytes) : make_images(s, bytes);
        cr_assert(fwrite(bytes, 1, size, file) == size);
        fclose(file);
    }
}

static void write_h5(void)
{
    oct_h5 *h5 = NULL;
    void *image = NULL;
    size_t size;
    char path[64];
    cr_assert(oct_h5_create(&h5, 0) == OCT_OK);
    for (int i = 0; i < 2; i++) {
        const split *s = &splits[i];
        snprintf(path, sizeof path, "%s/images", s->name);
        cr_assert(oct_h5_write(h5, path, OCT_U8, OCT_SHAPE(s->count, SIDE, SIDE), s->images) ==
                  OCT_OK);
        snprintf(path, sizeof path, "%s/labels", s->name);
        cr_assert(oct_h5_write(h5, path, OCT_U8, OCT_SHAPE(s->count), s->labels) == OCT_OK);
    }
    cr_assert(oct_h5_finish(&h5, false, &image, &size) == OCT_OK);
    cr_assert(oct_file_write("a.h5", image, size) == OCT_OK);
    oct_free(&image);
}

static void make_all(void)
{
    enter_with_data();
    must("mkdir csv folder npy");
    for (int i = 0; i < 2; i++) {
        take_split(&splits[i]);
        write_csv(&splits[i]);
        write_folder(&splits[i]);
        write_npy(&splits[i]);
    }
    write_h5();
}

static void train(const char *output, const char *words)
{
    char command[400];
    snprintf(command, sizeof command,
             OCT_PROGRAM " train r.yaml output=%s data.channels=1 %s > log 2>&1 || { cat log; "
                         "exit 1; }",
             output, words);
    must(command);
}

/* Compares the data sets whose paths begin with a prefix; returns how many there are. */
static int compare(oct_h5 *a, oct_h5 *b, const char *prefix)
{
    int compared = 0;
    const char *path;
    for (size_t next = 0; (path = oct_h5_next_dataset(a, prefix, &next)); compared++) {
        oct_dtype dtype;
        oct_shape shape;
        void *x = NULL, *y = NULL;
        cr_assert(oct_h5_describe(a, path, &dtype, &shape) == OCT_OK &&
                      oct_h5_read_new(a, path, dtype, shape, &x) == OCT_OK &&
                      oct_h5_read_new(b, path, dtype, shape, &y) == OCT_OK,
                  "%s", oct_error_message(0));
        const size_t size = (size_t)oct_shape_numel(&shape) * oct_dtype_bytes(dtype);
        cr_expect(memcmp(x, y, size) == 0, "%s", path);
        oct_free(&x);
        oct_free(&y);
    }
    return compared;
}

/* Recipes differ, and so do the files; what has been learned does not. */
static void check_same_state(const char *output)
{
    oct_h5 *first = NULL, *second = NULL;
    void *a = NULL, *b = NULL;
    size_t a_size, b_size;
    char path[64];
    snprintf(path, sizeof path, "%s/checkpoints/step-00000007.h5", output);
    cr_assert(oct_file_read("idx/checkpoints/step-00000007.h5", 1 << 26, &a, &a_size) == OCT_OK);
    cr_assert(oct_file_read(path, 1 << 26, &b, &b_size) == OCT_OK);
    cr_assert(oct_h5_open_checked(&first, a, a_size, "idx") == OCT_OK);
    cr_assert(oct_h5_open_checked(&second, b, b_size, output) == OCT_OK);
    const int compared = compare(first, second, "state/") + compare(first, second, "optimizer/");
    cr_assert(compared > 30, "%d", compared);
    oct_h5_close(&first);
    oct_h5_close(&second);
    oct_free(&a);
    oct_free(&b);
}

Test(formats, the_same_numbers_train_to_the_same_parameters, .timeout = 300)
{
    static const struct {
        const char *name, *words;
    } formats[] = {
        {"of-npy", "data.format=npy data.path=npy"},
        {"of-hdf5", "data.format=hdf5 data.path=a.h5"},
        {"of-csv", "data.format=csv data.path=csv data.size=12"},
    };
    make_all();
    train("idx", "");
    for (size_t i = 0; i < OCT_COUNT(formats); i++) {
        train(formats[i].name, formats[i].words);
        check_same_state(formats[i].name);
    }
    leave_folder();
}

Test(formats, a_folder_trains_to_the_same_bytes_on_any_ranks_and_keeps_its_names, .timeout = 300)
{
    const char *words = "data.format=folder data.path=folder data.size=12";
    char two[128], three[128];
    make_all();
    snprintf(two, sizeof two, "%s --ranks 2", words);
    snprintf(three, sizeof three, "%s --ranks 3", words);
    train("one", words);
    train("two", two);
    train("three", three);
    must("cmp one/checkpoints/step-00000007.h5 two/checkpoints/step-00000007.h5");
    must("cmp one/checkpoints/step-00000007.h5 three/checkpoints/step-00000007.h5");
    must("cmp one/model.int8.h5 two/model.int8.h5");
    must("cmp one/model.int8.h5 three/model.int8.h5");
    must(OCT_PROGRAM " inspect one/model.int8.h5 | grep -x "
                     "'class names kind-0, kind-1, kind-2, kind-3, kind-4, kind-5, kind-6, "
                     "kind-7, kind-8, kind-9'");
    must(OCT_PROGRAM " inspect one/checkpoints/step-00000007.h5 | grep '^class names kind-0, '");
    must(OCT_PROGRAM " run one/model.int8.h5 --input folder/test/kind-3/03.png > out && "
                     "grep -E '^image 0: kind-[0-9], [0-9.]+ %; then kind-' out");
    must(OCT_PROGRAM " run one/model.int8.h5 --json --input folder/test/kind-3/03.png > out && "
                     "grep -E '\"name\": \"kind-[0-9]\"' out");
    must(OCT_PROGRAM " eval one/model.int8.h5");
    must("mv folder/train/kind-7 folder/train/kind-x; mv folder/test/kind-7 folder/test/kind-x; "
         "if " OCT_PROGRAM " eval one/model.int8.h5 2> err; then exit 1; fi; "
         "grep 'its class 7 is kind-7, but that of the data is kind-8' err");
    leave_folder();
}
