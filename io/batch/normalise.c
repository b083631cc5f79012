#include "io/batch/normalise.h"

oct_normaliser oct_normaliser_of(const oct_reals *mean, const oct_reals *std)
{
    oct_normaliser n = {.count = mean->count > std->count ? mean->count : std->count};
    for (int c = 0; c < n.count; c++) {
        n.mean[c] = (float)mean->value[mean->count == 1 ? 0 : c];
        n.std[c] = (float)std->value[std->count == 1 ? 0 : c];
    }
    return n;
}

void oct_normalise_image(const oct_image *image, const oct_normaliser *n, float *out)
{
    const float unit = oct_normal_unit(image->dtype);
    const int64_t pixels = image->h * image->w;
    for (int64_t c = 0; c < image->c; c++) {
        const float mean = n->mean[oct_normaliser_at(n, c)],
                    inverse_std = 1.0f / n->std[oct_normaliser_at(n, c)];
        for (int64_t i = c; i < pixels * image->c; i += image->c)
            out[i] = oct_normal_value((float)oct_image_get(image, i), unit, mean, inverse_std);
    }
}

void oct_normaliser_spread(const oct_normaliser *n, int64_t channels, float *mean, float *std)
{
    for (int64_t c = 0; c < channels && c < OCT_REALS_MAX; c++) {
        mean[c] = n->mean[oct_normaliser_at(n, c)];
        std[c] = n->std[oct_normaliser_at(n, c)];
    }
}

void oct_normalise(const uint8_t *bytes, int64_t pixels, int64_t channels, const float *mean,
                   const float *std, float *out)
{
    for (int64_t c = 0; c < channels; c++) {
        const int64_t index = channels <= OCT_REALS_MAX ? c : 0;
        float inverse_std = 1.0f / std[index];
        for (int64_t i = 0; i < pixels; i++)
            out[i * channels + c] = oct_normal_value((float)bytes[i * channels + c], 1.0f / 255.0f,
                                                     mean[index], inverse_std);
    }
}
