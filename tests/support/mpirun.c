/* Flags and environment, each for a reason: leave to have more ranks than cores, no binding so
 * that tests running beside each other do not share one core, leave to run as root in containers,
 * one OpenMP thread a rank, no process_vm_readv, which containers may forbid, the PML that ranks on one host
 * agree on otherwise, after they have started all others, and a folder for the files that Open MPI would put beside
 * those of other jobs, whose ends clear them away. */
#include "tests/support/mpirun.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARGS = 128 };

void oct_mpirun_begin(oct_tmp *own)
{
    oct_tmp_create(own);
    setenv("OMPI_MCA_orte_tmpdir_base", own->path, 1); /* of 4.1, and of 5: */
    setenv("PRTE_MCA_prte_tmpdir_base", own->path, 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
    setenv("OMPI_MCA_pml", "ob1", 0);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1); /* of 4.1, and of 5: */
    setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
}

oct_process oct_mpirun(int ranks, double timeout_s, const char *program, ...)
{
    oct_tmp own;
    char number[16], path[4096];
    snprintf(number, sizeof(number), "%d", ranks);
    snprintf(path, sizeof(path), "%s%s", strchr(program, '/') ? "" : OCT_BINARY_DIR "/ranks/",
             program);

    const char *argv[MAX_ARGS] = {OCT_MPIEXEC, "-n", number, "-bind-to", "none", path};
    size_t count = 6;
    va_list list;
    va_start(list, program);
    for (; count + 1 < MAX_ARGS; count++)
        if (!(argv[count] = va_arg(list, const char *))) break;
    va_end(list);

    oct_mpirun_begin(&own);
    const oct_process job = oct_run_args(timeout_s, argv);
    oct_tmp_remove(&own);
    return job;
}
