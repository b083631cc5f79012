/* What the recipe's keys of quantization do to a run: methods, targets, bits, layers that stay float,
 * folding, and the states that an evaluation must leave alone. */
#include "io/recipe/sensitivity_file.h"
#include "quant/layers/sensitivity.h"
#include "tests/launch/train_rig.h"

TestSuite(quant_keys, .init = set_up, .fini = tear_down, .timeout = 120);

Test(quant_keys, every_method_gives_the_same_bits)
{
    static const char *const keys[] = {"quant.method=jit", "quant.method=symbolic",
                                       "quant.method=eager"};
    oct_recipe recipe = make_recipe(NULL);
    state_digest jit_strip = digest_of_run(&recipe);
    for (size_t i = 0; i < OCT_COUNT(keys); i++) {
        recipe = make_recipe(keys[i]);
        cr_assert(same(jit_strip, digest_of_run(&recipe)), "%s", keys[i]);
    }
}

Test(quant_keys, each_run_ends_in_an_integer_model_of_the_same_bits)
{
    check_end("quant.bits=16");
    check_end("quant.bits=16 quant.scales=current quant.observer=min_max");
    check_end("quant.int16_layers=[features.3] quant.int16_fixed=true");
    check_end("quant.int16_layers=[quant,features.0,head.*] quant.float_output=false");
    check_end("quant.float_layers=[features.3]");
    check_end("quant.setters=[type:linear=float]");
    check_end("quant.setters=[type:conv2d=int16_fixed,type:linear=float,*=int8]");
    check_end("quant.batch_norm=folded");
    check_end("qat.fold_batch_norm=true");
    check_end("quant.shared_range=true");
}

Test(quant_keys, numerics_are_those_of_the_recipe)
{
    oct_recipe recipe = make_recipe(NULL);
    const state_digest standard = digest_of_run(&recipe);
    recipe = make_recipe("numerics=int8");
    cr_assert(same(standard, digest_of_run(&recipe)));
    recipe = make_recipe("numerics=bf16");
    const state_digest bf16 = digest_of_run(&recipe);
    cr_assert_not(same(standard, bf16));
    recipe = make_recipe("numerics=f32");
    cr_assert_not(same(standard, digest_of_run(&recipe)));
    cr_assert_not(same(bf16, digest_of_run(&recipe)));
    check_end("numerics=bf16");
    check_end("numerics=f32");
}

Test(quant_keys, targets_of_hardware_end_in_integer_models_of_the_same_bits)
{
    check_end("quant.target=espdl-s3 quant.batch_norm=folded");
    check_end("quant.target=espdl-p4 quant.batch_norm=folded quant.scales=current");
    check_end("quant.target=bpu");
    check_end("quant.target=bpu quant.bits=16");
}

Test(quant_keys, a_second_target_ends_in_an_integer_model_of_the_same_bits)
{
    check_end("quant.target=pow2 quant.batch_norm=folded");
    check_end(
        "quant.target=pow2 quant.batch_norm=folded quant.method=symbolic quant.scales=current");
}

static oct_fake_quant *quantizer(const oct_trainer *trainer, const char *owner)
{
    for (size_t i = 0; i < trainer->training.quantizers.count; i++) {
        oct_fake_quant *fq = trainer->training.quantizers.items[i];
        if (strcmp(oct_module_path(fq->base.parent).text, owner) == 0) return fq;
    }
    cr_assert_fail("there is no quantizer at %s", owner);
    return NULL;
}

Test(quant_keys, layers_get_the_bits_that_the_recipe_names)
{
    oct_recipe recipe = make_recipe("quant.int16_layers=[features.3,head] quant.int16_fixed=true");
    oct_trainer trainer;
    start(&trainer, &recipe);
    run_to(&trainer, 5);
    cr_assert_eq(quantizer(&trainer, "features.0")->qconfig.bits, 8);
    oct_fake_quant *wide = quantizer(&trainer, "features.3");
    cr_assert(wide->qconfig.bits == 16 && wide->qconfig.fixed_scale && wide->updates[0] == 2);
    cr_assert_eq(quantizer(&trainer, "head.0")->qconfig.bits, 16);
    float scale = wide->scale[0];
    run_to(&trainer, STEPS);
    cr_assert(wide->updates[0] == 2 && wide->scale[0] == scale, "its scale is calibration's");
    cr_assert_gt(quantizer(&trainer, "features.0")->updates[0], 2);
    oct_trainer_destroy(&trainer);
}

