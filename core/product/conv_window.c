/* See the header. Both directions are the same along each axis: position `at` reaches the taps first,
 * first + step, ..., and tap k looks at place base + k * advance of x, where only base depends on the
 * position. So positions that reach the same taps share their runs. */
#include "core/product/conv_window.h"

#include "core/base/whole.h"

#include <string.h>

/* One side of the geometry. */
typedef struct axis {
    int64_t positions; /* of the result */
    int64_t places;    /* of x */
    int64_t kernel, stride, padding;
    bool backward;
} axis;

typedef struct reach {
    int64_t first, count;
} reach;

static axis axis_of(const oct_conv_shape *s, oct_direction direction, bool vertical)
{
    const int64_t in = vertical ? s->in_h : s->in_w, out = vertical ? s->out_h : s->out_w;
    const bool backward = direction == OCT_BACKWARD;
    return (axis){.positions = backward ? in : out,
                  .places = backward ? out : in,
                  .kernel = vertical ? s->kernel_h : s->kernel_w,
                  .stride = s->stride,
                  .padding = s->padding,
                  .backward = backward};
}

static int64_t step_of(const axis *a)
{
    return a->backward ? a->stride : 1;
}

static reach reach_of(const axis *a, int64_t at)
{
    int64_t first, last;
    if (a->backward) { /* place (at + padding - k) / stride, where that is whole */
        const int64_t top = at + a->padding;
        first = oct_max_i64(top % a->stride, top - (a->places - 1) * a->stride);
        last = oct_min_i64(a->kernel - 1, top);
    } else {
        const int64_t start = at * a->stride - a->padding;
        first = oct_max_i64(-start, 0);
        last = oct_min_i64(a->kernel, a->places - start) - 1;
    }
    if (last < first) return (reach){0, 0};
    return (reach){first, (last - first) / step_of(a) + 1};
}

/* What tap k of a position looks at is place base_of + place_of_tap. */
static int64_t base_of(const axis *a, int64_t at)
{
    return a->backward ? (at + a->padding) / a->stride : at * a->stride - a->padding;
}

static int64_t place_of_tap(const axis *a, int64_t tap)
{
    return a->backward ? -(tap / a->stride) : tap;
}

static bool same_reach(reach a, reach b)
{
    return a.first == b.first && a.count == b.count;
}

/* How many different reaches an axis has. */
static int64_t count_reaches(const axis *a)
{
    int64_t found = 0;
    for (int64_t at = 0; at < a->positions; at++) {
        int64_t earlier = 0;
        while (!same_reach(reach_of(a, earlier), reach_of(a, at)))
            earlier++;
        found += earlier == at;
    }
    return found;
}

/* The reaches in order of their first position, and which of them each position has. */
static void list_reaches(const axis *a, reach *list, int64_t *number)
{
    int64_t found = 0;
    for (int64_t at = 0; at < a->positions; at++) {
        const reach r = reach_of(a, at);
        int64_t i = 0;
        while (i < found && !same_reach(list[i], r))
            i++;
        number[at] = i;
        if (i == found) list[found++] = r;
    }
}

/* Sizes of the tables. */
typedef struct extent {
    axis y, x;
    int64_t positions, period, lines, blocks; /* lines: of a block */
    int64_t reaches_y, reaches_x;
    int64_t classes, rows, runs;
} extent;

static extent extent_of(const oct_conv_shape *s, oct_direction direction,
                        const oct_conv_window_layout *layout)
{
    extent e = {.y = axis_of(s, direction, true), .x = axis_of(s, direction, false)};
    e.positions = e.y.positions * e.x.positions;
    e.period = oct_max_i64(layout->wanted / e.positions, 1);
    const int64_t most = oct_max_i64(layout->wanted / e.x.positions, 1);
    e.blocks = e.period > 1 ? 1 : (e.y.positions + most - 1) / most;
    e.lines = (e.y.positions + e.blocks - 1) / e.blocks;
    e.blocks = (e.y.positions + e.lines - 1) / e.lines;
    e.reaches_y = count_reaches(&e.y);
    e.reaches_x = count_reaches(&e.x);
    e.classes = e.blocks * oct_min_i64(e.lines, e.reaches_y) * e.reaches_x;
    e.rows = e.positions * e.period;
    e.runs = e.reaches_y * e.reaches_x * s->kernel_h * s->kernel_w;
    return e;
}

/* The tables at work. */
typedef struct builder {
    extent e;
    const oct_conv_window_layout *layout;
    int64_t pitch, sample; /* bytes of a line of x, of a sample */
    reach *reach_y, *reach_x;
    int64_t *number_y, *number_x; /* of each position */
    oct_conv_window_block *blocks;
    oct_conv_window_class *classes;
    oct_row *rows;
    oct_run *runs;
    oct_conv_window_class *of_reach; /* runs of (reach_y, reach_x); its rows are not used */
    int64_t num_classes, num_rows, num_runs;
} builder;

static size_t bytes_of(const extent *e)
{
    return (size_t)e->blocks * sizeof(oct_conv_window_block) +
           (size_t)(e->classes + e->reaches_y * e->reaches_x) * sizeof(oct_conv_window_class) +
           (size_t)e->rows * sizeof(oct_row) + (size_t)e->runs * sizeof(oct_run) +
           (size_t)(e->reaches_y + e->reaches_x) * sizeof(reach) +
           (size_t)(e->y.positions + e->x.positions) * sizeof(int64_t);
}

size_t oct_window_bytes(const oct_conv_shape *s, oct_direction direction,
                        const oct_conv_window_layout *layout)
{
    const extent e = extent_of(s, direction, layout);
    return bytes_of(&e);
}

