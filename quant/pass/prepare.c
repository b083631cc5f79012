/* Prepare: trace, fuse, swap, place, check.
 *
 *     in:   conv2d -> batch_norm -> relu          a module tree that a user wrote
 *     out:  qat_conv{conv, bn, fake_quant} -> identity -> identity
 *
 * The trace says which leaf module made which value and who reads it. A first walk over its nodes
 * decides, without changing anything, what becomes of each (plan) and collects every problem; only a
 * plan without problems is carried out.
 */
#include "quant/pass/prepare.h"

#include "core/base/mem.h"

#include <string.h>

/* What a value is in the prepared model. */
typedef enum domain { FLOAT, CODES_UNSIGNED, CODES_SIGNED } domain;

typedef enum action {
    KEEP,  /* runs as it is, on float or on codes */
    STUB,  /* gets the input's fake-quant */
    CONV,  /* becomes a qat_conv with the members fused */
    ADD,   /* becomes a qat_add */
    POOL,  /* becomes a qat_avg_pool */
    FUSED, /* member of an earlier node: becomes identity */
} action;

typedef struct decision {
    action what;
    oct_trace_node *batch_norm, *activation; /* members, or NULL */
    oct_activation kind;
    bool float_output;
} decision;

typedef struct pass {
    oct_module **root;
    const oct_qconfig *config;
    oct_trace trace;
    decision *plan;  /* per node */
    domain *domains; /* per value */
    size_t problems;
    oct_text *report; /* may be NULL */
} pass;

#define PROBLEM(p, ...) ((void)oct_fail_add(OCT_PREPARE, __VA_ARGS__), (void)(p)->problems++)

static bool is(const oct_trace_node *node, const oct_module_type *type)
{
    return node && node->module && node->module->type == type;
}

/* The next node if it is the only reader of this one's output. */
static oct_trace_node *next_of(const pass *p, const oct_trace_node *node)
{
    return oct_trace_only_user(&p->trace, node->output);
}

static decision *plan_of(const pass *p, const oct_trace_node *node)
{
    return &p->plan[node - p->trace.nodes];
}

static bool quantized(const pass *p, const oct_trace_node *node, int input)
{
    return p->domains[node->input[input]] != FLOAT;
}

/* Fusing keeps the first member's pre hooks and the last member's hooks; others would be lost. */
static void check_hooks(pass *p, const oct_trace_node *first, const oct_trace_node *member,
                        bool last)
{
    if (member != first && member->module->pre_hooks)
        PROBLEM(
            p,
            "%s: its forward-pre hook would be lost when it is fused into %s; put the hook on %s",
            member->path, first->path, first->path);
    if (!last && member->module->hooks)
        PROBLEM(p, "%s: its forward hook would be lost by fusion; put the hook on the last member",
                member->path);
}

static void fuse_activation(pass *p, decision *d, const oct_trace_node *tail, bool relu6_too)
{
    oct_trace_node *next = next_of(p, tail);
    if (is(next, &oct_relu_type)) d->kind = OCT_ACT_RELU;
    if (is(next, &oct_relu6_type) && relu6_too) d->kind = OCT_ACT_RELU6;
    if (d->kind == OCT_ACT_NONE) return;
    d->activation = next;
    plan_of(p, next)->what = FUSED;
}

static int64_t products_of(const oct_module *module)
{
    if (module->type == &oct_linear_type) return ((const oct_linear_module *)module)->in_features;
    const oct_conv2d_module *c = (const oct_conv2d_module *)module;
    return c->in_channels / c->geometry.groups * c->geometry.kernel_h * c->geometry.kernel_w;
}

static int64_t channels_of(const oct_module *module)
{
    return module->type == &oct_linear_type ? ((const oct_linear_module *)module)->out_features
                                            : ((const oct_conv2d_module *)module)->out_channels;
}

