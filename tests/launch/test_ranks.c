/* --ranks, --hostfile, --hosts and --restart: what mpirun is asked in each dialect, which hosts are taken, and what is
 * started again. Flags and settings are tried with the mpirun that is installed, which shows what they do; those of
 * the others are compared with the table's purpose alone. A script in PATH takes the part of an mpirun that fails. */
#include "launch/ranks/ranks.h"
#include "launch/ranks/mpirun.h"
#include "tests/launch/small_data.h"
#include "tests/support/check_status.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Open MPI's line exports those of Octet's variables that are there; the tests set their own. */
static void enter(void)
{
    enter_with_data();
    for (char **variable = environ; *variable;) {
        char name[128];
        const size_t length = strcspn(*variable, "=");
        if (strncmp(*variable, "OCT_", 4) == 0 && length < sizeof(name)) {
            memcpy(name, *variable, length);
            name[length] = '\0';
            unsetenv(name);
            variable = environ;
        } else {
            variable++;
        }
    }
}

TestSuite(ranks, .init = enter, .fini = leave_folder, .timeout = 120);

static size_t has(const char **argv, const char *word)
{
    size_t times = 0;
    for (; *argv; argv++)
        times += strcmp(*argv, word) == 0;
    return times;
}

#define LINE(...)                                                                                  \
    ((oct_args){.argc = (int)OCT_COUNT(((const char *[]){__VA_ARGS__})),                           \
                .argv = (char **)(uintptr_t)(const char *[]){__VA_ARGS__}})

static const oct_mpi_launcher open_mpi = {.program = "mpirun",
                                          .dialect = &oct_mpirun_dialects[OCT_MPIRUN_OPEN_MPI_4]};

static size_t command(const oct_args *line, int64_t ranks, int64_t threads, int64_t cores,
                      const char **argv)
{
    static char number[24];
    const oct_mpirun_job start = {
        .args = line, .ranks = ranks, .threads = threads, .cores = cores, .program = "/bin/octet"};
    return oct_mpirun_command(&open_mpi, &start, number, argv, 128);
}

Test(ranks, repeats_the_command_line_without_ranks)
{
    const char *argv[128];
    oct_args line = LINE("octet", "train", "r.yaml", "--ranks", "3", "seed=5");
    size_t n = command(&line, 3, 1, 3, argv);
    static const char *const wanted[] = {"mpirun",     "-n",    "3",      "--bind-to", "core",
                                         "/bin/octet", "train", "r.yaml", "seed=5"};
    cr_assert_eq(n, OCT_COUNT(wanted));
    for (size_t i = 0; i < n; i++)
        cr_assert_str_eq(argv[i], wanted[i]);
    cr_assert_null(argv[n]);
    line = LINE("octet", "train", "r.yaml", "--ranks=3");
    command(&line, 3, 1, 8, argv);
    cr_assert_eq(has(argv, "--ranks=3"), 0u);
    line = LINE("octet", "train", "r.yaml", "-H", "a:2", "--hostfile=f", "--restart", "4", "--",
                "--ranks");
    n = command(&line, 3, 1, 8, argv);
    cr_assert(n == 10 && has(argv, "--") == 1 && has(argv, "--ranks") == 1);
}

Test(ranks, oversubscribes_and_frees_ranks_when_cores_are_few)
{
    const char *argv[128];
    oct_args line = LINE("octet", "train", "r.yaml", "--ranks", "3");
    command(&line, 3, 1, 2, argv);
    cr_assert(has(argv, "--oversubscribe") == 1 && has(argv, "none") == 1);
    command(&line, 3, 4, 16, argv);
    cr_assert(has(argv, "--oversubscribe") == 0 && has(argv, "none") == 1, "threads share a core");
    command(&line, 2, 1, 8, argv);
    cr_assert(has(argv, "none") == 1, "two jobs would share the first cores");
    const oct_mpirun_job narrowed = {
        .args = &line, .ranks = 2, .threads = 1, .cores = 2, .narrowed = true, .program = "octet"};
    char number[24];
    oct_mpirun_command(&open_mpi, &narrowed, number, argv, 128);
    cr_assert(has(argv, "none") == 1, "they are not the first two of the host");
}

