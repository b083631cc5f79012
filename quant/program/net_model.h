/* A model as nets run it, whatever file it comes from, and the way from one to a net. */
#pragma once

#include "quant/program/program.h"

#include <octet/net.h>

/* What a reader of models hands over. All of it is the owner's, who is released with the last net. */
typedef struct oct_net_source {
    const oct_program *program;
    int classes;
    const char *class_names, *port_names;       /* lines; */
    size_t class_names_bytes, port_names_bytes; /* 0: there are none */
    const float *pixels;                        /* what normalising makes of 0 to 255 ... */
    int64_t pixel_tables;                       /* ... in each channel; 1: in all of them */
    int64_t golden_count;
    const float *golden_input; /* golden_count x all inputs */
    bool (*is_golden)(const void *owner, int64_t n, const void *output); /* of golden input n? */
    void *owner;
    void (*release)(void *owner);
} oct_net_source;

/* Makes a net of a model that has passed the checks of its reader. The owner is released also on failure. */
oct_status oct_net_create(oct_net **net, const oct_net_source *source,
                          const oct_net_options *options);

/* What the library can do with models beside running flat files. Each is linked with one file that says so, called by its
 * name: quant/program/net_in_flat.c, io/model/net_in_runtime.c, io/model/net_in_octet.c. */
typedef struct oct_net_library {
    /* Opens an HDF5 model; what it says begins with the path. NULL: it has no HDF5. */
    oct_status (*open_hdf5)(oct_net **net, const char *path, const oct_net_options *options);
    const oct_fallback_host
        *host; /* of layers that stay float; NULL: models with such layers are refused */
} oct_net_library;
extern const oct_net_library oct_this_library;
