/* The wait policy of OpenMP, which has to stand in the environment before the program is loaded. */
#include "launch/wait_policy.h"

#include "launch/shipped.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

oct_status oct_threads_wanted(const oct_args *args, int64_t *threads)
{
    *threads = 1;
    const char *ending = args->num_words ? strrchr(args->word[0], '.') : NULL;
    if (!ending || (strcmp(ending, ".yaml") != 0 && strcmp(ending, ".yml") != 0)) return OCT_OK;
    oct_recipe recipe;
    OCT_TRY(oct_recipe_of_args(&recipe, args));
    *threads = recipe.threads;
    oct_recipe_free(&recipe);
    return OCT_OK;
}

static bool is_chosen(void)
{
    return getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT");
}

void oct_wait_policy_passive(void)
{
    if (!is_chosen()) setenv("OMP_WAIT_POLICY", "passive", 1);
}

/* All that the ranks of this host may use together: what their launcher may. A rank itself may be bound
 * to some of them. */
static int64_t cores_of_host(void)
{
    cpu_set_t mine, theirs;
    if (sched_getaffinity(0, sizeof(mine), &mine) != 0) return INT64_MAX;
    if (sched_getaffinity(getppid(), sizeof(theirs), &theirs) != 0) return CPU_COUNT(&mine);
    return CPU_COUNT(&theirs) > CPU_COUNT(&mine) ? CPU_COUNT(&theirs) : CPU_COUNT(&mine);
}

oct_status oct_wait_policy(const oct_args *args)
{
    int64_t ranks, threads;
    char program[4096];
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (is_chosen() || !text || !oct_parse_i64(text, &ranks) || ranks < 2) return OCT_OK;
    OCT_TRY(oct_threads_wanted(args, &threads));
    if (threads == 1 || ranks * threads <= cores_of_host()) return OCT_OK;
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (length <= 0) return OCT_OK;
    program[length] = '\0';
    oct_wait_policy_passive();
    execv(program, args->argv); /* where that fails, it is only slower */
    return OCT_OK;
}
