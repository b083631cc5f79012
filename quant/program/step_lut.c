/* The step lut computes an elementwise function by a table with one entry a code, or by one for each channel. */
#include "quant/program/step.h"

/* Rows of channels that have a table each; of one channel, its codes. */
#define OCT_LOOK_UP(name, in_t, out_t)                                                             \
    static void name(int64_t rows, int64_t channels, const in_t *x, const uint16_t *table,         \
                     out_t *y)                                                                     \
    {                                                                                              \
        const int64_t size = (int64_t)1 << (8 * sizeof(in_t));                                     \
        for (int64_t i = 0; channels == 1 && i < rows; i++)                                        \
            y[i] = (out_t)table[x[i]];                                                             \
        if (channels == 1) return;                                                                 \
        for (int64_t r = 0; r < rows; r++, x += channels, y += channels)                           \
            for (int64_t c = 0; c < channels; c++)                                                 \
                y[c] = (out_t)table[c * size + x[c]];                                              \
    }

OCT_LOOK_UP(look_up_8_8, uint8_t, uint8_t)
OCT_LOOK_UP(look_up_8_16, uint8_t, uint16_t)
OCT_LOOK_UP(look_up_16_8, uint16_t, uint8_t)
OCT_LOOK_UP(look_up_16_16, uint16_t, uint16_t)

/* codes[r][c] = table of channel c [x[r][c]], by the bytes of input and output codes. */
static void look_up(int64_t rows, int64_t channels, oct_qcodes x, const uint16_t *table,
                    oct_qparams y, void *codes)
{
    const bool wide = oct_codes_dtype(y) == OCT_U16;
    if (oct_codes_dtype(x.q) == OCT_U8)
        wide ? look_up_8_16(rows, channels, x.data, table, codes)
             : look_up_8_8(rows, channels, x.data, table, codes);
    else
        wide ? look_up_16_16(rows, channels, x.data, table, codes)
             : look_up_16_8(rows, channels, x.data, table, codes);
}

/* Whether each channel has a table; one of a single channel is that of all. */
static bool has_channels(const oct_program *program, const oct_step *step)
{
    return step->lut.size > oct_qtable_size(oct_step_input(program, step, 0)->q);
}

static oct_status check_lut(const oct_program *program, const oct_step *step)
{
    const oct_qparams y = oct_step_output(program, step)->q;
    OCT_TRY(oct_check_same_shape(program, step, 0));
    const oct_value *x = oct_step_input(program, step, 0);
    const int64_t codes = oct_qtable_size(x->q);
    if (has_channels(program, step))
        OCT_CHECK(step->lut.table && step->lut.size == codes * x->c, OCT_DATA,
                  "its tables are missing or do not have %lld entries for each of %lld channels",
                  (long long)codes, (long long)x->c);
    else
        OCT_TRY(oct_check_table(program, step, step->lut.table, step->lut.size));
    for (int64_t i = 0; i < step->lut.size; i++)
        OCT_CHECK(step->lut.table[i] >= y.qmin && step->lut.table[i] <= y.qmax, OCT_DATA,
                  "entry %lld of its table, %d, is no code of value %d", (long long)i,
                  step->lut.table[i], step->output);
    return OCT_OK;
}

static void run_lut(const oct_step_run *r)
{
    const oct_value *y = oct_step_output(r->program, r->step);
    const int64_t numel = r->samples * oct_value_numel(y);
    const uint16_t *table = r->step->lut.table;
    const int64_t channels = has_channels(r->program, r->step) ? y->c : 1;
    look_up(numel / channels, channels, oct_step_codes(r, 0), table, y->q, r->output);
}

static oct_status table_shape(const oct_step *step, oct_shape *shape)
{
    *shape = OCT_SHAPE(step->lut.size);
    return OCT_OK;
}

static const oct_field fields[] = {OCT_FIELD(lut, size, 0, OCT_TABLES_MAX)};
static const oct_step_array arrays[] = {{.group = "tables",
                                         .name = "codes",
                                         .dtype = OCT_U16,
                                         .offset = offsetof(oct_step, lut.table),
                                         .shape = table_shape}};

const oct_step_type oct_step_lut = {.name = "lut",
                                    .inputs = {1, 1},
                                    OCT_STEP_FIELDS(fields),
                                    OCT_STEP_ARRAYS(arrays),
                                    .check = check_lut,
                                    .run = run_lut};
