/* Formats of other programs that a model or a checkpoint can be written in: io/export/<name>.c and a line in
 * format_list.def each.
 *
 * A format says what it can be made of, and refuses what it has no form for by the layer's name. What it writes
 * follows from the model alone: equal models give equal bytes. */
#pragma once

#include "core/base/registry.h"
#include "io/export/float_network.h"
#include "io/model/model_file.h"

/* One of model and network is given. */
typedef struct oct_export {
    const oct_model *model;           /* int8 */
    const oct_float_network *network; /* the float network of a checkpoint */
    const char *class_names;          /* class_names.h; NULL: none */
    const char *port_names;           /* as of oct_model; NULL: input and output */
    const float *mean, *std;          /* OCT_REALS_MAX each, as of oct_model */
    bool all_values;                  /* each tensor of codes is an output of its own */
    bool pixels;   /* the input is pixels from 0 to 255; false: normalised values */
    bool no_bytes; /* inputs of the model were no pixels of a byte, but floats or signed bytes */
    bool codes;    /* input and output are codes, whose qparams the file has; false: floats */
    bool signed_weights; /* weights of int8 models as signed bytes; false: unsigned, around 128 */
    bool tries;          /* nothing is kept: only whether there is a form for each step */
    const char *model_sha256; /* of the model's file; NULL: not known */
    const char *name;         /* of the file, without folder and suffix */
    const char *version;      /* of Octet */
} oct_export;

typedef struct oct_port_name {
    char text[2 * 256];
} oct_port_name;
/* Gives what the model's input or output is called; port_names has a line for each. */
oct_port_name oct_export_port(const oct_export *job, bool output);

/* What was written, and what is to be said about it. */
typedef struct oct_exported {
    void *bytes; /* owned */
    size_t size;
    void *beside; /* a second file, owned; NULL: there is none */
    size_t beside_size;
    oct_text operators; /* of a file for TFLM, with spaces between them: what a program registers */
    int64_t arena;      /* bytes of the tensors between them */
    oct_text notices;   /* a line for each deviation, and for what a reader should know */
} oct_exported;
void oct_exported_free(oct_exported *exported);

typedef struct oct_export_format {
    const char *name, *help;
    const char *suffix;        /* of file names, with its dot */
    const char *beside_suffix; /* of the second file; NULL: there is one */
    bool runs;                 /* a file of it is a network, which can be run */
    bool choices;              /* --all-values is for it */
    bool processors;           /* weights of int8 models are by the processor that it is for */
    bool golden;               /* golden samples stand beside it; otherwise in it, if at all */
    bool channels_last;        /* such a network takes images and gives planes as (N, H, W, C) */
    bool hands_over_codes;     /* oct_export.codes is for it */
    /* NULL: it has no form for such a file. OCT_PREPARE with a problem for each layer that it cannot say. */
    oct_status (*write_model)(const oct_export *job, oct_exported *out);
    oct_status (*write_network)(const oct_export *job, oct_exported *out);
} oct_export_format;

#define OCT_EXPORT_FORMAT(name) extern const oct_export_format oct_export_format_##name;
#include "io/export/format_list.def"
#undef OCT_EXPORT_FORMAT

extern const oct_registry oct_export_format_table;

/* Fills in the bytes that each step's arrays and layer take as constants of the format c (KWS_CONSTANT_BYTES is their
 * sum); -1 where C has no form for a step. The program has passed its check. OCT_RESOURCE when memory is out. */
oct_status oct_c_constant_bytes(const oct_program *program, int64_t *bytes);

/* NumPy's .npz, for golden samples: a zip archive of arrays, stored as they are. Equal arrays give equal bytes. */
typedef struct oct_npz_array {
    const char *name; /* "input" */
    oct_dtype dtype;
    oct_shape shape;
    const void *data;
} oct_npz_array;

/* Makes the archive; *bytes is oct_alloc'ed. OCT_PREPARE for more than the 4 GiB that such an archive holds. */
oct_status oct_npz_make(const oct_npz_array *arrays, int count, void **bytes, size_t *size);
