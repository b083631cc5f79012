/* An int8 model in memory: integer program, how to feed it, golden vectors, certificate. */
#pragma once

#include "core/base/text.h"
#include "quant/program/program.h"

typedef struct oct_certificate {
    int64_t images;            /* test images compared when it was made */
    int64_t logits_differ;     /* logits of QAT evaluation and program that differ in any bit: 0 */
    int64_t correct;           /* of those images, by the program */
    int64_t rows;              /* that count, such as pixels; 0 stands for images */
    double qat_accuracy;       /* percent, by QAT evaluation; -1: the task has no classes */
    uint8_t logits_digest[32]; /* SHA-256 of the float logits of QAT evaluation over the test set */
    uint8_t data_digest[32];   /* of the test set */
    int64_t golden_count;      /* golden inputs */
    int64_t num_fallbacks;     /* layers that stay float */
    char *fallbacks;           /* a line for each, and for unrolled blocks; owned, may be NULL */
} oct_certificate;

static inline int64_t oct_certificate_rows(const oct_certificate *c)
{
    return c->rows > 0 ? c->rows : c->images;
}

typedef struct oct_model {
    oct_program program;
    char *
        recipe; /* full identity text; owned; NULL or empty: a program has made the model, without a recipe */
    char *plugins; /* SHA-256 and path of each plug-in after it, a line each; owned, may be NULL */
    char *data_format; /* owned */
    char *class_names; /* class_names.h; owned, may be NULL */
    char *port_names; /* of the network that it came from (core/nn/network.h); owned, may be NULL */
    /* Of the channels of input 0; where there are more of them, the first holds for all. */
    float mean[OCT_REALS_MAX], std[OCT_REALS_MAX];
    int classes; /* numbers in the program's output; of class numbers, how many there are */
    uint8_t checkpoint_digest[32];
    int64_t *overflow_bound; /* per step: largest |accumulator|, 0 where none; owned */
    float *golden_input;     /* golden_count x all inputs; owned */
    uint8_t *golden_digest;  /* golden_count x num_values x 32: SHA-256 of each value; owned */
    oct_certificate certificate;
} oct_model;

static inline bool oct_model_has_recipe(const oct_model *model)
{
    return model->recipe && *model->recipe;
}

/* Whether the outputs are values, such as quantities, and not how likely classes are. Without a recipe the certificate
 * knows, or there is one output, or names of classes say that they are no values. */
bool oct_model_gives_values(const oct_model *model);

#define OCT_MODEL_SET_WORK 0x1p48
/* Checks that running the model for `samples` takes no more than OCT_MODEL_SET_WORK multiply-adds: OCT_DATA.
 * large: it may. */
oct_status oct_model_check_work(const oct_model *model, int64_t samples, bool large,
                                const char *path);

/* Limits of a file: steps, values, golden inputs, and bytes of a text. */
enum {
    OCT_MODEL_STEPS_MAX = 4096,
    OCT_MODEL_VALUES_MAX = 8192,
    OCT_MODEL_GOLDEN_MAX = 65536,
    OCT_MODEL_TEXT_MAX = 1 << 20,
    OCT_PORT_NAMES_BYTES_MAX = 2 * 256
};
/* Checks what holds of every model, saved or loaded: oct_program_check, texts, bounds, certificate. OCT_DATA. */
oct_status oct_model_check(const oct_model *model);
/* Computes overflow_bound, the largest |accumulator| of each step, of a program that passes its check. */
oct_status oct_model_find_bounds(oct_model *model);
/* Runs a program on samples, each with all its inputs one after another as in golden_input, and gives their outputs. */
oct_status oct_model_run_golden(const oct_program *program, const float *inputs, int64_t samples,
                                uint8_t *outputs);
void oct_model_free(oct_model *model);
