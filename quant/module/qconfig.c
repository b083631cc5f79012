/* Setters: who decides how a module is quantized. */
#include "quant/module/qconfig.h"

#include "core/base/text.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const void *const scales_modes[] = {OCT_SCALES_LIST(OCT_WORD_ITEM)};
const oct_registry oct_scales_mode_table = OCT_REGISTRY("a mode", scales_modes);

oct_qconfig oct_qconfig_default(void)
{
    return (oct_qconfig){.observer = &oct_observer_moving_average,
                         .fake_quant = &oct_fake_quant_affine,
                         .weight_fake_quant = &oct_fake_quant_affine,
                         .averaging = 0.01f,
                         .percentile = 99.99,
                         .bits = 8};
}

/* Whether the whole path fits the pattern: * is any run of characters, ? any one. No path has a bracket, which fnmatch
 * would take for more. */
static bool matches_path(const char *pattern, const char *path)
{
    if (strpbrk(pattern, "*?"))
        return !strchr(pattern, '[') && fnmatch(pattern, path, FNM_NOESCAPE) == 0;
    size_t length = strlen(pattern);
    return strncmp(path, pattern, length) == 0 && (path[length] == '\0' || path[length] == '.');
}

/* Puts a template in place of what setters of lower priority have said, where the pattern fits. */
static void refine_wholly(const oct_qconfig_setter *self, const oct_qconfig_site *site,
                          oct_qconfig *qconfig)
{
    if (self->pattern && !(self->by_type ? strcmp(self->pattern, site->type) == 0
                                         : matches_path(self->pattern, site->path)))
        return;
    if (self->qconfig)
        *qconfig = *self->qconfig;
    else
        qconfig->none = true;
}

static void refine_output(const oct_qconfig_setter *self, const oct_qconfig_site *site,
                          oct_qconfig *qconfig)
{
    (void)self;
    if (site->before_dequant) qconfig->float_output = true;
}

bool oct_sensitivity_is_activation(const oct_sensitivity_row *row)
{
    return strcmp(row->tensor, "activation") == 0;
}

/* Gives the setter's bits to a site whose activation is among the table's rows that count. */
static void refine_sensitive(const oct_qconfig_setter *self, const oct_qconfig_site *site,
                             oct_qconfig *qconfig)
{
    for (size_t i = 0; i < self->rows; i++) {
        const oct_sensitivity_row *row = &self->table->rows[i];
        if (!oct_sensitivity_is_activation(row) || strcmp(row->path, site->path) != 0) continue;
        qconfig->bits = self->bits;
        qconfig->fixed_scale = self->fixed_scale;
    }
}

oct_qconfig_setter oct_setter_default(const oct_qconfig *qconfig)
{
    return (oct_qconfig_setter){.name = "default", .refine = refine_wholly, .qconfig = qconfig};
}

oct_qconfig_setter oct_setter_by_name(const char *pattern, const oct_qconfig *qconfig)
{
    return (oct_qconfig_setter){
        .name = "by name", .refine = refine_wholly, .qconfig = qconfig, .pattern = pattern};
}

oct_qconfig_setter oct_setter_by_type(const char *type, const oct_qconfig *qconfig)
{
    return (oct_qconfig_setter){.name = "by type",
                                .refine = refine_wholly,
                                .qconfig = qconfig,
                                .pattern = type,
                                .by_type = true};
}

oct_qconfig_setter oct_setter_float_output(void)
{
    return (oct_qconfig_setter){.name = "float output", .refine = refine_output};
}

oct_status oct_setter_sensitive(oct_qconfig_setter *setter, const struct oct_sensitivity *table,
                                int64_t topk, double ratio, int bits, bool fixed_scale)
{
    *setter = (oct_qconfig_setter){0};
    OCT_CHECK(table->count > 0, OCT_USAGE,
              "the sensitivity table is empty; make one with `octet sensitivity CHECKPOINT`");
    OCT_CHECK(
        topk != 0 || ratio != 0.0, OCT_USAGE,
        "neither topk nor ratio says how many rows of the sensitivity table to use; give one");
    OCT_CHECK(topk == 0 || ratio == 0.0, OCT_USAGE,
              "topk %lld and ratio %g both say how many rows of the sensitivity table count; give "
              "only one",
              (long long)topk, ratio);
    OCT_CHECK(topk >= 0 && topk <= (int64_t)table->count, OCT_USAGE,
              "topk is %lld, but the sensitivity table has %zu rows; give 1 to %zu",
              (long long)topk, table->count, table->count);
    OCT_CHECK(topk != 0 || (ratio > 0.0 && ratio <= 1.0), OCT_USAGE,
              "ratio is %g; give a number above 0 and at most 1", ratio);
    size_t rows = topk ? (size_t)topk : (size_t)ceil((double)table->count * ratio);
    *setter = (oct_qconfig_setter){.name = "sensitive",
                                   .refine = refine_sensitive,
                                   .table = table,
                                   .rows = rows,
                                   .bits = bits,
                                   .fixed_scale = fixed_scale};
    return OCT_OK;
}

