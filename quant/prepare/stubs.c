/* Stubs that cannot be meant where they are, found before anything is placed: a DeQuantStub that
 * no QuantStub comes before, and a QuantStub that no DeQuantStub follows although the model has
 * some. Both together are swapped. They are problems where stubs decide what is quantized (eager,
 * jit_strip); elsewhere they are noted. Where eager can say better what is missing, it does
 * (eager.c). */
#include "quant/prepare/prepare_plan.h"

#include <stdio.h>

const char *oct_prepare_stub_line(oct_module *parent, bool quant, char text[OCT_STUB_LINE_BYTES])
{
    const char *kind = quant ? "quant" : "dequant";
    char name[32];
    int number = 0;
    snprintf(name, sizeof name, "%s", kind);
    while (oct_module_find(parent, name))
        snprintf(name, sizeof name, "%s%d", kind, ++number);
    snprintf(text, OCT_STUB_LINE_BYTES,
             "x = oct_call(cx, m->%s, x); /* made by oct_%s_stub_create(&m->%s) */", name, kind,
             name);
    return text;
}

static oct_mode mode_of(const oct_prepare_plan *plan, int64_t node)
{
    return oct_graph_mode_of(&plan->graph->nodes[node]);
}

static int64_t first_input(const oct_prepare_plan *plan, int64_t node)
{
    return plan->graph->nodes[node].called_input[mode_of(plan, node)][0];
}

/* Whether a DeQuantStub gets floats on every way from the model's inputs. */
static bool opens_nothing(const oct_prepare_plan *plan, int64_t node)
{
    return plan->nodes[node].role == OCT_ROLE_DEQUANT_STUB &&
           !plan->values[first_input(plan, node)].after[mode_of(plan, node)];
}

static bool is_unread(const oct_prepare_plan *plan, int64_t node)
{
    const int64_t output = plan->graph->nodes[node].output;
    for (int mode = 0; mode < OCT_MODES; mode++)
        if (output == plan->graph->output[mode] ||
            oct_prepare_is_read_in(plan, output, (oct_mode)mode))
            return false;
    return plan->nodes[node].role == OCT_ROLE_QUANT_STUB;
}

/* Whether a QuantStub gets what another one has made codes already. */
static bool is_second(const oct_prepare_plan *plan, int64_t node)
{
    return plan->nodes[node].role == OCT_ROLE_QUANT_STUB &&
           oct_prepare_has_role(plan, OCT_ROLE_DEQUANT_STUB) &&
           plan->graph->values[first_input(plan, node)].producer >= 0 &&
           plan->values[first_input(plan, node)].after[mode_of(plan, node)];
}

/* Whether no DeQuantStub takes a QuantStub's codes on any way to the model's output. */
static bool closes_nothing(const oct_prepare_plan *plan, int64_t node)
{
    return plan->nodes[node].role == OCT_ROLE_QUANT_STUB && !is_unread(plan, node) &&
           oct_prepare_has_role(plan, OCT_ROLE_DEQUANT_STUB) &&
           !plan->values[plan->graph->nodes[node].output].before[mode_of(plan, node)];
}

static int64_t first_node(const oct_prepare_plan *plan,
                          bool (*is)(const oct_prepare_plan *, int64_t))
{
    for (int64_t i = 0; i < (int64_t)plan->graph->num_nodes; i++)
        if (is(plan, i)) return i;
    return OCT_NO_INDEX;
}

static const char *maker_of(const oct_prepare_plan *plan, int64_t node, char text[OCT_CALL_BYTES])
{
    return oct_graph_producer_text(plan->graph, first_input(plan, node), text);
}

static void refuse_swapped(oct_prepare_plan *plan, int64_t dequant, int64_t quant)
{
    char before[OCT_CALL_BYTES], after[OCT_CALL_BYTES];
    const char *a = plan->graph->nodes[dequant].path, *b = plan->graph->nodes[quant].path;
    OCT_PROBLEM(plan,
                "%s and %s are swapped, so nothing would be quantized: %s is a DeQuantStub, but "
                "what it gets from %s is float, and %s is a QuantStub that no DeQuantStub follows; "
                "pass what comes from %s through %s and what comes from %s through %s",
                a, b, a, maker_of(plan, dequant, before), b, before, b,
                maker_of(plan, quant, after), a);
}

oct_status oct_prepare_check_stubs(oct_prepare_plan *plan)
{
    char maker[OCT_CALL_BYTES], line[OCT_STUB_LINE_BYTES];
    int64_t dequant = first_node(plan, opens_nothing), quant = first_node(plan, closes_nothing);
    bool decide =
        plan->options->method == OCT_METHOD_EAGER || plan->options->method == OCT_METHOD_JIT_STRIP;
    if (decide && dequant >= 0 && quant >= 0) {
        refuse_swapped(plan, dequant, quant);
        return OCT_OK;
    }
    bool strip = plan->options->method == OCT_METHOD_JIT_STRIP;
    for (int64_t i = 0; i < (int64_t)plan->graph->num_nodes; i++) {
        if (decide && is_unread(plan, i))
            OCT_PROBLEM(
                plan,
                "%s: nothing reads what this QuantStub makes; pass its result on, or remove "
                "it",
                plan->graph->nodes[i].path);
        if (strip && is_second(plan, i)) oct_prepare_refuse_second_stub(plan, i);
    }
    if (plan->problems > 0) return OCT_OK;
    for (int64_t i = 0; i < (int64_t)plan->graph->num_nodes; i++) {
        const char *path = plan->graph->nodes[i].path;
        oct_module *parent = plan->nodes[i].parent;
        if (strip && opens_nothing(plan, i))
            OCT_PROBLEM(plan,
                        "%s: what it gets from %s is float, since no QuantStub comes before this "
                        "DeQuantStub; put one where its codes are to begin, or remove the "
                        "DeQuantStub:\n%s",
                        path, maker_of(plan, i, maker), oct_prepare_stub_line(parent, true, line));
        if (strip && closes_nothing(plan, i))
            OCT_PROBLEM(plan,
                        "%s: no DeQuantStub follows this QuantStub, so nothing after it would be "
                        "quantized; put one where its codes are to end, or remove the "
                        "QuantStub:\n%s",
                        path, oct_prepare_stub_line(parent, false, line));
        if (!strip && opens_nothing(plan, i))
            OCT_TRY(oct_prepare_note(&plan->nodes[i], "does nothing: what it gets from %s is float",
                                     maker_of(plan, i, maker)));
    }
    return OCT_OK;
}
