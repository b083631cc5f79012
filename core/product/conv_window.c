/* Both directions are the same along each axis: position `at` reaches the taps first, first + step, ...,
 * and tap k looks at pixel base + k * advance of x, where only base depends on the position. So positions
 * that reach the same taps share their runs. */
#include "core/product/conv_window.h"

#include "core/base/mem.h"
#include "core/base/int_math.h"

#include <string.h>

/* A position reaches taps first, first + step, ... of an axis. */
typedef struct reach {
    int64_t first, count;
} reach;

/* Divides and rounds up; of a negative n 0. */
static int64_t divide_up(int64_t n, int64_t divisor)
{
    return n > 0 ? (n + divisor - 1) / divisor : 0;
}

/* Returns the taps k, a->step apart, that look at a whole pixel (top - k * dilation) / stride of x. */
static reach reach_backward(const oct_conv_axis *a, int64_t top)
{
    int64_t first = divide_up(top - (a->pixels - 1) * a->stride, a->dilation);
    const int64_t last = oct_min_i64(a->kernel - 1, top / a->dilation), least = first;
    while (first <= last && (top - first * a->dilation) % a->stride != 0)
        if (++first == least + a->step) return (reach){0, 0};
    if (last < first) return (reach){0, 0};
    return (reach){first, (last - first) / a->step + 1};
}

/* Returns the taps that position `at` reaches: forward those that look into the input; {0, 0}: none. */
static reach reach_of(const oct_conv_axis *a, int64_t at)
{
    if (a->backward) return reach_backward(a, at + a->padding);
    const int64_t start = at * a->stride - a->padding, after = a->pixels - start;
    const int64_t first = divide_up(-start, a->dilation);
    const int64_t end = oct_min_i64(a->kernel, divide_up(after, a->dilation));
    return end <= first ? (reach){0, 0} : (reach){first, end - first};
}

/* Tap k of a position looks at pixel base_pixel + pixel_of_tap. */
static int64_t base_pixel(const oct_conv_axis *a, int64_t at)
{
    return a->backward ? (at + a->padding) / a->stride : at * a->stride - a->padding;
}

static int64_t pixel_of_tap(const oct_conv_axis *a, int64_t tap)
{
    return a->backward ? -(tap * a->dilation / a->stride) : tap * a->dilation;
}

static bool reach_equal(reach a, reach b)
{
    return a.first == b.first && a.count == b.count;
}

/* Lists the different reaches in order of their first position, and for each position the number of its reach. */
static void list_reaches(const oct_conv_axis *a, reach *list, int64_t *number)
{
    int64_t found = 0;
    for (int64_t at = 0; at < a->positions; at++) {
        const reach r = reach_of(a, at);
        int64_t i = 0;
        while (i < found && !reach_equal(list[i], r))
            i++;
        number[at] = i;
        if (i == found) list[found++] = r;
    }
}

/* Describes one side of the geometry, and counts the different reaches of its positions. */
static oct_conv_axis axis_of(const oct_conv_shape *s, oct_direction direction, bool vertical)
{
    const int64_t in = vertical ? s->in_h : s->in_w, out = vertical ? s->out_h : s->out_w;
    const bool backward = direction == OCT_BACKWARD;
    oct_conv_axis a = {.positions = backward ? in : out,
                       .pixels = backward ? out : in,
                       .kernel = vertical ? s->kernel_h : s->kernel_w,
                       .stride = vertical ? s->stride_h : s->stride_w,
                       .padding = vertical ? s->pad_top : s->pad_left,
                       .dilation = vertical ? s->dilation_h : s->dilation_w,
                       .step = 1,
                       .backward = backward};
    if (backward) { /* the least number of taps whose distance is a whole number of strides: stride / gcd */
        int64_t divisor = a.stride;
        for (int64_t b = a.dilation, rest; b != 0; divisor = b, b = rest)
            rest = divisor % b;
        a.step = a.stride / divisor;
    }
    for (int64_t at = 0; at < a.positions; at++) {
        int64_t earlier = 0;
        while (!reach_equal(reach_of(&a, earlier), reach_of(&a, at)))
            earlier++;
        a.reaches += earlier == at;
    }
    return a;
}

/* A builder fills the tables. */
typedef struct builder {
    const oct_conv_window *w;
    int64_t line_bytes;           /* of x */
    reach *reach_y, *reach_x;     /* the different ones */
    int64_t *number_y, *number_x; /* of each position */
    oct_conv_window_block *blocks;
    oct_conv_window_class *classes;
    oct_conv_window_class *of_reach; /* runs of (reach_y, reach_x); its rows are not used */
    oct_row *rows;
    oct_run *runs;
    int64_t num_classes, num_rows, num_runs;
} builder;

/* Divides `memory` among the tables (NULL: only counts) and returns their bytes. */
static size_t lay_out_tables(builder *b, void *memory)
{
    const oct_conv_window *w = b->w;
    const oct_conv_axis *y = &w->y_axis, *x = &w->x_axis;
    const int64_t pairs = y->reaches * x->reaches;
    const int64_t classes = w->num_blocks * oct_min_i64(w->lines, y->reaches) * x->reaches;
    size_t used = 0;
#define TABLE(name, count) b->name = oct_carve(memory, &used, (size_t)(count) * sizeof *b->name)
    TABLE(blocks, w->num_blocks);
    TABLE(classes, classes);
    TABLE(of_reach, pairs);
    TABLE(rows, w->positions * w->period);
    TABLE(runs, pairs * y->kernel * x->kernel);
    TABLE(reach_y, y->reaches);
    TABLE(reach_x, x->reaches);
    TABLE(number_y, y->positions);
    TABLE(number_x, x->positions);
#undef TABLE
    return used;
}

