/* Arrays of a file become the parameters and buffers of a model that have their names. */
#pragma once

#include "core/base/text.h"
#include "core/graph/trace.h"
#include "io/weights/weights.h"

/* What the user says about names, as the recipe has it; both may have no entries. */
typedef struct oct_weight_rules {
    const oct_texts *map; /* FROM=TO; with a * at both ends: all names that begin with it */
    const oct_texts
        *skip; /* the model's names that keep their values; with a * all that begin so */
} oct_weight_rules;

/* FROM=TO of a rule of `map`. The lengths leave the * out. */
typedef struct oct_weight_rename {
    const char *from, *to;
    size_t from_length, to_length;
    bool prefix;
} oct_weight_rename;
/* Splits a rule at its '='; false where it is no FROM=TO, or where not both or neither end with a *. */
bool oct_weight_rename_of(const char *rule, oct_weight_rename *rename);

/* What was done. */
typedef struct oct_weight_report {
    int64_t wanted, taken; /* of the model's parameters and buffers */
    int64_t kept,
        unused; /* of the model's that are not in the file; of the file's that are not in the model */
    oct_text kept_names, unused_names; /* the first of them */
    oct_text classifier; /* parameters of a last layer of another size, with both; empty: it fits */
} oct_weight_report;
static inline void oct_weight_report_free(oct_weight_report *report)
{
    oct_text_free(&report->kept_names);
    oct_text_free(&report->unused_names);
    oct_text_free(&report->classifier);
}

/* Copies each array of the file into the parameter or buffer of root of its name. Others keep their values, as does the
 * last layer if its number of outputs differs. example: what the model is called with. OCT_USAGE when no name is in
 * both, other shapes differ, or a rule fits no name; OCT_DATA for values out of range. Nothing is changed then. */
oct_status oct_weights_load(const oct_weights *weights, oct_module *root,
                            const oct_example *example, const oct_weight_rules *rules,
                            oct_weight_report *report);
