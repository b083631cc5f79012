/* A small data set in memory and a short run on it, for tests of the trainer without ranks. */
#pragma once

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "io/file/file.h"
#include "launch/deploy/certificate.h"
#include "launch/session/build.h"
#include "launch/train/run_check.h"
#include "launch/train/trainer.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { SIZE = 8, TRAIN = 40, TEST = 22, CLASSES = 10 };

/* 3 steps an epoch, the last one short: float 0-2, calibrate 3-4, qat 5-6, batch norm frozen 7-8,
 * scales frozen 9-10. */
static const char recipe_text[] = "schema: 1\n"
                                  "model: {name: cnn-small}\n"
                                  "batch: {size: 16, leaf: 4}\n"
                                  "data: {crop_padding: 1, flip: true}\n"
                                  "float: {epochs: 1, lr: 0.05}\n"
                                  "calibrate: {batches: 2}\n"
                                  "qat: {epochs: 2, lr: 0.02, freeze_batch_norm: 0.34, "
                                  "freeze_scales: 0.67}\n";
enum { STEPS = 11 };

static oct_dataset train_data, test_data;
static oct_tmp tmp;

/* Noise whose brightness depends on the label. */
static inline oct_dataset make_data(int64_t count, uint32_t sub)
{
    const oct_image sample = {.dtype = OCT_U8, .h = SIZE, .w = SIZE, .c = 1};
    oct_dataset data;
    cr_assert_eq(oct_memory_make(&data, count, &sample, CLASSES), OCT_OK);
    uint8_t *pixels = data.store;
    for (int64_t i = 0; i < count; i++) {
        data.labels[i] = (int32_t)(i % CLASSES);
        for (int64_t p = 0; p < SIZE * SIZE; p++) {
            uint32_t draw[4];
            oct_philox(3, OCT_STREAM_TEST, (uint64_t)(i * SIZE * SIZE + p), sub, draw);
            pixels[i * SIZE * SIZE + p] = (uint8_t)(draw[0] % 64 + (uint32_t)data.labels[i] * 18u);
        }
    }
    return data;
}

static inline void set_up(void)
{
    train_data = make_data(TRAIN, 0);
    test_data = make_data(TEST, 1);
    oct_tmp_create(&tmp);
    omp_set_num_threads(1); /* tests run side by side */
}

/* What make_recipe gave out. */
static oct_recipe recipes[16];
static size_t num_recipes;

static inline void tear_down(void)
{
    oct_tmp_remove(&tmp);
    oct_dataset_close(&train_data);
    oct_dataset_close(&test_data);
    while (num_recipes > 0)
        oct_recipe_free(&recipes[--num_recipes]);
}

/* A copy for the test to change; its texts live until the end of the test. keys: "a=1 b=2", or NULL. */
static inline oct_recipe make_recipe(const char *keys)
{
    char text[512] = "";
    const char *overrides[16];
    size_t count = 0;
    snprintf(text, sizeof text, "%s", keys ? keys : "");
    for (char *save = NULL, *key = strtok_r(text, " ", &save); key;
         key = strtok_r(NULL, " ", &save))
        overrides[count++] = key;
    cr_assert_lt(num_recipes, OCT_COUNT(recipes));
    oct_recipe *recipe = &recipes[num_recipes];
    oct_status status = oct_recipe_read(recipe, "test.yaml", recipe_text, overrides, count);
    cr_assert_eq(status, OCT_OK, "%s", status ? oct_error_message(0) : "");
    num_recipes++;
    return *recipe;
}

static inline void start(oct_trainer *trainer, const oct_recipe *recipe)
{
    oct_status status =
        oct_trainer_create(trainer, recipe, &oct_collective_one, &train_data, &test_data);
    cr_assert_eq(status, OCT_OK, "%s", status ? oct_error_message(0) : "");
}

static inline void run_to(oct_trainer *trainer, int64_t step)
{
    oct_step_result result;
    while (trainer->step < step) {
        oct_status status = oct_trainer_step(trainer, &result);
        cr_assert_eq(status, OCT_OK, "%s", status ? oct_error_message(0) : "");
        cr_assert(isfinite(result.loss) && result.samples > 0);
    }
}

