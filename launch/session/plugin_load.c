/* This is the only dlopen. A library is read once: those bytes are hashed, judged and loaded, from a
 * memory file that nobody else can write. */
#include "launch/session/plugin_load.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/op/loss.h"
#include "io/file/file.h"
#include "launch/model/model.h"
#include "quant/module/qconfig.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The parts of a plug-in: each is looked at before anything of it is registered, so that a fault is a sentence and no crash
 * later. */

/* Names may be part of recipes, paths of modules and messages, so they have few letters. */
static bool is_name(const char *name)
{
    const size_t length = name ? strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") : 0;
    return length > 0 && length <= 40 && !name[length];
}

/* Whether a text that is shown to users is there, and a line of ASCII. */
static bool is_line(const char *text)
{
    size_t length = 0;
    while (text && text[length] >= ' ' && text[length] <= '~')
        length++;
    return text && !text[length] && length <= 200;
}

/* Each of these says what a part needs where it lacks some of it; otherwise NULL. */

static const char *lack_of_observer(const void *part)
{
    const oct_observer *p = part;
    return !p->update == !p->count ? "update or count, and not both" : NULL;
}

static const char *lack_of_fake_quant(const void *part)
{
    const oct_fake_quant_kind *p = part;
    return (p->scale || (p->weight_scale && !p->zero_point && !p->backward)) &&
                   (p->weight_scale || !p->per_tensor) && (p->slope || !p->factor)
               ? NULL
               : "scale or weight_scale, and has zero_point and backward only with scale, "
                 "per_tensor with weight_scale, factor with slope";
}

static const char *lack_of_model(const void *part)
{
    const oct_model_spec *p = part;
    return p->build && is_line(p->help) && p->min_size >= 0 && p->num_inputs >= 0 &&
                   p->num_inputs <= OCT_MODEL_INPUTS
               ? NULL
               : "build, a line of ASCII as help, min_size from 0 on and num_inputs from 0 to 8";
}

static const char *lack_of_loss(const void *part)
{
    const oct_loss_kind *p = part;
    const bool has_keys = !p->keys || (p->keys[0] == ' ' && p->keys[strlen(p->keys) - 1] == ' ');
    return p->value && p->grad && p->takes >= 1 && p->takes <= 7 && p->uses <= 31 &&
                   (unsigned)p->outputs <= OCT_OUTPUTS_SIGMOID && has_keys
               ? NULL
               : "value, grad, takes, uses and outputs of octet/task.h, and keys between blanks";
}

static const char *lack_of_metric(const void *part)
{
    const oct_metric *p = part;
    const oct_metric_order *order = p->order;
    const oct_metric_details *details = p->details;
    if (!is_line(p->title) || !*p->title || !is_line(p->brief) || !is_line(p->unit))
        return "title, brief and unit in ASCII";
    return p->numbers && p->value && !p->add != !order && (unsigned)p->of <= OCT_METRIC_OF_VALUES &&
                   p->most >= 0 && (!order || (order->columns && order->score && order->sum)) &&
                   (!details || (details->fill && (!details->columns || details->num_columns > 0)))
               ? NULL
               : "numbers, value, either add or an order with columns, score and sum, an `of` of "
                 "octet/task.h, most from 0 on, and in details fill";
}

/* What a plug-in may bring beside modules: where its struct has the list, where one is registered, and what one may
 * lack. */
static const struct part_kind {
    size_t list;
    oct_registry *table;
    const char *(*lack)(const void *part);
} kinds[] = {
#define LIST(member) offsetof(oct_plugin, member)
    {LIST(observers), &oct_observer_table, lack_of_observer},
    {LIST(fake_quants), &oct_fake_quant_kind_table, lack_of_fake_quant},
    {LIST(models), &oct_model_table, lack_of_model},
    {LIST(losses), &oct_loss_table, lack_of_loss},
    {LIST(metrics), &oct_metric_table, lack_of_metric},
};

/* The parts of a kind, ended by NULL; each begins with its name, as all things in registries do. */
static const char *const *const *parts_of(const oct_plugin *plugin, const struct part_kind *kind)
{
    static const char *const *const none[] = {NULL};
    const char *const *const *parts;
    memcpy(&parts, (const char *)plugin + kind->list, sizeof parts);
    return parts ? parts : none;
}

