/* OpenMP's wait policy has to stand in the environment before the program is loaded. */
#include "launch/ranks/wait_policy.h"

#include "dist/comm.h"
#include "launch/run/session.h"
#include "launch/cmd/command.h"
#include "launch/cmd/shipped.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

oct_status oct_ranks_want(const oct_args *args, oct_ranks_wanted *wanted)
{
    oct_recipe recipe;
    const char *ending = args->num_words ? strrchr(args->word[0], '.') : NULL;
    const oct_command *command = oct_command_find(args->argv[1]);
    const bool follows = command && command->recipe;
    const bool reads = follows || (ending && (!strcmp(ending, ".yaml") || !strcmp(ending, ".yml")));
    *wanted = (oct_ranks_wanted){.threads = 1, .deadline_s = OCT_DEADLINE_S};
    if (reads) {
        OCT_TRY(follows ? command->recipe(&recipe, args) : oct_recipe_of_args(&recipe, args));
        *wanted = (oct_ranks_wanted){
            recipe.threads, recipe.ranks_deadline > 0 ? recipe.ranks_deadline : OCT_DEADLINE_S};
        oct_recipe_free(&recipe);
    }
    if (args->deadline > 0) wanted->deadline_s = (double)args->deadline;
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

/* Counts the cores that the ranks of this host may use together: those of their launcher. A rank itself
 * may be bound to some of them. */
static int64_t cores_of_host(void)
{
    cpu_set_t mine, theirs;
    if (sched_getaffinity(0, sizeof(mine), &mine) != 0) return INT64_MAX;
    if (sched_getaffinity(getppid(), sizeof(theirs), &theirs) != 0) return CPU_COUNT(&mine);
    return CPU_COUNT(&theirs) > CPU_COUNT(&mine) ? CPU_COUNT(&theirs) : CPU_COUNT(&mine);
}

oct_status oct_wait_policy(const oct_args *args)
{
    int local_rank, ranks;
    oct_ranks_wanted wanted;
    char program[4096];
    if (is_chosen() || !oct_launched_here(&local_rank, &ranks) || ranks < 2) return OCT_OK;
    OCT_TRY(oct_ranks_want(args, &wanted));
    if (wanted.threads == 1 || ranks * wanted.threads <= cores_of_host()) return OCT_OK;
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (length <= 0) return OCT_OK;
    program[length] = '\0';
    oct_wait_policy_passive();
    execv(program, args->argv); /* where that fails, it is only slower */
    return OCT_OK;
}