/* From high to low: quant.setters in their order, float_layers, int16_layers, quant.bits. */
Test(quant_keys, setters_decide_in_the_order_of_the_recipe)
{
    oct_recipe recipe = make_recipe(
        "quant.setters=[features.0=int8_fixed,type:conv2d=int16] quant.int16_layers=[head] "
        "quant.float_layers=[features.3] quant.float_output=false");
    oct_trainer trainer;
    start(&trainer, &recipe);
    run_to(&trainer, STEPS);
    const oct_fake_quant *first = quantizer(&trainer, "features.0");
    cr_assert(first->qconfig.bits == 8 && first->qconfig.fixed_scale && first->updates[0] == 2);
    cr_assert_eq(quantizer(&trainer, "features.3")->qconfig.bits, 16,
                 "the type comes before quant.float_layers");
    cr_assert_eq(quantizer(&trainer, "head.0")->qconfig.bits, 16, "quant.int16_layers");
    oct_trainer_destroy(&trainer);
}

/* An empty list leaves the identity of older runs as it was; another one is part of it. */
Test(quant_keys, setters_belong_to_the_identity_when_there_are_any)
{
    static const char *const keys[] = {NULL, "quant.setters=[type:linear=float]"};
    for (size_t i = 0; i < OCT_COUNT(keys); i++) {
        oct_recipe recipe = make_recipe(keys[i]);
        oct_text identity = {0};
        cr_assert_eq(oct_recipe_write(&recipe, true, &identity), OCT_OK);
        cr_assert_eq(strstr(identity.data, "setters: [\"type:linear=float\"]") != NULL ||
                         strstr(identity.data, "setters: [type:linear=float]") != NULL,
                     i == 1, "%s", identity.data);
        oct_text_free(&identity);
    }
}

static oct_status try_start(const char *keys)
{
    oct_recipe recipe = make_recipe(keys);
    oct_trainer trainer;
    oct_status status =
        oct_trainer_create(&trainer, &recipe, &oct_collective_one, &train_data, &test_data);
    if (status == OCT_OK) oct_trainer_destroy(&trainer);
    return status;
}

Test(quant_keys, that_name_nothing_are_refused_before_the_first_step)
{
    cr_assert_eq(try_start("quant.int16_layers=[features.99]"), OCT_PREPARE);
    cr_assert(some_problem_says("quant.int16_layers 'features.99': no module that can be quantized "
                                "has this path; did you mean 'features."),
              "%s", oct_error_message(0));
    cr_assert_eq(try_start("quant.float_layers=[tail*]"), OCT_PREPARE);
    cr_assert(some_problem_says("quant.float_layers 'tail*': no module"), "%s",
              oct_error_message(0));
    cr_assert_eq(try_start("quant.setters=[type:liner=float]"), OCT_PREPARE);
    cr_assert(some_problem_says("quant.setters 'type:liner': the model has no module or op of this "
                                "type; did you mean 'linear'?"),
              "%s", oct_error_message(0));
    cr_assert_eq(try_start("quant.setters=[haed=int16]"), OCT_PREPARE);
    cr_assert(some_problem_says("quant.setters 'haed': no module that can be quantized has this "
                                "path; did you mean 'head'?"),
              "%s", oct_error_message(0));
    cr_assert_eq(try_start("quant.observer=min_mx quant.fake_quant=afine"), OCT_USAGE);
    cr_assert(some_problem_says("quant.observer: there is no observer 'min_mx'; did you mean "
                                "'min_max'?"));
    cr_assert(some_problem_says("quant.fake_quant: there is no fake-quant 'afine'; did you mean "
                                "'affine'?"));
}

Test(quant_keys, that_a_target_does_not_allow_are_refused_with_the_remedy)
{
    cr_assert_eq(try_start("quant.target=pow2"), OCT_USAGE);
    cr_assert(some_problem_says("write quant.batch_norm: folded"), "%s", oct_error_message(0));
    cr_assert_eq(try_start("quant.target=pow2 quant.batch_norm=folded quant.bits=16"), OCT_USAGE);
    cr_assert(some_problem_says("quant.bits: target pow2 has no 16-bit activations"));
    cr_assert_eq(try_start("quant.target=pow2 quant.batch_norm=folded quant.int16_layers=[head]"),
                 OCT_USAGE);
    cr_assert(some_problem_says("quant.int16_layers: target pow2 has no 16-bit activations"));
    cr_assert_eq(try_start("quant.target=pow2 quant.batch_norm=folded "
                           "quant.setters=[type:linear=int16]"),
                 OCT_USAGE);
    cr_assert(some_problem_says("quant.setters: target pow2 has no 16-bit activations"));
}

