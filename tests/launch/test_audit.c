/* A rank with faulty memory or a faulty processor is found and named: by the digests of the state, and by the audit of
 * leaves. The ranks are threads; the fault is in a loss of this program's own, or a bit that it flips. */
#include "launch/train/rank_checks.h"

#include "core/base/mem.h"
#include "tests/launch/train_rig.h"
#include "tests/support/process.h"
#include "tests/support/thread_ranks.h"

enum { RANKS_MAX = 4, LONG = 60 };

static void set_up_loss(void);
TestSuite(audit, .init = set_up_loss, .fini = tear_down, .timeout = 120);

/* One run of the ranks: its plan, and the result on each rank. */
typedef struct run {
    oct_recipe recipe;
    int64_t steps;
    int faulty;                           /* rank; -1: none */
    int64_t from, to;                     /* steps in which its processor computes wrong */
    bool once;                            /* wrong only in the first row of each step */
    void (*damage)(oct_trainer *trainer); /* its memory, before step `from` */
    oct_status status[RANKS_MAX];
    char said[RANKS_MAX][1000];
    int64_t step[RANKS_MAX], audits[RANKS_MAX];
    state_digest digest[RANKS_MAX];
} run;

static _Thread_local bool processor_is_faulty, then_no_more;

static double loss_value(const oct_output_row *row, const oct_loss_options *options)
{
    return oct_loss_mse.value(row, options);
}

static void grad(const oct_output_row *row, const oct_loss_options *options, oct_loss_scale scale,
                 float *grad)
{
    oct_loss_mse.grad(row, options, scale, grad);
    if (processor_is_faulty) grad[0] *= 1.0f + 0x1p-20f;
    processor_is_faulty &= !then_no_more;
}

static const oct_loss_kind faulty_loss = {
    .name = "faulty", .takes = OCT_LOSS_OF_LABELS, .value = loss_value, .grad = grad};

static void set_up_loss(void)
{
    set_up();
    cr_assert_eq(oct_registry_add(&oct_loss_table, &faulty_loss), OCT_OK);
}

/* A failed assertion on a thread would end the process without a word, so failures are kept. */
static oct_status take_steps(run *r, oct_trainer *trainer)
{
    oct_step_result result;
    const bool mine = trainer->group->rank == r->faulty;
    while (trainer->step < r->steps) {
        if (mine && r->damage && trainer->step == r->from) r->damage(trainer);
        then_no_more = r->once;
        processor_is_faulty =
            mine && !r->damage && trainer->step >= r->from && trainer->step < r->to;
        OCT_TRY(oct_trainer_step(trainer, &result));
    }
    return OCT_OK;
}

static void live(const oct_comm *comm, void *user)
{
    run *r = user;
    const oct_collective *group = oct_comm_collective(comm);
    const int rank = group->rank;
    oct_trainer trainer;
    omp_set_num_threads(1);
    r->status[rank] = oct_trainer_create(&trainer, &r->recipe, group, &train_data, &test_data);
    if (r->status[rank] == OCT_OK) {
        r->status[rank] = take_steps(r, &trainer);
        r->step[rank] = trainer.step;
        r->audits[rank] = trainer.audit.done;
        r->digest[rank] = digest_of(&trainer);
        oct_trainer_destroy(&trainer);
    }
    if (r->status[rank] != OCT_OK)
        snprintf(r->said[rank], sizeof r->said[rank], "%s", oct_error_message(0));
}

static void run_ranks(run *r, int ranks)
{
    oct_run_thread_ranks(ranks, 1, live, r);
    for (int i = 1; i < ranks; i++) {
        cr_assert_eq(r->status[i], r->status[0], "%s", r->said[i]);
        cr_assert_str_eq(r->said[i], r->said[0]);
    }
}

static run healthy(const char *keys, int64_t steps)
{
    return (run){.recipe = make_recipe(keys), .steps = steps, .faulty = -1};
}

/* --- the audit --------------------------------------------------------------------------------- */

