/* Convolutions and linear layers that hand over their unquantized result. */
#include "quant/program/step_conv_impl.h"

const oct_step_type oct_step_conv_float = {.name = "conv_float",
                                           .inputs = {1, 2},
                                           .float_out = true,
                                           .weights = true,
                                           OCT_STEP_FIELDS(oct_conv_fields),
                                           OCT_STEP_ARRAYS(oct_conv_arrays),
                                           .check = oct_conv_check,
                                           .packed_bytes = oct_conv_packed_bytes,
                                           .pack = oct_conv_pack,
                                           .scratch_bytes = oct_conv_scratch_bytes,
                                           .run = oct_conv_run};