Test(ranks, passes_on_whether_to_draw_the_bar_unless_asked)
{
    const char *argv[128];
    char number[24];
    oct_args line = LINE("octet", "train", "r.yaml", "--ranks", "2");
    oct_mpirun_job start = {
        .args = &line, .ranks = 2, .threads = 1, .cores = 2, .bar = true, .program = "octet"};
    oct_mpirun_command(&open_mpi, &start, number, argv, 128);
    cr_assert_eq(has(argv, "bar"), 1u);
    line = LINE("octet", "train", "r.yaml", "--ranks", "2", "--progress", "lines");
    line.progress = "lines";
    oct_mpirun_command(&open_mpi, &start, number, argv, 128);
    cr_assert(has(argv, "bar") == 0 && has(argv, "lines") == 1);
}

static const struct dialect {
    const char *said, *name;
    int dialect;
    const char *crowded, *on_hosts; /* flags: three ranks on two cores; with a hostfile */
} dialects[] = {
    {"mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n",
     "Open MPI 4.1.4", OCT_MPIRUN_OPEN_MPI_4, "-n 3 --oversubscribe --bind-to none",
     "-n 3 --map-by slot --hostfile hosts --bind-to none"},
    {"mpirun (Open MPI) 5.0.6\n\nReport bugs to https://www.open-mpi.org/community/help/\n",
     "Open MPI 5.0.6", OCT_MPIRUN_OPEN_MPI_5, "-n 3 --map-by slot:OVERSUBSCRIBE --bind-to none",
     "-n 3 --map-by slot --hostfile hosts --bind-to none"},
    {"HYDRA build details:\n    Version:                                 4.0.2\n", "MPICH 4.0.2",
     OCT_MPIRUN_MPICH, "-n 3 -bind-to none -genvall", "-n 3 -f hosts -bind-to none -genvall"},
    {"Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307 (id: d82b3071db)\n",
     "Intel MPI 2021.9", OCT_MPIRUN_INTEL, "-n 3 -silent-abort -genvall",
     "-n 3 -machinefile hosts -silent-abort -genvall"},
};

/* What this test was started with is not to be passed on. */
static void clear_exported(void)
{
    static const char *const names[] = {"OMP_WAIT_POLICY", "OMP_NUM_THREADS",   "GOMP_SPINCOUNT",
                                        "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"};
    for (size_t i = 0; i < OCT_COUNT(names); i++)
        unsetenv(names[i]);
}

static void check_flags(const oct_mpi_launcher *mpirun, const char *hostfile, const char *wanted)
{
    char number[24], flags[400] = "";
    const char *argv[128];
    oct_args line = LINE("octet", "train", "r.yaml");
    const oct_mpirun_job start = {.args = &line,
                                  .ranks = 3,
                                  .threads = 1,
                                  .cores = 2,
                                  .program = "octet",
                                  .hostfile = hostfile};
    oct_mpirun_command(mpirun, &start, number, argv, 128);
    for (size_t i = 1; strcmp(argv[i], "octet") != 0; i++)
        snprintf(flags + strlen(flags), sizeof(flags) - strlen(flags), "%s%s", i > 1 ? " " : "",
                 argv[i]);
    cr_assert_str_eq(flags, wanted);
}

Test(ranks, each_mpirun_is_asked_in_its_own_dialect)
{
    clear_exported();
    for (size_t i = 0; i < OCT_COUNT(dialects); i++) {
        oct_mpi_launcher mpirun = {.program = "mpirun"};
        cr_assert(oct_mpirun_recognize(&mpirun, dialects[i].said));
        cr_assert_eq(mpirun.dialect - oct_mpirun_dialects, dialects[i].dialect);
        cr_assert_str_eq(mpirun.name, dialects[i].name);
        check_flags(&mpirun, NULL, dialects[i].crowded);
        check_flags(&mpirun, "hosts", dialects[i].on_hosts);
    }
    oct_mpi_launcher mpirun;
    cr_assert(!oct_mpirun_recognize(&mpirun, "usage: mpirun [-n N] program\n"));
}

Test(ranks, open_mpi_gets_the_variables_that_other_hosts_need)
{
    const char *argv[128];
    char number[24];
    oct_args line = LINE("octet", "train", "r.yaml");
    const oct_mpirun_job start = {
        .args = &line, .ranks = 2, .threads = 2, .cores = 8, .program = "x", .hostfile = "hosts"};
    clear_exported();
    setenv("OMP_WAIT_POLICY", "passive", 1);
    setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
    setenv("HOME", "/root", 1);
    oct_mpirun_command(&open_mpi, &start, number, argv, 128);
    cr_assert(has(argv, "-x") == 2 && has(argv, "OMP_WAIT_POLICY=passive") == 1 &&
              has(argv, "HDF5_USE_FILE_LOCKING=FALSE") == 1);
}

