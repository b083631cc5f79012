/* The trainer on a small data set in memory: every bit of the end follows from recipe and data, not
 * from threads or from where a run was taken up again. */
#include "core/autograd/tape.h"
#include "launch/deploy/layer_stats.h"
#include "tests/launch/train_rig.h"

TestSuite(train, .init = set_up, .fini = tear_down, .timeout = 60);

Test(train, one_two_and_three_threads_give_the_same_bits)
{
    oct_recipe recipe = make_recipe(NULL);
    omp_set_num_threads(1);
    state_digest one = digest_of_run(&recipe);
    for (int threads = 2; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        cr_assert(same(one, digest_of_run(&recipe)), "%d threads differ from one", threads);
    }
}

Test(train, another_seed_gives_other_bits)
{
    oct_recipe recipe = make_recipe(NULL), other = make_recipe("seed=2");
    cr_assert_not(same(digest_of_run(&recipe), digest_of_run(&other)));
}

static void check_restored(const char *override, int64_t every)
{
    oct_recipe recipe = make_recipe(override);
    state_digest undisturbed = digest_of_run(&recipe);
    for (int64_t step = 1; step <= STEPS; step += every) {
        oct_trainer first, second;
        char name[32];
        snprintf(name, sizeof(name), "step%lld", (long long)step);
        const char *folder = oct_tmp_path(&tmp, name);
        start(&first, &recipe);
        run_to(&first, step);
        cr_assert_eq(oct_trainer_save(&first, folder, NULL), OCT_OK);
        oct_trainer_destroy(&first);

        start(&second, &recipe);
        restore(&second, folder);
        cr_assert_eq(second.step, step);
        run_to(&second, STEPS);
        cr_assert(same(undisturbed, digest_of(&second)), "taken up at step %lld", (long long)step);
        oct_trainer_destroy(&second);
    }
}

Test(train, a_run_taken_up_after_any_step_ends_like_the_undisturbed_one)
{
    check_restored(NULL, 1);
}

Test(train, a_run_with_adamw_can_be_taken_up_as_well)
{
    check_restored("optimizer.kind=adamw", 5);
}

Test(train, a_run_that_folds_batch_norm_can_be_taken_up_on_either_side)
{
    check_restored("qat.fold_batch_norm=true", 1);
}

Test(train, a_run_with_16_bits_by_the_recorded_graph_can_be_taken_up)
{
    check_restored("quant.bits=16 quant.method=symbolic quant.batch_norm=folded", 4);
}

Test(train, phases_follow_the_plan_and_the_end_is_frozen)
{
    oct_recipe recipe = make_recipe(NULL);
    oct_trainer trainer;
    start(&trainer, &recipe);
    run_to(&trainer, 4);
    cr_assert_eq(trainer.phase, OCT_PHASE_CALIBRATE);
    cr_assert(trainer.training.quantizers.count > 0 && !oct_trainer_optim(&trainer));
    run_to(&trainer, 6);
    cr_assert_eq(trainer.phase, OCT_PHASE_QAT);
    cr_assert(oct_trainer_optim(&trainer));
    run_to(&trainer, STEPS);
    cr_assert_eq(trainer.phase, OCT_PHASE_QAT_SCALES_FROZEN);
    for (size_t i = 0; i < trainer.training.quantizers.count; i++)
        cr_assert_eq(trainer.training.quantizers.items[i]->state, OCT_QUANT_FROZEN);
    oct_trainer_destroy(&trainer);
}

static state_digest digest_of_weights(const oct_trainer *trainer)
{
    state_digest digest;
    oct_sha256_state *state;
    cr_assert_eq(oct_sha256_begin(&state), OCT_OK);
    for (size_t i = 0; i < trainer->training.params.count; i++) {
        const oct_tensor *value = &trainer->training.params.items[i]->value;
        oct_sha256_add(state, value->data, (size_t)oct_numel(value) * sizeof(float));
    }
    oct_sha256_end(&state, digest.bytes);
    return digest;
}

static oct_status collect_running_mean(void *user, const oct_state_item *item)
{
    if (strstr(item->path, "running_mean"))
        oct_sha256_add(user, item->tensor->data, 32 * sizeof(float));
    return OCT_OK;
}

