#include "launch/report/series.h"

#include "core/base/mem.h"
#include "launch/base/output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void oct_series_free(oct_series *series)
{
    oct_free(&series->x);
    oct_free(&series->y);
    *series = (oct_series){0};
}

oct_status oct_series_add(oct_series *series, double x, double y)
{
    OCT_TRY(oct_grow(&series->x, &series->x_capacity, series->count + 1, sizeof(double)));
    OCT_TRY(oct_grow(&series->y, &series->y_capacity, series->count + 1, sizeof(double)));
    series->x[series->count] = x;
    series->y[series->count++] = y;
    return OCT_OK;
}

oct_status oct_series_of(oct_series *series, const json_t *records, const char *object,
                         const char *key)
{
    size_t i;
    const json_t *record;
    oct_series_free(series);
    json_array_foreach(records, i, record)
    {
        const json_t *step = json_object_get(record, "step"),
                     *holder = object ? json_object_get(record, object) : record,
                     *value = json_object_get(holder, key);
        if (!json_is_number(step) || !json_is_number(value)) continue;
        OCT_TRY(oct_series_add(series, json_number_value(step), json_number_value(value)));
    }
    return OCT_OK;
}

json_t *oct_series_json(const oct_series *s)
{
    return json_pack("{s:o, s:o}", "step", oct_json_reals(s->x, s->count), "value",
                     oct_json_reals(s->y, s->count));
}

void oct_series_thin(oct_series *series, size_t points)
{
    size_t stretches = points / 2, kept = 0, count = series->count;
    if (count <= points || stretches == 0) return;
    for (size_t s = 0; s < stretches; s++) {
        size_t begin = s * count / stretches, end = (s + 1) * count / stretches;
        size_t least = begin, most = begin;
        for (size_t i = begin; i < end; i++) {
            if (series->y[i] < series->y[least]) least = i;
            if (series->y[i] >= series->y[most]) most = i;
        }
        const size_t both[] = {least < most ? least : most, least < most ? most : least};
        for (size_t i = 0; i < (least == most ? 1 : 2); i++, kept++) {
            series->x[kept] = series->x[both[i]];
            series->y[kept] = series->y[both[i]];
        }
    }
    series->count = kept;
}

oct_plot_spans oct_plot_spans_of(const json_t *records)
{
    oct_plot_spans spans = {0};
    size_t i;
    const json_t *record;
    json_array_foreach(records, i, record)
    {
        const char *phase = json_string_value(json_object_get(record, "phase"));
        const json_t *step = json_object_get(record, "step");
        if (!phase || !json_is_number(step)) continue;
        oct_plot_span *last = spans.count ? &spans.span[spans.count - 1] : NULL;
        if (!last || strncmp(last->name, phase, sizeof last->name - 1) != 0) {
            if (spans.count == OCT_SPANS_MAX || (last && json_number_value(step) <= last->end))
                continue;
            oct_plot_span *next = &spans.span[spans.count++];
            snprintf(next->name, sizeof next->name, "%s", phase);
            next->begin = last ? last->end : 0;
            last = next;
        }
        last->end = json_number_value(step);
    }
    return spans;
}

json_t *oct_plot_spans_json(const json_t *records)
{
    const oct_plot_spans spans = oct_plot_spans_of(records);
    json_t *array = json_array();
    for (size_t i = 0; i < spans.count; i++)
        json_array_append_new(array,
                              json_pack("{s:s, s:f, s:f}", "name", spans.span[i].name, "begin",
                                        spans.span[i].begin, "end", spans.span[i].end));
    return array;
}

/* Plots in a terminal. A character holds 2 x 4 dots of a braille pattern (U+2800: dots 1 to 8 are bits 0 to 7), or in ASCII
 * one dot. Marks of evaluations lie above lines, lines above the borders of phases. */

enum { LABEL = 9 };
enum { ACROSS = 2, DOWN = 4 }; /* dots of a character */

/* One character of the drawing. */
typedef struct cell {
    unsigned char dots; /* of the first run's lines */
    char mark;          /* '\0': none; 'A', 'B': an evaluation; 'b': a line of the second run */
    bool border;        /* a phase begins here */
} cell;

typedef struct canvas {
    const oct_plot *plot;
    const oct_terminal *terminal;
    oct_plot_axis x, y;
    int columns, rows;
    cell *cells;
} canvas;

oct_plot_curve *oct_plot_add(oct_plot *plot, const oct_series *series, const char *name)
{
    if (plot->count == OCT_PLOT_CURVES_MAX || series->count == 0) return NULL;
    oct_plot_curve *curve = &plot->curve[plot->count++];
    *curve = (oct_plot_curve){.series = series};
    snprintf(curve->name, sizeof curve->name, "%s", name);
    return curve;
}