static void evaluate(oct_module *model, const oct_recipe *recipe, float *logits)
{
    oct_scores scores;
    cr_assert_eq(
        oct_evaluate(NULL, model, &oct_collective_one, recipe, &test_data, &scores, logits),
        OCT_OK);
}

Test(quant_keys, an_evaluation_moves_no_observer_in_whatever_state)
{
    oct_recipe recipe = make_recipe(NULL);
    oct_trainer trainer;
    float logits[TEST * CLASSES];
    start(&trainer, &recipe);
    run_to(&trainer, 7);
    state_digest before = digest_of(&trainer);
    for (int state = OCT_QUANT_OFF; state <= OCT_QUANT_FROZEN; state++) {
        oct_quantizers_set_state(&trainer.training.quantizers, (oct_quant_state)state);
        evaluate(trainer.model, &recipe, logits);
        cr_assert(same(before, digest_of(&trainer)), "state %d", state);
        for (size_t i = 0; i < trainer.training.quantizers.count; i++)
            cr_assert_eq(trainer.training.quantizers.items[i]->batch_range[1], -INFINITY);
    }
    oct_trainer_destroy(&trainer);
}

/* Logits bit for bit: folding moves batch norm's factor to where the codes do not see it. */
Test(quant_keys, folding_in_the_middle_of_training_keeps_every_bit_of_evaluation)
{
    oct_recipe recipe = make_recipe(NULL);
    oct_trainer trainer;
    float live[TEST * CLASSES], folded[TEST * CLASSES];
    start(&trainer, &recipe);
    run_to(&trainer, 7);
    evaluate(trainer.model, &recipe, live);
    size_t before = trainer.training.params.count;
    cr_assert_eq(oct_fold_batch_norm(trainer.model), OCT_OK);
    evaluate(trainer.model, &recipe, folded);
    cr_assert_eq(memcmp(live, folded, sizeof live), 0);
    cr_assert_eq(oct_train_step_rebind(&trainer.training, trainer.model), OCT_OK);
    cr_assert_eq(trainer.training.params.count, before - 4,
                 "gamma and beta of four go, a bias comes");
    oct_trainer_destroy(&trainer);
}

Test(quant_keys, folding_happens_where_batch_norm_would_freeze)
{
    oct_recipe recipe = make_recipe("qat.fold_batch_norm=true");
    oct_trainer trainer;
    start(&trainer, &recipe);
    run_to(&trainer, 7);
    cr_assert_not_null(oct_module_find(trainer.model, "features.0.bn"));
    run_to(&trainer, 8);
    cr_assert_eq(trainer.phase, OCT_PHASE_QAT_BN_FROZEN);
    cr_assert_null(oct_module_find(trainer.model, "features.0.bn"));
    cr_assert_eq(trainer.training.optim.updates, 1, "the optimizer starts anew");
    oct_trainer_destroy(&trainer);
}

static oct_status fetch(void *user, int64_t first, int64_t n, float *const *input)
{
    oct_loader loader;
    oct_goals goals;
    OCT_TRY(oct_evaluation_loader(&loader, user, &train_data));
    const oct_status status = oct_loader_read(&loader, first, n, input[0], &goals);
    oct_loader_deinit(&loader);
    return status;
}

static oct_sensitivity measure(oct_module *model, oct_recipe *recipe)
{
    oct_sensitivity table;
    oct_sensitivity_data data = {.samples = 30,
                                 .batch = 16,
                                 .leaf = 4,
                                 .example = *OCT_EXAMPLE(OCT_SHAPE(1, SIZE, SIZE, 1)),
                                 .outputs = CLASSES,
                                 .labels = train_data.labels,
                                 .fetch = fetch,
                                 .user = recipe};
    oct_status status = oct_sensitivity_measure(&table, model, &data, &oct_collective_one);
    cr_assert_eq(status, OCT_OK, "%s", status ? oct_error_message(0) : "");
    return table;
}