static state_digest digest_of_means(const oct_trainer *trainer)
{
    state_digest digest;
    oct_sha256_state *state;
    cr_assert_eq(oct_sha256_begin(&state), OCT_OK);
    cr_assert_eq(oct_module_state(trainer->model, collect_running_mean, state), OCT_OK);
    oct_sha256_end(&state, digest.bytes);
    return digest;
}

Test(train, calibration_moves_ranges_but_neither_weights_nor_batch_norm)
{
    oct_recipe recipe = make_recipe(NULL);
    oct_trainer trainer;
    start(&trainer, &recipe);
    run_to(&trainer, 4); /* the first batch of two */
    state_digest weights = digest_of_weights(&trainer), means = digest_of_means(&trainer);
    cr_assert_eq(*trainer.training.quantizers.items[0]->updates, 1);
    run_to(&trainer, 5);
    cr_assert_eq(*trainer.training.quantizers.items[0]->updates, 2);
    cr_assert(same(weights, digest_of_weights(&trainer)));
    cr_assert(same(means, digest_of_means(&trainer)));
    run_to(&trainer, 6);
    cr_assert_not(same(weights, digest_of_weights(&trainer)));
    cr_assert_not(same(means, digest_of_means(&trainer)));
    oct_trainer_destroy(&trainer);
}

Test(train, a_finished_run_can_be_converted_whatever_the_lengths_of_its_phases)
{
    check_end("qat.epochs=0");
    check_end("float.epochs=0");
    check_end("qat.freeze_scales=1");
    check_end("qat.freeze_scales=0 qat.freeze_batch_norm=0");
}

Test(train, checkpoints_of_the_same_state_have_the_same_bytes)
{
    oct_recipe recipe = make_recipe(NULL);
    void *bytes[2];
    size_t size[2];
    for (int i = 0; i < 2; i++) {
        oct_trainer trainer;
        oct_checkpoint_file file;
        omp_set_num_threads(i + 1);
        start(&trainer, &recipe);
        run_to(&trainer, 7);
        cr_assert_eq(oct_trainer_save(&trainer, oct_tmp_path(&tmp, i ? "b" : "a"), &file), OCT_OK);
        cr_assert_eq(oct_file_read(file.path, 1 << 30, &bytes[i], &size[i]), OCT_OK);
        oct_free(&file.path);
        oct_trainer_destroy(&trainer);
    }
    cr_assert_eq(size[0], size[1]);
    cr_assert_eq(memcmp(bytes[0], bytes[1], size[0]), 0);
    oct_free(&bytes[0]);
    oct_free(&bytes[1]);
}

Test(train, evaluation_has_the_same_bits_alone_and_in_company)
{
    oct_recipe recipe = make_recipe(NULL);
    oct_trainer trainer;
    float all[TEST * CLASSES], one[CLASSES];
    oct_scores scores;
    start(&trainer, &recipe);
    run_to(&trainer, STEPS);
    state_digest before = digest_of(&trainer);
    cr_assert_eq(
        oct_evaluate(NULL, trainer.model, &oct_collective_one, &recipe, &test_data, &scores, all),
        OCT_OK);
    cr_assert(same(before, digest_of(&trainer)), "evaluation moved the state");
    cr_assert(trainer.model->training, "training mode comes back");
    cr_assert_eq(scores.images, TEST);
    for (int64_t i = 0; i < TEST; i++) {
        oct_dataset single = test_data;
        single.store = (uint8_t *)single.store + i * SIZE * SIZE;
        single.count = 1;
        cr_assert_eq(
            oct_evaluate(NULL, trainer.model, &oct_collective_one, &recipe, &single, &scores, one),
            OCT_OK);
        cr_assert_eq(memcmp(one, all + i * CLASSES, sizeof(one)), 0, "image %lld", (long long)i);
    }
    oct_trainer_destroy(&trainer);
}

