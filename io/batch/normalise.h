/* The one normalisation of samples: (x * unit - mean[c]) * (1 / std[c]) in float, for training, evaluation, exports and
 * `octet run`. */
#pragma once

#include "core/base/text.h"
#include "io/image/image.h"

/* The normalisation of channels; one value of each holds for all of them. */
typedef struct oct_normaliser {
    int count; /* of channels, or 1 */
    float mean[OCT_REALS_MAX], std[OCT_REALS_MAX];
} oct_normaliser;

/* unit of a sample's numbers: 1/255 for u8, 1/128 for s8, 1 for f32. */
static inline float oct_normal_unit(oct_dtype dtype)
{
    return dtype == OCT_U8 ? 1.0f / 255.0f : dtype == OCT_S8 ? 1.0f / 128.0f : 1.0f;
}

static inline float oct_normal_value(float value, float unit, float mean, float inverse_std)
{
    return (value * unit - mean) * inverse_std;
}

/* The index in mean and std of channel c. */
static inline int64_t oct_normaliser_at(const oct_normaliser *n, int64_t c)
{
    return n->count == 1 ? 0 : c;
}

/* Makes a normaliser. mean and std: one value each, or one for each channel. */
oct_normaliser oct_normaliser_of(const oct_reals *mean, const oct_reals *std);
/* Writes mean and std of each channel, as oct_normalise takes them; only of the first OCT_REALS_MAX channels. */
void oct_normaliser_spread(const oct_normaliser *normaliser, int64_t channels, float *mean,
                           float *std);
/* Normalises an image of any type. out: height x width x channels. */
void oct_normalise_image(const oct_image *image, const oct_normaliser *normaliser, float *out);
/* Normalises bytes. mean and std: one for each channel; of more than OCT_REALS_MAX channels all have the first. */
void oct_normalise(const uint8_t *bytes, int64_t pixels, int64_t channels, const float *mean,
                   const float *std, float *out);
