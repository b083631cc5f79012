/* Numbers of a run over its steps, as plots want them; and a plot drawn with characters, for those who have nothing but
 * a terminal. */
#pragma once

#include "core/base/text.h"

#include <jansson.h>
#include <stdint.h>

/* Values at steps, in the order of the records; owned. */
typedef struct oct_series {
    double *x, *y;
    size_t count, x_capacity, y_capacity;
} oct_series;

void oct_series_free(oct_series *series);
/* Appends the value y at step x. */
oct_status oct_series_add(oct_series *series, double x, double y);

/* Takes from records (an array, or NULL) the number at `key`, of the records themselves or of an object in each of
 * them. Records without it are passed over; what is already there is freed. */
oct_status oct_series_of(oct_series *series, const json_t *records, const char *object,
                         const char *key);
json_t *oct_series_json(const oct_series *series); /* {"step": [...], "value": [...]} */
/* Leaves at most `points` of them: of each stretch the smallest and the largest, so that peaks stay. */
void oct_series_thin(oct_series *series, size_t points);

/* Stretches of steps, one after the other: the phases of a run. */
enum { OCT_SPANS_MAX = 16 };
typedef struct oct_plot_span {
    char name[24];
    double begin, end;
} oct_plot_span;
typedef struct oct_plot_spans {
    oct_plot_span span[OCT_SPANS_MAX];
    size_t count;
} oct_plot_spans;
/* Finds the phases of a run from its records: each begins where the one before ended. A record of another phase that is
 * not after the last step seen is passed over, so that spans never overlap. */
oct_plot_spans oct_plot_spans_of(const json_t *records);
/* The same as [{"name", "begin", "end"}, ...]. */
json_t *oct_plot_spans_json(const json_t *records);

/* An axis: its ends and where its ticks are. */
enum { OCT_TICKS_MAX = 12 };
typedef struct oct_plot_axis {
    double low, high;
    bool logarithmic;
    size_t count;
    double tick[OCT_TICKS_MAX];
    int decimals; /* of the ticks' numbers */
} oct_plot_axis;
/* Makes an axis of about `ticks` round ticks around these values; low > high: there are none. */
oct_plot_axis oct_plot_axis_of(double low, double high, int ticks);
/* Makes an axis with ticks at powers of ten, also at 2 and 5 times few of them, at every n-th of many; low > 0. */
oct_plot_axis oct_plot_axis_logarithmic(double low, double high, int ticks);
/* Places a value: 0 at the low end, 1 at the high end. */
double oct_plot_axis_place(const oct_plot_axis *axis, double value);
/* Writes a tick's number: "0.25", "12k". */
const char *oct_plot_axis_text(const oct_plot_axis *axis, double value, char text[32]);

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

/* Adds the plot to a text: title, drawing with its axes, phases, legend. Nothing when there is nothing to draw. */
oct_status oct_terminal_plot(const oct_plot *plot, const oct_terminal *terminal, oct_text *text);
