/* Data sets of pictures in files: folders of classes and tables, in their order, and what is wrong with them. */
#include "core/base/mem.h"
#include "io/dataset/csv_file.h"
#include "io/dataset/picture_list.h"
#include "io/dataset/dataset.h"
#include "io/image/decode.h"
#include "tests/golden/image_golden.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static oct_status open_set(oct_dataset *data, const oct_dataset_format *format, const char *path,
                           oct_split split)
{
    const oct_dataset_source source = {
        .format = format, .folder = path, .split = 0.25, .seed = 1, .channels = 1};
    return oct_dataset_open(data, &source, split);
}

/* A grey picture whose pixels all have this value. */
static void put_picture(oct_tmp *tmp, const char *name, uint8_t value)
{
    oct_image image = {0};
    void *bytes = NULL;
    size_t size;
    cr_assert(oct_image_resize(&image, OCT_U8, 3, 2 + value % 3, 1) == OCT_OK);
    memset(image.data, value, (size_t)oct_image_numel(&image));
    cr_assert(oct_png_write(&image, &bytes, &size) == OCT_OK);
    oct_tmp_write(tmp, name, bytes, size);
    oct_free(&bytes);
    oct_image_free(&image);
}

static uint8_t value_of(const oct_dataset *data, int64_t index)
{
    oct_image image = {0};
    cr_assert(data->format->read(data, index, &image, NULL) == OCT_OK, "%s", oct_error_message(0));
    const uint8_t value = *(const uint8_t *)image.data;
    cr_assert(image.h == 3 && image.w == 2 + value % 3 && image.c == 1);
    oct_image_free(&image);
    return value;
}

static void make_folder(oct_tmp *tmp)
{
    put_picture(tmp, "train/cat/b.png", 1);
    put_picture(tmp, "train/cat/a.PNG", 2);
    put_picture(tmp, "train/Zebra/1.png", 3);
    put_picture(tmp, "train/cat/.hidden.png", 4);
    oct_tmp_write(tmp, "train/cat/notes.txt", "x", 1);
    put_picture(tmp, "val/cat/c.png", 5);
    put_picture(tmp, "val/Zebra/d.png", 6);
    oct_tmp_write(tmp, "train/Zebra/2.JPEG", jpeg_grey, sizeof jpeg_grey);
}

Test(folder, classes_and_pictures_are_in_the_order_of_their_names)
{
    oct_tmp tmp;
    oct_dataset data;
    oct_tmp_create(&tmp);
    make_folder(&tmp);
    cr_assert(open_set(&data, &oct_dataset_folder, tmp.path, OCT_TRAIN) == OCT_OK, "%s",
              oct_error_message(0));
    cr_assert(data.count == 4 && data.classes == 2 && data.h == 0 && data.c == 1);
    cr_assert_str_eq(data.class_names[0], "Zebra");
    cr_assert_str_eq(data.class_names[1], "cat");
    cr_assert(value_of(&data, 0) == 3 && value_of(&data, 2) == 2 && value_of(&data, 3) == 1);
    cr_assert(data.labels[0] == 0 && data.labels[1] == 0 && data.labels[3] == 1);
    oct_dataset_close(&data);
    cr_assert(open_set(&data, &oct_dataset_folder, tmp.path, OCT_TEST) == OCT_OK);
    cr_assert(data.count == 2 && value_of(&data, 0) == 6 && data.labels[1] == 1);
    oct_dataset_close(&data);
    oct_tmp_remove(&tmp);
    cr_assert(oct_mem_live() == 0);
}

/* With data.goal=input there are as many outputs as numbers in a sample, which have no names. */
Test(folder, names_of_classes_are_no_names_of_other_outputs)
{
    oct_tmp tmp;
    oct_dataset data;
    oct_tmp_create(&tmp);
    make_folder(&tmp);
    const oct_dataset_source source = {
        .format = &oct_dataset_folder, .folder = tmp.path, .channels = 1, .goal = OCT_GOAL_INPUT};
    cr_assert(oct_dataset_open(&data, &source, OCT_TRAIN) == OCT_OK, "%s", oct_error_message(0));
    oct_dataset_resize(&data, 64, 64, 1);
    cr_assert(data.count == 4 && data.classes == 64 * 64 && data.labels && !data.class_names);
    oct_dataset_close(&data);
    oct_tmp_remove(&tmp);
    cr_assert(oct_mem_live() == 0);
}

