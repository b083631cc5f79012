/* The scalar reference: the definition of every integer kernel, and the judge of the fast ones. */
#include "core/product/product.h"
#include "quant/kernel/requant.h"

#include <string.h>

static int32_t dot_product(const oct_product *p, const uint8_t *x, const int8_t *panel)
{
    int32_t sum = 0;
    for (int64_t r = 0; r < p->num_runs; r++) {
        const oct_run *run = &p->runs[r];
        for (int64_t i = 0; i < run->words * OCT_WORD; i++)
            sum += x[run->x + i] * panel[run->tile * OCT_WORD + i];
    }
    return sum;
}

static void product(const oct_product *p)
{
    for (int64_t i = 0; i < p->m; i++) {
        const uint8_t *x = (const uint8_t *)p->x + p->rows[i].x;
        int32_t *acc = (int32_t *)p->acc + p->rows[i].acc;
        for (int64_t c = 0; c < p->n; c++)
            acc[c] = (p->add ? acc[c] : 0) +
                     dot_product(p, x, (const int8_t *)p->packed + c * p->panel_bytes);
    }
}

static int64_t depthwise_bytes(int64_t channels, int kernel_h, int kernel_w)
{
    return channels * kernel_h * kernel_w;
}

static void depthwise_pack(const oct_depthwise_weights *w, int8_t *packed)
{
    for (int64_t c = 0; c < w->channels; c++)
        for (int ky = 0; ky < w->kernel_h; ky++)
            for (int x = 0; x < oct_depthwise_columns(w); x++)
                *packed++ = oct_depthwise_weight(w, c, ky, x);
}

/* Computes a line of output by the formula of oct_depthwise. */
static void depthwise(const oct_depthwise *d)
{
    for (int64_t x = 0; x < d->out_w; x++) {
        for (int64_t c = 0; c < d->channels; c++) {
            const int8_t *w = d->packed + c * d->kernel_h * d->kernel_w;
            int32_t sum = 0;
            for (int ky = 0; ky < d->kernel_h; ky++)
                for (int kx = 0; kx < d->kernel_w; kx++) {
                    const int64_t at = x * d->stride + kx - d->padding;
                    const bool inside = d->line[ky] && at >= 0 && at < d->in_w;
                    sum += (inside ? d->line[ky][at * d->channels + c] : d->fill) * *w++;
                }
            d->acc[x * d->channels + c] = sum;
        }
    }
}

/* Turns rows of accumulators into codes, mask and range by the formula of oct_requant. */
static void requantize(const oct_acc_rows *r, const oct_requant *q)
{
    const oct_requant_limits limits = oct_requant_limits_of(q);
    const int32_t *acc = r->acc;
    uint8_t *codes = r->y;
    if (r->mask) memset(r->mask, 0, (size_t)((r->m * r->n + 7) / 8));
    for (int64_t i = 0; i < r->m * r->n; i++) {
        const int64_t c = i % r->n;
        const float v = oct_requant_value(q, i, c, acc[i]);
        bool pass;
        codes[i] = oct_requant_one(v, &limits, &pass);
        if (r->mask && pass) r->mask[i / 8] = (uint8_t)(r->mask[i / 8] | 1u << (i % 8));
        if (r->range) {
            const float clipped = oct_requant_clip(v, &limits);
            oct_requant_range_merge(r->range, clipped, clipped);
        }
    }
    if (r->range) oct_requant_range_end(q, r->n, r->range);
}

const oct_kernel oct_kernel_ref = {
    .isa = OCT_ISA_REF,
    .name = "ref",
    .bytes = {1, OCT_WORD, NULL, product},
    .depthwise_bytes = depthwise_bytes,
    .depthwise_pack = depthwise_pack,
    .depthwise = depthwise,
    .requantize = requantize,
};