static void write_hosts(const char *text)
{
    FILE *file = small_create(".", "hosts");
    fputs(text, file);
    fclose(file);
}

Test(ranks, hosts_are_read_as_each_library_writes_them)
{
    oct_rank_hosts hosts;
    char path[64], line[64];
    write_hosts(
        "# two racks\nnode1 slots=16\r\n\n  node2:4 # half\nnode3\nnode1 slots = 2\nlocalhost");
    MUST(oct_rank_hosts_read(&hosts, "hosts"));
    cr_assert(hosts.count == 4 && oct_rank_hosts_slots(&hosts) == 24 &&
              oct_rank_hosts_beyond(&hosts));
    cr_assert(hosts.host[0].slots == 18 && hosts.host[1].slots == 4 && hosts.host[3].here);
    hosts.host[1].silent = true;
    MUST(oct_rank_hosts_write(&hosts, open_mpi.dialect, path));
    FILE *file = fopen(path, "r");
    cr_assert(file && fgets(line, sizeof(line), file));
    cr_assert_str_eq(line, "node1 slots=18\n");
    cr_assert(fgets(line, sizeof(line), file));
    cr_assert_str_eq(line, "node3 slots=1\n");
    fclose(file);
    MUST(oct_rank_hosts_write(&hosts, &oct_mpirun_dialects[OCT_MPIRUN_MPICH], path));
    file = fopen(path, "r");
    cr_assert(file && fgets(line, sizeof(line), file));
    cr_assert_str_eq(line, "node1:18\n");
    fclose(file);
    oct_rank_hosts_free(&hosts);
}

Test(ranks, a_line_that_is_no_host_is_refused_with_file_and_line)
{
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"", "hosts: names no host; write lines such as node1 slots=16"},
        {"# node1\n\n", "hosts: names no host; write lines such as node1 slots=16"},
        {"node1\n-oProxyCommand=x\n", "hosts:2: '-oProxyCommand=x' is no host; write a name and "
                                      "how many ranks it takes: node1:16"},
        {"node1;reboot", "hosts:1: 'node1;reboot' is no host; write a name and how many ranks it "
                         "takes: node1:16"},
        {"node1 slots=0", "hosts:1: 'node1 slots=0': slots are a number from 1 to 4096"},
        {"node1:", "hosts:1: 'node1:': slots are a number from 1 to 4096"},
        {"node1 slots=99999999999999999999",
         "hosts:1: 'node1 slots=99999999999999999999': slots are a number from 1 to 4096"},
        {"node1 slots=2 max_slots=4",
         "hosts:1: 'node1 slots=2 max_slots=4': slots are a number from 1 to 4096"},
        {"node1 node2", "hosts:1: 'node1 node2': after a host write slots=16, :16 or nothing"},
        {"node1 slots", "hosts:1: 'node1 slots': write slots=16"},
        {"node1:4096\nnode1", "hosts:2: host node1 has more than 4096 slots altogether"},
    };
    oct_rank_hosts hosts;
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        write_hosts(cases[i].text);
        cr_assert_eq(oct_rank_hosts_read(&hosts, "hosts"), OCT_USAGE);
        cr_assert_str_eq(oct_error_message(0), cases[i].sentence);
        oct_rank_hosts_free(&hosts);
    }
    cr_assert_eq(oct_rank_hosts_parse(&hosts, "a:1,,b"), OCT_USAGE);
    oct_rank_hosts_free(&hosts);
}

/* An agent of the test's own decides which hosts answer. */
Test(ranks, hosts_that_do_not_answer_are_left_out)
{
    oct_rank_hosts hosts;
    must("printf '#!/bin/sh\\n[ $1 != node2 ] && [ $1 != node3 ] && exit 0\\n"
         "[ $1 = node3 ] && sleep 100\\nexit 1\\n' >agent; chmod +x agent");
    setenv("OMPI_MCA_plm_rsh_agent", "./agent : rsh", 1);
    MUST(oct_rank_hosts_parse(&hosts, "node1:2,node2:2,node3:2,localhost:1"));
    MUST(oct_rank_hosts_ask(&hosts, open_mpi.dialect, 0.5));
    cr_assert(!hosts.host[0].silent && hosts.host[1].silent && hosts.host[2].silent &&
              !hosts.host[3].silent);
    cr_assert_eq(oct_rank_hosts_slots(&hosts), 3);
    oct_rank_hosts_free(&hosts);
}

