#include "quant/layers/layer_compare.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "quant/program/step.h"

#include <math.h>
#include <string.h>

oct_status oct_comparing_begin(oct_comparing *c, const oct_layer_source *a,
                               const oct_layer_source *b)
{
    int64_t most = 0;
    oct_status status = OCT_OK;
    *c = (oct_comparing){0};
    OCT_TRY_OUT(oct_layer_pairs_create(&c->pairs, a, b));
    OCT_TRY_OUT(oct_alloc(&c->layers, (size_t)b->count, sizeof *c->layers));
    for (int64_t i = 0; i < b->count; i++) {
        const int64_t other = c->pairs.a_of[i];
        c->layers[i] = (oct_layer_comparison){.pair = other >= 0, .same_format = other >= 0};
        most = oct_max_i64(most, oct_value_numel(&b->layers[i].value));
    }
    OCT_TRY_OUT(oct_alloc(&c->values_a, (size_t)most, sizeof *c->values_a));
    status = oct_alloc(&c->values_b, (size_t)most, sizeof *c->values_b);
out:
    if (status != OCT_OK) oct_comparing_end(c);
    return status;
}

void oct_comparing_end(oct_comparing *c)
{
    oct_layer_pairs_free(&c->pairs);
    oct_free(&c->layers);
    oct_free(&c->values_a);
    oct_free(&c->values_b);
    *c = (oct_comparing){0};
}

static double code_at(const oct_tensor *y, int64_t i)
{
    return y->dtype == OCT_U8 ? oct_u8(y)[i] : oct_u16(y)[i];
}

static void compare_layer(void *user, int64_t number, const oct_tensor *a, const oct_tensor *b)
{
    oct_comparing *c = user;
    oct_layer_comparison *layer = &c->layers[number];
    const int64_t n = oct_numel(b);
    const size_t bytes = oct_dtype_bytes(b->dtype);
    const oct_qparams *p = &a->q, *q = &b->q;
    const bool same_grid = p->scale == q->scale && p->zero_point == q->zero_point &&
                           p->qmin == q->qmin && p->qmax == q->qmax;
    if (a->dtype != b->dtype || (oct_is_codes(b) && !same_grid)) layer->same_format = false;
    const bool codes = layer->same_format && oct_is_codes(b);
    oct_layer_values(a, c->values_a);
    oct_layer_values(b, c->values_b);
    for (int64_t i = 0; i < n; i++) {
        const bool differs = layer->same_format
                                 ? memcmp((const uint8_t *)a->data + (size_t)i * bytes,
                                          (const uint8_t *)b->data + (size_t)i * bytes, bytes) != 0
                                 : c->values_a[i] != c->values_b[i];
        if (!differs || layer->different++ > 0) continue;
        layer->first = (oct_layer_difference){.sample = c->samples,
                                              .index = i,
                                              .a = codes ? code_at(a, i) : (double)c->values_a[i],
                                              .b = codes ? code_at(b, i) : (double)c->values_b[i]};
    }
    layer->numbers += n;
    const double largest = oct_error_add(&layer->sums, c->values_a, c->values_b, n);
    if (largest > layer->max_error || isnan(largest)) layer->max_error = largest;
}

oct_status oct_comparing_add(oct_comparing *c, const float *input_a, const float *input_b)
{
    OCT_TRY(oct_layer_pairs_run(&c->pairs, input_a, input_b, compare_layer, c));
    c->samples++;
    return OCT_OK;
}
