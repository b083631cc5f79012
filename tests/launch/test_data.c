/* octet data: what it finds in a data set, and the sheet that it writes. */
#include "core/base/mem.h"
#include "io/file/file.h"
#include "io/image/decode.h"
#include "tests/launch/small_data.h"

#include <jansson.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

static void set_up(void)
{
    enter_folder();
    small_make(12, small_recipe);
}

TestSuite(data, .init = set_up, .fini = leave_folder, .timeout = 300);

static json_t *document(void)
{
    json_error_t error;
    json_t *found = json_loads(job.out, 0, &error);
    cr_assert_not_null(found, "%s\n%s%s", error.text, job.out, job.err);
    return found;
}

/* The same sums as the command's, from the bytes of the file. */
static void sums_of(const char *file, double *mean, double *std)
{
    FILE *f = fopen(file, "rb");
    double sum = 0, squares = 0, count = 0;
    cr_assert(f && fseek(f, 16, SEEK_SET) == 0);
    for (int byte; (byte = fgetc(f)) != EOF; count++) {
        sum += byte / 255.0;
        squares += (byte / 255.0) * (byte / 255.0);
    }
    fclose(f);
    *mean = sum / count;
    *std = sqrt(squares / count - *mean * *mean);
}

Test(data, counts_classes_and_sums_exactly)
{
    double mean, std;
    sums_of("data/train-images-idx3-ubyte", &mean, &std);
    OCTET("data", "r.yaml", "--json");
    oct_check_exit(job, 0);
    json_t *found = document();
    const json_t *train = json_object_get(found, "training");
    const json_t *classes = json_object_get(train, "of_class");
    cr_assert_eq(json_array_size(classes), 10);
    json_int_t all = 0;
    for (size_t i = 0; i < 10; i++)
        all += json_integer_value(json_array_get(classes, i));
    cr_assert_eq(all, json_integer_value(json_object_get(train, "samples")));
    cr_assert_float_eq(json_real_value(json_array_get(json_object_get(train, "mean"), 0)), mean,
                       1e-9);
    cr_assert_float_eq(json_real_value(json_array_get(json_object_get(train, "std"), 0)), std,
                       1e-9);
    json_decref(found);
    OCTET("data", "r.yaml");
    oct_check_exit(job, 0);
    cr_assert(strstr(job.out, "12x12x1 u8: all") && strstr(job.out, "damaged      none"), "%s",
              job.out);
}

/* Makes test image `to` the bytes of training image `from`, and training image 7 those of 2. */
static void repeat_images(void)
{
    must(
        "dd if=data/train-images-idx3-ubyte of=data/t10k-images-idx3-ubyte bs=1 skip=$((16+144*5)) "
        "seek=$((16+144*3)) count=144 conv=notrunc status=none");
    must("dd if=data/train-images-idx3-ubyte of=data/train-images-idx3-ubyte bs=1 "
         "skip=$((16+144*2)) seek=$((16+144*7)) count=144 conv=notrunc status=none");
}

Test(data, names_samples_that_are_there_twice)
{
    /* the generator gives test images that training has too, so take another one for these */
    must("head -c 16 data/t10k-images-idx3-ubyte > head; size=$(stat -c %s "
         "data/t10k-images-idx3-ubyte); (cat head; head -c $((size - 16)) /dev/urandom) > new; "
         "mv new data/t10k-images-idx3-ubyte");
    repeat_images();
    OCTET("data", "r.yaml");
    oct_check_exit(job, 0);
    cr_assert(strstr(job.out, "1 of the test samples are training samples too; 1 training and 0 "
                              "test samples repeat an earlier one"),
              "%s", job.out);
    cr_assert(strstr(job.out, "training sample 2 = training sample 7, of different classes\n"),
              "%s", job.out);
    cr_assert(strstr(job.out, "training sample 5 = test sample 3, of different classes\n"), "%s",
              job.out);
}

/* Writes a grey picture in which every pixel has this value. */
static void put_picture(const char *file, int64_t h, int64_t w, uint8_t value)
{
    oct_image image = {0};
    void *bytes = NULL;
    size_t size = 0;
    cr_assert(oct_image_resize(&image, OCT_U8, h, w, 1) == OCT_OK);
    memset(image.data, value, (size_t)(h * w));
    cr_assert(oct_png_write(&image, &bytes, &size) == OCT_OK);
    oct_tmp_write(&tmp, file, bytes, size);
    oct_free(&bytes);
    oct_image_free(&image);
}