/* Makes the last bias NaN before the step after `step` and returns the message of that step. */
static const char *fail_after(int64_t step, int64_t saved_step)
{
    static char text[512];
    oct_recipe recipe = make_recipe(NULL);
    oct_trainer trainer;
    oct_step_result result;
    start(&trainer, &recipe);
    run_to(&trainer, step);
    oct_saver saver = {.step = saved_step};
    trainer.saver = &saver;
    oct_f32(&trainer.training.params.items[trainer.training.params.count - 1]->value)[0] = NAN;
    cr_assert_eq(oct_trainer_step(&trainer, &result), OCT_NUMERIC);
    snprintf(text, sizeof(text), "%s", oct_error_message(0));
    cr_assert_eq(oct_error_count(), 1);
    cr_assert_eq(trainer.step, step);
    oct_trainer_destroy(&trainer);
    return text;
}

Test(train, a_loss_that_is_not_finite_names_step_phase_remedy_and_checkpoint)
{
    cr_assert_str_eq(
        fail_after(1, -1),
        "step 2 (epoch 1, phase float): the loss is not finite; lower the learning rate "
        "(now 0.0375), which is float.lr, or give it float.warmup; there is no "
        "checkpoint yet");
}

Test(train, numbers_that_go_wrong_in_a_layer_name_step_and_layer)
{
    const char *text = fail_after(6, 5);
    cr_assert(strstr(text, "step 7 (epoch 1, phase qat): head.2: "), "%s", text);
    cr_assert(strstr(text, "lower the learning rate (now 0.0"), "%s", text);
    cr_assert(strstr(text, "which is qat.lr"), "%s", text);
    cr_assert(strstr(text, "newest good checkpoint step-00000005.h5"), "%s", text);
}

/* 6 steps, which are two epochs, in each phase: what is needed is there after the first epoch. */
static void check_steady(const char *keys)
{
    char all[512];
    snprintf(all, sizeof all, "float.epochs=2 calibrate.batches=6 qat.epochs=6 %s", keys);
    oct_recipe recipe = make_recipe(all);
    oct_trainer trainer;
    oct_step_result result;
    start(&trainer, &recipe);
    for (int64_t in_phase = 0; !oct_trainer_done(&trainer); in_phase++) {
        if (oct_plan_phase(&trainer.plan, trainer.step) != trainer.phase) in_phase = 0;
        oct_mem_fail_after(in_phase >= 3 ? 1 : 0);
        oct_status status = oct_trainer_step(&trainer, &result);
        oct_mem_fail_after(0);
        cr_assert_eq(status, OCT_OK, "%s: step %d: %s", keys, (int)trainer.step,
                     status ? oct_error_message(0) : "");
    }
    oct_trainer_destroy(&trainer);
}

Test(train, a_steady_step_allocates_nothing)
{
    check_steady("");
    check_steady("quant.method=symbolic quant.bits=16");
    check_steady("quant.method=eager quant.scales=current");
    check_steady("model.name=fpn-small quant.method=jit qat.fold_batch_norm=true");
    check_steady("model.name=mobilenetv2c quant.shared_range=true");
}

Test(train, a_request_to_stop_comes_back_with_the_step)
{
    oct_recipe recipe = make_recipe(NULL);
    oct_trainer trainer;
    oct_step_result result;
    start(&trainer, &recipe);
    cr_assert_eq(oct_trainer_step(&trainer, &result), OCT_OK);
    cr_assert_not(trainer.stop);
    trainer.stop = true;
    cr_assert_eq(oct_trainer_step(&trainer, &result), OCT_OK);
    cr_assert(trainer.stop);
    cr_assert_eq(trainer.step, 2);
    oct_trainer_destroy(&trainer);
}

Test(train, all_that_does_not_fit_is_said_at_once)
{
    oct_recipe recipe = make_recipe(NULL);
    recipe.data_mean.count = 3;
    recipe.model_name = (char[]){"cnn-smal"};
    recipe.data_drop_last = true;
    recipe.batch_size = 41;
    recipe.data_crop_padding = SIZE;
    oct_dataset wide = test_data;
    wide.w = 9;
    cr_assert_eq(oct_run_check(&recipe, &train_data, &wide, 12), OCT_USAGE);
    cr_assert(some_problem_says("did you mean 'cnn-small'"));
    cr_assert(some_problem_says("data.mean: 3 values, but the images have 1 channels"));
    cr_assert(some_problem_says("both must have the same size"));
    cr_assert(some_problem_says("data.crop_padding: 8 pixels"));
    cr_assert(some_problem_says("40 training images do not fill a batch of 41"));
    cr_assert(some_problem_says("more ranks (12) than leaves (10)"));
    cr_assert_eq(oct_error_count(), 6);
}

