/* Bars outside of the codes have a colour of their own: these values are clipped. */
#include "launch/report/histogram.h"

#include "launch/report/series.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 320, HEIGHT = 130, LEFT = 8, RIGHT = 8, TOP = 16, BOTTOM = 34 };
enum { TICK_GAP = 5 }; /* between codes that are drawn */

typedef struct bars {
    const oct_page_histogram *histogram;
    const oct_code_grid *grid;
    oct_html *html;
    double most;
    double low, high; /* what is drawn: where bars or codes are */
} bars;

static double place(const bars *b, double value)
{
    double share = (value - b->low) / (b->high - b->low);
    return LEFT + fmax(0, fmin(1, share)) * (WIDTH - LEFT - RIGHT);
}

static double edge_of(const oct_page_histogram *h, size_t bin)
{
    return h->from + (double)bin * (h->to - h->from) / OCT_BINS;
}

static bool has_grid(const bars *b)
{
    return b->grid->step > 0 && b->grid->low < b->grid->high;
}

/* Bins are wider than codes: one that reaches in among the codes is not outside. */
static bool is_clipped(const bars *b, size_t bin)
{
    const double half = b->grid->step / 2;
    return has_grid(b) && (edge_of(b->histogram, bin + 1) < b->grid->low - half ||
                           edge_of(b->histogram, bin) > b->grid->high + half);
}

static void draw_bars(const bars *b, bool clipped)
{
    const double room = HEIGHT - TOP - BOTTOM;
    bool any = false;
    for (size_t i = 0; i < OCT_BINS; i++) {
        double height = fmax(1, sqrt(b->histogram->counts[i] / b->most) * room);
        if (b->histogram->counts[i] <= 0 || is_clipped(b, i) != clipped) continue;
        double x = place(b, edge_of(b->histogram, i)), end = place(b, edge_of(b->histogram, i + 1));
        if (!any) oct_html_put(b->html, "<path class=\"bar%s\" d=\"", clipped ? " out" : "");
        any = true;
        oct_html_put(b->html, "M%.1f %dv-%.1fh%.1fv%.1fz", x, HEIGHT - BOTTOM, height,
                     fmax(end - x - 0.6, 0.6), height);
    }
    if (any) oct_html_put(b->html, "\"/>");
}

/* The ground where codes are, and a tick for every so many codes. */
static void draw_grid(const bars *b)
{
    const oct_code_grid *g = b->grid;
    double low = place(b, g->low), high = place(b, g->high);
    double codes = (g->high - g->low) / g->step, every = 1;
    while (every < codes && (high - low) / codes * every < TICK_GAP)
        every *= 2;
    oct_html_put(b->html,
                 "<rect class=\"codes\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>"
                 "<path class=\"code-grid\" d=\"",
                 low, TOP, high - low, HEIGHT - TOP - BOTTOM);
    for (double code = 0; code <= codes + 0.5; code += every) {
        double value = g->low + code * g->step;
        if (value < b->low || value > b->high) continue;
        oct_html_put(b->html, "M%.1f %dv4", place(b, value), HEIGHT - BOTTOM);
    }
    oct_html_put(b->html, "\"/>");
    if (high - low < 60) return;
    oct_html_put(b->html,
                 "<text class=\"tick first\" x=\"%.1f\" y=\"%d\">code %.0f</text>"
                 "<text class=\"tick last\" x=\"%.1f\" y=\"%d\">%.0f</text>",
                 low, TOP - 4, g->low_code, high, TOP - 4, g->high_code);
}

/* Bins at both ends may be empty. */
static void find_view(bars *b)
{
    const oct_page_histogram *h = b->histogram;
    size_t first = 0, last = OCT_BINS;
    while (first < OCT_BINS && h->counts[first] <= 0)
        first++;
    while (last > first && h->counts[last - 1] <= 0)
        last--;
    b->low = edge_of(h, first);
    b->high = edge_of(h, last);
    if (!has_grid(b)) return;
    b->low = fmin(b->low, fmax(b->grid->low, h->from));
    b->high = fmax(b->high, fmin(b->grid->high, h->to));
}

static void draw_axis(const bars *b)
{
    char text[32];
    oct_plot_axis axis = oct_plot_axis_of(b->low, b->high, 4);
    oct_html_put(b->html, "<line class=\"axis\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>", LEFT,
                 HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM);
    for (size_t i = 0; i < axis.count; i++) {
        double x = place(b, axis.tick[i]);
        if (axis.tick[i] < b->low || axis.tick[i] > b->high || x > WIDTH - RIGHT - 10) continue;
        oct_html_put(b->html, "<text class=\"tick %s\" x=\"%.1f\" y=\"%d\">%s</text>",
                     x < LEFT + 10 ? "first" : "x", x, HEIGHT - BOTTOM + 17,
                     oct_plot_axis_text(&axis, axis.tick[i], text));
    }
}

void oct_page_histogram_draw(oct_html *html, const char *title, const oct_page_histogram *histogram,
                             const oct_code_grid *grid)
{
    bars b = {.histogram = histogram, .grid = grid, .html = html};
    if (!(histogram->from < histogram->to)) return;
    double all = 0;
    for (size_t i = 0; i < OCT_BINS; i++) {
        b.most = fmax(b.most, histogram->counts[i]);
        all += histogram->counts[i];
    }
    if (b.most <= 0) return;
    oct_html_put(
        html,
        "<figure class=\"histogram\"><figcaption>%s</figcaption><svg viewBox=\"0 0 %d %d\" "
        "role=\"img\"><title>%s</title><desc>%.0f values from %.5g to %.5g</desc>",
        title, WIDTH, HEIGHT, title, all, histogram->from, histogram->to);
    find_view(&b);
    if (has_grid(&b)) draw_grid(&b);
    draw_bars(&b, false);
    draw_bars(&b, true);
    draw_axis(&b);
    oct_html_put(html, "</svg></figure>\n");
}
