/* The int8 model file (`*.int8.h5`): integer program, how to feed it, golden vectors, certificate.
 * The file has a checksum as io/hdf5/hdf5.h says: the SHA-256 after the image is checked before HDF5 sees a
 * byte. Equal models give equal bytes. */
#pragma once

#include "io/hdf5/hdf5.h"
#include "io/model/model.h"

#include <octet/net.h>

/* Saves the model unless it could not be loaded: the same checks, OCT_DATA. Finds overflow bounds that are missing. */
oct_status oct_model_write(const char *path, const oct_model *model);
/* Reads a model, also from a flat file (below), and checks everything: digest, what is in the file (hdf5.h), ranges,
 * oct_program_check. */
oct_status oct_model_read(oct_model *model, const char *path);
/* The same, and checks that running it takes no more than the limits (oct_program_check_costs) unless `large` is set, and
 * that its float fallbacks can be made and run (oct_fallbacks_check; those of plug-ins are checked when these are
 * loaded). */
oct_status oct_model_load(oct_model *model, const char *path, bool large);
/* Writes all of a model to an open file (writes), or reads it and checks it: OCT_DATA. On failure the caller frees the
 * model. */
oct_status oct_model_transfer(oct_h5 *h5, bool writes, oct_model *model);
/* Finds whether the file is undamaged and an int8 model. Fails only when that cannot be found out
 * (OCT_RESOURCE). */
oct_status oct_model_probe(const char *path, bool *is);

/* A flat file (quant/program/flat.h) has all that a model file holds, but float layers. */
bool oct_model_is_flat(const void *bytes, size_t size); /* by the first bytes */
/* Reads the model; *model is zeroed before, and to be freed by the caller, also on failure. bytes lie at a multiple of
 * 64 and stay the caller's. What is said lacks the path. */
oct_status oct_model_read_flat(oct_model *model, const void *bytes, size_t size);
/* Makes a flat file; *bytes is oct_alloc'ed. OCT_PREPARE with a problem for each step that it has no form for; bytes NULL:
 * only this is found out. */
oct_status oct_model_write_flat(const oct_model *model, void **bytes, size_t *size);
/* What normalising makes of the pixels 0 to 255: tables of flat files and nets, one or as many as channels. */
int64_t oct_model_pixel_tables(const oct_model *model);
void oct_model_pixels(const oct_model *model, int64_t table, float values[OCT_PIXEL_VALUES]);

/* Opens an HDF5 model as a net (oct_net_open), and a net of a model in memory, which it copies. */
oct_status oct_net_open_hdf5(oct_net **net, const char *path, const oct_net_options *options);
oct_status oct_net_of_model(oct_net **net, const oct_model *model, const oct_net_options *options);