Test(train, images_too_small_for_the_model_are_refused)
{
    oct_recipe recipe = make_recipe(NULL);
    oct_dataset small_train = train_data, small_test = test_data;
    small_train.h = small_train.w = small_test.h = small_test.w = 4;
    cr_assert_eq(oct_run_check(&recipe, &small_train, &small_test, 1), OCT_USAGE);
    cr_assert(some_problem_says("needs images of at least 8 x 8 pixels"), "%s",
              oct_error_message(0));
    small_test.count = 0;
    cr_assert_eq(oct_run_check(&recipe, &small_train, &small_test, 1), OCT_USAGE);
    cr_assert(some_problem_says("no test images"));
}

Test(train, a_checkpoint_that_cannot_be_of_this_run_is_refused)
{
    oct_recipe recipe = make_recipe(NULL), shorter = make_recipe("float.epochs=0");
    oct_trainer trainer;
    oct_checkpoint checkpoint;
    const char *folder = oct_tmp_path(&tmp, "a");
    start(&trainer, &recipe);
    run_to(&trainer, 3);
    cr_assert_eq(oct_trainer_save(&trainer, folder, NULL), OCT_OK);
    oct_trainer_destroy(&trainer);

    start(&trainer, &shorter);
    cr_assert_eq(oct_checkpoint_newest(&checkpoint, folder, NULL), OCT_OK);
    cr_assert_eq(oct_trainer_restore(&trainer, &checkpoint), OCT_DATA);
    cr_assert(strstr(oct_error_message(0), "phase float"), "%s", oct_error_message(0));
    checkpoint.info.step = 100;
    cr_assert_eq(oct_trainer_restore(&trainer, &checkpoint), OCT_DATA);
    cr_assert(strstr(oct_error_message(0), "steps 1 to 8"), "%s", oct_error_message(0));
    oct_checkpoint_close(&checkpoint);
    oct_trainer_destroy(&trainer);
}

static void check_loaded(const char *keys)
{
    oct_recipe recipe = make_recipe(keys);
    oct_trainer trainer;
    start(&trainer, &recipe);
    static const int64_t steps[] = {2, 4, 6, 8, STEPS};
    for (size_t i = 0; i < OCT_COUNT(steps); i++) {
        char name[32];
        snprintf(name, sizeof(name), "at%lld", (long long)steps[i]);
        const char *folder = oct_tmp_path(&tmp, name);
        run_to(&trainer, steps[i]);
        cr_assert_eq(oct_trainer_save(&trainer, folder, NULL), OCT_OK);

        oct_checkpoint checkpoint;
        oct_module *model;
        bool prepared;
        oct_scores there, here;
        float a[TEST * CLASSES], b[TEST * CLASSES];
        cr_assert_eq(oct_checkpoint_newest(&checkpoint, folder, NULL), OCT_OK);
        oct_status status =
            oct_build_from_checkpoint(&model, &checkpoint, &recipe, &test_data, &prepared);
        cr_assert_eq(status, OCT_OK, "%s", status ? oct_error_message(0) : "");
        cr_assert_eq(prepared, steps[i] > 3);
        const oct_collective *one = &oct_collective_one;
        cr_assert_eq(oct_evaluate(NULL, trainer.model, one, &recipe, &test_data, &there, a),
                     OCT_OK);
        cr_assert_eq(oct_evaluate(NULL, model, one, &recipe, &test_data, &here, b), OCT_OK);
        cr_assert_eq(memcmp(a, b, sizeof(a)), 0, "step %lld", (long long)steps[i]);
        oct_module_destroy(&model);
        oct_checkpoint_close(&checkpoint);
    }
    oct_trainer_destroy(&trainer);
}

Test(train, a_checkpoint_can_be_loaded_for_evaluation_in_each_phase)
{
    check_loaded(NULL);
}

Test(train, a_checkpoint_with_folded_batch_norm_can_be_loaded_in_each_phase)
{
    check_loaded("qat.fold_batch_norm=true");
}

