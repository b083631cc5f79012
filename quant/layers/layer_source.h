/* A layer source shows what each layer of a network computes for one sample after another: of a model with
 * tape and modules, float or prepared, in whatever state its quantizers are, or of an integer program.
 *
 * Layers have the names that steps of a program have, so those of a float model (prepared, its quantizers
 * OFF), of a QAT model and of its int8 model can be compared (oct_layer_pairs). Where convolution, batch norm, addition
 * and relu run as one, the layer's output is that of the last of them, in float too. */
#pragma once

#include "quant/prepare/prepare.h"
#include "quant/program/program.h"

/* How far numbers are from a reference, as sums that are added sample by sample. */
typedef struct oct_error_sums {
    double signal; /* squares of the reference */
    double noise;  /* of the differences */
    double power;  /* of the values */
    double product;
} oct_error_sums;

/* Adds n pairs of a reference and a value, in order. Returns their largest difference; NaN where one is NaN. */
double oct_error_add(oct_error_sums *sums, const float *reference, const float *values, int64_t n);
/* The ratio of signal to noise in dB; infinite where nothing differs. */
double oct_error_sqnr(const oct_error_sums *sums);
/* The cosine of the angle between both; 1 where both are 0 throughout. */
double oct_error_cosine(const oct_error_sums *sums);

typedef struct oct_layer_info {
    char name[128];     /* "layer1.0.conv1"; the output of a step has that step's name */
    char type[64];      /* of the module ("conv2d"), or the step's kind */
    oct_module *module; /* of a model, which may be NULL there too; borrowed */
    oct_value value;    /* its output: type, plane, qparams of codes */
    int namesake;       /* how many layers before it have the same name */
    /* It computes nothing: a stub, or a view of its input. A program may leave it out. */
    bool passes;
} oct_layer_info;

typedef struct oct_layer_source {
    oct_layer_info *layers; /* in the order in which they run */
    int64_t count;
    oct_example example; /* of one sample */
    /* One of both: */
    oct_module *root;
    oct_context *cx;   /* where the model runs */
    int64_t *layer_of; /* by value of the trace; -1: none */
    size_t num_values;
    const oct_program *program;
    oct_runtime *runtime;
    void *output;
} oct_layer_source;

/* Lists the layers of a model, which it runs once. Borrows both. example: shapes; its data is not used. */
oct_status oct_layer_source_of_model(oct_layer_source *source, oct_module *root,
                                     const oct_example *example);
/* Lists the steps of a program, which is borrowed, as layers. */
oct_status oct_layer_source_of_program(oct_layer_source *source, const oct_program *program);
void oct_layer_source_free(oct_layer_source *source);

/* Shows the output of a layer, as a tensor of one sample; its data is gone when it returns. */
typedef void (*oct_layer_fn)(void *user, int64_t layer, const oct_tensor *output);
/* Runs one sample (input: of each input of the network) through all layers. OCT_MISMATCH when the model's forward takes
 * another way on it than it took when the source was made. */
oct_status oct_layer_source_run(const oct_layer_source *source, const float *const *input,
                                oct_layer_fn show, void *user);

/* Writes the real values of an output: n floats. */
void oct_layer_values(const oct_tensor *output, float *values);

/* Layer pairs are the layers of two networks that have one name and size: each is shown with what both have computed for
 * the same sample. */
typedef struct oct_layer_pairs {
    const oct_layer_source *a, *b;
    int64_t *a_of;    /* by layer of b; -1: a has none */
    int64_t *b_of;    /* by layer of a; -1: b has none */
    oct_tensor *held; /* by layer of a: its output for the sample at hand */
    uint8_t *memory;
} oct_layer_pairs;

/* Pairs the layers of a and b that have one name and size. Borrows both sources. */
oct_status oct_layer_pairs_create(oct_layer_pairs *pairs, const oct_layer_source *a,
                                  const oct_layer_source *b);
void oct_layer_pairs_free(oct_layer_pairs *pairs);

/* Shows layer `b` of the second network, and what the first has for it, which is of as many numbers. */
typedef void (*oct_layer_pair_fn)(void *user, int64_t b, const oct_tensor *of_a,
                                  const oct_tensor *of_b);
/* Runs a sample through both, in the order of b's layers. Each has its own input, since each may want its images in
 * another range. */
oct_status oct_layer_pairs_run(const oct_layer_pairs *pairs, const float *input_a,
                               const float *input_b, oct_layer_pair_fn show, void *user);

/* A comparison finds where two networks depart, layer by layer, over some samples. */

/* A number that differs: its place and what both have there. */
typedef struct oct_layer_difference {
    int64_t sample, index; /* in the order of the samples; in the output of one sample */
    double a, b;           /* codes where both are codes of one grid; real values otherwise */
} oct_layer_difference;

/* A layer of b and the one of a that has its name. */
typedef struct oct_layer_comparison {
    bool pair;        /* a has one; otherwise the rest is 0 */
    bool same_format; /* both are of one type, and codes of the same scale, zero point and range */
    int64_t numbers, different; /* in any bit where the formats are the same, else as real values */
    oct_layer_difference first; /* where some differ */
    oct_error_sums sums;        /* of b's real values, with a's as the reference */
    double max_error;
} oct_layer_comparison;

typedef struct oct_comparing {
    oct_layer_pairs pairs;
    oct_layer_comparison *layers; /* of b, in its order */
    int64_t samples;              /* compared so far */
    float *values_a, *values_b;   /* of the layer at hand */
} oct_comparing;

/* Begins a comparison of a's layers with b's; oct_comparing_add compares samples. Borrows both sources. */
oct_status oct_comparing_begin(oct_comparing *comparing, const oct_layer_source *a,
                               const oct_layer_source *b);
/* Compares one sample; each network has its own input. */
oct_status oct_comparing_add(oct_comparing *comparing, const float *input_a, const float *input_b);
void oct_comparing_end(oct_comparing *comparing);