static void check_refused(const oct_dataset_format *format, const char *path, oct_split split,
                          const char *words)
{
    oct_dataset data;
    cr_assert(open_set(&data, format, path, split) == OCT_DATA, "accepted, without: %s", words);
    cr_assert(strstr(oct_error_message(0), words) != NULL, "%s", oct_error_message(0));
    cr_assert(oct_mem_live() == 0);
}

Test(folder, what_is_wrong_is_said)
{
    oct_tmp tmp;
    oct_tmp_create(&tmp);
    oct_tmp_write(&tmp, "a/val/x/1.png", "x", 1);
    check_refused(&oct_dataset_folder, oct_tmp_path(&tmp, "a"), OCT_TRAIN,
                  "holds the folder val, but no folder train; expected: train/CLASS/*.jpg");
    oct_tmp_write(&tmp, "b/pictures.zip", "x", 1);
    check_refused(&oct_dataset_folder, oct_tmp_path(&tmp, "b"), OCT_TRAIN,
                  "holds no folders of classes, but files such as pictures.zip; expected:");
    put_picture(&tmp, "c/one/1.png", 1);
    check_refused(&oct_dataset_folder, oct_tmp_path(&tmp, "c"), OCT_TRAIN,
                  "holds one class folder, one; at least two classes are needed");
    put_picture(&tmp, "c/two/1.png", 1);
    check_refused(&oct_dataset_folder, oct_tmp_path(&tmp, "c"), OCT_TRAIN,
                  "c/one: holds one picture; a class needs two where data.split draws the test");
    oct_tmp_write(&tmp, "c/one/2.txt", "", 0);
    unlink(oct_tmp_path(&tmp, "c/one/1.png"));
    check_refused(&oct_dataset_folder, oct_tmp_path(&tmp, "c"), OCT_TRAIN,
                  "c/one: holds no pictures (.jpg, .jpeg, .png); remove the folder or fill it");
    make_folder(&tmp);
    put_picture(&tmp, "val/dog/1.png", 1);
    check_refused(&oct_dataset_folder, tmp.path, OCT_TEST,
                  "val/dog: the class is not in train; move the folder away or add it to train");
    put_picture(&tmp, "outside/1.png", 1);
    const char *inside = oct_tmp_path(&tmp, "train/cat/link.png");
    cr_assert(symlink("/etc/hostname", inside) == 0);
    check_refused(&oct_dataset_folder, tmp.path, OCT_TRAIN,
                  "train/cat/link.png: is a link that leads out of the data set's folder");
    unlink(inside);
    cr_assert(symlink("b.png", inside) == 0);
    oct_dataset data;
    cr_assert(open_set(&data, &oct_dataset_folder, tmp.path, OCT_TRAIN) == OCT_OK);
    cr_assert(data.count == 5);
    oct_dataset_close(&data);
    oct_tmp_remove(&tmp);
}

Test(folder, a_damaged_picture_is_named_when_it_is_read)
{
    oct_tmp tmp;
    oct_dataset data;
    oct_image image = {0};
    oct_tmp_create(&tmp);
    make_folder(&tmp);
    oct_tmp_write(&tmp, "train/Zebra/1.png", png_grey, sizeof png_grey / 2);
    cr_assert(open_set(&data, &oct_dataset_folder, tmp.path, OCT_TRAIN) == OCT_OK);
    cr_assert(data.format->read(&data, 0, &image, NULL) == OCT_DATA);
    cr_assert(strstr(oct_error_message(0), "train/Zebra/1.png: is a damaged PNG file"), "%s",
              oct_error_message(0));
    oct_dataset_close(&data);
    oct_image_free(&image);
    oct_tmp_remove(&tmp);
}

