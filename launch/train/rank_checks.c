/* Ranks compare bits and times in the control reduction of a step, and only where those differ is there another one. */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "launch/train/trainer_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names of ranks. */

enum { NAMED_MAX = 4 };

/* Finds the digest that more than half of n are; false: there is none. */
static bool find_majority(const int64_t *digest, int n, int64_t *most)
{
    for (int i = 0; i < n; i++) {
        int equal = 0;
        for (int j = 0; j < n; j++)
            equal += digest[j] == digest[i];
        *most = digest[i];
        if (equal * 2 > n) return true;
    }
    return false;
}

/* Names these ranks, some of them where they are many. */
static void name_ranks(const oct_collective *group, const bool *which, char *text, size_t bytes)
{
    size_t used = 0;
    int named = 0;
    text[0] = '\0';
    for (int r = 0; r < group->size; r++) {
        if (!which[r] || named++ >= NAMED_MAX) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", used > 0 ? ", " : "",
                                 group->name(group, r).text);
        if (used >= bytes) used = bytes - 1;
    }
    if (named > NAMED_MAX) snprintf(text + used, bytes - used, " and %d more", named - NAMED_MAX);
}

/* The replica check. */

/* Digests a slice of the state for the flags; a bit is shifted out, so that the digest can be negated. */
static oct_status digest_state(oct_replica_check *check, oct_train_step *training, int64_t slice,
                               int64_t slices)
{
    uint64_t digest;
    OCT_TRY(oct_train_step_digest(training, slice, slices, &digest));
    check->digest = check->most = (int64_t)(digest >> 1);
    check->least = -check->most;
    return OCT_OK;
}

/* Collective where the digests of the ranks differ, as the reduced flags show: names those that differ from most. step: the
 * one that begins with the state. */
static oct_status judge_replicas(const oct_replica_check *check, const oct_collective *group,
                                 int64_t step)
{
    char names[NAMED_MAX * 130 + 32];
    OCT_OWNED(oct_free) bool *odd = NULL;
    OCT_OWNED(oct_free) int64_t *digest = NULL;
    int64_t most;
    int count = 0;
    if (check->most == -check->least) return OCT_OK;
    OCT_TRY(oct_alloc(&digest, (size_t)group->size, sizeof *digest));
    OCT_TRY(oct_alloc(&odd, (size_t)group->size, sizeof *odd));
    digest[group->rank] = check->digest;
    OCT_TRY(group->max_i64(group, digest, group->size));
    const bool known = find_majority(digest, group->size, &most);
    for (int r = 0; r < group->size; r++) {
        odd[r] = !known || digest[r] != most;
        count += odd[r];
    }
    name_ranks(group, odd, names, sizeof names);
    return oct_fail(
        OCT_LOST,
        "weights or optimizer state of %s differ from %s before step %lld: %smemory or "
        "processor there is faulty; test %s, or leave %s out, and repeat the command: it "
        "continues from the newest checkpoint, where all ranks had the same state",
        names, known ? "those of the other ranks" : "each other", (long long)step,
        known ? "" : "it is unknown which of them is right; ",
        count > 1 ? "these hosts" : "that host", count > 1 ? "the faulty one" : "it");
}

oct_status oct_replica_check_whole(oct_train_step *training, const oct_collective *group,
                                   int64_t steps)
{
    oct_replica_check check;
    if (group->size == 1) return OCT_OK;
    OCT_TRY(digest_state(&check, training, 0, 1));
    int64_t words[2] = {check.most, check.least};
    OCT_TRY(group->max_i64(group, words, 2));
    check.most = words[0];
    check.least = words[1];
    return judge_replicas(&check, group, steps + 1);
}

/* The leaf audit. The first computation of a leaf is that of the step itself, which its owner digests meanwhile. */

/* Of the digests of an audit. */
enum { OWNER_DIGEST, AUDITOR_DIGEST, RANK_DIGESTS };

static int64_t count_leaves(int64_t samples, int64_t leaf)
{
    return oct_leaves_split(samples, leaf, 0, 1).count;
}

