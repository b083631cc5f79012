/* Keys of a recipe are judged together here: those that contradict each other, and the layers that a
 * sensitivity table adds. No report names a key whose value was refused: it still has the value before that one. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/recipe/recipe_impl.h"
#include "io/recipe/sensitivity_file.h"
#include "io/weights/fit.h"

#include <stdio.h>
#include <string.h>

static bool are_good(const oct_recipe_source *s, size_t a, size_t b)
{
    return !s->bad[a] && !s->bad[b];
}

/* The keys of a phase that are judged together. */
typedef struct phase_keys {
    size_t epochs, schedule, warmup, milestones;
} phase_keys;
#define PHASE_KEYS(phase)                                                                          \
    {                                                                                              \
        OCT_KEY_AT_##phase##_epochs, OCT_KEY_AT_##phase##_schedule, OCT_KEY_AT_##phase##_warmup,   \
            OCT_KEY_AT_##phase##_milestones                                                        \
    }
static const phase_keys float_keys = PHASE_KEYS(float), qat_keys = PHASE_KEYS(qat);

static void check_phase(const oct_recipe_source *s, const phase_keys *k, int64_t epochs,
                        const oct_schedule *schedule)
{
    const oct_schedule_type *type = oct_schedule_type_of(schedule->schedule);
    const oct_reals *steps = &schedule->milestones;
    if (epochs > 0 && schedule->warmup > (double)epochs)
        oct_recipe_report_keys(s, k->warmup, k->epochs,
                               "%s (%g) is longer than the phase, %s (%lld); write at most that",
                               oct_keys[k->warmup].name, schedule->warmup, oct_keys[k->epochs].name,
                               (long long)epochs);
    if (type->rises && schedule->warmup > 0)
        oct_recipe_report_keys(s, k->warmup, k->schedule,
                               "%s is %g, but the schedule %s has a rise of its own; leave it out",
                               oct_keys[k->warmup].name, schedule->warmup, type->name);
    for (int i = 1; i < steps->count; i++)
        if (steps->value[i] <= steps->value[i - 1]) {
            oct_recipe_report_keys(s, k->milestones, k->milestones,
                                   "%s: %g comes after %g; write them in ascending order",
                                   oct_keys[k->milestones].name, steps->value[i],
                                   steps->value[i - 1]);
            break;
        }
    if (type->needs_milestones && steps->count == 0)
        oct_recipe_report_keys(s, k->schedule, k->milestones,
                               "%s is %s, but %s is empty; write the epochs at which the rate "
                               "falls, such as [2, 3]",
                               oct_keys[k->schedule].name, type->name,
                               oct_keys[k->milestones].name);
}

static void check_digest(const oct_recipe_source *s, size_t key, const char *digest)
{
    const bool fits = strlen(digest) == 64 && strspn(digest, "0123456789abcdef") == 64;
    if (digest[0] && !fits)
        oct_recipe_report_keys(
            s, key, key,
            "%s is not a SHA-256 of 64 hexadecimal digits; leave it out, octet fills it in",
            oct_keys[key].name);
}

static void check_init(const oct_recipe_source *s, const oct_recipe *recipe)
{
    size_t observers = OCT_KEY_AT_init_observers, epochs = OCT_KEY_AT_float_epochs;
    bool starts_trained = recipe->init[0] || recipe->init_sha256[0];
    if (recipe->init_observers && recipe->float_epochs > 0)
        oct_recipe_report_keys(
            s, observers, epochs,
            "init_observers is true, but float.epochs is %lld, and the float phase "
            "would train without quantizers; write float.epochs: 0",
            (long long)recipe->float_epochs);
    if (recipe->init_observers && !starts_trained)
        oct_recipe_report_keys(s, observers, OCT_KEY_AT_init,
                               "init_observers is true, but there is no init; write init: FILE, a "
                               "checkpoint of the phase calibrate or later");
    check_digest(s, OCT_KEY_AT_init_sha256, recipe->init_sha256);
    const size_t map = OCT_KEY_AT_init_map, skip = OCT_KEY_AT_init_skip;
    if (!starts_trained && recipe->init_map.count + recipe->init_skip.count > 0)
        oct_recipe_report_keys(
            s, recipe->init_map.count ? map : skip, OCT_KEY_AT_init,
            "%s is for a file of weights, but there is no init; write init: FILE",
            oct_keys[recipe->init_map.count ? map : skip].name);
    for (int i = 0; i < recipe->init_map.count; i++) {
        oct_weight_rename rename;
        if (!oct_weight_rename_of(recipe->init_map.value[i], &rename))
            oct_recipe_report_keys(
                s, map, map,
                "init_map: '%s' is not FROM=TO with a * at the end of both or of "
                "neither, such as fc.weight=head.weight or module.*=*",
                recipe->init_map.value[i]);
    }
}

