/* Where in an image something happens: boxes that are drawn at random or centred. */
#pragma once

#include "io/augment/augment.h"
#include "io/augment/geometry.h"

/* Draws a box of an image as torchvision's RandomResizedCrop does: the share of the area from `scale`, width
 * over height log-uniformly from `ratio`; false when none of ten fits. */
bool oct_box_draw(oct_dice *dice, const oct_image *image, const oct_param_value *scale,
                  const oct_param_value *ratio, oct_box *box);
/* Returns the box of this size in the middle, where torchvision's CenterCrop has it. */
oct_box oct_box_centre(const oct_image *image, int64_t h, int64_t w);
/* Gives height and width of a SIZE, where one number means a square. */
void oct_size_of(const oct_param_value *value, int64_t *h, int64_t *w);
/* Sets the size of samples that become as large as the first parameter says (oct_transform.fit). */
void oct_fit_size(const oct_param_value *value, oct_image *shape, char flaw[OCT_AUGMENT_FLAW]);