/* Audits go round: the n-th takes leaf n of the update (mod its leaves), and each time round another auditor. */
oct_audit_choice oct_audit_choose(int64_t number, const oct_audited_update *u, int ranks)
{
    const int64_t in_each = count_leaves(u->samples, u->leaf);
    const int64_t count = (u->batches - 1) * in_each + count_leaves(u->last, u->leaf);
    const int64_t at = number % count, batch = at / in_each;
    const int64_t samples = batch == u->batches - 1 ? u->last : u->samples;
    oct_audit_choice choice = {.batch = batch, .leaf = at % in_each};
    for (int r = 0; r < ranks; r++) {
        const oct_leaves its = oct_leaves_split(samples, u->leaf, r, ranks);
        if (choice.leaf >= its.first && choice.leaf < its.first + its.local) choice.owner = r;
    }
    choice.auditor = choice.owner;
    if (ranks > 1)
        choice.auditor = (int)((choice.owner + 1 + (number / count + at) % (ranks - 1)) % ranks);
    return choice;
}

int oct_audit_judge(const oct_audit_choice *choice, const int64_t *digest, int ranks, bool *faulty)
{
    int64_t most;
    int count = 0;
    const bool known = find_majority(digest, RANK_DIGESTS + ranks, &most);
    for (int r = 0; r < ranks; r++)
        faulty[r] = !known && (r == choice->owner || r == choice->auditor);
    for (int i = 0; known && i < RANK_DIGESTS + ranks; i++) {
        const int rank = i == OWNER_DIGEST     ? choice->owner
                         : i == AUDITOR_DIGEST ? choice->auditor
                                               : i - RANK_DIGESTS;
        faulty[rank] |= digest[i] != most;
    }
    for (int r = 0; r < ranks; r++)
        count += faulty[r];
    return count;
}

/* Computes the audited leaf again and digests it. *digest = 0, and no failure, if a value that was finite in the step is
 * not finite now. */