static void plan_conv(pass *p, oct_trace_node *node)
{
    if (!quantized(p, node, 0))
        return; /* before a QuantStub or behind a DeQuantStub: stays float */
    decision *d = plan_of(p, node);
    oct_trace_node *tail = node;
    d->what = CONV;
    oct_trace_node *next = next_of(p, tail);
    if (is(next, &oct_batch_norm_type)) {
        d->batch_norm = tail = next;
        plan_of(p, next)->what = FUSED;
        if (((oct_batch_norm_module *)next->module)->channels != channels_of(node->module))
            PROBLEM(p, "%s: batch norm of another channel count than %s", next->path, node->path);
    }
    fuse_activation(p, d, tail, p->config->target->fused_relu6);
    if (d->activation) tail = d->activation;

    check_hooks(p, node, node, tail == node);
    if (d->batch_norm) check_hooks(p, node, d->batch_norm, tail == d->batch_norm);
    if (d->activation) check_hooks(p, node, d->activation, true);
    if (products_of(node->module) > OCT_MAX_PRODUCTS)
        PROBLEM(p, "%s: %lld products in one sum could overflow int32; at most %d are allowed",
                node->path, (long long)products_of(node->module), OCT_MAX_PRODUCTS);
    if (channels_of(node->module) > p->config->target->max_channels)
        PROBLEM(p, "%s: target %s allows at most %lld channels", node->path,
                p->config->target->name, (long long)p->config->target->max_channels);

    d->float_output = p->config->float_output && d->kind == OCT_ACT_NONE &&
                      is(next_of(p, tail), &oct_dequant_stub_type);
    p->domains[tail->output] = d->float_output           ? FLOAT
                               : d->kind == OCT_ACT_NONE ? CODES_SIGNED
                                                         : CODES_UNSIGNED;
}

static void plan_add(pass *p, oct_trace_node *node)
{
    bool a = quantized(p, node, 0), b = quantized(p, node, 1);
    if (!a && !b) return;
    if (a != b) {
        PROBLEM(p,
                "%s: one input is quantized and the other float; put a QuantStub on the float one",
                node->path);
        return;
    }
    decision *d = plan_of(p, node);
    d->what = ADD;
    if (p->config->target->fused_add_relu) fuse_activation(p, d, node, false);
    check_hooks(p, node, node, d->activation == NULL);
    if (d->activation) check_hooks(p, node, d->activation, true);
    const oct_trace_node *tail = d->activation ? d->activation : node;
    p->domains[tail->output] = d->activation ? CODES_UNSIGNED : CODES_SIGNED;
}

static void plan_stub(pass *p, oct_trace_node *node)
{
    if (quantized(p, node, 0))
        PROBLEM(p, "%s: its input is quantized already; remove this QuantStub", node->path);
    plan_of(p, node)->what = STUB;
    p->domains[node->output] = CODES_SIGNED;
}

/* Modules and ops that work on codes as they do on float. */
static bool takes_codes(const oct_trace_node *node)
{
    if (!node->module) return strcmp(node->op, "flatten") == 0;
    return is(node, &oct_max_pool_type) || is(node, &oct_flatten_type) ||
           is(node, &oct_identity_type);
}

static void refuse(pass *p, const oct_trace_node *node)
{
    if (is(node, &oct_batch_norm_type))
        PROBLEM(
            p,
            "%s: batch norm on quantized values is not fused; it must directly follow a conv2d or "
            "linear whose output nothing else reads",
            node->path);
    else if (is(node, &oct_relu_type) || is(node, &oct_relu6_type))
        PROBLEM(
            p,
            "%s: %s on quantized values is not fused; it must directly follow a conv2d, linear, "
            "batch_norm or add whose output nothing else reads",
            node->path, node->op);
    else if (!node->module)
        PROBLEM(p, "%s: calls the op '%s' on quantized values; use a module (such as add) there",
                node->path[0] ? node->path : "the model", node->op);
    else
        PROBLEM(
            p,
            "%s: %s has no quantized form; put a DeQuantStub before it and a QuantStub behind it",
            node->path, node->op);
}

static void plan_node(pass *p, oct_trace_node *node)
{
    if (plan_of(p, node)->what == FUSED) return; /* its head has set the output's domain */
    bool any = false;
    for (int i = 0; i < node->num_inputs; i++)
        any |= quantized(p, node, i);
    if (is(node, &oct_quant_stub_type)) {
        plan_stub(p, node);
    } else if (is(node, &oct_dequant_stub_type)) {
        p->domains[node->output] = FLOAT;
    } else if (is(node, &oct_conv2d_type) || is(node, &oct_linear_type)) {
        plan_conv(p, node);
    } else if (is(node, &oct_add_type)) {
        plan_add(p, node);
    } else if (is(node, &oct_avg_pool_type) || is(node, &oct_global_avg_pool_type)) {
        if (any) plan_of(p, node)->what = POOL;
        if (any) p->domains[node->output] = p->domains[node->input[0]];
    } else if (any && takes_codes(node)) {
        p->domains[node->output] = p->domains[node->input[0]];
    } else if (any) {
        refuse(p, node);
    }
}

