/* A sheet of pixels to draw on: rectangles, pictures and text, onto an image of bytes with 3 channels. What is
 * outside of it is cut off. */
#pragma once

#include "io/image/image.h"

/* 0xrrggbb */
typedef uint32_t oct_ink;

typedef struct oct_spot {
    int64_t x, y;
} oct_spot;

void oct_canvas_fill(oct_image *canvas, oct_spot at, int64_t w, int64_t h, oct_ink ink);
/* Draws a picture of 1 or 3 channels of bytes, each of its pixels `times` wide and high. */
void oct_canvas_picture(oct_image *canvas, oct_spot at, const oct_image *picture, int64_t times);
/* Draws UTF-8 text in letters of 5x7 dots, each dot `times` pixels; what is not ASCII becomes '?'. Text that is
 * wider than `w` pixels ends in two dots. */
void oct_canvas_text(oct_image *canvas, oct_spot at, int64_t w, int times, oct_ink ink,
                     const char *text);
/* Returns how wide so much text is. */
int64_t oct_canvas_text_width(const char *text, int times);
