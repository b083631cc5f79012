/* How one module quantizes its output, and the setters that decide it.
 *
 * A setter refines the qconfig of a module; a list of them goes from high to low priority, so it is
 * applied from its end and an earlier setter overwrites what a later one said (Horizon's
 * qconfig_setter tuple). A module without a qconfig (`none`) stays float.
 */
#pragma once

#include "core/base/status.h"
#include "quant/observer/observer.h"
#include "quant/target/target.h"

/* Fake-quants (octet/quantizer.h) are numbered in the order of the list, then of plug-ins. */
#define OCT_FAKE_QUANT_KIND(file) extern const oct_fake_quant_kind oct_fake_quant_##file;
#include "quant/module/fake_quant_kind_list.def"
#undef OCT_FAKE_QUANT_KIND
extern oct_registry oct_fake_quant_kind_table;

/* When scales are settled. */
#define OCT_SCALES_LIST(X)                                                                         \
    X(OCT_SCALES_DELAYED, "delayed") /* a step uses the statistics of the steps before it */       \
    X(OCT_SCALES_CURRENT, "current") /* also its own, as in PyTorch */
typedef enum oct_scales_mode { OCT_SCALES_LIST(OCT_WORD_ID) } oct_scales_mode;
extern const oct_registry oct_scales_mode_table;

typedef struct oct_qconfig {
    bool none; /* stays float */
    const oct_observer *observer;
    const oct_fake_quant_kind *fake_quant;
    const oct_fake_quant_kind *weight_fake_quant; /* NULL: affine, as PyTorch's per channel */
    float averaging;                              /* observer's constant in (0, 1] */
    double percentile;                            /* observer's, in [50, 100] */
    int bits;                                     /* of activation codes: 8 or 16; weights have 8 */
    bool current_scales; /* observe, then quantize; otherwise delayed scales */
    bool fixed_scale;    /* the scale stays as calibration left it */
    bool float_output;   /* a layer before a DeQuantStub returns its result unquantized */
} oct_qconfig;

/* moving_average, averaging 0.01, percentile 99.99, 8 bits, delayed scales. */
oct_qconfig oct_qconfig_default(void);

/* The call site that a setter decides on. */
typedef struct oct_qconfig_site {
    const char *path;    /* "layer1.0.conv1"; generated modules too: "layer1.0._generated_add_0" */
    const char *type;    /* of the float module that gives the quantized op its name: "conv2d" */
    bool before_dequant; /* the last conv or linear before a DeQuantStub or the model's output */
} oct_qconfig_site;

typedef struct oct_qconfig_setter oct_qconfig_setter;
struct oct_qconfig_setter {
    const char *name; /* for the check report: "by name"; of a recipe "quant.float_layers" */
    void (*refine)(const oct_qconfig_setter *self, const oct_qconfig_site *site,
                   oct_qconfig *qconfig);
    const oct_qconfig *qconfig; /* what default, by_name and by_type put in place; borrowed */
    const char *pattern;        /* by_name: path with * and ?; by_type: type name; borrowed */
    bool by_type;
    const struct oct_sensitivity *table; /* sensitive: borrowed */
    size_t rows;                         /* sensitive: the table's first rows count */
    int bits;                            /* sensitive */
    bool fixed_scale;                    /* sensitive */
};

/* Gives every module this qconfig; it comes last, under all others. */
oct_qconfig_setter oct_setter_default(const oct_qconfig *qconfig);
/* Gives modules whose path fits the pattern `qconfig`; NULL: they stay float. A pattern without *
 * or ? fits the module and everything below it. */
