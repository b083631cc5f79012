#include "launch/cmd/calibrate_report.h"

#include "core/base/mem.h"
#include "launch/base/meter.h"
#include "launch/base/output.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double known(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static double noise_of(double db)
{
    return pow(10, -db / 10);
}

/* Finds a layer's quantizer in the table; NULL: it has none of this kind. */
static const oct_sensitivity_row *row_of(const oct_sensitivity *table, const char *path,
                                         bool activation)
{
    for (size_t i = 0; i < table->count; i++)
        if (oct_sensitivity_is_activation(&table->rows[i]) == activation &&
            strcmp(table->rows[i].path, path) == 0)
            return &table->rows[i];
    return NULL;
}

static double total_noise(const oct_sensitivity *table)
{
    double sum = 0;
    for (size_t i = 0; i < table->count; i++)
        sum += noise_of(table->rows[i].sqnr);
    return sum;
}

static double share_of(const oct_calibrate_report *r, const char *path, bool activation, double all)
{
    const oct_sensitivity_row *row = row_of(r->table, path, activation);
    if (!row) return (double)NAN;
    return all > 0 ? noise_of(row->sqnr) / all : 0;
}

/* Compares the power of what is outside of the codes, by the histogram of the layer's float values, with that of
 * rounding, scale^2 / 12 each. */
static bool loses_by_clipping(const json_t *output)
{
    const json_t *histogram = json_object_get(output, "histogram");
    const json_t *counts = json_object_get(histogram, "counts");
    const double scale = known(json_object_get(output, "scale"));
    const double zero = known(json_object_get(output, "zero_point"));
    const double low = (known(json_object_get(output, "qmin")) - zero) * scale;
    const double high = (known(json_object_get(output, "qmax")) - zero) * scale;
    const double from = known(json_object_get(histogram, "from"));
    const double bin =
        (known(json_object_get(histogram, "to")) - from) / (double)json_array_size(counts);
    double clipped = 0, all = 0;
    for (size_t i = 0; i < json_array_size(counts); i++) {
        const double n = json_number_value(json_array_get(counts, i));
        const double x = from + ((double)i + 0.5) * bin;
        const double over = fmax(fmax(low - x, x - high), 0);
        clipped += n * over * over;
        all += n;
    }
    return clipped > all * scale * scale / 12; /* false where there are no codes */
}

static oct_status list_layers(oct_calibrate_report *r)
{
    const json_t *layers = json_object_get(r->document, "layers");
    const double all = total_noise(r->table);
    r->count = json_array_size(layers);
    r->sqnr = (double)NAN;
    OCT_TRY(oct_alloc(&r->layers, r->count, sizeof *r->layers));
    for (size_t i = 0; i < r->count; i++) {
        const json_t *layer = json_array_get(layers, i);
        const char *path = json_string_value(json_object_get(layer, "path"));
        r->layers[i] = (oct_calibrate_layer){
            .path = path,
            .type = json_string_value(json_object_get(layer, "type")),
            .sqnr = known(json_object_get(json_object_get(layer, "output"), "sqnr_db")),
            .weights = share_of(r, path, false, all),
            .output = share_of(r, path, true, all),
            .clips = loses_by_clipping(json_object_get(layer, "output")),
        };
        if (!isnan(r->layers[i].sqnr)) r->sqnr = r->layers[i].sqnr;
    }
    return OCT_OK;
}

/* The largest share that is not marked yet; NULL: there is none. */
static double *largest(oct_calibrate_report *r, bool **mark)
{
    double *most = NULL;
    for (size_t i = 0; i < r->count; i++) {
        oct_calibrate_layer *l = &r->layers[i];
        const bool marked_weights = l->wants_qat && l->weights >= 0;
        if (!marked_weights && l->weights > 0 && (!most || l->weights > *most)) {
            most = &l->weights;
            *mark = &l->wants_qat;
        }
        bool *wants = l->clips ? &l->wants_range : r->wide ? &l->wants_16 : &l->wants_qat;
        if (!*wants && l->output > 0 && (!most || l->output > *most)) {
            most = &l->output;
            *mark = wants;
        }
    }
    return most;
}

oct_status oct_calibrate_judge(oct_calibrate_report *r)
{
    OCT_TRY(list_layers(r));
    r->expected = r->sqnr;
    if (!(r->sqnr < r->wanted)) return OCT_OK;
    const double noise = noise_of(r->sqnr), enough = noise_of(r->wanted);
    double rest = 1;
    while (rest * noise > enough) {
        bool *mark = NULL;
        const double *share = largest(r, &mark);
        if (!share) break;
        *mark = true;
        rest = fmax(rest - *share, 1e-9);
    }
    r->expected = -10 * log10(rest * noise);
    return OCT_OK;
}

/* For people. */

static oct_status print_accuracy(const char *name, double accuracy)
{
    if (!(accuracy >= 0)) return OCT_OK; /* without classes there is none */
    return oct_print("%-20s %.2f %%\n", name, accuracy);
}

static oct_status print_number(double value, int digits, int width)
{
    if (isnan(value)) return oct_print(" %*s", width, "-");
    return oct_print(" %*.*f", width, digits, value);
}