/* One call site per module that changes: a second one would want a range of its own, or still needs
 * what the module was. */
static void check_shared(pass *p)
{
    for (size_t i = 0; i < p->trace.num_nodes; i++) {
        const oct_trace_node *node = &p->trace.nodes[i];
        for (size_t j = i + 1; node->module && j < p->trace.num_nodes; j++)
            if (p->trace.nodes[j].module == node->module &&
                (p->plan[i].what != KEEP || p->plan[j].what != KEEP))
                PROBLEM(p, "%s: is called more than once; use a module of its own for each call",
                        node->path);
    }
}

static void check_model(pass *p)
{
    bool stub = false;
    for (size_t i = 0; i < p->trace.num_nodes; i++) {
        const oct_module *module = p->trace.nodes[i].module;
        stub |= module && module->type == &oct_quant_stub_type;
    }
    if (!stub)
        PROBLEM(p, "the model has no QuantStub; its forward must pass the input through one");
    if (p->domains[p->trace.output] != FLOAT)
        PROBLEM(p, "the model's output is quantized; pass it through a DeQuantStub");
}

static oct_status check_new(const pass *p)
{
    for (size_t i = 0; i < p->trace.num_nodes; i++) {
        const oct_module *module = p->trace.nodes[i].module;
        OCT_CHECK(!module ||
                      (module->type != &oct_qat_conv_type && module->type != &oct_qat_add_type),
                  OCT_PREPARE, "%s: the model is prepared already", p->trace.nodes[i].path);
    }
    return OCT_OK;
}

/* Carrying the plan out. */

static oct_status to_identity(pass *p, oct_trace_node *node, oct_module **detached)
{
    oct_module *identity = NULL;
    OCT_TRY(oct_identity_create(&identity));
    OCT_TRY(oct_module_replace(p->root, node->module, identity));
    *detached = node->module;
    node->module = identity;
    return OCT_OK;
}

static oct_status new_fake_quant(const pass *p, bool is_signed, oct_fake_quant **fq)
{
    OCT_TRY(oct_fake_quant_create(fq, p->config->observer, p->config->averaging, is_signed));
    (*fq)->current = p->config->current_scales;
    return OCT_OK;
}

/* Puts the new module in the head's place, with the head's pre hooks and the tail's hooks. */
static oct_status swap(pass *p, oct_trace_node *node, oct_module *tail, oct_module **made)
{
    oct_module_move_pre_hooks(node->module, *made);
    oct_module_move_hooks(tail, *made);
    oct_status status = oct_module_replace(p->root, node->module, *made);
    if (status != OCT_OK) oct_module_destroy(made);
    return status;
}

static oct_status apply_conv(pass *p, oct_trace_node *node, const decision *d)
{
    oct_fake_quant *fq = NULL;
    oct_module *bn = NULL, *activation = NULL, *made = NULL;
    if (!d->float_output) OCT_TRY(new_fake_quant(p, d->kind == OCT_ACT_NONE, &fq));
    if (d->batch_norm) OCT_TRY(to_identity(p, d->batch_norm, &bn));
    if (d->activation) OCT_TRY(to_identity(p, d->activation, &activation));
    oct_module *conv = node->module, *tail = activation ? activation : bn ? bn : conv;
    bool training = conv->training;

    /* A place holder keeps the conv's slot while the new module takes the conv over. */
    oct_module *holder = NULL;
    OCT_TRY(oct_identity_create(&holder));
    OCT_TRY(oct_module_replace(p->root, conv, holder));
    node->module = holder;
    oct_module_move_pre_hooks(conv, holder);
    oct_module_move_hooks(tail, holder);
    OCT_TRY(oct_qat_conv_create(&made, &conv, &bn, d->kind, &fq));
    oct_module_destroy(&activation);
    OCT_TRY(swap(p, node, holder, &made));
    oct_module_destroy(&holder);
    node->module = made;
    oct_module_train(made, training);
    return OCT_OK;
}

