#include "io/augment/pixel.h"

#include <math.h>
#include <string.h>

enum { CODES = 256 };

/* Replaces each value v from index `first` on, in steps of `stride`, by table[v]. */
static void look_up_values(oct_image *image, int64_t first, int64_t stride,
                           const uint8_t table[CODES])
{
    uint8_t *values = image->data;
    for (int64_t i = first; i < oct_image_numel(image); i += stride)
        values[i] = table[values[i]];
}

/* Blends as PIL's Blend.c does: in float, cut off towards zero. */
static inline uint8_t blend(int from, int to, float factor)
{
    const float value = (float)from + factor * (float)(to - from);
    return value <= 0 ? 0 : value >= 255 ? 255 : (uint8_t)value;
}

/* Blends all values with one grey: a factor of 0 gives the grey, 1 the image. */
static void blend_with_grey(oct_image *image, int grey, float factor)
{
    uint8_t table[CODES];
    for (int v = 0; v < CODES; v++)
        table[v] = blend(grey, v, factor);
    look_up_values(image, 0, 1, table);
}

static void change_brightness(oct_image *image, double factor)
{
    blend_with_grey(image, 0, (float)factor);
}

/* The brightness of a colour by ITU-R 601, as PIL rounds it. */
static inline int grey_of(const uint8_t *rgb)
{
    return (19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 0x8000) >> 16;
}

static void change_contrast(oct_image *image, double factor)
{
    const uint8_t *values = image->data;
    const bool colour = image->c == 3;
    const int64_t count = colour ? image->h * image->w : oct_image_numel(image);
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += colour ? grey_of(values + 3 * i) : values[i];
    blend_with_grey(image, (int)((double)sum / (double)count + 0.5), (float)factor);
}

static void change_saturation(oct_image *image, double factor)
{
    uint8_t *values = image->data;
    if (image->c != 3) return;
    for (int64_t i = 0; i < image->h * image->w; i++, values += 3) {
        const int grey = grey_of(values);
        for (int c = 0; c < 3; c++)
            values[c] = blend(grey, values[c], (float)factor);
    }
}

/* PIL's smoothing filter: the mean of the 3x3 values around, the middle one counted five times (13 in all). */
static uint8_t smooth_value(const uint8_t *value, int64_t row, int64_t channels)
{
    int sum = 4 * value[0];
    for (int64_t y = -row; y <= row; y += row)
        sum += value[y - channels] + value[y] + value[y + channels];
    return (uint8_t)((2 * sum + 13) / 26);
}

/* Blends the image with its smoothed copy; pixels at the edge have no smoothed value and stay. */
static oct_status change_sharpness(oct_image *image, oct_image *spare, float factor)
{
    const int64_t c = image->c, row = image->w * c;
    OCT_TRY(oct_image_resize(spare, image->dtype, image->h, image->w, c));
    memcpy(spare->data, image->data, (size_t)oct_image_numel(image));
    for (int64_t y = 1; y + 1 < image->h; y++)
        for (int64_t x = c; x < row - c; x++) {
            const uint8_t *value = (const uint8_t *)spare->data + y * row + x;
            ((uint8_t *)image->data)[y * row + x] =
                blend(smooth_value(value, row, c), *value, factor);
        }
    return OCT_OK;
}

typedef struct hsv {
    uint8_t hue, saturation, value;
} hsv;

/* Converts RGB to HSV by the steps of PIL: hue in sixths of the circle, then in bytes. */
static hsv hsv_of_rgb(const uint8_t *rgb)
{
    const int r = rgb[0], g = rgb[1], b = rgb[2];
    const int most = r > g ? (r > b ? r : b) : (g > b ? g : b);
    const int least = r < g ? (r < b ? r : b) : (g < b ? g : b);
    if (most == least) return (hsv){0, 0, (uint8_t)most};
    const float range = (float)(most - least), saturation = range / (float)most;
    const float red = (float)(most - r) / range, green = (float)(most - g) / range;
    const float blue = (float)(most - b) / range;
    const float sixths = r == most   ? blue - green
                         : g == most ? (float)(2.0 + (double)red - (double)blue)
                                     : (float)(4.0 + (double)green - (double)red);
    const double turned = (double)sixths / 6.0 + 1.0;
    const float hue = (float)(turned - floor(turned));
    return (hsv){(uint8_t)((double)hue * 255.0), (uint8_t)((double)saturation * 255.0),
                 (uint8_t)most};
}

static uint8_t rounded(double value)
{
    return (uint8_t)floor(value + 0.5);
}