static const char *words_of(const oct_calibrate_layer *l)
{
    if (l->wants_range) return l->wants_qat ? "  QAT, a wider range" : "  a wider range";
    if (l->wants_16) return l->wants_qat ? "  QAT, 16 bits" : "  16 bits";
    return l->wants_qat ? "  QAT" : "";
}

static oct_status print_table(const oct_calibrate_report *r)
{
    int width = 5;
    for (size_t i = 0; i < r->count; i++) {
        const int length = (int)strlen(r->layers[i].path);
        width = length > width ? length : width;
    }
    OCT_TRY(oct_print("\n%-*s  %-14s %8s %10s %10s  %s\n", width, "layer", "type", "SQNR dB",
                      "weights %", "output %", "wants"));
    for (size_t i = 0; i < r->count; i++) {
        const oct_calibrate_layer *l = &r->layers[i];
        OCT_TRY(oct_print("%-*s  %-14s", width, l->path, l->type));
        OCT_TRY(print_number(l->sqnr, 1, 8));
        OCT_TRY(print_number(100 * l->weights, 1, 10));
        OCT_TRY(print_number(100 * l->output, 1, 10));
        OCT_TRY(oct_print("%s\n", words_of(l)));
    }
    return OCT_OK;
}

static oct_status print_wide(const oct_calibrate_report *r)
{
    const char *before = "want 16 bits         quant.int16_layers=[", *after = "";
    for (size_t i = 0; i < r->count; i++) {
        if (!r->layers[i].wants_16) continue;
        OCT_TRY(oct_print("%s%s", before, r->layers[i].path));
        before = ",";
        after = "]\n";
    }
    return oct_print("%s", after);
}

/* min_max alone never cuts what calibration has seen. */
static const char *range_remedy(const oct_calibrate_report *r)
{
    return strcmp(r->observer, "min_max") == 0 ? "raise calibrate.batches"
                                               : "quant.observer=min_max cuts nothing";
}

static oct_status print_conclusion(const oct_calibrate_report *r)
{
    size_t qat = 0, range = 0;
    if (isnan(r->sqnr)) return OCT_OK;
    OCT_TRY(oct_print("\n%-20s %.1f dB, int8 against float\n", "output", r->sqnr));
    if (r->sqnr >= r->wanted)
        return oct_print("%-20s nothing: %g dB were asked for\n", "wanted", r->wanted);
    for (size_t i = 0; i < r->count; i++) {
        qat += r->layers[i].wants_qat;
        range += r->layers[i].wants_range;
    }
    if (qat > 0)
        OCT_TRY(oct_print("%-20s %zu layer%s: octet train, with the same init\n", "want QAT", qat,
                          qat == 1 ? "" : "s"));
    if (range > 0)
        OCT_TRY(oct_print("%-20s %zu layer%s, whose largest values are clipped: %s\n",
                          "want a wider range", range, range == 1 ? "" : "s", range_remedy(r)));
    OCT_TRY(print_wide(r));
    return oct_print("%-20s about %.1f dB where they add no error\n", "output then", r->expected);
}

oct_status oct_calibrate_print(const oct_calibrate_report *r)
{
    const json_t *result = r->result;
    char differ[32], logits[32], images[32];
    OCT_TRY(print_accuracy("float accuracy", r->float_accuracy));
    OCT_TRY(print_accuracy("int8 accuracy", known(json_object_get(result, "int8_accuracy"))));
    OCT_TRY(oct_print(
        "%-20s %s of %s (%s images, evaluation with codes against int8 model)\n",
        "logits that differ",
        oct_text_count(json_integer_value(json_object_get(result, "logits_differ")), differ),
        oct_text_count(json_integer_value(json_object_get(result, "logits")), logits),
        oct_text_count(json_integer_value(json_object_get(result, "images")), images)));
    OCT_TRY(
        oct_print("%-20s %s\n", "int8 model", json_string_value(json_object_get(result, "model"))));
    OCT_TRY(print_table(r));
    return print_conclusion(r);
}

/* For programs. */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

oct_status oct_calibrate_print_json(const oct_calibrate_report *r)
{
    json_t *layers = json_array(), *all = json_copy(r->result);
    for (size_t i = 0; i < r->count; i++) {
        const oct_calibrate_layer *l = &r->layers[i];
        json_array_append_new(
            layers,
            json_pack("{s:s, s:s, s:o, s:o, s:o, s:b, s:b, s:b}", "path", l->path, "type", l->type,
                      "sqnr_db", number(l->sqnr), "weights_share", number(l->weights),
                      "output_share", number(l->output), "wants_qat", l->wants_qat, "wants_16_bits",
                      l->wants_16, "wants_wider_range", l->wants_range));
    }
    json_object_set_new(all, "kind", json_string("calibration"));
    json_object_set_new(all, "float_accuracy",
                        r->float_accuracy < 0 ? json_null() : json_real(r->float_accuracy));
    json_object_set_new(all, "output_sqnr_db", number(r->sqnr));
    json_object_set_new(all, "sqnr_db_wanted", json_real(r->wanted));
    json_object_set_new(all, "sqnr_db_then", number(r->expected));
    json_object_set_new(all, "layers", layers);
    return oct_print_json(all);
}

void oct_calibrate_report_free(oct_calibrate_report *r)
{
    oct_free(&r->layers);
    json_decref(r->document);
    r->document = NULL;
}