/* Lists the taps that positions with these reaches see as the runs of a class. */
static void list_runs(builder *b, reach y, reach x, oct_conv_window_class *c)
{
    const oct_conv_axis *ay = &b->w->y_axis, *ax = &b->w->x_axis;
    const oct_conv_window_layout *layout = &b->w->layout;
    *c = (oct_conv_window_class){.first_run = b->num_runs};
    for (int64_t i = 0; i < y.count; i++) {
        const int64_t ky = y.first + i * ay->step;
        for (int64_t j = 0; j < x.count; j++) {
            const int64_t kx = x.first + j * ax->step;
            oct_runs_add(b->runs + c->first_run, &c->runs,
                         (oct_run){.x = pixel_of_tap(ay, ky) * b->line_bytes +
                                        pixel_of_tap(ax, kx) * layout->pixel_bytes,
                                   .tile = (ky * ax->kernel + kx) * layout->tap_words,
                                   .words = layout->tap_words});
        }
    }
    b->num_runs += c->runs;
}

/* Lists the rows of a block, lines [first, end): the positions that see the taps of reaches number y and x. */
static void list_rows(builder *b, int64_t first, int64_t end, int64_t y, int64_t x)
{
    const oct_conv_window *w = b->w;
    const oct_conv_axis *ay = &w->y_axis, *ax = &w->x_axis;
    for (int64_t n = 0; n < w->period; n++) {
        for (int64_t line = first; line < end; line++) {
            if (b->number_y[line] != y) continue;
            for (int64_t at = 0; at < ax->positions; at++) {
                if (b->number_x[at] != x) continue;
                const int64_t position = n * w->positions + (line - first) * ax->positions + at;
                b->rows[b->num_rows++] =
                    (oct_row){.x = n * w->x_bytes + base_pixel(ay, line) * b->line_bytes +
                                   base_pixel(ax, at) * w->layout.pixel_bytes,
                              .acc = position * w->layout.acc_stride};
            }
        }
    }
}

/* Lists the classes of a block, lines [first, end): the pairs of reaches in y and x that its positions have. */
static void list_classes(builder *b, int64_t first, int64_t end)
{
    const int64_t reaches_y = b->w->y_axis.reaches, reaches_x = b->w->x_axis.reaches;
    for (int64_t i = 0; i < reaches_y; i++) {
        for (int64_t j = 0; j < reaches_x; j++) {
            oct_conv_window_class c = b->of_reach[i * reaches_x + j];
            c.first_row = b->num_rows;
            list_rows(b, first, end, i, j);
            c.rows = b->num_rows - c.first_row;
            c.number = i * reaches_x + j;
            if (c.rows > 0) b->classes[b->num_classes++] = c;
        }
    }
}

/* A block is `period` samples where planes are small, else some lines of one sample. */
void oct_conv_window_init(oct_conv_window *w, const oct_conv_shape *s, oct_direction direction,
                          const oct_conv_window_layout *layout)
{
    *w = (oct_conv_window){.layout = *layout,
                           .y_axis = axis_of(s, direction, true),
                           .x_axis = axis_of(s, direction, false)};
    const int64_t height = w->y_axis.positions, width = w->x_axis.positions;
    const int64_t max_lines = oct_max_i64(layout->wanted / width, 1);
    w->positions = height * width;
    w->x_bytes = w->y_axis.pixels * w->x_axis.pixels * layout->pixel_bytes;
    w->period = oct_max_i64(layout->wanted / w->positions, 1);
    const int64_t blocks = w->period > 1 ? 1 : (height + max_lines - 1) / max_lines;
    w->lines = (height + blocks - 1) / blocks;
    w->num_blocks = (height + w->lines - 1) / w->lines;
    builder b = {.w = w};
    w->table_bytes = lay_out_tables(&b, NULL);
}

void oct_conv_window_tables(oct_conv_window *w, void *memory)
{
    const oct_conv_axis *y = &w->y_axis, *x = &w->x_axis;
    builder b = {.w = w, .line_bytes = x->pixels * w->layout.pixel_bytes};
    lay_out_tables(&b, memory);
    list_reaches(y, b.reach_y, b.number_y);
    list_reaches(x, b.reach_x, b.number_x);
    for (int64_t i = 0; i < y->reaches; i++)
        for (int64_t j = 0; j < x->reaches; j++)
            list_runs(&b, b.reach_y[i], b.reach_x[j], &b.of_reach[i * x->reaches + j]);

    for (int64_t i = 0; i < w->num_blocks; i++) {
        const int64_t first = i * w->lines, first_class = b.num_classes;
        const int64_t end = oct_min_i64(first + w->lines, y->positions);
        list_classes(&b, first, end);
        b.blocks[i] = (oct_conv_window_block){.position = first * x->positions,
                                              .positions = (end - first) * x->positions * w->period,
                                              .first_class = first_class,
                                              .classes = b.num_classes - first_class};
    }
    w->blocks = b.blocks;
    w->classes = b.classes;
    w->rows = b.rows;
    w->runs = b.runs;
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
