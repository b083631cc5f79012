#include "launch/evaluate/worst.h"

#include "core/base/mem.h"
#include "io/augment/geometry.h"
#include "io/image/decode.h"

#include <math.h>
#include <string.h>

enum { VERSION = 1 };

static oct_worst_sample judge_row(const oct_output_row *row, int64_t index)
{
    const float *y = row->y;
    int64_t best = 0;
    double sum = 0;
    for (int64_t k = 1; k < row->n; k++)
        if (y[k] > y[best]) best = k;
    for (int64_t k = 0; k < row->n; k++)
        sum += exp((double)y[k] - (double)y[best]);
    return (oct_worst_sample){.index = index,
                              .label = row->label,
                              .predicted = (int32_t)best,
                              .probability = 1 / sum,
                              .loss = log(sum) + (double)y[best] - (double)y[row->label]};
}

static int by_loss(const void *a, const void *b)
{
    const oct_worst_sample *x = a, *y = b;
    if (x->loss != y->loss) return x->loss > y->loss ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Keeps the worst in order. */
static void keep_worst(oct_worst_sample *worst, int *count, const oct_worst_sample *sample)
{
    int at = *count;
    while (at > 0 && by_loss(sample, &worst[at - 1]) < 0)
        at--;
    if (at == OCT_WORST_SAMPLES) return;
    if (*count < OCT_WORST_SAMPLES) (*count)++;
    memmove(worst + at + 1, worst + at, (size_t)(*count - 1 - at) * sizeof *worst);
    worst[at] = *sample;
}

oct_status oct_worst_find(const oct_collective *group, const oct_outputs *outputs,
                          oct_worst_sample *worst, int *count)
{
    const oct_output_rows rows = {outputs->y, outputs->row, outputs->goals};
    const int64_t first = oct_leaves_first_sample(&outputs->leaves);
    const size_t room = OCT_WORST_SAMPLES + 1; /* the last one holds how many there are */
    oct_worst_sample mine[OCT_WORST_SAMPLES + 1], *all = NULL;
    oct_status status = OCT_OK;
    int found = 0;
    memset(mine, 0, sizeof mine);
    for (int64_t i = 0; i < outputs->samples; i++) {
        const oct_output_row row = oct_output_row_at(&rows, i);
        if (oct_goals_ignore(&outputs->goals, i)) continue;
        const oct_worst_sample sample = judge_row(&row, first + i);
        if (isfinite(sample.loss)) keep_worst(mine, &found, &sample);
    }
    mine[OCT_WORST_SAMPLES].index = found;
    *count = 0;
    if (group->rank == 0) status = oct_alloc(&all, (size_t)group->size * room, sizeof *all);
    OCT_TRY_OUT(group->agree(group, status));
    OCT_TRY_OUT(group->gather(group, mine, sizeof mine, all));
    for (int rank = 0; group->rank == 0 && rank < group->size; rank++) {
        const oct_worst_sample *theirs = all + (size_t)rank * room;
        for (int64_t i = 0; i < theirs[OCT_WORST_SAMPLES].index; i++)
            keep_worst(worst, count, &theirs[i]);
    }
out:
    oct_free(&all);
    return status;
}

/* The document. */

/* The longer side becomes at most 64 pixels. */
static oct_status shrink(oct_image *image, oct_image *spare)
{
    const int64_t longer = image->h > image->w ? image->h : image->w;
    if (longer <= OCT_WORST_SIDE) return OCT_OK;
    const int64_t h = image->h * OCT_WORST_SIDE / longer, w = image->w * OCT_WORST_SIDE / longer;
    return oct_geometry_resize(image, NULL, spare, h > 0 ? h : 1, w > 0 ? w : 1);
}

/* A sample that is no picture has no thumbnail: null. */
static oct_status thumbnail(const oct_dataset *data, int64_t index, json_t **png)
{
    oct_image image = {0}, spare = {0};
    char *text = NULL;
    oct_status status = OCT_OK;
    *png = NULL;
    if (data->dtype != OCT_U8) goto out;
    OCT_TRY_OUT(data->format->read(data, index, &image, NULL));
    if (image.c != 1 && image.c != 3) goto out;
    OCT_TRY_OUT(shrink(&image, &spare));
    OCT_TRY_OUT(oct_png_base64(&image, &text));
    *png = json_string(text);
out:
    oct_free(&text);
    oct_image_free(&image);
    oct_image_free(&spare);
    if (!*png && status == OCT_OK) *png = json_null();
    return status;
}

static json_t *name_of(const oct_dataset *data, int32_t label)
{
    const char *name = data->class_names ? data->class_names[label] : NULL;
    return name ? json_string(name) : json_null();
}

static oct_status sample_json(const oct_worst_sample *s, const oct_dataset *data, json_t **object)
{
    json_t *png;
    OCT_TRY(thumbnail(data, s->index, &png));
    *object = json_pack("{s:I, s:i, s:o, s:i, s:o, s:f, s:f, s:o}", "index", (json_int_t)s->index,
                        "label", s->label, "label_name", name_of(data, s->label), "predicted",
                        s->predicted, "predicted_name", name_of(data, s->predicted), "probability",
                        s->probability, "loss", s->loss, "png", png);
    return OCT_OK;
}

oct_status oct_worst_document(const oct_worst_sample *worst, int count, const oct_dataset *data,
                              json_t **document)
{
    json_t *samples = json_array();
    for (int i = 0; i < count; i++) {
        json_t *object;
        const oct_status status = sample_json(&worst[i], data, &object);
        if (status != OCT_OK) json_decref(samples);
        OCT_TRY(status);
        json_array_append_new(samples, object);
    }
    *document = json_pack("{s:i, s:o}", "schema_version", VERSION, "samples", samples);
    OCT_CHECK(*document, OCT_RESOURCE, "out of memory for the worst-classified samples");
    return OCT_OK;
}
