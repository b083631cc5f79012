/* The recipe that a command line names: a file, a shipped one, one begun from data, or that of an ONNX network. */
#include "launch/cmd/recipe_args.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "dist/comm.h"
#include "dist/rank_table.h"
#include "io/dataset/dataset.h"
#include "io/file/file.h"
#include "io/onnx/fold.h"
#include "launch/cmd/begun_recipe.h"
#include "launch/report/page.h"
#include "launch/runfolder/run_folder.h"
#include "launch/session/build.h"
#include "launch/session/file_kind.h"
#include "launch/session/plugin_load.h"
#include "launch/train/run_check.h"
#include "launch/train/training.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char ending[] = ".yaml";

const char *oct_shared_folder(const char *name, char folder[OCT_SHARED_PATH])
{
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (length > 0) {
        program[length] = '\0';
        char *slash = strrchr(program, '/');
        if (slash) *slash = '\0';
        snprintf(folder, OCT_SHARED_PATH, "%s/../share/octet/%s", program, name);
        if (access(folder, R_OK) == 0) return folder;
    }
    snprintf(folder, OCT_SHARED_PATH, "%s/%s", OCT_LAUNCH_DIR, name);
    return folder;
}

/* The length of a file's name without its ending; 0: it is no recipe's. */
static size_t stem_length(const char *file)
{
    const size_t length = strlen(file), end = strlen(ending);
    const bool fits = length > end && length - end < OCT_SHIPPED_NAME;
    return fits && strcmp(file + length - end, ending) == 0 ? length - end : 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

oct_status oct_shipped_list(oct_shipped *list)
{
    list->count = 0;
    oct_shared_folder("recipes", list->folder);
    DIR *folder = opendir(list->folder);
    OCT_CHECK(folder, OCT_DATA, "%s: the shipped recipes are not there: %s", list->folder,
              strerror(errno));
    for (struct dirent *e = readdir(folder); e && list->count < OCT_SHIPPED_MAX;
         e = readdir(folder))
        if (stem_length(e->d_name) > 0)
            snprintf(list->name[list->count++], OCT_SHIPPED_NAME, "%.*s",
                     (int)stem_length(e->d_name), e->d_name);
    closedir(folder);
    qsort(list->name, list->count, OCT_SHIPPED_NAME, by_name);
    return OCT_OK;
}

const char *oct_shipped_nearest(const oct_shipped *list, const char *word)
{
    const char *names[OCT_SHIPPED_MAX];
    char stem[OCT_SHIPPED_NAME];
    for (size_t i = 0; i < list->count; i++)
        names[i] = list->name[i];
    snprintf(stem, sizeof stem, "%.*s", (int)stem_length(word), word);
    return oct_nearest(*stem ? stem : word, names, list->count);
}

oct_status oct_shipped_hint(const char *path)
{
    static oct_shipped list;
    const char *slash = strrchr(path, '/');
    if (access(path, F_OK) == 0 || errno != ENOENT) return OCT_OK;
    if (oct_shipped_list(&list) != OCT_OK) oct_fail_clear();
    const char *near = oct_shipped_nearest(&list, slash ? slash + 1 : path);
    OCT_CHECK(near, OCT_DATA,
              "%s: there is no such file; `octet recipes` lists recipes to begin with", path);
    return oct_fail(OCT_DATA,
                    "%s: there is no such file; did you mean the shipped recipe %s? `octet recipes "
                    "%s > my.yaml` writes it to my.yaml",
                    path, near, near);
}

/* Reads a recipe that is made for the data at a path; its choices are logged once, by the process that starts ranks. */
static oct_status read_begun_recipe(oct_recipe *recipe, const char *path,
                                    const char *const *overrides, size_t count)
{
    static const char variable[] = "OCTET_BEGUN_RECIPE"; /* the path, a new line, the recipe */
    static bool said;
    const char *begun = getenv(variable);
    const size_t length = strlen(path);
    OCT_OWNED(oct_text_free) oct_text text = {0};
    int rank, ranks;
    /* Opening data of many files takes its time, so the processes that this one starts get what it has found. */
    const bool found = begun && strncmp(begun, path, length) == 0 && begun[length] == '\n';
    if (!found) {
        OCT_TRY(oct_text_add(&text, "%s\n", path));
        OCT_TRY(oct_data_recipe(path, &text));
        if (!oct_launched(&rank, &ranks)) setenv(variable, text.data, 1);
    }
    const char *recipe_text = (found ? begun : text.data) + length + 1;
    OCT_TRY(oct_recipe_read(recipe, path, recipe_text, overrides, count));
    if (!said && !getenv(OCT_RANK_TABLE_VARIABLE))
        oct_log(OCT_LOG_INFO,
                "%s: data of the format %s; a recipe begins with model.name=%s data.goal=%s%s%s "
                "float.epochs=%lld output=%s; change any key as key=value",
                path, oct_registry_name(&oct_dataset_id_table, recipe->data_format),
                oct_recipe_model(recipe),
                oct_registry_name(&oct_goal_kind_table, recipe->data_goal),
                recipe->data_size[0] ? " data.size=" : "", recipe->data_size,
                (long long)recipe->float_epochs, recipe->output);
    said = true;
    return OCT_OK;
}

oct_status oct_recipe_of_words(oct_recipe *recipe, const char *path, const char *const *overrides,
                               size_t count)
{
    char run_recipe[4200];
    struct stat info;
    OCT_TRY(oct_shipped_hint(path));
    snprintf(run_recipe, sizeof run_recipe, "%s/recipe.yaml", path);
    if (oct_data_is(path)) return read_begun_recipe(recipe, path, overrides, count);
    OCT_CHECK(access(run_recipe, F_OK) != 0, OCT_DATA,
              "%s: is a run folder, not a recipe; its recipe is %s", path, run_recipe);
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
        /* Octet's own files are named; of anything else the reader says where it is no recipe. */
        oct_file_kind kind = OCT_FILE_RECIPE;
        if (oct_file_kind_of(path, &kind) != OCT_OK) oct_fail_clear();
        OCT_CHECK(kind == OCT_FILE_RECIPE, OCT_DATA,
                  "%s: is %s %s, not a recipe; the recipe of its run is recipe.yaml in the run "
                  "folder",
                  path, kind == OCT_FILE_MODEL ? "an" : "a", oct_file_kind_name(kind));
    }
    return oct_recipe_read(recipe, path, NULL, overrides, count);
}