static void *carve(char **at, int64_t count, size_t size)
{
    void *taken = *at;
    *at += (size_t)count * size;
    return taken;
}

static void add_run(builder *b, const oct_conv_window_class *c, oct_run run)
{
    oct_run *last = b->num_runs > c->first_run ? &b->runs[b->num_runs - 1] : NULL;
    if (last && last->x + 4 * last->words == run.x && last->tile + last->words == run.tile)
        last->words += run.words;
    else
        b->runs[b->num_runs++] = run;
}

static void list_runs(builder *b, reach y, reach x, oct_conv_window_class *c)
{
    const axis *ay = &b->e.y, *ax = &b->e.x;
    const int64_t words = b->layout->tap_words;
    c->first_run = b->num_runs;
    for (int64_t i = 0; i < y.count; i++) {
        const int64_t ky = y.first + i * step_of(ay);
        for (int64_t j = 0; j < x.count; j++) {
            const int64_t kx = x.first + j * step_of(ax);
            add_run(b, c,
                    (oct_run){.x = place_of_tap(ay, ky) * b->pitch +
                                   place_of_tap(ax, kx) * b->layout->pixel_bytes,
                              .tile = (ky * ax->kernel + kx) * words,
                              .words = words});
        }
    }
    c->runs = b->num_runs - c->first_run;
}

/* Rows of the positions of a block's lines [first, end) with reaches number y and x. */
static void list_rows(builder *b, int64_t first, int64_t end, int64_t y, int64_t x)
{
    const axis *ay = &b->e.y, *ax = &b->e.x;
    for (int64_t n = 0; n < b->e.period; n++) {
        for (int64_t line = first; line < end; line++) {
            if (b->number_y[line] != y) continue;
            for (int64_t at = 0; at < ax->positions; at++) {
                if (b->number_x[at] != x) continue;
                const int64_t position = n * b->e.positions + (line - first) * ax->positions + at;
                b->rows[b->num_rows++] =
                    (oct_row){.x = n * b->sample + base_of(ay, line) * b->pitch +
                                   base_of(ax, at) * b->layout->pixel_bytes,
                              .acc = position * b->layout->acc_stride};
            }
        }
    }
}

static void list_classes(builder *b, int64_t first, int64_t end)
{
    for (int64_t i = 0; i < b->e.reaches_y; i++) {
        for (int64_t j = 0; j < b->e.reaches_x; j++) {
            oct_conv_window_class c = b->of_reach[i * b->e.reaches_x + j];
            c.first_row = b->num_rows;
            list_rows(b, first, end, i, j);
            c.rows = b->num_rows - c.first_row;
            if (c.rows > 0) b->classes[b->num_classes++] = c;
        }
    }
}

void oct_window_init(oct_conv_window *w, const oct_conv_shape *s, oct_direction direction,
                     const oct_conv_window_layout *layout, void *memory)
{
    builder b = {.e = extent_of(s, direction, layout), .layout = layout};
    const extent *e = &b.e;
    char *at = memory;
    b.pitch = e->x.places * layout->pixel_bytes;
    b.sample = e->y.places * b.pitch;
    b.blocks = carve(&at, e->blocks, sizeof *b.blocks);
    b.classes = carve(&at, e->classes, sizeof *b.classes);
    b.of_reach = carve(&at, e->reaches_y * e->reaches_x, sizeof *b.of_reach);
    b.rows = carve(&at, e->rows, sizeof *b.rows);
    b.runs = carve(&at, e->runs, sizeof *b.runs);
    b.reach_y = carve(&at, e->reaches_y, sizeof *b.reach_y);
    b.reach_x = carve(&at, e->reaches_x, sizeof *b.reach_x);
    b.number_y = carve(&at, e->y.positions, sizeof *b.number_y);
    b.number_x = carve(&at, e->x.positions, sizeof *b.number_x);
    list_reaches(&e->y, b.reach_y, b.number_y);
    list_reaches(&e->x, b.reach_x, b.number_x);
    for (int64_t i = 0; i < e->reaches_y; i++)
        for (int64_t j = 0; j < e->reaches_x; j++)
            list_runs(&b, b.reach_y[i], b.reach_x[j], &b.of_reach[i * e->reaches_x + j]);

    const int64_t width = e->x.positions;
    for (int64_t i = 0; i < e->blocks; i++) {
        const int64_t first = i * e->lines;
        const int64_t end = oct_min_i64(first + e->lines, e->y.positions);
        const int64_t first_class = b.num_classes;
        list_classes(&b, first, end);
        b.blocks[i] = (oct_conv_window_block){.position = first * width,
                                              .positions = (end - first) * width * e->period,
                                              .first_class = first_class,
                                              .classes = b.num_classes - first_class};
    }
    *w = (oct_conv_window){.period = e->period,
                           .positions = e->positions,
                           .x_bytes = b.sample,
                           .max_block = e->lines * width * e->period,
                           .num_blocks = e->blocks,
                           .blocks = b.blocks,
                           .classes = b.classes,
                           .rows = b.rows,
                           .runs = b.runs};
}

oct_product oct_conv_window_product(const oct_conv_window *w, const oct_conv_window_class *c,
                                    int64_t samples, const void *x, void *acc)
{
    return (oct_product){.x = x,
                         .rows = w->rows + c->first_row,
                         .m = c->rows / w->period * samples,
                         .runs = w->runs + c->first_run,
                         .num_runs = c->runs,
                         .acc = acc};
}