static void put_folder(void)
{
    must("mkdir -p pics/train/cat pics/train/dog pics/test/cat pics/test/dog");
    put_picture("pics/train/cat/a.png", 20, 30, 51);
    put_picture("pics/train/cat/b.png", 40, 20, 102);
    put_picture("pics/train/dog/long.png", 90, 3, 153);
    put_picture("pics/test/cat/a.png", 20, 30, 7);
    put_picture("pics/test/dog/same.png", 20, 30, 51);
}

#define FOLDER                                                                                     \
    "data.format=folder", "data.path=pics", "data.size=16", "data.channels=1", "data.mean=[0.5]",  \
        "data.std=[0.5]"

Test(data, names_files_of_odd_sizes_of_equal_and_of_damaged_pictures)
{
    put_folder();
    OCTET("data", "r.yaml", FOLDER);
    oct_check_exit(job, 0);
    cr_assert(strstr(job.out, "longest shape 90x3 (train/dog/long.png)\n"), "%s", job.out);
    cr_assert(strstr(job.out, "training train/cat/a.png = test test/dog/same.png, of different"),
              "%s", job.out);
    /* (600 * 51 + 800 * 102 + 270 * 153) / 1670 / 255 */
    cr_assert(strstr(job.out, "data.mean: [0.3605]"), "%s", job.out);
    OCTET("data", "r.yaml", FOLDER, "--preview", "page.html");
    oct_check_exit(job, 0);
    must("head -c 40 pics/train/cat/b.png > cut && mv cut pics/train/cat/b.png");
    OCTET("data", "r.yaml", FOLDER);
    oct_check_exit(job, 1);
    cr_assert(strstr(job.out, "damaged      1\n") && strstr(job.out, "train/cat/b.png"), "%s",
              job.out);
}

/* The picture of the nth text "png" in a page. */
static oct_image picture_of(const char *page, int nth)
{
    static uint8_t bytes[4096];
    oct_image image = {0};
    for (page = strstr(page, "\"png\":\""); nth > 0; nth--)
        page = strstr(page + 1, "\"png\":\"");
    page += strlen("\"png\":\"");
    const int length = (int)strcspn(page, "\"");
    cr_assert(length < 4096 && EVP_DecodeBlock(bytes, (const uint8_t *)page, length) > 0);
    const oct_encoded file = {.name = "page", .bytes = bytes, .size = (size_t)length / 4 * 3};
    cr_assert(oct_image_decode(&image, &file, 1) == OCT_OK, "%s", oct_error_message(0));
    return image;
}

/* Seven pictures a sample: the first is the one in the file, the others are results of the transforms. */
Test(data, writes_a_sheet)
{
    void *page = NULL, *data = NULL;
    size_t size;
    OCTET("data", "r.yaml", "--preview", "page.html", "--samples", "3",
          "data.train=[random_resized_crop 12, flip, rotate 20]", "data.mixup=1");
    oct_check_exit(job, 0);
    must("test $(grep -o '\"png\":\"iVBORw0KGgo' page.html | wc -l) = 21");
    must("/usr/bin/python3 " OCT_SOURCE_DIR
         "/tests/launch/check_page.py page.html 'epoch 6' 'class ' "
         "'random_resized_crop 12' '12×12×1 u8, 10 classes'");
    cr_assert(oct_file_read("page.html", 1 << 20, &page, &size) == OCT_OK);
    cr_assert(oct_file_read("data/train-images-idx3-ubyte", 1 << 20, &data, &size) == OCT_OK);
    const long sample = strtol(strstr(page, "\"sample ") + strlen("\"sample "), NULL, 10);
    for (int i = 0; i < 2; i++) {
        oct_image image = picture_of(page, i);
        cr_assert(image.h == 12 && image.w == 12);
        const bool same = memcmp(image.data, (uint8_t *)data + 16 + sample * 144, 144) == 0;
        cr_assert_eq(same, i == 0);
        oct_image_free(&image);
    }
    oct_free(&page);
    oct_free(&data);
    OCTET("data", "r.yaml", "--preview", "again.html", "--samples", "3",
          "data.train=[random_resized_crop 12, flip, rotate 20]", "data.mixup=1");
    must("cmp page.html again.html");
}

Test(data, more_samples_than_there_are_is_all_of_them)
{
    OCTET("data", "r.yaml", "--preview", "page.html", "--samples", "9", "data.train_limit=2");
    oct_check_exit(job, 0);
}

static void check_wrong(int exit_code, const char *sentence)
{
    oct_check_exit(job, exit_code);
    cr_assert(strstr(job.err, sentence), "%s", job.err);
}

