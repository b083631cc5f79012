/* What could fail later fails here: all problems of the plan are found before anything is
 * changed. */
#include "quant/prepare/prepare_plan.h"

#include "core/base/mem.h"

#include <string.h>

/* The float layer with the weights of what runs at a node, or NULL. */
static oct_module *layer_of(const oct_prepare_plan *plan, int64_t at)
{
    oct_module *called = plan->graph->nodes[plan->nodes[at].member[0]].called;
    if (oct_prepare_layer(plan, at) >= 0) return called;
    return called && called->type == &oct_qat_conv_type ? ((oct_qat_conv *)called)->layer : NULL;
}

/* Refuses a layer whose sums could overflow, or that has more channels than the target computes. */
static void check_layer(oct_prepare_plan *plan, int64_t at)
{
    const oct_module *layer = layer_of(plan, at);
    if (!layer) return;
    const oct_path_text path = oct_module_path(layer);
    const oct_tensor *weight = &oct_layer_weight(layer)->value;
    const int64_t channels = oct_dim(weight, 0), products = oct_numel(weight) / channels;
    if (products > OCT_MAX_PRODUCTS)
        OCT_PROBLEM(plan,
                    "%s: %lld products in one sum could overflow int32; at most %d are allowed, so "
                    "split the layer or set its qconfig to none",
                    path.text, (long long)products, OCT_MAX_PRODUCTS);
    if (channels > plan->target->max_channels)
        OCT_PROBLEM(plan,
                    "%s: has %lld channels, and target %s allows at most %lld; split the layer or "
                    "set its qconfig to none (in a recipe, quant.float_layers)",
                    path.text, (long long)channels, plan->target->name,
                    (long long)plan->target->max_channels);
}

/* Refuses a sum or difference of two values that has more channels than the target adds. */
static void check_sum(oct_prepare_plan *plan, int64_t at)
{
    const oct_prepare_node *p = &plan->nodes[at];
    for (int m = 0; m < p->num_members; m++) {
        const oct_graph_node *node = &plan->graph->nodes[p->member[m]];
        const char *type = oct_prepare_type(plan, p->member[m]);
        const oct_shape *shape = &plan->graph->values[node->output].shape;
        const int64_t channels = shape->ndim > 0 ? shape->dim[shape->ndim - 1] : 0;
        if ((strcmp(type, "add") == 0 || strcmp(type, "sub") == 0) &&
            channels > plan->target->max_channels)
            OCT_PROBLEM(
                plan,
                "%s: adds values of %lld channels, and target %s allows at most %lld; split "
                "it, or set its qconfig to none (in a recipe, quant.float_layers)",
                oct_prepare_site_text(plan, at).text, (long long)channels, plan->target->name,
                (long long)plan->target->max_channels);
    }
}

/* Refuses a batch norm that cannot be folded though that is asked for, or that must be. */
static void check_norm(oct_prepare_plan *plan, int64_t at)
{
    const oct_prepare_node *p = &plan->nodes[at];
    const oct_module *layer = layer_of(plan, at);
    const oct_module *called = plan->graph->nodes[at].called;
    const bool folds = plan->options->fold_batch_norm;
    const bool fused_by_name =
        called && p->role == OCT_ROLE_FUSED &&
        (called->type == &oct_qat_batch_norm_type ||
         (called->type == &oct_qat_conv_type && ((const oct_qat_conv *)called)->batch_norm));
    if (oct_prepare_member(plan, at, OCT_MEMBER_BN) < 0 && !fused_by_name) return;
    const oct_call_name name = oct_graph_node_text(&plan->graph->nodes[p->member[0]]);
    if (folds && layer && oct_module_is_tied(layer))
        OCT_PROBLEM(plan,
                    "%s: another layer has the same weights, so its batch norm cannot be folded "
                    "into them; keep it live (options.fold_batch_norm; in a recipe, "
                    "quant.batch_norm: live)",
                    name.text);
    if (folds) return;
    if (layer && oct_list_has(plan->target->per_tensor, layer->type->name))
        OCT_PROBLEM(
            plan,
            "%s: target %s has one scale for all weights of such a layer, and a live batch "
            "norm gives each channel its own; fold it (options.fold_batch_norm; in a recipe, "
            "quant.batch_norm: folded)",
            name.text, plan->target->name);
    else if (oct_requantizer_shifts(plan->target->requantizer))
        OCT_PROBLEM(plan,
                    "%s: target %s shifts and cannot run a live batch norm; fold it "
                    "(options.fold_batch_norm; in a recipe, quant.batch_norm: folded)",
                    name.text, plan->target->name);
}

