/* Octet installed into a folder of a test's, as a user has it, and the example plug-in built there. */
#pragma once

#include "tests/launch/small_data.h"

/* Into octet/. Commands after this find it by pkg-config. */
static inline void installed_octet(void)
{
    char path[600];
    must("cmake --install " OCT_BINARY_DIR " --prefix \"$PWD/octet\" >log 2>&1 || "
         "{ cat log; exit 1; }");
    snprintf(path, sizeof(path), "%s/octet/lib/pkgconfig", tmp.path);
    cr_assert(setenv("PKG_CONFIG_PATH", path, 1) == 0);
}

/* Also plugin/, with plugin/example.so: from the installed headers alone. */
static inline void installed_plugin(void)
{
    installed_octet();
    must("cp -r octet/share/octet/examples/plugin plugin && make -C plugin "
         "CFLAGS='-O2 -Wall -Wextra -Wpedantic -Werror' >log 2>&1 || { cat log; exit 1; }");
}
