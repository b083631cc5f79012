/* Loss, metrics and learning rate over the steps: lines of training batches, points of evaluations. */
#include "launch/report/part.h"
#include "launch/report/plot.h"

#include <stdio.h>
#include <string.h>

enum { METRICS_MAX = 8 };

/* A curve of one key, made for each run; colours tell runs apart, or training from evaluation. */
typedef struct curve_key {
    const char *kind, *key, *name;
    bool dots;
} curve_key;

static void add_curve(oct_page *r, oct_plot *plot, oct_series *series, int run,
                      const curve_key *key)
{
    char name[96];
    if (r->html.status == OCT_OK)
        r->html.status =
            oct_series_of(series, oct_page_run_records(&r->run[run], key->kind), key->key);
    if (r->runs > 1)
        snprintf(name, sizeof name, "%s %.80s", oct_page_letter(run), key->name);
    else
        snprintf(name, sizeof name, "%.90s", key->name);
    oct_plot_curve *curve = oct_plot_add(plot, series, name);
    if (!curve) return;
    curve->dots = key->dots;
    curve->colour = r->runs > 1 ? run : key->dots;
    curve->dashed = r->runs > 1 && key->dots;
}

/* Draws up to two keys of each run in one plot. Whether there was anything to draw. */
static bool draw(oct_page *r, oct_plot plot, const curve_key *keys, size_t count)
{
    oct_series series[2 * OCT_PAGE_RUNS] = {0};
    const oct_plot_spans spans = oct_plot_spans_of(r->run[0].records);
    plot.spans = &spans;
    OCT_ASSERT(count <= 2);
    for (int run = 0; run < r->runs; run++)
        for (size_t k = 0; k < count; k++)
            add_curve(r, &plot, &series[(size_t)run * 2 + k], run, &keys[k]);
    oct_plot_draw(&plot, &r->html);
    for (size_t i = 0; i < OCT_COUNT(series); i++)
        oct_series_free(&series[i]);
    return plot.count > 0;
}

/* Numbers of a step record that are no figure of the batches. */
static bool is_known(const char *key)
{
    static const char *const known[] = {"step", "epoch", "loss", "lr", "images_per_s", "grad_norm"};
    for (size_t i = 0; i < OCT_COUNT(known); i++)
        if (strcmp(known[i], key) == 0) return true;
    return false;
}

/* The metric of the training steps, by the name that its records have: as a rule "accuracy"; NULL: there is none. */
static const char *training_metric(const oct_page *r)
{
    const char *key;
    json_t *value, *record = oct_page_run_record(&r->run[0], "step");
    json_object_foreach(record, key, value) if (json_is_number(value) && !is_known(key) &&
                                                strlen(key) <= 64) return key;
    return oct_page_run_classifies(&r->run[0]) ? "accuracy" : NULL;
}

static bool draw_metric(oct_page *r)
{
    const char *title = training_metric(r);
    if (!title) return false;
    bool accuracy = strcmp(title, "accuracy") == 0;
    const curve_key keys[] = {{"step", title, "training batches", false},
                              {"eval", accuracy ? "accuracy" : title, "evaluation", true}};
    return draw(r, (oct_plot){.title = title, .unit = accuracy ? "%" : ""}, keys, 2);
}

/* The recipe's other metrics, as the newest evaluation has them. */
static bool draw_more(oct_page *r)
{
    const char *name;
    json_t *value;
    size_t drawn = 0;
    const json_t *eval = oct_page_run_record(&r->run[0], "eval");
    json_object_foreach(json_object_get(eval, "metrics"), name, value)
    {
        char key[120], title[80];
        if (!json_is_number(value) || strlen(name) > 64 || drawn == METRICS_MAX) continue;
        snprintf(key, sizeof key, "metrics.%s", name);
        snprintf(title, sizeof title, "%s", name);
        const curve_key one = {"eval", key, "evaluation", true};
        drawn += draw(r, (oct_plot){.title = title, .unit = ""}, &one, 1);
    }
    return drawn > 0;
}

/* Phases that are too short for a name in the plots have one here. */
static void write_phases(oct_page *r)
{
    const oct_plot_spans spans = oct_plot_spans_of(r->run[0].records);
    oct_html_put(&r->html, "<p class=\"note\">Phases%s: ", r->runs > 1 ? " of run A" : "");
    for (size_t i = 0; i < spans.count; i++)
        oct_html_put(&r->html, "%s%s to step %.0f", i ? ", " : "", spans.span[i].name,
                     spans.span[i].end);
    oct_html_put(&r->html, ".</p>\n");
}

static void write(oct_page *r)
{
    static const curve_key loss = {"step", "loss", "training batches", false};
    static const curve_key rate = {"step", "lr", "learning rate", false};
    static const curve_key norm = {"step", "grad_norm", "norm of the gradients", false};
    oct_html_put(&r->html, "<div class=\"plots\">\n");
    bool any = draw(r, (oct_plot){.title = "loss", .unit = "", .scale = OCT_SCALE_FREE}, &loss, 1);
    any |= draw_metric(r);
    any |= draw_more(r);
    any |= draw(r, (oct_plot){.title = "learning rate", .unit = "", .scale = OCT_SCALE_ZERO}, &rate,
                1);
    any |= draw(r, (oct_plot){.title = "gradient norm", .unit = "", .scale = OCT_SCALE_FREE}, &norm,
                1);
    oct_html_put(&r->html, "</div>\n");
    if (any)
        write_phases(r);
    else
        oct_page_missing(r, "No steps have been recorded yet.");
}

const oct_page_part oct_page_part_curves = {
    .id = "curves",
    .title = "Curves",
    .write = write,
};
