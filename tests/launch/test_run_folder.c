/* The run folder: whose it is, what a resume drops from it, and how the end of a run is known. */
#include "launch/runfolder/run_folder.h"
#include "core/base/mem.h"
#include "io/file/file.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static oct_tmp tmp;

static void make_tmp(void)
{
    oct_tmp_create(&tmp);
}

/* What the tests hold until their end. */
static oct_recipe recipes[4];
static size_t num_recipes;
static void *text;
static char *run_of;

static void remove_tmp(void)
{
    oct_tmp_remove(&tmp);
    while (num_recipes > 0)
        oct_recipe_free(&recipes[--num_recipes]);
    oct_free(&text);
    oct_free(&run_of);
}

TestSuite(run_folder, .init = make_tmp, .fini = remove_tmp);

static oct_recipe recipe_for(const char *output, const char *override)
{
    char word[600];
    cr_assert_lt(num_recipes, OCT_COUNT(recipes));
    oct_recipe *recipe = &recipes[num_recipes];
    snprintf(word, sizeof(word), "output=%s", output);
    const char *overrides[] = {word, override};
    oct_status status = oct_recipe_read(
        recipe, "test.yaml", "schema: 1\nmodel:\n  name: cnn-small\n", overrides, override ? 2 : 1);
    cr_assert_eq(status, OCT_OK, "%s", status ? oct_error_message(0) : "");
    num_recipes++;
    return *recipe;
}

static oct_run_folder opened(const oct_recipe *recipe, int64_t step)
{
    oct_run_folder folder;
    cr_assert_eq(oct_run_folder_open(&folder, recipe, &(oct_text){0}), OCT_OK);
    cr_assert_eq(oct_run_folder_rewind(&folder, step, 1000), OCT_OK);
    return folder;
}

static void record(oct_run_folder *folder, const char *kind, const char *phase, int64_t step)
{
    oct_run_folder_record(folder, json_pack("{s:s, s:s, s:I, s:I, s:I}", "kind", kind, "phase",
                                            phase, "step", (json_int_t)step, "correct",
                                            (json_int_t)step, "images", (json_int_t)200));
}

static char *text_of(const char *path)
{
    size_t size;
    oct_free(&text);
    cr_assert_eq(oct_file_read(path, 1 << 20, &text, &size), OCT_OK);
    return text;
}

Test(run_folder, a_folder_that_is_missing_or_empty_or_only_locked_is_free)
{
    oct_recipe recipe = recipe_for(oct_tmp_path(&tmp, "new"), NULL);
    json_t *result;
    cr_assert_eq(oct_run_folder_look(&recipe, &result), OCT_OK);
    cr_assert_null(result);
    oct_tmp_write_text(&tmp, "new/lock", "");
    cr_assert_eq(oct_run_folder_look(&recipe, &result), OCT_OK);
}

Test(run_folder, what_a_killed_session_was_writing_is_nobodys_and_is_removed)
{
    static const char *const left[] = {"new/recipe.yaml.77-0.tmp", "new/checkpoints/a.h5.77-3.tmp"};
    oct_recipe recipe = recipe_for(oct_tmp_path(&tmp, "new"), NULL);
    json_t *result;
    oct_tmp_write_text(&tmp, "new/lock", "");
    oct_tmp_write_text(&tmp, left[0], "schema");
    cr_assert_eq(oct_run_folder_look(&recipe, &result), OCT_OK, "%s", oct_error_message(0));
    oct_tmp_write_text(&tmp, left[1], "");
    oct_run_folder folder = opened(&recipe, 0);
    oct_run_folder_close(&folder);
    for (size_t i = 0; i < OCT_COUNT(left); i++)
        cr_assert_not(oct_file_exists(oct_tmp_path(&tmp, left[i])), "%s", left[i]);
}

Test(run_folder, foreign_files_are_left_alone)
{
    oct_recipe recipe = recipe_for(oct_tmp_path(&tmp, "photos"), NULL);
    json_t *result;
    oct_tmp_write_text(&tmp, "photos/cat.jpg", "x");
    cr_assert_eq(oct_run_folder_look(&recipe, &result), OCT_USAGE);
    cr_assert(strstr(oct_error_message(0), "holds no Octet run"), "%s", oct_error_message(0));
    cr_assert(strstr(oct_error_message(0), "photos"));

    oct_recipe other = recipe_for(oct_tmp_path(&tmp, "photos/cat.jpg"), NULL);
    cr_assert_eq(oct_run_folder_look(&other, &result), OCT_USAGE);
    cr_assert(strstr(oct_error_message(0), "is a file"), "%s", oct_error_message(0));
}