static oct_status check_part(const struct part_kind *kind, const char *const *part)
{
    const char *name = *part, *quote = name ? "'" : "";
    OCT_CHECK(is_name(name), OCT_USAGE,
              "the name of %s is %s%s%s; use up to 40 of a-z, 0-9, _ and -", kind->table->what,
              quote, name ? name : "missing", quote);
    const char *lack = kind->lack(part), *word = strchr(kind->table->what, ' ') + 1;
    OCT_CHECK(!lack, OCT_USAGE, "%s %s needs %s; see octet/plugin.h", word, name, lack);
    return OCT_OK;
}

static oct_status register_parts(const oct_plugin *plugin)
{
    for (size_t k = 0; k < OCT_COUNT(kinds); k++)
        for (const char *const *const *part = parts_of(plugin, &kinds[k]); *part; part++)
            OCT_TRY(oct_registry_add(kinds[k].table, *part));
    for (const oct_module_spec *const *m = plugin->modules; m && *m; m++)
        OCT_TRY(oct_module_spec_register(*m));
    return OCT_OK;
}

/* Checks the ABI and all parts but the modules: OCT_USAGE. */
static oct_status check_plugin(const oct_plugin *plugin)
{
    const uint64_t version = plugin->abi >> 48;
    OCT_CHECK(plugin->abi == OCT_PLUGIN_ABI, OCT_USAGE,
              "was built for version %" PRIu64 " of the plug-in interface%s, this program has %d; "
              "build it again with this program's headers (pkg-config --cflags octet)",
              version, version == OCT_PLUGIN_VERSION ? " with structs of other sizes" : "",
              OCT_PLUGIN_VERSION);
    OCT_CHECK(is_name(plugin->name), OCT_USAGE,
              "the plug-in's own name is missing or no name; use up to 40 of a-z, 0-9, _ and -");
    for (size_t k = 0; k < OCT_COUNT(kinds); k++)
        for (const char *const *const *part = parts_of(plugin, &kinds[k]); *part; part++)
            OCT_TRY(check_part(&kinds[k], *part));
    for (const oct_module_spec *const *m = plugin->modules; m && *m; m++)
        OCT_CHECK((*m)->atomic && ((*m)->num_args > 0 || ((*m)->lists_args && !(*m)->args_bytes)),
                  OCT_USAGE,
                  "module type '%s' needs atomic, and args or lists_args, to be in a model file",
                  (*m)->name ? (*m)->name : "");
    return OCT_OK;
}

oct_status oct_plugin_register(const oct_plugin *plugin)
{
    size_t before[OCT_COUNT(kinds)];
    OCT_CHECK(plugin, OCT_USAGE, "oct_plugin_register: plugin is NULL");
    OCT_TRY(check_plugin(plugin));
    for (size_t k = 0; k < OCT_COUNT(kinds); k++)
        before[k] = kinds[k].table->num_added;
    const oct_status status = register_parts(plugin);
    for (size_t k = 0; status != OCT_OK && k < OCT_COUNT(kinds); k++)
        kinds[k].table->num_added = before[k];
    return status;
}

/* Loading. */

enum { PLUGINS_MAX = 16, PLUGIN_BYTES_MAX = 1 << 30, TRUST_BYTES_MAX = 1 << 20, HEX = 64 };

static struct loaded {
    const oct_plugin *plugin;
    char given[PATH_MAX]; /* as a recipe names it */
    char path[PATH_MAX];  /* the real one */
    uint8_t digest[32];
} loaded[PLUGINS_MAX];
static size_t num_loaded;
static bool all_allowed;

void oct_plugins_allow(void)
{
    all_allowed = true;
}

/* Finds the file itself, or one of its name in the folders to search. What a checkpoint or a model
 * names by a relative path is not looked for in the current folder, which is untrusted. */