/* The digest knows names and sizes alone, which are the same on every rank; the contents are those of the files here. */
Test(folder, other_files_of_the_same_names_and_sizes_have_other_contents)
{
    static uint8_t bytes[sizeof png_grey];
    oct_tmp tmp;
    oct_dataset data;
    uint8_t first[32], again[32], digest[32];
    oct_tmp_create(&tmp);
    make_folder(&tmp);
    memcpy(bytes, png_grey, sizeof bytes);
    for (int i = 0; i < 3; i++) {
        bytes[sizeof bytes / 2] ^= (uint8_t)(i == 2);
        oct_tmp_write(&tmp, "train/Zebra/1.png", bytes, sizeof bytes);
        cr_assert(open_set(&data, &oct_dataset_folder, tmp.path, OCT_TRAIN) == OCT_OK);
        cr_assert(oct_dataset_contents(&data, i == 0 ? first : again) == OCT_OK);
        cr_assert(i == 0 || (memcmp(first, again, 32) == 0) == (i == 1));
        cr_assert(i == 0 || memcmp(digest, data.digest, 32) == 0);
        memcpy(digest, data.digest, 32);
        oct_dataset_close(&data);
    }
    oct_tmp_remove(&tmp);
    cr_assert(oct_mem_live() == 0);
}

Test(folder, a_share_of_each_class_is_drawn_where_there_is_no_test)
{
    oct_tmp tmp;
    oct_dataset data;
    int seen[24] = {0};
    oct_tmp_create(&tmp);
    for (int i = 0; i < 24; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s/%02d.png", i < 8 ? "few" : "many", i);
        put_picture(&tmp, name, (uint8_t)i);
    }
    for (int s = 0; s < 2; s++) {
        cr_assert(open_set(&data, &oct_dataset_folder, tmp.path, (oct_split)s) == OCT_OK);
        cr_assert(data.count == (s == 0 ? 18 : 6));
        for (int64_t i = 0; i < data.count; i++) {
            const int value = value_of(&data, i);
            cr_assert(data.labels[i] == (value >= 8));
            seen[value]++;
        }
        oct_dataset_close(&data);
    }
    for (int i = 0; i < 24; i++)
        cr_assert(seen[i] == 1);
    oct_tmp_remove(&tmp);
}

/* Changing one's seed changes the draw; the same arguments never do. */
Test(split, is_a_function_of_its_arguments)
{
    int64_t *a, *b, *c, n;
    const oct_split_draw draw = {100, 0.2, 5, 0}, other = {100, 0.2, 6, 0};
    cr_assert(oct_split_choose(&draw, OCT_TEST, &a, &n) == OCT_OK && n == 20);
    cr_assert(oct_split_choose(&draw, OCT_TEST, &b, &n) == OCT_OK && n == 20);
    cr_assert(oct_split_choose(&other, OCT_TEST, &c, &n) == OCT_OK && n == 20);
    cr_assert(memcmp(a, b, 20 * sizeof *a) == 0 && memcmp(a, c, 20 * sizeof *a) != 0);
    for (int i = 1; i < 20; i++)
        cr_assert(a[i] > a[i - 1] && a[i] < 100);
    oct_free(&a), oct_free(&b), oct_free(&c);
    const oct_split_draw little = {2, 0.001, 5, 0}, much = {3, 0.999, 5, 0};
    cr_assert(oct_split_choose(&little, OCT_TEST, &a, &n) == OCT_OK && n == 1);
    cr_assert(oct_split_choose(&much, OCT_TRAIN, &b, &n) == OCT_OK && n == 1);
    oct_free(&a), oct_free(&b);
}

static void write_text(oct_tmp *tmp, const char *name, const char *text)
{
    oct_tmp_write(tmp, name, text, strlen(text));
}

