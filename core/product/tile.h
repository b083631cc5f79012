/* The tile kernel is a template that a kernel file includes once, for a unit that multiplies a tile of rows with a tile
 * of columns: AMX, and what has its tiles.
 *
 * A tile of rows has TILE_ROWS rows of TILE_DEPTH words, one of columns TILE_DEPTH words of TILE_COLUMNS columns, which
 * is TILE_DEPTH tiles of a packed panel as they lie there. The words of a row are taken in blocks of TILE_DEPTH, counted
 * along its runs one after the other; the last block is filled up with zeros on both sides. So sums whose rounding
 * depends on the blocks depend on the runs alone, as product.h promises.
 *
 * Where sixteen rows are a fixed distance apart and a block lies within one run, the unit reads x itself; other blocks
 * are gathered, once for all columns of a group; the unit reads lines of the cache that are not
 * whole at a third of its speed. Up to four tiles of sums are at work at once: 2 x 2, or, to hide the
 * latency of the unit where there are few rows or columns, 1 x 4 or 4 x 1.
 *
 * Before including, define
 *     TILE_NAME                 the name of the oct_product_fn that results
 *     TILE_MADD(sum, a, b)      the instruction, of three numbers of tiles; sums are int32 or float
 * and, where an oct_product with an epilogue makes something else of the sums,
 *     TILE_END(rows, panels, p, column, row, sums)   the sums of `rows` rows (1, or as many as have TILE_AT_ONCE panels)
 *                                                    from `column` on, of 1 to 4 panels; row: the oct_row of the first
 * tile_pays says whether a product is large enough; otherwise that of vectors, of the same bits, is faster.
 */
#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/product/product.h"

#include <immintrin.h>
#include <string.h>

enum {
    TILE_ROWS = 16,
    TILE_COLUMNS = 16,
    TILE_DEPTH = 16,                    /* words */
    TILE_PITCH = TILE_DEPTH * OCT_WORD, /* bytes from one row of a tile to the next */
    TILE_BYTES = TILE_ROWS * TILE_PITCH,
    TILE_AT_ONCE =
        4, /* tiles of sums, and so panels of a group of columns and tiles of a group of rows */
    TILE_GATHERED =
        32 /* tiles of rows, of a group: what is gathered of them stays in the first-level cache */
};

/* The compiler knows neither that the unit reads memory nor that it writes it. */
#define TILE_MEMORY() __asm__ volatile("" ::: "memory")

/* A block of words: where it begins, how many there are, and whether one run has them all and whether their tiles of a
 * panel follow each other. */
typedef struct tile_block {
    const oct_run *run;
    int64_t word, words;
    bool one_run, in_panel;
} tile_block;

/* A part of a block that lies within a run: its first word counted from the begin of the block. */
typedef struct tile_piece {
    int64_t x, tile, first, words;
} tile_piece;

/* What a tile of rows is read from. */
typedef struct tile_source {
    const char *at;
    int64_t pitch;
} tile_source;

/* Some rows by some columns: at most 2 x 4 or 4 x 1 tiles. */
typedef struct tile_group {
    const oct_product *p;
    const oct_row *rows;
    int64_t m, tiles;                        /* rows, and tiles of them */
    int64_t column, panels;                  /* from `column` on */
    const char *packed;                      /* the first panel */
    const char *x[TILE_AT_ONCE * TILE_ROWS]; /* where the rows of all tiles begin */
    bool regular[TILE_AT_ONCE];              /* the rows of a tile are a fixed distance apart */
    bool in_place[TILE_AT_ONCE]; /* its sums are in acc from the begin on, not in `sums` */
    const char *tail;            /* of each panel the last block, where it is not whole */
    int32_t *sums;               /* rows of `panels` panels: words of four bytes, int32 or float */
} tile_group;

/* Cuts the next block of words off at *run and *word, and moves them on. */
OCT_INLINE tile_block tile_next_block(const oct_product *p, const oct_run **run, int64_t *word)
{
    const int64_t tile = (*run)->tile + *word;
    tile_block b = {*run, *word, 0, (*run)->words - *word >= TILE_DEPTH, true};
    while (b.words < TILE_DEPTH && *run < p->runs + p->num_runs) {
        const int64_t take = oct_min_i64(TILE_DEPTH - b.words, (*run)->words - *word);
        b.in_panel &= (*run)->tile + *word == tile + b.words;
        b.words += take;
        *word += take;
        if (*word < (*run)->words) break;
        ++*run;
        *word = 0;
    }
    b.in_panel &= b.words == TILE_DEPTH;
    return b;
}