/* Makes an mpirun that says the version of the true one, writes down its arguments, and ends with `ending`. */
#define PRETEND(ending)                                                                            \
    "version=$(" OCT_MPIEXEC " --version 2>&1 | head -n 1); rm -f asked; cat >mpirun <<END\n"      \
    "#!/bin/sh\n[ \"\\$1\" = --version ] && echo '$version' && exit\n"                             \
    "printf '%s\\n' \"\\$*\" >>asked\n" ending "\nEND\nchmod +x mpirun; "                          \
    "PATH=$PWD:$PATH exec \"$1\" train r.yaml "

Test(ranks, an_mpirun_of_another_library_is_refused)
{
    static const char *const script =
        "ldd \"$1\" | grep -q libmpich && said='(Open MPI) 4.1.4' || said='HYDRA: Version: 4.0'; "
        "mkdir bin; "
        "printf '#!/bin/sh\\necho \"%s\"\\n' \"$said\" | tee bin/mpirun >bin/mpirun.openmpi; "
        "cp bin/mpirun bin/mpirun.mpich; chmod +x bin/*; "
        "PATH=$PWD/bin:$PATH exec \"$1\" train r.yaml --ranks 2";
    RUN("bash", "-c", script, "bash", OCT_PROGRAM);
    oct_check_exit(job, 2);
    oct_check_said(job, "octet: error: --ranks: mpirun is that of ");
    oct_check_said(job, ", so each rank would take itself for the only one; put the mpirun of ");
    must("test ! -e new");
}

Test(ranks, losses_are_followed_by_as_many_starts_as_were_allowed)
{
    RUN("bash", "-c", PRETEND("kill -KILL \\$\\$") "-H localhost:3 --restart 3", "bash",
        OCT_PROGRAM);
    oct_check_exit(job, 6);
    oct_check_said(job, "mpirun itself was ended by signal 9 (Killed), and its ranks with it; "
                        "restart 1 of 3: 3 ranks go on from step 0");
    oct_check_said(job, "restart 2 of 3: 2 ranks go on from step 0");
    oct_check_said(job, "restart 3 of 3: 1 rank goes on from step 0");
    cr_assert_eq(oct_process_said_times(&job, "error"), 1, "%s", job.err);
    must("test $(wc -l <asked) = 4 && test $(grep -c '/proc/[0-9]*/fd/[0-9]* ' asked) = 4");
}

/* Ranks of other hosts cannot be seen, so that mpirun's status is theirs. */
#define ELSEWHERE                                                                                  \
    "export OMPI_MCA_plm_rsh_agent=true PRTE_MCA_plm_ssh_agent=true HYDRA_LAUNCHER_EXEC=true; "

Test(ranks, the_status_that_the_ranks_ended_with_is_reported_as_it_is)
{
    RUN("bash", "-c", ELSEWHERE PRETEND("exit 6") "-H elsewhere:2 --restart 1", "bash",
        OCT_PROGRAM);
    oct_check_exit(job, 6);
    oct_check_said(job, "octet: warning: a rank was lost, stuck or had diverged; restart 1 of 1: "
                        "2 ranks go on from step 0");
}

Test(ranks, other_ends_are_final)
{
    static const int ends[] = {2, 3, 4, 5, 7, 75};
    for (size_t i = 0; i < OCT_COUNT(ends); i++) {
        char number[8];
        snprintf(number, sizeof(number), "%d", ends[i]);
        RUN("bash", "-c", ELSEWHERE PRETEND("exit $2") "-H elsewhere:2 --restart 3", "bash",
            OCT_PROGRAM, number);
        oct_check_exit(job, ends[i]);
        must("test $(wc -l <asked) = 1");
    }
}

/* On this host it is known that no rank began: no status of mpirun is that of a rank, or a stop. */
Test(ranks, the_end_of_an_mpirun_without_ranks_is_its_own)
{
    static const char *const ends[] = {"0", "1", "3", "6", "75"};
    for (size_t i = 0; i < OCT_COUNT(ends); i++) {
        RUN("bash", "-c", PRETEND("echo reasons >&2; exit $2") "--ranks 2 --restart 3", "bash",
            OCT_PROGRAM, ends[i]);
        oct_check_exit(job, 7);
        oct_check_said(job, "reasons\noctet: error: mpirun ended with status ");
        oct_check_said(job, " before a rank had started");
        must("test $(wc -l <asked) = 1");
    }
}

