/* Draws a diagram in layers (Sugiyama, Tagawa and Toda 1981, in its simplest form).
 *
 * A box is one layer below the lowest of those that lead to it. An arrow over several layers gets a bend
 * in each layer between. Within a layer, items stand in the order of the means of their neighbours; then
 * each is pulled to the mean of its neighbours as far as those beside it let it go.
 */
#include "launch/report/diagram.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { BOX_WIDTH = 196, BOX_HEIGHT = 50, LAYER_GAP = 24, BEND_WIDTH = 10, GAP = 16 };
enum { SWEEPS = 8, BENDS_MAX = 20000, LETTERS = 30, MARGIN = 8 };

/* A box, or a bend of an arrow. */
typedef struct item {
    size_t layer, place;
    double x, wish;
    bool bend;
} item;

typedef struct link {
    size_t from, to; /* items in neighbouring layers */
} link;

typedef struct layout {
    const oct_diagram *diagram;
    item *items; /* the first ones are the boxes */
    size_t num_items, item_capacity;
    link *links;
    size_t num_links, link_capacity;
    size_t *first_link; /* of each arrow; its links follow each other. One more at the end */
    size_t layers;
    size_t *order;  /* items by layer and place */
    size_t *begin;  /* of each layer in `order`; one more at the end */
    double *weight; /* scratch, an item each */
    double *goal;
    size_t *length;
} layout;

static oct_status add_item(layout *l, item new, size_t *number)
{
    OCT_TRY(oct_grow(&l->items, &l->item_capacity, l->num_items + 1, sizeof *l->items));
    *number = l->num_items++;
    l->items[*number] = new;
    return OCT_OK;
}

static oct_status add_link(layout *l, size_t from, size_t to)
{
    OCT_TRY(oct_grow(&l->links, &l->link_capacity, l->num_links + 1, sizeof *l->links));
    l->links[l->num_links++] = (link){from, to};
    return OCT_OK;
}

/* Arrows are in the order of the boxes that they lead to. */
static oct_status add_boxes(layout *l)
{
    size_t number;
    for (size_t i = 0; i < l->diagram->boxes; i++)
        OCT_TRY(add_item(l, (item){0}, &number));
    for (size_t i = 0; i < l->diagram->arrows; i++) {
        const oct_diagram_arrow *a = &l->diagram->arrow[i];
        item *to = &l->items[a->to];
        if (to->layer <= l->items[a->from].layer) to->layer = l->items[a->from].layer + 1;
    }
    for (size_t i = 0; i < l->num_items; i++)
        if (l->items[i].layer >= l->layers) l->layers = l->items[i].layer + 1;
    return OCT_OK;
}

static oct_status add_links(layout *l)
{
    for (size_t i = 0; i < l->diagram->arrows; i++) {
        const oct_diagram_arrow *a = &l->diagram->arrow[i];
        size_t from = a->from, end = l->items[a->to].layer;
        l->first_link[i] = l->num_links;
        for (size_t layer = l->items[a->from].layer + 1; layer < end; layer++) {
            size_t bend;
            if (l->num_items - l->diagram->boxes >= BENDS_MAX) break;
            OCT_TRY(add_item(l, (item){.layer = layer, .bend = true}, &bend));
            OCT_TRY(add_link(l, from, bend));
            from = bend;
        }
        OCT_TRY(add_link(l, from, a->to));
    }
    l->first_link[l->diagram->arrows] = l->num_links;
    return OCT_OK;
}

/* Puts the items into `order` by their layers, in each in the order of their numbers. */
static void fill_layers(layout *l)
{
    for (size_t i = 0; i < l->num_items; i++)
        l->begin[l->items[i].layer + 1]++;
    for (size_t layer = 0; layer < l->layers; layer++)
        l->begin[layer + 1] += l->begin[layer];
    memset(l->length, 0, l->num_items * sizeof *l->length);
    for (size_t i = 0; i < l->num_items; i++) {
        size_t layer = l->items[i].layer;
        l->items[i].place = l->length[layer]++;
        l->order[l->begin[layer] + l->items[i].place] = i;
        l->items[i].x = (double)l->items[i].place * BOX_WIDTH;
    }
}

