#include "launch/cmd/run_recipe.h"

#include "core/base/log.h"
#include "launch/report/page.h"
#include "launch/session/build.h"
#include "launch/session/plugin_load.h"
#include "launch/train/run_check.h"

#include <string.h>

/* Compares the recipes: ranks that were started with other words would go their own ways, or silently
 * take rank 0's. */
static oct_status compare_recipes(oct_session *session, const oct_recipe *recipe)
{
    oct_text all = {0}, text = {0};
    oct_status status = oct_recipe_list(recipe, &all);
    for (const char *line = all.data; status == OCT_OK && *line;) {
        size_t length = strcspn(line, "\n") + 1;
        /* Each rank takes these keys for itself, as its host needs. */
        const bool is_local =
            strncmp(line, "data.path: ", 11) == 0 || strncmp(line, "threads: ", 9) == 0;
        if (!is_local) status = oct_text_add(&text, "%.*s", (int)length, line);
        line += length;
    }
    status = oct_session_agree(session, status);
    if (status == OCT_OK) status = oct_session_same(session, &text);
    oct_text_free(&all);
    oct_text_free(&text);
    return status;
}

oct_status oct_run_recipe(oct_session *session, const oct_args *args, oct_recipe *recipe,
                          json_t **result)
{
    oct_train_files files = {0};
    *result = NULL;
    OCT_TRY(compare_recipes(session, recipe));
    OCT_TRY(oct_session_agree(session, oct_plugins_load(&recipe->plugins, false, NULL)));
    OCT_TRY(oct_session_agree(session, oct_check_names(recipe)));
    OCT_TRY(oct_onnx_model_share(session, recipe));
    oct_status status = oct_train_files_share(session, recipe, &files);
    if (status == OCT_OK) status = oct_train(session, args, recipe, &files, result);
    oct_init_close(&files.init);
    oct_checkpoint_close(&files.teacher);
    /* The run is done and its model is safe: a report that cannot be written costs a warning. */
    if (status == OCT_OK && *result && oct_page_own(recipe->output) != OCT_OK) {
        oct_log(OCT_LOG_WARN, "no report of the run was written: %s", oct_fail_text(0));
        oct_fail_clear();
    }
    return status;
}
