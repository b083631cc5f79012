/* The int8 model file (`*.int8.h5`): integer program, how to feed it, golden vectors, certificate.
 * The file is sealed as io/hdf5/hdf5.h says: the SHA-256 after the image is checked before HDF5 sees a
 * byte. Equal models give equal bytes. */
#pragma once

#include "core/base/lists.h"
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

typedef struct oct_model {
    oct_program program;
    char *recipe;  /* full identity text; owned */
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

/* What running a model from a file may take unless oct_model_allow_large was called: bytes of the values
 * of one sample, and work (oct_program_costs) for one sample and for all golden inputs. */
#define OCT_MODEL_BYTES ((int64_t)1 << 28)
#define OCT_MODEL_WORK 0x1p36
#define OCT_MODEL_SET_WORK 0x1p48 /* for a test set */
void oct_model_allow_large(void);
/* Checks that running the model for so many samples takes no more work than that: OCT_DATA. */
oct_status oct_model_check_work(const oct_model *model, int64_t samples,
                                const char *path) OCT_NODISCARD;

/* Saves the model unless it could not be loaded: the same checks, OCT_DATA. */
oct_status oct_model_save(const char *path, const oct_model *model) OCT_NODISCARD;
/* Finds overflow_bound of a program that has passed its check. */
oct_status oct_model_find_bounds(oct_model *model) OCT_NODISCARD;
/* Loads a model, also from a flat file (model_flat.h), and checks everything: digest, what is in the file (hdf5.h), ranges, oct_program_check, and that
 * running it takes no more than the limits above, and that its float fallbacks can be made and run
 * (oct_fallbacks_check; those of plug-ins are checked when these are loaded). */
oct_status oct_model_load(oct_model *model, const char *path) OCT_NODISCARD;
void oct_model_free(oct_model *model);
/* Finds whether the file is undamaged and an int8 model. Fails only when that cannot be found out
 * (OCT_RESOURCE). */
oct_status oct_model_is(const char *path, bool *is) OCT_NODISCARD;