/* Wishes are means of neighbours: of those above, below or both. */
static void find_wishes(layout *l, bool above, bool below)
{
    for (size_t i = 0; i < l->num_items; i++)
        l->items[i].wish = l->weight[i] = 0;
    for (size_t i = 0; i < l->num_links; i++) {
        item *from = &l->items[l->links[i].from], *to = &l->items[l->links[i].to];
        if (above) {
            to->wish += from->x;
            l->weight[l->links[i].to]++;
        }
        if (below) {
            from->wish += to->x;
            l->weight[l->links[i].from]++;
        }
    }
    for (size_t i = 0; i < l->num_items; i++)
        l->items[i].wish = l->weight[i] > 0 ? l->items[i].wish / l->weight[i] : l->items[i].x;
}

static double width_of(const item *it)
{
    return it->bend ? BEND_WIDTH : BOX_WIDTH;
}

/* Stable: items of equal wishes keep their places. */
static void sort_layer(layout *l, size_t layer)
{
    size_t *order = l->order + l->begin[layer], count = l->begin[layer + 1] - l->begin[layer];
    for (size_t i = 1; i < count; i++) {
        size_t moving = order[i], at = i;
        for (; at > 0 && l->items[order[at - 1]].wish > l->items[moving].wish; at--)
            order[at] = order[at - 1];
        order[at] = moving;
    }
    for (size_t i = 0; i < count; i++)
        l->items[order[i]].place = i;
}

/* The places nearest to the wishes, in squares, that keep order and distances: pooling of neighbours that
 * would overlap (isotonic regression). */
static void place_layer(layout *l, size_t layer)
{
    size_t *order = l->order + l->begin[layer], count = l->begin[layer + 1] - l->begin[layer];
    size_t pools = 0;
    double offset = 0;
    for (size_t i = 0; i < count; i++) {
        const item *it = &l->items[order[i]];
        if (i > 0) offset += (width_of(it) + width_of(&l->items[order[i - 1]])) / 2 + GAP;
        l->goal[pools] = it->wish - offset;
        l->length[pools++] = 1;
        for (; pools > 1 && l->goal[pools - 2] > l->goal[pools - 1]; pools--) {
            double a = (double)l->length[pools - 2], b = (double)l->length[pools - 1];
            l->goal[pools - 2] = (a * l->goal[pools - 2] + b * l->goal[pools - 1]) / (a + b);
            l->length[pools - 2] += l->length[pools - 1];
        }
    }
    offset = 0;
    for (size_t i = 0, pool = 0, left = count ? l->length[0] : 0; i < count; i++, left--) {
        item *it = &l->items[order[i]];
        if (i > 0) offset += (width_of(it) + width_of(&l->items[order[i - 1]])) / 2 + GAP;
        if (left == 0) left = l->length[++pool];
        it->x = l->goal[pool] + offset;
    }
}

static void sweep(layout *l, bool down, bool both)
{
    for (size_t i = 0; i < l->layers; i++) {
        size_t layer = down ? i : l->layers - 1 - i;
        find_wishes(l, down || both, !down || both);
        if (!both) sort_layer(l, layer);
        place_layer(l, layer);
    }
}

static void arrange(layout *l)
{
    fill_layers(l);
    for (size_t layer = 0; layer < l->layers; layer++)
        place_layer(l, layer);
    for (int i = 0; i < SWEEPS; i++)
        sweep(l, i % 2 == 0, false);
    for (int i = 0; i < SWEEPS; i++)
        sweep(l, i % 2 == 0, true);
}

/* Moves the drawing to the left edge; returns its width. */
static double move_left(layout *l)
{
    double low = 0, high = 0;
    for (size_t i = 0; i < l->num_items; i++) {
        double half = width_of(&l->items[i]) / 2, x = l->items[i].x;
        if (i == 0 || x - half < low) low = x - half;
        if (i == 0 || x + half > high) high = x + half;
    }
    for (size_t i = 0; i < l->num_items; i++)
        l->items[i].x += MARGIN - low;
    return high - low + 2 * MARGIN;
}

static double top_of(size_t layer)
{
    return MARGIN + (double)layer * (BOX_HEIGHT + LAYER_GAP);
}