/* Batches of 13 leave one of 40 images. */
Test(train, batch_norms_that_some_batch_has_one_value_for_are_refused_before_the_start)
{
    static const struct {
        const char *keys, *says; /* NULL: nothing */
    } cases[] = {
        {"batch.size=13", "1: a batch norm needs 2 values a channel or more to train, and this one "
                          "has one in the last batch of an epoch, of one sample; write "
                          "data.drop_last: true, or another batch.size"},
        {"batch.size=13 data.drop_last=true", NULL},
        {"batch.size=13 quant.batch_norm=folded float.epochs=0", NULL},
        {"batch.size=14", NULL},
        {"batch.size=9 batch.leaf=3 batch_norm.group=leaf",
         "a group of one sample (batch_norm.group); write data.drop_last: true"},
        {"batch.leaf=1 batch_norm.group=leaf",
         "a group of one sample (batch_norm.group); choose another batch.size or batch_norm.group"},
        {"batch.size=1 batch.leaf=1", "in a batch of one sample; choose another batch.size"},
        {"quant.target=pow2", "quant.batch_norm: target pow2 only shifts"},
        {"quant.target=pow2 quant.batch_norm=folded", NULL},
    };
    oct_module *root, *item;
    cr_assert_eq(oct_sequential_create(&root), OCT_OK);
    cr_assert_eq(oct_flatten_create(&item), OCT_OK);
    cr_assert_eq(oct_sequential_append(root, &item), OCT_OK);
    cr_assert_eq(oct_batch_norm_create(&item, SIZE * SIZE), OCT_OK);
    cr_assert_eq(oct_sequential_append(root, &item), OCT_OK);
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        const oct_recipe recipe = make_recipe(cases[i].keys);
        const oct_status status = oct_check_norms(&recipe, &train_data, root);
        cr_assert_eq(status, cases[i].says ? OCT_USAGE : OCT_OK, "%s", cases[i].keys);
        if (status != OCT_OK)
            cr_assert_not_null(strstr(oct_error_message(0), cases[i].says), "%s",
                               oct_error_message(0));
    }
    oct_module_destroy(&root);

    /* Without a batch norm there is none to fold. */
    const oct_recipe shifts = make_recipe("quant.target=pow2");
    cr_assert_eq(oct_flatten_create(&root), OCT_OK);
    cr_assert_eq(oct_check_norms(&shifts, &train_data, root), OCT_OK);
    cr_assert_eq(oct_run_check(&shifts, &train_data, &test_data, 1), OCT_OK);
    oct_module_destroy(&root);
}

static oct_status add_norm(void *user, oct_module *module)
{
    oct_module ***end = user;
    if (module->type == &oct_batch_norm_type) *(*end)++ = module;
    return OCT_OK;
}

static size_t find_norms(oct_module *root, oct_module **norms)
{
    oct_module **end = norms;
    cr_assert_eq(oct_module_walk(root, add_norm, &end), OCT_OK);
    return (size_t)(end - norms);
}

/* A layer that keeps its batch norm for the gain that it has when others are folded: a model that has learned nothing
 * would fold it. */
Test(train, what_is_folded_is_read_from_the_checkpoint_and_not_decided_again)
{
    oct_recipe recipe = make_recipe("qat.fold_batch_norm=true");
    oct_trainer first, second;
    oct_module *norms[16];
    start(&first, &recipe);
    run_to(&first, 7);
    cr_assert_gt(find_norms(first.model, norms), 1);
    oct_f32(&((oct_batch_norm_module *)norms[0])->gamma->value)[1] = 1e-6f;
    run_to(&first, 8);
    cr_assert_eq(find_norms(first.model, norms), 1);
    cr_assert_eq(oct_trainer_save(&first, oct_tmp_path(&tmp, "kept"), NULL), OCT_OK);

    oct_checkpoint checkpoint;
    oct_module *model;
    bool prepared;
    cr_assert_eq(oct_checkpoint_newest(&checkpoint, oct_tmp_path(&tmp, "kept"), NULL), OCT_OK);
    cr_assert_eq(oct_build_from_checkpoint(&model, &checkpoint, &recipe, &test_data, &prepared),
                 OCT_OK);
    cr_assert(same(digest_of_state(first.model, NULL), digest_of_state(model, NULL)));
    oct_module_destroy(&model);
    oct_checkpoint_close(&checkpoint);

    start(&second, &recipe);
    restore(&second, oct_tmp_path(&tmp, "kept"));
    run_to(&first, STEPS);
    run_to(&second, STEPS);
    cr_assert(same(digest_of(&first), digest_of(&second)));
    oct_trainer_destroy(&first);
    oct_trainer_destroy(&second);
}