oct_status oct_recipe_of_args(oct_recipe *recipe, const oct_args *args)
{
    return oct_recipe_of_words(recipe, args->word[0], args->word + 1, args->num_words - 1);
}

/* The recipe of a calibration may be that of an ONNX file and its data. */

/* The second word, where it is no key=value. */
static const char *data_word(const oct_args *args)
{
    if (args->num_words < 2 || strchr(args->word[1], '=')) return NULL;
    return args->word[1];
}

/* The words of a recipe's overrides; the data come first, so that keys go before them. */
typedef struct overrides {
    char path[4300], format[64], images[320], classes[64];
    bool unlabelled; /* the data have no labels */
    const char *word[OCT_ARGS_MAX + 8];
    size_t count;
} overrides;

static bool is_given(const oct_args *args, const char *key)
{
    return oct_words_give(args->word + 1, args->num_words - 1, key);
}

static void add_unless_given(overrides *o, const oct_args *args, const char *word)
{
    char key[64];
    snprintf(key, sizeof key, "%.*s=", (int)strcspn(word, "="), word);
    if (!is_given(args, key)) o->word[o->count++] = word;
}

/* Lists the overrides of a calibration: those of the command line, after those that follow from the data it names. */
static oct_status list_overrides(overrides *o, const oct_args *args, bool onnx)
{
    const char *data = data_word(args);
    oct_data_found found = {0};
    *o = (overrides){0};
    if (data) {
        OCT_CHECK_ARGS(!is_given(args, "data.path="),
                       "%s and data.path: both name the data; leave one out",
                       oct_show(data, strlen(data)).text);
        OCT_CHECK(access(data, R_OK) == 0, OCT_DATA,
                  "%s: there are no such data; name a folder or file of a data set, or write "
                  "key=value",
                  oct_show(data, strlen(data)).text);
        OCT_TRY(oct_data_look(data, is_given(args, "data.labels="), &found));
        o->unlabelled =
            found.unlabelled && (!is_given(args, "data.goal=") || is_given(args, "data.goal=none"));
        snprintf(o->path, sizeof o->path, "data.path=%s", found.path);
        snprintf(o->format, sizeof o->format, "data.format=%s", found.format);
        snprintf(o->images, sizeof o->images, "data.images=%s", found.images);
        o->word[o->count++] = o->path;
    }
    if (data && (onnx || o->unlabelled)) add_unless_given(o, args, o->format);
    if (o->unlabelled) {
        add_unless_given(o, args, "data.goal=none");
        if (found.images[0]) add_unless_given(o, args, o->images);
    }
    /* Calibration sees the images without augmentation, as the deployed network will. */
    if (onnx && !is_given(args, "data.train=")) o->word[o->count++] = "data.train=[]";
    for (size_t i = data ? 2 : 1; i < args->num_words; i++)
        o->word[o->count++] = args->word[i];
    return OCT_OK;
}