/* A model has a name or a file. The recipe in a checkpoint knows no more of a file than its digest. */
static void check_model(const oct_recipe_source *s, const oct_recipe *recipe)
{
    size_t name = OCT_KEY_AT_model_name, file = OCT_KEY_AT_model_onnx;
    size_t output = OCT_KEY_AT_model_output, head = OCT_KEY_AT_model_new_head;
    const bool has_file = recipe->model_onnx[0] || recipe->model_onnx_sha256[0];
    check_digest(s, OCT_KEY_AT_model_onnx_sha256, recipe->model_onnx_sha256);
    if (!are_good(s, name, file)) return;
    if (recipe->model_name[0] && has_file)
        oct_recipe_report_keys(s, recipe->model_onnx[0] ? file : OCT_KEY_AT_model_onnx_sha256, name,
                               "model.name is %s, but %s is given too; keep one of them",
                               recipe->model_name,
                               recipe->model_onnx[0] ? "model.onnx" : "model.onnx_sha256");
    if (!recipe->model_name[0] && !has_file)
        oct_recipe_report(s, &(oct_recipe_position){0}, NULL,
                          "key 'model.name' is missing (%s); add it to the recipe, or write "
                          "model.name=VALUE on the command line; model.onnx: FILE takes a network "
                          "of yours",
                          oct_keys[name].help);
    if (recipe->model_new_head && !has_file)
        oct_recipe_report_keys(s, head, name,
                               "model.new_head is true, but model.onnx is not given; a model of "
                               "Octet's has as many outputs as the data needs, so leave it out");
    if (recipe->model_output[0] && !has_file)
        oct_recipe_report_keys(s, output, name,
                               "model.output names an output of an ONNX file, but model.onnx is "
                               "not given; leave it out");
}

static void check_phases(const oct_recipe_source *s, const oct_recipe *recipe)
{
    size_t norm = OCT_KEY_AT_qat_freeze_batch_norm, scales = OCT_KEY_AT_qat_freeze_scales;
    const bool starts_trained = recipe->init[0] || recipe->init_sha256[0] ||
                                recipe->model_onnx[0] || recipe->model_onnx_sha256[0];
    if (!starts_trained && recipe->float_epochs + recipe->qat_epochs < 1)
        oct_recipe_report_keys(
            s, OCT_KEY_AT_float_epochs, OCT_KEY_AT_qat_epochs,
            "float.epochs and qat.epochs are both 0, so nothing would be trained; "
            "write at least 1 for one of them");
    if (recipe->qat_freeze_batch_norm > recipe->qat_freeze_scales)
        oct_recipe_report_keys(
            s, norm, scales,
            "qat.freeze_batch_norm (%g) is later than qat.freeze_scales (%g), but "
            "statistics that move would move frozen scales; write at most %g",
            recipe->qat_freeze_batch_norm, recipe->qat_freeze_scales, recipe->qat_freeze_scales);
    const oct_schedule of_float = oct_recipe_float_schedule(recipe);
    const oct_schedule of_qat = oct_recipe_qat_schedule(recipe);
    check_phase(s, &float_keys, recipe->float_epochs, &of_float);
    check_phase(s, &qat_keys, recipe->qat_epochs, &of_qat);
}

