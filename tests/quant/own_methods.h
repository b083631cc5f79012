/* The quantization methods of the plug-in of tests/plugin, for tests without a plug-in. */
#pragma once

#include "tests/plugin/lsq.c"
#include "tests/plugin/percentile.c"
