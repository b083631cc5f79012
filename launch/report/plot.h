/* A plot is an SVG drawing of series over steps: axes with round ticks, the phases of the run behind them,
 * a legend above. It stretches with the page and needs no script. */
#pragma once

#include "launch/report/html.h"
#include "launch/report/series.h"

enum { OCT_PLOT_CURVES_MAX = 12, OCT_PLOT_POINTS = 400 };

/* How a curve is drawn. Colours are numbered from 0 and come from the style sheet. */
typedef struct oct_plot_curve {
    const oct_series *series; /* borrowed; at most OCT_PLOT_POINTS of it are drawn */
    char name[96];            /* in the legend */
    int colour;
    bool dashed, dots; /* dots: each point is marked */
} oct_plot_curve;

typedef enum oct_scale_kind {
    OCT_SCALE_LINEAR,
    OCT_SCALE_ZERO, /* linear from zero on */
    OCT_SCALE_FREE, /* logarithmic where the values span more than a power of ten */
} oct_scale_kind;

typedef struct oct_plot {
    const char *title, *unit;    /* "loss", "" */
    const oct_plot_spans *spans; /* borrowed; NULL: none */
    oct_scale_kind scale;
    oct_plot_curve curve[OCT_PLOT_CURVES_MAX];
    size_t count;
} oct_plot;

/* Adds a curve unless the plot is full or the series is empty. */
oct_plot_curve *oct_plot_add(oct_plot *plot, const oct_series *series, const char *name);
/* Makes the axes that hold all curves. False: there is no finite value to draw. */
bool oct_plot_axes(const oct_plot *plot, int x_ticks, int y_ticks, oct_plot_axis *x,
                   oct_plot_axis *y);
/* Draws it as a figure with title and legend; nothing when there is nothing to draw. */
void oct_plot_draw(const oct_plot *plot, oct_html *html);
