/* A plot drawn with characters, for those who have nothing but a terminal. */
#pragma once

#include "launch/report/plot.h"

enum { OCT_TERMINAL_COLUMNS_MIN = 40, OCT_TERMINAL_COLUMNS_MAX = 400 };

typedef struct oct_terminal {
    int columns, rows; /* of the whole line; of the drawing alone */
    bool unicode;      /* braille patterns and lines; otherwise ASCII */
} oct_terminal;

/* What stdout is: as wide as the terminal, 80 columns where it is none; Unicode where the locale of the
 * environment says UTF-8. */
oct_terminal oct_terminal_here(void);

/* Adds the plot to a text: title, drawing with its axes, phases, legend. Colour 1 of a curve is a second
 * run. Nothing when there is nothing to draw. */
oct_status oct_terminal_plot(const oct_plot *plot, const oct_terminal *terminal,
                             oct_text *text) OCT_NODISCARD;