static oct_status find_library(const char *path, bool named_by_file, char real[PATH_MAX])
{
    bool direct = !named_by_file || path[0] == '/';
    if (direct && realpath(path, real)) return OCT_OK;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (const char *folders = getenv("OCT_PLUGIN_PATH"); folders && *folders;) {
        const int length = (int)strcspn(folders, ":");
        char candidate[PATH_MAX];
        const int size = snprintf(candidate, sizeof(candidate), "%.*s/%s", length, folders, name);
        if (size < (int)sizeof(candidate) && realpath(candidate, real)) return OCT_OK;
        folders += length + (folders[length] == ':');
    }
    OCT_CHECK(direct, OCT_DATA,
              "there is no such file in the folders of OCT_PLUGIN_PATH, which alone are searched "
              "for the plug-ins that a checkpoint or model names; set OCT_PLUGIN_PATH=FOLDER");
    return oct_fail(OCT_USAGE,
                    "there is no such file; a relative path begins at the current folder, and "
                    "OCT_PLUGIN_PATH names folders to search");
}

/* dlerror begins with the path, which the caller says anyway. */
static const char *load_error(const char *path)
{
    const char *text = dlerror();
    size_t length = strlen(path);
    if (!text) return "no reason given";
    if (strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0)
        return text + length + 2;
    return text;
}

/* Makes a file in memory with these bytes, which nothing can change any more. */
static oct_status copy_to_memory_file(const uint8_t *bytes, size_t size, int *fd)
{
    *fd = memfd_create("octet-plugin", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool whole = *fd >= 0;
    for (size_t at = 0; whole && at < size;) {
        const ssize_t written = write(*fd, bytes + at, size - at);
        whole = written > 0;
        at += whole ? (size_t)written : 0;
    }
    if (whole && fcntl(*fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) == 0)
        return OCT_OK;
    const oct_status status =
        oct_fail(OCT_RESOURCE, "cannot be copied into memory: %s", strerror(errno));
    if (*fd >= 0) close(*fd);
    return status;
}

/* Asks a library what it brings, and checks that. */
static oct_status ask_plugin(void *library, const oct_plugin **plugin)
{
    const oct_plugin *(*entry)(void) = NULL;
    void *symbol = dlsym(library, "oct_plugin_entry");
    OCT_CHECK(symbol, OCT_USAGE,
              "is a library, but no plug-in: it exports no oct_plugin_entry; see octet/plugin.h");
    memcpy(&entry, &symbol, sizeof(entry));
    *plugin = entry();
    OCT_CHECK(*plugin, OCT_USAGE, "its oct_plugin_entry returned nothing");
    OCT_TRY(check_plugin(*plugin));
    for (size_t i = 0; i < num_loaded; i++)
        OCT_CHECK(strcmp(loaded[i].plugin->name, (*plugin)->name) != 0, OCT_USAGE,
                  "there is a plug-in %s already, from %s; each needs a name of its own",
                  (*plugin)->name, loaded[i].path);
    return OCT_OK;
}

/* Opens the library in the file in memory, which closes with it. */
static oct_status open_plugin(int memory, const oct_plugin **plugin)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    oct_status status = library ? ask_plugin(library, plugin)
                                : oct_fail(OCT_USAGE, "cannot be loaded: %s", load_error(path));
    if (status == OCT_OK) return oct_plugin_register(*plugin);
    if (library) dlclose(library);
    close(memory);
    return status;
}

