/* Convert: the trace of what the prepared model executes in eval mode, node by node, as steps of the
 * integer program. Modules write their own steps, with constants from their own routines, so the
 * program cannot differ from the evaluation; oct_program_check proves the rest (shapes, overflow
 * bounds). What has no integer form and can be made again from its arguments stays as a float fallback.
 */
#include "quant/convert/convert.h"

#include "core/base/cpu.h"
#include "core/base/mem.h"
#include "quant/module/rule.h"
#include "quant/module/emit.h"

#include <stdio.h>
#include <string.h>

typedef struct conversion {
    oct_emitter emitter;
    oct_trace trace; /* of one sample in evaluation: what is converted */
    const oct_graph *graph;
    oct_text *fallbacks; /* may be NULL */
} conversion;

/* The path of a node's module, or of the caller of its op, in a sentence. */
static const char *caller_text(const oct_trace_node *node)
{
    return node->path[0] ? node->path : "the model";
}

/* The type of the node's module, or of the functional op's module form; NULL: none. */
static const oct_module_type *type_of(const oct_trace_node *node)
{
    return node->module ? node->module->type : oct_module_type_find(node->op);
}

/* Why a traced call stays float: what prepare noted at the same call of the graph, or a general reason. */
static const char *fallback_note(const conversion *c, const oct_trace_node *node)
{
    const oct_graph *graph = c->graph;
    for (size_t i = 0; i < graph->num_nodes; i++) {
        const oct_graph_node *n = &graph->nodes[i];
        /* A function has no module: its path and operator name it. */
        const bool same = node->module ? n->module == node->module
                                       : !n->called && strcmp(n->path, node->path) == 0 &&
                                             strcmp(n->op, node->op) == 0;
        if (same && n->note) return n->note;
    }
    return oct_quant_rule_find(type_of(node)) ? "what it gets is float" : "it has no integer form";
}

/* Refuses a call that stays float if its module cannot be made again from arguments, or if it gets no floats. */
static oct_status check_fallback(const oct_emitter *e)
{
    const oct_trace_node *node = e->node;
    const oct_module_type *type = type_of(node);
    OCT_CHECK(type && type->args, OCT_PREPARE,
              "%s: %s stays float and cannot be made again from arguments, so it cannot be part of "
              "the deployed model; quantize it, list the arguments in its spec, or move it out "
              "of the model",
              caller_text(node), node->op);
    OCT_CHECK(!node->module || node->module->num_children == 0, OCT_PREPARE,
              "%s: a %s that stays float has modules of its own, which the deployed model cannot "
              "hold; make it a container, or give it parameters instead",
              caller_text(node), node->op);
    for (int i = 0; i < node->num_inputs; i++) {
        const oct_dtype dtype = oct_emit_input(e, i)->dtype;
        OCT_CHECK(dtype != OCT_S32, OCT_PREPARE,
                  "%s: %s computes with class numbers, which a deployed model only returns; do it "
                  "outside of the model",
                  caller_text(node), node->op);
        OCT_CHECK(dtype == OCT_F32, OCT_PREPARE,
                  "%s: %s stays float but is given codes; put a DeQuantStub before it",
                  caller_text(node), node->op);
    }
    return OCT_OK;
}

/* Writes a node that stays float as a step that holds its module's type, arguments and arrays. */
static oct_status emit_fallback(conversion *c)
{
    oct_emitter *e = &c->emitter;
    const oct_trace_node *node = e->node;
    oct_step *step;
    size_t capacity = 0; /* of the fallback's arrays */
    OCT_TRY(check_fallback(e));
    OCT_TRY(oct_emit_step(e, OCT_STEP_FLOAT, &step));
    OCT_TRY(oct_alloc(&step->fallback, 1, sizeof *step->fallback));
    oct_fallback *fallback = step->fallback;
    snprintf(fallback->type, sizeof fallback->type, "%s", type_of(node)->name);
    fallback->args = node->args;
    for (int i = 0; i < node->num_inputs; i++)
        fallback->dims[i] = e->trace->values[node->input[i]].shape.ndim;
    const oct_module *m = node->module;
    for (size_t i = 0; m && i < m->num_params; i++) {
        const oct_tensor *x = &m->params[i]->value;
        OCT_TRY(oct_fallback_add_array(fallback, &capacity, m->params[i]->name, x->dtype, &x->shape,
                                       x->data));
    }
    for (size_t i = 0; m && i < m->num_buffers; i++) {
        const oct_tensor *x = &m->buffers[i].tensor;
        OCT_TRY(oct_fallback_add_array(fallback, &capacity, m->buffers[i].name, x->dtype, &x->shape,
                                       x->data));
    }
    if (c->fallbacks)
        OCT_TRY(oct_text_add(c->fallbacks, "%s (%s): %s\n", step->name, fallback->type,
                             fallback_note(c, node)));
    return oct_emit_output(e, step, OCT_F32, (oct_qparams){0});
}

