#define FORMAT "flat"
#include "tests/fuzz/export.h"
