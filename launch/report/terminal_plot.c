/* A character holds 2 x 4 dots of a braille pattern (U+2800: dots 1 to 8 are bits 0 to 7), or in ASCII one
 * dot. Marks of evaluations lie above lines, lines above the borders of phases. */
#include "launch/report/terminal_plot.h"

#include "core/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LABEL = 9, STANDARD_COLUMNS = 80, STANDARD_ROWS = 16 };
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

static void widen(double range[2], double value)
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
            widen(steps, s->x[i]);
            widen(values, s->y[i]);
        }
    }
    if (values[0] > values[1]) return false;
    for (size_t i = 0; plot->spans && i < plot->spans->count; i++) {
        widen(steps, plot->spans->span[i].begin);
        widen(steps, plot->spans->span[i].end);
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

static bool says_utf8(void)
{
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < OCT_COUNT(variables); i++) {
        const char *value = getenv(variables[i]);
        if (!value || !*value) continue;
        return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

oct_terminal oct_terminal_here(void)
{
    struct winsize size = {0};
    int columns = STANDARD_COLUMNS;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) columns = size.ws_col;
    if (columns < OCT_TERMINAL_COLUMNS_MIN) columns = OCT_TERMINAL_COLUMNS_MIN;
    if (columns > OCT_TERMINAL_COLUMNS_MAX) columns = OCT_TERMINAL_COLUMNS_MAX;
    return (oct_terminal){.columns = columns, .rows = STANDARD_ROWS, .unicode = says_utf8()};
}

static cell *at(const canvas *c, int column, int row)
{
    return &c->cells[row * c->columns + column];
}

static int across(const canvas *c)
{
    return c->terminal->unicode ? ACROSS : 1;
}

static int down(const canvas *c)
{
    return c->terminal->unicode ? DOWN : 1;
}

static int dot_x(const canvas *c, double value)
{
    return (int)lrint(oct_plot_axis_place(&c->x, value) * (c->columns * across(c) - 1));
}

static int dot_y(const canvas *c, double value)
{
    return (int)lrint((1 - oct_plot_axis_place(&c->y, value)) * (c->rows * down(c) - 1));
}

static void put_dot(const canvas *c, int x, int y, int run)
{
    static const unsigned char bits[DOWN][ACROSS] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cell *there = at(c, x / across(c), y / down(c));
    if (run > 0)
        there->mark = 'b';
    else
        there->dots |= bits[y % down(c)][x % across(c)];
}

static void put_line(const canvas *c, const oct_plot_curve *curve)
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
            put_dot(c, x + (to_x - x) * k / steps, y + (to_y - y) * k / steps, curve->colour);
        put_dot(c, to_x, to_y, curve->colour);
        x = to_x;
        y = to_y;
    }
}

static void put_marks(const canvas *c, const oct_plot_curve *curve)
{
    const oct_series *s = curve->series;
    for (size_t i = 0; i < s->count; i++)
        if (isfinite(s->y[i]))
            at(c, dot_x(c, s->x[i]) / across(c), dot_y(c, s->y[i]) / down(c))->mark =
                curve->colour > 0 ? 'B' : 'A';
}

static void put_borders(const canvas *c)
{
    for (size_t i = 1; c->plot->spans && i < c->plot->spans->count; i++) {
        int column = dot_x(c, c->plot->spans->span[i].begin) / across(c);
        for (int row = 0; row < c->rows; row++)
            at(c, column, row)->border = true;
    }
}

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

/* The tick whose row this is, or none. */
static const char *tick_at(const canvas *c, int row, char label[32])
{
    for (size_t i = 0; i < c->y.count; i++) {
        const double tick = c->y.tick[i], slack = 1e-9 * fabs(c->y.high);
        if (tick < c->y.low - slack || tick > c->y.high + slack) continue;
        if (dot_y(c, tick) / down(c) == row) return oct_plot_axis_text(&c->y, tick, label);
    }
    return "";
}