/* Converts HSV to RGB by the steps of PIL, in float and double as there, so that the bytes are equal. */
static void write_rgb(const hsv *colour, uint8_t *rgb)
{
    const uint8_t v = colour->value;
    const double sixths = (double)((float)colour->hue * 6.0f) / 255.0;
    const double sector = floor(sixths);
    const float s = (float)((double)colour->saturation / 255.0), f = (float)(sixths - sector);
    const uint8_t p = rounded((double)v * (1.0 - (double)s));
    const uint8_t q = rounded((double)v * (1.0 - (double)(s * f)));
    const uint8_t t = rounded((double)v * (1.0 - (double)s * (1.0 - (double)f)));
    const uint8_t sectors[6][3] = {{v, t, p}, {q, v, p}, {p, v, t},
                                   {p, q, v}, {t, p, v}, {v, p, q}};
    const uint8_t *from = sectors[(int)sector % 6];
    for (int c = 0; c < 3; c++)
        rgb[c] = colour->saturation == 0 ? v : from[c];
}

/* Turns the hue by a share of the circle. Hue is a byte, as in PIL's HSV, and wraps. */
static void change_hue(oct_image *image, double turn)
{
    const int steps = (int)(turn * 255);
    uint8_t *values = image->data;
    if (image->c != 3) return;
    for (int64_t i = 0; i < image->h * image->w; i++, values += 3) {
        hsv colour = hsv_of_rgb(values);
        colour.hue = (uint8_t)(colour.hue + steps);
        write_rgb(&colour, values);
    }
}

static void posterize(oct_image *image, double bits)
{
    uint8_t table[CODES];
    for (int v = 0; v < CODES; v++)
        table[v] = (uint8_t)(v & ~((1 << (8 - (int)bits)) - 1));
    look_up_values(image, 0, 1, table);
}

static void solarize(oct_image *image, double threshold)
{
    uint8_t table[CODES];
    for (int v = 0; v < CODES; v++)
        table[v] = (uint8_t)(v < (int)threshold ? v : 255 - v);
    look_up_values(image, 0, 1, table);
}

/* Counts how often each code occurs in one channel; returns the largest that does. */
static int count_codes(const oct_image *image, int64_t channel, int64_t count[CODES])
{
    const uint8_t *values = image->data;
    int largest = CODES - 1;
    memset(count, 0, CODES * sizeof *count);
    for (int64_t i = channel; i < oct_image_numel(image); i += image->c)
        count[values[i]]++;
    while (largest > 0 && count[largest] == 0)
        largest--;
    return largest;
}

/* As PIL: stretches the codes of each channel, so that the least becomes 0 and the largest 255. */
static void autocontrast(oct_image *image, double unused)
{
    (void)unused;
    for (int64_t c = 0; c < image->c; c++) {
        int64_t count[CODES];
        uint8_t table[CODES];
        int least = 0, largest = count_codes(image, c, count);
        while (least < largest && count[least] == 0)
            least++;
        if (largest <= least) continue;
        const double scale = 255.0 / (largest - least), offset = -least * scale;
        for (int v = 0; v < CODES; v++) {
            const double value = v * scale + offset;
            table[v] = value <= 0 ? 0 : value >= 255 ? 255 : (uint8_t)value;
        }
        look_up_values(image, c, image->c, table);
    }
}

/* As PIL: maps each code of a channel to the share of pixels below it, which evens out the histogram. */
static void equalize(oct_image *image, double unused)
{
    (void)unused;
    for (int64_t c = 0; c < image->c; c++) {
        int64_t count[CODES];
        uint8_t table[CODES];
        const int largest = count_codes(image, c, count);
        const int64_t step = (image->h * image->w - count[largest]) / 255;
        if (step == 0) continue; /* also when there is one code only */
        int64_t below = step / 2;
        for (int v = 0; v < CODES; v++) {
            const int64_t code = below / step;
            table[v] = code > 255 ? 255 : (uint8_t)code;
            below += count[v];
        }
        look_up_values(image, c, image->c, table);
    }
}

oct_status oct_pixel_change(oct_image *image, oct_pixel_kind kind, double amount, oct_image *spare)
{
    static void (*const changes[])(oct_image * image, double amount) = {
        [OCT_PIXEL_BRIGHTNESS] = change_brightness, [OCT_PIXEL_CONTRAST] = change_contrast,
        [OCT_PIXEL_SATURATION] = change_saturation, [OCT_PIXEL_HUE] = change_hue,
        [OCT_PIXEL_POSTERIZE] = posterize,          [OCT_PIXEL_SOLARIZE] = solarize,
        [OCT_PIXEL_AUTOCONTRAST] = autocontrast,    [OCT_PIXEL_EQUALIZE] = equalize,
    };
    if (kind == OCT_PIXEL_SHARPNESS) return change_sharpness(image, spare, (float)amount);
    changes[kind](image, amount);
    return OCT_OK;
}