/* Without a fault every audit succeeds, and audits change no bit of the result. */
static void check_healthy(const char *keys, int ranks, int64_t steps, int64_t audits)
{
    char audited[300];
    snprintf(audited, sizeof audited, "%s audit.every=1", keys);
    run with = healthy(audited, steps), without = healthy(keys, steps);
    run_ranks(&with, ranks);
    run_ranks(&without, 1);
    cr_assert_eq(with.status[0], OCT_OK, "%s, %d ranks: %s", keys, ranks, with.said[0]);
    cr_assert_eq(without.status[0], OCT_OK, "%s: %s", keys, without.said[0]);
    cr_assert_eq(with.audits[0], audits, "%s: %d audits", keys, (int)with.audits[0]);
    cr_assert(same(with.digest[0], without.digest[0]), "%s, %d ranks: other bits", keys, ranks);
    for (int i = 1; i < ranks; i++)
        cr_assert(same(with.digest[i], with.digest[0]), "%s: rank %d", keys, i);
}

Test(audit, of_a_healthy_run_finds_nothing_and_changes_no_bit)
{
    for (int ranks = 1; ranks <= 3; ranks++)
        check_healthy("", ranks, STEPS, STEPS - 2);
}

Test(audit, knows_all_that_decides_the_bits_of_a_leaf)
{
    check_healthy("quant.scales=current numerics=f32", 2, STEPS, STEPS - 2);
    check_healthy("batch.accumulate=2 ema.decay=0.9 data.mixup=0.2", 3, 7, 5);
    check_healthy("batch_norm.group=leaf", 3, STEPS, STEPS - 2);
    check_healthy("batch_norm.group=8", 2, STEPS, STEPS - 2);
    check_healthy("optimizer.kind=adamw optimizer.clip_norm=0.5 nonfinite.step=skip", 2, STEPS,
                  STEPS - 2);
    check_healthy("quant.observer=min_max quant.batch_norm=folded loss.label_smoothing=0.1", 2,
                  STEPS, STEPS - 2);
    check_healthy("loss.kind=mse quant.fake_quant=asymmetric quant.bits=16", 1, STEPS, STEPS - 2);
}

/* On one rank and, with OCT_LONG, on both 2 and 3; otherwise on one of them. */
static void check_observer(const oct_observer *observer, int scales, int batch_norm)
{
    static const oct_batch_norm_mode mode[] = {OCT_BATCH_NORM_LIVE, OCT_BATCH_NORM_LIVE,
                                               OCT_BATCH_NORM_FOLDED};
    run one = {.recipe = recipes[0], .steps = 8, .faulty = -1};
    one.recipe.audit_every = 1;
    one.recipe.quant_scales = (oct_scales_mode)scales;
    one.recipe.quant_batch_norm = mode[batch_norm];
    one.recipe.qat_fold_batch_norm = batch_norm == 1;
    one.recipe.quant_observer = (char *)(uintptr_t)observer->name;
    for (int ranks = 1; ranks <= 3; ranks++) {
        run some = one;
        if (ranks == 2 + batch_norm % 2 && !oct_test_is_long()) continue;
        run_ranks(&some, ranks);
        cr_assert_eq(some.status[0], OCT_OK, "%s, scales %d, batch norm %d, %d ranks: %s",
                     observer->name, scales, batch_norm, ranks, some.said[0]);
        cr_assert_eq(some.audits[0], 6);
        if (ranks == 1) one.digest[0] = some.digest[0];
        cr_assert(same(some.digest[0], one.digest[0]), "%s, scales %d, batch norm %d, %d ranks",
                  observer->name, scales, batch_norm, ranks);
    }
}

/* With one way of batch norms each, or with OCT_LONG all of them. */
Test(audit, finds_nothing_whatever_observes_the_ranges)
{
    make_recipe(NULL);
    for (size_t o = 0; o < oct_registry_count(&oct_observer_table); o++)
        for (int scales = OCT_SCALES_DELAYED; scales <= OCT_SCALES_CURRENT; scales++)
            for (int batch_norm = 0; batch_norm < 3; batch_norm++)
                if (oct_test_is_long() || ((int)o + scales) % 3 == batch_norm)
                    check_observer(oct_registry_at(&oct_observer_table, o), scales, batch_norm);
}