static void find_decimals(oct_plot_axis *axis, double step)
{
    axis->decimals = step >= 1 ? 0 : (int)fmin(ceil(-log10(step) - 1e-9), 12);
}

oct_plot_axis oct_plot_axis_of(double low, double high, int ticks)
{
    oct_plot_axis axis = {.low = 0, .high = 1};
    if (!(low <= high) || !isfinite(low) || !isfinite(high)) return axis;
    double room = fmax(fabs(low), fabs(high));
    if (high - low <= 1e-9 * room) {
        low -= room > 0 ? room / 2 : 0.5;
        high += room > 0 ? room / 2 : 0.5;
    }
    /* Ticks are at 1, 2 or 5 times a power of ten. */
    const double raw = (high - low) / ticks, power = pow(10, floor(log10(raw)));
    const double factor = raw / power;
    const double step = power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
    double first = floor(low / step + 1e-9), last = ceil(high / step - 1e-9);
    axis.low = first * step;
    axis.high = last * step;
    for (double t = first; t <= last && axis.count < OCT_TICKS_MAX; t++)
        axis.tick[axis.count++] = t * step;
    find_decimals(&axis, step);
    return axis;
}

oct_plot_axis oct_plot_axis_logarithmic(double low, double high, int ticks)
{
    oct_plot_axis axis = {.logarithmic = true};
    const double first = floor(log10(low) + 1e-9), last = ceil(log10(high) - 1e-9);
    const double powers = fmax(last - first, 1), every = ceil(powers / ticks);
    static const double between[] = {1, 2, 5};
    const size_t inside = powers <= 2 ? OCT_COUNT(between) : 1;
    for (double p = first; p <= last && axis.count < OCT_TICKS_MAX; p += every)
        for (size_t i = 0; i < inside && axis.count < OCT_TICKS_MAX; i++)
            axis.tick[axis.count++] = between[i] * pow(10, p);
    axis.low = pow(10, first);
    axis.high = pow(10, first + powers);
    /* The ends are the ticks around the values. */
    for (size_t i = 0; i < axis.count; i++) {
        if (axis.tick[i] <= low * (1 + 1e-9)) axis.low = axis.tick[i];
        if (axis.tick[i] >= high * (1 - 1e-9)) {
            axis.high = axis.tick[i];
            break;
        }
    }
    find_decimals(&axis, axis.low);
    return axis;
}

double oct_plot_axis_place(const oct_plot_axis *axis, double value)
{
    double place = axis->logarithmic ? log(value / axis->low) / log(axis->high / axis->low)
                                     : (value - axis->low) / (axis->high - axis->low);
    return place < 0 ? 0 : place > 1 ? 1 : place;
}

const char *oct_plot_axis_text(const oct_plot_axis *axis, double value, char text[32])
{
    double size = fabs(value), largest = fmax(fabs(axis->low), fabs(axis->high));
    if (size < 1e-12 * largest)
        snprintf(text, 32, "0");
    else if (size >= 1e9 || size < 1e-4)
        oct_snprintf(text, 32, "%.3g", value);
    else if (largest >= 1e6 && size >= 1e5)
        oct_snprintf(text, 32, "%.4gM", value / 1e6);
    else if (largest >= 1e4 && size >= 1e3)
        oct_snprintf(text, 32, "%.4gk", value / 1e3);
    else if (axis->logarithmic)
        oct_snprintf(text, 32, "%.6g", value);
    else
        oct_snprintf(text, 32, "%.*f", axis->decimals, value);
    return text;
}

/* The drawing. */

static void widen_range(double range[2], double value)
{
    if (!isfinite(value)) return;
    range[0] = fmin(range[0], value);
    range[1] = fmax(range[1], value);
}

/* Makes the axes that hold all curves. False: there is no finite value to draw. */
static bool find_axes(const oct_plot *plot, int x_ticks, int y_ticks, oct_plot_axis *x,
                      oct_plot_axis *y)
{
    double steps[2] = {INFINITY, -INFINITY}, values[2] = {INFINITY, -INFINITY};
    for (size_t c = 0; c < plot->count; c++) {
        const oct_series *s = plot->curve[c].series;
        for (size_t i = 0; i < s->count; i++) {
            widen_range(steps, s->x[i]);
            widen_range(values, s->y[i]);
        }
    }
    if (values[0] > values[1]) return false;
    for (size_t i = 0; plot->spans && i < plot->spans->count; i++) {
        widen_range(steps, plot->spans->span[i].begin);
        widen_range(steps, plot->spans->span[i].end);
    }
    const bool wide = values[0] > 0 && values[1] > 10 * values[0];
    *x = oct_plot_axis_of(steps[0], steps[1], x_ticks);
    if (steps[1] > steps[0]) { /* the axis of steps ends with the last step */
        x->low = steps[0];
        x->high = steps[1];
    }
    *y = plot->free_scale && wide ? oct_plot_axis_logarithmic(values[0], values[1], y_ticks)
                                  : oct_plot_axis_of(values[0], values[1], y_ticks);
    return true;
}