/* Makes an mpirun that starts script `rank` with the program and its words on each rank, in place of the program. */
#define AROUND_RANKS(script)                                                                       \
    "printf '#!/bin/sh\\n" script "exec \"$@\"\\n' >rank; cat >mpirun <<'END'\n"                   \
    "#!/bin/bash\nfor word; do shift; case $word in */octet) set -- \"$@\" ./rank;; esac; "        \
    "set -- \"$@\" \"$word\"; done; exec " OCT_MPIEXEC " \"$@\"\nEND\nchmod +x rank mpirun; "      \
    "PATH=$PWD:$PATH exec \"$1\" train r.yaml --ranks 2 "

#define RANK_1 "[ ${OMPI_COMM_WORLD_RANK-$PMI_RANK} = 1 ] && "

/* Before Octet begins in it, such as in the loader (127) or a script around it. */
Test(ranks, a_rank_that_ends_before_octet_begins_is_named)
{
    static const char *const scripts[] = {AROUND_RANKS(RANK_1 "sleep 2; " RANK_1 "exit 3\\n"),
                                          AROUND_RANKS(RANK_1 "sleep 2; " RANK_1 "exit 127\\n")};
    for (size_t i = 0; i < OCT_COUNT(scripts); i++) {
        RUN("bash", "-c", scripts[i], "bash", OCT_PROGRAM);
        oct_check_exit(job, 6);
        if (strcmp(OCT_MPI_NAME, "MPICH") == 0) /* whose mpirun leaves it to the other ranks */
            oct_check_said(job, "ended before it started MPI");
        else
            oct_check_said(job, i == 0 ? "octet: error: a rank ended with status 3 before Octet "
                                         "began in it; ranks that never began: 1; repeat"
                                       : "octet: error: a rank ended with status 127 before Octet");
    }
}

/* MPI's own message says why, and the rank counts as lost. The line that is looked for comes from the rank's standard
 * error: mpirun 4.1 itself loses one message in ten that its ranks send to it. */
Test(ranks, an_mpi_that_does_not_start_is_no_stop)
{
    if (strcmp(OCT_MPI_NAME, "Open MPI") != 0) return;
    RUN("env", "OMPI_MCA_btl=self", "OMPI_MCA_btl_base_verbose=100", OCT_PROGRAM, "train", "r.yaml",
        "--ranks", "2", "--restart", "1");
    oct_check_exit(job, 6);
    oct_check_said(job, "select: initializing btl component self");
    oct_check_said(job,
                   " where MPI starts: see MPI's output above for the reason; repeat the command");
    oct_check_said(job, "; restart 1 of 1: ");
}

Test(ranks, too_few_slots_of_an_allocation_are_said_by_mpirun)
{
    if (strcmp(OCT_MPI_NAME, "Open MPI") != 0) return;
    must("echo localhost slots=1 >slots");
    RUN("bash", "-c",
        "export OMPI_MCA_orte_default_hostfile=$PWD/slots "
        "PRTE_MCA_prte_default_hostfile=$PWD/slots; "
        "exec \"$1\" train r.yaml --ranks 2",
        "bash", OCT_PROGRAM);
    oct_check_exit(job, 7);
    oct_check_said(job, "There are not enough slots available");
    oct_check_said(job, "octet: error: mpirun ended with status 1 before a rank had started");
}

/* A daemon that cannot call back, as after a firewall. */
Test(ranks, a_start_on_other_hosts_has_a_deadline_that_names_them)
{
    RUN("bash", "-c", PRETEND("sleep 100") "-H host2:1,localhost:1,host3:1 --deadline 2", "bash",
        OCT_PROGRAM);
    oct_check_exit(job, 6);
    oct_check_said(job,
                   "has started no rank on host2, localhost, host3 in 1 s; the job ends after 2 s");
    oct_check_said(
        job, "octet: error: mpirun started no rank on host2, localhost, host3 before the deadline");
}

