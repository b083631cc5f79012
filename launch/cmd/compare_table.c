#include "launch/cmd/compare_table.h"

#include "core/base/int_math.h"
#include "launch/base/meter.h"
#include "launch/base/output.h"
#include "quant/program/step.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAMED = 8 };

/* Layers that differ in nothing are as good as this. */
static const double same_db = 150;

static double sqnr_of(const oct_layer_comparison *layer)
{
    return oct_error_sqnr(&layer->sums);
}

bool oct_compare_departs(const oct_compare_verdict *v, int64_t layer)
{
    const oct_layer_comparison *l = &v->found->layers[layer];
    if (!l->pair) return false;
    if (v->exact) return !l->same_format || l->different > 0;
    return !(sqnr_of(l) >= v->enough);
}

/* Figures that are no number are below all. */
static double rank_of(const oct_layer_comparison *layer)
{
    const double db = sqnr_of(layer);
    return isnan(db) ? -same_db : fmax(fmin(db, same_db), -same_db);
}

static void find_places(oct_compare_verdict *v)
{
    double before = same_db;
    for (int64_t i = 0; i < v->b->source.count; i++) {
        const oct_layer_comparison *l = &v->found->layers[i];
        if (!l->pair) continue;
        const double db = rank_of(l);
        if (oct_compare_departs(v, i) && v->departing++ == 0) v->first = i;
        if (l->different > 0 && (v->worst < 0 || db < rank_of(&v->found->layers[v->worst])))
            v->worst = i;
        /* What the rounding of the input costs is no drop. */
        if (before < same_db && before - db > v->drop_db) {
            v->drop = i;
            v->drop_db = before - db;
        }
        before = db;
    }
}

oct_compare_verdict oct_compare_judge(const oct_compare_side *a, const oct_compare_side *b,
                                      const oct_comparing *found, const double *given)
{
    const double close = 20;
    oct_compare_verdict v = {.a = a,
                             .b = b,
                             .found = found,
                             .exact = !given && strcmp(oct_compare_side_arithmetic(a),
                                                       oct_compare_side_arithmetic(b)) == 0,
                             .enough = given ? *given : close,
                             .first = -1,
                             .worst = -1,
                             .drop = -1};
    find_places(&v);
    return v;
}

/* Layers of `source` that have no partner. */
static oct_status name_missing(const oct_layer_source *source, const int64_t *partner,
                               oct_text *names, int64_t *count)
{
    *count = 0;
    for (int64_t i = 0; i < source->count; i++) {
        if (partner[i] >= 0 || source->layers[i].passes) continue;
        if (*count < NAMED)
            OCT_TRY(oct_text_add(names, "%s%s", *count ? ", " : "", source->layers[i].name));
        (*count)++;
    }
    if (*count > NAMED) OCT_TRY(oct_text_add(names, ", ..."));
    return OCT_OK;
}

oct_status oct_compare_check(const oct_compare_side *a, const oct_compare_side *b,
                             const oct_layer_pairs *pairs)
{
    oct_text names_a = {0}, names_b = {0};
    int64_t only_a = 0, only_b = 0;
    oct_status status = name_missing(&a->source, pairs->b_of, &names_a, &only_a);
    if (status == OCT_OK) status = name_missing(&b->source, pairs->a_of, &names_b, &only_b);
    if (status == OCT_OK && only_a + only_b > 0)
        status = oct_fail(
            OCT_DATA,
            "the networks differ; what only %s has: %s; what only %s has: %s (of this "
            "name and size); --common compares the other layers",
            a->path, only_a ? names_a.data : "nothing", b->path, only_b ? names_b.data : "nothing");
    oct_text_free(&names_a);
    oct_text_free(&names_b);
    return status;
}

/* For people. */

static const oct_layer_info *info_of(const oct_compare_verdict *v, int64_t layer)
{
    return &v->b->source.layers[layer];
}

/* Models know the type of a layer better than programs. */
static const char *type_of(const oct_compare_verdict *v, int64_t layer)
{
    const int64_t a = v->found->pairs.a_of[layer];
    const bool better = a >= 0 && v->a->root && !v->b->root;
    return better ? v->a->source.layers[a].type : info_of(v, layer)->type;
}