Test(data, wrong_command_lines_and_recipes_are_said)
{
    OCTET("data", "r.yaml", "--samples", "3");
    check_wrong(2, "--samples is for --preview");
    OCTET("data", "r.yaml", "--preview", "none/page.html");
    check_wrong(7, "none/page.html");
    OCTET("data", "r.yaml", "--preview", "page.png");
    check_wrong(2,
                "--preview page.png: the sheet is an HTML page; give it a name that ends in .html");
    OCTET("data", "r.yaml", "data.train=[flip, resize]");
    check_wrong(2, "data.train: item 2: resize has no size; write one, such as resize 224");
    OCTET("data", "r.yaml", "data.train=[color_jitter saturation=0.1]");
    check_wrong(2, "data.train: item 1, color_jitter: saturation and hue need samples of 3");
    OCTET("data", "data/t10k-images-idx3-ubyte");
    check_wrong(3,
                "data/t10k-images-idx3-ubyte: is no recipe, checkpoint, int8 model or run folder");
    shell("mkdir nothing && exec " OCT_PROGRAM " data nothing");
    check_wrong(3, "nothing: ");
    OCTET("data", "r.yaml", "data.path=nowhere");
    check_wrong(3, "nowhere: there is no such folder");
}

/* Both lists must give the model one size. */
Test(data, training_and_test_of_different_sizes_are_refused)
{
    OCTET("train", "r.yaml", "data.train=[random_crop 10]");
    check_wrong(2, "training images are 10 x 10 x 1, test images 12 x 12 x 1");
    OCTET("train", "r.yaml", "data.mixup=0.2", "batch.leaf=1");
    check_wrong(2, "data.mixup mixes the samples of a leaf, but batch.leaf is 1");
}

/* Data in place of a recipe: task, size and network follow from them, the same on any number of ranks. */
Test(data, alone_begin_a_recipe)
{
    static const struct {
        const char *data, *chosen;
    } cases[] = {
        {"keras.npz", "model.name=mlp data.goal=class"},
        {"values.npz", "model.name=mlp data.goal=values"},
        {"alone.npy", "model.name=autoencoder data.goal=input"},
        {"photos/", "model.name=resnet20 data.goal=class data.size=64"},
    };
    shell("/usr/bin/python3 -c '\n"
          "import numpy, os\n"
          "from PIL import Image\n"
          "r = numpy.random.default_rng(1)\n"
          "x = r.normal(3, 2, (64, 12)).astype(\"f4\")\n"
          "y = (x[:, 0] > 3).astype(\"i8\")\n"
          "numpy.savez(\"keras.npz\", x_train=x, y_train=y, x_test=x[:16], y_test=y[:16])\n"
          "numpy.savez(\"values.npz\", x=x, y=x[:, :2])\n"
          "numpy.save(\"alone.npy\", x)\n"
          "numpy.savez(\"wide.npz\", x=400 + 100 * x, y=y)\n"
          "for name in \"cat\", \"dog\":\n"
          "    os.makedirs(\"photos/\" + name)\n"
          "    for i in range(10):\n"
          "        pixels = r.integers(0, 255, (70, 100 + i, 3), dtype=numpy.uint8)\n"
          "        Image.fromarray(pixels).save(\"photos/%s/%d.png\" % (name, i))\n"
          "'");
    oct_check_exit(job, 0);
    /* Mean and deviation are those of the data, however far they are from 0 and 1. */
    must(OCT_PROGRAM
         " train wide.npz -q float.epochs=1 qat.epochs=1 calibrate.batches=2 output=w && "
         "grep -qE 'mean: .(6[5-9]|7[0-4])[0-9]' w/recipe.yaml && "
         "grep -qE 'std: .(1[7-9]|2[0-3])[0-9]' w/recipe.yaml");
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        char line[600];
        OCTET("data", cases[i].data);
        oct_check_exit(job, 0);
        oct_check_said(job, cases[i].chosen);
        snprintf(line, sizeof line,
                 "for n in 1 2; do " OCT_PROGRAM " train %s float.epochs=1 qat.epochs=1 "
                 "calibrate.batches=2 output=$n --ranks $n || exit; done; "
                 "cmp 1/model.int8.h5 2/model.int8.h5 && rm -r 1 2",
                 cases[i].data);
        shell(line);
        oct_check_exit(job, 0);
        cr_assert_eq(oct_process_said_times(&job, cases[i].chosen), 2, "%s", job.err);
    }
}