static void check_found(const char *keys, run *r, int ranks, const char *names)
{
    r->recipe = make_recipe(keys);
    run_ranks(r, ranks);
    cr_assert_eq(r->status[0], OCT_LOST, "%d ranks: %d %s", ranks, (int)r->status[0], r->said[0]);
    cr_assert_not_null(strstr(r->said[0], names), "%d ranks: %s", ranks, r->said[0]);
}

#define FAULTY "loss.kind=faulty audit.every=1 float.epochs=20"

Test(audit, names_a_faulty_processor)
{
    for (int rank = 0; rank < 3; rank++) {
        char names[100];
        run r = {.steps = LONG, .faulty = rank, .from = 2, .to = LONG};
        check_found(FAULTY, &r, 3, "to other bits than the other ranks");
        snprintf(names, sizeof names, ": rank %d (", rank);
        cr_assert_not_null(strstr(r.said[0], names), "%s", r.said[0]);
        cr_assert_lt(r.step[0], 2 + 12, "found in step %d", (int)r.step[0] + 1);
    }
}

/* The first row of the step is wrong, the audit is right; each rank has one leaf. */
static void check_once(int ranks, const char *names)
{
    run r = {.steps = LONG, .faulty = ranks - 1, .from = 2, .to = 3, .once = true};
    char keys[100];
    snprintf(keys, sizeof keys, FAULTY " batch.leaf=%d", 16 / ranks);
    check_found(keys, &r, ranks, names);
    cr_assert_eq(r.step[0], 2);
}

Test(audit, of_two_ranks_names_both_unless_one_erred_but_once)
{
    run always = {.steps = LONG, .faulty = 1, .from = 2, .to = LONG};
    check_found(FAULTY, &always, 2, "to other bits than each other");
    cr_assert(strstr(always.said[0], "rank 0 (") && strstr(always.said[0], "rank 1 ("), "%s",
              always.said[0]);
    check_once(2, "step 3: rank 1 (");
}

Test(audit, of_one_rank_finds_intermittent_faults)
{
    check_once(1, "leaf 0 was computed again to other bits");
}

Test(audit, is_judged_by_most)
{
    const oct_audit_choice choice = {.owner = 1, .auditor = 0};
    bool faulty[3];
    const int64_t owner_always[] = {8, 7, 7, 8, 7}, auditor_once[] = {7, 8, 7, 7, 7},
                  nobody_knows[] = {1, 2, 3, 4, 5}, of_two[] = {8, 7, 7, 8};
    cr_assert_eq(oct_audit_judge(&choice, owner_always, 3, faulty), 1);
    cr_assert(faulty[1]);
    cr_assert_eq(oct_audit_judge(&choice, auditor_once, 3, faulty), 1);
    cr_assert(faulty[0]);
    cr_assert_eq(oct_audit_judge(&choice, nobody_knows, 3, faulty), 2);
    cr_assert(faulty[0] && faulty[1]);
    cr_assert_eq(oct_audit_judge(&choice, of_two, 2, faulty), 2);
}

Test(audit, comes_round_to_every_leaf_and_every_pair)
{
    enum { NUMBERS = 200 };
    const oct_audited_update update = {.batches = 2, .samples = 16, .last = 10, .leaf = 4};
    for (int ranks = 1; ranks <= 4; ranks++) {
        bool leaf[2][4] = {{false}}, pair[4][4] = {{false}};
        for (int64_t n = 0; n < NUMBERS; n++) {
            const oct_audit_choice c = oct_audit_choose(n, &update, ranks);
            cr_assert(c.batch < 2 && c.leaf < (c.batch == 0 ? 4 : 3));
            const oct_leaves its = oct_leaves_split(c.batch == 0 ? 16 : 10, 4, c.owner, ranks);
            cr_assert(c.leaf >= its.first && c.leaf < its.first + its.local);
            cr_assert(ranks == 1 || c.auditor != c.owner);
            leaf[c.batch][c.leaf] = pair[c.owner][c.auditor] = true;
        }
        for (int l = 0; l < 7; l++)
            cr_assert(leaf[l / 4][l % 4]);
        for (int a = 0; a < ranks; a++)
            for (int b = 0; b < ranks; b++)
                cr_assert(pair[a][b] == (a != b || ranks == 1), "%d ranks: %d, %d", ranks, a, b);
    }
}