/* Ranks of host2 report that they have begun, and end the job when the others do not come. */
Test(ranks, hosts_are_named_where_some_ranks_have_begun_and_others_have_not)
{
    static const char *const lists[][2] = {
        {"-H host2.here:2,host3:2", "2 of 4 ranks, none on host3"},
        {"-H 10.0.0.2:2,10.0.0.3:2",
         "2 of 4 ranks (of the hosts 10.0.0.2, 10.0.0.3, begun on: host2 )"},
        {"--ranks 4", "2 of 4 ranks (of the hosts host[2-3], begun on: host2 )"}};
    for (size_t i = 0; i < OCT_COUNT(lists); i++) {
        char said[256];
        RUN("bash", "-c",
            "case \"$2\" in -H*) ;; *)  export SLURM_JOB_NODELIST='host[2-3]';; esac; " PRETEND(
                "printf '\\001octet-ranks 2 host2\\n' >&2; sleep 4.5; exit 6") "$2 --deadline 6",
            "bash", OCT_PROGRAM, lists[i][0]);
        oct_check_exit(job, 6);
        snprintf(said, sizeof(said), " has started %s in 3 s; the job ends after 6 s", lists[i][1]);
        oct_check_said(job, said);
        snprintf(said, sizeof(said), "mpirun had started %s\n", lists[i][1]);
        oct_check_said(job, said);
    }
}

/* Ranks that cannot open the table, as on other hosts, report that they have begun. */
Test(ranks, ranks_that_begin_elsewhere_are_heard)
{
    RUN("bash", "-c",
        AROUND_RANKS("export OCT_RANK_TABLE=/nowhere\\n") "float.epochs=10000 --deadline 6 & "
                                                          "sleep 10; kill -0 $! || exit 99; kill "
                                                          "-TERM $!; wait $!",
        "bash", OCT_PROGRAM);
    oct_check_exit(job, 75);
    cr_assert_eq(oct_process_said_times(&job, "octet-ranks"), 0, "%s", job.err);
}

Test(ranks, a_stop_that_is_asked_for_before_the_first_rank_ends_the_start)
{
    RUN("bash", "-c",
        "(" PRETEND(
            "sleep 100") "--ranks 2 --deadline 6) & until [ -e asked ]; do sleep 0.1; done; "
                         "kill -TERM $!; wait $!",
        "bash", OCT_PROGRAM);
    oct_check_exit(job, 75);
    oct_check_said(job, "octet: stopped as asked; repeat the command");
}

/* Each row of the table does what it is for. */
typedef struct probe {
    int64_t ranks, cores;
    bool listed; /* by a list of hosts */
    const char *folder;
    const char *script; /* what each rank does */
} probe;

static oct_mpi_launcher installed(void)
{
    oct_mpi_launcher mpirun;
    MUST(oct_mpirun_find(&mpirun, 30));
    return mpirun;
}

static void try_probe(const probe *p)
{
    const char *argv[128];
    char number[24], hostfile[64];
    const oct_mpi_launcher mpirun = installed();
    oct_rank_hosts hosts;
    oct_args line = LINE("octet", "train");
    FILE *script = small_create(".", "probe");
    fprintf(script, "#!/bin/sh\n%s\n", p->script);
    fclose(script);
    must("chmod +x probe");
    MUST(oct_rank_hosts_parse(&hosts, "localhost:2"));
    MUST(oct_rank_hosts_write(&hosts, mpirun.dialect, hostfile));
    const oct_mpirun_job start = {.args = &line,
                                  .ranks = p->ranks,
                                  .threads = 1,
                                  .cores = p->cores,
                                  .program = "./probe",
                                  .hostfile = p->listed ? hostfile : NULL,
                                  .folder = p->folder};
    oct_mpirun_environment(&mpirun, &start);
    oct_mpirun_command(&mpirun, &start, number, argv, 128);
    oct_process_free(&job);
    job = oct_run_args(PROGRAM_SECONDS, argv);
    oct_rank_hosts_free(&hosts);
}

#define SAYS_CORES "grep Cpus_allowed_list /proc/self/status"

static int64_t cores_here(void)
{
    return sysconf(_SC_NPROCESSORS_ONLN);
}

Test(ranks, the_installed_mpirun_starts_as_many_ranks_as_are_wanted)
{
    const int64_t cores = cores_here();
    try_probe(&(probe){.ranks = cores + 1, .cores = cores, .script = "echo here"});
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job, "here"), cores + 1, "%s", job.err);
    try_probe(&(probe){.ranks = 2, .cores = cores, .listed = true, .script = "echo here"});
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job, "here"), 2, "%s", job.err);
}

Test(ranks, the_installed_mpirun_pins_ranks_that_fill_the_cores_and_no_others)
{
    const int64_t cores = cores_here();
    try_probe(&(probe){.ranks = cores, .cores = cores, .script = SAYS_CORES});
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job, "Cpus_allowed_list:\t0\n"), 1, "%s", job.out);
    if (cores == 1) return;
    try_probe(&(probe){.ranks = 1, .cores = cores, .script = SAYS_CORES});
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job, "Cpus_allowed_list:\t0\n"), 0, "%s", job.out);
}

