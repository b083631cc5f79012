/* Setters: who decides how a module is quantized. */
#include "quant/qconfig.h"

#include "core/base/text.h"

#include <math.h>
#include <string.h>

oct_qconfig oct_qconfig_default(void)
{
    return (oct_qconfig){.observer = &oct_observer_moving_average,
                         .fake_quant = &oct_fake_quant_affine,
                         .averaging = 0.01f,
                         .bits = 8};
}

/* The whole text fits the pattern: * is any run of characters, ? any one. */
static bool fits(const char *pattern, const char *text)
{
    const char *star = NULL,
               *behind = NULL; /* where to go on with one character more for the star */
    while (*text) {
        if (*pattern == '*') {
            star = ++pattern;
            behind = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++behind;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

static bool fits_path(const char *pattern, const char *path)
{
    if (strpbrk(pattern, "*?")) return fits(pattern, path);
    size_t length = strlen(pattern);
    return strncmp(path, pattern, length) == 0 && (path[length] == '\0' || path[length] == '.');
}

/* Puts a template in place of what setters of lower priority have said. */
static void put(const oct_qconfig_setter *self, oct_qconfig *qconfig)
{
    if (self->qconfig)
        *qconfig = *self->qconfig;
    else
        qconfig->none = true;
}

static void refine_any(const oct_qconfig_setter *self, const oct_qconfig_place *place,
                       oct_qconfig *qconfig)
{
    (void)place;
    put(self, qconfig);
}

static void refine_by_name(const oct_qconfig_setter *self, const oct_qconfig_place *place,
                           oct_qconfig *qconfig)
{
    if (fits_path(self->pattern, place->path)) put(self, qconfig);
}

static void refine_by_type(const oct_qconfig_setter *self, const oct_qconfig_place *place,
                           oct_qconfig *qconfig)
{
    if (strcmp(self->pattern, place->type) == 0) put(self, qconfig);
}

static void refine_output(const oct_qconfig_setter *self, const oct_qconfig_place *place,
                          oct_qconfig *qconfig)
{
    (void)self;
    if (place->before_dequant) qconfig->float_output = true;
}

static bool is_activation(const oct_sensitivity_row *row)
{
    return strcmp(row->tensor, "activation") == 0;
}

static void refine_sensitive(const oct_qconfig_setter *self, const oct_qconfig_place *place,
                             oct_qconfig *qconfig)
{
    for (size_t i = 0; i < self->rows; i++) {
        const oct_sensitivity_row *row = &self->table->rows[i];
        if (!is_activation(row) || strcmp(row->path, place->path) != 0) continue;
        qconfig->bits = self->bits;
        qconfig->fixed_scale = self->fixed_scale;
    }
}

oct_qconfig_setter oct_setter_default(const oct_qconfig *qconfig)
{
    return (oct_qconfig_setter){.name = "default", .refine = refine_any, .qconfig = qconfig};
}

oct_qconfig_setter oct_setter_by_name(const char *pattern, const oct_qconfig *qconfig)
{
    return (oct_qconfig_setter){
        .name = "by name", .refine = refine_by_name, .qconfig = qconfig, .pattern = pattern};
}

oct_qconfig_setter oct_setter_by_type(const char *type, const oct_qconfig *qconfig)
{
    return (oct_qconfig_setter){
        .name = "by type", .refine = refine_by_type, .qconfig = qconfig, .pattern = type};
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
    OCT_CHECK(topk != 0 || ratio != 0.0, OCT_USAGE,
              "neither topk nor ratio says how many rows of the sensitivity table count; give one");
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

oct_qconfig oct_qconfig_of(const oct_qconfig_setter *setters, size_t count,
                           const oct_qconfig_place *place)
{
    oct_qconfig qconfig = {.none = true};
    for (size_t i = count; i > 0; i--)
        setters[i - 1].refine(&setters[i - 1], place, &qconfig);
    return qconfig;
}

oct_status oct_qconfig_check(const oct_qconfig *qconfig, const oct_target *target)
{
    if (qconfig->none) return OCT_OK;
    OCT_CHECK(qconfig->observer, OCT_PREPARE,
              "the qconfig has no observer; set one, or `none` to keep the module float");
    OCT_CHECK(qconfig->fake_quant, OCT_PREPARE,
              "the qconfig has no fake-quant; set one, such as oct_fake_quant_affine");
    OCT_CHECK(qconfig->averaging > 0.0f && qconfig->averaging <= 1.0f, OCT_PREPARE,
              "the qconfig's averaging is %g; give a number above 0 and at most 1",
              (double)qconfig->averaging);
    OCT_CHECK(qconfig->bits == 8 || qconfig->bits == 16, OCT_PREPARE,
              "the qconfig asks for activations of %d bits; give 8 or 16", qconfig->bits);
    OCT_CHECK(qconfig->bits == 8 || !target || target->wide_codes, OCT_PREPARE,
              "the qconfig asks for 16-bit activations, which target %s does not have; give 8 bits "
              "or prepare for another target",
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
        if (fits_path(pattern, paths[i])) return;
    char hint[OCT_HINT_BYTES];
    oct_fail_add(
        OCT_PREPARE, "%s '%s': no module that can be quantized has this path; %s", setter, pattern,
        oct_did_you_mean(hint, pattern, paths, count, "`octet check` without it lists them"));
}

static void check_rows(const oct_qconfig_setter *setter, const char *const *paths, size_t count)
{
    for (size_t i = 0; i < setter->rows; i++)
        if (is_activation(&setter->table->rows[i]))
            check_pattern(setter->name, setter->table->rows[i].path, paths, count);
}

oct_status oct_qconfig_check_names(const oct_qconfig_setter *setters, size_t count,
                                   const char *const *paths, size_t num_paths)
{
    size_t before = oct_fail_count();
    for (size_t i = 0; i < count; i++) {
        if (setters[i].refine == refine_by_name)
            check_pattern(setters[i].name, setters[i].pattern, paths, num_paths);
        if (setters[i].table) check_rows(&setters[i], paths, num_paths);
    }
    return oct_fail_count() > before ? OCT_PREPARE : OCT_OK;
}