/* Lists the pieces of a block and returns how many there are. */
OCT_INLINE int tile_pieces(const tile_block *b, tile_piece *pieces)
{
    const oct_run *run = b->run;
    int64_t word = b->word, first = 0;
    int count = 0;
    for (; first < b->words; run++, word = 0) {
        const int64_t take = oct_min_i64(b->words - first, run->words - word);
        if (take == 0) continue;
        pieces[count++] = (tile_piece){run->x + OCT_WORD * word, run->tile + word, first, take};
        first += take;
    }
    return count;
}

/* Copies a block of TILE_ROWS rows, which begin at `rows`, into a tile of rows. pieces: known to the compiler if few. */
OCT_INLINE void tile_gather_pieces(const int pieces, const tile_piece *piece,
                                   const char *const *rows, char *tile)
{
    __mmask16 mask[TILE_DEPTH];
    int64_t x[TILE_DEPTH];
    for (int i = 0; i < pieces; i++) {
        mask[i] = (__mmask16)(((1U << piece[i].words) - 1) << piece[i].first);
        x[i] = piece[i].x - OCT_WORD * piece[i].first;
    }
    for (int r = 0; r < TILE_ROWS; r++) {
        __m512i words = _mm512_maskz_loadu_epi32(mask[0], rows[r] + x[0]);
        for (int i = 1; i < pieces; i++)
            words = _mm512_mask_loadu_epi32(words, mask[i], rows[r] + x[i]);
        _mm512_store_si512(tile + r * TILE_PITCH, words);
    }
}

static void tile_gather(const tile_block *b, const char *const *rows, char *tile)
{
    tile_piece piece[TILE_DEPTH];
    const int pieces = tile_pieces(b, piece);
    TILE_MEMORY();
    if (pieces == 1)
        tile_gather_pieces(1, piece, rows, tile);
    else if (pieces == 2)
        tile_gather_pieces(2, piece, rows, tile);
    else
        tile_gather_pieces(pieces, piece, rows, tile);
    TILE_MEMORY();
}

/* Copies a block's tiles of a panel into a tile of columns. */
static void tile_copy(const tile_block *b, const char *panel, char *tile)
{
    TILE_MEMORY();
    tile_piece piece[TILE_DEPTH];
    const int pieces = tile_pieces(b, piece);
    memset(tile + b->words * TILE_PITCH, 0, (size_t)((TILE_DEPTH - b->words) * TILE_PITCH));
    for (int i = 0; i < pieces; i++)
        memcpy(tile + piece[i].first * TILE_PITCH, panel + piece[i].tile * TILE_PITCH,
               (size_t)(piece[i].words * TILE_PITCH));
    TILE_MEMORY();
}

/* Tiles 0 to 3 are sums, 4 and 5 rows, 6 and 7 columns. Their numbers are parts of instructions. */
#define TILE_NUMBERED(number, DO)                                                                  \
    switch (number) {                                                                              \
    case 0:                                                                                        \
        DO(0);                                                                                     \
        break;                                                                                     \
    case 1:                                                                                        \
        DO(1);                                                                                     \
        break;                                                                                     \
    case 2:                                                                                        \
        DO(2);                                                                                     \
        break;                                                                                     \
    default:                                                                                       \
        DO(3);                                                                                     \
    }

/* Which tile has the sums of a tile of rows and a panel, as tile_multiply has them. */
OCT_INLINE int64_t tile_of_sums(int64_t tile, int64_t panel)
{
    return tile < 2 ? 2 * tile + panel : 2 * tile + panel - 3;
}