/* Refuses a layer that was fused by hand with an add, where the target has no such layer. */
static void check_addend(oct_prepare_plan *plan, int64_t at)
{
    const oct_module *called = plan->graph->nodes[at].called;
    if (!called || called->type != &oct_qat_conv_type || !((const oct_qat_conv *)called)->add)
        return;
    const bool linear = ((const oct_qat_conv *)called)->layer->type == &oct_linear_type;
    if (!oct_target_fuses(plan->target, linear ? "linear_add" : "conv_add"))
        OCT_PROBLEM(plan,
                    "%s: target %s cannot add something to a layer before it is rounded; do not "
                    "fuse the add, or use jit_strip",
                    plan->graph->nodes[at].path, plan->target->name);
}

/* Notes that hooks of a module are dropped; false: they are not to be dropped. */
static bool drops_hooks(oct_prepare_plan *plan, int64_t at, const char *path)
{
    if (!plan->options->drop_hooks) return false;
    oct_prepare_keep_status(
        plan, oct_prepare_note(&plan->nodes[at], "hooks of %s were dropped by fusion", path));
    return true;
}

/* Checks that the modules of a fusion agree, in mode and channels, and that no hook sees a value that the fusion
 * removes: the first one's pre hooks and the last one's hooks live on. */
static void check_members(oct_prepare_plan *plan, int64_t at)
{
    const oct_prepare_node *p = &plan->nodes[at];
    oct_module *called[OCT_MAX_MEMBERS], *modules[OCT_MAX_MEMBERS];
    int count = 0;
    for (int i = 0; i < p->num_members; i++) {
        const oct_graph_node *node = &plan->graph->nodes[p->member[i]];
        called[i] = node->called;
        if (!called[i]) continue;
        modules[count++] = called[i];
        if ((i > 0 && called[i]->pre_hooks) || (i < p->num_members - 1 && called[i]->hooks))
            drops_hooks(plan, at, node->path);
    }
    if (count > 1 && oct_members_agree(modules, count) != OCT_OK) plan->problems++;
    if (!plan->options->drop_hooks && oct_fusion_check_hooks(called, p->num_members) != OCT_OK)
        plan->problems++;
}

/* Refuses a container's hook, of this kind, that would see a value from inside of a fusion. */
static void check_scope_hook(oct_prepare_plan *plan, const oct_trace_scope *scope, const char *kind,
                             int64_t value)
{
    const oct_path_text path = oct_module_path(scope->module);
    const int64_t at = oct_prepare_fused_away_in(plan, value);
    if (at < 0 || drops_hooks(plan, at, path.text)) return;
    OCT_PROBLEM(plan,
                "%s: its %s hook would see a value that fusion (%s) removes; put it on a module at "
                "the fusion's end, or let prepare drop hooks",
                path.text, kind, plan->nodes[at].fusion->name);
}

/* The called batch norm that is fused at a node, or NULL. */
static const oct_module *norm_at(const oct_prepare_plan *plan, int64_t at)
{
    int64_t norm = oct_prepare_member(plan, at, OCT_MEMBER_BN);
    return norm < 0 ? NULL : plan->graph->nodes[norm].called;
}