static void draw_arrow(const layout *l, size_t i, oct_html *h)
{
    const item *to = NULL;
    oct_html_put(h, "<path class=\"edge-line%s\" d=\"", l->diagram->arrow[i].codes ? "" : " float");
    for (size_t k = l->first_link[i]; k < l->first_link[i + 1]; k++) {
        const item *from = &l->items[l->links[k].from];
        to = &l->items[l->links[k].to];
        double y0 = top_of(from->layer) + BOX_HEIGHT, y1 = top_of(to->layer),
               middle = (y0 + y1) / 2;
        if (k == l->first_link[i])
            oct_html_put(h, "M%.1f %.1f", from->x, y0);
        else
            oct_html_put(h, "V%.1f", y0);
        if (from->x > to->x - 0.05 && from->x < to->x + 0.05)
            oct_html_put(h, "V%.1f", y1);
        else
            oct_html_put(h, "C%.1f %.1f %.1f %.1f %.1f %.1f", from->x, middle, to->x, middle, to->x,
                         y1);
    }
    oct_html_put(h, "\"/><path class=\"head\" d=\"M%.1f %.1fl-4-7h8z\"/>", to->x,
                 top_of(to->layer));
}

static void draw_box(const layout *l, size_t i, oct_html *h)
{
    static const char *const classes[] = {
        [OCT_BOX_PLAIN] = "node",
        [OCT_BOX_WEIGHTS] = "node weights",
        [OCT_BOX_BORDER] = "node border",
        [OCT_BOX_ISLAND] = "node island",
    };
    const oct_diagram_box *box = &l->diagram->box[i];
    const double x = l->items[i].x, y = top_of(l->items[i].layer);
    oct_html_put(h, "<g><title>");
    for (int line = 0; line < OCT_BOX_LINES && box->line[line]; line++) {
        oct_html_put(h, line ? "; " : "");
        oct_html_cut(h, box->line[line], 128);
    }
    oct_html_put(h,
                 "</title><rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" "
                 "rx=\"6\"/>",
                 classes[box->kind], x - BOX_WIDTH / 2.0, y, BOX_WIDTH, BOX_HEIGHT);
    for (int line = 0; line < OCT_BOX_LINES && box->line[line]; line++) {
        oct_html_put(h, "<text%s x=\"%.1f\" y=\"%.1f\">", line ? " class=\"small\"" : "", x,
                     y + 16 + 14 * line);
        oct_html_cut(h, box->line[line], LETTERS);
        oct_html_put(h, "</text>");
    }
    oct_html_put(h, "</g>\n");
}

static void draw(layout *l, const char *title, oct_html *h)
{
    double width = move_left(l), height = top_of(l->layers) - LAYER_GAP + MARGIN;
    oct_html_put(h,
                 "<svg width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
                 "role=\"img\"><title>%s</title>\n",
                 width, height, width, height, title);
    for (size_t i = 0; i < l->diagram->arrows; i++)
        draw_arrow(l, i, h);
    for (size_t i = 0; i < l->diagram->boxes; i++)
        draw_box(l, i, h);
    oct_html_put(h, "</svg>\n");
}

static oct_status lay_out(layout *l)
{
    OCT_TRY(oct_alloc(&l->first_link, l->diagram->arrows + 1, sizeof *l->first_link));
    OCT_TRY(add_boxes(l));
    OCT_TRY(add_links(l));
    OCT_TRY(oct_alloc(&l->order, l->num_items, sizeof *l->order));
    OCT_TRY(oct_alloc(&l->begin, l->layers + 1, sizeof *l->begin));
    OCT_TRY(oct_alloc(&l->weight, l->num_items, sizeof *l->weight));
    OCT_TRY(oct_alloc(&l->goal, l->num_items, sizeof *l->goal));
    OCT_TRY(oct_alloc(&l->length, l->num_items, sizeof *l->length));
    arrange(l);
    return OCT_OK;
}

void oct_diagram_draw(const oct_diagram *diagram, const char *title, oct_html *html)
{
    layout l = {.diagram = diagram};
    if (html->status != OCT_OK || diagram->boxes == 0) return;
    html->status = lay_out(&l);
    if (html->status == OCT_OK) draw(&l, title, html);
    oct_free(&l.items);
    oct_free(&l.links);
    oct_free(&l.first_link);
    oct_free(&l.order);
    oct_free(&l.begin);
    oct_free(&l.weight);
    oct_free(&l.goal);
    oct_free(&l.length);
}
