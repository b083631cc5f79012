/* Recipes: YAML over one list of keys (recipe_list.def), which also gives the defaults, the written
 * out recipe, `octet help recipe` and `octet recipes`.
 *
 * libyaml's events carry exact positions; the walker here is strict: unknown, duplicate, malformed
 * and out-of-range values are all reported in one run, each with file:line:column, the line with a
 * caret, the nearest key or the allowed values. The same rules hold for key.path=value overrides.
 */
#pragma once

#include "core/base/text.h"
#include "core/op/loss.h"
#include "core/optim/optim.h"
#include "core/optim/schedule.h"
#include "io/augment/augment.h"
#include "io/batch/reader.h"
#include "quant/prepare/prepare.h"
#include "quant/train/train_step.h"

enum { OCT_RECIPE_TEXT_MAX = 1024, OCT_RECIPE_HINT_BYTES = 640 };

typedef enum oct_key_kind {
    OCT_KEY_COUNT, /* int64 in [min, max] */
    OCT_KEY_REAL,  /* double in [min, max] */
    OCT_KEY_BOOL,
    OCT_KEY_WORD, /* a name of the key's table, held as the enum that belongs to the table */
    OCT_KEY_NAME, /* a name of the key's table, which plug-ins may add to: a text until it is looked up */
    OCT_KEY_TEXT,  /* any text, such as a path */
    OCT_KEY_REALS, /* list of up to OCT_REALS_MAX reals */
    OCT_KEY_TEXTS, /* list of up to OCT_TEXTS_MAX texts, none twice */
} oct_key_kind;

/* A resolved recipe has one field for each line of the list, named like the key with '_' for '.'. */
typedef struct oct_recipe {
#define OCT_KEY_FIELD_COUNT(table) int64_t
#define OCT_KEY_FIELD_REAL(table) double
#define OCT_KEY_FIELD_BOOL(table) bool
#define OCT_KEY_FIELD_WORD(table) oct_##table
#define OCT_KEY_FIELD_NAME(table) char *
#define OCT_KEY_FIELD_TEXT(table) char *
#define OCT_KEY_FIELD_REALS(table) oct_reals
#define OCT_KEY_FIELD_TEXTS(table) oct_texts
#define OCT_KEY(key, field, kind, def, min, max, table, same, help)                                \
    OCT_KEY_FIELD_##kind(table) field;
#include "io/recipe/recipe_list.def"
#undef OCT_KEY
    int table_layers; /* how many of quant_int16_layers, the last ones, come from a sensitivity table */
    void *onnx; /* bytes of the file that model.onnx names, once somebody has read it; owned */
    size_t onnx_size;
} oct_recipe;

/* Reads `path` (or the text itself when text is not NULL; path then names it in messages), then the
 * overrides ("key.path=value"). All problems in one record, OCT_USAGE; nothing half-filled. The layers
 * that a sensitivity table names (quant.sensitivity) move to quant.int16_layers here, so what is
 * read is complete in itself. */
oct_status oct_recipe_read(oct_recipe *recipe, const char *path, const char *text,
                           const char *const *overrides, size_t num_overrides);
void oct_recipe_free(oct_recipe *recipe);

/* What people call the model: its name, or that of its file. */
const char *oct_recipe_model(const oct_recipe *recipe);

/* Names the key that gave 16 bits to this layer of quant_int16_layers, for messages. */
const char *oct_recipe_wide_key(const oct_recipe *recipe, int layer);

/* Writes the whole recipe as YAML, every key written out with its value. only_identity: leave out the keys
 * that cannot change a bit of the result (output folder, threads, data path, logging), which is the
 * text that checkpoints carry and that resume compares. */
oct_status oct_recipe_write(const oct_recipe *recipe, bool only_identity, oct_text *out);

/* Writes one line for every key, in their order: "optimizer.lr: 0.1". */
oct_status oct_recipe_list(const oct_recipe *recipe, oct_text *out);

/* Writes one line per key that differs: "optimizer.lr: 0.1 there, 0.2 here". Empty text: the same identity. */
oct_status oct_recipe_compare(const oct_recipe *saved, const oct_recipe *given, oct_text *out);

/* Writes the text of `octet help recipe`, a line for each key: name, type and range or words, default, meaning. `name`: only
 * the key or the section of this name, nothing where there is none; NULL: all keys and all transforms. */
oct_status oct_recipe_help(const char *name, oct_text *out);
/* Writes "; did you mean 'qat.lr'?" for a name that is no key: near names of the same section first, then the same word
 * in other sections, then near names anywhere. Empty when nothing is near. */
void oct_recipe_suggest(const char *name, char text[OCT_RECIPE_HINT_BYTES]);

/* Makes the optimizer's configuration. */
oct_optim_config oct_recipe_optim(const oct_recipe *recipe);
/* Make the schedules of its two phases, without the lengths that depend on the data: total, steps_per_epoch. */
oct_schedule oct_recipe_float_schedule(const oct_recipe *recipe);
oct_schedule oct_recipe_qat_schedule(const oct_recipe *recipe);
/* Returns the leaves of a norm group (core/op/norm_groups.h), 0 for the whole batch. */
int64_t oct_recipe_norm_group(const oct_recipe *recipe);
/* Makes the list of transforms of a split, which is good in a recipe that was read. */
void oct_recipe_augment(const oct_recipe *recipe, oct_split split, oct_augment *augment);
/* Adds a problem for each name that no table has, by now: plug-ins add to tables, so names are judged
 * when these are loaded and not while the recipe is read. */
void oct_recipe_check_names(const oct_recipe *recipe);
/* Adds a problem for each key that has not its default and that the chosen schedule or optimizer does not use. Recipes of
 * checkpoints may have such keys. Fails on memory only. */
oct_status oct_recipe_check_unused(const oct_recipe *recipe);
