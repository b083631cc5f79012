#include "launch/report/series.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <string.h>

void oct_series_free(oct_series *series)
{
    oct_free(&series->x);
    oct_free(&series->y);
    *series = (oct_series){0};
}

oct_status oct_series_add(oct_series *series, double x, double y)
{
    OCT_TRY(oct_grow(&series->x, &series->x_capacity, series->count + 1, sizeof(double)));
    OCT_TRY(oct_grow(&series->y, &series->y_capacity, series->count + 1, sizeof(double)));
    series->x[series->count] = x;
    series->y[series->count++] = y;
    return OCT_OK;
}

oct_status oct_series_of(oct_series *series, const json_t *records, const char *object,
                         const char *key)
{
    size_t i;
    const json_t *record;
    oct_series_free(series);
    json_array_foreach(records, i, record)
    {
        const json_t *step = json_object_get(record, "step"),
                     *holder = object ? json_object_get(record, object) : record,
                     *value = json_object_get(holder, key);
        if (!json_is_number(step) || !json_is_number(value)) continue;
        OCT_TRY(oct_series_add(series, json_number_value(step), json_number_value(value)));
    }
    return OCT_OK;
}

static json_t *numbers_json(const double *values, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, json_real(values[i]));
    return array;
}

json_t *oct_series_json(const oct_series *s)
{
    return json_pack("{s:o, s:o}", "step", numbers_json(s->x, s->count), "value",
                     numbers_json(s->y, s->count));
}

void oct_series_thin(oct_series *series, size_t points)
{
    size_t stretches = points / 2, kept = 0, count = series->count;
    if (count <= points || stretches == 0) return;
    for (size_t s = 0; s < stretches; s++) {
        size_t begin = s * count / stretches, end = (s + 1) * count / stretches;
        size_t least = begin, most = begin;
        for (size_t i = begin; i < end; i++) {
            if (series->y[i] < series->y[least]) least = i;
            if (series->y[i] >= series->y[most]) most = i;
        }
        const size_t both[] = {least < most ? least : most, least < most ? most : least};
        for (size_t i = 0; i < (least == most ? 1 : 2); i++, kept++) {
            series->x[kept] = series->x[both[i]];
            series->y[kept] = series->y[both[i]];
        }
    }
    series->count = kept;
}

oct_plot_spans oct_plot_spans_of(const json_t *records)
{
    oct_plot_spans spans = {0};
    size_t i;
    const json_t *record;
    json_array_foreach(records, i, record)
    {
        const char *phase = json_string_value(json_object_get(record, "phase"));
        const json_t *step = json_object_get(record, "step");
        if (!phase || !json_is_number(step)) continue;
        oct_plot_span *last = spans.count ? &spans.span[spans.count - 1] : NULL;
        if (!last || strncmp(last->name, phase, sizeof last->name - 1) != 0) {
            if (spans.count == OCT_SPANS_MAX || (last && json_number_value(step) <= last->end))
                continue;
            oct_plot_span *next = &spans.span[spans.count++];
            snprintf(next->name, sizeof next->name, "%s", phase);
            next->begin = last ? last->end : 0;
            last = next;
        }
        last->end = json_number_value(step);
    }
    return spans;
}

json_t *oct_plot_spans_json(const json_t *records)
{
    const oct_plot_spans spans = oct_plot_spans_of(records);
    json_t *array = json_array();
    for (size_t i = 0; i < spans.count; i++)
        json_array_append_new(array,
                              json_pack("{s:s, s:f, s:f}", "name", spans.span[i].name, "begin",
                                        spans.span[i].begin, "end", spans.span[i].end));
    return array;
}