/* dlopen maps what the header states and crashes on a file that was cut short. */
static bool is_whole(const uint8_t *bytes, size_t size)
{
    Elf64_Ehdr head;
    if (size < sizeof(head)) return true; /* dlopen reports what is wrong */
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

static bool lists_digest(const char *text, const char hex[HEX + 1])
{
    for (const char *line = text; line && *line;) {
        if (strncmp(line, hex, HEX) == 0 && strchr(" \t\r\n", line[HEX])) return true;
        line = strchr(line, '\n');
        if (line) line++;
    }
    return false;
}

/* Refuses a plug-in that a checkpoint or a model names unless the user allows its code to run. */
static oct_status check_trusted(const struct loaded *new)
{
    char hex[HEX + 1];
    OCT_OWNED(oct_free) char *path = NULL;
    OCT_OWNED(oct_free) void *text = NULL;
    size_t size;
    if (all_allowed) return OCT_OK;
    oct_hex(new->digest, hex);
    /* The list of digests that the user trusts: one a line, as sha256sum prints them. */
    const char *list = getenv("OCT_TRUSTED_PLUGINS"), *config = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    if (list)
        OCT_TRY(oct_strdup(&path, list));
    else if (config && *config)
        OCT_TRY(oct_format(&path, "%s/octet/trusted-plugins", config));
    else
        OCT_TRY(oct_format(&path, "%s/.config/octet/trusted-plugins", home ? home : ""));
    oct_status status = oct_file_read(path, TRUST_BYTES_MAX, &text, &size);
    const bool trusted = status == OCT_OK && lists_digest(text, hex);
    if (!trusted && status != OCT_RESOURCE)
        status = oct_fail(OCT_DATA,
                          "%s is code that this file asks to run, and you have not allowed it; if "
                          "you trust it, add --allow-plugins, or its SHA-256 to %s: %s",
                          new->path, path, hex);
    return status;
}

/* Compares the library with the one that the file was made with: a certificate speaks for that one
 * only. */
static oct_status check_recorded(const struct loaded *new, const char *recorded)
{
    char hex[HEX + 1];
    if (!recorded || lists_digest(recorded, oct_hex(new->digest, hex))) return OCT_OK;
    OCT_CHECK(all_allowed, OCT_DATA,
              "%s is not the library that this file was made with: its SHA-256 is another one; "
              "--allow-plugins loads it anyway",
              new->path);
    oct_log(OCT_LOG_WARN, "plugins: %s is not the library that the file was made with", new->path);
    return OCT_OK;
}

/* Judges a library by its bytes, opens it, and registers what it brings. */
static oct_status add_plugin(struct loaded *new, const void *bytes, size_t size, bool of_file,
                             const char *recorded)
{
    int memory; /* stays open: its name must stay its own */
    OCT_CHECK(is_whole(bytes, size), OCT_USAGE, "is cut short; build or copy it again");
    if (of_file) OCT_TRY(check_trusted(new));
    if (of_file) OCT_TRY(check_recorded(new, recorded));
    OCT_TRY(copy_to_memory_file(bytes, size, &memory));
    return open_plugin(memory, &new->plugin);
}

/* Loads a library unless it is there already. */
static oct_status load_plugin(const char *path, bool of_file, const char *recorded)
{
    char real[PATH_MAX];
    for (size_t i = 0; i < num_loaded; i++)
        if (strcmp(loaded[i].given, path) == 0) return OCT_OK;
    OCT_TRY(find_library(path, of_file, real));
    for (size_t i = 0; i < num_loaded; i++)
        if (strcmp(loaded[i].path, real) == 0) return OCT_OK;
    OCT_CHECK(num_loaded < PLUGINS_MAX, OCT_USAGE, "at most %d plug-ins can be loaded",
              PLUGINS_MAX);
    struct loaded *new = &loaded[num_loaded];
    OCT_OWNED(oct_free) void *bytes = NULL;
    size_t size = 0;
    *new = (struct loaded){0};
    snprintf(new->given, sizeof(new->given), "%s", path);
    snprintf(new->path, sizeof(new->path), "%s", real);
    OCT_TRY(oct_file_read(real, PLUGIN_BYTES_MAX, &bytes, &size));
    oct_sha256(bytes, size, new->digest);
    OCT_TRY(add_plugin(new, bytes, size, of_file, recorded));
    num_loaded++;
    return OCT_OK;
}

oct_status oct_plugins_load(const oct_texts *paths, bool of_file, const char *recorded)
{
    for (int i = 0; i < paths->count; i++) {
        oct_status status = load_plugin(paths->value[i], of_file, recorded);
        /* The user's own recipe is wrong, or the file that names a plug-in which is none. */
        if (status == OCT_USAGE && of_file) status = oct_fail(OCT_DATA, "%s", oct_error_message(0));
        if (status != OCT_OK) return oct_fail_prefix("plugins: %s", paths->value[i]);
    }
    return OCT_OK;
}

oct_status oct_plugin_load(const char *path)
{
    OCT_CHECK(path && *path, OCT_USAGE, "oct_plugin_load: path is missing");
    const oct_status status = load_plugin(path, false, NULL);
    return status == OCT_OK ? status : oct_fail_prefix("%s", path);
}

oct_status oct_plugins_record(oct_text *out, bool with_paths)
{
    char hex[HEX + 1];
    for (size_t i = 0; i < num_loaded; i++)
        OCT_TRY(oct_text_add(out, "%s%s%s\n", oct_hex(loaded[i].digest, hex),
                             with_paths ? "  " : "", with_paths ? loaded[i].given : ""));
    return OCT_OK;
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