/* Logs how often each dynamic block ran, since the program has no loops. */
static oct_status note_blocks(const conversion *c)
{
    const oct_trace *trace = c->emitter.trace;
    for (size_t i = 0; i < trace->num_scopes && c->fallbacks; i++) {
        const oct_trace_scope *s = &trace->scopes[i];
        int runs = 0;
        for (size_t k = 0; k < trace->num_scopes && s->name; k++) {
            const oct_trace_scope *other = &trace->scopes[k];
            const bool same =
                other->name && other->module == s->module && strcmp(other->name, s->name) == 0;
            if (same && k < i) break; /* counted */
            runs += same;
        }
        if (runs > 0)
            OCT_TRY(oct_text_add(c->fallbacks,
                                 "%s (dynamic block %s): unrolled, it runs %d times as in this "
                                 "evaluation\n",
                                 s->module->parent ? oct_module_path(s->module).text : "the model",
                                 s->name, runs));
    }
    return OCT_OK;
}

static oct_status check_prepared(bool prepared)
{
    OCT_CHECK(
        prepared, OCT_PREPARE,
        "the model is not prepared: call oct_prepare, or convert a checkpoint of its QAT phase");
    return OCT_OK;
}

/* Fails while a quantizer's scale still moves. */
static oct_status check_frozen(oct_module *root)
{
    OCT_OWNED(oct_quantizers_free) oct_quantizers all = {0};
    OCT_TRY(oct_quantizers_collect(&all, root));
    OCT_TRY(check_prepared(all.count > 0));
    for (size_t i = 0; i < all.count; i++)
        OCT_CHECK(all.items[i]->state == OCT_QUANT_FROZEN, OCT_PREPARE,
                  "activation scales still move; call oct_set_fake_quant(root, "
                  "OCT_STATE_VALIDATION) first, or convert a checkpoint of the end of a run");
    return OCT_OK;
}

static oct_status check_target(const oct_graph *graph, const oct_target *target)
{
    OCT_TRY(check_prepared(graph));
    OCT_CHECK(target, OCT_USAGE,
              "convert wants to know the target; pass the one that the model was prepared for "
              "(oct_target_find(\"%s\"))",
              graph->target->name);
    OCT_CHECK(graph->target == target, OCT_PREPARE,
              "the model was prepared for %s and learned that target's rounding, so it cannot be "
              "converted for %s; train its QAT phase with quant.target %s",
              graph->target->name, target->name, target->name);
    return OCT_OK;
}

/* Writes a step for each node that an output depends on. */
static oct_status emit_nodes(conversion *c)
{
    oct_emitter *e = &c->emitter;
    const oct_trace *trace = e->trace;
    oct_program *program = e->program;
    oct_status failed = OCT_OK;
    bool *live;
    program->num_inputs = trace->num_inputs;
    for (int i = 0; i < trace->num_inputs; i++)
        OCT_TRY(oct_emitter_add_value(e, trace->inputs[i], OCT_F32, (oct_qparams){0},
                                      &program->inputs[i]));
    OCT_TRY(oct_trace_live(trace, &live));
    for (size_t i = 0; i < trace->num_nodes && failed == OCT_OK; i++) {
        const oct_trace_node *node = e->node = &trace->nodes[i];
        if (!live[i]) continue;
        const oct_quant_rule *rule = oct_quant_rule_find(type_of(node));
        if (node->module && node->module->type->emit)
            failed = node->module->type->emit(node->module, e);
        else if (rule && rule->emit && (rule->any_domain || oct_emit_input(e, 0)->dtype != OCT_F32))
            failed = rule->emit(e);
        else
            failed = emit_fallback(c);
    }
    oct_free(&live);
    OCT_TRY(failed);
    OCT_CHECK(trace->values[trace->output].shape.ndim > 0, OCT_PREPARE,
              "the forward returns one number for the whole batch, a loss, in evaluation mode too; "
              "a deployed model returns something for each sample");
    program->output = e->value_of[trace->output];
    const oct_dtype output = program->values[program->output].dtype;
    OCT_CHECK(output == OCT_F32 || output == OCT_S32, OCT_PREPARE,
              "the model's output is codes; end it with a DeQuantStub");
    return note_blocks(c);
}

