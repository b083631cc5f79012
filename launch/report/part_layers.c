/* Every layer: codes, range, what quantizing costs it in accuracy, what it costs in work and bytes. */
#include "launch/report/histogram.h"
#include "launch/report/part.h"
#include "launch/report/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static oct_status list(oct_page *r, const oct_page_run *run, oct_page_layers *layers)
{
    if (r->html.status == OCT_OK) r->html.status = oct_page_layers_of(layers, run);
    return r->html.status;
}

static void write_shape(oct_html *h, const oct_page_layer *layer)
{
    if (isnan(layer->h) || isnan(layer->w) || isnan(layer->c))
        oct_html_put(h, "–");
    else
        oct_html_put(h, "%.0f×%.0f×%.0f", layer->h, layer->w, layer->c);
}

/* Small shares are told apart from none. */
static void write_share(oct_page *r, double share)
{
    const double percent = 100 * share;
    if (percent > 0 && percent < 0.001)
        oct_html_put(&r->html, "<td class=\"n\">&lt; 0.001</td>");
    else
        oct_page_cell(r, percent);
}

/* A bar of SQNR beside its number: 60 dB are full. */
static void write_sqnr(oct_page *r, double sqnr)
{
    if (isnan(sqnr)) {
        oct_html_put(&r->html, "<td class=\"n\">–</td>");
        return;
    }
    double share = fmax(0, fmin(1, sqnr / 60));
    oct_html_put(&r->html,
                 "<td class=\"n bar-cell\"><span class=\"meter%s\" style=\"width:%.0fpx\">"
                 "</span>%.1f</td>",
                 sqnr < 20 ? " low" : "", 60 * share, sqnr);
}

static void write_row(oct_page *r, const oct_page_layer *layer)
{
    oct_html *h = &r->html;
    oct_html_put(h, "<tr><th scope=\"row\">");
    oct_html_cut(h, layer->path, 64);
    oct_html_put(h, "</th><td>");
    oct_html_cut(h, layer->type, 32);
    oct_html_put(h, "</td><td>");
    write_shape(h, layer);
    oct_html_put(
        h, layer->quantized ? "</td><td>%.0f bits</td>" : "</td><td class=\"float\">float</td>",
        layer->bits);
    oct_page_cell(r, layer->scale);
    oct_page_cell(r, layer->zero_point);
    oct_page_cell(r, layer->min);
    oct_page_cell(r, layer->max);
    write_share(r, layer->clipped);
    write_sqnr(r, layer->price);
    oct_page_cell(r, layer->sqnr);
    oct_page_cell(r, layer->cosine);
    oct_page_count_cell(r, layer->operations);
    oct_page_count_cell(r, layer->weight_bytes);
    oct_page_count_cell(r, layer->output_bytes);
    oct_html_put(h, "</tr>\n");
}

static void write_table(oct_page *r, const oct_page_layers *layers)
{
    oct_page_table(
        r, "Layers, in the order in which they run",
        "layer|type|output|codes|scale#|zero point#|min#|max#|clipped, %#|SQNR of rounding, "
        "dB#|SQNR, dB#|cosine#|operations#|weight bytes#|output bytes#");
    for (size_t i = 0; i < layers->count && i < r->limits.layers; i++)
        write_row(r, &layers->layer[i]);
    oct_page_table_end(r);
    if (layers->count > r->limits.layers)
        oct_html_put(&r->html, "<p class=\"note\">The first %zu of %zu layers.</p>\n",
                     r->limits.layers, layers->count);
}

static void draw_output(oct_page *r, const oct_page_layer *layer)
{
    const oct_code_grid grid = {.low = (layer->qmin - layer->zero_point) * layer->scale,
                                .high = (layer->qmax - layer->zero_point) * layer->scale,
                                .step = layer->scale,
                                .low_code = layer->qmin,
                                .high_code = layer->qmax};
    oct_page_histogram_draw(&r->html, "output", &layer->output, &grid);
}