/* Whether two calls can share a module as to the activation that is fused after them: calls of a layer share its
 * weights and have an activation each, calls of a batch norm have one. */
static bool same_activation_after(const oct_prepare_plan *plan, int64_t a, int64_t b)
{
    const oct_fusion *x = plan->nodes[a].fusion, *y = plan->nodes[b].fusion;
    const oct_graph_node *nodes = plan->graph->nodes;
    if (oct_prepare_layer(plan, a) >= 0) return true;
    return x == y && oct_op_args_equal(&nodes[oct_prepare_last_member(plan, a)].args,
                                       &nodes[oct_prepare_last_member(plan, b)].args);
}

/* Refuses a module with weights whose calls would become different things. */
static void check_shared(oct_prepare_plan *plan, int64_t i)
{
    const oct_graph *g = plan->graph;
    const oct_prepare_node *p = &plan->nodes[i];
    bool shares = oct_prepare_has_weights(p) || plan->options->method == OCT_METHOD_EAGER;
    if (!g->nodes[i].called || !shares || oct_prepare_is_first_call(plan, i)) return;
    for (int64_t k = 0; k < i; k++) {
        if (g->nodes[k].called != g->nodes[i].called) continue;
        int64_t a = plan->nodes[k].runs_at, b = p->runs_at;
        if (plan->nodes[a].quantized == plan->nodes[b].quantized &&
            same_activation_after(plan, a, b) && norm_at(plan, a) == norm_at(plan, b) &&
            layer_of(plan, a) == layer_of(plan, b))
            return;
        OCT_PROBLEM(plan,
                    "%s: is called more than once, and the calls would become different things "
                    "(quantized or not, fused with a batch norm or not); use a module of its own "
                    "for each call",
                    g->nodes[i].path);
        return;
    }
}

/* Refuses to compute with class numbers, which a deployed model only moves and returns. */
static void check_numbers(oct_prepare_plan *plan, int64_t i)
{
    const oct_graph_node *node = &plan->graph->nodes[i];
    const oct_quant_rule *rule = plan->nodes[i].rule;
    bool moves = rule && rule->scale == OCT_SCALE_INPUT && !rule->made;
    const int64_t *inputs = node->called_input[OCT_MODE_EVALUATION];
    if (moves || plan->nodes[i].role == OCT_ROLE_DEQUANT_STUB) return;
    for (int k = 0; node->in[OCT_MODE_EVALUATION] && k < node->num_inputs; k++)
        if (plan->graph->values[inputs[k]].dtype == OCT_S32)
            OCT_PROBLEM(plan,
                        "%s: computes with the class numbers of %s, which a deployed model only "
                        "returns; do it outside of the model",
                        oct_graph_node_text(&plan->graph->nodes[i]).text,
                        oct_graph_producer_text(plan->graph, inputs[k]).text);
}

/* Refuses codes whose range no training step sees, at the first value of each group that has one scale. */
static void check_range(oct_prepare_plan *plan, int64_t value)
{
    const oct_graph *g = plan->graph;
    int64_t root = oct_prepare_group_of(plan, value), maker = g->values[value].producer;
    if (root < 0 || root != value || plan->values[root].fixed) return;
    for (int64_t v = value; v < (int64_t)g->num_values; v++) {
        int64_t producer = g->values[v].producer;
        bool trained = producer < 0 || g->nodes[producer].in[OCT_MODE_TRAINING];
        if (trained && oct_prepare_group_of(plan, v) == root) return;
    }
    OCT_PROBLEM(
        plan,
        "%s: only evaluation makes its values, and nothing is observed there, so they could "
        "be quantized with no range; let training make them too, or set the qconfig of what "
        "reads them to none",
        oct_graph_node_text(&plan->graph->nodes[maker]).text);
}

/* Refuses what only training calls where it needs a module, because the forward's own operation
 * cannot run, and none can be made. */
