/* liboctet-flat opens flat files alone. */
#include "quant/program/net_model.h"

const oct_net_library oct_this_library = {0};