static void check_transforms(const oct_recipe_source *s, const oct_recipe *recipe, size_t key)
{
    const bool training = key == OCT_KEY_AT_data_train;
    const oct_texts *list = training ? &recipe->data_train : &recipe->data_test;
    oct_augment augment = {0};
    char flaw[OCT_AUGMENT_FLAW];
    if (s->bad[OCT_KEY_AT_data_size]) return;
    if (recipe->data_size[0]) (void)oct_augment_size(recipe->data_size, &augment.h, &augment.w);
    for (int i = 0; i < list->count; i++) {
        oct_augment_add(&augment, list->value[i], training, flaw);
        if (flaw[0])
            oct_recipe_report_keys(s, key, key, "%s: item %d: %s", oct_keys[key].name, i + 1, flaw);
    }
}

static void check_samples(oct_recipe_source *s, const oct_recipe *recipe)
{
    const size_t size = OCT_KEY_AT_data_size, leaf = OCT_KEY_AT_batch_leaf;
    const size_t mixing[] = {OCT_KEY_AT_data_mixup, OCT_KEY_AT_data_cutmix};
    const double alpha[] = {recipe->data_mixup, recipe->data_cutmix};
    const size_t mean = OCT_KEY_AT_data_mean, std = OCT_KEY_AT_data_std;
    const int means = recipe->data_mean.count, stds = recipe->data_std.count;
    int64_t h, w;
    if (means != stds)
        oct_recipe_report_keys(
            s, mean, std,
            "data.mean has %d values, but data.std %d; write one for each channel in both", means,
            stds);
    else if (means < 1)
        oct_recipe_report_keys(
            s, mean, std,
            "data.mean and data.std have no values; write one for each channel, or one for all");
    if (recipe->data_size[0] && !oct_augment_size(recipe->data_size, &h, &w)) {
        oct_recipe_report_keys(s, size, size,
                               "data.size is '%s'; write a size such as 224 or, height first, "
                               "224x160, of 1 to %d",
                               recipe->data_size, OCT_IMAGE_SIDE_MAX);
        s->bad[size] = true;
    }
    check_transforms(s, recipe, OCT_KEY_AT_data_train);
    check_transforms(s, recipe, OCT_KEY_AT_data_test);
    for (size_t i = 0; i < OCT_COUNT(mixing); i++)
        if (alpha[i] > 0 && recipe->batch_leaf < 2)
            oct_recipe_report_keys(s, mixing[i], leaf,
                                   "%s mixes the samples of a leaf, but batch.leaf is %lld; write "
                                   "at least 2",
                                   oct_keys[mixing[i]].name, (long long)recipe->batch_leaf);
}

/* A group is an aligned subtree of the tree over leaves, and a full batch has no other ones. */
static void check_norm_group(const oct_recipe_source *s, const oct_recipe *recipe)
{
    const size_t key = OCT_KEY_AT_batch_norm_group, size = OCT_KEY_AT_batch_size;
    const char *text = recipe->batch_norm_group;
    const bool leaf = strcmp(text, "leaf") == 0;
    const bool plain = text[0] != '0' && strspn(text, "0123456789") == strlen(text);
    int64_t samples = recipe->batch_leaf;
    if (strcmp(text, "batch") == 0) return;
    if (!leaf && !(plain && oct_parse_i64(text, &samples)))
        samples = 0; /* not the one way to write it */
    const int64_t leaves = samples / recipe->batch_leaf;
    if (samples == 0)
        oct_recipe_report_keys(
            s, key, key, "batch_norm.group is '%s'; write batch, leaf, or a number of samples",
            text);
    else if (!are_good(s, size, OCT_KEY_AT_batch_leaf))
        return;
    else if (samples % recipe->batch_leaf != 0 || (leaves & (leaves - 1)) != 0)
        oct_recipe_report_keys(
            s, key, OCT_KEY_AT_batch_leaf,
            "batch_norm.group is %lld, but a group has batch.leaf (%lld) samples "
            "times a power of two; write one of %lld, %lld, %lld, ..., or batch",
            (long long)samples, (long long)recipe->batch_leaf, (long long)recipe->batch_leaf,
            2 * (long long)recipe->batch_leaf, 4 * (long long)recipe->batch_leaf);
    else if (recipe->batch_size % samples != 0)
        oct_recipe_report_keys(s, key, size,
                               "batch_norm.group (%lld samples) does not divide batch.size (%lld); "
                               "write a batch.size of whole groups, a smaller group, or batch",
                               (long long)samples, (long long)recipe->batch_size);
}

