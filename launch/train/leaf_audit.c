/* The first computation of a leaf is that of the step itself, which its owner digests meanwhile. */
#include "launch/train/leaf_audit.h"

#include "core/base/mem.h"
#include "launch/train/replica_check.h"
#include "launch/train/trainer_impl.h"

#include <stdio.h>

/* Of the digests of an audit. */
enum { IN_THE_STEP, BY_THE_AUDITOR, BY_EACH };

static int64_t leaves_of(int64_t samples, int64_t leaf)
{
    return oct_leaves_split(samples, leaf, 0, 1).count;
}

static int owner_of(int64_t leaf, const oct_leaves *all, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        const oct_leaves its = oct_leaves_split(all->samples, all->leaf, r, ranks);
        if (leaf >= its.first && leaf < its.first + its.local) return r;
    }
    return 0;
}

oct_audit_choice oct_audit_choose(int64_t number, const oct_audited_update *u, int ranks)
{
    const int64_t in_each = leaves_of(u->samples, u->leaf);
    const int64_t count = (u->batches - 1) * in_each + leaves_of(u->last, u->leaf);
    const int64_t at = number % count, batch = at / in_each;
    const oct_leaves all = {.samples = batch == u->batches - 1 ? u->last : u->samples,
                            .leaf = u->leaf};
    oct_audit_choice choice = {.batch = batch, .leaf = at % in_each};
    choice.owner = choice.auditor = owner_of(choice.leaf, &all, ranks);
    if (ranks > 1)
        choice.auditor = (int)((choice.owner + 1 + (number / count + at) % (ranks - 1)) % ranks);
    return choice;
}

static int rank_of_digest(const oct_audit_choice *choice, int i)
{
    return i == IN_THE_STEP ? choice->owner : i == BY_THE_AUDITOR ? choice->auditor : i - BY_EACH;
}

int oct_audit_judge(const oct_audit_choice *choice, const int64_t *digest, int ranks, bool *faulty)
{
    int64_t most;
    int count = 0;
    const bool known = oct_find_most(digest, BY_EACH + ranks, &most);
    for (int r = 0; r < ranks; r++)
        faulty[r] = !known && (r == choice->owner || r == choice->auditor);
    for (int i = 0; known && i < BY_EACH + ranks; i++)
        faulty[rank_of_digest(choice, i)] |= digest[i] != most;
    for (int r = 0; r < ranks; r++)
        count += faulty[r];
    return count;
}

oct_status oct_trainer_audit_create(oct_trainer *trainer)
{
    const oct_recipe *recipe = trainer->recipe;
    const oct_dataset *data = trainer->train_data;
    oct_leaf_audit *audit = &trainer->audit;
    if (recipe->audit_every == 0) return OCT_OK;
    OCT_TRY(oct_training_loader(&audit->loader, recipe, data));
    OCT_TRY(oct_loader_reserve(&audit->loader, recipe->batch_leaf));
    return oct_alloc(&audit->images, (size_t)(recipe->batch_leaf * data->h * data->w * data->c),
                     sizeof *audit->images);
}

static int64_t samples_of(const oct_trainer *trainer, const oct_step_batches *b, int64_t batch)
{
    return oct_loader_samples(&trainer->loader, b->first + batch);
}

void oct_trainer_audit_begin(oct_trainer *trainer, const oct_step_batches *b)
{
    oct_leaf_audit *audit = &trainer->audit;
    oct_step_audit *step = &trainer->training.audit;
    const int64_t every = trainer->recipe->audit_every, number = trainer->step + 1;
    step->on = every > 0 && trainer->phase != OCT_PHASE_CALIBRATE && number % every == 0;
    if (!step->on) return;
    const oct_audited_update update = {b->count, samples_of(trainer, b, 0),
                                       samples_of(trainer, b, b->count - 1),
                                       trainer->recipe->batch_leaf};
    audit->choice = oct_audit_choose(number / every, &update, trainer->group->size);
    step->batch = audit->choice.batch;
    step->leaf = audit->choice.leaf;
}