static void end_conversion(conversion *c)
{
    oct_free(&c->emitter.value_of);
    oct_trace_free(&c->trace);
}

/* Traces the model and makes the program; the trace, and its values' program numbers, stay until end_conversion. */
static oct_status begin_conversion(conversion *c, oct_program *program, oct_module *root,
                                   const oct_example *example, const oct_target *target,
                                   oct_text *fallbacks)
{
    *c = (conversion){.emitter = {.program = program, .trace = &c->trace},
                      .graph = oct_graph_of(root),
                      .fallbacks = fallbacks};
    int32_t **value_of = &c->emitter.value_of;
    *program = (oct_program){.requantizer = target->requantizer};
    snprintf(program->target, sizeof program->target, "%s", target->name);
    OCT_TRY(oct_trace_run(&c->trace, root, example));
    OCT_TRY(oct_alloc(value_of, c->trace.num_values, sizeof **value_of));
    for (size_t i = 0; i < c->trace.num_values; i++)
        (*value_of)[i] = -1;
    OCT_TRY(emit_nodes(c));
    return oct_program_check(program);
}

oct_status oct_convert(oct_program *program, oct_module *root, const oct_example *example,
                       const oct_target *target, oct_text *fallbacks)
{
    conversion c;
    *program = (oct_program){0};
    OCT_TRY(oct_check_rounding());
    OCT_TRY(check_target(oct_graph_of(root), target));
    OCT_TRY(check_frozen(root));
    const oct_status status = begin_conversion(&c, program, root, example, target, fallbacks);
    end_conversion(&c);
    if (status != OCT_OK) oct_program_free(program);
    return status;
}

typedef struct watch {
    const int32_t *value_of;
    oct_value_fn show;
    void *user;
} watch;

/* Shows a traced value that is one of the program. */
static void show_value(void *user, int64_t traced, const oct_tensor *tensor)
{
    const watch *w = user;
    const size_t bytes = (size_t)oct_numel(tensor) * oct_dtype_bytes(tensor->dtype);
    if (w->value_of[traced] >= 0) w->show(w->user, w->value_of[traced], tensor->data, bytes);
}

/* Whether two programs have the same steps on the same values, in the same order. */
static bool same_steps(const oct_program *a, const oct_program *b)
{
    bool same = a->num_steps == b->num_steps && a->num_values == b->num_values;
    for (int64_t i = 0; same && i < a->num_steps; i++)
        same = a->steps[i].kind == b->steps[i].kind && a->steps[i].output == b->steps[i].output &&
               a->steps[i].num_inputs == b->steps[i].num_inputs &&
               memcmp(a->steps[i].input, b->steps[i].input, sizeof a->steps[i].input) == 0 &&
               strcmp(a->steps[i].name, b->steps[i].name) == 0;
    return same;
}

oct_status oct_convert_watch(const oct_program *program, oct_module *root,
                             const oct_example *example, oct_value_fn show, void *user)
{
    OCT_OWNED(end_conversion) conversion c = {0};
    OCT_OWNED(oct_program_free) oct_program again = {0};
    OCT_OWNED(oct_trace_free) oct_trace second = {0};
    const oct_graph *graph = oct_graph_of(root);
    OCT_TRY(check_prepared(graph));
    OCT_TRY(begin_conversion(&c, &again, root, example, graph->target, NULL));
    OCT_CHECK(same_steps(program, &again), OCT_MISMATCH,
              "the model's forward calls other operations on this sample than the program has; "
              "what a forward does must not depend on the values of its input");
    watch w = {.value_of = c.emitter.value_of, .show = show, .user = user};
    return oct_trace_watch(&second, NULL, root, example, show_value, &w);
}
