#define FORMAT "c"
#include "tests/fuzz/export.h"
