/* What prepare decides before it changes anything. Each step of the pipeline reads and completes
 * the plan, and apply.c carries it out. */
#pragma once

#include "quant/module/rule.h"
#include "quant/prepare/fusion.h"
#include "quant/prepare/prepare.h"

enum { OCT_NO_INDEX = -1 };

typedef enum oct_role {
    OCT_ROLE_FLOAT, /* has no quantized form */
    OCT_ROLE_QUANT_STUB,
    OCT_ROLE_DEQUANT_STUB,
    OCT_ROLE_LAYER,
    OCT_ROLE_BATCH_NORM,
    OCT_ROLE_FUSED, /* by hand (oct_fuse_modules) */
    OCT_ROLE_RULE,  /* by its rule */
} oct_role;

typedef struct oct_prepare_node {
    const oct_module_type *type; /* of the float module that is, or could be, called; or NULL */
    const oct_quant_rule *rule;
    bool fixed_scale; /* the target gives the rule's function one (oct_target.fixed_functions) */
    oct_role role;
    oct_module *parent;   /* container for a module that is generated here */
    int generated_number; /* in the name of such a module; -1: none is generated */
    char *path;           /* of the called module, or the one that a generated module would have */
    oct_qconfig qconfig;
    const oct_qconfig_setter *decider; /* of its qconfig, or NULL */
    bool eligible;                     /* may be quantized */
    bool quantized;                    /* will be; of a fusion at the node that runs it */
    bool codes;                        /* its output is made as codes */
    bool passes_codes;                 /* a QuantStub whose input is codes already */
    int64_t runs_at;                   /* the node that runs it: itself, or that of its fusion */
    /* The fusion that this node runs; NULL: none, and the node itself is the one member. */
    const oct_fusion *fusion;
    int64_t member[OCT_MAX_MEMBERS];
    int num_members;
    char *note; /* why it stays float, or something else for the report */
} oct_prepare_node;

typedef struct oct_prepare_value {
    bool live; /* an output of the model depends on it */
    /* In each mode: it comes from a QuantStub, it goes to a DeQuantStub (find_region). */
    bool from_quant_stub[OCT_MODES], to_dequant_stub[OCT_MODES];
    bool codes;                /* made as codes */
    bool quantize, dequantize; /* needs a generated stub */
    int64_t group;             /* union-find: values of one scale; OCT_NO_INDEX: never codes */
    /* of the group, at its root */
    bool has_producer, is_signed, fixed;
    oct_qconfig qconfig;
    oct_fake_quant *fq;
} oct_prepare_value;

typedef struct oct_prepare_plan {
    oct_module **root;
    const oct_prepare_options *options;
    const oct_target *target;
    oct_graph *graph;
    oct_prepare_node *nodes;   /* as in graph */
    oct_prepare_value *values; /* as in graph */
    size_t problems;
    oct_status status; /* of what ran short while problems were gathered */
} oct_prepare_plan;

#define OCT_PROBLEM(p, ...) ((void)oct_fail_add(OCT_PREPARE, __VA_ARGS__), (void)(p)->problems++)

/* The steps after fusion, in this order: one of the two placements, groups, check, apply. */
oct_status oct_prepare_placement(oct_prepare_plan *plan);
oct_status oct_prepare_placement_eager(oct_prepare_plan *plan); /* or this */
oct_status oct_prepare_scale_groups(oct_prepare_plan *plan);
oct_status oct_prepare_check(oct_prepare_plan *plan);
oct_status oct_prepare_apply(oct_prepare_plan *plan);

/* Both placements begin with it: stubs are where they can be. */
oct_status oct_prepare_check_stubs(oct_prepare_plan *plan);

/* The number in the name of a module that is generated at a node, after those of the nodes before
 * `end` with its container and op. */
int oct_prepare_next_number(const oct_prepare_plan *plan, size_t node, size_t end);

/* plan_query.c: questions of the steps. */

/* The value that input k of a node is, in the mode that the node is described in. */
static inline int64_t oct_prepare_input(const oct_prepare_plan *plan, int64_t at, int k)
{
    const oct_graph_node *node = &plan->graph->nodes[at];
    return oct_graph_input(plan->graph, node, k, oct_graph_mode_of(node));
}
/* A call in a sentence, with the path that setters know it by where that is another: "layer1.conv", "the op 'add' in
 * layer1 (layer1._generated_add_0)". */
oct_call_name oct_prepare_site_text(const oct_prepare_plan *plan, int64_t node);
/* What makes it, in a sentence (oct_graph_producer_text). */
oct_call_name oct_prepare_input_text(const oct_prepare_plan *plan, int64_t node, int k);
/* The one node that reads a value in every mode that the node runs in; or OCT_NO_INDEX. */
int64_t oct_prepare_only_user(const oct_prepare_plan *plan, int64_t value);
/* The one node that reads a value in this mode; or OCT_NO_INDEX. */
int64_t oct_prepare_only_user_in(const oct_prepare_plan *plan, int64_t value, oct_mode mode);
bool oct_prepare_is_read_in(const oct_prepare_plan *plan, int64_t value, oct_mode mode);
/* Whether a node reads codes, in any mode, through its first `inputs` inputs. */
bool oct_prepare_reads_codes(const oct_prepare_plan *plan, int64_t node, int inputs);
/* Whether some node calls the module, or in this forward the op, of this one in the mode. */
bool oct_prepare_called_in(const oct_prepare_plan *plan, int64_t node, oct_mode mode);
/* Whether a block was traced in one run only, so that nothing is known of what it passes to
 * itself. */