static void check_for_training(oct_prepare_plan *plan, int64_t i)
{
    const oct_graph_node *node = &plan->graph->nodes[i];
    const oct_module_type *type = plan->nodes[i].type;
    if (node->called || (type && type->args)) return;
    const oct_call_name name = oct_graph_node_text(&plan->graph->nodes[i]);
    if (plan->options->method == OCT_METHOD_SYMBOLIC)
        OCT_PROBLEM(plan,
                    "%s has no module form, so the recorded graph could not run it; prepare with "
                    "jit or jit_strip",
                    name.text);
    for (int k = 0; k < node->num_inputs; k++) {
        int64_t input = oct_prepare_input(plan, i, k);
        if (plan->values[input].codes)
            OCT_PROBLEM(plan,
                        "%s has no module form, but gets quantized values from %s; put a "
                        "DeQuantStub before it",
                        name.text, oct_graph_producer_text(plan->graph, input).text);
    }
}

/* Refuses what stays float but cannot be described in a model file. */
static void check_fallback(oct_prepare_plan *plan, int64_t i)
{
    const oct_prepare_node *p = &plan->nodes[i];
    bool stub = p->role == OCT_ROLE_QUANT_STUB || p->role == OCT_ROLE_DEQUANT_STUB;
    const oct_module *called = plan->graph->nodes[i].called;
    if (plan->nodes[p->runs_at].quantized || stub) return;
    if (!plan->graph->nodes[i].in[OCT_MODE_EVALUATION]) {
        check_for_training(plan, i);
        return;
    }
    if (p->role == OCT_ROLE_FUSED) {
        OCT_PROBLEM(
            plan,
            "%s: was fused by name but %s, where it could not be deployed; do not fuse what "
            "is to stay float",
            plan->graph->nodes[i].path, p->note ? p->note : "gets float values");
        return;
    }
    if (called && called->num_children > 0)
        OCT_PROBLEM(
            plan,
            "%s: a %s that stays float has modules of its own, which a deployed model cannot "
            "hold; make it a container, or give it parameters instead",
            plan->graph->nodes[i].path, called->type->name);
    if (p->type && p->type->args) return;
    const oct_call_name name = oct_graph_node_text(&plan->graph->nodes[i]);
    if (!p->type)
        OCT_PROBLEM(
            plan,
            "%s has no module form, so it could be neither replaced nor deployed; compute it "
            "in an atomic module of your own, or outside of the model",
            name.text);
    else
        OCT_PROBLEM(plan,
                    "%s: its type %s has no list of arguments, so it could not be deployed; list "
                    "them in its spec (octet/nn.h)",
                    name.text, p->type->name);
}

/* Notes that a hook keeps a layer from being fused with its batch norm. */
static void note_hook_reader(oct_prepare_plan *plan, int64_t i)
{
    const oct_graph_node *node = &plan->graph->nodes[i];
    oct_mode mode = oct_graph_mode_of(node);
    for (int k = 0; node->hook && k < node->num_inputs; k++) {
        int64_t producer = plan->graph->values[node->called_input[mode][k]].producer;
        oct_prepare_node *p = producer < 0 ? NULL : &plan->nodes[producer];
        if (!p || (p->role != OCT_ROLE_LAYER && p->role != OCT_ROLE_BATCH_NORM)) continue;
        if (oct_prepare_last_member(plan, p->runs_at) == producer && p->num_members > 1) continue;
        oct_prepare_keep_status(
            plan, oct_prepare_note(p, "is not fused with what follows: %s works on its output",
                                   oct_graph_node_text(node).text));
    }
}

/* Refuses a plan with qconfigs, but none where codes could be: a QuantStub alone makes codes
 * that nothing reads. */
