/* The step max_pool takes the largest code of a window; padding never counts. */
#include "core/base/cpu.h"
#include "quant/program/step.h"

/* Finds the largest codes of a window of the plane (H, w, c), 16 channels at a time. */
#define OCT_LARGEST(name, code_t, lanes)                                                           \
    typedef code_t lanes                                                                           \
        __attribute__((vector_size(16 * sizeof(code_t)), aligned(sizeof(code_t)), may_alias));     \
                                                                                                   \
    OCT_CLONES                                                                                     \
    static void name(oct_window_span in_y, oct_window_span in_x, int64_t w, int64_t c,             \
                     const code_t *plane, code_t *y)                                               \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        for (; i + 16 <= c; i += 16) {                                                             \
            lanes most = {0};                                                                      \
            for (int64_t iy = in_y.first; iy < in_y.end; iy++) {                                   \
                for (int64_t ix = in_x.first; ix < in_x.end; ix++) {                               \
                    const lanes x = *(const lanes *)(plane + (iy * w + ix) * c + i);               \
                    const lanes larger = (lanes)(x > most);                                        \
                    most = (x & larger) | (most & ~larger);                                        \
                }                                                                                  \
            }                                                                                      \
            *(lanes *)(y + i) = most;                                                              \
        }                                                                                          \
        for (; i < c; i++) {                                                                       \
            y[i] = 0;                                                                              \
            for (int64_t iy = in_y.first; iy < in_y.end; iy++) {                                   \
                for (int64_t ix = in_x.first; ix < in_x.end; ix++) {                               \
                    const code_t x = plane[(iy * w + ix) * c + i];                                 \
                    y[i] = x > y[i] ? x : y[i];                                                    \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

OCT_LARGEST(largest8, uint8_t, lanes8)
OCT_LARGEST(largest16, uint16_t, lanes16)

void oct_qmax_pool(int64_t samples, const oct_conv_shape *s, oct_qcodes x, void *codes)
{
    const int64_t h = s->in_h, w = s->in_w, c = s->in_c, out_h = s->out_h, out_w = s->out_w;
    const bool bytes = oct_codes_dtype(x.q) == OCT_U8;
    for (int64_t i = 0; i < samples * out_h * out_w; i++) {
        const oct_window_span in_y = oct_pool_rows(s, i / out_w % out_h);
        const oct_window_span in_x = oct_pool_columns(s, i % out_w);
        const void *plane = oct_qcodes_from(x, i / (out_h * out_w) * h * w * c).data;
        void *y = oct_qcodes_place(codes, x.q, i * c);
        if (bytes)
            largest8(in_y, in_x, w, c, plane, y);
        else
            largest16(in_y, in_x, w, c, plane, y);
    }
}

static void run_max_pool(const oct_step_run *r)
{
    oct_qmax_pool(r->samples, &r->step->pool.shape, oct_step_codes(r, 0), r->output);
}

static const oct_field fields[] = {OCT_POOL_FIELDS};

const oct_step_type oct_step_max_pool = {.name = "max_pool",
                                         .inputs = {1, 1},
                                         OCT_STEP_FIELDS(fields),
                                         .check = oct_check_pool,
                                         .run = run_max_pool};
