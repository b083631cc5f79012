/* Prepare decides what each call site is (prepare_plan.c), what runs together (fuse.c),
 * which stubs cannot be meant (stubs.c), what is quantized and where codes are made (placement.c,
 * eager.c), which values share a quantizer (group.c) and what speaks against it (check.c); only a
 * plan without problems is carried out (apply.c). */
#include "quant/prepare/prepare.h"

#include "quant/prepare/prepare_plan.h"
#include "quant/prepare/report.h"

#include <stdio.h>

static const void *const batch_norm_modes[] = {OCT_BATCH_NORM_LIST(OCT_WORD_ITEM)};
const oct_registry oct_batch_norm_mode_table = OCT_REGISTRY("a mode", batch_norm_modes);

static oct_status check_new(void *user, oct_module *module)
{
    (void)user;
    char path[256];
    bool prepared = module->interceptor || module->type == &oct_fake_quant_type;
    OCT_CHECK(!prepared, OCT_PREPARE,
              "%s is prepared already; prepare starts from the float model, and only once",
              module->parent ? oct_module_path(module, path) : "the model");
    return OCT_OK;
}

static oct_status check_start(oct_module *root, const oct_prepare_options *options)
{
    OCT_CHECK(options->target, OCT_USAGE,
              "prepare needs a target; set options.target (oct_target_find(\"x86\"))");
    OCT_CHECK(root->training, OCT_PREPARE,
              "the model is in eval mode; call oct_module_train(model, true) before prepare");
    OCT_CHECK(options->setters || options->num_setters == 0, OCT_USAGE,
              "options.num_setters is %zu, but options.setters is NULL; give prepare the setters",
              options->num_setters);
    OCT_CHECK(options->num_setters > 0, OCT_USAGE,
              "there is no qconfig setter, so nothing would be quantized; give prepare "
              "oct_setter_default");
    OCT_TRY(oct_setters_check(options->setters, options->num_setters, options->target));
    return oct_module_walk(root, check_new, NULL);
}

static oct_status make_plan(oct_prepare_plan *plan, const oct_example *example)
{
    OCT_TRY(oct_prepare_plan_create(plan, example));
    oct_fail_clear();
    OCT_TRY(oct_prepare_fuse(plan));
    OCT_TRY(oct_prepare_check_stubs(plan));
    if (plan->options->method == OCT_METHOD_EAGER)
        OCT_TRY(oct_prepare_placement_eager(plan));
    else
        OCT_TRY(oct_prepare_placement(plan));
    if (plan->problems == 0) OCT_TRY(oct_prepare_scale_groups(plan)); /* of values with a place */
    OCT_TRY(oct_prepare_check(plan));
    return plan->problems > 0 ? OCT_PREPARE : OCT_OK;
}

static oct_status find_hooks(void *user, oct_module *module)
{
    *(bool *)user |= module->pre_hooks || module->hooks;
    return OCT_OK;
}

/* Runs a model with hooks once with codes, since hooks were traced on floats: one that fails on codes fails here and not
 * in the first step. */
static oct_status try_hooks(oct_module *root, const oct_example *example)
{
    bool hooks = false;
    oct_quantizers all = {0};
    oct_trace trace = {0};
    char text[1024];
    OCT_TRY(oct_module_walk(root, find_hooks, &hooks));
    if (!hooks) return OCT_OK;
    OCT_TRY(oct_quantizers_collect(&all, root));
    oct_quantizers_set_state(&all, OCT_QUANT_FROZEN);
    oct_status status = oct_trace_run(&trace, root, example);
    oct_trace_free(&trace);
    if (status == OCT_OK && oct_graph_branches(oct_graph_of(root)))
        status = oct_trace_training(&trace, root, example);
    oct_trace_free(&trace);
    oct_quantizers_set_state(&all, OCT_QUANT_OFF);
    oct_quantizers_free(&all);
    if (status != OCT_USAGE && status != OCT_DEFECT) return status;
    snprintf(text, sizeof text, "%s", oct_fail_text(0));
    return oct_fail(OCT_PREPARE, "%s (a forward with quantized values, as hooks see them)", text);
}

oct_status oct_prepare(oct_module **root, const oct_example *example,
                       const oct_prepare_options *options, oct_text *report)
{
    oct_prepare_plan plan = {.root = root, .options = options, .target = options->target};
    OCT_TRY(check_start(*root, options));
    oct_status status = make_plan(&plan, example);
    if (status == OCT_OK) status = oct_prepare_apply(&plan);
    oct_prepare_plan_free(&plan);
    if (status == OCT_OK) status = try_hooks(*root, example);
    if (status == OCT_OK && report) status = oct_report_write(report, *root);
    return status;
}