Test(csv, fields_are_those_between_commas_and_quotes)
{
    static const char text[] = "\xef\xbb\xbf"
                               "a,\"b,c\",\r\n\r\n\"x \"\"y\"\"\",\"two\nlines\",3\n1,2,3";
    static const char *const want[] = {"a", "b,c", "", "x \"y\"", "two\nlines", "3", "1", "2", "3"};
    oct_tmp tmp;
    oct_csv csv;
    oct_tmp_create(&tmp);
    const char *path = oct_tmp_write(&tmp, "a.csv", text, sizeof text - 1);
    cr_assert(oct_csv_read(&csv, path) == OCT_OK, "%s", oct_error_message(0));
    cr_assert(csv.rows == 3 && csv.columns == 3);
    for (int i = 0; i < 9; i++)
        cr_assert_str_eq(oct_csv_field(&csv, i / 3, i % 3), want[i]);
    cr_assert(csv.line[0] == 1 && csv.line[1] == 3 && csv.line[2] == 5);
    oct_csv_free(&csv);
    oct_tmp_remove(&tmp);
    cr_assert(oct_mem_live() == 0);
}

Test(csv, separators_are_those_of_the_first_line_and_blanks_do_not_count)
{
    static const char *const texts[] = {"\n a ,b\n c,\" d,;\" \r\n", "a; b\n \n c ;\" d,;\"\n",
                                        "a\t b \nc\t \" d,;\" ", "\"a\"\t\"b\"\n c\t\" d,;\""};
    oct_tmp tmp;
    oct_csv csv;
    oct_tmp_create(&tmp);
    for (size_t i = 0; i < OCT_COUNT(texts); i++) {
        const char *path = oct_tmp_write(&tmp, "a.csv", texts[i], strlen(texts[i]));
        cr_assert(oct_csv_read(&csv, path) == OCT_OK, "%s", oct_error_message(0));
        cr_assert(csv.rows == 2 && csv.columns == 2, "text %zu", i);
        for (int k = 0; k < 4; k++)
            cr_assert_str_eq(oct_csv_field(&csv, k / 2, k % 2),
                             ((const char *const[]){"a", "b", "c", " d,;"})[k], "text %zu", i);
        oct_csv_free(&csv);
    }
    oct_tmp_remove(&tmp);
}

Test(csv, what_is_no_table_is_refused)
{
    static const struct {
        const char *text, *words;
        size_t bytes;
    } cases[] = {
        {"", "holds no rows", 0},
        {"\n\r\n", "holds no rows", 3},
        {"a,b\nc\n", ":2: has 1 fields, but the first row has 2", 6},
        {"a,\"b\n", ":1: a field begins with a quote that nothing ends", 5},
        {"a,\"b\"c\n", ":1: a field has text after its closing quote", 7},
        {"a\0b,1\n", "is no text: it holds a byte of 0", 6},
    };
    oct_tmp tmp;
    oct_csv csv;
    oct_tmp_create(&tmp);
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        const char *path = oct_tmp_write(&tmp, "a.csv", cases[i].text, cases[i].bytes);
        cr_assert(oct_csv_read(&csv, path) == OCT_DATA);
        cr_assert(strstr(oct_error_message(0), cases[i].words), "%s", oct_error_message(0));
        cr_assert(oct_mem_live() == 0);
    }
    oct_tmp_remove(&tmp);
}

static void make_tables(oct_tmp *tmp, const char *train, const char *test)
{
    put_picture(tmp, "p/1.png", 1);
    put_picture(tmp, "p/2.png", 2);
    put_picture(tmp, "3.png", 3);
    write_text(tmp, "train.csv", train);
    write_text(tmp, "test.csv", test);
}