Test(ranks, the_installed_mpirun_keeps_its_files_in_the_folder_of_the_job)
{
    char folder[4096];
    bool asks = false;
    const oct_mpi_launcher mpirun = installed();
    for (const oct_mpirun_words *set = mpirun.dialect->settings; set->word[0]; set++)
        asks |= set->need == OCT_MPIRUN_WITH_FOLDER;
    if (!asks) return; /* MPICH has no files */
    must("mkdir session");
    cr_assert_not_null(getcwd(folder, sizeof(folder) - 16));
    strcat(folder, "/session");
    try_probe(&(probe){.ranks = 2,
                       .cores = 8,
                       .folder = folder,
                       .script = "find \"$PWD/session\" -mindepth 2; true"});
    oct_check_exit(job, 0);
    cr_assert(strstr(job.out, "/session/"), "%s", job.out);
}

Test(ranks, a_rank_of_the_installed_mpirun_is_known_by_its_environment)
{
    try_probe(&(probe){.ranks = 2,
                       .cores = 8,
                       .script = "echo rank ${OMPI_COMM_WORLD_RANK-$PMI_RANK} of "
                                 "${OMPI_COMM_WORLD_SIZE-$PMI_SIZE}, here "
                                 "${OMPI_COMM_WORLD_LOCAL_RANK-$MPI_LOCALRANKID} of "
                                 "${OMPI_COMM_WORLD_LOCAL_SIZE-$MPI_LOCALNRANKS}"});
    oct_check_exit(job, 0);
    oct_check_said(job, "rank 0 of 2, here 0 of 2\n");
    oct_check_said(job, "rank 1 of 2, here 1 of 2\n");
}

Test(ranks, the_exit_status_of_the_installed_mpirun_is_that_of_a_rank)
{
    try_probe(&(probe){.ranks = 1, .cores = 8, .script = "exit 3"});
    oct_check_exit(job, 3);
    if (installed().dialect->merges)
        return; /* hydra gives what it has for a signal by its version */
    try_probe(&(probe){.ranks = 1, .cores = 8, .script = "kill -KILL $$"});
    oct_check_exit(job, 128 + 9);
}

/* A rank's own sentence is all that is to be said: without mpirun's account of its end, whose form is that of its
 * version, and with mpirun's reasons where no rank began. */
Test(ranks, only_what_mpirun_alone_knows_is_passed_on)
{
    RUN("bash", "-c", "\"$1\" eval r.yaml --ranks 2", "bash", OCT_PROGRAM);
    cr_assert_neq(job.exit_code, 0);
    cr_assert_eq(oct_process_said_times(&job, "octet: error: "), 1, "%s", job.err);
    cr_assert_eq(oct_process_said_times(&job, "-----"), 0, "%s", job.err);
    cr_assert_eq(oct_process_said_times(&job, "====="), 0, "%s", job.err);
    cr_assert_eq(oct_process_said_times(&job, "\n"), 1, "%s", job.err);
}

/* An mpirun that loses all that its ranks say on stderr. */
Test(ranks, what_a_rank_said_last_comes_by_the_table_where_mpirun_has_lost_it)
{
    RUN("bash", "-c",
        "printf '#!/bin/sh\\nexec %s \"$@\" 2>/dev/null\\n' $(command -v " OCT_MPIEXEC
        ") >mpirun; chmod +x mpirun; PATH=$PWD:$PATH exec \"$1\" train r.yaml data.path=nowhere "
        "--ranks 2",
        "bash", OCT_PROGRAM);
    oct_check_exit(job, 3);
    cr_assert_eq(oct_process_said_times(&job, "octet: error: "), 1, "%s", job.err);
}