static const char *plane_text(const oct_value *value, char text[96])
{
    if (value->h == 1 && value->w == 1)
        snprintf(text, 96, "%lld", (long long)value->c);
    else
        snprintf(text, 96, "%lldx%lldx%lld", (long long)value->h, (long long)value->w,
                 (long long)value->c);
    return text;
}

/* "image 17, row 3, column 0, channel 5: 130 in a, 131 in b" */
static const char *place_text(const oct_compare_verdict *v, int64_t layer, int64_t image,
                              char text[256])
{
    const oct_layer_comparison *l = &v->found->layers[layer];
    const oct_value *value = &info_of(v, layer)->value;
    const int64_t i = l->first.index, pixel = i / value->c;
    char where[128];
    if (value->h == 1 && value->w == 1)
        snprintf(where, sizeof where, "number %lld", (long long)i);
    else
        snprintf(where, sizeof where, "row %lld, column %lld, channel %lld",
                 (long long)(pixel / value->w), (long long)(pixel % value->w),
                 (long long)(i % value->c));
    oct_snprintf(text, 256, "image %lld, %s: %s%.9g in a, %.9g in b", (long long)image, where,
                 l->same_format && value->dtype != OCT_F32 && value->dtype != OCT_S32 ? "code "
                                                                                      : "",
                 l->first.a, l->first.b);
    return text;
}

static const char *marks_of(const oct_compare_verdict *v, int64_t layer, char text[64])
{
    snprintf(text, 64, "%s%s%s%s", layer == v->first ? "  first" : "",
             layer == v->worst ? "  worst" : "", layer == v->drop ? "  largest drop" : "",
             v->found->layers[layer].same_format || !v->found->layers[layer].pair || !v->exact
                 ? ""
                 : "  other scale");
    return text;
}

static oct_status print_row(const oct_compare_verdict *v, int64_t layer, int width)
{
    const oct_layer_comparison *l = &v->found->layers[layer];
    char plane[96], marks[64], db[32] = "same", share[32];
    const oct_layer_info *info = info_of(v, layer);
    if (!l->pair) return oct_print("  %-*s  %-12s only in b\n", width, info->name, info->type);
    const double sqnr = sqnr_of(l);
    if (l->different > 0) oct_snprintf(db, sizeof db, "%.1f", sqnr);
    if (l->different > 0 && isinf(sqnr)) snprintf(db, sizeof db, "bits");
    oct_snprintf(share, sizeof share, "%.2f %%",
                 l->numbers ? 100.0 * (double)l->different / (double)l->numbers : 0.0);
    return oct_print("%c %-*s  %-12s %-12s %9.6f %9s %12.5g %10s%s\n",
                     oct_compare_departs(v, layer) ? '!' : ' ', width, info->name,
                     type_of(v, layer), plane_text(&info->value, plane), oct_error_cosine(&l->sums),
                     db, l->max_error, share, marks_of(v, layer, marks));
}

static oct_status print_side(const char *name, const oct_compare_side *s)
{
    return oct_print("%s  %s (%s, %s)\n", name, oct_compare_side_file(s), oct_compare_side_phase(s),
                     oct_compare_side_arithmetic(s));
}

static oct_status print_conclusion(const oct_compare_verdict *v, oct_compare_number number_of,
                                   const void *user)
{
    char place[256];
    if (v->first < 0 && v->exact) return oct_print("every layer is the same, bit for bit\n");
    if (v->first < 0)
        OCT_TRY(oct_print("no layer is below %g dB\n", v->enough));
    else if (v->found->layers[v->first].different > 0)
        OCT_TRY(
            oct_print("first to depart: %s, %s\n", info_of(v, v->first)->name,
                      place_text(v, v->first,
                                 number_of(user, v->found->layers[v->first].first.sample), place)));
    if (v->worst >= 0)
        OCT_TRY(oct_print("worst: %s, %.1f dB\n", info_of(v, v->worst)->name,
                          sqnr_of(&v->found->layers[v->worst])));
    if (v->drop >= 0)
        OCT_TRY(oct_print("largest drop: %s, %.1f dB below the layer before\n",
                          info_of(v, v->drop)->name, v->drop_db));
    return OCT_OK;
}

