/* worst.json and the confusion record of a run say what octet run says of the same images. That they are the same on
 * any number of ranks is test_layer_stats.c's. */
#include "tests/launch/small_data.h"
#include "tests/support/mpirun.h"

#include "core/base/status.h"
#include "io/image/decode.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

TestSuite(worst, .init = enter_folder, .fini = leave_folder, .timeout = 200);

#define TRAIN(ranks, ...)                                                                          \
    (oct_process_free(&job),                                                                       \
     job = oct_mpirun(ranks, 60, OCT_PROGRAM, "train", "r.yaml", __VA_ARGS__, NULL))

static int64_t whole(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    cr_assert(json_is_integer(value), "%s", key);
    return json_integer_value(value);
}

static double real(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static json_t *load(const char *path)
{
    json_t *document = json_load_file(path, 0, NULL);
    cr_assert(document, "%s", path);
    return document;
}

static size_t decode64(const char *text, uint8_t *bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t size = 0;
    for (size_t i = 0; text[i]; i += 4) {
        uint32_t group = 0;
        for (size_t k = 0; k < 4; k++)
            group = group << 6 |
                    (text[i + k] == '=' ? 0u : (uint32_t)(strchr(digits, text[i + k]) - digits));
        for (size_t k = 0; k < 3 && text[i + k + 1] != '='; k++)
            bytes[size++] = (uint8_t)(group >> (16 - 8 * k));
    }
    return size;
}

static void read_png(const json_t *sample, oct_image *image)
{
    static uint8_t bytes[1 << 16];
    const char *text = json_string_value(json_object_get(sample, "png"));
    cr_assert(text && strlen(text) % 4 == 0 && strlen(text) < sizeof bytes);
    const oct_encoded file = {bytes, decode64(text, bytes), "png"};
    cr_assert_eq(oct_image_decode(image, &file, 1), OCT_OK, "%s", oct_error_message(0));
}

/* Of small_idx's file, at this index. */
static void check_pixels(const json_t *sample, int64_t side)
{
    oct_image image = {0};
    uint8_t *pixels = malloc((size_t)(side * side));
    FILE *file = fopen("data/t10k-images-idx3-ubyte", "rb");
    cr_assert(fseek(file, (long)(16 + whole(sample, "index") * side * side), SEEK_SET) == 0);
    cr_assert_eq(fread(pixels, 1, (size_t)(side * side), file), (size_t)(side * side));
    fclose(file);
    read_png(sample, &image);
    cr_assert_eq(image.h, side);
    cr_assert_eq(image.w, side);
    cr_assert(memcmp(image.data, pixels, (size_t)(side * side)) == 0);
    oct_image_free(&image);
    free(pixels);
}

static void check_sample(const json_t *sample, const json_t *images)
{
    const json_t *found = json_array_get(images, (size_t)whole(sample, "index"));
    const json_t *best = json_array_get(json_object_get(found, "top"), 0);
    const int64_t label = whole(sample, "label");
    cr_assert_eq(label, whole(sample, "index") % 10, "as small_idx labels");
    cr_assert_eq(whole(sample, "predicted"), whole(best, "class"));
    cr_assert_float_eq(real(sample, "probability"), real(best, "probability"), 1e-6);
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(found, "top"), i, one) if (whole(one, "class") == label)
        cr_assert_float_eq(real(sample, "loss"), -log(real(one, "probability")), 1e-5);
}

Test(worst, samples_are_those_of_octet_run)
{
    small_make(12, small_recipe);
    TRAIN(3, "output=r1");
    oct_check_exit(job, 0);
    OCTET("run", "r1/model.int8.h5", "--input", "data/t10k-images-idx3-ubyte", "--json", "--count",
          "40");
    oct_check_exit(job, 0);
    json_t *document = load("r1/worst.json"), *said = json_loads(job.out, 0, NULL);
    const json_t *samples = json_object_get(document, "samples");
    cr_assert_eq(json_array_size(samples), 24);
    for (size_t i = 0; i < 24; i++) {
        const json_t *sample = json_array_get(samples, i);
        check_sample(sample, json_object_get(said, "images"));
        check_pixels(sample, 12);
        if (i > 0)
            cr_assert_leq(real(sample, "loss"), real(json_array_get(samples, i - 1), "loss"));
    }
    json_decref(document);
    json_decref(said);
}

Test(worst, thumbnails_are_small)
{
    oct_image image = {0};
    small_make(80, small_recipe);
    TRAIN(2, "data.test_limit=5", "data.train_limit=32");
    oct_check_exit(job, 0);
    json_t *document = load("new/worst.json");
    cr_assert_eq(json_array_size(json_object_get(document, "samples")), 5, "there are no more");
    read_png(json_array_get(json_object_get(document, "samples"), 0), &image);
    cr_assert_eq(image.h, 64);
    cr_assert_eq(image.w, 64);
    oct_image_free(&image);
    json_decref(document);
}

Test(worst, confusion_counts_every_test_image)
{
    small_make(12, small_recipe);
    TRAIN(2, "output=new");
    oct_check_exit(job, 0);
    must("grep '\"confusion\"' new/metrics.jsonl >c; test $(wc -l <c) = 1");
    json_t *record = load("c");
    const json_t *counts = json_object_get(record, "counts");
    int64_t sum = 0, right = 0;
    cr_assert_eq(whole(record, "classes"), 10);
    cr_assert_eq(json_array_size(counts), 10);
    for (size_t i = 0; i < 10; i++) {
        int64_t row = 0;
        for (size_t k = 0; k < 10; k++)
            row += json_integer_value(json_array_get(json_array_get(counts, i), k));
        cr_assert_eq(row, 4, "a row holds the images of a class");
        sum += row;
        right += json_integer_value(json_array_get(json_array_get(counts, i), i));
    }
    cr_assert_eq(sum, 40);
    char line[128];
    snprintf(line, sizeof line,
             "grep '\"eval\"' new/metrics.jsonl | tail -n 1 | grep -q '\"correct\":%d,'",
             (int)right);
    must(line);
    json_decref(record);
}