Test(csv, samples_are_in_the_order_of_the_rows)
{
    oct_tmp tmp;
    oct_dataset data;
    oct_tmp_create(&tmp);
    make_tables(&tmp, "Path,Label\np/2.png,1\n3.png,0\np/1.png,1\n", "p/1.png,2\n");
    cr_assert(open_set(&data, &oct_dataset_csv, tmp.path, OCT_TRAIN) == OCT_OK, "%s",
              oct_error_message(0));
    cr_assert(data.count == 3 && data.classes == 3 && !data.class_names);
    cr_assert(value_of(&data, 0) == 2 && value_of(&data, 1) == 3 && value_of(&data, 2) == 1);
    cr_assert(data.labels[0] == 1 && data.labels[1] == 0 && data.labels[2] == 1);
    oct_dataset_close(&data);
    make_tables(&tmp, "p/2.png,red\n3.png,blue\np/1.png,red\n", "p/1.png,blue\n3.png,red\n");
    cr_assert(open_set(&data, &oct_dataset_csv, tmp.path, OCT_TEST) == OCT_OK, "%s",
              oct_error_message(0));
    cr_assert(data.count == 2 && data.classes == 2 && data.labels[0] == 0 && data.labels[1] == 1);
    cr_assert_str_eq(data.class_names[1], "red");
    oct_dataset_close(&data);
    oct_tmp_remove(&tmp);
    cr_assert(oct_mem_live() == 0);
}

/* Tables that say the same: classes 1, 0, 1 of three pictures, with or without a row of names. */
Test(csv, labels_and_names_of_columns_are_read_as_people_write_them)
{
    static const char *const texts[] = {
        "p/1.png,1\np/2.png,0\n3.png,1\n",
        "p/1.png, 1\np/2.png,0.0 \n3.png,\"1.\"\n",
        "Image_ID,Diagnosis\np/1.png,1\np/2.png,0\n3.png,1\n",
        "picture of it;Target\np/1.png;1\np/2.png;0\n3.png;+1\n",
        "FileName\tclass\np/1.png\tb\np/2.png\ta\n3.png\tb\n",
        "p/1.png,b\np/2.png,a \n3.png,\"b\"\n",
        "p/1.png,7\np/2.png,07.5\n3.png,7\n",
    };
    oct_tmp tmp;
    oct_dataset data;
    oct_tmp_create(&tmp);
    for (size_t i = 0; i < OCT_COUNT(texts); i++) {
        make_tables(&tmp, texts[i], texts[i]);
        cr_assert(open_set(&data, &oct_dataset_csv, tmp.path, OCT_TRAIN) == OCT_OK, "%zu: %s", i,
                  oct_error_message(0));
        cr_assert(data.count == 3 && data.classes == 2, "text %zu", i);
        cr_assert(data.labels[0] == 1 && data.labels[1] == 0 && data.labels[2] == 1, "text %zu", i);
        oct_dataset_close(&data);
    }
    make_tables(&tmp, "p,1\np/1.png,1\np/2.png,0\n",
                "3.png,1\n"); /* no heading: its class is known */
    cr_assert(open_set(&data, &oct_dataset_csv, tmp.path, OCT_TRAIN) == OCT_DATA);
    oct_tmp_remove(&tmp);
    cr_assert(oct_mem_live() == 0);
}

Test(csv, several_numbers_are_values)
{
    oct_tmp tmp;
    oct_dataset data;
    oct_tmp_create(&tmp);
    make_tables(&tmp, "path,a,b\np/1.png,0.5,-1e3\n3.png,1,0\n", "p/1.png,1,2\n");
    const oct_dataset_source source = {
        .format = &oct_dataset_csv, .folder = tmp.path, .channels = 1, .goal = OCT_GOAL_VALUES};
    cr_assert(oct_dataset_open(&data, &source, OCT_TRAIN) == OCT_OK, "%s", oct_error_message(0));
    cr_assert(data.count == 2 && data.classes == 2);
    cr_assert(data.values[0] == 0.5F && data.values[1] == -1000.0F && data.values[2] == 1.0F);
    oct_dataset_close(&data);
    oct_tmp_remove(&tmp);
}