oct_qconfig_setter oct_setter_by_name(const char *pattern, const oct_qconfig *qconfig);
oct_qconfig_setter oct_setter_by_type(const char *type, const oct_qconfig *qconfig);
/* Gives a full-precision output: sets float_output where the site is before_dequant. */
oct_qconfig_setter oct_setter_float_output(void);
/* Gives the most sensitive layers (the table's rows of activations) 8-bit weights and `bits`-bit
 * activations (Horizon's sensitive_op_qat_8bit_weight_16bit_act_qconfig_setter; fixed:
 * ..._fixed_act_...). The table is cut to its first topk rows, or to ceil(count * ratio), before
 * anything else is asked. OCT_USAGE when the table is empty, when both or neither of topk (0: not
 * given) and ratio (0: not given) are given, when topk is beyond the table's length or ratio
 * outside (0, 1]. */
oct_status oct_setter_sensitive(oct_qconfig_setter *setter, const struct oct_sensitivity *table,
                                int64_t topk, double ratio, int bits, bool fixed_scale);

typedef struct oct_qconfig_template {
    const char *name;
    int bits; /* 0: stays float */
    bool fixed_scale;
} oct_qconfig_template;

/* Setters as words, as a recipe writes them (quant.setters): WHO=TEMPLATE, where WHO is a path
 * pattern or type:NAME, and TEMPLATE is float, int8, int8_fixed, int16 or int16_fixed (bits of
 * activations; fixed: the scale stays as calibration left it). */
typedef struct oct_setter_words {
    bool by_type;
    char who[256];
    const oct_qconfig_template *qconfig; /* of the words; static */
} oct_setter_words;
/* Parses PATH=TEMPLATE or type:NAME=TEMPLATE. False with what is wrong and the remedy in `flaw`. */
bool oct_setter_parse(oct_setter_words *words, const char *text, char flaw[512]);
/* The setter that the words mean. *qconfig becomes the template on the base of `standard`; both
 * pointers are borrowed by the setter. */
oct_qconfig_setter oct_setter_of_words(const oct_setter_words *words, const oct_qconfig *standard,
                                       oct_qconfig *qconfig);

/* Returns the qconfig that the setters give a call site. */
oct_qconfig oct_qconfig_of(const oct_qconfig_setter *setters, size_t count,
                           const oct_qconfig_site *site);
/* Returns the setter of the highest priority that has something to say of the site beside its
 * float output; NULL: none has. */
const oct_qconfig_setter *oct_qconfig_decider(const oct_qconfig_setter *setters, size_t count,
                                              const oct_qconfig_site *site);
/* "by name 'layer1.*'", "quant.setters 'type:linear'", "default". Returns text. */
enum { OCT_SETTER_BYTES = 384 };
const char *oct_setter_text(const oct_qconfig_setter *setter, char text[OCT_SETTER_BYTES]);

/* Checks that modules can be quantized so on this target (NULL: on any). OCT_PREPARE with what is
 * wrong; the caller adds the path. */
oct_status oct_qconfig_check(const oct_qconfig *qconfig, const oct_target *target);
/* Checks all qconfigs that setters give, and names the setter of a wrong one. */
oct_status oct_setters_check(const oct_qconfig_setter *setters, size_t count,
                             const oct_target *target);
/* Checks that every name that the setters give (by_name patterns, rows of tables that count) fits one of the paths, and
 * that each type that a by_type setter names is among `types`, those that the model has. OCT_PREPARE with a problem for each
 * that does not, and the nearest ones. */
oct_status oct_setters_check_words(const oct_qconfig_setter *setters, size_t count,
                                   const char *const *paths, size_t num_paths,
                                   const char *const *types, size_t num_types);

/* A sensitivity table: one row a quantizer, the most sensitive first. */
typedef struct oct_sensitivity_row {
    char path[256];  /* of the module that makes the tensor or owns the weight */
    char tensor[12]; /* "activation" or "weight" */
    double sqnr;     /* dB, of the model's output with only this quantizer on, against float */
    double cosine;
    double loss_change; /* against the float model's loss */
} oct_sensitivity_row;

bool oct_sensitivity_is_activation(const oct_sensitivity_row *row);

typedef struct oct_sensitivity {
    oct_sensitivity_row *rows;
    size_t count;
} oct_sensitivity;
