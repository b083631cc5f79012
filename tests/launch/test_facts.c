/* What the report says of an int8 model alone, without what a run has measured. */
#include "core/base/mem.h"
#include "launch/report/page_run.h"
#include "tests/quant/program_maker.h"

TestSuite(facts, .timeout = 30);

/* A lone batch norm has one product, which is two operations, for each value. A model may leave the distances of a
 * dilated input at 0. */
Test(facts, of_a_layer_have_its_operations)
{
    static const oct_page_limits limits = {.layers = 100, .steps = 100, .rows = 10, .images = 1};
    oct_page_run run = {.records = json_array(), .kinds = json_object(), .has_model = true};
    json_t *facts = json_object(), *layer;
    int64_t found = -1;
    size_t i;
    program_of_other_kinds(&run.model.program);
    cr_assert_eq(oct_page_facts(facts, &run, &limits), OCT_OK);
    json_t *layers = json_object_get(json_object_get(facts, "layers"), "layers");
    json_array_foreach(layers, i, layer)
    {
        if (strcmp(json_string_value(json_object_get(layer, "path")), "affine") == 0)
            found = json_integer_value(json_object_get(layer, "operations"));
    }
    cr_assert_eq(found, 2 * 7 * 9 * 12);
    json_decref(facts);
    json_decref(run.records);
    json_decref(run.kinds);
    oct_program_free(&run.model.program);
}