Test(csv, what_is_wrong_is_said)
{
    static const struct {
        const char *train, *test, *words;
    } cases[] = {
        {"p/1.png\n", "3.png\n", "train.csv: has one column; each row is path,label"},
        {"p/1.png,1,2\n", "3.png,1,2\n",
         "train.csv: has 3 columns, but each row is path,label; data.goal=values takes several "
         "numbers"},
        {"../x.png,0\n3.png,1\n", "3.png,1\n",
         "train.csv:1: '../x.png' is no path below the table's folder"},
        {"p/../3.png,0\n3.png,1\n", "3.png,1\n", "train.csv:1: 'p/../3.png' is no path below"},
        {"p/..,0\n3.png,1\n", "3.png,1\n", "train.csv:1: 'p/..' is no path below"},
        {"/etc/passwd,0\n3.png,1\n", "3.png,1\n", "train.csv:1: '/etc/passwd' is no path below"},
        {",0\n3.png,1\n", "3.png,1\n", "train.csv:1: '' is no path below"},
        {"3.png,1\nnone.png,0\n", "3.png,1\n", "train.csv:2: "},
        {"3.png,a\np/1.png,b\n", "3.png,c\n", ": holds"},
        {"path,label\n", "3.png,1\n", "train.csv: holds no rows but its names"},
        {"3.png,a\np/1.png,\n", "3.png,a\n", "train.csv:2: the label is empty"},
        {"p,0\n3.png,1\n", "3.png,1\n", "p: is a folder, not a file"},
        {"out/1.png,0\n3.png,1\n", "3.png,1\n",
         "out: is a link that leads out of the data set's folder"},
    };
    oct_tmp tmp;
    oct_tmp_create(&tmp);
    cr_assert(symlink("/etc", oct_tmp_path(&tmp, "out")) == 0);
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        if (strcmp(cases[i].words, ": holds") == 0) continue;
        make_tables(&tmp, cases[i].train, cases[i].test);
        check_refused(&oct_dataset_csv, tmp.path, OCT_TRAIN, cases[i].words);
    }
    make_tables(&tmp, "3.png,a\np/1.png,b\n", "3.png,c\n");
    check_refused(&oct_dataset_csv, tmp.path, OCT_TEST,
                  "test.csv:1: the class c is not in the training samples");
    oct_tmp_remove(&tmp);
}

Test(csv, maps_are_numbers_of_png_files_as_they_are)
{
    oct_tmp tmp;
    oct_dataset data;
    oct_image image = {0}, map = {0};
    oct_tmp_create(&tmp);
    oct_tmp_write(&tmp, "x.png", png_rgb, sizeof png_rgb);
    oct_tmp_write(&tmp, "m.png", png_palette, sizeof png_palette);
    write_text(&tmp, "train.csv", "x.png,m.png\n");
    write_text(&tmp, "test.csv", "x.png,x.png\n");
    oct_dataset_source source = {.format = &oct_dataset_csv,
                                 .folder = tmp.path,
                                 .channels = 3,
                                 .classes = 13,
                                 .goal = OCT_GOAL_MAP};
    cr_assert(oct_dataset_open(&data, &source, OCT_TRAIN) == OCT_OK, "%s", oct_error_message(0));
    cr_assert(data.format->read(&data, 0, &image, &map) == OCT_OK, "%s", oct_error_message(0));
    cr_assert(map.dtype == OCT_S32 && map.h == image.h && map.w == image.w);
    int32_t largest = 0;
    for (int64_t i = 0; i < oct_image_numel(&map); i++)
        if (((const int32_t *)map.data)[i] > largest) largest = ((const int32_t *)map.data)[i];
    cr_assert(largest == 12); /* quantize(13) */
    oct_dataset_close(&data);
    source.classes = 12;
    cr_assert(oct_dataset_open(&data, &source, OCT_TRAIN) == OCT_OK);
    cr_assert(data.format->read(&data, 0, &image, &map) == OCT_DATA);
    cr_assert(strstr(oct_error_message(0), "has class 12, but there are 12; raise data.classes"));
    oct_dataset_close(&data);
    cr_assert(oct_dataset_open(&data, &source, OCT_TEST) == OCT_OK);
    cr_assert(data.format->read(&data, 0, &image, &map) == OCT_DATA);
    cr_assert(
        strstr(oct_error_message(0), "x.png: is a damaged PNG file: a map of classes is grey"));
    oct_dataset_close(&data);
    oct_image_free(&image);
    oct_image_free(&map);
    oct_tmp_remove(&tmp);
}
