/* What differs between the mpiruns that --ranks starts: one row of this table each, and nothing else in this folder
 * asks which it is. Rows are tried by the tests with the mpirun that is installed: Open MPI 4.1 and MPICH 4.0 of
 * Debian 12, Open MPI 5.0 and MPICH 4.2 of Debian 13. That of Intel MPI is from its documentation (Developer
 * Reference 2021, Global Hydra Options).
 *
 * What a user of mpirun has to know is known here: more ranks than cores want leave; mpirun pins each rank to one
 * core, which threads must not share; root needs two variables; a host that lost its power is noticed after eight
 * minutes unless keepalives come sooner. What a rank finds in its environment is in dist/launcher.c. */
#include "launch/ranks/mpirun.h"

#define OPEN_MPI_SETTINGS(prefix)                                                                  \
    {OCT_MPIRUN_AS_ROOT, {"OMPI_ALLOW_RUN_AS_ROOT", "1"}},                                         \
        {OCT_MPIRUN_AS_ROOT, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}},                             \
        {OCT_MPIRUN_ON_HOSTS, {prefix "MCA_oob_tcp_keepalive_time", "10"}},                        \
        {OCT_MPIRUN_ON_HOSTS, {prefix "MCA_oob_tcp_keepalive_intvl", "3"}},                        \
    {                                                                                              \
        OCT_MPIRUN_ON_HOSTS,                                                                       \
        {                                                                                          \
            prefix "MCA_oob_tcp_keepalive_probes", "3"                                             \
        }                                                                                          \
    }

/* mpirun's account of a rank that has ended. Its --quiet would leave out all it says, reasons too. */
#define OPEN_MPI_ACCOUNTS                                                                          \
    "Primary job  terminated normally, but", " noticed that process rank",                         \
        " detected that one or more processes", " has exited due to process rank",                 \
        "MPI_ABORT was invoked on rank", " Forwarding signal", "/show_help.c at line",             \
        " has sent help message", " have sent help message", "_base_help_aggregate"

const oct_mpirun_dialect oct_mpirun_dialects[OCT_MPIRUN_DIALECTS] = {
    [OCT_MPIRUN_OPEN_MPI_4] =
        {.name = "Open MPI",
         .said = {"(Open MPI)", "(OpenRTE)", "Open MPI "},
         .package = "openmpi-bin",
         .slots = " slots=",
         .agent = "OMPI_MCA_plm_rsh_agent",
         .default_hosts = "OMPI_MCA_orte_default_hostfile",
         .exports = true,
         .flags = {{OCT_MPIRUN_ALWAYS, {"-n", OCT_MPIRUN_RANKS}},
                   {OCT_MPIRUN_CROWDED, {"--oversubscribe"}},
                   {OCT_MPIRUN_ON_HOSTS, {"--map-by", "slot"}},
                   {OCT_MPIRUN_ON_HOSTS, {"--hostfile", OCT_MPIRUN_HOSTFILE}},
                   {OCT_MPIRUN_PINNED, {"--bind-to", "core"}},
                   {OCT_MPIRUN_LOOSE, {"--bind-to", "none"}}},
         .settings = {OPEN_MPI_SETTINGS("OMPI_"),
                      {OCT_MPIRUN_WITH_FOLDER, {"OMPI_MCA_orte_tmpdir_base", OCT_MPIRUN_FOLDER}},
                      {OCT_MPIRUN_WITH_FOLDER,
                       {"OMPI_MCA_btl_vader_backing_directory", OCT_MPIRUN_FOLDER}}},
         .accounts = {OPEN_MPI_ACCOUNTS}},
    [OCT_MPIRUN_OPEN_MPI_5] =
        {.name = "Open MPI",
         .said = {"(Open MPI)", "(OpenRTE)", "Open MPI "},
         .since = 5,
         .package = "openmpi-bin",
         .slots = " slots=",
         .agent = "PRTE_MCA_plm_ssh_agent",
         .default_hosts = "PRTE_MCA_prte_default_hostfile",
         .exports = true,
         .flags = {{OCT_MPIRUN_ALWAYS, {"-n", OCT_MPIRUN_RANKS}},
                   {OCT_MPIRUN_CROWDED, {"--map-by", "slot:OVERSUBSCRIBE"}},
                   {OCT_MPIRUN_ON_HOSTS, {"--map-by", "slot"}},
                   {OCT_MPIRUN_ON_HOSTS, {"--hostfile", OCT_MPIRUN_HOSTFILE}},
                   {OCT_MPIRUN_PINNED, {"--bind-to", "core"}},
                   {OCT_MPIRUN_LOOSE, {"--bind-to", "none"}},
                   {OCT_MPIRUN_WITH_FOLDER, {"--prtemca", "prte_tmpdir_base", OCT_MPIRUN_FOLDER}}},
         .settings = {OPEN_MPI_SETTINGS("PRTE_"),
                      {OCT_MPIRUN_WITH_FOLDER,
                       {"OMPI_MCA_btl_sm_backing_directory", OCT_MPIRUN_FOLDER}}},
         .accounts = {OPEN_MPI_ACCOUNTS, "User defined signal 1", "[warn] Epoll ",
                      "PMIX_ERR_UNREACH"}},
    [OCT_MPIRUN_MPICH] = {.name = "MPICH",
                          .said = {"HYDRA", "MPICH "},
                          .number = "Version:",
                          .package = "mpich",
                          .slots = ":",
                          .agent = "HYDRA_LAUNCHER_EXEC",
                          .merges = true,
                          .flags = {{OCT_MPIRUN_ALWAYS, {"-n", OCT_MPIRUN_RANKS}},
                                    {OCT_MPIRUN_ON_HOSTS, {"-f", OCT_MPIRUN_HOSTFILE}},
                                    {OCT_MPIRUN_PINNED, {"-bind-to", "core"}},
                                    {OCT_MPIRUN_LOOSE, {"-bind-to", "none"}},
                                    {OCT_MPIRUN_ALWAYS, {"-genvall"}}},
                          .accounts = {"Abort("}},
    [OCT_MPIRUN_INTEL] = {.name = "Intel MPI",
                          .said = {"Intel(R) MPI Library"},
                          .number = "Version",
                          .package = "none; Intel has it",
                          .slots = ":",
                          .agent = "I_MPI_HYDRA_BOOTSTRAP_EXEC",
                          .merges = true,
                          .flags = {{OCT_MPIRUN_ALWAYS, {"-n", OCT_MPIRUN_RANKS}},
                                    {OCT_MPIRUN_ON_HOSTS, {"-machinefile", OCT_MPIRUN_HOSTFILE}},
                                    {OCT_MPIRUN_ALWAYS, {"-silent-abort"}},
                                    {OCT_MPIRUN_ALWAYS, {"-genvall"}}},
                          .settings = {{OCT_MPIRUN_LOOSE, {"I_MPI_PIN", "0"}}},
                          .accounts = {"Abort("}},
};