/* Multiplies a block of `tiles` tiles of rows with one of `panels` panels, and adds it to the tiles of sums. */
OCT_INLINE void tile_multiply(int64_t tiles, int64_t panels, const tile_source *a,
                              const char *const *b)
{
    _tile_loadd(4, a[0].at, a[0].pitch);
    _tile_loadd(6, b[0], TILE_PITCH);
    TILE_MADD(0, 4, 6);
    if (panels > 1) {
        _tile_loadd(7, b[1], TILE_PITCH);
        TILE_MADD(1, 4, 7);
    }
    if (panels > 2) { /* 1 x 3, 1 x 4 */
        _tile_loadd(6, b[2], TILE_PITCH);
        TILE_MADD(2, 4, 6);
        if (panels < 4) return;
        _tile_loadd(7, b[3], TILE_PITCH);
        TILE_MADD(3, 4, 7);
        return;
    }
    if (tiles == 1) return;
    _tile_loadd(5, a[1].at, a[1].pitch);
    TILE_MADD(2, 5, 6);
    if (panels > 1) TILE_MADD(3, 5, 7);
    if (tiles < 3) return;
    _tile_loadd(4, a[2].at, a[2].pitch); /* 3 x 1, 4 x 1 */
    TILE_MADD(1, 4, 6);
    if (tiles < 4) return;
    _tile_loadd(5, a[3].at, a[3].pitch);
    TILE_MADD(3, 5, 6);
}

/* Blocks one after the other, as many as can be gathered at once. */
typedef struct tile_chunk {
    int64_t count;
    tile_block block[TILE_GATHERED];
} tile_chunk;

/* Where the sums of a tile of rows from a panel on are while the unit has others. */
OCT_INLINE tile_source tile_sums(const tile_group *g, int64_t tile, int64_t panel)
{
    const oct_row *rows = g->rows + tile * TILE_ROWS;
    const int64_t column = panel * TILE_COLUMNS, columns = g->panels * TILE_COLUMNS;
    int32_t *at = g->sums + tile * TILE_ROWS * columns + column;
    if (!g->in_place[tile]) return (tile_source){(char *)at, columns * OCT_WORD};
    at = (int32_t *)g->p->acc + rows[0].acc + g->column + column;
    return (tile_source){(char *)at, (rows[1].acc - rows[0].acc) * OCT_WORD};
}

/* Tiles of sums begin at zero, are loaded, or stored. */
typedef enum tile_move { TILE_ZERO, TILE_LOAD, TILE_STORE } tile_move;

OCT_INLINE void tile_move_sums(const tile_group *g, int64_t panel, int64_t panels, tile_move move)
{
    TILE_MEMORY();
    for (int64_t t = 0; t < g->tiles; t++)
        for (int64_t c = 0; c < panels; c++) {
            const tile_source s = tile_sums(g, t, panel + c);
#define TILE_LOAD_IT(number) _tile_loadd(number, s.at, s.pitch)
#define TILE_STORE_IT(number) _tile_stored(number, (void *)(uintptr_t)s.at, s.pitch)
            if (move == TILE_ZERO)
                TILE_NUMBERED(tile_of_sums(t, c), _tile_zero)
            else if (move == TILE_LOAD)
                TILE_NUMBERED(tile_of_sums(t, c), TILE_LOAD_IT)
            else
                TILE_NUMBERED(tile_of_sums(t, c), TILE_STORE_IT)
#undef TILE_LOAD_IT
#undef TILE_STORE_IT
        }
    TILE_MEMORY();
}

/* Finds or gathers a block of each tile of rows; the tiles that are gathered begin at `to`. */
OCT_INLINE void tile_find_rows(const tile_group *g, const tile_block *b, char *to,
                               tile_source *rows)
{
    for (int64_t t = 0; t < g->tiles; t++, to += TILE_BYTES) {
        const char *const *row = g->x + t * TILE_ROWS;
        const char *const at = row[0] + b->run->x + OCT_WORD * b->word;
        if (g->regular[t] && b->one_run && (uintptr_t)at % TILE_PITCH == 0) {
            rows[t] = (tile_source){at, row[1] - row[0]};
        } else {
            rows[t] = (tile_source){to, TILE_PITCH};
            tile_gather(b, row, to);
        }
    }
}

/* Finds or copies a block of `panels` panels from `panel` on. */
OCT_INLINE void tile_find_columns(const tile_group *g, const tile_block *b, int64_t panel,
                                  int64_t panels, char *copied, const char **columns)
{
    for (int64_t c = 0; c < panels; c++, copied += TILE_BYTES) {
        const char *const packed = g->packed + (panel + c) * g->p->panel_bytes;
        if (b->in_panel) {
            columns[c] = packed + (b->run->tile + b->word) * TILE_PITCH;
        } else if (b->words < TILE_DEPTH) {
            columns[c] = g->tail + (panel + c) * TILE_BYTES;
        } else {
            columns[c] = copied;
            tile_copy(b, packed, copied);
        }
    }
}

