/* This file holds the table of keys, made from the list file, finds keys and sections by name, and makes of several keys
 * what the floors below understand. */
#include "io/recipe/recipe.h"

#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/recipe/recipe_impl.h"

#include <stdio.h>
#include <string.h>

static const oct_registry oct_none_table; /* of kinds without words */

const oct_key oct_keys[OCT_KEYS] = {
#define OCT_KEY(key, field, kind, def, min, max, table, same, help)                                \
    {key, OCT_KEY_##kind, offsetof(oct_recipe, field), def, min, max, &oct_##table##_table, same,  \
     help},
#include "io/recipe/recipe_list.def"
#undef OCT_KEY
};

size_t oct_key_section(const oct_key *key)
{
    const char *dot = strchr(key->name, '.');
    return dot ? (size_t)(dot - key->name) : 0;
}

const char *oct_key_short_name(const oct_key *key)
{
    const char *dot = strchr(key->name, '.');
    return dot ? dot + 1 : key->name;
}

const oct_key *oct_key_find(const char *name)
{
    for (size_t i = 0; i < OCT_KEYS; i++)
        if (strcmp(oct_keys[i].name, name) == 0) return &oct_keys[i];
    return NULL;
}

bool oct_key_in_section(const oct_key *key, const char *name, size_t length)
{
    return oct_key_section(key) == length && strncmp(key->name, name, length) == 0;
}

const oct_key *oct_section_find(const char *name, size_t length)
{
    for (size_t i = 0; length > 0 && i < OCT_KEYS; i++)
        if (oct_key_in_section(&oct_keys[i], name, length)) return &oct_keys[i];
    return NULL;
}

void oct_key_suggest(const char *name, oct_flaw *out)
{
    oct_shown sections[OCT_KEYS];
    const char *names[2 * OCT_KEYS], *near = NULL;
    const char *dot = strchr(name, '.'), *word = dot ? dot + 1 : name;
    size_t length = dot ? (size_t)(dot - name) : 0, count = 0, used = 0;
    out->text[0] = '\0';

    for (size_t i = 0; i < OCT_KEYS; i++)
        if (oct_key_in_section(&oct_keys[i], name, length))
            names[count++] = oct_key_short_name(&oct_keys[i]);
    for (size_t i = 0; length == 0 && i < OCT_KEYS; i++)
        if (oct_section_find(oct_keys[i].name, oct_key_section(&oct_keys[i])) == &oct_keys[i]) {
            sections[i] = oct_show(oct_keys[i].name, oct_key_section(&oct_keys[i]));
            names[count++] = sections[i].text;
        }
    near = oct_nearest(word, names, count);
    if (near) {
        snprintf(out->text, sizeof out->text, "; did you mean '%.*s%s'?",
                 (int)(length ? length + 1 : 0), name, near);
        return;
    }
    for (size_t i = 0; i < OCT_KEYS; i++)
        if (strcmp(oct_key_short_name(&oct_keys[i]), word) == 0)
            used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s'%s'",
                                     used ? " or " : "; did you mean ", oct_keys[i].name);
    if (used) {
        snprintf(out->text + used, sizeof out->text - used, "?");
        return;
    }
    for (size_t i = 0; i < OCT_KEYS; i++)
        names[i] = oct_keys[i].name;
    near = oct_nearest(name, names, OCT_KEYS);
    if (near) snprintf(out->text, sizeof out->text, "; did you mean '%s'?", near);
}

void oct_recipe_suggest(const char *name, char text[OCT_HINT_BYTES])
{
    oct_flaw near;
    oct_key_suggest(name, &near);
    snprintf(text, OCT_HINT_BYTES, "%.*s", OCT_HINT_BYTES - 1, near.text);
}

void oct_section_list(const char *name, size_t length, oct_flaw *out)
{
    size_t used = 0;
    out->text[0] = '\0';
    if (!oct_section_find(name, length)) return;
    used = (size_t)snprintf(out->text, sizeof out->text, "allowed in '%.*s':", (int)length, name);
    const char *between = " ";
    for (size_t i = 0; i < OCT_KEYS && used < sizeof out->text; i++)
        if (oct_key_in_section(&oct_keys[i], name, length)) {
            used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s%s", between,
                                     oct_key_short_name(&oct_keys[i]));
            between = ", ";
        }
}

