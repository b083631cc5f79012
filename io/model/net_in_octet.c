/* liboctet opens HDF5 models too, and runs layers that stay float by its modules. */
#include "io/model/model_file.h"
#include "quant/convert/convert.h"
#include "quant/program/net_model.h"

const oct_net_library oct_this_library = {.open_hdf5 = oct_net_open_hdf5,
                                          .host = &oct_module_fallbacks};