/* Multiplies a chunk's blocks with the panels of the group. fresh: the sums begin here, at zero. While the unit works on
 * a block for the first panels, the next one is gathered. */
static void tile_multiply_chunk(const tile_group *g, const tile_chunk *chunk, bool fresh)
{
    const int64_t at_once = g->tiles == 1 ? TILE_AT_ONCE : 2, step = g->tiles * TILE_BYTES;
    char gathered[TILE_GATHERED * TILE_BYTES] __attribute__((aligned(64)));
    char copied[TILE_AT_ONCE * TILE_BYTES] __attribute__((aligned(64)));
    tile_source rows[TILE_GATHERED][TILE_AT_ONCE];
    if (chunk->count > 0) tile_find_rows(g, &chunk->block[0], gathered, rows[0]);
    for (int64_t panel = 0; panel < g->panels; panel += at_once) {
        const int64_t panels = oct_min_i64(at_once, g->panels - panel);
        tile_move_sums(g, panel, panels, fresh ? TILE_ZERO : TILE_LOAD);
        for (int64_t k = 0; k < chunk->count; k++) {
            const char *columns[TILE_AT_ONCE];
            if (panel == 0 && k + 1 < chunk->count)
                tile_find_rows(g, &chunk->block[k + 1], gathered + (k + 1) * step, rows[k + 1]);
            tile_find_columns(g, &chunk->block[k], panel, panels, copied, columns);
            tile_multiply(g->tiles, panels, rows[k], columns);
        }
        tile_move_sums(g, panel, panels, TILE_STORE);
    }
}

/* The columns of panel c that exist, as a mask. */
OCT_INLINE __mmask16 tile_columns(const tile_group *g, int64_t c)
{
    const int64_t left = g->p->n - g->column - c * TILE_COLUMNS;
    return (__mmask16)(left >= TILE_COLUMNS ? 0xffffU : (1U << left) - 1);
}

/* Loads the rows of sums that are not in place from acc, or ends them there. */
static void tile_move_rows(const tile_group *g, bool end)
{
    TILE_MEMORY();
    for (int64_t r = 0, rows = 1; r < g->m; r += rows) {
        if (g->in_place[r / TILE_ROWS]) continue;
        int32_t *sums = g->sums + r * g->panels * TILE_COLUMNS;
#ifdef TILE_END
        if (g->p->epilogue) {
            rows = g->panels == 3 || g->m - r < TILE_AT_ONCE / g->panels ? 1
                                                                         : TILE_AT_ONCE / g->panels;
            TILE_END(rows, g->panels, g->p, g->column, g->rows + r, sums);
            continue;
        }
#endif
        int32_t *acc = (int32_t *)g->p->acc + g->rows[r].acc + g->column;
        for (int64_t c = 0; c < g->panels; c++, acc += TILE_COLUMNS, sums += TILE_COLUMNS) {
            int32_t *const to = end ? acc : sums;
            const int32_t *const from = end ? sums : acc;
            const __mmask16 columns = tile_columns(g, c);
            _mm512_mask_storeu_epi32(to, columns, _mm512_maskz_loadu_epi32(columns, from));
        }
    }
    TILE_MEMORY();
}

/* Whether a tile's rows are a fixed distance apart, in x or, of whole panels, in acc. */
OCT_INLINE bool tile_is_regular(const tile_group *g, int64_t tile, bool in_acc)
{
    const oct_row *row = g->rows + tile * TILE_ROWS;
    if (g->m < (tile + 1) * TILE_ROWS) return false;
    if (in_acc && (g->p->epilogue || g->p->n - g->column < g->panels * TILE_COLUMNS)) return false;
    if (!in_acc && (row[1].x - row[0].x) % TILE_PITCH != 0) return false;
    for (int i = 2; i < TILE_ROWS; i++)
        if (in_acc ? row[i].acc - row[i - 1].acc != row[1].acc - row[0].acc
                   : row[i].x - row[i - 1].x != row[1].x - row[0].x)
            return false;
    return true;
}