static void draw_weight(oct_page *r, const oct_page_layer *layer)
{
    const double scale = layer->weight.codes ? 1 : layer->weight_scale_max;
    const oct_code_grid grid = {.low = -127 * scale,
                                .high = 127 * scale,
                                .step = scale,
                                .low_code = -127,
                                .high_code = 127};
    oct_page_histogram_draw(&r->html, layer->weight.codes ? "weight codes" : "weights",
                            &layer->weight, &grid);
}

static void draw_scale(oct_page *r, const oct_page_run *run, const oct_page_layer *layer)
{
    char key[400];
    oct_series series = {0};
    oct_plot plot = {.title = "scale over the steps", .unit = "", .scale = OCT_SCALE_ZERO};
    int length = snprintf(key, sizeof key, "scales.%s", layer->path);
    if (length >= (int)sizeof key || r->html.status != OCT_OK) return;
    r->html.status = oct_series_of(&series, oct_page_run_records(run, "scales"), key);
    oct_plot_curve *curve = oct_plot_add(&plot, &series, "scale");
    if (curve && series.count > 1) {
        curve->dots = series.count <= 40;
        oct_plot_draw(&plot, &r->html);
    }
    oct_series_free(&series);
}

static void write_facts(oct_page *r, const oct_page_layer *layer)
{
    oct_html *h = &r->html;
    oct_html_put(h, "<p class=\"facts\">");
    if (layer->quantized)
        oct_html_put(h, "output: %.0f bits, scale %.4g, zero point %.0f", layer->bits, layer->scale,
                     layer->zero_point);
    else
        oct_html_put(h, "output: float");
    if (isfinite(layer->clipped)) oct_html_put(h, ", %.3f&nbsp;%% clipped", 100 * layer->clipped);
    if (isfinite(layer->price)) oct_html_put(h, ", SQNR of rounding %.1f&nbsp;dB", layer->price);
    if (isfinite(layer->sqnr)) oct_html_put(h, ", SQNR %.1f&nbsp;dB", layer->sqnr);
    if (isfinite(layer->max_error)) oct_html_put(h, ", largest error %.4g", layer->max_error);
    if (layer->has_weight) {
        oct_html_put(h, "<br>weights: scales of channels %.4g to %.4g", layer->weight_scale_min,
                     layer->weight_scale_max);
        if (isfinite(layer->weight_clipped))
            oct_html_put(h, ", %.3f&nbsp;%% clipped", 100 * layer->weight_clipped);
        if (isfinite(layer->weight_sqnr))
            oct_html_put(h, ", SQNR %.1f&nbsp;dB", layer->weight_sqnr);
    }
    oct_html_put(h, "</p>\n");
}

static void write_card(oct_page *r, const oct_page_run *run, const oct_page_layer *layer)
{
    oct_html *h = &r->html;
    oct_html_put(h, "<article class=\"card\"><h4>");
    oct_html_cut(h, layer->path, 64);
    oct_html_put(h, " <small>");
    oct_html_cut(h, layer->type, 32);
    oct_html_put(h, "</small></h4>");
    write_facts(r, layer);
    draw_output(r, layer);
    draw_weight(r, layer);
    draw_scale(r, run, layer);
    oct_html_put(h, "</article>\n");
}

static bool has_picture(const oct_page_layer *layer)
{
    return layer->output.from < layer->output.to || layer->weight.from < layer->weight.to;
}

static void write_cards(oct_page *r, const oct_page_run *run, const oct_page_layers *layers)
{
    oct_html_put(
        &r->html,
        "<details%s><summary>Histograms, with the codes that numbers can have</summary>\n"
        "<p class=\"note\">The height of a bar is the square root of its count. The ground "
        "behind the bars is where codes are; every few codes have a tick. What lies "
        "outside is clipped.</p>\n<div class=\"cards\">\n",
        layers->count <= 24 ? " open" : "");
    for (size_t i = 0; i < layers->count && i < r->limits.layers; i++)
        if (has_picture(&layers->layer[i])) write_card(r, run, &layers->layer[i]);
    oct_html_put(&r->html, "</div></details>\n");
}

