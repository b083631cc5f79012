/* What prepare decides before it changes anything. Each step of the pipeline reads and completes the
 * blueprint: prepare_plan.c (what each call site is), fuse.c (what runs together), stubs.c (stubs that cannot be
 * meant), placement.c or eager.c (what is
 * quantized, which values are codes and share a scale), check.c (problems); apply.c carries it out. */
#pragma once

#include "quant/module/rule.h"
#include "quant/pass/prepare/fusion.h"
#include "quant/pass/prepare/prepare.h"

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
    const oct_module_type
        *type; /* of the float module that is, or could be, called; NULL: no form */
    const oct_quant_rule *rule;
    oct_role role;
    oct_module *parent; /* container for a module that is generated here */
    int number;         /* in the name of such a module */
    char *path;         /* of the called module, or the one that a generated module would have */
    oct_qconfig qconfig;
    const oct_qconfig_setter *decider; /* of its qconfig, or NULL */
    bool eligible;                     /* may be quantized */
    bool quantized;                    /* will be; of a fusion at the node that runs it */
    bool codes;                        /* its output is made as codes */
    bool passes;                       /* a QuantStub that hands codes on */
    int64_t place;                     /* the node that runs it: itself, or that of its fusion */
    const oct_fusion *fusion;          /* at the place: what runs there; NULL: the node alone */
    int64_t member[OCT_MAX_MEMBERS];
    int num_members;
    char *why; /* it stays float, or another note */
} oct_prepare_node;

typedef struct oct_prepare_value {
    bool live; /* an output of the model depends on it */
    /* In each mode: a QuantStub, a DeQuantStub on every way; see find_region. */
    bool after[OCT_MODES], before[OCT_MODES];
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

/* prepare_plan.c */
oct_status oct_prepare_plan_create(oct_prepare_plan *plan,
                                   const oct_example *example) OCT_NODISCARD;
void oct_prepare_plan_free(oct_prepare_plan *plan);
/* The value that input k of what runs at a place is; in the mode that the node is described in. */
int64_t oct_prepare_input(const oct_prepare_plan *plan, int64_t place, int k);
/* The one node that reads a value, in every mode that it runs in, or OCT_NO_INDEX. */
int64_t oct_prepare_only_user(const oct_prepare_plan *plan, int64_t value);
/* The one node that reads a value in this mode, or OCT_NO_INDEX. */
int64_t oct_prepare_only_user_in(const oct_prepare_plan *plan, int64_t value, oct_mode mode);
/* Whether a node calls the module, or in this forward the op, of this one in the mode. */
bool oct_prepare_called_in(const oct_prepare_plan *plan, int64_t node, oct_mode mode);
/* Whether a block was traced in one run only, so that nothing is known of what it hands to itself. */
bool oct_prepare_ran_once(const oct_prepare_plan *plan, int block);
int64_t oct_prepare_last_member(const oct_prepare_plan *plan,
                                int64_t place); /* member of what runs at a place */
int64_t oct_prepare_member(const oct_prepare_plan *plan, int64_t place, oct_member kind);
int64_t oct_prepare_layer(const oct_prepare_plan *plan, int64_t place); /* or OCT_NO_INDEX */
bool oct_prepare_runs_here(const oct_prepare_plan *plan,
                           int64_t node); /* is the place of what it belongs to */
/* Whether this is the first node that calls its module; and how many do. */
bool oct_prepare_is_first_call(const oct_prepare_plan *plan, int64_t node);
int64_t oct_prepare_num_calls(const oct_prepare_plan *plan, const oct_module *module);
/* "conv1", "input_0", "the add in layer1": who makes a value, or what a node is, for sentences. */
const char *oct_prepare_producer_text(const oct_prepare_plan *plan, int64_t value, char text[320]);
const char *oct_prepare_node_text(const oct_prepare_plan *plan, int64_t node, char text[320]);
/* Keeps the first sentence that is given. */
oct_status oct_prepare_note(oct_prepare_node *node, const char *format, ...) OCT_NODISCARD
    OCT_PRINTF(2, 3);
oct_output_scale oct_prepare_scale(const oct_prepare_node *node);
const char *oct_prepare_type(const oct_prepare_plan *plan,
                             int64_t node); /* "conv2d", for setters, targets */
bool oct_prepare_one_module(const oct_prepare_plan *plan,
                            int64_t place); /* answers every call of its module */
bool oct_prepare_follows_input(
    const oct_prepare_node *node); /* keeps its input's scale; quantized if it is */

/* In this order. */
oct_status oct_prepare_fuse(oct_prepare_plan *plan) OCT_NODISCARD;
oct_status oct_prepare_placement(oct_prepare_plan *plan) OCT_NODISCARD;       /* graph methods */
oct_status oct_prepare_placement_eager(oct_prepare_plan *plan) OCT_NODISCARD; /* eager */
oct_status oct_prepare_scale_groups(oct_prepare_plan *plan) OCT_NODISCARD;
oct_status oct_prepare_check(oct_prepare_plan *plan) OCT_NODISCARD;
oct_status oct_prepare_apply(oct_prepare_plan *plan) OCT_NODISCARD;

/* stubs.c, before anything is placed: QuantStubs and DeQuantStubs that cannot be meant where they are.
 * Problems where stubs decide what is quantized (eager, jit_strip), notes where they do not, and where
 * eager has better words for what is missing. */
oct_status oct_prepare_check_stubs(oct_prepare_plan *plan) OCT_NODISCARD;
bool oct_prepare_has_role(const oct_prepare_plan *plan, oct_role role);
/* The line of a forward that passes x through a further stub of this container. */
enum { OCT_STUB_LINE_BYTES = 192 };
const char *oct_prepare_stub_line(oct_module *parent, bool quant, char text[OCT_STUB_LINE_BYTES]);

/* placement.c, for eager.c too: the qconfig of what runs at a place and with it what its output is; and what
 * a stub gets. */
void oct_prepare_decide_output(oct_prepare_plan *plan, int64_t place);
void oct_prepare_place_quant_stub(oct_prepare_plan *plan, int64_t node);
void oct_prepare_check_dequant_stub(oct_prepare_plan *plan, int64_t node);

/* check.c: the place of the fusion inside of which a value vanishes, or OCT_NO_INDEX. */
int64_t oct_prepare_fused_away_in(const oct_prepare_plan *plan, int64_t value);

/* group.c */
int64_t oct_prepare_group_of(oct_prepare_plan *plan, int64_t value); /* its root, or OCT_NO_INDEX */
oct_module *oct_prepare_stub_parent(const oct_prepare_plan *plan, int64_t value);
/* "layer1._generated_quant_stub_0" */
const char *oct_prepare_stub_path(const oct_prepare_plan *plan, int64_t value, char text[320]);
