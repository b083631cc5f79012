/* Transforms: against Pillow's results, by their properties, and as the recipe names them. */
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "io/augment/augment.h"
#include "io/augment/geometry.h"
#include "io/augment/pixel.h"
#include "tests/golden/augment_golden.h"
#include "tests/support/check_tensor.h"

#include <stdio.h>

static oct_image image_of(oct_dtype dtype, int64_t h, int64_t w, int64_t c, const void *values)
{
    oct_image image = {0};
    cr_assert(oct_image_resize(&image, dtype, h, w, c) == OCT_OK);
    memcpy(image.data, values, (size_t)oct_image_numel(&image) * oct_dtype_bytes(dtype));
    return image;
}

/* An image of noise; floats from -1 to 1. */
static oct_image noise_image(oct_dtype dtype, int64_t h, int64_t w, int64_t c)
{
    oct_image image = {0};
    cr_assert(oct_image_resize(&image, dtype, h, w, c) == OCT_OK);
    for (int64_t i = 0; i < oct_image_numel(&image); i++) {
        uint32_t words[4];
        oct_philox(3, OCT_STREAM_TEST, (uint64_t)i, 0, words);
        if (dtype == OCT_F32)
            ((float *)image.data)[i] = 2 * oct_uniform(words[0]) - 1;
        else
            ((uint8_t *)image.data)[i] = (uint8_t)words[0];
    }
    return image;
}

static void check_image(const oct_image *got, int64_t h, int64_t w, const void *want,
                        const char *what)
{
    cr_assert(got->h == h && got->w == w, "%s: %lldx%lld", what, (long long)got->h,
              (long long)got->w);
    oct_check_bytes(got->data, want, oct_image_numel(got) * (int64_t)oct_dtype_bytes(got->dtype),
                    what);
}

#define COLOUR image_of(OCT_U8, colour_h, colour_w, 3, colour)