static oct_status apply_swap(pass *p, oct_trace_node *node, const decision *d)
{
    oct_module *made = NULL, *activation = NULL, *old = node->module;
    if (d->what == ADD) {
        oct_fake_quant *fq = NULL;
        OCT_TRY(new_fake_quant(p, d->activation == NULL, &fq));
        OCT_TRY(oct_qat_add_create(&made, d->activation != NULL, &fq));
        if (d->activation) OCT_TRY(to_identity(p, d->activation, &activation));
    } else {
        const oct_pool_module *pool = (const oct_pool_module *)old;
        bool global = old->type == &oct_global_avg_pool_type;
        OCT_TRY(
            oct_qat_avg_pool_create(&made, global ? 0 : pool->kernel, global ? 1 : pool->stride));
    }
    OCT_TRY(swap(p, node, activation ? activation : old, &made));
    oct_module_train(made, old->training);
    oct_module_destroy(&old);
    oct_module_destroy(&activation);
    node->module = made;
    return OCT_OK;
}

static oct_status apply_stub(pass *p, oct_trace_node *node)
{
    oct_quant_stub *stub = (oct_quant_stub *)node->module;
    oct_fake_quant *fq = NULL;
    OCT_TRY(new_fake_quant(p, true, &fq));
    stub->fake_quant = &fq->base;
    oct_status status = oct_module_add_child(&stub->base, "fake_quant", &stub->fake_quant);
    oct_module_train(&stub->base, stub->base.training);
    return status;
}

static oct_status write_line(pass *p, const oct_trace_node *node, const decision *d)
{
    if (!p->report || d->what == FUSED || is(node, &oct_identity_type)) return OCT_OK;
    char text[256] = "";
    const oct_module *module = node->module;
    if (module && module->type->describe) module->type->describe(module, text, sizeof text);
    const oct_trace_node *tail = d->activation   ? d->activation
                                 : d->batch_norm ? d->batch_norm
                                                 : node;
    domain out = p->domains[tail->output];
    const char *kind = out == FLOAT            ? "float"
                       : out == CODES_UNSIGNED ? "u8, zero_point 0"
                                               : "u8, zero_point 128";
    OCT_TRY(oct_text_add(p->report, "%-28s %-16s %-36s -> %s\n",
                         node->path[0] ? node->path : "(model)",
                         module ? module->type->name : node->op, text, kind));
    if (d->batch_norm)
        OCT_TRY(oct_text_add(p->report, "%-28s   with %s\n", "", d->batch_norm->path));
    if (d->activation)
        OCT_TRY(oct_text_add(p->report, "%-28s   with %s\n", "", d->activation->path));
    return OCT_OK;
}

static oct_status apply(pass *p)
{
    for (size_t i = 0; i < p->trace.num_nodes; i++) {
        oct_trace_node *node = &p->trace.nodes[i];
        const decision *d = &p->plan[i];
        if (d->what == CONV)
            OCT_TRY(apply_conv(p, node, d));
        else if (d->what == ADD || d->what == POOL)
            OCT_TRY(apply_swap(p, node, d));
        else if (d->what == STUB)
            OCT_TRY(apply_stub(p, node));
        OCT_TRY(write_line(p, node, d));
    }
    return OCT_OK;
}

oct_status oct_prepare(oct_module **root, oct_shape input, const oct_qconfig *qconfig,
                       oct_text *report)
{
    oct_status status = OCT_OK;
    pass p = {.root = root, .config = qconfig, .report = report};
    OCT_TRY_OUT(oct_trace_run(&p.trace, *root, input));
    OCT_TRY_OUT(oct_alloc(&p.plan, p.trace.num_nodes, sizeof(decision)));
    OCT_TRY_OUT(oct_alloc(&p.domains, p.trace.num_values, sizeof(domain)));
    OCT_TRY_OUT(check_new(&p));
    oct_fail_clear();
    for (size_t i = 0; i < p.trace.num_nodes; i++)
        plan_node(&p, &p.trace.nodes[i]);
    check_shared(&p);
    check_model(&p);
    if (p.problems > 0) {
        status = OCT_PREPARE;
        goto out;
    }
    OCT_TRY_OUT(apply(&p));
out:
    oct_free(&p.domains);
    oct_free(&p.plan);
    oct_trace_free(&p.trace);
    return status;
}

static oct_status freeze_one(void *user, oct_module *module)
{
    if (module->type == &oct_batch_norm_type)
        ((oct_batch_norm_module *)module)->frozen = *(const bool *)user;
    return OCT_OK;
}

void oct_freeze_batch_norm(oct_module *root, bool frozen)
{
    oct_status status = oct_module_walk(root, freeze_one, &frozen);
    OCT_ASSERT(status == OCT_OK);
}