static oct_status add_drawing(const canvas *c, oct_text *text)
{
    const bool unicode = c->terminal->unicode;
    for (int row = 0; row < c->rows; row++) {
        char label[32];
        int last = c->columns;
        const char *tick = tick_at(c, row, label);
        OCT_TRY(oct_text_add(text, "%*s %s", LABEL - 2, tick,
                             unicode ? (*tick ? "┤" : "│") : (*tick ? "+" : "|")));
        while (last > 0 && !at(c, last - 1, row)->dots && !at(c, last - 1, row)->mark &&
               !at(c, last - 1, row)->border)
            last--;
        for (int column = 0; column < last; column++)
            OCT_TRY(add_cell(c, at(c, column, row), text));
        OCT_TRY(oct_text_add(text, "\n"));
    }
    return OCT_OK;
}

static oct_status add_floor(const canvas *c, oct_text *text)
{
    const bool unicode = c->terminal->unicode;
    OCT_TRY(oct_text_add(text, "%*s %s", LABEL - 2, "", unicode ? "└" : "+"));
    for (int column = 0; column < c->columns; column++)
        OCT_TRY(oct_text_add(text, "%s", unicode ? "─" : "-"));
    return oct_text_add(text, "\n");
}

/* Texts at columns of a line, none over another; what has no room is left out. */
typedef struct caption_line {
    int used; /* columns so far */
} caption_line;

static oct_status add_caption(caption_line *line, int column, const char *caption, int columns,
                              oct_text *text)
{
    int width = (int)strlen(caption);
    if (column + width > columns) column = columns - width;
    if (column < line->used + (line->used > 0)) return OCT_OK;
    OCT_TRY(oct_text_add(text, "%*s%s", column - line->used, "", caption));
    line->used = column + width;
    return OCT_OK;
}

static oct_status add_steps(const canvas *c, oct_text *text)
{
    caption_line line = {0};
    char number[32];
    OCT_TRY(oct_text_add(text, "%*s", LABEL, ""));
    for (size_t i = 0; i < c->x.count; i++)
        if (c->x.tick[i] >= c->x.low && c->x.tick[i] <= c->x.high)
            OCT_TRY(add_caption(&line, dot_x(c, c->x.tick[i]) / across(c),
                                oct_plot_axis_text(&c->x, c->x.tick[i], number), c->columns, text));
    OCT_TRY(oct_text_add(text, "  step\n"));
    if (!c->plot->spans || c->plot->spans->count == 0) return OCT_OK;
    line = (caption_line){0};
    OCT_TRY(oct_text_add(text, "%*s", LABEL, ""));
    for (size_t i = 0; i < c->plot->spans->count; i++) {
        const oct_plot_span *span = &c->plot->spans->span[i];
        int column = dot_x(c, span->begin) / across(c), end = dot_x(c, span->end) / across(c);
        if (end - column >= (int)strlen(span->name))
            OCT_TRY(add_caption(&line, column, span->name, c->columns, text));
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

static oct_status draw(canvas *c, oct_text *text)
{
    put_borders(c);
    for (size_t i = c->plot->count; i > 0; i--)
        if (!c->plot->curve[i - 1].dots) put_line(c, &c->plot->curve[i - 1]);
    for (size_t i = c->plot->count; i > 0; i--)
        if (c->plot->curve[i - 1].dots) put_marks(c, &c->plot->curve[i - 1]);
    OCT_TRY(oct_text_add(text, "%s%s%s\n", c->plot->title, c->plot->unit[0] ? ", " : "",
                         c->plot->unit));
    OCT_TRY(add_drawing(c, text));
    OCT_TRY(add_floor(c, text));
    OCT_TRY(add_steps(c, text));
    return add_legend(c, text);
}

oct_status oct_terminal_plot(const oct_plot *plot, const oct_terminal *terminal, oct_text *text)
{
    canvas c = {.plot = plot,
                .terminal = terminal,
                .columns = terminal->columns - LABEL,
                .rows = terminal->rows};
    if (!find_axes(plot, c.columns / 14 + 1, c.rows / 3, &c.x, &c.y)) return OCT_OK;
    OCT_TRY(oct_alloc(&c.cells, (size_t)(c.columns * c.rows), sizeof *c.cells));
    oct_status status = draw(&c, text);
    oct_free(&c.cells);
    return status;
}
