/* The job script of PBS, which is not here, between an octet and a qsub that write down their arguments. Slurm's are
 * tested in Slurm (tests/jobs/slurm). */
#include "tests/support/program.h"

#include <criterion/criterion.h>

TestSuite(jobs, .init = enter_folder, .fini = leave_folder, .timeout = 100);

/* Runs pbs.sh as `$2` in a folder whose name has a space. octet ends with $1; qsub must find the script. */
#define PBS                                                                                        \
    "mkdir 'a folder' bin && cd 'a folder' && cp " OCT_SOURCE_DIR                                  \
    "/launch/jobs/pbs.sh \"$2\" && touch nodes && "                                                \
    "printf '#!/bin/bash\\nprintf \"<%%s>\" octet \"$@\" >>../said; exit %s\\n' $1 >../bin/octet " \
    "&& "                                                                                          \
    "printf '#!/bin/bash\\n[ -r \"${@: -1}\" ] && "                                                \
    "echo \"<${*:1:2}> $ARGUMENTS, $WALLTIME_S, $OCTET\" >>../said\\n' >../bin/qsub && "           \
    "chmod +x ../bin/*; export PATH=$PWD/../bin:$PATH PBS_O_WORKDIR=$PWD PBS_NODEFILE=nodes; "

static void run_script(const char *status, const char *name)
{
    RUN("bash", "-c",
        PBS "ARGUMENTS='my.yaml init_skip=[a,b] output=c' WALLTIME_S=3600 bash \"$2\"", "bash",
        status, name);
}

static void check_said(const char *text)
{
    RUN("cat", "said");
    cr_assert_str_eq(job.out, text);
}

#define STARTED                                                                                    \
    "<octet><train><my.yaml><init_skip=[a,b]><output=c><--hostfile><nodes><--restart><5>"

Test(jobs, a_stopped_job_queues_again_with_all_its_arguments)
{
    run_script("75", "pbs.sh");
    oct_check_exit(job, 75);
    check_said(STARTED "<-v ARGUMENTS,WALLTIME_S,OCTET> my.yaml init_skip=[a,b] output=c, 3600, "
                       "octet\n");
}

Test(jobs, a_script_of_another_name_queues_again_too)
{
    run_script("75", "of my own.sh");
    oct_check_exit(job, 75);
    cr_assert(!oct_process_said(&job, "cannot"), "%s", job.err);
    check_said(STARTED "<-v ARGUMENTS,WALLTIME_S,OCTET> my.yaml init_skip=[a,b] output=c, 3600, "
                       "octet\n");
}

Test(jobs, other_ends_are_final)
{
    run_script("5", "pbs.sh");
    oct_check_exit(job, 5);
    check_said(STARTED);
}
