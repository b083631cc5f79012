/* liboctet-runtime opens HDF5 models too, and has no modules for layers that stay float. */
#include "io/model/model_file.h"
#include "quant/program/net_model.h"

const oct_net_library oct_this_library = {.open_hdf5 = oct_net_open_hdf5};