/* Multiplies all words of a group's rows with its columns. */
static void tile_multiply_group(tile_group *g)
{
    const oct_product *p = g->p;
    const oct_run *run = p->runs, *const end = run + p->num_runs;
    const int64_t most = TILE_GATHERED / g->tiles;
    tile_chunk chunk;
    bool fresh = !p->add;
    for (int64_t r = 0; r < g->tiles * TILE_ROWS;
         r++) /* rows that are not there are the last one once more */
        g->x[r] = (const char *)p->x + g->rows[oct_min_i64(r, g->m - 1)].x;
    for (int64_t t = 0; t < g->tiles; t++) {
        g->regular[t] = tile_is_regular(g, t, false);
        g->in_place[t] = tile_is_regular(g, t, true);
    }
    if (p->add) tile_move_rows(g, false);
    int64_t word = 0;
    do {
        chunk.count = 0;
        while (run < end && chunk.count < most)
            chunk.block[chunk.count++] = tile_next_block(p, &run, &word);
        tile_multiply_chunk(g, &chunk, fresh);
        fresh = false;
    } while (run < end);
    tile_move_rows(g, true);
}

/* Copies the last block of each panel of a group, where it is not whole, to `tail`. */
static void tile_copy_tail(const tile_group *g, char *tail)
{
    const oct_product *p = g->p;
    const oct_run *run = p->runs;
    tile_block b = {0};
    for (int64_t word = 0; run < p->runs + p->num_runs;)
        b = tile_next_block(p, &run, &word);
    if (b.words % TILE_DEPTH == 0) return;
    for (int64_t c = 0; c < g->panels; c++)
        tile_copy(&b, g->packed + c * p->panel_bytes, tail + c * TILE_BYTES);
}

/* Whether the unit is worth the time to configure it and to fill its tiles, which should be gathered from few runs. Sums
 * of few words and panels cost as much to move as to compute, where they do not become codes at once. */
OCT_INLINE bool tile_pays(const oct_product *p)
{
    enum {
        LEAST_PRODUCTS = 2048, /* of a word and sixteen columns */
        RUN_WORDS = 6,
        MANY_WORDS = 128
    };
    const int64_t panels = (p->n + TILE_COLUMNS - 1) / TILE_COLUMNS;
    int64_t words = 0;
    for (int64_t i = 0; i < p->num_runs; i++)
        words += p->runs[i].words;
    const bool few = panels <= 2 && words < MANY_WORDS && !p->epilogue;
    return !few && words >= TILE_DEPTH && words >= RUN_WORDS * p->num_runs &&
           words * p->m * panels >= LEAST_PRODUCTS;
}

static void TILE_NAME(const oct_product *p)
{
    /* Palette 1; bytes of a row and rows of each of the eight tiles. */
    static const struct tile_config {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1,
                .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    enum { SUMS = 2 * TILE_AT_ONCE * TILE_ROWS * TILE_COLUMNS };
    int32_t sums[SUMS] __attribute__((aligned(64)));
    char tail[TILE_AT_ONCE * TILE_BYTES] __attribute__((aligned(64)));
    tile_group g = {.p = p, .packed = p->packed, .tail = tail, .sums = sums};
    _tile_loadconfig(&config);
    for (; g.column < p->n; g.column += g.panels * TILE_COLUMNS) {
        const int64_t panels = (p->n - g.column + TILE_COLUMNS - 1) / TILE_COLUMNS;
        const int64_t most = TILE_ROWS * (panels > 1 ? 2 : TILE_AT_ONCE);
        g.panels = oct_min_i64(panels, TILE_AT_ONCE);
        tile_copy_tail(&g, tail);
        for (int64_t i = 0; i < p->m; i += g.m) {
            g.rows = p->rows + i;
            g.m = oct_min_i64(p->m - i, most);
            g.tiles = (g.m + TILE_ROWS - 1) / TILE_ROWS;
            tile_multiply_group(&g);
        }
        g.packed += g.panels * p->panel_bytes;
    }
    _tile_release();
}

#undef TILE_NAME
#undef TILE_MADD
#undef TILE_END
#undef TILE_MEMORY
#undef TILE_NUMBERED