static inline oct_status add_state(void *user, const oct_state_item *item)
{
    oct_sha256_add(user, item->path, strlen(item->path));
    oct_sha256_add(user, item->tensor->data,
                   (size_t)oct_numel(item->tensor) * oct_dtype_bytes(item->tensor->dtype));
    return OCT_OK;
}

/* SHA-256 of all state: parameters, buffers, optimizer with its averages. */
typedef struct state_digest {
    uint8_t bytes[32];
} state_digest;

typedef struct averages_walk {
    oct_sha256_state *sum;
    const oct_average *average;
} averages_walk;

static inline oct_status add_average(void *user, const oct_state_item *item)
{
    const averages_walk *walk = user;
    const float *other = oct_average_of(walk->average, item->tensor);
    if (other) oct_sha256_add(walk->sum, other, (size_t)oct_numel(item->tensor) * sizeof *other);
    return OCT_OK;
}

static inline state_digest digest_of_state(oct_module *model, const oct_optim *optim)
{
    state_digest digest;
    oct_sha256_state *state;
    cr_assert_eq(oct_sha256_begin(&state), OCT_OK);
    cr_assert_eq(oct_module_state(model, add_state, state), OCT_OK);
    for (int s = 0; optim && s < optim->num_slots; s++)
        oct_sha256_add(state, optim->slot[s], (size_t)optim->numel * sizeof(float));
    if (optim && optim->average.begun) {
        averages_walk walk = {state, &optim->average};
        cr_assert_eq(oct_module_state(model, add_average, &walk), OCT_OK);
    }
    oct_sha256_end(&state, digest.bytes);
    return digest;
}

static inline state_digest digest_of(const oct_trainer *trainer)
{
    return digest_of_state(trainer->model, oct_trainer_optim((oct_trainer *)(uintptr_t)trainer));
}

static inline bool same(state_digest a, state_digest b)
{
    return memcmp(a.bytes, b.bytes, sizeof(a.bytes)) == 0;
}

static inline state_digest digest_of_run(const oct_recipe *recipe)
{
    oct_trainer trainer;
    start(&trainer, recipe);
    run_to(&trainer, STEPS);
    cr_assert(oct_trainer_done(&trainer));
    state_digest digest = digest_of(&trainer);
    oct_trainer_destroy(&trainer);
    return digest;
}

static inline void restore(oct_trainer *trainer, const char *folder)
{
    oct_checkpoint checkpoint;
    oct_status status = oct_checkpoint_newest(&checkpoint, folder, NULL);
    cr_assert_eq(status, OCT_OK, "%s", status ? oct_error_message(0) : "");
    cr_assert_not_null(checkpoint.bytes);
    status = oct_trainer_restore(trainer, &checkpoint);
    cr_assert_eq(status, OCT_OK, "%s", status ? oct_error_message(0) : "");
    oct_checkpoint_close(&checkpoint);
}

static inline bool some_problem_says(const char *words)
{
    for (size_t i = 0; i < oct_error_count(); i++)
        if (strstr(oct_error_message(i), words)) return true;
    return false;
}

static inline void check_end(const char *override)
{
    oct_recipe recipe = make_recipe(override);
    oct_trainer trainer;
    start(&trainer, &recipe);
    run_to(&trainer, oct_plan_steps(&trainer.plan));
    cr_assert_eq(trainer.phase, OCT_PHASE_QAT_SCALES_FROZEN, "%s", override);

    oct_model model;
    oct_conversion conversion = {.root = trainer.model, .recipe = &recipe, .test_data = &test_data};
    oct_status status = oct_certify(&model, &conversion, &oct_collective_one);
    cr_assert_eq(status, OCT_OK, "%s: %s", override, status ? oct_error_message(0) : "");
    cr_assert_eq(model.certificate.logits_differ, 0);
    cr_assert_eq(model.certificate.images, TEST);
    cr_assert_eq(model.certificate.golden_count, OCT_GOLDEN_IMAGES);
    cr_assert_eq(conversion.layers_compared, model.program.num_steps, "a layer was not compared");
    oct_model_free(&model);
    oct_trainer_destroy(&trainer);
}
