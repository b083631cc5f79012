/* What tests of programs share: a temporary folder that is the working folder, and the last command that
 * ran in it. A test file that wants more at its start calls these from a function of its own. */
#pragma once

#include "tests/support/process.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef PROGRAM_SECONDS /* how long a command may take */
#define PROGRAM_SECONDS 120
#endif

static oct_tmp tmp;
static oct_process job;

static inline void enter_folder(void)
{
    oct_tmp_create(&tmp);
    cr_assert(chdir(tmp.path) == 0);
    setenv("OMPI_MCA_orte_tmpdir_base", tmp.path, 1); /* as in mpirun.c */
    setenv("PRTE_MCA_prte_tmpdir_base", tmp.path, 1);
}

static inline void leave_folder(void)
{
    oct_process_free(&job);
    oct_tmp_remove(&tmp);
}

#define RUN(...) (oct_process_free(&job), job = oct_process_run(PROGRAM_SECONDS, __VA_ARGS__, NULL))
#define OCTET(...) RUN(OCT_PROGRAM, __VA_ARGS__)

static inline void shell(const char *script)
{
    RUN("bash", "-c", script);
}

/* A line for the shell that only prepares something. */
static inline void must(const char *line)
{
    cr_assert(system(line) == 0, "%s", line);
}
