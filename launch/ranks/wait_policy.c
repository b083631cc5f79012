/* OpenMP's wait policy must be in the environment before the program is loaded. */
#include "launch/ranks/ranks.h"

#include "core/base/int_math.h"
#include "core/base/log.h"
#include "dist/comm.h"
#include "launch/base/machine.h"
#include "launch/session/session.h"
#include "launch/cmd/command.h"
#include "launch/cmd/recipe_args.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool names_recipe(const oct_args *args)
{
    const char *ending = args->num_words ? strrchr(args->word[0], '.') : NULL;
    return ending && (!strcmp(ending, ".yaml") || !strcmp(ending, ".yml"));
}

oct_status oct_ranks_want(const oct_args *args, oct_ranks_wanted *wanted)
{
    OCT_OWNED(oct_recipe_free) oct_recipe recipe = {0};
    const oct_command *command = oct_command_find(args->argv[1]);
    const bool has_reader = command && command->recipe;
    const bool reads = has_reader || names_recipe(args);
    *wanted = (oct_ranks_wanted){.threads = 1, .deadline_s = OCT_DEADLINE_S};
    if (reads) {
        OCT_TRY(has_reader ? command->recipe(&recipe, args) : oct_recipe_of_args(&recipe, args));
        *wanted = (oct_ranks_wanted){
            recipe.threads, recipe.ranks_deadline > 0 ? recipe.ranks_deadline : OCT_DEADLINE_S};
    }
    if (args->deadline > 0) wanted->deadline_s = (double)args->deadline;
    return OCT_OK;
}

static bool is_chosen(void)
{
    return getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT");
}

void oct_wait_policy_choose(bool cores_suffice)
{
    if (is_chosen()) return;
    setenv(cores_suffice ? "GOMP_SPINCOUNT" : "OMP_WAIT_POLICY", cores_suffice ? "2000" : "passive",
           1);
}

oct_status oct_wait_policy(const oct_args *args)
{
    int local_rank, ranks = 1;
    oct_ranks_wanted wanted;
    char program[4096];
    const bool launched = oct_launched_here(&local_rank, &ranks);
    if (is_chosen() || (!launched && !names_recipe(args))) return OCT_OK;
    oct_log_again(true);
    const oct_status status = oct_ranks_want(args, &wanted);
    oct_log_again(false);
    OCT_TRY(status);
    if (wanted.threads == 1) return OCT_OK;
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (length <= 0) return OCT_OK;
    program[length] = '\0';
    /* The cores that the ranks of this host may use together are those of their launcher; a rank itself may be bound to
     * some of them. */
    int64_t cores = oct_machine_cores();
    cpu_set_t theirs;
    if (launched && sched_getaffinity(getppid(), sizeof theirs, &theirs) == 0)
        cores = oct_max_i64(cores, CPU_COUNT(&theirs));
    if (ranks > 1 && oct_machine_cores() >= cores)
        oct_machine_unbind(); /* its launcher bound none */
    oct_wait_policy_choose(ranks * wanted.threads <= cores);
    execv(program, args->argv); /* where that fails, it is only slower */
    return OCT_OK;
}