oct_status oct_compare_print(const oct_compare_verdict *v, oct_compare_number number_of,
                             const void *user)
{
    char count[32];
    int width = 5;
    for (int64_t i = 0; i < v->b->source.count; i++) {
        const int length = (int)strlen(info_of(v, i)->name);
        width = length > width ? length : width;
    }
    OCT_TRY(print_side("a", v->a));
    OCT_TRY(print_side("b", v->b));
    OCT_TRY(oct_print("%s images; a layer departs ", oct_text_count(v->found->samples, count)));
    OCT_TRY(v->exact ? oct_print("where a bit differs\n")
                     : oct_print("below %g dB of SQNR\n", v->enough));
    OCT_TRY(oct_print("  %-*s  %-12s %-12s %9s %9s %12s %10s\n", width, "layer", "type", "output",
                      "cosine", "SQNR dB", "max error", "differ"));
    for (int64_t i = 0; i < v->b->source.count; i++)
        OCT_TRY(print_row(v, i, width));
    return print_conclusion(v, number_of, user);
}

/* For programs. */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *side_json(const oct_compare_side *s)
{
    return json_pack("{s:s, s:s, s:s}", "file", oct_compare_side_file(s), "phase",
                     oct_compare_side_phase(s), "arithmetic", oct_compare_side_arithmetic(s));
}

static json_t *name_json(const oct_compare_verdict *v, int64_t layer)
{
    return layer < 0 ? json_null() : json_string(info_of(v, layer)->name);
}

static json_t *first_json(const oct_compare_verdict *v, int64_t layer, int64_t image)
{
    const oct_layer_comparison *l = &v->found->layers[layer];
    if (l->different == 0) return json_null();
    return json_pack("{s:I, s:I, s:o, s:o}", "image", (json_int_t)image, "index",
                     (json_int_t)l->first.index, "a", number(l->first.a), "b", number(l->first.b));
}

static json_t *layer_json(const oct_compare_verdict *v, int64_t layer, int64_t image)
{
    const oct_layer_comparison *l = &v->found->layers[layer];
    const oct_value *value = &info_of(v, layer)->value;
    json_t *object = json_pack("{s:s, s:s, s:[I, I, I], s:b}", "path", info_of(v, layer)->name,
                               "type", type_of(v, layer), "shape", (json_int_t)value->h,
                               (json_int_t)value->w, (json_int_t)value->c, "in_both", l->pair);
    if (object && l->pair)
        json_object_update_new(
            object,
            json_pack("{s:b, s:b, s:I, s:I, s:o, s:o, s:o, s:o}", "departs",
                      oct_compare_departs(v, layer), "same_format", l->same_format, "numbers",
                      (json_int_t)l->numbers, "different", (json_int_t)l->different, "cosine",
                      number(oct_error_cosine(&l->sums)), "sqnr_db", number(sqnr_of(l)),
                      "max_error", number(l->max_error), "first", first_json(v, layer, image)));
    return object;
}

oct_status oct_compare_print_json(const oct_compare_verdict *v, oct_compare_number number_of,
                                  const void *user)
{
    json_t *layers = json_array();
    for (int64_t i = 0; i < v->b->source.count; i++)
        json_array_append_new(layers,
                              layer_json(v, i, number_of(user, v->found->layers[i].first.sample)));
    return oct_print_json(json_pack(
        "{s:i, s:o, s:o, s:I, s:b, s:o, s:b, s:o, s:o, s:o, s:o}", "schema_version", 1, "a",
        side_json(v->a), "b", side_json(v->b), "images", (json_int_t)v->found->samples,
        "bit_for_bit", v->exact, "sqnr_db_wanted", v->exact ? json_null() : json_real(v->enough),
        "equal", v->first < 0, "first_to_depart", name_json(v, v->first), "worst",
        name_json(v, v->worst), "largest_drop", name_json(v, v->drop), "layers", layers));
}

oct_status oct_compare_answer(const oct_compare_verdict *v, oct_compare_number number_of,
                              const void *user)
{
    char place[256];
    if (v->first < 0) return OCT_OK;
    const oct_layer_comparison *l = &v->found->layers[v->first];
    if (l->different > 0)
        place_text(v, v->first, number_of(user, l->first.sample), place);
    else
        snprintf(place, sizeof place, "its scale or zero point is another one");
    return oct_fail(OCT_NO, "%s and %s depart in %lld of %lld layers, first in %s (%s)", v->a->path,
                    v->b->path, (long long)v->departing, (long long)v->b->source.count,
                    info_of(v, v->first)->name, place);
}
