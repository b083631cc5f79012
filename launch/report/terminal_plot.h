/* A plot drawn with characters, for those who have nothing but a terminal. */
#pragma once

#include "core/base/text.h"
#include "launch/report/series.h"

enum { OCT_PLOT_CURVES_MAX = 12 };

typedef struct oct_plot_curve {
    const oct_series *series; /* borrowed */
    char name[96];            /* in the legend */
    int colour;               /* 1: of the second run */
    bool dots;                /* evaluations: each point is marked */
} oct_plot_curve;

typedef struct oct_plot {
    const char *title, *unit;    /* "loss", "" */
    const oct_plot_spans *spans; /* borrowed; NULL: none */
    bool free_scale;             /* logarithmic where the values span more than a power of ten */
    oct_plot_curve curve[OCT_PLOT_CURVES_MAX];
    size_t count;
} oct_plot;

/* Adds a curve unless the plot is full or the series is empty: NULL. */
oct_plot_curve *oct_plot_add(oct_plot *plot, const oct_series *series, const char *name);

enum { OCT_TERMINAL_COLUMNS_MIN = 40, OCT_TERMINAL_COLUMNS_MAX = 400 };

typedef struct oct_terminal {
    int columns, rows; /* of the whole line; of the drawing alone */
    bool unicode;      /* braille patterns and lines; otherwise ASCII */
} oct_terminal;

/* What stdout is: as wide as the terminal, 80 columns where it is none; Unicode where the locale of the
 * environment says UTF-8. */
oct_terminal oct_terminal_here(void);

/* Adds the plot to a text: title, drawing with its axes, phases, legend. Nothing when there is nothing to draw. */
oct_status oct_terminal_plot(const oct_plot *plot, const oct_terminal *terminal,
                             oct_text *text) OCT_NODISCARD;