void *oct_key_field(const oct_key *key, oct_recipe *recipe)
{
    return (char *)recipe + key->offset;
}

void oct_texts_free(oct_texts *list)
{
    for (int i = 0; i < list->count; i++)
        oct_free(&list->value[i]);
    list->count = 0;
}

void oct_recipe_free(oct_recipe *recipe)
{
    for (size_t i = 0; i < OCT_KEYS; i++) {
        const oct_key *key = &oct_keys[i];
        void *field = oct_key_field(key, recipe);
        if (key->kind == OCT_KEY_NAME || key->kind == OCT_KEY_TEXT) oct_free(field);
        if (key->kind == OCT_KEY_TEXTS) oct_texts_free(field);
    }
    oct_free(&recipe->onnx);
    *recipe = (oct_recipe){0};
}

const char *oct_recipe_model(const oct_recipe *recipe)
{
    const char *slash = strrchr(recipe->model_onnx, '/');
    if (recipe->model_name[0]) return recipe->model_name;
    if (!recipe->model_onnx[0]) return "model.onnx";
    return slash ? slash + 1 : recipe->model_onnx;
}

const char *oct_recipe_wide_key(const oct_recipe *recipe, int layer)
{
    bool by_table = layer >= recipe->quant_int16_layers.count - recipe->table_layers;
    return by_table ? "quant.sensitivity" : "quant.int16_layers";
}

oct_optim_config oct_recipe_optim(const oct_recipe *recipe)
{
    return (oct_optim_config){
#define OCT_OPTIM_KEY(name, kind, def, min, max, table, same, help)                                \
    .name = (OCT_OPTIM_FIELD_##kind)recipe->optimizer_##name,
#include "core/optim/optim_list.def"
    };
}

oct_schedule oct_recipe_float_schedule(const oct_recipe *recipe)
{
    return (oct_schedule){
        .lr = recipe->float_lr,
#define OCT_SCHEDULE_KEY(name, kind, def, min, max, table, same, help) .name = recipe->float_##name,
#include "core/optim/schedule_list.def"
    };
}

oct_schedule oct_recipe_qat_schedule(const oct_recipe *recipe)
{
    return (oct_schedule){
        .lr = recipe->qat_lr,
#define OCT_SCHEDULE_KEY(name, kind, def, min, max, table, same, help) .name = recipe->qat_##name,
#include "core/optim/schedule_list.def"
    };
}

int64_t oct_recipe_norm_group(const oct_recipe *recipe)
{
    if (strcmp(recipe->batch_norm_group, "batch") == 0) return 0;
    if (strcmp(recipe->batch_norm_group, "leaf") == 0) return 1;
    int64_t samples;
    OCT_ASSERT(oct_parse_i64(recipe->batch_norm_group, &samples));
    return samples / recipe->batch_leaf;
}

void oct_recipe_augment(const oct_recipe *recipe, oct_split split, oct_augment *augment)
{
    const oct_texts *list = split == OCT_TRAIN ? &recipe->data_train : &recipe->data_test;
    char flaw[OCT_AUGMENT_FLAW];
    *augment = (oct_augment){.mean = recipe->data_mean};
    if (recipe->data_size[0])
        OCT_ASSERT(oct_augment_size(recipe->data_size, &augment->h, &augment->w));
    for (int i = 0; i < list->count; i++) {
        oct_augment_add(augment, list->value[i], split == OCT_TRAIN, flaw);
        OCT_ASSERT(!flaw[0]);
    }
}

void oct_recipe_check_names(const oct_recipe *recipe)
{
    for (const oct_key *key = oct_keys; key < oct_keys + OCT_KEYS; key++) {
        if (key->kind != OCT_KEY_NAME) continue;
        const char *name = *(char *const *)((const char *)recipe + key->offset);
        if (oct_registry_find(key->table, name)) continue;
        char names[OCT_REGISTRY_CHOICE_BYTES], use[OCT_REGISTRY_CHOICE_BYTES + 4];
        snprintf(use, sizeof use, "use %s", oct_registry_choice(key->table, " or ", names));
        oct_registry_report_missing(key->table, key->name, name, use);
    }
}