static const oct_qconfig_template templates[] = {
    {"float", 0, false},  {"int8", 8, false},        {"int8_fixed", 8, true},
    {"int16", 16, false}, {"int16_fixed", 16, true},
};

static const oct_qconfig_template *find_template(const char *name, char flaw[512])
{
    const char *names[OCT_COUNT(templates)];
    char hint[OCT_HINT_BYTES];
    for (size_t i = 0; i < OCT_COUNT(templates); i++) {
        names[i] = templates[i].name;
        if (strcmp(names[i], name) == 0) return &templates[i];
    }
    snprintf(flaw, 512, "there is no template '%.64s'; %s", name,
             oct_did_you_mean(hint, name, names, OCT_COUNT(names),
                              "write float, int8, int8_fixed, int16 or int16_fixed"));
    return NULL;
}

bool oct_setter_parse(oct_setter_words *words, const char *text, char flaw[512])
{
    static const char prefix[] = "type:";
    const char *equals = strrchr(text, '=');
    *words = (oct_setter_words){.by_type = strncmp(text, prefix, strlen(prefix)) == 0};
    const char *who = text + (words->by_type ? strlen(prefix) : 0);
    size_t length = equals && equals > who ? (size_t)(equals - who) : 0;
    if (length == 0 || length >= sizeof words->who) {
        snprintf(flaw, 512,
                 "'%.64s' is no setter; write PATH=TEMPLATE or type:NAME=TEMPLATE, such as "
                 "head.*=int16 or type:linear=float",
                 text);
        return false;
    }
    memcpy(words->who, who, length);
    words->qconfig = find_template(equals + 1, flaw);
    return words->qconfig != NULL;
}

oct_qconfig_setter oct_setter_of_words(const oct_setter_words *words, const oct_qconfig *standard,
                                       oct_qconfig *qconfig)
{
    *qconfig = *standard;
    qconfig->none = words->qconfig->bits == 0;
    if (!qconfig->none) qconfig->bits = words->qconfig->bits;
    qconfig->fixed_scale = words->qconfig->fixed_scale;
    const oct_qconfig *given = qconfig->none ? NULL : qconfig;
    return words->by_type ? oct_setter_by_type(words->who, given)
                          : oct_setter_by_name(words->who, given);
}

const char *oct_setter_text(const oct_qconfig_setter *setter, char text[OCT_SETTER_BYTES])
{
    if (setter->pattern)
        snprintf(text, OCT_SETTER_BYTES, "%s '%s%s'", setter->name, setter->by_type ? "type:" : "",
                 setter->pattern);
    else
        snprintf(text, OCT_SETTER_BYTES, "%s", setter->name);
    return text;
}

oct_qconfig oct_qconfig_of(const oct_qconfig_setter *setters, size_t count,
                           const oct_qconfig_site *site)
{
    oct_qconfig qconfig = {.none = true};
    for (size_t i = count; i > 0; i--)
        setters[i - 1].refine(&setters[i - 1], site, &qconfig);
    return qconfig;
}

const oct_qconfig_setter *oct_qconfig_decider(const oct_qconfig_setter *setters, size_t count,
                                              const oct_qconfig_site *site)
{
    for (size_t i = 0; i < count; i++) {
        oct_qconfig q = {0}; /* whatever a setter says makes it another one */
        setters[i].refine(&setters[i], site, &q);
        if (q.none || q.observer || q.fake_quant || q.averaging != 0.0f || q.bits != 0 ||
            q.current_scales || q.fixed_scale)
            return &setters[i];
    }
    return NULL;
}