bool oct_prepare_ran_once(const oct_prepare_plan *plan, int block);
/* Members of the fusion that runs at a node: the last one. */
static inline int64_t oct_prepare_last_member(const oct_prepare_plan *plan, int64_t at)
{
    const oct_prepare_node *p = &plan->nodes[at];
    return p->member[p->num_members - 1];
}
/* The member of a kind; or OCT_NO_INDEX. */
int64_t oct_prepare_member(const oct_prepare_plan *plan, int64_t node, oct_member kind);
/* The first member if it is a layer; or OCT_NO_INDEX. */
static inline int64_t oct_prepare_layer(const oct_prepare_plan *plan, int64_t at)
{
    int64_t first = plan->nodes[at].member[0];
    return plan->nodes[first].role == OCT_ROLE_LAYER ? first : OCT_NO_INDEX;
}
/* Whether the node was not fused into another one; and whether it will run quantized. */
static inline bool oct_prepare_runs_here(const oct_prepare_plan *plan, int64_t node)
{
    return plan->nodes[node].runs_at == node;
}
static inline bool oct_prepare_runs_quantized(const oct_prepare_plan *plan, int64_t node)
{
    return oct_prepare_runs_here(plan, node) && plan->nodes[node].quantized;
}
/* Whether this is the first node that calls its module. */
bool oct_prepare_is_first_call(const oct_prepare_plan *plan, int64_t node);
/* How many nodes call a module. */
int64_t oct_prepare_num_calls(const oct_prepare_plan *plan, const oct_module *module);
/* Whether it is a layer, a batch norm, fused by hand or has parameters otherwise. */
static inline bool oct_prepare_has_weights(const oct_prepare_node *node)
{
    return node->role == OCT_ROLE_LAYER || node->role == OCT_ROLE_BATCH_NORM ||
           node->role == OCT_ROLE_FUSED || (node->rule && node->rule->create_again);
}
bool oct_prepare_has_role(const oct_prepare_plan *plan, oct_role role);
/* The node that runs the fusion inside which a value is, so that no other node can read it; or OCT_NO_INDEX. */
int64_t oct_prepare_fused_away_in(const oct_prepare_plan *plan, int64_t value);
/* Where the scale of a node's output comes from. */
static inline oct_output_scale oct_prepare_scale(const oct_prepare_node *node)
{
    if (node->role != OCT_ROLE_RULE || node->fusion) return OCT_SCALE_OWN;
    return node->fixed_scale ? OCT_SCALE_FIXED : node->rule->scale;
}
/* Whether a node keeps its input's scale, so that it is quantized if its input is. */
static inline bool oct_prepare_follows_input(const oct_prepare_node *node)
{
    oct_output_scale scale = oct_prepare_scale(node);
    return scale != OCT_SCALE_OWN && scale != OCT_SCALE_FIXED;
}
/* Whether one module computes every call of the module that runs at a node. */
bool oct_prepare_one_module(const oct_prepare_plan *plan, int64_t node);
/* "conv2d", for setters and targets; of what was fused by hand, the type that it was. */
const char *oct_prepare_type(const oct_prepare_plan *plan, int64_t node);
/* Notes a sentence for the report, unless the node has one. */
oct_status oct_prepare_note(oct_prepare_node *node, const char *format, ...) OCT_PRINTF(2, 3);
/* The same in a step that gathers problems: a failure is kept in plan->status. */
static inline void oct_prepare_keep_status(oct_prepare_plan *plan, oct_status status)
{
    if (plan->status == OCT_OK) plan->status = status;
}

/* placement.c: the line of C, for a user's forward, that passes x through a further stub of this container. */
oct_call_name oct_prepare_stub_line(oct_module *parent, bool quant);

/* placement.c, for eager.c too */

/* Decides the qconfig of what runs at a node, and with it whether its output is codes. */
void oct_prepare_decide_output(oct_prepare_plan *plan, int64_t node);
/* A QuantStub with a qconfig quantizes; one that gets codes is a problem. */
void oct_prepare_place_quant_stub(oct_prepare_plan *plan, int64_t node);
/* Refuses a DeQuantStub right after another one. */
void oct_prepare_check_dequant_stub(oct_prepare_plan *plan, int64_t node);

/* group.c */
int64_t oct_prepare_group_of(oct_prepare_plan *plan, int64_t value); /* its root, or OCT_NO_INDEX */
/* The container of the stub that is generated after a value. */
oct_module *oct_prepare_stub_parent(const oct_prepare_plan *plan, int64_t value);
/* The path of the stub that is generated after a value, "layer1._generated_quant_stub_0". */
oct_call_name oct_prepare_stub_path(const oct_prepare_plan *plan, int64_t value);