static void check_quant(const oct_recipe_source *s, const oct_recipe *recipe)
{
    const size_t bits = OCT_KEY_AT_quant_bits, setters = OCT_KEY_AT_quant_setters;
    const size_t fold = OCT_KEY_AT_qat_fold_batch_norm, mode = OCT_KEY_AT_quant_batch_norm;
    oct_setter_words words;
    char flaw[512];
    if (recipe->quant_bits != 8 && recipe->quant_bits != 16)
        oct_recipe_report_keys(s, bits, bits, "quant.bits is %lld; write 8 or 16",
                               (long long)recipe->quant_bits);
    for (int i = 0; i < recipe->quant_setters.count; i++)
        if (!oct_setter_parse(&words, recipe->quant_setters.value[i], flaw))
            oct_recipe_report_keys(s, setters, setters, "quant.setters: item %d: %s", i + 1, flaw);
    if (recipe->numerics_int16.count > 0 && recipe->numerics != OCT_NUMERICS_INT8)
        oct_recipe_report_keys(s, OCT_KEY_AT_numerics_int16, OCT_KEY_AT_numerics,
                               "numerics_int16 is for numerics: int8, but that is %s; leave it out",
                               oct_numerics_name(recipe->numerics));
    if (recipe->qat_fold_batch_norm && recipe->quant_batch_norm == OCT_BATCH_NORM_FOLDED)
        oct_recipe_report_keys(
            s, fold, mode,
            "qat.fold_batch_norm is true, but quant.batch_norm is folded, so there is "
            "nothing left to fold; write qat.fold_batch_norm: false");
}

static void check_best(const oct_recipe_source *s, const oct_recipe *recipe)
{
    size_t best = OCT_KEY_AT_evaluate_best, patience = OCT_KEY_AT_evaluate_patience;
    if (recipe->evaluate_patience > 0 && !recipe->evaluate_best[0])
        oct_recipe_report_keys(
            s, patience, best,
            "evaluate.patience is %lld, but evaluate.best names no metric to judge by; write "
            "evaluate.best: top1",
            (long long)recipe->evaluate_patience);
    bool measured = !recipe->evaluate_best[0];
    for (int i = 0; i < recipe->metrics.count; i++)
        measured |= strcmp(recipe->metrics.value[i], recipe->evaluate_best) == 0;
    if (!measured)
        oct_recipe_report_keys(s, best, OCT_KEY_AT_metrics,
                               "evaluate.best is %s, but metrics does not name it; add it there",
                               recipe->evaluate_best);
}

/* Adds the layers of the table's first rows to quant.int16_layers; the keys that chose them become empty. */
static oct_status add_layers(oct_recipe *recipe, const oct_sensitivity *table)
{
    oct_qconfig_setter setter;
    OCT_TRY(oct_setter_sensitive(&setter, table, recipe->quant_sensitivity_topk,
                                 recipe->quant_sensitivity_ratio, 16, recipe->quant_int16_fixed));
    /* Rows that would change nothing are not what was meant. */
    size_t first = 0;
    while (first < table->count && !oct_sensitivity_is_activation(&table->rows[first]))
        first++;
    OCT_CHECK(first < table->count, OCT_USAGE,
              "the sensitivity table has rows of weights only, which keep 8 bits; leave it out");
    OCT_CHECK(first < setter.rows, OCT_USAGE,
              "the first %zu rows of the sensitivity table are of weights, which keep 8 bits; the "
              "first activation is row %zu, so write quant.sensitivity_topk: %zu or more",
              setter.rows, first + 1, first + 1);
    oct_texts *layers = &recipe->quant_int16_layers;
    const int by_hand = layers->count;
    for (size_t i = 0; i < setter.rows; i++) {
        bool skipped = !oct_sensitivity_is_activation(&table->rows[i]);
        for (int k = 0; k < layers->count && !skipped; k++)
            skipped = strcmp(layers->value[k], table->rows[i].path) == 0;
        if (skipped) continue;
        OCT_CHECK(layers->count < OCT_TEXTS_MAX, OCT_USAGE,
                  "quant.int16_layers has %d layers with those of the table; give 16 bits to all "
                  "layers (quant.bits: 16) or to fewer",
                  OCT_TEXTS_MAX);
        OCT_TRY(oct_strdup(&layers->value[layers->count], table->rows[i].path));
        layers->count++;
    }
    recipe->table_layers = layers->count - by_hand;
    /* So the recipe that is written needs the table no more. */
    recipe->quant_sensitivity[0] = '\0';
    recipe->quant_sensitivity_topk = 0;
    recipe->quant_sensitivity_ratio = 0;
    return OCT_OK;
}