static oct_status compute_leaf(oct_trainer *trainer, const oct_step_batches *b, int64_t *digest)
{
    oct_leaf_audit *audit = &trainer->audit;
    const oct_audit_choice *choice = &audit->choice;
    oct_leaves leaf =
        oct_leaves_split(oct_loader_samples(&trainer->loader, b->first + choice->batch),
                         trainer->recipe->batch_leaf, 0, 1);
    const oct_batch_source source = {&audit->loader, audit->images, b->epoch,
                                     b->first + choice->batch};
    oct_batch batch;
    uint64_t all = 0;
    leaf.first = choice->leaf;
    leaf.local = 1;
    OCT_TRY(oct_trainer_read(trainer, &source, &leaf, &batch));
    OCT_TRY(oct_trainer_ask(trainer, &leaf, &batch));
    const oct_status status = oct_train_step_replay_leaf(&trainer->training, &batch, &all);
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
    name_ranks(group, faulty, names, sizeof names);
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

/* Collective: all ranks compute the leaf; those whose digest is not that of the majority are faulty. Ends the run. */
static oct_status find_faulty_ranks(oct_trainer *trainer, const oct_step_batches *b,
                                    const int64_t first[RANK_DIGESTS])
{
    const oct_collective *group = trainer->group;
    const int64_t n = RANK_DIGESTS + group->size;
    OCT_OWNED(oct_free) int64_t *digest = NULL;
    OCT_OWNED(oct_free) bool *faulty = NULL;
    OCT_TRY(oct_alloc(&digest, (size_t)n, sizeof *digest));
    OCT_TRY(oct_alloc(&faulty, (size_t)group->size, sizeof *faulty));
    digest[OWNER_DIGEST] = first[OWNER_DIGEST];
    digest[AUDITOR_DIGEST] = first[AUDITOR_DIGEST];
    OCT_TRY(compute_leaf(trainer, b, &digest[RANK_DIGESTS + group->rank]));
    OCT_TRY(group->max_i64(group, digest, n));
    return report_faulty_ranks(
        trainer, faulty, oct_audit_judge(&trainer->audit.choice, digest, group->size, faulty));
}

/* Collective: compares what the owner has digested in the step with what the auditor computes. */
static oct_status audit_leaf(oct_trainer *trainer, const oct_step_batches *b)
{
    const oct_collective *group = trainer->group;
    const oct_audit_choice *choice = &trainer->audit.choice;
    int64_t digest[RANK_DIGESTS] = {-1, -1};
    if (group->rank == choice->owner)
        digest[OWNER_DIGEST] = (int64_t)(trainer->training.audit.digest >> 1);
    if (group->rank == choice->auditor) OCT_TRY(compute_leaf(trainer, b, &digest[AUDITOR_DIGEST]));
    OCT_TRY(group->max_i64(group, digest, RANK_DIGESTS));
    if (digest[OWNER_DIGEST] != digest[AUDITOR_DIGEST])
        return find_faulty_ranks(trainer, b, digest);
    trainer->audit.done++;
    return OCT_OK;
}

/* Straggler detection. No median is sorted for: the slowest takes 1.5 times the median where more than half of the
 * ranks take less than that part of its time. */

enum { STEPS_IN_A_ROW = 20 };

static const double slow_factor = 1.5, least_ns = 1e6;

oct_status oct_straggler_init(oct_straggler *straggler, const oct_collective *group)
{
    *straggler = (oct_straggler){.group = group, .slow = -1};
    return oct_alloc(&straggler->own_ns, (size_t)group->size, sizeof *straggler->own_ns);
}

static int64_t count_own_leaves(const oct_leaves *leaves, int rank, int ranks)
{
    return oct_leaves_split(leaves->samples, leaves->leaf, rank, ranks).local;
}

/* Do most ranks take less than the slowest by slow_factor, in all and for each leaf? */
static bool is_slow(const int64_t *own_ns, int ranks, const oct_leaves *leaves, int slowest)
{
    const double most = (double)own_ns[slowest],
                 its_leaves = (double)count_own_leaves(leaves, slowest, ranks);
    int less = 0, less_a_leaf = 0;
    for (int r = 0; r < ranks; r++) {
        const double time = slow_factor * (double)own_ns[r];
        less += time <= most && (double)own_ns[r] + least_ns <= most;
        less_a_leaf += time * its_leaves <= most * (double)count_own_leaves(leaves, r, ranks);
    }
    return less > (ranks - 1) / 2 && less_a_leaf > (ranks - 1) / 2;
}

int oct_straggler_slowest(const int64_t *own_ns, int ranks, const oct_leaves *leaves,
                          double *factor)
{
    int slowest = 0;
    for (int r = 1; r < ranks; r++)
        if (own_ns[r] > own_ns[slowest]) slowest = r;
    if (!is_slow(own_ns, ranks, leaves, slowest)) return -1;
    int64_t usual = own_ns[0]; /* the lower median */
    for (int r = 0; r < ranks; r++) {
        int below = 0, equal = 0;
        for (int i = 0; i < ranks; i++) {
            below += own_ns[i] < own_ns[r];
            equal += own_ns[i] == own_ns[r];
        }
        if (below <= (ranks - 1) / 2 && (ranks - 1) / 2 < below + equal) usual = own_ns[r];
    }
    *factor = (double)own_ns[slowest] / (double)(usual > 0 ? usual : 1);
    return slowest;
}

void oct_straggler_begin(oct_straggler *straggler, const oct_leaves *leaves)
{
    const oct_collective *group = straggler->group;
    for (int r = 0; r < group->size; r++)
        straggler->own_ns[r] = 0;
    straggler->own_ns[group->rank] = straggler->spent_ns;
    straggler->at_hand = *leaves;
    straggler->begin_s = oct_seconds();
    straggler->waited_s = group->waited(group);
}

/* Warns, once, of the rank that was slowest in many steps in a row; the times of the step before are known to all. */
static void report_slow_rank(oct_straggler *straggler)
{
    double factor;
    const int slowest = oct_straggler_slowest(straggler->own_ns, straggler->group->size,
                                              &straggler->before, &factor);
    straggler->steps = slowest < 0 ? 0 : slowest == straggler->slow ? straggler->steps + 1 : 1;
    straggler->slow = slowest;
    straggler->steps_not_slow = slowest < 0 ? straggler->steps_not_slow + 1 : 0;
    if (straggler->steps_not_slow >= STEPS_IN_A_ROW) straggler->named = false;
    if (straggler->steps < STEPS_IN_A_ROW || straggler->named) return;
    straggler->named = true;
    oct_log(OCT_LOG_WARN,
            "%s is slow: in each of the last %d steps it took at least %.1f times as long as the "
            "median rank, now %.1f times (%.3g s), and all wait for it; look what else runs on its "
            "host, and whether that is throttled",
            straggler->group->name(straggler->group, slowest).text, STEPS_IN_A_ROW, slow_factor,
            factor, (double)straggler->own_ns[slowest] * 1e-9);
}

/* Notes how long the step took, with and without waiting, and judges the step before, whose times are known. */
void oct_straggler_end(oct_straggler *straggler)
{
    const oct_collective *group = straggler->group;
    const double waited_s = group->waited(group) - straggler->waited_s;
    const double took_s = oct_seconds() - straggler->begin_s;
    const bool known = straggler->spent_ns > 0;
    straggler->took_s[straggler->taken++ % OCT_STRAGGLER_STEPS] = took_s;
    straggler->spent_ns = (int64_t)((took_s - waited_s) * 1e9);
    if (straggler->spent_ns < 1) straggler->spent_ns = 1;
    if (known && group->size > 1) report_slow_rank(straggler);
    straggler->before = straggler->at_hand;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double oct_straggler_deadline(const oct_straggler *straggler)
{
    static const double least_s = 30, steps = 20;
    double took_s[OCT_STRAGGLER_STEPS];
    if (straggler->taken < OCT_STRAGGLER_STEPS) return 0;
    memcpy(took_s, straggler->took_s, sizeof took_s);
    qsort(took_s, OCT_STRAGGLER_STEPS, sizeof *took_s, compare_doubles);
    return fmax(least_s, steps * took_s[OCT_STRAGGLER_STEPS / 2]);
}

/* All of them, around a step. */

oct_status oct_rank_checks_create(oct_trainer *trainer)
{
    const oct_recipe *recipe = trainer->recipe;
    const oct_dataset *data = trainer->train_data;
    oct_leaf_audit *audit = &trainer->audit;
    if (recipe->audit_every > 0) {
        OCT_TRY(oct_trainer_loader(&audit->loader, recipe, data));
        OCT_TRY(oct_loader_reserve(&audit->loader, recipe->batch_leaf));
        OCT_TRY(oct_alloc(&audit->images,
                          (size_t)(recipe->batch_leaf * data->h * data->w * data->c),
                          sizeof *audit->images));
    }
    OCT_TRY(oct_straggler_init(&trainer->straggler, trainer->group));
    trainer->training.rank_flag = trainer->straggler.own_ns;
    return OCT_OK;
}

oct_status oct_rank_checks_begin(oct_trainer *trainer, const oct_step_batches *b)
{
    oct_train_step *training = &trainer->training;
    const oct_collective *group = trainer->group;
    const oct_leaves leaves = oct_leaves_split(
        oct_trainer_full_batch(trainer), trainer->recipe->batch_leaf, group->rank, group->size);
    oct_straggler_begin(&trainer->straggler, &leaves);
    trainer->replicas = (oct_replica_check){0};
    if (group->size > 1)
        OCT_TRY(digest_state(&trainer->replicas, training, trainer->step % OCT_REPLICA_CHECK_SLICES,
                             OCT_REPLICA_CHECK_SLICES));
    training->flag[OCT_FLAG_STATE] = trainer->replicas.most;
    training->flag[OCT_FLAG_STATE_LEAST] = trainer->replicas.least;
    /* The owner of the leaf to audit digests it in the step itself. */
    oct_leaf_audit *audit = &trainer->audit;
    oct_step_audit *step = &training->audit;
    const int64_t every = trainer->recipe->audit_every, number = trainer->step + 1;
    step->on = every > 0 && trainer->phase != OCT_PHASE_CALIBRATE && number % every == 0;
    if (!step->on) return OCT_OK;
    const oct_loader *loader = &trainer->loader;
    const oct_audited_update update = {b->count, oct_loader_samples(loader, b->first),
                                       oct_loader_samples(loader, b->first + b->count - 1),
                                       trainer->recipe->batch_leaf};
    audit->choice = oct_audit_choose(number / every, &update, group->size);
    step->batch = audit->choice.batch;
    step->leaf = audit->choice.leaf;
    return OCT_OK;
}

oct_status oct_rank_checks_end(oct_trainer *trainer, const oct_step_batches *b)
{
    const oct_train_step *training = &trainer->training;
    if (training->audit.on && !training->sums.skipped) OCT_TRY(audit_leaf(trainer, b));
    oct_straggler_end(&trainer->straggler);
    trainer->replicas.most = training->flag[OCT_FLAG_STATE];
    trainer->replicas.least = training->flag[OCT_FLAG_STATE_LEAST];
    return judge_replicas(&trainer->replicas, trainer->group, trainer->step + 1);
}