Test(run_folder, a_recipe_of_another_identity_is_refused_naming_each_key)
{
    oct_recipe first = recipe_for(oct_tmp_path(&tmp, "a"), NULL);
    oct_run_folder folder = opened(&first, 0);
    oct_run_folder_close(&folder);
    oct_recipe other = recipe_for(oct_tmp_path(&tmp, "a"), "seed=5");
    json_t *result;
    cr_assert_eq(oct_run_folder_look(&other, &result), OCT_USAGE);
    cr_assert(strstr(oct_error_message(0), "seed"), "%s", oct_error_message(0));
    oct_recipe same = recipe_for(oct_tmp_path(&tmp, "a"), "threads=2");
    cr_assert_eq(oct_run_folder_look(&same, &result), OCT_OK);
}

Test(run_folder, a_live_run_keeps_others_out)
{
    oct_recipe recipe = recipe_for(oct_tmp_path(&tmp, "a"), NULL);
    oct_run_folder folder = opened(&recipe, 0), second;
    cr_assert_eq(oct_run_folder_open(&second, &recipe, &(oct_text){0}), OCT_RESOURCE);
    oct_run_folder_close(&second);
    oct_run_folder_close(&folder);
    folder = opened(&recipe, 0);
    oct_run_folder_close(&folder);
}

Test(run_folder, records_beyond_the_resumed_step_are_dropped_and_none_stands_twice)
{
    oct_recipe recipe = recipe_for(oct_tmp_path(&tmp, "a"), NULL);
    oct_run_folder folder = opened(&recipe, 0);
    record(&folder, "step", "float", 10);
    record(&folder, "eval", "float", 20);
    record(&folder, "step", "qat", 30);
    oct_run_folder_close(&folder);

    folder = opened(&recipe, 20);
    cr_assert_not_null(oct_run_folder_find(&folder, "eval", "float"));
    cr_assert_null(oct_run_folder_find(&folder, "step", "qat"));
    record(&folder, "step", "qat", 30);
    oct_run_folder_close(&folder);

    char *lines_of = text_of(oct_tmp_path(&tmp, "a/metrics.jsonl"));
    cr_assert_eq(strncmp(lines_of, "{\"schema_version\":1,", 20), 0, "%s", lines_of);
    int lines = 0, thirty = 0;
    for (char *at = lines_of; (at = strchr(at, '\n')); at++)
        lines++;
    for (char *at = lines_of; (at = strstr(at, "\"step\":30")); at++)
        thirty++;
    cr_assert_eq(lines, 4);
    cr_assert_eq(thirty, 1);
}

Test(run_folder, a_record_that_was_cut_short_is_dropped)
{
    oct_recipe recipe = recipe_for(oct_tmp_path(&tmp, "a"), NULL);
    oct_run_folder folder = opened(&recipe, 0);
    record(&folder, "step", "float", 10);
    oct_run_folder_close(&folder);
    FILE *file = fopen(oct_tmp_path(&tmp, "a/metrics.jsonl"), "a");
    fputs("{\"kind\":\"step\",\"ste", file);
    fclose(file);
    folder = opened(&recipe, 100);
    record(&folder, "step", "float", 20);
    oct_run_folder_close(&folder);
    char *lines_of = text_of(oct_tmp_path(&tmp, "a/metrics.jsonl"));
    cr_assert_null(strstr(lines_of, "\"ste{"), "%s", lines_of);
    cr_assert_not_null(strstr(lines_of, "\"step\":20"));
    cr_assert_not_null(strstr(lines_of, "\"step\":10"));
}

Test(run_folder, the_newest_evaluation_of_a_phase_is_found)
{
    oct_recipe recipe = recipe_for(oct_tmp_path(&tmp, "a"), NULL);
    oct_run_folder folder = opened(&recipe, 0);
    cr_assert_null(oct_run_folder_find(&folder, "eval", "float"));
    record(&folder, "eval", "float", 100);
    record(&folder, "eval", "float", 150);
    record(&folder, "eval", "qat", 199);
    const json_t *newest = oct_run_folder_find(&folder, "eval", "float");
    cr_assert_eq(json_integer_value(json_object_get(newest, "step")), 150);
    oct_run_folder_close(&folder);
}

static void finish(const oct_recipe *recipe)
{
    uint8_t digest[32];
    char hex[65];
    oct_run_folder folder = opened(recipe, 0);
    oct_tmp_write_text(&tmp, "a/model.int8.h5", "a model");
    oct_sha256("a model", 7, digest);
    oct_run_folder_record(&folder, json_pack("{s:s, s:i, s:s}", "kind", "result", "step", 37,
                                             "model_sha256", oct_hex(digest, hex)));
    oct_run_folder_close(&folder);
}