static void check_any_quantized(oct_prepare_plan *plan)
{
    if (plan->problems > 0) return;
    for (size_t i = 0; i < plan->graph->num_nodes; i++)
        if (plan->nodes[i].quantized && plan->nodes[i].role != OCT_ROLE_QUANT_STUB) return;
    OCT_PROBLEM(plan,
                "nothing would be quantized: no module that has a quantized form gets quantized "
                "values; %s",
                plan->options->method == OCT_METHOD_EAGER
                    ? "give the QuantStub a qconfig, or prepare with jit, which does not ask for "
                      "stubs"
                    : "the network holds no layer that target arithmetic knows, such as a "
                      "convolution or a linear layer, or all of them are set to stay float");
}

/* Refuses setters that leave nothing to quantize. */
static void check_any_qconfig(oct_prepare_plan *plan)
{
    size_t count = plan->graph->num_nodes;
    const oct_prepare_options *o = plan->options;
    const oct_qconfig_setter *to_all = NULL, *to_none = NULL;
    for (size_t i = 0; i < count; i++)
        if (!plan->nodes[i].qconfig.none) return;
    for (size_t i = 0; i < o->num_setters; i++) {
        const oct_qconfig_setter *s = &o->setters[i];
        if (s->qconfig && !s->pattern) to_all = s;
        if (!s->qconfig && s->pattern) to_none = s;
    }
    if (count > 0 && to_all && to_none)
        OCT_PROBLEM(plan, "%s: every module stays float, so nothing would be quantized; name fewer",
                    to_none->name);
    else if (count > 0)
        OCT_PROBLEM(plan, "no module has a qconfig, so nothing would be quantized; give one to the "
                          "modules that are to be quantized (oct_setter_default: to all)");
}

/* Paths that a setter may mean: of modules of the tree and of those that would be generated. */
typedef struct paths {
    char **text;
    size_t count, capacity;
} paths;

static oct_status add_path(paths *all, const char *path)
{
    OCT_TRY(oct_grow(&all->text, &all->capacity, all->count + 1, sizeof *all->text));
    return oct_strdup(&all->text[all->count++], path);
}

static oct_status add_module_path(void *user, oct_module *module)
{
    return add_path(user, oct_module_path(module).text);
}

/* A name or type in a setter that fits nothing is a mistake: of a path, or of a table of another model. */
static oct_status check_setters(oct_prepare_plan *plan)
{
    const oct_graph *g = plan->graph;
    const oct_prepare_options *o = plan->options;
    const size_t before = oct_error_count();
    paths all = {0};
    const char **types = NULL;
    size_t num_types = 0;
    oct_status status;
    OCT_TRY_OUT(oct_alloc(&types, g->num_nodes + g->num_values, sizeof *types));
    OCT_TRY_OUT(oct_module_walk(*plan->root, add_module_path, &all));
    for (size_t i = 0; i < g->num_nodes; i++) {
        types[num_types++] = oct_prepare_type(plan, (int64_t)i);
        OCT_TRY_OUT(add_path(&all, plan->nodes[i].path));
    }
    for (size_t v = 0; v < g->num_values; v++) {
        if (!plan->values[v].quantize) continue;
        types[num_types++] = oct_quant_stub_type.name;
        OCT_TRY_OUT(add_path(&all, oct_prepare_stub_path(plan, (int64_t)v).text));
    }
    if (oct_setters_check_words(o->setters, o->num_setters, (const char *const *)all.text,
                                all.count, types, num_types) != OCT_OK)
        plan->problems += oct_error_count() - before;
out:
    for (size_t i = 0; i < all.count; i++)
        oct_free(&all.text[i]);
    oct_free(&all.text);
    oct_free(&types);
    return status;
}

/* Every run of a dynamic block must find what the first one found, codes or float. */
static void check_carried(oct_prepare_plan *plan, const oct_graph_carried_use *use, oct_mode mode)
{
    const oct_graph *g = plan->graph;
    const oct_graph_node *node = &g->nodes[use->node];
    int64_t first = oct_graph_resolve(g, node->called_input[mode][use->input], mode);
    int64_t later = oct_graph_resolve(g, use->value, mode);
    if (node->block < 0 || plan->values[first].codes == plan->values[later].codes) return;
    OCT_PROBLEM(plan,
                "dynamic block '%s': %s gets %s values from %s in its first run and others later; "
                "quantize all that enters the block (with a QuantStub before it) or nothing of it",
                g->blocks[node->block].name, oct_graph_node_text(node).text,
                plan->values[first].codes ? "quantized" : "float",
                oct_graph_producer_text(g, first).text);
}

