#include "quant/layers/layer_pairs.h"

#include "core/base/cache_line.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "quant/program/step.h"

#include <string.h>

static bool same_size(const oct_layer_info *a, const oct_layer_info *b)
{
    return oct_value_numel(&a->value) == oct_value_numel(&b->value);
}

/* Layers of one name but of different sizes are no pair. */
static void match_layers(oct_layer_pairs *p)
{
    for (int64_t i = 0; i < p->a->count; i++)
        p->b_of[i] = -1;
    for (int64_t i = 0; i < p->b->count; i++) {
        const int64_t a = oct_layer_find(p->a, p->b, i);
        const bool pair = a >= 0 && same_size(&p->a->layers[a], &p->b->layers[i]);
        p->a_of[i] = pair ? a : -1;
        if (pair) p->b_of[a] = i;
    }
}

static oct_status make_room(oct_layer_pairs *p)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < p->a->count; i++)
        if (p->b_of[i] >= 0)
            bytes += oct_round_up((int64_t)oct_value_bytes(&p->a->layers[i].value), OCT_CACHE_LINE);
    OCT_TRY(oct_alloc(&p->memory, (size_t)bytes, 1));
    uint8_t *next = p->memory;
    for (int64_t i = 0; i < p->a->count; i++) {
        if (p->b_of[i] < 0) continue;
        p->held[i].data = next;
        next += oct_round_up((int64_t)oct_value_bytes(&p->a->layers[i].value), OCT_CACHE_LINE);
    }
    return OCT_OK;
}

oct_status oct_layer_pairs_create(oct_layer_pairs *p, const oct_layer_source *a,
                                  const oct_layer_source *b)
{
    oct_status status = OCT_OK;
    *p = (oct_layer_pairs){.a = a, .b = b};
    OCT_TRY_OUT(oct_alloc(&p->a_of, (size_t)b->count, sizeof *p->a_of));
    OCT_TRY_OUT(oct_alloc(&p->b_of, (size_t)a->count, sizeof *p->b_of));
    OCT_TRY_OUT(oct_alloc(&p->held, (size_t)a->count, sizeof *p->held));
    match_layers(p);
    status = make_room(p);
out:
    if (status != OCT_OK) oct_layer_pairs_free(p);
    return status;
}

void oct_layer_pairs_free(oct_layer_pairs *p)
{
    oct_free(&p->a_of);
    oct_free(&p->b_of);
    oct_free(&p->held);
    oct_free(&p->memory);
    *p = (oct_layer_pairs){0};
}

typedef struct showing {
    const oct_layer_pairs *pairs;
    oct_layer_pair_fn show;
    void *user;
} showing;

static void hold_output(void *user, int64_t layer, const oct_tensor *output)
{
    const showing *s = user;
    oct_tensor *held = &s->pairs->held[layer];
    if (s->pairs->b_of[layer] < 0) return;
    void *data = held->data;
    *held =
        (oct_tensor){.dtype = output->dtype, .shape = output->shape, .data = data, .q = output->q};
    memcpy(data, output->data, (size_t)oct_numel(output) * oct_dtype_bytes(output->dtype));
}

static void show_pair(void *user, int64_t layer, const oct_tensor *output)
{
    const showing *s = user;
    const int64_t a = s->pairs->a_of[layer];
    if (a >= 0) s->show(s->user, layer, &s->pairs->held[a], output);
}

oct_status oct_layer_pairs_run(const oct_layer_pairs *p, const float *input_a, const float *input_b,
                               oct_layer_pair_fn show, void *user)
{
    showing s = {p, show, user};
    OCT_TRY(oct_layer_source_run(p->a, &input_a, hold_output, &s));
    return oct_layer_source_run(p->b, &input_b, show_pair, &s);
}
