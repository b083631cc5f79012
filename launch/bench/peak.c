/* Each peak is that of a block of products whose runs read the same few words again and again. */

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/product/product.h"
#include "launch/bench/bench.h"

#include <math.h>
#include <string.h>

/* ROWS can be cut into blocks of 6, 8 and 32 without a rest; panels and one row of words together take
 * half of a small first-level cache. */
enum { ROWS = 96, PANELS = 4, PANEL_BYTES = 4096, RUNS = 16, ROUNDS = 20, WORD = 4 };
enum { LEAST_WORDS = 64 }; /* OpenBLAS, whose tiles are wide, copies the words of a run first */
static const double ROUND_SECONDS = 0.002;

typedef struct block {
    oct_product_fn *product;
    oct_product args;
    void *words, *panels, *acc;
    oct_row rows[ROWS];
    oct_run runs[RUNS];
    int64_t products_a_word;
} block;

/* Allocates a product of ROWS x n that stays in the first-level cache: all its runs read the same words and panels. */
static oct_status make_block(block *b, oct_product_fn *product, int col_tile, int tile_bytes,
                             int products_a_word)
{
    const int64_t words = oct_max_i64(PANEL_BYTES / tile_bytes, LEAST_WORDS);
    const int64_t panel_bytes = words * tile_bytes, n = (int64_t)PANELS * col_tile;
    b->product = product;
    b->products_a_word = products_a_word;
    OCT_TRY(oct_alloc(&b->words, (size_t)words, WORD));
    OCT_TRY(oct_alloc(&b->panels, PANELS, (size_t)panel_bytes));
    OCT_TRY(oct_alloc(&b->acc, ROWS, (size_t)n * WORD));
    for (int64_t i = 0; i < ROWS; i++)
        b->rows[i] = (oct_row){.x = 0, .acc = i * n};
    for (int64_t i = 0; i < RUNS; i++)
        b->runs[i] = (oct_run){.x = 0, .tile = 0, .words = words};
    b->args = (oct_product){
        .x = b->words,
        .rows = b->rows,
        .m = ROWS,
        .runs = b->runs,
        .num_runs = RUNS,
        .packed = b->panels,
        .panel_bytes = panel_bytes,
        .n = n,
        .acc = b->acc,
    };
    return OCT_OK;
}

static void free_block(block *b)
{
    OCT_FREE_ALL(&b->words, &b->panels, &b->acc);
}

static void multiply(void *user)
{
    block *b = user;
    b->product(&b->args);
}

static double best_gops(block *b)
{
    const oct_product *p = &b->args;
    const double operations =
        2.0 * (double)(p->m * p->n * RUNS * b->runs[0].words * b->products_a_word);
    double best = 0;
    for (int round = 0; round < ROUNDS; round++)
        best = fmax(best, 1e-9 * operations / oct_time_call(multiply, b, ROUND_SECONDS));
    return best;
}

static oct_status measure_int8(const oct_byte_product *k, double *gops)
{
    enum { TILE_MAX = 64 }; /* codes of a tile before it is packed; weights are from -127 to 127 */
    OCT_OWNED(free_block) block b = {0};
    int8_t tile[TILE_MAX];
    const int codes = k->col_tile * OCT_WORD;
    OCT_ASSERT(codes <= TILE_MAX);
    OCT_TRY(make_block(&b, k->product, k->col_tile, k->tile_bytes, OCT_WORD));
    oct_bench_fill(b.words, b.runs[0].words * WORD, 0);
    for (int64_t at = 0; at < PANELS * b.args.panel_bytes; at += k->tile_bytes) {
        oct_bench_fill((uint8_t *)tile, codes, (uint32_t)at);
        for (int i = 0; i < codes; i++)
            if (tile[i] == INT8_MIN) tile[i] = -INT8_MAX;
        oct_pack_tile(k, tile, (int8_t *)b.panels + at);
    }
    *gops = best_gops(&b);
    return OCT_OK;
}

/* Fills a block with values that bfloat16 holds: one in a word, or two where `pairs`. */
static void fill_rounded(void *place, int64_t words, bool pairs)
{
    float *x = place;
    oct_fill_uniform(x, words, OCT_BENCH_SEED, OCT_STREAM_TEST, 0, -1.0F, 1.0F);
    for (int64_t i = 0; i < words; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0xffff0000u;
        if (pairs) bits |= bits >> 16;
        memcpy(x + i, &bits, sizeof bits);
    }
}

static oct_status measure_float(const oct_float_kernel *k, bool bf16, double *gops)
{
    OCT_OWNED(free_block) block b = {0};
    const bool pairs = bf16 && k->bf16_words != OCT_BF16_FLOATS;
    OCT_TRY(
        make_block(&b, bf16 ? k->bf16 : k->f32, k->col_tile, k->col_tile * WORD, pairs ? 2 : 1));
    fill_rounded(b.words, b.runs[0].words, pairs);
    fill_rounded(b.panels, PANELS * b.args.panel_bytes / WORD, pairs);
    *gops = best_gops(&b);
    return OCT_OK;
}

oct_status oct_peak_measure(oct_isa_set have, oct_peak *peak)
{
    const oct_float_kernel *floats = oct_float_kernel_select(have);
    OCT_TRY(measure_int8(&oct_kernel_select(have)->bytes, &peak->gops[OCT_ROOF_INT8]));
    OCT_TRY(measure_float(floats, true, &peak->gops[OCT_ROOF_BF16]));
    return measure_float(floats, false, &peak->gops[OCT_ROOF_F32]);
}