static cell *cell_at(const canvas *c, int column, int row)
{
    return &c->cells[row * c->columns + column];
}

static int dots_across(const canvas *c)
{
    return c->terminal->unicode ? ACROSS : 1;
}

static int dots_down(const canvas *c)
{
    return c->terminal->unicode ? DOWN : 1;
}

static int dot_x(const canvas *c, double value)
{
    return (int)lrint(oct_plot_axis_place(&c->x, value) * (c->columns * dots_across(c) - 1));
}

static int dot_y(const canvas *c, double value)
{
    return (int)lrint((1 - oct_plot_axis_place(&c->y, value)) * (c->rows * dots_down(c) - 1));
}

/* Draws dot (x, y) of a line: a dot of the character's braille pattern or, of the second run, a mark. */
static void draw_dot(const canvas *c, int x, int y, int run)
{
    static const unsigned char bits[DOWN][ACROSS] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cell *there = cell_at(c, x / dots_across(c), y / dots_down(c));
    if (run > 0)
        there->mark = 'b';
    else
        there->dots |= bits[y % dots_down(c)][x % dots_across(c)];
}

static void draw_curve(const canvas *c, const oct_plot_curve *curve)
{
    const oct_series *s = curve->series;
    int x = -1, y = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (!isfinite(s->y[i])) {
            x = -1;
            continue;
        }
        int to_x = dot_x(c, s->x[i]), to_y = dot_y(c, s->y[i]);
        int wide = abs(to_x - x), steps = wide > abs(to_y - y) ? wide : abs(to_y - y);
        if (x < 0) steps = 0;
        if (x >= 0 && curve->colour > 0) steps = wide; /* marks make no line */
        for (int k = 0; k < steps; k++)
            draw_dot(c, x + (to_x - x) * k / steps, y + (to_y - y) * k / steps, curve->colour);
        draw_dot(c, to_x, to_y, curve->colour);
        x = to_x;
        y = to_y;
    }
}

/* Adds a character: a mark, else the dots of lines (U+2800 and the dots, in UTF-8), else the border of a phase. */
static oct_status add_cell(const canvas *c, const cell *it, oct_text *text)
{
    const bool unicode = c->terminal->unicode;
    const int code = 0x2800 + it->dots;
    if (it->mark == 'A') return oct_text_add(text, "%s", unicode ? "●" : "A");
    if (it->mark == 'B') return oct_text_add(text, "%s", unicode ? "○" : "B");
    if (it->mark) return oct_text_add(text, "%s", unicode ? "×" : "+");
    if (it->dots && unicode)
        return oct_text_add(text, "%c%c%c", 0xe0 | code >> 12, 0x80 | (code >> 6 & 0x3f),
                            0x80 | (code & 0x3f));
    if (it->dots) return oct_text_add(text, "*");
    if (it->border) return oct_text_add(text, "%s", unicode ? "┊" : ":");
    return oct_text_add(text, " ");
}

static oct_status add_drawing(const canvas *c, oct_text *text)
{
    const bool unicode = c->terminal->unicode;
    for (int row = 0; row < c->rows; row++) {
        char label[32];
        int last = c->columns;
        const char *tick = ""; /* the one whose row this is */
        for (size_t i = 0; !*tick && i < c->y.count; i++) {
            const double value = c->y.tick[i], slack = 1e-9 * fabs(c->y.high);
            if (value >= c->y.low - slack && value <= c->y.high + slack &&
                dot_y(c, value) / dots_down(c) == row)
                tick = oct_plot_axis_text(&c->y, value, label);
        }
        OCT_TRY(oct_text_add(text, "%*s %s", LABEL - 2, tick,
                             unicode ? (*tick ? "┤" : "│") : (*tick ? "+" : "|")));
        while (last > 0 && !cell_at(c, last - 1, row)->dots && !cell_at(c, last - 1, row)->mark &&
               !cell_at(c, last - 1, row)->border)
            last--;
        for (int column = 0; column < last; column++)
            OCT_TRY(add_cell(c, cell_at(c, column, row), text));
        OCT_TRY(oct_text_add(text, "\n"));
    }
    OCT_TRY(oct_text_add(text, "%*s %s", LABEL - 2, "", unicode ? "└" : "+"));
    for (int column = 0; column < c->columns; column++)
        OCT_TRY(oct_text_add(text, "%s", unicode ? "─" : "-"));
    return oct_text_add(text, "\n");
}