static void write_reference(oct_page *r, const oct_page_run *run)
{
    const char *reference = json_string_value(json_object_get(run->layers, "reference"));
    bool phase = reference && strcmp(reference, "float_phase") == 0;
    if (!reference) return;
    oct_html_put(
        &r->html,
        "<p class=\"note\">Measured on %.0f images of the test set. SQNR of rounding is the "
        "price of the codes alone: the int8 model against the same weights with nothing "
        "rounded. SQNR, cosine and the largest error are against %s.</p>\n",
        oct_page_number(run->layers, "images"),
        phase ? "the float model at the end of the float phase, so they hold what QAT has "
                "learned since, too"
              : "these weights, too");
}

static void write_findings(oct_page *r, const oct_page_run *run)
{
    size_t i;
    const json_t *finding;
    json_array_foreach(json_object_get(run->layers, "findings"), i, finding)
        oct_html_put(&r->html, "<p class=\"note\">%s</p>\n", json_string_value(finding));
}

static void write_run(oct_page *r, const oct_page_run *run)
{
    oct_page_layers layers = {0};
    oct_page_say_why(r, run, OCT_RUN_FILE_LAYERS);
    if (list(r, run, &layers) != OCT_OK) return;
    if (layers.count) {
        write_findings(r, run);
        write_reference(r, run);
        write_table(r, &layers);
        write_cards(r, run, &layers);
    } else if (!run->has_model)
        oct_page_say_why(r, run, OCT_RUN_FILE_MODEL);
    oct_page_layers_free(&layers);
}

static void write_change(oct_page *r, const oct_page_layer *a, const oct_page_layer *b)
{
    oct_html_put(&r->html, "<tr><th scope=\"row\">");
    oct_html_cut(&r->html, a->path, 64);
    oct_html_put(&r->html, "</th>");
    oct_page_cell(r, a->scale);
    oct_page_cell(r, b->scale);
    oct_page_cell(r, b->scale / a->scale);
    write_share(r, a->clipped);
    write_share(r, b->clipped);
    write_sqnr(r, a->price);
    write_sqnr(r, b->price);
    oct_page_cell(r, b->price - a->price);
    oct_html_put(&r->html, "</tr>\n");
}

static void write_changes(oct_page *r)
{
    oct_page_layers a = {0}, b = {0};
    size_t rows = 0, alone = 0;
    if (list(r, &r->run[0], &a) != OCT_OK || list(r, &r->run[1], &b) != OCT_OK) goto out;
    for (size_t i = 0; i < a.count && rows < r->limits.layers; i++) {
        const oct_page_layer *other = oct_page_layers_find(&b, a.layer[i].path);
        if (!other) {
            alone++;
            continue;
        }
        if (rows++ == 0)
            oct_page_table(r, "Change of layers that both runs have",
                           "layer|scale A#|scale B#|B / A#|clipped A, %#|clipped B, %#|SQNR of "
                           "rounding A, dB#|B, dB#|B − A#");
        write_change(r, &a.layer[i], other);
    }
    if (rows) oct_page_table_end(r);
    if (alone)
        oct_html_put(&r->html,
                     "<p class=\"note\">%zu layers of A have no layer of the same name in "
                     "B.</p>\n",
                     alone);
out:
    oct_page_layers_free(&a);
    oct_page_layers_free(&b);
}

static void write(oct_page *r)
{
    if (r->runs > 1) write_changes(r);
    oct_page_each(r, write_run);
}

const oct_page_part oct_page_part_layers = {
    .id = "layers",
    .title = "Layers",
    .write = write,
};
