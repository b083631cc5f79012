/* The only dlopen. What a plug-in brings is looked at before anything of it is registered, so that a
 * fault is a sentence and no crash later. */
#include "launch/plugin_load.h"

#include "core/base/mem.h"
#include "io/file.h"
#include "launch/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLUGINS_MAX = 16, PLUGIN_BYTES_MAX = 1 << 30 };

static struct loaded {
    const oct_plugin *plugin;
    char path[PATH_MAX]; /* the real one */
    uint8_t digest[32];
} loaded[PLUGINS_MAX];
static size_t num_loaded;

/* The file itself, or one of its name in a folder of OCT_PLUGIN_PATH. */
static oct_status find_file(const char *path, char real[PATH_MAX])
{
    if (realpath(path, real)) return OCT_OK;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *folders = getenv("OCT_PLUGIN_PATH");
    while (folders && *folders) {
        int length = (int)strcspn(folders, ":");
        char candidate[PATH_MAX];
        int size = snprintf(candidate, sizeof(candidate), "%.*s/%s", length, folders, name);
        if (size < (int)sizeof(candidate) && realpath(candidate, real)) return OCT_OK;
        folders += length + (folders[length] == ':');
    }
    return oct_fail(OCT_USAGE,
                    "plugins: %s: there is no such file; a relative path begins at the current "
                    "folder, and OCT_PLUGIN_PATH names folders to search",
                    path);
}

/* A word of letters that may stand in recipes, paths of modules and messages. */
static bool is_name(const char *name, const char *others)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    if (!name || !*name || strlen(name) > 40) return false;
    for (; *name; name++)
        if (!strchr(letters, *name) && !strchr(others, *name)) return false;
    return true;
}

static oct_status check_part(const char *what, const char *name, const char *others, bool complete)
{
    OCT_CHECK(is_name(name, others), OCT_USAGE,
              "the name of a %s is %s%s%s; use up to 40 of a-z, 0-9 and %s", what, name ? "'" : "",
              name ? name : "missing", name ? "'" : "", others);
    OCT_CHECK(complete, OCT_USAGE, "%s %s lacks a function that it needs; see launch/plugin.h",
              what, name);
    return OCT_OK;
}

static oct_status check_parts(const oct_plugin *p)
{
    OCT_CHECK(is_name(p->name, "_-"), OCT_USAGE,
              "the plug-in's own name is missing or no name; use up to 40 of a-z, 0-9, _ and -");
    for (size_t i = 0; p->module_types && p->module_types[i]; i++) {
        const oct_module_type *t = p->module_types[i];
        OCT_TRY(check_part("module type", t->name, "_", t->forward && t->create && t->args));
    }
    for (size_t i = 0; p->observers && p->observers[i]; i++)
        OCT_TRY(check_part("observer", p->observers[i]->name, "_-",
                           p->observers[i]->update || p->observers[i]->count));
    for (size_t i = 0; p->fake_quants && p->fake_quants[i]; i++)
        OCT_TRY(check_part("fake-quant", p->fake_quants[i]->name, "_-", p->fake_quants[i]->scale));
    for (size_t i = 0; p->models && p->models[i]; i++)
        OCT_TRY(check_part("model", p->models[i]->name, "_-",
                           p->models[i]->build && p->models[i]->help));
    return OCT_OK;
}

static oct_status register_parts(const oct_plugin *p)
{
    for (size_t i = 0; p->module_types && p->module_types[i]; i++)
        OCT_TRY(oct_module_type_register(p->module_types[i]));
    for (size_t i = 0; p->observers && p->observers[i]; i++)
        OCT_TRY(oct_observer_register(p->observers[i]));
    for (size_t i = 0; p->fake_quants && p->fake_quants[i]; i++)
        OCT_TRY(oct_fake_quant_kind_register(p->fake_quants[i]));
    for (size_t i = 0; p->models && p->models[i]; i++)
        OCT_TRY(oct_model_register(p->models[i]));
    return OCT_OK;
}

/* dlerror begins with the path, which the caller says anyway. */
static const char *reason(const char *path)
{
    const char *text = dlerror();
    size_t length = strlen(path);
    if (!text) return "no reason given";
    if (strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0)
        return text + length + 2;
    return text;
}

