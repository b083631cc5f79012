/* Models are found by name, and written as module trees that a user could have written. A new one is a
 * file in this folder and a line in model_list.def. */
#pragma once

#include "core/base/registry.h"
#include "core/nn/modules.h"

typedef struct oct_model_spec {
    const char *name, *help;
    int64_t min_size; /* smallest height and width that it takes */
    /* Builds the model for inputs (h, w, c); parameters are zero until oct_init_parameters. The
     * caller destroys what a failure leaves in *root. */
    oct_status (*build)(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes);
    /* For the method eager: fuses by hand (oct_fuse_module_lists). NULL: it cannot be prepared so. */
    oct_status (*fuse)(oct_module **root);
    /* 0: one, an image. Data sets have one; a model of more is for programs of one's own
     * (quant/train/train_step.h), and the commands say so. */
    int num_inputs;
    bool per_pixel; /* its output is (N, h, w, classes), not (N, classes) */
} oct_model_spec;

#define OCT_MODEL(id, file) extern const oct_model_spec oct_model_##file;
#include "launch/model/model_list.def"
#undef OCT_MODEL

extern oct_registry oct_model_table;
const oct_model_spec *oct_model_find(const char *name);
/* Plug-ins register their models by this; specs live as long as the process. OCT_USAGE when the name is
 * taken by another one. */
oct_status oct_model_register(const oct_model_spec *spec) OCT_NODISCARD;
