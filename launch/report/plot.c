/* Coordinates are those of the drawing, 480 wide; texts keep clear of each other at both sizes that the
 * style sheet gives them. */
#include "launch/report/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 480, HEIGHT = 250, LEFT = 58, RIGHT = 12, TOP = 22, BOTTOM = 40 };
enum { SPAN_LETTER = 7 }; /* width of a letter of a phase's name */

typedef struct frame {
    const oct_plot *plot;
    oct_html *html;
    oct_plot_axis x, y;
} frame;

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

bool oct_plot_axes(const oct_plot *plot, int x_ticks, int y_ticks, oct_plot_axis *x,
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
    if (plot->scale == OCT_SCALE_ZERO) widen(values, 0);
    *x = oct_plot_axis_of(steps[0], steps[1], x_ticks);
    if (steps[1] > steps[0]) { /* the axis of steps ends with the last step */
        x->low = steps[0];
        x->high = steps[1];
    }
    *y = plot->scale == OCT_SCALE_FREE && wide
             ? oct_plot_axis_logarithmic(values[0], values[1], y_ticks)
             : oct_plot_axis_of(values[0], values[1], y_ticks);
    return true;
}

static double place_x(const frame *f, double value)
{
    return LEFT + oct_plot_axis_place(&f->x, value) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const frame *f, double value)
{
    return HEIGHT - BOTTOM - oct_plot_axis_place(&f->y, value) * (HEIGHT - TOP - BOTTOM);
}

static bool is_inside(const oct_plot_axis *axis, double tick)
{
    double slack = 1e-9 * fmax(fabs(axis->low), fabs(axis->high));
    return tick >= axis->low - slack && tick <= axis->high + slack;
}

/* Every other phase has a ground of its own; a name stands where there is room for it. */
static void draw_spans(const frame *f)
{
    const oct_plot_spans *spans = f->plot->spans;
    double free_from = LEFT;
    for (size_t i = 0; spans && i < spans->count; i++) {
        const oct_plot_span *s = &spans->span[i];
        double begin = place_x(f, s->begin), end = place_x(f, s->end), middle = (begin + end) / 2;
        double half = (double)strlen(s->name) * SPAN_LETTER / 2;
        oct_html_put(f->html,
                     "<rect class=\"span%d\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" "
                     "height=\"%d\"><title>%s: steps %.0f to %.0f</title></rect>",
                     (int)(i % 2), begin, TOP, end - begin, HEIGHT - TOP - BOTTOM, s->name,
                     s->begin, s->end);
        if (i > 0)
            oct_html_put(f->html,
                         "<line class=\"edge\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>",
                         begin, TOP, begin, HEIGHT - BOTTOM);
        if (end - begin < 2 * half || middle - half < free_from) continue;
        oct_html_put(f->html, "<text class=\"phase\" x=\"%.1f\" y=\"%d\">%s</text>", middle,
                     TOP - 7, s->name);
        free_from = middle + half;
    }
}

static void draw_axes(const frame *f)
{
    char text[32];
    for (size_t i = 0; i < f->y.count; i++) {
        if (!is_inside(&f->y, f->y.tick[i])) continue;
        double y = place_y(f, f->y.tick[i]);
        oct_html_put(f->html,
                     "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>"
                     "<text class=\"tick y\" x=\"%d\" y=\"%.1f\">%s</text>",
                     LEFT, y, WIDTH - RIGHT, y, LEFT - 6, y + 4,
                     oct_plot_axis_text(&f->y, f->y.tick[i], text));
    }
    for (size_t i = 0; i < f->x.count; i++) {
        if (!is_inside(&f->x, f->x.tick[i])) continue;
        const double x = place_x(f, f->x.tick[i]);
        oct_html_put(f->html, "<text class=\"tick %s\" x=\"%.1f\" y=\"%d\">%s</text>",
                     x > WIDTH - RIGHT - 12 ? "last" : "x", x, HEIGHT - BOTTOM + 16,
                     oct_plot_axis_text(&f->x, f->x.tick[i], text));
    }
    oct_html_put(f->html,
                 "<line class=\"axis\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>"
                 "<text class=\"tick x\" x=\"%d\" y=\"%d\">step</text>",
                 LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM,
                 LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 6);
}