/* Reads the recipe that `octet import` would write for an ONNX network, with the overrides. */
static oct_status read_onnx_recipe(oct_recipe *recipe, const oct_args *args, overrides *o)
{
    const char *path = args->word[0];
    OCT_OWNED(oct_free) void *bytes = NULL;
    OCT_OWNED(oct_onnx_free) oct_onnx_graph graph = {0};
    OCT_OWNED(oct_text_free) oct_text text = {0};
    size_t size;
    OCT_CHECK_ARGS(data_word(args) || is_given(args, "data.path="),
                   "%s alone has no data to watch; name them after it: octet calibrate %s pictures",
                   path, path);
    OCT_TRY(oct_onnx_load(path, &bytes, &size));
    const oct_onnx_source source = {.path = path, .bytes = bytes, .size = size};
    OCT_TRY(oct_onnx_read_bytes(&graph, &source));
    OCT_TRY(oct_onnx_fold(&graph, 0, 0, 0));
    OCT_TRY(oct_import_recipe(&graph, path, path, false, &text));
    /* The network itself says how many outputs it has, which labels would say otherwise. */
    const oct_onnx_value *y = &graph.values[graph.outputs[0]];
    int64_t outputs = 1;
    for (int i = 1; i < y->ndim; i++)
        outputs = y->dim[i] > 0 && outputs <= OCT_CLASSES_MAX ? outputs * y->dim[i] : 0;
    const bool known = graph.num_outputs == 1 && y->known && y->ndim >= 2 && outputs >= 1;
    bool no_goal = false; /* given, or found */
    for (size_t i = 0; i < o->count; i++)
        no_goal = no_goal || strcmp(o->word[i], "data.goal=none") == 0;
    snprintf(o->classes, sizeof o->classes, "data.classes=%lld", (long long)outputs);
    if (no_goal && known) add_unless_given(o, args, o->classes);
    return oct_recipe_read(recipe, path, text.data, o->word, o->count);
}

oct_status oct_calibrate_recipe(oct_recipe *recipe, const oct_args *args)
{
    overrides o;
    const bool onnx = oct_ends_with(args->word[0], ".onnx");
    OCT_TRY(list_overrides(&o, args, onnx));
    if (onnx) return read_onnx_recipe(recipe, args, &o);
    return oct_recipe_of_words(recipe, args->word[0], o.word, o.count);
}

bool oct_calibrate_guesses(const oct_args *args)
{
    return oct_ends_with(args->word[0], ".onnx") && !is_given(args, "data.mean=");
}

/* The run. */

/* Compares the recipes: ranks that were started with other words would go their own ways, or silently
 * take rank 0's. */
static oct_status compare_recipes(oct_session *session, const oct_recipe *recipe)
{
    OCT_OWNED(oct_text_free) oct_text all = {0}, text = {0};
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
    return status;
}

/* Writes the report of a run into its own folder, unless the same bytes are there already. */
static oct_status write_report(const char *folder, bool large)
{
    OCT_OWNED(oct_free) char *path = NULL;
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size = 0;
    OCT_OWNED(oct_text_free) oct_text text = {0};
    OCT_TRY(oct_run_path(folder, "report.html", &path));
    OCT_TRY(oct_page_text(&text, folder, NULL, large));
    const bool there =
        oct_file_exists(path) && oct_file_read(path, OCT_PAGE_BYTES, &bytes, &size) == OCT_OK;
    if (!there) oct_fail_clear(); /* what cannot be read is written again */
    if (!there || size != text.length || memcmp(bytes, text.data, size) != 0)
        return oct_file_write(path, text.data, text.length);
    return OCT_OK;
}

oct_status oct_run_recipe(oct_session *session, const oct_args *args, oct_recipe *recipe,
                          json_t **result)
{
    *result = NULL;
    OCT_TRY(compare_recipes(session, recipe));
    OCT_TRY(oct_session_agree(session, oct_plugins_load(&recipe->plugins, false, NULL)));
    OCT_TRY(oct_session_agree(session, oct_check_names(recipe)));
    OCT_TRY(oct_onnx_model_share(session, recipe));
    OCT_TRY(oct_train(session, args, recipe, result));
    /* The run is done and its model is safe: a report that cannot be written costs a warning. */
    if (*result && write_report(recipe->output, args->allow_large) != OCT_OK) {
        oct_log(OCT_LOG_WARN, "no report of the run was written: %s", oct_error_message(0));
        oct_fail_clear();
    }
    return OCT_OK;
}
