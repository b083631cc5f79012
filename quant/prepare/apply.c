/* Carries a plan without problems out: modules, hooks, stubs, fake-quants, and the graph. */
#include "core/base/mem.h"
#include "quant/prepare/apply_impl.h"

/* Drops the hooks of members that the user gave up. */
static void drop_member_hooks(oct_apply *w, int64_t at)
{
    const oct_prepare_node *p = &w->plan->nodes[at];
    for (int i = 0; i < p->num_members; i++) {
        oct_module *called = w->graph->nodes[p->member[i]].called;
        if (called) oct_drop_hooks(called, i > 0, i < p->num_members - 1);
    }
}

static bool hooks_compute(const oct_apply *w, const oct_module *called)
{
    for (size_t i = 0; i < w->graph->num_nodes; i++)
        if (w->graph->nodes[i].hook == called) return true;
    return false;
}

/* Moves the last member's hooks to the fused module. Those of a module that is called elsewhere
 * too stay there, and hooks that compute stay where the forward's order has them. */
static void move_hooks(oct_apply *w, int64_t at)
{
    const oct_module *called = w->graph->nodes[oct_prepare_last_member(w->plan, at)].called;
    if (w->plan->nodes[at].num_members > 1 && called &&
        oct_prepare_num_calls(w->plan, called) == 1 && !hooks_compute(w, called))
        oct_hooks_move(&oct_apply_slot_of(w, called)->now->hooks, &w->made[at]->hooks);
}

static void drop_scope_hooks(oct_apply *w, oct_mode mode)
{
    const oct_graph *g = w->graph;
    for (size_t i = 0; i < g->num_scopes[mode]; i++) {
        const oct_trace_scope *s = &g->scopes[mode][i];
        bool in = oct_prepare_fused_away_in(w->plan, s->input) >= 0;
        bool out = oct_prepare_fused_away_in(w->plan, s->output) >= 0;
        oct_drop_hooks(s->module, in, out);
    }
}

static oct_status make_all(oct_apply *w)
{
    const int64_t count = (int64_t)w->graph->num_nodes;
    drop_scope_hooks(w, OCT_MODE_EVALUATION);
    drop_scope_hooks(w, OCT_MODE_TRAINING);
    for (int64_t i = 0; i < count; i++)
        if (oct_prepare_runs_quantized(w->plan, i)) drop_member_hooks(w, i);
    for (int64_t i = 0; i < count; i++)
        if (oct_prepare_runs_quantized(w->plan, i)) OCT_TRY(oct_apply_make_module(w, i));
    return OCT_OK;
}

/* Makes what was fused away everywhere an identity. */
static oct_status empty_slots(oct_apply *w)
{
    for (size_t i = 0; i < w->num_slots; i++) {
        oct_apply_slot *s = &w->slots[i];
        oct_module *old = NULL;
        if (s->keep || s->now != s->was) continue;
        OCT_TRY(oct_apply_take_out(w, s, &old));
        oct_module_destroy(&old);
    }
    for (int64_t i = 0; i < (int64_t)w->graph->num_nodes; i++)
        if (oct_prepare_runs_quantized(w->plan, i)) move_hooks(w, i);
    return OCT_OK;
}

static oct_status add_stub(oct_apply *w, int64_t value, bool quantize)
{
    oct_module *stub = NULL, *parent = oct_prepare_stub_parent(w->plan, value);
    OCT_TRY(quantize ? oct_quant_stub_create(&stub) : oct_dequant_stub_create(&stub));
    oct_module *kept = stub;
    OCT_TRY(oct_graph_add_module(w->graph, parent, stub->type->name, &stub));
    *(quantize ? &w->graph->values[value].quantize : &w->graph->values[value].dequantize) = kept;
    return OCT_OK;
}

static oct_status add_stubs(oct_apply *w)
{
    if (w->plan->options->method == OCT_METHOD_EAGER) return OCT_OK;
    for (size_t v = 0; v < w->graph->num_values; v++)
        if (w->plan->values[v].quantize) OCT_TRY(add_stub(w, (int64_t)v, true));
    for (size_t v = 0; v < w->graph->num_values; v++)
        if (w->plan->values[v].dequantize) OCT_TRY(add_stub(w, (int64_t)v, false));
    return OCT_OK;
}

/* The scale of values in [0, 1], or of a function that the target fixes in [-1, 1]; codes around a middle have half as
 * many above it. */
static float fixed_scale(const oct_prepare_plan *plan, const oct_prepare_value *group)
{
    const float steps = group->qconfig.bits == 16 ? 65536.0f : 256.0f;
    const bool centred = group->is_signed && plan->target->fixed_functions;
    return plan->target->unsigned_codes && !centred ? 1.0f / steps : 2.0f / steps;
}

static oct_status new_fake_quant(const oct_apply *w, const oct_prepare_value *group,
                                 oct_fake_quant **fq)
{
    OCT_TRY(oct_fake_quant_create(fq, &group->qconfig, w->plan->target, group->is_signed));
    if (group->fixed) oct_fake_quant_fix(*fq, fixed_scale(w->plan, group));
    return OCT_OK;
}

/* Gives the module that makes the codes of a value its group's fake-quant: a new or a borrowed
 * one. */
