/* What a user of mpirun has to know and --ranks knows for him: more ranks than cores need
 * --oversubscribe; mpirun pins each rank to one core, which threads must not share; root needs two
 * variables; and the bar must be decided here, where stderr is still the user's.
 */
#include "launch/ranks.h"

#include "dist/comm.h"
#include "io/recipe.h"
#include "launch/job.h"
#include "launch/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MPIRUN_WORDS = 16 };

size_t oct_ranks_command(const oct_args *args, int64_t ranks, int64_t threads, int64_t cores,
                         bool bar, const char *program, char number[24], const char **argv,
                         size_t capacity)
{
    size_t n = 0;
    OCT_ASSERT(capacity >= (size_t)args->argc + MPIRUN_WORDS);
    snprintf(number, 24, "%" PRId64, ranks);
    argv[n++] = "mpirun";
    argv[n++] = "--quiet"; /* the sentences are ours */
    argv[n++] = "-n";
    argv[n++] = number;
    if (ranks > cores) argv[n++] = "--oversubscribe";
    argv[n++] = "--bind-to";
    argv[n++] = ranks * threads > cores || threads > 1 ? "none" : "core";
    argv[n++] = program;
    argv[n++] = args->argv[1]; /* the command */
    if (!args->progress && bar) {
        argv[n++] = "--progress";
        argv[n++] = "bar";
    }
    for (int i = 2; i < args->argc; i++) {
        if (strcmp(args->argv[i], "--ranks") == 0)
            i++;
        else if (strncmp(args->argv[i], "--ranks=", 8) != 0)
            argv[n++] = args->argv[i];
    }
    argv[n] = NULL;
    return n;
}

/* Of a recipe on the command line, which is read here also so that its mistakes are told before any
 * rank starts; 1 for other files. */
static oct_status threads_wanted(const oct_args *args, int64_t *threads)
{
    *threads = 1;
    const char *ending = args->num_words ? strrchr(args->word[0], '.') : NULL;
    if (!ending || (strcmp(ending, ".yaml") != 0 && strcmp(ending, ".yml") != 0)) return OCT_OK;
    oct_recipe recipe;
    OCT_TRY(oct_recipe_read(&recipe, args->word[0], NULL, args->word + 1, args->num_words - 1));
    *threads = recipe.threads;
    oct_recipe_free(&recipe);
    return OCT_OK;
}

oct_status oct_launch_ranks(const oct_args *args, int64_t ranks)
{
    int rank, size;
    int64_t threads = 1;
    OCT_CHECK(!oct_launched(&rank, &size), OCT_USAGE,
              "command line: --ranks under a launcher; leave one of them out");
    OCT_TRY(threads_wanted(args, &threads));
    bool bar = !args->quiet && oct_progress_terminal();

    const char *argv[OCT_ARGS_MAX + MPIRUN_WORDS];
    char number[24], program[4096];
    OCT_CHECK(args->argc <= OCT_ARGS_MAX, OCT_USAGE, "command line: more than %d words",
              OCT_ARGS_MAX);
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    OCT_CHECK(length > 0, OCT_RESOURCE, "/proc/self/exe: %s", strerror(errno));
    program[length] = '\0';
    oct_ranks_command(args, ranks, threads, oct_job_cores(), bar, program, number, argv,
                      OCT_COUNT(argv));

    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
    fflush(NULL);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    return oct_fail(
        OCT_RESOURCE,
        "--ranks %s: mpirun cannot be started (%s); install it (Debian: openmpi-bin), or "
        "leave --ranks out",
        number, strerror(errno));
}