/* --- the state --------------------------------------------------------------------------------- */

/* The last bits of what decays, such as running statistics, are forgotten before they are looked at. */
static void flip(float *data)
{
    ((uint8_t *)data)[2] ^= 0x40;
}

static void flip_weight(oct_trainer *trainer)
{
    flip(oct_f32(&trainer->training.params.items[0]->value));
}

static void flip_momentum(oct_trainer *trainer)
{
    flip(trainer->training.optim.slot[0] + trainer->training.optim.numel - 1);
}

static oct_status flip_first_buffer(void *user, const oct_state_item *item)
{
    bool *done = user;
    if (!*done && !item->param && item->tensor->dtype == OCT_F32) {
        flip(item->tensor->data);
        *done = true;
    }
    return OCT_OK;
}

static void flip_buffer(oct_trainer *trainer)
{
    bool done = false;
    if (oct_module_state(trainer->model, flip_first_buffer, &done) != OCT_OK || !done) abort();
}

static void check_flip(void (*damage)(oct_trainer *), int ranks, int faulty, const char *names)
{
    run r = {.steps = LONG, .faulty = faulty, .from = 7, .damage = damage};
    check_found("float.epochs=20", &r, ranks, names);
    cr_assert(r.step[0] >= 7 && r.step[0] < 7 + OCT_REPLICA_CHECK_SLICES, "found in step %d",
              (int)r.step[0] + 1);
}

Test(replica_check, a_flipped_bit_is_found_within_one_round, .init = set_up_loss, .fini = tear_down,
     .timeout = 120)
{
    check_flip(flip_weight, 3, 2, "state of rank 2 (");
    check_flip(flip_momentum, 4, 0, "state of rank 0 (");
    check_flip(flip_buffer, 3, 1, "state of rank 1 (");
    check_flip(flip_weight, 2, 1, "differ from each other");
}

/* A single rank has no other to compare with. */
Test(replica_check, one_rank_never_differs, .init = set_up_loss, .fini = tear_down, .timeout = 120)
{
    run r = {
        .recipe = make_recipe(""), .steps = STEPS, .faulty = 0, .from = 3, .damage = flip_weight};
    run_ranks(&r, 1);
    cr_assert_eq(r.status[0], OCT_OK, "%s", r.said[0]);
}

/* Of rank 1, between its steps; all ranks then compare what they are about to save. */
static void compare_whole(const oct_comm *comm, void *user)
{
    run *r = user;
    const oct_collective *group = oct_comm_collective(comm);
    oct_trainer trainer;
    omp_set_num_threads(1);
    oct_status status = oct_trainer_create(&trainer, &r->recipe, group, &train_data, &test_data);
    if (status == OCT_OK) status = take_steps(r, &trainer);
    if (status == OCT_OK) status = oct_replica_check_whole(&trainer.training, group, trainer.step);
    if (status != OCT_OK) abort();
    if (group->rank == 1) flip_momentum(&trainer);
    r->status[group->rank] = oct_replica_check_whole(&trainer.training, group, trainer.step);
    snprintf(r->said[group->rank], sizeof r->said[0], "%s", oct_error_message(0));
    oct_trainer_destroy(&trainer);
}

Test(replica_check, compares_the_whole_state_before_a_save, .init = set_up_loss, .fini = tear_down,
     .timeout = 120)
{
    run r = healthy("", 2);
    oct_run_thread_ranks(3, 1, compare_whole, &r);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(r.status[i], OCT_LOST);
        cr_assert_not_null(strstr(r.said[i], "state of rank 1 ("), "%s", r.said[i]);
        cr_assert_not_null(strstr(r.said[i], "before step 3:"), "%s", r.said[i]);
    }
}