static oct_status give_fake_quant(oct_apply *w, int64_t value)
{
    int64_t root = oct_prepare_group_of(w->plan, value);
    if (root < 0) return OCT_OK;
    oct_prepare_value *group = &w->plan->values[root];
    oct_graph_value *v = &w->graph->values[value];
    oct_module *maker = v->quantize ? v->quantize : v->producer >= 0 ? w->made[v->producer] : NULL;
    if (maker && oct_is_quantized(maker) && !((oct_quantized *)maker)->fake_quant) {
        oct_fake_quant *fq = NULL;
        ((oct_quantized *)maker)->target = w->plan->target;
        if (group->fq) {
            oct_quantized_borrow(maker, group->fq);
        } else {
            OCT_TRY(new_fake_quant(w, group, &fq));
            group->fq = fq;
            OCT_TRY(oct_quantized_adopt(maker, &fq));
            oct_module_train(&group->fq->base, maker->training);
        }
    }
    v->fq = group->fq;
    return OCT_OK;
}

static oct_status give_fake_quants(oct_apply *w)
{
    for (size_t i = 0; i < w->graph->num_nodes; i++)
        if (w->made[i] && oct_is_quantized(w->made[i]))
            ((oct_quantized *)w->made[i])->target = w->plan->target;
    for (size_t v = 0; v < w->graph->num_values; v++)
        OCT_TRY(give_fake_quant(w, (int64_t)v));
    return OCT_OK;
}

/* Completes a float node. An op gets a module where nothing else could run it: in symbolic, after
 * codes, and in a hook, whose result has a value of its own then. */
static oct_status write_float(oct_apply *w, int64_t node)
{
    oct_graph_node *n = &w->graph->nodes[node];
    bool symbolic = w->plan->options->method == OCT_METHOD_SYMBOLIC;
    bool eager = w->plan->options->method == OCT_METHOD_EAGER;
    bool after = oct_prepare_reads_codes(w->plan, node, n->num_inputs);
    n->action = after || n->hook ? OCT_NODE_RUN : OCT_NODE_UNTOUCHED;
    n->module = n->called ? oct_apply_slot_of(w, n->called)->now : NULL;
    n->wants = w->plan->nodes[node].role == OCT_ROLE_DEQUANT_STUB ? OCT_WANTS_ANY : OCT_WANTS_FLOAT;
    if (n->called || eager || (!symbolic && n->action == OCT_NODE_UNTOUCHED)) return OCT_OK;
    oct_module *made = NULL;
    OCT_TRY(w->plan->nodes[node].type->create(&made, &n->args));
    return oct_apply_insert(w, node, &made);
}

static oct_status write_node(oct_apply *w, int64_t node)
{
    oct_prepare_node *p = &w->plan->nodes[node];
    oct_graph_node *n = &w->graph->nodes[node];
    n->wants = OCT_WANTS_ANY;
    n->runs_at = p->runs_at;
    if (p->runs_at != node || p->passes) {
        n->action = OCT_NODE_ALIAS;
        n->module = NULL;
    } else if (p->quantized) {
        n->action = w->made[node] ? OCT_NODE_RUN : OCT_NODE_UNTOUCHED;
        n->module = w->made[node];
        n->wants = p->role == OCT_ROLE_QUANT_STUB ? OCT_WANTS_FLOAT : OCT_WANTS_CODES;
        if (p->fusion) OCT_TRY(oct_strdup(&n->fusion, p->fusion->name));
    } else {
        OCT_TRY(write_float(w, node));
        n->module = w->made[node] ? w->made[node] : n->module;
    }
    n->note = p->why;
    p->why = NULL;
    char decider[OCT_SETTER_BYTES];
    return p->decider ? oct_strdup(&n->decider, oct_setter_text(p->decider, decider)) : OCT_OK;
}

static oct_status write_graph(oct_apply *w)
{
    for (size_t v = 0; v < w->graph->num_values; v++)
        w->graph->values[v].codes = w->plan->values[v].codes;
    for (size_t i = 0; i < w->graph->num_nodes; i++)
        OCT_TRY(write_node(w, (int64_t)i));
    for (size_t i = 0; i < w->graph->num_nodes; i++) {
        oct_graph_node *n = &w->graph->nodes[i];
        const oct_apply_slot *hook = n->hook ? oct_apply_slot_of(w, n->hook) : NULL;
        if (n->called) n->called = oct_apply_slot_of(w, n->called)->now;
        if (hook) n->hook = hook->now;
    }
    return OCT_OK;
}

oct_status oct_prepare_apply(oct_prepare_plan *plan)
{
    oct_apply w = {.plan = plan, .graph = plan->graph};
    oct_status status;
    oct_graph_attach(plan->graph, *plan->root);
    OCT_TRY_OUT(oct_alloc(&w.made, plan->graph->num_nodes, sizeof(oct_module *)));
    OCT_TRY_OUT(oct_apply_find_slots(&w));
    OCT_TRY_OUT(make_all(&w));
    OCT_TRY_OUT(empty_slots(&w));
    OCT_TRY_OUT(add_stubs(&w));
    OCT_TRY_OUT(give_fake_quants(&w));
    OCT_TRY_OUT(write_graph(&w));
out:
    oct_free(&w.made);
    oct_free(&w.slots);
    return status;
}
