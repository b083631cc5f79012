/* Octet for programs of one's own: all that it takes to write a network, train it (on ranks too), prepare
 * it for QAT, convert it, and run an int8 model. Installed programs write #include <octet.h> with the
 * flags of `pkg-config octet`, or those of `pkg-config octet-runtime` to run models only;
 * share/octet/examples has one of each.
 *
 * What is stable: the names in launch/plugin.h and in the headers that this file includes keep their
 * meaning until Octet's minor version rises, and .github/CHANGELOG.md says what changes then. The other
 * installed headers are there because these need them, and may change with any version. Structs may
 * grow, so a program is compiled with the headers of the library that it links.
 */
#pragma once

#include "core/nn/modules.h"        /* layers, and modules of one's own */
#include "core/optim/schedule.h"    /* learning rates */
#include "dist/comm.h"              /* ranks */
#include "io/batch/loader.h"        /* pixels to inputs */
#include "io/model/model_file.h"    /* int8 models as files */
#include "launch/model/parts.h"     /* layers that are often used together */
#include <octet/version.h>          /* OCT_VERSION, OCT_VERSION_MAJOR, _MINOR, _PATCH */
#include "quant/train/train_step.h" /* training steps */
#include "quant/convert/convert.h"  /* QAT model to integer program */
#include "quant/prepare/prepare.h"  /* float model to QAT model */
#include "quant/program/flat.h"     /* flat files, without HDF5 */
#include "quant/program/program.h"  /* integer programs at work */
