/* What a plug-in brings is looked at here before anything of it is registered, so that a fault is a sentence and no crash
 * later. */
#include "core/op/loss.h"
#include "launch/model/model.h"
#include "launch/session/plugin_load.h"
#include "quant/module/qconfig.h"

#include <inttypes.h>
#include <string.h>

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

oct_status oct_plugin_check(const oct_plugin *plugin)
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
    OCT_TRY(oct_plugin_check(plugin));
    for (size_t k = 0; k < OCT_COUNT(kinds); k++)
        before[k] = kinds[k].table->num_added;
    const oct_status status = register_parts(plugin);
    for (size_t k = 0; status != OCT_OK && k < OCT_COUNT(kinds); k++)
        kinds[k].table->num_added = before[k];
    return status;
}