/* The most sensitive layers of the table get 16 bits; its problems are reported after those of the keys. */
static oct_status use_table(const oct_recipe_source *s, oct_recipe *recipe)
{
    const size_t file = OCT_KEY_AT_quant_sensitivity, topk = OCT_KEY_AT_quant_sensitivity_topk;
    const size_t ratio = OCT_KEY_AT_quant_sensitivity_ratio;
    OCT_OWNED(oct_sensitivity_free) oct_sensitivity table = {0};
    if (s->bad[file] || !are_good(s, topk, ratio)) return OCT_OK;
    if (recipe->quant_sensitivity[0] == '\0') {
        if (recipe->quant_sensitivity_topk > 0 || recipe->quant_sensitivity_ratio > 0.0)
            oct_recipe_report_keys(
                s, topk, ratio,
                "there is no sensitivity table to take rows from; write quant.sensitivity: "
                "FILE (`octet sensitivity CHECKPOINT --output FILE` makes one)");
        return OCT_OK;
    }
    if (oct_error_count() > 0) return OCT_OK; /* a failure to read begins a record of its own */
    oct_status status = oct_sensitivity_read(&table, recipe->quant_sensitivity);
    if (status == OCT_OK) status = add_layers(recipe, &table);
    if (status == OCT_USAGE || status == OCT_DATA) (void)oct_fail_prefix("quant.sensitivity");
    return status;
}

oct_status oct_recipe_check_keys(oct_recipe_source *s, oct_recipe *recipe)
{
    if (recipe->batch_leaf > recipe->batch_size)
        oct_recipe_report_keys(
            s, OCT_KEY_AT_batch_leaf, OCT_KEY_AT_batch_size,
            "batch.leaf (%lld) is larger than batch.size (%lld); write at most that",
            (long long)recipe->batch_leaf, (long long)recipe->batch_size);
    check_model(s, recipe);
    check_samples(s, recipe);
    check_init(s, recipe);
    check_phases(s, recipe);
    check_norm_group(s, recipe);
    check_quant(s, recipe);
    check_best(s, recipe);
    return use_table(s, recipe);
}

/* What types of schedules and optimizers begin with; uses: words between blanks. */
typedef struct named_type {
    const char *name, *uses;
} named_type;

static bool uses_key(const named_type *type, const oct_key *key)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", oct_key_short_name(key));
    return type->uses && strstr(type->uses, word);
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

oct_status oct_recipe_check_unused(const oct_recipe *recipe)
{
    static const size_t choices[] = {OCT_KEY_AT_optimizer_kind, OCT_KEY_AT_float_schedule,
                                     OCT_KEY_AT_qat_schedule};
    for (size_t i = 0; i < OCT_COUNT(choices) * OCT_KEYS; i++) {
        const oct_key *choice = &oct_keys[choices[i / OCT_KEYS]], *key = &oct_keys[i % OCT_KEYS];
        const unsigned *chosen = oct_key_field(choice, (oct_recipe *)(uintptr_t)recipe);
        const named_type *type = oct_registry_at(choice->table, *chosen), *user = type;
        bool plain = !oct_key_in_section(key, choice->name, oct_key_section(choice));
        for (size_t k = 0; !plain && !uses_key(user, key) && k < choice->table->num_listed; k++)
            user = choice->table->listed[k];
        /* user: a type that uses the key; where none does, the key is for all types. */
        if (plain || user == type || !uses_key(user, key)) continue;
        OCT_TRY(oct_key_has_default(key, recipe, &plain));
        if (!plain)
            (void)oct_fail_add(OCT_USAGE,
                               "%s: %s: %s does not use it; leave it out, or write %s: %s",
                               key->name, choice->name, type->name, choice->name, user->name);
    }
    return OCT_OK;
}