Test(run_folder, a_finished_run_is_known_by_its_result_and_model)
{
    oct_recipe recipe = recipe_for(oct_tmp_path(&tmp, "a"), NULL);
    json_t *result;
    finish(&recipe);
    cr_assert_eq(oct_run_folder_look(&recipe, &result), OCT_OK);
    cr_assert_eq(json_integer_value(json_object_get(result, "step")), 37);
    json_decref(result);

    oct_tmp_write_text(&tmp, "a/model.int8.h5", "A model");
    cr_assert_eq(oct_run_folder_look(&recipe, &result), OCT_OK);
    cr_assert_null(result, "a damaged model must be made again");
}

Test(run_folder, a_resumed_run_forgets_the_result)
{
    oct_recipe recipe = recipe_for(oct_tmp_path(&tmp, "a"), NULL);
    json_t *result;
    finish(&recipe);
    oct_run_folder folder = opened(&recipe, 37);
    oct_run_folder_close(&folder);
    cr_assert_eq(oct_run_folder_look(&recipe, &result), OCT_OK);
    cr_assert_null(result);
}

Test(run_folder, sessions_are_added_to_run_json)
{
    oct_recipe recipe = recipe_for(oct_tmp_path(&tmp, "a"), NULL);
    oct_run_folder folder = opened(&recipe, 0);
    cr_assert_eq(oct_run_folder_session(&folder, json_pack("{s:i}", "ranks", 1)), OCT_OK);
    cr_assert_eq(oct_run_folder_session(&folder, json_pack("{s:i}", "ranks", 3)), OCT_OK);
    oct_run_folder_close(&folder);
    json_t *root = json_loads(text_of(oct_tmp_path(&tmp, "a/run.json")), 0, NULL);
    json_t *sessions = json_object_get(root, "sessions");
    cr_assert_eq(json_array_size(sessions), 2);
    cr_assert_eq(json_integer_value(json_object_get(json_array_get(sessions, 1), "ranks")), 3);
    json_decref(root);
}

static oct_status same_data(const oct_run_folder *folder, int images, const char *digest)
{
    return oct_run_folder_same_data(
        folder, json_pack("{s:{s:i, s:s}}", "test", "images", images, "contents", digest));
}

Test(run_folder, data_are_compared_with_those_of_the_last_session)
{
    oct_recipe recipe = recipe_for(oct_tmp_path(&tmp, "a"), NULL);
    oct_run_folder folder = opened(&recipe, 0);
    cr_assert_eq(same_data(&folder, 5, "0"), OCT_OK); /* there was none */
    for (int i = 8; i < 10; i++)
        cr_assert_eq(oct_run_folder_session(&folder, json_pack("{s:{s:{s:i, s:s}}}", "data", "test",
                                                               "images", i, "contents", "ab")),
                     OCT_OK);
    cr_assert_eq(same_data(&folder, 9, "ab"), OCT_OK);
    cr_assert_eq(same_data(&folder, 8, "ab"), OCT_DATA);
    cr_assert(strstr(oct_error_message(0), "test.images is 8, and was 9 (run.json); give it"), "%s",
              oct_error_message(0));
    cr_assert_eq(same_data(&folder, 9, "ac"), OCT_DATA);
    cr_assert(strstr(oct_error_message(0), "test.contents is ac..., and was ab..."));
    oct_run_folder_close(&folder);
}

/* The run that `path` belongs to, or NULL. */
static const char *run_folder_of(const char *path)
{
    oct_free(&run_of);
    cr_assert_eq(oct_run_folder_of(path, &run_of), OCT_OK);
    return run_of;
}

Test(run_folder, models_and_checkpoints_know_their_run)
{
    static const char *const inside[] = {"a", "a/model.int8.h5", "a/checkpoints/step-00000001.h5"};
    oct_tmp_write_text(&tmp, "a/recipe.yaml", "schema: 1\n");
    oct_tmp_write_text(&tmp, "a/model.int8.h5", "");
    oct_tmp_write_text(&tmp, "a/checkpoints/step-00000001.h5", "");
    oct_tmp_write_text(&tmp, "a/other/step-00000001.h5", "");
    for (size_t i = 0; i < OCT_COUNT(inside); i++) {
        const char *folder = run_folder_of(oct_tmp_path(&tmp, inside[i]));
        cr_assert_not_null(folder, "%s", inside[i]);
        cr_assert_str_eq(folder, oct_tmp_path(&tmp, "a"));
    }
    cr_assert_null(run_folder_of(oct_tmp_path(&tmp, "a/other/step-00000001.h5")));
    cr_assert_null(run_folder_of("x"));
    cr_assert_null(run_folder_of(""));
}