static void draw_line(const frame *f, const oct_plot_curve *curve, const oct_series *s)
{
    bool pen = false;
    oct_html_put(f->html, "<path class=\"line c%d%s\" d=\"", curve->colour,
                 curve->dashed ? " dashed" : "");
    for (size_t i = 0; i < s->count; i++) {
        bool finite = isfinite(s->y[i]) != 0;
        if (finite)
            oct_html_put(f->html, pen ? "L%.1f %.1f" : "M%.1f %.1f", place_x(f, s->x[i]),
                         place_y(f, s->y[i]));
        pen = finite;
    }
    oct_html_put(f->html, "\"/>");
}

static void draw_dots(const frame *f, const oct_plot_curve *curve, const oct_series *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (isfinite(s->y[i]))
            oct_html_put(f->html,
                         "<circle class=\"dot c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>%s: "
                         "%.6g at step %.0f</title></circle>",
                         curve->colour, place_x(f, s->x[i]), place_y(f, s->y[i]), curve->name,
                         s->y[i], s->x[i]);
}

static void draw_curve(const frame *f, const oct_plot_curve *curve)
{
    oct_series thin = {0};
    for (size_t i = 0; i < curve->series->count && f->html->status == OCT_OK; i++)
        f->html->status = oct_series_add(&thin, curve->series->x[i], curve->series->y[i]);
    oct_series_thin(&thin, curve->dots ? OCT_PLOT_POINTS / 4 : OCT_PLOT_POINTS);
    if (thin.count > 1) draw_line(f, curve, &thin);
    if (curve->dots || thin.count == 1) draw_dots(f, curve, &thin);
    oct_series_free(&thin);
}

static void draw_legend(const oct_plot *plot, oct_html *html)
{
    oct_html_put(html, "<figcaption><b>%s</b>", plot->title);
    if (plot->unit[0]) oct_html_put(html, " <span class=\"unit\">%s</span>", plot->unit);
    for (size_t i = 0; i < plot->count; i++)
        oct_html_put(html, " <span class=\"key k%d%s%s\">%s</span>", plot->curve[i].colour,
                     plot->curve[i].dashed ? " dashed" : "", plot->curve[i].dots ? " dots" : "",
                     plot->curve[i].name);
    oct_html_put(html, "</figcaption>");
}

/* Says in words what the drawing shows, for who cannot see it. */
static void describe(const frame *f)
{
    oct_html_put(f->html, "<title>%s over the steps</title><desc>", f->plot->title);
    for (size_t i = 0; i < f->plot->count; i++) {
        const oct_series *s = f->plot->curve[i].series;
        oct_html_put(f->html, "%s: %zu values, from %.5g at step %.0f to %.5g at step %.0f. ",
                     f->plot->curve[i].name, s->count, s->y[0], s->x[0], s->y[s->count - 1],
                     s->x[s->count - 1]);
    }
    oct_html_put(f->html, "</desc>");
}

void oct_plot_draw(const oct_plot *plot, oct_html *html)
{
    frame f = {.plot = plot, .html = html};
    if (!oct_plot_axes(plot, 5, 5, &f.x, &f.y)) return;
    oct_html_put(html, "<figure class=\"plot\">");
    draw_legend(plot, html);
    oct_html_put(html, "<svg viewBox=\"0 0 %d %d\" role=\"img\">", WIDTH, HEIGHT);
    describe(&f);
    draw_spans(&f);
    draw_axes(&f);
    for (size_t i = 0; i < plot->count; i++)
        draw_curve(&f, &plot->curve[i]);
    oct_html_put(html, "</svg></figure>\n");
}
