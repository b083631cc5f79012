/* The figures of octet bench: a file for each, and what they share.
 *
 * A figure is the median of repetitions after a warm-up that does not count, on data that is random and
 * not zero. It goes to stdout as a line of text, or with --json as an object of the one document that
 * the command prints.
 */
#pragma once

#include "core/kernel/float_kernel.h"
#include "launch/session/session.h"

#include <jansson.h>

enum { OCT_BENCH_WARM_UP = 3, OCT_BENCH_SEED = 7, OCT_BENCH_REPETITIONS_MAX = 10000 };

typedef struct oct_bench {
    oct_session *session;
    const oct_args *args;
    const char *file;       /* infer: an int8 model, or NULL */
    const char *model;      /* a model of the zoo; NULL: not given */
    int64_t h, w, c;        /* of an image */
    int64_t batch, threads; /* threads: of a rank */
    int64_t leaf;           /* samples of one of the batch */
    int64_t repetitions;    /* 0: as many as the figure needs */
    bool qat;               /* step: QAT or float */
    oct_numerics numerics;  /* step: of the backward of QAT */
    const char *norm_group; /* step: batch_norm.group of its recipe */
    bool native;            /* reduce: beside the library's own */
    json_t *figures;        /* with --json: an array */
} oct_bench;

oct_status oct_bench_step(oct_bench *bench) OCT_NODISCARD;
oct_status oct_bench_infer(oct_bench *bench) OCT_NODISCARD;
oct_status oct_bench_kernels(oct_bench *bench) OCT_NODISCARD;
oct_status oct_bench_reduce(oct_bench *bench) OCT_NODISCARD;

/* Takes the figure over (NULL is OCT_RESOURCE): it is added to the others, or without --json the line is
 * printed instead. */
oct_status oct_bench_print(oct_bench *bench, json_t *figure, const char *format, ...) OCT_NODISCARD
    OCT_PRINTF(3, 4);

/* Fills n bytes with random bits, others for each `sub`. */
void oct_bench_fill(uint8_t *bytes, int64_t n, uint32_t sub);