#define CHECK_RESIZE(dtype, from, channels, to)                                                    \
    do {                                                                                           \
        oct_image image = image_of(dtype, from##_h, from##_w, channels, from), spare = {0};        \
        cr_assert(oct_geometry_resize(&image, NULL, &spare, to##_h, to##_w) == OCT_OK);            \
        check_image(&image, to##_h, to##_w, to, #to);                                              \
        oct_image_free(&image);                                                                    \
        oct_image_free(&spare);                                                                    \
    } while (0)

Test(augment, resizing_gives_the_bytes_of_pillow)
{
    CHECK_RESIZE(OCT_U8, colour, 3, colour_5x4);
    CHECK_RESIZE(OCT_U8, colour, 3, colour_13x3);
    CHECK_RESIZE(OCT_U8, colour, 3, colour_6x11);
    CHECK_RESIZE(OCT_U8, colour, 3, colour_20x17);
    CHECK_RESIZE(OCT_U8, colour, 3, colour_1x1);
    CHECK_RESIZE(OCT_U8, colour, 3, colour_14x10);
    CHECK_RESIZE(OCT_U8, grey, 1, grey_4x4);
    CHECK_RESIZE(OCT_U8, grey, 1, grey_9x30);
    CHECK_RESIZE(OCT_U8, grey, 1, grey_3x14);
    CHECK_RESIZE(OCT_F32, real, 1, real_5x9);
}

#define CHECK_PIXELS(from, kind, amount, want)                                                     \
    do {                                                                                           \
        oct_image image = image_of(OCT_U8, colour_h, colour_w, 3, from), spare = {0};              \
        cr_assert(oct_pixel_change(&image, kind, amount, &spare) == OCT_OK);                       \
        check_image(&image, colour_h, colour_w, want, #want);                                      \
        oct_image_free(&image);                                                                    \
        oct_image_free(&spare);                                                                    \
    } while (0)

Test(augment, changes_of_values_give_the_bytes_of_pillow)
{
    CHECK_PIXELS(colour, OCT_PIXEL_BRIGHTNESS, 1.37, brightness);
    CHECK_PIXELS(colour, OCT_PIXEL_BRIGHTNESS, 0.41, brightness_down);
    CHECK_PIXELS(colour, OCT_PIXEL_CONTRAST, 1.61, contrast);
    CHECK_PIXELS(colour, OCT_PIXEL_CONTRAST, 0.3, contrast_down);
    CHECK_PIXELS(colour, OCT_PIXEL_SATURATION, 1.7, saturation);
    CHECK_PIXELS(colour, OCT_PIXEL_SATURATION, 0.23, saturation_down);
    CHECK_PIXELS(colour, OCT_PIXEL_SHARPNESS, 1.9, sharpness);
    CHECK_PIXELS(colour, OCT_PIXEL_SHARPNESS, 0.1, sharpness_down);
    CHECK_PIXELS(colour, OCT_PIXEL_POSTERIZE, 3, posterize);
    CHECK_PIXELS(colour, OCT_PIXEL_SOLARIZE, 97, solarize);
    CHECK_PIXELS(dark, OCT_PIXEL_AUTOCONTRAST, 0, autocontrast);
    CHECK_PIXELS(dark, OCT_PIXEL_EQUALIZE, 0, equalize);
    CHECK_PIXELS(colour, OCT_PIXEL_HUE, 0.1, hue_0);
    CHECK_PIXELS(colour, OCT_PIXEL_HUE, -0.37, hue_1);
    CHECK_PIXELS(colour, OCT_PIXEL_HUE, 0.5, hue_2);
}

/* Pillow cuts off where this rounds. At the rim, where its sum of steps may fall on the other side of the
 * image's edge, one pixel may be outside in one of them. */
static void check_near(const oct_image *got, const uint8_t *want, const char *what)
{
    int away = 0;
    for (int64_t i = 0; i < oct_image_numel(got); i++) {
        const int difference = ((const uint8_t *)got->data)[i] - want[i];
        away += difference < 0 || difference > 1;
    }
    cr_assert(away == 0, "%s: %d values differ", what, away);
}

Test(augment, affine_maps_are_those_of_pillow)
{
    const oct_reals grey_mean = {1, {128.0 / 255}};
    oct_image image = COLOUR, spare = {0};
    const oct_affine turn = oct_affine_rotate(&image, 28.5);
    cr_assert(oct_geometry_affine(&image, NULL, &spare, &turn, &grey_mean) == OCT_OK);
    check_near(&image, turned, "turned");
    memcpy(image.data, colour, sizeof colour);
    const oct_affine shear = {{1, 0.21, 0, 0, 1, 0}};
    cr_assert(oct_geometry_affine(&image, NULL, &spare, &shear, &grey_mean) == OCT_OK);
    check_near(&image, sheared, "sheared");
    oct_image_free(&image);
    oct_image_free(&spare);
}

Test(augment, own_functions_are_those_of_the_c_library_up_to_rounding)
{
    for (int i = 1; i < 20000; i++) {
        const double x = (i - 10000) * 0.0137, y = i * 0.37e-3;
        double sine, cosine;
        oct_real_sin_cos(x, &sine, &cosine);
        cr_assert(fabs(sine - sin(x)) < 4e-16 && fabs(cosine - cos(x)) < 4e-16, "sin, cos %a", x);
        cr_assert(fabs(oct_real_exp(x) / exp(x) - 1) < 1e-15, "exp %a", x);
        cr_assert(fabs(oct_real_log(y) - log(y)) < 2e-15 * fmax(1, fabs(log(y))), "log %a", y);
    }
    cr_assert(oct_real_exp(-1e9) == 0 && isinf(oct_real_exp(1e9)));
    cr_assert(fabs(oct_real_log(0x1p-1074) - log(0x1p-1074)) < 1e-12);
}

/* Moments of beta(a, a): variance 1 / (8 a + 4), fourth central moment 3 / (16 (2 a + 1) (2 a + 3)). */
Test(augment, beta_draws_have_the_moments_of_the_distribution)
{
    enum { DRAWS = 200000 };
    static const double alphas[] = {0.05, 0.2, 0.8, 1, 3.5};
    for (size_t k = 0; k < OCT_COUNT(alphas); k++) {
        const double a = alphas[k], variance = 1 / (8 * a + 4);
        const double fourth = 3 / (16 * (2 * a + 1) * (2 * a + 3));
        double first = 0, second = 0, power4 = 0;
        for (int i = 0; i < DRAWS; i++) {
            oct_dice dice = oct_dice_of(&(oct_draw){5, (uint64_t)i}, OCT_DICE_MIX);
            const double x = oct_dice_beta(&dice, a), away = x - 0.5;
            cr_assert(x >= 0 && x <= 1);
            first += x;
            second += away * away;
            power4 += away * away * away * away;
        }
        cr_assert(fabs(first / DRAWS - 0.5) < 5 * sqrt(variance / DRAWS), "alpha %g", a);
        cr_assert(fabs(second / DRAWS - variance) < 0.01 * variance + 1e-4, "alpha %g", a);
        cr_assert(fabs(power4 / DRAWS - fourth) < 0.015 * fourth + 1e-4, "alpha %g: %g, not %g", a,
                  power4 / DRAWS, fourth);
    }
}

Test(augment, places_of_a_list_share_no_words)
{
    const oct_draw draw = {11, 4};
    for (int a = 0; a < OCT_DICE_PLACES; a++) {
        oct_dice first = oct_dice_of(&draw, a), again = oct_dice_of(&draw, a);
        oct_dice next = oct_dice_of(&draw, a + 1);
        cr_assert(oct_dice_word(&first) == oct_dice_word(&again));
        cr_assert(first.sub != 0 && next.sub - first.sub == (1u << 26) - 1);
    }
}

static void add_items(oct_augment *a, const char *text)
{
    char flaw[OCT_AUGMENT_FLAW];
    oct_augment_add(a, text, true, flaw);
    cr_assert(!flaw[0], "%s: %s", text, flaw);
}

static oct_augment list_of(const char *text)
{
    oct_augment a = {.mean = {1, {0.5}}};
    add_items(&a, text);
    return a;
}

static void run_augment(const oct_augment *a, uint64_t index, oct_image *image, oct_image *map)
{
    cr_assert(oct_augment_run(a, &(oct_draw){1, index}, image, map) == OCT_OK);
}

static bool takes(const oct_augment *a, oct_dtype type)
{
    return type == OCT_U8 || !a->item[0].transform->bytes;
}

Test(augment, parameters_that_say_nothing_change_nothing)
{
    static const char *const items[] = {
        "resize 9x6",
        "resize 6",
        "center_crop 9x6",
        "random_crop 9x6",
        "flip p=0",
        "vertical_flip 0",
        "rotate 0",
        "color_jitter",
        "erase p=0",
        "noise 0",
        "gain 1..1",
        "shift",
        "random_resized_crop 9x6 scale=1..1 ratio=0.67..0.67",
    };
    static const oct_dtype types[] = {OCT_U8, OCT_S8, OCT_F32};
    for (size_t i = 0; i < OCT_COUNT(items); i++)
        for (size_t k = 0; k < OCT_COUNT(types); k++) {
            const oct_augment a = list_of(items[i]);
            if (!takes(&a, types[k])) continue;
            oct_image image = noise_image(types[k], 9, 6, 3);
            oct_image before = noise_image(types[k], 9, 6, 3);
            run_augment(&a, i, &image, NULL);
            check_image(&image, 9, 6, before.data, items[i]);
            oct_image_free(&image);
            oct_image_free(&before);
        }
}

static const char *const every_item[] = {
    "resize 7",
    "resize 5x8",
    "center_crop 6",
    "center_crop 40",
    "center_crop 6x5 share=0.7",
    "random_crop 6x5 padding=3",
    "random_crop 40",
    "random_resized_crop 6",
    "flip",
    "vertical_flip",
    "rotate 45",
    "rand_augment 3 30",
    "color_jitter 0.4 0.4",
    "erase 1",
    "cutout 5 count=3",
    "noise 0.1",
    "gain 0.5..2",
    "shift h=0.5 w=1",
};

/* Every transform in the table, on every size, type and number of channels that it takes: the result has the
 * size that fit promises, and is the same when the draw is the same, whatever was in memory. */
Test(augment, every_transform_is_a_function_of_sample_and_draw)
{
    static const oct_dtype types[] = {OCT_U8, OCT_S8, OCT_F32};
    static const int64_t sizes[][3] = {{1, 1, 1}, {1, 9, 3}, {8, 1, 7}, {9, 6, 3}, {13, 14, 1}};
    for (size_t i = 0; i < OCT_COUNT(every_item); i++)
        for (size_t k = 0; k < OCT_COUNT(types) * OCT_COUNT(sizes); k++) {
            const int64_t *size = sizes[k / OCT_COUNT(types)];
            const oct_dtype type = types[k % OCT_COUNT(types)];
            const oct_augment a = list_of(every_item[i]);
            if (!takes(&a, type)) continue;
            for (uint64_t draw = 0; draw < 20; draw++) {
                oct_image image = noise_image(type, size[0], size[1], size[2]);
                oct_image again = noise_image(type, size[0], size[1], size[2]);
                oct_image shape = image;
                cr_assert(oct_augment_fit(&a, "data.train", &shape) == OCT_OK);
                run_augment(&a, draw, &image, NULL);
                run_augment(&a, draw, &again, NULL);
                cr_assert(image.c == size[2] && image.dtype == type);
                check_image(&image, shape.h, shape.w, again.data, every_item[i]);
                oct_image_free(&image);
                oct_image_free(&again);
            }
        }
}

Test(augment, every_transform_of_the_table_is_tried)
{
    for (size_t t = 0; t < oct_registry_count(&oct_transform_table); t++) {
        const char *name = oct_registry_name(&oct_transform_table, t);
        bool tried = false;
        for (size_t i = 0; i < OCT_COUNT(every_item); i++)
            tried |= list_of(every_item[i]).item[0].transform ==
                     oct_registry_at(&oct_transform_table, t);
        cr_assert(tried, "add %s to every_item", name);
    }
}

/* The pixels of map and image encode their own position; the map follows the image. */
Test(augment, maps_move_with_their_images)
{
    static const char *const items[] = {"center_crop 6x5", "random_crop 6 padding=3", "flip 1",
                                        "vertical_flip 1", "shift h=0.4 w=0.4"};
    enum { MAP_H = 8, MAP_W = 7 };
    for (size_t i = 0; i < OCT_COUNT(items); i++)
        for (uint64_t draw = 0; draw < 30; draw++) {
            oct_augment a = list_of(items[i]);
            a.mean.value[0] = 1; /* 255 */
            oct_image image = noise_image(OCT_U8, MAP_H, MAP_W, 1), map = {0};
            cr_assert(oct_image_resize(&map, OCT_S32, MAP_H, MAP_W, 1) == OCT_OK);
            for (int p = 0; p < MAP_H * MAP_W; p++)
                ((uint8_t *)image.data)[p] = (uint8_t)(((int32_t *)map.data)[p] = p);
            run_augment(&a, draw, &image, &map);
            cr_assert(map.h == image.h && map.w == image.w);
            for (int64_t p = 0; p < image.h * image.w; p++) {
                const int32_t class = ((int32_t *)map.data)[p];
                const int want = class == OCT_MAP_OUTSIDE ? 255 : class;
                cr_assert(((uint8_t *)image.data)[p] == want, "%s", items[i]);
            }
            oct_image_free(&image);
            oct_image_free(&map);
        }
}

/* Resized and turned maps take whole classes; what the image does not reach is ignored. */
Test(augment, maps_are_never_mixed)
{
    static const char *const items[] = {"resize 17x3", "rotate 90", "random_resized_crop 9",
                                        "rand_augment 5 30"};
    for (size_t i = 0; i < OCT_COUNT(items); i++)
        for (uint64_t draw = 0; draw < 20; draw++) {
            const oct_augment a = list_of(items[i]);
            oct_image image = noise_image(OCT_U8, 12, 10, 3), map = {0};
            cr_assert(oct_image_resize(&map, OCT_S32, 12, 10, 1) == OCT_OK);
            for (int p = 0; p < 120; p++)
                ((int32_t *)map.data)[p] = p % 2 ? 1000 : 7;
            run_augment(&a, draw, &image, &map);
            cr_assert(map.h == image.h && map.w == image.w);
            for (int64_t p = 0; p < map.h * map.w; p++) {
                const int32_t class = ((int32_t *)map.data)[p];
                cr_assert(class == 7 || class == 1000 || class == OCT_MAP_OUTSIDE);
            }
            oct_image_free(&image);
            oct_image_free(&map);
        }
}

Test(augment, a_quarter_turn_moves_every_pixel_whole)
{
    oct_image image = COLOUR, spare = {0};
    const oct_box square = {0, 0, 11, 11};
    const oct_reals mean = {1, {0}};
    cr_assert(oct_geometry_crop(&image, NULL, &spare, &square, &mean) == OCT_OK);
    const oct_affine turn = oct_affine_rotate(&image, 90);
    cr_assert(oct_geometry_affine(&image, NULL, &spare, &turn, &mean) == OCT_OK);
    for (int y = 0; y < 11; y++)
        for (int x = 0; x < 11 * 3; x++)
            cr_assert(((uint8_t *)image.data)[y * 33 + x] ==
                      colour[(x / 3) * 33 + (10 - y) * 3 + x % 3]);
    oct_image_free(&image);
    oct_image_free(&spare);
}

/* Sizes and shapes of drawn boxes are those that were asked for, and all of the image is reached. */
Test(augment, drawn_boxes_are_inside_and_of_the_size_asked_for)
{
    const oct_image image = {.h = 120, .w = 160, .c = 3};
    const oct_param_value scale = {0.1, 0.5}, ratio = {0.5, 2};
    double share = 0, log_shape = 0;
    bool corner[4] = {false};
    enum { DRAWS = 4000 };
    for (uint64_t i = 0; i < DRAWS; i++) {
        oct_box box;
        oct_dice dice = oct_dice_of(&(oct_draw){2, i}, 0);
        cr_assert(oct_box_draw(&dice, &image, &scale, &ratio, &box));
        cr_assert(box.top >= 0 && box.left >= 0 && box.top + box.h <= 120 &&
                  box.left + box.w <= 160);
        const double area = (double)(box.h * box.w) / (120 * 160);
        const double shape = (double)box.w / (double)box.h;
        cr_assert(area > 0.095 && area < 0.505 && shape > 0.48 && shape < 2.1);
        share += area / DRAWS;
        log_shape += log(shape) / DRAWS;
        corner[0] |= box.top == 0;
        corner[1] |= box.left == 0;
        corner[2] |= box.top + box.h == 120;
        corner[3] |= box.left + box.w == 160;
    }
    cr_assert(fabs(share - 0.3) < 0.01, "%g", share);
    cr_assert(fabs(log_shape) < 0.03, "%g", log_shape);
    cr_assert(corner[0] && corner[1] && corner[2] && corner[3]);
}

Test(augment, centres_are_those_of_torchvision)
{
    /* int(round((side - size) / 2)) where it crops, (size - side) // 2 before where it pads */
    static const int64_t cases[][3] = {{9, 4, 2},  {11, 4, 4}, {8, 4, 2}, {4, 4, 0},
                                       {4, 9, -2}, {4, 8, -2}, {7, 4, 2}, {5, 4, 0}};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        const int64_t side = cases[i][0], size = cases[i][1], begin = cases[i][2];
        const int64_t inside = begin < 0 ? -begin : 0; /* where the image begins in the crop */
        char text[32];
        uint8_t pixels[11 * 11];
        for (int k = 0; k < 11 * 11; k++)
            pixels[k] = (uint8_t)(k + 1);
        snprintf(text, sizeof text, "center_crop %d", (int)size);
        const oct_augment a = list_of(text);
        oct_image image = image_of(OCT_U8, side, side, 1, pixels);
        run_augment(&a, 0, &image, NULL);
        cr_assert(image.h == size && image.w == size, "case %zu", i);
        const uint8_t *cropped = image.data;
        for (int64_t k = 0; k < inside * size + inside; k++)
            cr_assert_eq(cropped[k], 128, "case %zu, pixel %d", i, (int)k);
        cr_assert_eq(cropped[inside * size + inside],
                     pixels[(inside + begin) * side + inside + begin], "case %zu", i);
        oct_image_free(&image);
    }
}

Test(augment, a_flip_happens_in_half_of_the_samples)
{
    const oct_augment a = list_of("flip");
    int flipped = 0;
    for (uint64_t draw = 0; draw < 1000; draw++) {
        oct_image image = image_of(OCT_U8, 1, 2, 1, (const uint8_t[]){1, 2});
        run_augment(&a, draw, &image, NULL);
        flipped += ((uint8_t *)image.data)[0] == 2;
        oct_image_free(&image);
    }
    cr_assert(flipped > 450 && flipped < 550, "%d", flipped);
}

/* What is painted is what the model sees as 0: the mean of each channel. */
Test(augment, outside_of_the_image_is_the_mean)
{
    oct_augment a = {.mean = {3, {0.2, 0.5, 1}}};
    oct_image image = noise_image(OCT_U8, 1, 1, 3), floats = noise_image(OCT_F32, 1, 1, 3);
    oct_image codes = noise_image(OCT_S8, 1, 1, 3);
    add_items(&a, "cutout 9");
    run_augment(&a, 0, &image, NULL);
    run_augment(&a, 0, &floats, NULL);
    run_augment(&a, 0, &codes, NULL);
    oct_check_bytes(image.data, (const uint8_t[]){51, 128, 255}, 3, "bytes");
    oct_check_bits_f32(floats.data, (const float[]){0.2f, 0.5f, 1}, 3, "floats");
    oct_check_bytes(codes.data, (const int8_t[]){26, 64, 127}, 3, "signed bytes");
    oct_image_free(&image);
    oct_image_free(&floats);
    oct_image_free(&codes);
}

Test(augment, noise_has_its_mean_and_deviation)
{
    enum { VALUES = 100000 };
    const oct_augment a = list_of("noise 0.25");
    oct_image image = {0};
    double sum = 0, squares = 0;
    cr_assert(oct_image_resize(&image, OCT_F32, 1, VALUES, 1) == OCT_OK);
    memset(image.data, 0, VALUES * sizeof(float));
    run_augment(&a, 0, &image, NULL);
    for (int i = 0; i < VALUES; i++) {
        const double value = (double)((float *)image.data)[i];
        sum += value / VALUES;
        squares += value * value / VALUES;
    }
    cr_assert(fabs(sum) < 0.004 && fabs(sqrt(squares) - 0.25) < 0.003, "%g %g", sum, squares);
    oct_image_free(&image);
}

Test(augment, a_final_size_makes_all_samples_equal)
{
    oct_augment a = {.mean = {1, {0.5}}, .h = 5, .w = 4};
    add_items(&a, "resize 9");
    oct_image image = noise_image(OCT_U8, 20, 30, 3), shape = {.dtype = OCT_U8, .c = 3};
    cr_assert(oct_augment_fit(&a, "data.test", &shape) == OCT_OK && shape.h == 5 && shape.w == 4);
    run_augment(&a, 0, &image, NULL);
    cr_assert(image.h == 5 && image.w == 4);
    a.h = a.w = 0;
    shape = (oct_image){.dtype = OCT_U8, .c = 3};
    cr_assert(oct_augment_fit(&a, "data.test", &shape) == OCT_USAGE);
    cr_assert(strstr(oct_error_message(0), "data.test: the samples differ in size"));
    oct_image_free(&image);
}

static const struct {
    const char *item, *flaw;
    bool evaluation;
} mistakes[] = {
    {"flp", "there is no transform 'flp'; did you mean 'flip'? allowed: resize, center_crop",
     false},
    {"flip(0.5)", "'flip(0.5)': values come after a space, without brackets", false},
    {"", "there is no transform ''", false},
    {"flip 0.5 0.5", "'0.5' is one value too many; flip has p", false},
    {"flip p=2", "p of flip is '2'; write a number from 0 to 1", false},
    {"flip p=nan", "p of flip is 'nan'", false},
    {"flip p=0.1 p=0.2", "p of flip is given twice", false},
    {"flip q=1", "flip has no 'q'; it has p", false},
    {"erase scal=0.1..0.2", "erase has no 'scal'; did you mean 'scale'?", false},
    {"erase scale=0.5..0.2", "scale of erase is '0.5..0.2'; write a range FROM..TO", false},
    {"erase scale=0.5", "write a range FROM..TO within 0.0001 to 1", false},
    {"erase scale=0.1..0.2 1", "'1' has no name, but comes after one that has", false},
    {"rotate", "rotate needs degrees; write degrees=VALUE, a number from 0 to 180", false},
    {"resize", "resize has no size; write one, such as resize 224, or data.size", false},
    {"resize 0", "size of resize is '0'; write a size such as 224", false},
    {"resize 70000", "size of resize is '70000'", false},
    {"resize 12x", "size of resize is '12x'", false},
    {"resize -3", "size of resize is '-3'", false},
    {"resize 3.5", "size of resize is '3.5'", false},
    {"resize 111111111111111111111x2", "size of resize is '1111", false},
    {"rand_augment 2.5", "ops of rand_augment is '2.5'; write a whole number from 1 to 14", false},
    {"flip", "flip is random, and evaluation must see the same every time", true},
    {"resiz 3", "did you mean 'resize'? allowed: resize, center_crop", true},
};

Test(augment, mistakes_of_an_item_are_said_with_a_remedy)
{
    for (size_t i = 0; i < OCT_COUNT(mistakes); i++) {
        oct_augment a = {0};
        char flaw[OCT_AUGMENT_FLAW];
        oct_augment_add(&a, mistakes[i].item, !mistakes[i].evaluation, flaw);
        cr_assert(strstr(flaw, mistakes[i].flaw), "%s: %s", mistakes[i].item, flaw);
        cr_assert(a.count == 0);
    }
}

Test(augment, lists_and_items_have_a_length)
{
    oct_augment a = {0};
    char flaw[OCT_AUGMENT_FLAW], item[400];
    for (int i = 0; i < OCT_AUGMENT_MAX; i++)
        add_items(&a, "flip");
    oct_augment_add(&a, "flip", true, flaw);
    cr_assert(strstr(flaw, "more than 32 transforms"));
    memset(item, 'a', sizeof item - 1);
    item[sizeof item - 1] = '\0';
    oct_augment_add(&a, item, true, flaw);
    cr_assert(strstr(flaw, "399 characters"), "%s", flaw);
}

/* What depends on the samples is known when these are. */
Test(augment, samples_that_a_transform_cannot_take_are_refused)
{
    static const struct {
        const char *item, *sentence;
        oct_image shape;
    } cases[] = {
        {"color_jitter 0.1",
         "item 1, color_jitter: it works on bytes, but the samples are f32",
         {.dtype = OCT_F32, .h = 4, .w = 4, .c = 3}},
        {"color_jitter hue=0.1",
         "saturation and hue need samples of 3 channels, but these have 1",
         {.dtype = OCT_U8, .h = 4, .w = 4, .c = 1}},
        {"resize 300",
         "samples of 1x5000 would become 300x1500000",
         {.dtype = OCT_U8, .h = 1, .w = 5000, .c = 1}},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        const oct_augment a = list_of(cases[i].item);
        oct_image shape = cases[i].shape;
        cr_assert(oct_augment_fit(&a, "data.train", &shape) == OCT_USAGE);
        cr_assert(strstr(oct_error_message(0), cases[i].sentence), "%s", oct_error_message(0));
    }
}

/* A picture one pixel high may be in a folder of others: its size is known only when it is read. */
Test(augment, an_image_that_would_become_huge_is_refused)
{
    const oct_augment a = list_of("resize 256");
    oct_image image = noise_image(OCT_U8, 1, 60000, 1);
    cr_assert(oct_augment_run(&a, &(oct_draw){1, 0}, &image, NULL) == OCT_DATA);
    cr_assert(strstr(oct_error_message(0), "1x60000 would become 256x15360000"), "%s",
              oct_error_message(0));
    oct_image_free(&image);
}

Test(augment, help_names_every_transform)
{
    oct_text text = {0};
    cr_assert(oct_augment_help(&text) == OCT_OK);
    for (size_t t = 0; t < oct_registry_count(&oct_transform_table); t++)
        cr_assert(strstr(text.data, oct_registry_name(&oct_transform_table, t)));
    cr_assert(strstr(text.data, "* center_crop size=data.size share=0\n"));
    cr_assert(strstr(text.data, "  random_resized_crop size=data.size scale=0.08..1 ratio="));
    oct_text_free(&text);
}
