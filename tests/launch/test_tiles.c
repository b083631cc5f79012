/* Threads that share leaves (oct_cut, core/base/leaves.h) change no bit: whole runs, with fewer leaves in a batch than
 * threads and with more, in float and QAT, and their int8 models, which the runs certify. */
#include "tests/launch/train_rig.h"

#include "core/base/leaves.h"
#include "tests/support/process.h"

TestSuite(tiles, .init = set_up, .fini = tear_down, .timeout = 300);

/* A run whose steps go through several numbers of threads, from one of them on. */
static state_digest digest_of_threads(const oct_recipe *recipe, int from)
{
    static const int threads[] = {2, 8, 3, 4};
    oct_trainer trainer;
    start(&trainer, recipe);
    for (int64_t step = 1; step <= STEPS; step++) {
        omp_set_num_threads(threads[(from + step) % 4]);
        run_to(&trainer, step);
    }
    omp_set_num_threads(1);
    const state_digest digest = digest_of(&trainer);
    oct_trainer_destroy(&trainer);
    return digest;
}

/* 3, 1 and 2 leaves in a batch of 16, or the first of these; the last may be short; each phase has two steps or more, so
 * two runs take it through all threads. */
static void check_threads(const char *keys, size_t count)
{
    static const int leaf[] = {6, 16, 8};
    if (oct_test_is_long()) count = OCT_COUNT(leaf);
    for (size_t i = 0; i < count; i++) {
        char all[256];
        snprintf(all, sizeof all, "batch.leaf=%d %s", leaf[i], keys);
        const oct_recipe recipe = make_recipe(all);
        const state_digest wanted = digest_of_run(&recipe);
        for (int from = 0; from <= 2; from += 2)
            cr_assert(same(digest_of_threads(&recipe, from), wanted), "%s: threads %d", all, from);
    }
}

Test(tiles, changes_no_bit_of_a_cnn)
{
    check_threads("model.name=cnn-small", 3);
}

Test(tiles, changes_no_bit_of_float32_numerics_and_current_scales)
{
    check_threads("model.name=cnn-small numerics=f32 quant.scales=current", 3);
}

Test(tiles, changes_no_bit_of_16_bit_codes)
{
    check_threads("model.name=cnn-small quant.int16_layers=[features.3]", 3);
}

Test(tiles, changes_no_bit_of_depthwise_layers)
{
    check_threads("model.name=mobilenetv2c", 1);
}

Test(tiles, changes_no_bit_of_an_int8_model)
{
    omp_set_num_threads(4);
    check_end("batch.leaf=16");
    omp_set_num_threads(1);
}

/* Every unit of every leaf has one thread, tiles of a thread follow each other, and leaves that threads can
 * take whole stay whole. */
static void check_cut(const oct_cut *cut)
{
    int64_t at = 0;
    for (int t = 0; t < cut->threads; t++) {
        for (oct_tile p = oct_tile_begin(cut, t); oct_tile_next(cut, &p);) {
            cr_assert_eq(p.leaf * cut->units + p.first, at);
            cr_assert(p.first % cut->step == 0 && p.end > p.first && p.end <= cut->units);
            if (cut->total % (cut->units * cut->threads) == 0)
                cr_assert(p.first == 0 && p.end == cut->units);
            at += p.end - p.first;
        }
    }
    cr_assert_eq(at, cut->total);
}

Test(tiles, is_of_every_unit)
{
    for (int threads = 1; threads < 9; threads++) {
        for (int64_t leaves = 0; leaves < 9; leaves++) {
            for (int64_t units = 1; units < 70; units += 3) {
                const oct_cut columns = oct_cut_columns(leaves, units, threads);
                const oct_leaves all = oct_leaves_split(leaves * units, units, 0, 1);
                const oct_cut samples = oct_cut_samples(&all, 1, threads);
                check_cut(&columns);
                check_cut(&samples);
            }
        }
    }
}
