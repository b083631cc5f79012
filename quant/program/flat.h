/* How a model lies in a flat file, which is mapped into memory as it is, and how it is read: with libc, libm and the
 * compiler's OpenMP alone. `octet export --format flat` writes it.
 *
 * Numbers are little endian. A file is this header, then its sections in the order of their kinds, each from a multiple
 * of OCT_FLAT_ALIGN bytes on, zeros between them. PROGRAM is the text that any model file has (program_text.c); arrays,
 * which begin at multiples of OCT_FLAT_ALIGN in the section DATA, are numbered through all steps, in the order in which a
 * step's kind lists its own. Unused bytes are 0.
 *
 * The sections MODEL and TEXTS hold what only Octet's commands read, but for the number of classes and the names of the
 * ports, so that a flat file is a whole model. */
#pragma once

#include "quant/program/step.h"

enum {
    OCT_FLAT_ALIGN = 64,
    OCT_FLAT_VERSION = 3,
    OCT_FLAT_ORDER = 0x01020304,
    OCT_FLAT_DIGEST = 32
};
#define OCT_FLAT_MAGIC "octflat" /* and a NUL */

/* name, bytes of an item */
#define OCT_FLAT_SECTIONS(X)                                                                       \
    X(PROGRAM, 1)                                                                                  \
    X(ARRAYS, sizeof(oct_flat_array))                                                              \
    X(DATA, 1)                                                                                     \
    X(PIXELS, sizeof(float))        /* value of each byte: 256 for each channel, or for all */     \
    X(CLASS_NAMES, 1)               /* a line each; may be empty */                                \
    X(GOLDEN_INPUT, sizeof(float))  /* samples, all inputs of each */                              \
    X(GOLDEN_OUTPUT, sizeof(float)) /* what comes of them: values, or numbers of classes */        \
    X(MODEL, 1) /* oct_flat_model, means and deviations, digests of the golden values */           \
    X(TEXTS, 1) /* OCT_FLAT_TEXT_COUNT of them, each ended by a NUL; empty: there is none */

enum {
#define X(name, bytes) OCT_FLAT_##name,
    OCT_FLAT_SECTIONS(X)
#undef X
        OCT_FLAT_SECTION_COUNT
};

typedef struct oct_flat_section {
    uint64_t offset, count; /* bytes from the file's beginning; items */
} oct_flat_section;

typedef struct oct_flat_header {
    char magic[8];
    uint32_t version, order; /* OCT_FLAT_ORDER as the processor that wrote it has it */
    uint64_t bytes;          /* of the file */
    uint64_t digest;         /* oct_digest of all after this number */
    uint8_t model_digest[OCT_FLAT_DIGEST]; /* SHA-256 of the model's checkpoint */
    oct_flat_section section[OCT_FLAT_SECTION_COUNT];
} oct_flat_header;

typedef struct oct_flat_array {
    uint64_t offset, count; /* bytes in DATA; elements */
} oct_flat_array;

/* The certificate (io/model/model_file.h). After it stand, as f32, a mean for each 256 numbers of PIXELS, as many standard
 * deviations, then the SHA-256 of each value of the program for each golden input. */
typedef struct oct_flat_model {
    int64_t classes, images, logits_differ, correct, rows;
    double qat_accuracy;
    uint8_t logits_digest[OCT_FLAT_DIGEST], data_digest[OCT_FLAT_DIGEST];
} oct_flat_model;

enum {
    OCT_FLAT_RECIPE,
    OCT_FLAT_DATA_FORMAT,
    OCT_FLAT_PLUGINS,
    OCT_FLAT_FALLBACKS,
    OCT_FLAT_PORT_NAMES,
    OCT_FLAT_TEXT_COUNT
};

typedef struct oct_flat oct_flat;

/* Takes bytes that lie somewhere from a multiple of 64 on, borrowed until they are closed. Everything is checked, as of any
 * file that others may have made: places and counts, then the program itself (oct_program_check), but not what running it
 * costs. OCT_DATA with a sentence. The digest shows damage; it is no signature. */
oct_status oct_flat_take(oct_flat **flat, const void *bytes, size_t size);
void oct_flat_close(oct_flat **flat);
/* The program, whose arrays are the file's own. */
const oct_program *oct_flat_program(const oct_flat *flat);
/* The items of a section, and how many there are; those of an absent one must not be read. */
const void *oct_flat_items(const oct_flat *flat, int kind, uint64_t *count);

/* For writers: bytes of an item, the length of MODEL for `channels` means and `digests` digests of golden values, and the
 * digest of a file's bytes, for its header. */
extern const size_t oct_flat_item_bytes[OCT_FLAT_SECTION_COUNT];
uint64_t oct_flat_model_bytes(int64_t channels, int64_t digests);
uint64_t oct_flat_digest(const void *bytes, size_t size);