/* Adds a text at a column of a line, whose first *used columns are taken; what has no room is left out. */
static oct_status add_caption(int *used, int column, const char *caption, int columns,
                              oct_text *text)
{
    const int width = (int)strlen(caption);
    if (column + width > columns) column = columns - width;
    if (column < *used + (*used > 0)) return OCT_OK;
    OCT_TRY(oct_text_add(text, "%*s%s", column - *used, "", caption));
    *used = column + width;
    return OCT_OK;
}

static oct_status add_step_axis(const canvas *c, oct_text *text)
{
    int used = 0;
    char number[32];
    OCT_TRY(oct_text_add(text, "%*s", LABEL, ""));
    for (size_t i = 0; i < c->x.count; i++)
        if (c->x.tick[i] >= c->x.low && c->x.tick[i] <= c->x.high)
            OCT_TRY(add_caption(&used, dot_x(c, c->x.tick[i]) / dots_across(c),
                                oct_plot_axis_text(&c->x, c->x.tick[i], number), c->columns, text));
    OCT_TRY(oct_text_add(text, "  step\n"));
    if (!c->plot->spans || c->plot->spans->count == 0) return OCT_OK;
    used = 0;
    OCT_TRY(oct_text_add(text, "%*s", LABEL, ""));
    for (size_t i = 0; i < c->plot->spans->count; i++) {
        const oct_plot_span *span = &c->plot->spans->span[i];
        int column = dot_x(c, span->begin) / dots_across(c),
            end = dot_x(c, span->end) / dots_across(c);
        if (end - column >= (int)strlen(span->name))
            OCT_TRY(add_caption(&used, column, span->name, c->columns, text));
    }
    return oct_text_add(text, "\n");
}

static oct_status add_legend(const canvas *c, oct_text *text)
{
    const bool unicode = c->terminal->unicode;
    OCT_TRY(oct_text_add(text, "%*s", LABEL, ""));
    for (size_t i = 0; i < c->plot->count; i++) {
        const oct_plot_curve *curve = &c->plot->curve[i];
        const bool second = curve->colour > 0;
        const char *sign = curve->dots ? (second ? (unicode ? "○" : "B") : (unicode ? "●" : "A"))
                           : second    ? (unicode ? "×" : "+")
                                       : (unicode ? "⠒" : "*");
        OCT_TRY(oct_text_add(text, "%s%s %s", i ? "   " : "", sign, curve->name));
    }
    return oct_text_add(text, "\n");
}

oct_status oct_terminal_plot(const oct_plot *plot, const oct_terminal *terminal, oct_text *text)
{
    canvas c = {.plot = plot,
                .terminal = terminal,
                .columns = terminal->columns - LABEL,
                .rows = terminal->rows};
    if (!find_axes(plot, c.columns / 14 + 1, c.rows / 3, &c.x, &c.y)) return OCT_OK;
    OCT_TRY(oct_alloc(&c.cells, (size_t)(c.columns * c.rows), sizeof *c.cells));
    for (size_t i = 1; plot->spans && i < plot->spans->count; i++)
        for (int row = 0; row < c.rows; row++)
            cell_at(&c, dot_x(&c, plot->spans->span[i].begin) / dots_across(&c), row)->border =
                true;
    for (size_t i = plot->count; i > 0; i--)
        if (!plot->curve[i - 1].dots) draw_curve(&c, &plot->curve[i - 1]);
    for (size_t i = plot->count; i > 0; i--) {
        const oct_plot_curve *curve = &plot->curve[i - 1];
        const oct_series *s = curve->series;
        for (size_t k = 0; curve->dots && k < s->count; k++)
            if (isfinite(s->y[k]))
                cell_at(&c, dot_x(&c, s->x[k]) / dots_across(&c),
                        dot_y(&c, s->y[k]) / dots_down(&c))
                    ->mark = curve->colour > 0 ? 'B' : 'A';
    }
    oct_status status =
        oct_text_add(text, "%s%s%s\n", plot->title, plot->unit[0] ? ", " : "", plot->unit);
    if (status == OCT_OK) status = add_drawing(&c, text);
    if (status == OCT_OK) status = add_step_axis(&c, text);
    if (status == OCT_OK) status = add_legend(&c, text);
    oct_free(&c.cells);
    return status;
}