/* Refuses a block that ran once and turns floats into codes or codes into floats: it is unknown which of its inputs is its
 * own result later. */
static void check_block(oct_prepare_plan *plan, int block)
{
    const oct_graph *g = plan->graph;
    const oct_graph_block *b = &g->blocks[block];
    bool entered[2] = {false}, made[2] = {false}; /* floats, codes */
    if (!oct_prepare_ran_once(plan, block)) return;
    for (size_t i = b->begin; i < b->end; i++) {
        const oct_graph_node *node = &g->nodes[i];
        for (int mode = 0; mode < OCT_MODES; mode++)
            for (int k = 0; k < node->num_inputs; k++) {
                int64_t value = oct_graph_resolve(g, node->called_input[mode][k], (oct_mode)mode);
                int64_t producer = g->values[value].producer;
                if (producer < 0 || g->nodes[producer].block != block)
                    entered[plan->values[value].codes] = true;
            }
        if (i + 1 == b->end)
            made[plan->values[oct_graph_resolve(g, node->output, oct_graph_mode_of(node))].codes] =
                true;
    }
    if ((entered[0] && made[1]) || (entered[1] && made[0]))
        OCT_PROBLEM(plan,
                    "dynamic block '%s': what enters it and what it makes are not both quantized "
                    "or both float, so it could not run a second time; quantize all that enters it "
                    "(with a QuantStub before it) or nothing of it",
                    b->name);
}

/* Refuses, before anything is changed, what could fail after prepare; problems are recorded and counted. */
oct_status oct_prepare_check(oct_prepare_plan *plan)
{
    const oct_graph *g = plan->graph;
    const int64_t output = g->output[OCT_MODE_EVALUATION];
    OCT_TRY(check_setters(plan));
    check_any_qconfig(plan);
    if (g->values[output].shape.ndim == 0)
        OCT_PROBLEM(
            plan,
            "the forward returns a loss in evaluation mode too, one number for the whole batch "
            "from %s, which cannot be deployed; return it in training mode only (self->training) "
            "and what the model predicts otherwise",
            oct_graph_producer_text(g, output).text);
    for (int64_t i = 0; i < (int64_t)g->num_nodes; i++) {
        note_hook_reader(plan, i);
        check_shared(plan, i);
        check_numbers(plan, i);
        check_fallback(plan, i);
        if (!oct_prepare_runs_quantized(plan, i)) continue;
        check_layer(plan, i);
        check_sum(plan, i);
        check_norm(plan, i);
        check_addend(plan, i);
        check_members(plan, i);
    }
    for (int mode = 0; mode < OCT_MODES; mode++)
        for (const oct_trace_scope *s = g->scopes[mode]; s < g->scopes[mode] + g->num_scopes[mode];
             s++) {
            if (s->module->pre_hooks) check_scope_hook(plan, s, "forward-pre", s->input);
            if (s->module->hooks) check_scope_hook(plan, s, "forward", s->output);
        }
    for (size_t i = 0; i < g->num_carried; i++) {
        size_t before = plan->problems;
        for (int mode = 0; mode < OCT_MODES && plan->problems == before; mode++)
            check_carried(plan, &g->carried[i], (oct_mode)mode);
    }
    for (size_t i = 0; i < g->num_blocks; i++)
        check_block(plan, (int)i);
    for (size_t v = 0; v < g->num_values; v++)
        check_range(plan, (int64_t)v);
    check_any_quantized(plan);
    return plan->status;
}