/* Numbers that were finite in the step and are not now are other ones. */
static oct_status compute_leaf(oct_trainer *trainer, const oct_step_batches *b, int64_t *digest)
{
    oct_leaf_audit *audit = &trainer->audit;
    const oct_audit_choice *choice = &audit->choice;
    oct_leaves leaf =
        oct_leaves_split(samples_of(trainer, b, choice->batch), trainer->recipe->batch_leaf, 0, 1);
    const oct_batch_source source = {&audit->loader, audit->images, b->epoch,
                                     b->first + choice->batch};
    oct_batch batch;
    uint64_t all;
    leaf.first = choice->leaf;
    leaf.local = 1;
    OCT_TRY(oct_trainer_read(trainer, &source, &leaf, &batch));
    OCT_TRY(oct_trainer_ask(trainer, &leaf, &batch));
    const oct_status status = oct_train_step_again(&trainer->training, &batch, &all);
    *digest = (int64_t)(all >> 1);
    if (status != OCT_NUMERIC) return status;
    oct_fail_clear();
    *digest = 0;
    return OCT_OK;
}

static oct_status report_faulty_ranks(const oct_trainer *trainer, const bool *faulty, int count)
{
    const oct_collective *group = trainer->group;
    const oct_audit_choice *choice = &trainer->audit.choice;
    const long long step = (long long)trainer->step + 1, leaf = (long long)choice->leaf;
    char names[600];
    oct_name_ranks(group, faulty, names, sizeof names);
    if (group->size == 1)
        return oct_fail(
            OCT_LOST,
            "step %lld: leaf %lld was computed again to other bits: processor or "
            "memory of this host is intermittently faulty; test them, and train again on "
            "another host, since what was learned here may be wrong",
            step, leaf);
    return oct_fail(
        OCT_LOST,
        "step %lld: %s computed leaf %lld to other bits than %s: processor or memory there is "
        "faulty; "
        "test %s, leave it out, and train again, or from a checkpoint that is older than the fault",
        step, names, leaf, count > 1 ? "each other" : "the other ranks",
        count > 1 ? "these hosts" : "that host");
}

/* Collective: all compute the leaf, and most of them are right. */
static oct_status find_errant(oct_trainer *trainer, const oct_step_batches *b,
                              const int64_t first[BY_EACH])
{
    const oct_collective *group = trainer->group;
    const int64_t n = BY_EACH + group->size;
    int64_t *digest = NULL;
    bool *faulty = NULL;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_alloc(&digest, (size_t)n, sizeof *digest));
    OCT_TRY_OUT(oct_alloc(&faulty, (size_t)group->size, sizeof *faulty));
    digest[IN_THE_STEP] = first[IN_THE_STEP];
    digest[BY_THE_AUDITOR] = first[BY_THE_AUDITOR];
    OCT_TRY_OUT(compute_leaf(trainer, b, &digest[BY_EACH + group->rank]));
    OCT_TRY_OUT(group->max_i64(group, digest, n));
    status = report_faulty_ranks(
        trainer, faulty, oct_audit_judge(&trainer->audit.choice, digest, group->size, faulty));
out:
    oct_free(&digest);
    oct_free(&faulty);
    return status;
}

oct_status oct_trainer_audit_end(oct_trainer *trainer, const oct_step_batches *b)
{
    const oct_collective *group = trainer->group;
    const oct_audit_choice *choice = &trainer->audit.choice;
    oct_step_audit *step = &trainer->training.audit;
    int64_t digest[BY_EACH] = {-1, -1};
    if (!step->on || trainer->training.sums.skipped) return OCT_OK;
    if (group->rank == choice->owner) digest[IN_THE_STEP] = (int64_t)(step->digest >> 1);
    if (group->rank == choice->auditor) OCT_TRY(compute_leaf(trainer, b, &digest[BY_THE_AUDITOR]));
    OCT_TRY(group->max_i64(group, digest, BY_EACH));
    if (digest[IN_THE_STEP] != digest[BY_THE_AUDITOR]) return find_errant(trainer, b, digest);
    trainer->audit.done++;
    return OCT_OK;
}