oct_status oct_qconfig_check(const oct_qconfig *qconfig, const oct_target *target)
{
    if (qconfig->none) return OCT_OK;
    OCT_CHECK(qconfig->observer, OCT_PREPARE,
              "the qconfig has no observer; set one, or `none` to keep the module float");
    OCT_CHECK(qconfig->fake_quant, OCT_PREPARE,
              "the qconfig has no fake-quant; set one, such as oct_fake_quant_affine");
    OCT_CHECK(qconfig->fake_quant->scale, OCT_PREPARE,
              "the qconfig's fake-quant '%s' is for weights only; set one for activations",
              qconfig->fake_quant->name);
    OCT_CHECK(
        !qconfig->fake_quant->zero_point || !target || target->zero_points, OCT_PREPARE,
        "the qconfig's fake-quant '%s' chooses zero points, which target %s does not have; set "
        "another fake-quant or prepare for another target",
        qconfig->fake_quant->name, target ? target->name : "");
    const oct_fake_quant_kind *weights = qconfig->weight_fake_quant;
    OCT_CHECK(!weights || weights->weight_scale, OCT_PREPARE,
              "the qconfig's weight_fake_quant '%s' is for activations only; set one for weights",
              weights ? weights->name : "");
    OCT_CHECK(qconfig->averaging > 0.0f && qconfig->averaging <= 1.0f, OCT_PREPARE,
              "the qconfig's averaging is %g; give a number above 0 and at most 1",
              (double)qconfig->averaging);
    OCT_CHECK(qconfig->observer != &oct_observer_percentile ||
                  (qconfig->percentile >= 50 && qconfig->percentile <= 100),
              OCT_PREPARE, "the qconfig's percentile is %g; give a number from 50 to 100",
              qconfig->percentile);
    OCT_CHECK(qconfig->bits == 8 || qconfig->bits == 16, OCT_PREPARE,
              "the qconfig asks for activations of %d bits; give 8 or 16", qconfig->bits);
    OCT_CHECK(
        qconfig->bits == 8 || !target || target->wide_codes, OCT_PREPARE,
        "the qconfig asks for 16-bit activations, which target %s does not have; give 8 bits, "
        "or prepare for a target that has them, such as x86",
        target->name);
    return OCT_OK;
}

oct_status oct_setters_check(const oct_qconfig_setter *setters, size_t count,
                             const oct_target *target)
{
    for (size_t i = 0; i < count; i++) {
        oct_qconfig qconfig = setters[i].qconfig ? *setters[i].qconfig : oct_qconfig_default();
        if (setters[i].table) qconfig.bits = setters[i].bits;
        if (oct_qconfig_check(&qconfig, target) != OCT_OK)
            return oct_fail_prefix("%s", setters[i].name);
    }
    return OCT_OK;
}

static void check_pattern(const char *setter, const char *pattern, const char *const *paths,
                          size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (matches_path(pattern, paths[i])) return;
    char hint[OCT_HINT_BYTES];
    (void)oct_fail_add(
        OCT_PREPARE, "%s '%s': no module that can be quantized has this path; %s", setter, pattern,
        oct_did_you_mean(hint, pattern, paths, count, "`octet check` without it lists them"));
}

static bool is_listed(const char *word, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0) return true;
    return false;
}

/* Writes "it has add, conv2d, linear". */
static const char *list_types(char text[512], const char *const *types, size_t count)
{
    size_t used = (size_t)snprintf(text, 512, "it has");
    for (size_t i = 0; i < count; i++)
        if (!is_listed(types[i], types, i) && used < 512 - 80)
            used +=
                (size_t)snprintf(text + used, 512 - used, "%s %.64s", i > 0 ? "," : "", types[i]);
    return text;
}

oct_status oct_setters_check_words(const oct_qconfig_setter *setters, size_t count,
                                   const char *const *paths, size_t num_paths,
                                   const char *const *types, size_t num_types)
{
    char hint[OCT_HINT_BYTES], all[512];
    const size_t before = oct_error_count();
    for (size_t i = 0; i < count; i++) {
        const oct_qconfig_setter *s = &setters[i];
        if (s->pattern && !s->by_type) check_pattern(s->name, s->pattern, paths, num_paths);
        for (size_t k = 0; s->table && k < s->rows; k++)
            if (oct_sensitivity_is_activation(&s->table->rows[k]))
                check_pattern(s->name, s->table->rows[k].path, paths, num_paths);
    }
    for (size_t i = 0; i < count; i++) {
        const oct_qconfig_setter *s = &setters[i];
        if (!s->pattern || !s->by_type || is_listed(s->pattern, types, num_types)) continue;
        (void)oct_fail_add(OCT_PREPARE,
                           "%s 'type:%s': the model has no module or op of this type; %s", s->name,
                           s->pattern,
                           oct_did_you_mean(hint, s->pattern, types, num_types,
                                            list_types(all, types, num_types)));
    }
    return oct_error_count() > before ? OCT_PREPARE : OCT_OK;
}
