#include "launch/cmd/calibrate_source.h"

#include "core/base/mem.h"
#include "io/dataset/dataset.h"
#include "io/onnx/build.h"
#include "io/onnx/fold.h"
#include "launch/cmd/data_recipe.h"
#include "launch/cmd/import_recipe.h"
#include "launch/cmd/shipped.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The second word, where it is no key=value. */
static const char *data_of(const oct_args *args)
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
    for (size_t i = 1; i < args->num_words; i++)
        if (strncmp(args->word[i], key, strlen(key)) == 0) return true;
    return false;
}

static void add_unless_given(overrides *o, const oct_args *args, const char *word)
{
    char key[64];
    snprintf(key, sizeof key, "%.*s=", (int)strcspn(word, "="), word);
    if (!is_given(args, key)) o->word[o->count++] = word;
}

static oct_status take_overrides(overrides *o, const oct_args *args, bool onnx)
{
    const char *data = data_of(args);
    oct_data_found found = {0};
    *o = (overrides){0};
    if (data) {
        OCT_CHECK(!is_given(args, "data.path="), OCT_USAGE,
                  "command line: %s and data.path: both name the data; leave one out",
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
    /* What is watched are the images that the network will see. */
    if (onnx && !is_given(args, "data.train=")) o->word[o->count++] = "data.train=[]";
    for (size_t i = data ? 2 : 1; i < args->num_words; i++)
        o->word[o->count++] = args->word[i];
    return OCT_OK;
}

/* The network itself says how many outputs it has, which labels would say otherwise. */
static void take_outputs(overrides *o, const oct_onnx_graph *graph)
{
    const oct_onnx_value *y = &graph->values[graph->outputs[0]];
    int64_t outputs = 1;
    for (int i = 1; i < y->ndim; i++)
        outputs = y->dim[i] > 0 && outputs <= OCT_CLASSES_MAX ? outputs * y->dim[i] : 0;
    if (graph->num_outputs != 1 || !y->known || y->ndim < 2 || outputs < 1) return;
    snprintf(o->classes, sizeof o->classes, "data.classes=%lld", (long long)outputs);
}

static bool wants_outputs(const overrides *o)
{
    for (size_t i = 0; i < o->count; i++) /* given, or found */
        if (strcmp(o->word[i], "data.goal=none") == 0) return true;
    return false;
}

static oct_status write_recipe(const char *path, overrides *o, oct_text *text)
{
    oct_onnx_graph graph = {0};
    void *bytes = NULL;
    size_t size;
    oct_status status = OCT_OK;
    OCT_TRY(oct_onnx_load(path, &bytes, &size));
    const oct_onnx_source source = {.path = path, .bytes = bytes, .size = size};
    OCT_TRY_OUT(oct_onnx_read_bytes(&graph, &source));
    OCT_TRY_OUT(oct_onnx_fold(&graph, 0, 0, 0));
    take_outputs(o, &graph);
    status = oct_import_recipe(&graph, path, path, false, text);
out:
    oct_onnx_free(&graph);
    oct_free(&bytes);
    return status;
}

static oct_status make_onnx_recipe(oct_recipe *recipe, const oct_args *args, overrides *o)
{
    oct_text text = {0};
    const char *path = args->word[0];
    OCT_CHECK(data_of(args) || is_given(args, "data.path="), OCT_USAGE,
              "command line: %s alone has no data to watch; name them after it: octet calibrate "
              "%s pictures",
              path, path);
    oct_status status = write_recipe(path, o, &text);
    if (wants_outputs(o) && o->classes[0]) add_unless_given(o, args, o->classes);
    if (status == OCT_OK) status = oct_recipe_read(recipe, path, text.data, o->word, o->count);
    oct_text_free(&text);
    return status;
}

oct_status oct_calibrate_recipe(oct_recipe *recipe, const oct_args *args)
{
    overrides o;
    const bool onnx = oct_ends_with(args->word[0], ".onnx");
    OCT_TRY(take_overrides(&o, args, onnx));
    if (onnx) return make_onnx_recipe(recipe, args, &o);
    return oct_recipe_of_words(recipe, args->word[0], o.word, o.count);
}

bool oct_calibrate_guesses(const oct_args *args)
{
    return oct_ends_with(args->word[0], ".onnx") && !is_given(args, "data.mean=");
}