static oct_status open_plugin(const char *path, const oct_plugin **plugin)
{
    const oct_plugin *(*entry)(void) = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    OCT_CHECK(library, OCT_USAGE, "cannot be loaded: %s", reason(path));
    void *symbol = dlsym(library, "oct_plugin_entry");
    OCT_CHECK(symbol, OCT_USAGE,
              "is a library, but no plug-in: it exports no oct_plugin_entry; see launch/plugin.h");
    memcpy(&entry, &symbol, sizeof(entry));
    *plugin = entry();
    OCT_CHECK(*plugin, OCT_USAGE, "its oct_plugin_entry returned nothing");
    OCT_CHECK((*plugin)->abi == OCT_PLUGIN_ABI, OCT_USAGE,
              "was built for version %" PRIx64
              " of the plug-in interface, this program has %" PRIx64
              "; build it again with this program's headers (pkg-config --cflags octet)",
              (*plugin)->abi, OCT_PLUGIN_ABI);
    return OCT_OK;
}

static const struct loaded *find_loaded(const char *real)
{
    for (size_t i = 0; i < num_loaded; i++)
        if (strcmp(loaded[i].path, real) == 0) return &loaded[i];
    return NULL;
}

static oct_status check_own_name(const oct_plugin *plugin)
{
    for (size_t i = 0; i < num_loaded; i++)
        OCT_CHECK(strcmp(loaded[i].plugin->name, plugin->name) != 0, OCT_USAGE,
                  "there is a plug-in %s already, from %s; each needs a name of its own",
                  plugin->name, loaded[i].path);
    return OCT_OK;
}

static oct_status add(struct loaded *new)
{
    OCT_TRY(open_plugin(new->path, &new->plugin));
    OCT_TRY(check_parts(new->plugin));
    OCT_TRY(check_own_name(new->plugin));
    return register_parts(new->plugin);
}

/* dlopen maps what the header tells and dies of a file that was cut short. */
static bool is_whole(const uint8_t *bytes, size_t size)
{
    Elf64_Ehdr head;
    if (size < sizeof(head)) return true; /* dlopen says what it is */
    memcpy(&head, bytes, sizeof(head));
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64)
        return true;
    for (size_t i = 0; i < head.e_phnum; i++) {
        Elf64_Phdr part;
        if (head.e_phoff > size || (size - head.e_phoff) / sizeof(part) <= i) return false;
        memcpy(&part, bytes + head.e_phoff + i * sizeof(part), sizeof(part));
        if (part.p_offset > size || part.p_filesz > size - part.p_offset) return false;
    }
    return true;
}

static oct_status read_file(const char *path, uint8_t digest[32])
{
    void *bytes = NULL;
    size_t size = 0;
    OCT_TRY(oct_file_read(path, PLUGIN_BYTES_MAX, &bytes, &size));
    bool whole = is_whole(bytes, size);
    oct_sha256(bytes, size, digest);
    oct_free(&bytes);
    OCT_CHECK(whole, OCT_USAGE, "is cut short; build or copy it again");
    return OCT_OK;
}

static oct_status load(const char *path)
{
    char real[PATH_MAX];
    OCT_TRY(find_file(path, real));
    if (find_loaded(real)) return OCT_OK;
    OCT_CHECK(num_loaded < PLUGINS_MAX, OCT_USAGE, "plugins: at most %d", PLUGINS_MAX);
    struct loaded *new = &loaded[num_loaded];
    memcpy(new->path, real, sizeof(real));
    oct_status status = read_file(real, new->digest);
    if (status == OCT_OK) status = add(new);
    if (status != OCT_OK) return oct_fail_prefix("plugins: %s", path);
    num_loaded++;
    return OCT_OK;
}

oct_status oct_plugins_load(const oct_texts *paths)
{
    for (int i = 0; i < paths->count; i++)
        OCT_TRY(load(paths->value[i]));
    return OCT_OK;
}

oct_status oct_plugins_same(oct_session *session)
{
    uint8_t digests[PLUGINS_MAX][32] = {{0}};
    for (size_t i = 0; i < num_loaded; i++)
        memcpy(digests[i], loaded[i].digest, sizeof(digests[i]));
    return oct_session_agree(session,
                             oct_comm_same(session->comm, digests, sizeof(digests), "plug-ins"));
}

json_t *oct_plugins_json(void)
{
    char hex[65];
    json_t *array = json_array();
    for (size_t i = 0; i < num_loaded; i++)
        json_array_append_new(array,
                              json_pack("{s:s, s:s, s:s}", "name", loaded[i].plugin->name, "path",
                                        loaded[i].path, "sha256", oct_hex(loaded[i].digest, hex)));
    return array;
}
