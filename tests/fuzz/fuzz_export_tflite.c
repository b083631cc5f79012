#define FORMAT "tflite"
#include "tests/fuzz/export.h"