/* For three scripts: an octet that is stopped each time before its first checkpoint, and one that resumes eight times. */
Test(ranks, job_scripts_do_not_queue_again_for_ever)
{
    static const char *const scripts[] = {"pbs.sh", "slurm.sh", "slurm-mpirun.sh"};
    must("mkdir bin; cd bin; "
         "printf '#!/bin/sh\\necho run >>runs; n=$(wc -l <runs); mkdir -p new/checkpoints; "
         "[ $n -gt $GOOD ] || touch new/checkpoints/step-0000000$n.h5; exit 75\\n' >octet; "
         "printf '#!/bin/sh\\nwhile [ $1 != octet ]; do shift; done; exec \"$@\"\\n' >srun; "
         "cp srun mpirun; printf '#!/bin/sh\\necho again >>queue\\n' >qsub; cp qsub scontrol; "
         "chmod +x *");
    for (size_t i = 0; i < OCT_COUNT(scripts); i++)
        for (int good = 0; good <= 8; good += 8) {
            char script[600];
            snprintf(script, sizeof(script),
                     "rm -rf new runs queue octet-tries*; export GOOD=%d PATH=$PWD/bin:$PATH "
                     "PBS_O_WORKDIR=$PWD "
                     "PBS_NODEFILE=hosts ARGUMENTS=r.yaml SLURM_JOB_ID=1; echo again >queue; "
                     "for i in $(seq 20); do [ $(wc -l <queue) = $i ] || break; "
                     "bash " OCT_SOURCE_DIR "/launch/jobs/%s r.yaml; done; wc -l <runs",
                     good, scripts[i]);
            RUN("bash", "-c", script, "bash");
            cr_assert_str_eq(job.out, good == 0 ? "6\n" : "13\n", "%s: %s%s", scripts[i], job.out,
                             job.err);
        }
}

/* As that of Open MPI ends without ssh in PATH, though no other host is asked for. */
Test(ranks, an_mpirun_that_starts_nobody_here_has_lost_no_host)
{
    RUN("bash", "-c", PRETEND("exit 243") "--ranks 2 --restart 3", "bash", OCT_PROGRAM);
    oct_check_exit(job, 7);
    oct_check_said(job, "mpirun ended with status 243 before a rank had started");
    cr_assert_eq(oct_process_said_times(&job, "host"), 0, "%s", job.err);
    must("test $(wc -l <asked) = 1");
    RUN("bash", "-c", PRETEND("exit 243") "-H elsewhere:2", "bash", OCT_PROGRAM);
    oct_check_exit(job, 6);
    oct_check_said(job, "mpirun ended with status 243, which no rank gave: a host is lost, or the "
                        "way to it");
}

Test(ranks, a_killed_rank_costs_a_restart_and_no_bit)
{
    must(OCT_PROGRAM " train r.yaml output=whole -q >log 2>&1");
    RUN("bash", "-c",
        "\"$1\" train r.yaml float.epochs=1 checkpoint.every=1 --ranks 3 --restart 2 & "
        "until [ -e new/checkpoints/manifest.json ]; do kill -0 $! || exit 99; sleep 0.02; done; "
        "for p in $(grep -lszE 'OMPI_COMM_WORLD_RANK=1|PMI_RANK=1' /proc/[0-9]*/environ); do "
        "grep -qsz \"OCT_RANK_TABLE=/proc/$!/\" $p && kill -KILL $(echo $p | cut -d/ -f3); done; "
        "wait $!",
        "bash", OCT_PROGRAM);
    oct_check_exit(job, 0);
    oct_check_said(job, "; restart 1 of 2: 3 ranks go on from step ");
    must("cmp new/model.int8.h5 whole/model.int8.h5");
    must("! ls /dev/shm | grep -F \"octet-job.$(cat new/lock | tr -dc 0-9)\"");
    must("grep -q 'warning: .*; restart 1 of 2: 3 ranks go on from step ' new/log.txt");
}

/* A restart is no error: nothing is wrong any more. The run's log has it. */
Test(ranks, a_quiet_restart_is_reported_in_the_log_alone)
{
    must("mkdir new; cp r.yaml new/recipe.yaml");
    RUN("bash", "-c", PRETEND("kill -KILL \\$\\$") "--ranks 2 --restart 1 -q", "bash", OCT_PROGRAM);
    oct_check_exit(job, 6);
    cr_assert_eq(oct_process_said_times(&job, "restart"), 0, "%s", job.err);
    cr_assert_eq(oct_process_said_times(&job, "octet: error: "), 1, "%s", job.err);
    must("test $(grep -c 'restart 1 of 1: 2 ranks go on from step 0' new/log.txt) = 1");
}

Test(ranks, what_a_killed_job_left_in_shared_memory_goes_when_the_next_begins)
{
    must("mkdir -p /dev/shm/octet-job.1.test01; touch /dev/shm/octet-job.1.test01/segment || true");
    OCTET("train", "r.yaml", "--ranks", "2");
    oct_check_exit(job, 0);
    must("test ! -e /dev/shm/octet-job.1.test01");
}