Test(quant_keys, sensitivity_has_a_row_for_each_quantizer_and_leaves_the_model_as_it_was)
{
    oct_recipe recipe = make_recipe(NULL);
    oct_trainer trainer;
    start(&trainer, &recipe);
    run_to(&trainer, 6);
    state_digest before = digest_of(&trainer);
    oct_sensitivity table = measure(trainer.model, &recipe);
    cr_assert(same(before, digest_of(&trainer)));
    cr_assert(trainer.model->training);
    cr_assert_eq(table.count, trainer.training.quantizers.count + 6, "six layers have weights");
    for (size_t i = 0; i < table.count; i++) {
        const oct_sensitivity_row *row = &table.rows[i];
        cr_assert_not_null(oct_module_find(trainer.model, row->path));
        cr_assert(row->sqnr > 3 && row->sqnr < 200, "%s %s: %g dB", row->path, row->tensor,
                  row->sqnr);
        cr_assert(row->cosine > 0.7 && row->cosine <= 1.0 + 1e-12);
        cr_assert(i == 0 || table.rows[i - 1].sqnr <= row->sqnr);
    }
    oct_sensitivity_free(&table);
    oct_trainer_destroy(&trainer);
}

/* One quantizer switched on by hand, by the definition. */
Test(quant_keys, sensitivity_is_the_noise_of_one_quantizer_alone)
{
    oct_recipe recipe = make_recipe(NULL);
    oct_trainer trainer;
    float exact[30 * CLASSES], rounded[30 * CLASSES];
    oct_scores scores;
    oct_dataset part = train_data;
    part.count = 30;
    start(&trainer, &recipe);
    run_to(&trainer, 6);
    oct_sensitivity table = measure(trainer.model, &recipe);
    const oct_collective *one = &oct_collective_one;
    oct_quantizers_set_state(&trainer.training.quantizers, OCT_QUANT_OFF);
    cr_assert_eq(oct_evaluate(NULL, trainer.model, one, &recipe, &part, &scores, exact), OCT_OK);
    quantizer(&trainer, "features.3")->state = OCT_QUANT_SIMULATE;
    cr_assert_eq(oct_evaluate(NULL, trainer.model, one, &recipe, &part, &scores, rounded), OCT_OK);
    double signal = 0, noise = 0;
    for (int i = 0; i < 30 * CLASSES; i++) {
        signal += (double)exact[i] * (double)exact[i];
        noise += pow((double)exact[i] - (double)rounded[i], 2);
    }
    const oct_sensitivity_row *row = table.rows;
    while (strcmp(row->path, "features.3") != 0 || strcmp(row->tensor, "activation") != 0)
        row++;
    cr_assert_float_eq(row->sqnr, 10 * log10(signal / noise), 1e-9);
    oct_sensitivity_free(&table);
    oct_trainer_destroy(&trainer);
}

Test(quant_keys, a_sensitivity_table_raises_the_layers_that_it_names)
{
    char keys[400];
    oct_text text = {0};
    oct_recipe recipe = make_recipe(NULL);
    oct_trainer trainer;
    start(&trainer, &recipe);
    run_to(&trainer, 6);
    oct_sensitivity table = measure(trainer.model, &recipe);
    oct_trainer_destroy(&trainer);
    cr_assert_eq(oct_sensitivity_print(&table, "a comment", &text), OCT_OK);
    snprintf(keys, sizeof keys, "quant.sensitivity=%s quant.sensitivity_ratio=0.5",
             oct_tmp_write_text(&tmp, "table", text.data));
    recipe = make_recipe(keys);
    start(&trainer, &recipe);
    run_to(&trainer, 4);
    size_t wide = 0, named = 0;
    for (size_t i = 0; i < trainer.training.quantizers.count; i++)
        wide += trainer.training.quantizers.items[i]->qconfig.bits == 16;
    for (size_t i = 0; i < (table.count + 1) / 2; i++) {
        if (strcmp(table.rows[i].tensor, "activation") != 0) continue;
        cr_assert_eq(quantizer(&trainer, table.rows[i].path)->qconfig.bits, 16);
        named++;
    }
    cr_assert(named > 0 && wide == named, "%zu layers have 16 bits, %zu are named", wide, named);
    oct_trainer_destroy(&trainer);
    oct_sensitivity_free(&table);
    oct_text_free(&text);
}