/* --- stragglers -------------------------------------------------------------------------------- */

static int slowest(const char *ms, int ranks, int64_t samples)
{
    int64_t ns[8] = {0};
    double factor;
    const oct_leaves leaves = oct_leaves_split(samples, 4, 0, ranks);
    for (int r = 0; r < ranks; r++)
        ns[r] = strtoll(ms, (char **)(uintptr_t)&ms, 10) * 1000000;
    return oct_straggler_slowest(ns, ranks, &leaves, &factor);
}

Test(pace, the_slowest_is_measured_by_the_median_and_by_its_share)
{
    cr_assert_eq(slowest("100 150", 2, 16), 1);
    cr_assert_eq(slowest("100 149", 2, 16), -1);
    cr_assert_eq(slowest("200 100 90 100", 4, 16), 0);
    cr_assert_eq(slowest("200 199 100 100", 4, 16), 0);
    cr_assert_eq(slowest("200 199 198 100", 4, 16), -1, "most are as slow");
    cr_assert_eq(slowest("1 1", 2, 16), -1);
    cr_assert_eq(slowest("100 200", 2, 12), -1, "it has two of three leaves");
    cr_assert_eq(slowest("200 100", 2, 12), 0, "it has one of three leaves");
    cr_assert_eq(slowest("10", 1, 16), -1);
}

/* One step of a group whose ranks took so long for the one before. */
static void pace_step(oct_straggler *pace, int64_t first, int64_t second)
{
    const oct_leaves leaves = oct_leaves_split(16, 4, 0, 3);
    oct_straggler_begin(pace, &leaves);
    pace->own_ns[0] = first * 1000000;
    pace->own_ns[1] = second * 1000000;
    pace->own_ns[2] = 100 * 1000000;
    oct_straggler_end(pace);
}

Test(pace, a_slow_rank_is_named_once_and_again_when_it_had_recovered)
{
    enum { ROW = 20 };
    oct_collective group = oct_collective_one;
    oct_straggler pace;
    group.size = 3;
    cr_assert_eq(oct_straggler_init(&pace, &group), OCT_OK);
    for (int i = 0; i < ROW; i++) /* the first has no step before it */
        pace_step(&pace, 100, 300);
    cr_assert(!pace.named);
    pace_step(&pace, 100, 100);
    for (int i = 0; i < ROW - 1; i++)
        pace_step(&pace, 100, 300);
    cr_assert(!pace.named, "not in a row");
    pace_step(&pace, 100, 300);
    cr_assert(pace.named && pace.slow == 1);
    for (int i = 0; i < ROW - 1; i++)
        pace_step(&pace, 100, 100);
    cr_assert(pace.named, "not recovered yet");
    pace_step(&pace, 100, 100);
    cr_assert(!pace.named);
    for (int i = 0; i < ROW; i++)
        pace_step(&pace, i % 2 ? 300 : 100, i % 2 ? 100 : 300);
    cr_assert(!pace.named, "two that take turns");
    oct_free(&pace.own_ns);
}

Test(pace, the_deadline_follows_the_median_step)
{
    oct_straggler pace = {.taken = OCT_STRAGGLER_STEPS - 1};
    for (int i = 0; i < OCT_STRAGGLER_STEPS; i++)
        pace.took_s[i] = i < OCT_STRAGGLER_STEPS / 2 ? 0.1 : i > OCT_STRAGGLER_STEPS / 2 ? 1000 : 4;
    cr_assert_eq(oct_straggler_deadline(&pace), 0, "too few steps");
    pace.taken++;
    cr_assert_float_eq(oct_straggler_deadline(&pace), 80, 1e-9);
    pace.took_s[OCT_STRAGGLER_STEPS / 2] = 0.2;
    cr_assert_float_eq(oct_straggler_deadline(&pace), 30, 1e-9);
}
