/* Octet installed into a folder of a test's, as a user has it, and the example plug-in built there: once for a program, each of
 * whose tests has links to these files. What a test changes it has to write anew. */
#pragma once

#include "tests/launch/small_data.h"

#include <criterion/hooks.h>

#define INSTALLED "OCT_TEST_INSTALLED" /* the folder, in the environment of the tests */

ReportHook(PRE_ALL)(struct criterion_test_set *tests)
{
    oct_tmp once;
    (void)tests;
    oct_tmp_create(&once);
    setenv(INSTALLED, once.path, 1);
    must("cd $" INSTALLED " && cmake --install " OCT_BINARY_DIR " --prefix $PWD/octet >log 2>&1 || "
         "{ cat log; exit 1; }");
}

ReportHook(POST_ALL)(struct criterion_global_stats *stats)
{
    (void)stats;
    must("rm -r $" INSTALLED);
}

/* Into octet/. Commands after this find it by pkg-config. */
static inline void installed_octet(void)
{
    char path[600];
    must("cp -al $" INSTALLED "/octet .");
    snprintf(path, sizeof(path), "%s/octet/lib/pkgconfig", tmp.path);
    cr_assert(setenv("PKG_CONFIG_PATH", path, 1) == 0);
}

/* Also plugin/, with plugin/example.so: from the installed headers alone. */
static inline void installed_plugin(void)
{
    installed_octet();
    must("cd $" INSTALLED " && flock . sh -c '[ -e plugin/made ] || { "
         "cp -r octet/share/octet/examples/plugin . && make -C plugin "
         "CFLAGS=\"-O2 -Wall -Wextra -Wpedantic -Werror\" >log 2>&1 && touch plugin/made; } || "
         "{ cat log; exit 1; }'");
    must("cp -a $" INSTALLED "/plugin .");
}