/* A hook of the user's that sums over the batch, on any rank and any number of leaves. */
static oct_tensor *sum_over_batch(oct_context *cx, oct_module *module, oct_tensor *value,
                                  void *user)
{
    double rows[16] = {0}, total = 0;
    (void)module;
    for (int64_t i = 0; i < cx->leaves.local; i++)
        for (int64_t s = 0; s < oct_leaf_size(&cx->leaves, i); s++)
            rows[i] += (double)oct_f32(value)[(oct_leaf_begin(&cx->leaves, i) + s) * CLASSES];
    if (oct_sum_over_ranks(cx, rows, 1, &total)) ((double *)user)[cx->leaves.local] += total;
    return NULL;
}

Test(train, a_calibration_that_sums_over_the_batch_sees_it_whole)
{
    oct_recipe recipe = make_recipe("data.drop_last=true");
    oct_trainer plain, summing;
    double sums[17] = {0};
    start(&plain, &recipe);
    start(&summing, &recipe);
    int64_t calibration = plain.plan.begin[OCT_PHASE_CALIBRATE];
    run_to(&plain, calibration + 1);
    run_to(&summing, calibration + 1);
    oct_hook_handle handle;
    cr_assert_eq(oct_module_hook(summing.model, sum_over_batch, sums, &handle), OCT_OK);
    run_to(&plain, calibration + 2);
    run_to(&summing, calibration + 2);
    for (int64_t leaves = 0; leaves < 17; leaves++)
        cr_assert_eq(sums[leaves] != 0, leaves == 4, "a sum over %d leaves", (int)leaves);
    cr_assert(same(digest_of(&plain), digest_of(&summing)), "and the ranges are the same");
    oct_trainer_destroy(&plain);
    oct_trainer_destroy(&summing);
}

/* A branch that a concat reads is made small before calibration, and ranges that cut much are chosen. */
Test(train, layers_whose_codes_lose_much_are_named_in_the_statistics)
{
    oct_recipe recipe = make_recipe("model.name=fpn-small quant.observer=percentile "
                                    "quant.percentile=60 qat.lr=1e-6");
    oct_trainer trainer;
    oct_model model;
    json_t *document;
    const oct_checkpoint none = {0};
    bool uneven = false, clips = false;
    start(&trainer, &recipe);
    run_to(&trainer, 3);
    oct_tensor *weight =
        &((oct_conv2d_module *)oct_module_find(trainer.model, "output1"))->weight->value;
    for (int64_t i = 0; i < oct_numel(weight); i++)
        oct_f32(weight)[i] *= 1e-4f;
    run_to(&trainer, STEPS);
    oct_conversion conversion = {.root = trainer.model, .recipe = &recipe, .test_data = &test_data};
    cr_assert_eq(oct_certify(&model, &conversion, &oct_collective_one), OCT_OK);
    const oct_layer_stats stats = {.program = &model.program,
                                   .model = trainer.model,
                                   .reference = &none,
                                   .recipe = &recipe,
                                   .data = &test_data};
    cr_assert_eq(oct_layer_stats_make(&stats, &oct_collective_one, &document), OCT_OK);
    const json_t *findings = json_object_get(document, "findings");
    for (size_t i = 0; i < json_array_size(findings); i++) {
        const char *finding = json_string_value(json_array_get(findings, i));
        uneven |=
            strstr(finding, "_generated_concat_0: combines _generated_global_avg_pool_2, whose "
                            "values reach 0.00") != NULL;
        clips |= strstr(finding, " % of its values, which reach ") != NULL;
    }
    cr_assert(uneven && clips, "%d %d", uneven, clips);
    json_decref(document);
    oct_model_free(&model);
    oct_trainer_destroy(&trainer);
}
