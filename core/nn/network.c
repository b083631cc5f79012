/* The slots of all modules in the tree have addresses of their own, since the tree keeps them. */
#include "core/nn/network.h"

#include "core/base/mem.h"
#include "core/base/text.h"
#include "core/nn/module.h"

#include <stdio.h>
#include <string.h>

typedef struct network_node {
    oct_module **call; /* the slot of the module that it calls */
    int32_t *input;
    int num_inputs;
} network_node;

typedef struct network {
    oct_module base;
    int num_inputs;
    int32_t output;
    network_node *nodes;
    size_t num_nodes, cap_nodes;
    oct_tensor **values; /* of a forward: inputs, then the nodes' */
    size_t cap_values;
    oct_module ***slots; /* each a block of its own */
    size_t num_slots, cap_slots;
    oct_network_name *names;
    size_t num_names, cap_names;
    oct_text notes;
    char *port_names;
} network;

/* Runs the nodes in order; values: the network's inputs, then the result of each node. */
static oct_tensor *network_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    network *m = (network *)self;
    oct_tensor *input[OCT_MAX_INPUTS];
    if (n != m->num_inputs)
        return oct_context_fail(cx, OCT_USAGE, "network takes %d input%s, but was called with %d",
                                m->num_inputs, m->num_inputs == 1 ? "" : "s", n);
    for (int i = 0; i < n; i++)
        m->values[i] = x[i];
    for (size_t k = 0; k < m->num_nodes && cx->status == OCT_OK; k++) {
        const network_node *node = &m->nodes[k];
        for (int i = 0; i < node->num_inputs; i++)
            input[i] = m->values[node->input[i]];
        m->values[(size_t)n + k] = oct_module_call(cx, *node->call, input, node->num_inputs);
    }
    return cx->status == OCT_OK ? m->values[m->output] : NULL;
}

/* The children go first: their slots are here. */
static void destroy_network(oct_module *self)
{
    network *m = (network *)self;
    while (self->num_children > 0)
        oct_module_remove_child(self, self->children[self->num_children - 1].slot);
    for (size_t k = 0; k < m->num_nodes; k++)
        oct_free(&m->nodes[k].input);
    for (size_t i = 0; i < m->num_slots; i++)
        oct_free(&m->slots[i]);
    for (size_t i = 0; i < m->num_names; i++) {
        oct_free(&m->names[i].file);
        oct_free(&m->names[i].path);
    }
    OCT_FREE_ALL(&m->nodes, &m->values, &m->slots, &m->names);
    oct_text_free(&m->notes);
    oct_free(&m->port_names);
}

static void describe_network(const oct_module *self, char *text, size_t size)
{
    snprintf(text, size, "%zu calls", ((const network *)self)->num_nodes);
}

const oct_module_type oct_network_type = {.name = "network",
                                          .forward = network_forward,
                                          .destroy = destroy_network,
                                          .describe = describe_network,
                                          .calls_only = true};

static oct_tensor *scope_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)x, (void)n;
    return oct_context_fail(cx, OCT_USAGE, "%s only holds modules, which its network calls",
                            self->name);
}

static const oct_module_type scope_type = {
    .name = "scope", .forward = scope_forward, .calls_only = true};

oct_status oct_network_create(oct_module **m, int num_inputs)
{
    OCT_TRY(oct_module_alloc(m, &oct_network_type, sizeof(network)));
    ((network *)*m)->num_inputs = num_inputs;
    ((network *)*m)->output = -1;
    return OCT_OK;
}

/* Makes *module a child of `parent`, and *slot the memory that holds the pointer to it. Takes it over. */
static oct_status attach_module(network *m, oct_module *parent, const char *name,
                                oct_module **module, oct_module ***slot)
{
    oct_module **made = NULL;
    oct_status status = oct_grow(&m->slots, &m->cap_slots, m->num_slots + 1, sizeof *m->slots);
    if (status == OCT_OK) status = oct_alloc(&made, 1, sizeof *made);
    if (status != OCT_OK) {
        oct_module_destroy(module);
        return status;
    }
    *slot = m->slots[m->num_slots++] = made;
    *made = *module;
    *module = NULL;
    return oct_module_add_child(parent, name, made);
}

enum { SEGMENT = 64 };

/* Makes of the segment a name that is free below `parent`: itself, or with a number from 2 on. */
static void make_name_free(const oct_module *parent, char segment[SEGMENT])
{
    char wanted[SEGMENT];
    snprintf(wanted, sizeof wanted, "%.52s", segment);
    for (int number = 2; oct_module_child(parent, segment); number++)
        snprintf(segment, SEGMENT, "%.52s_%d", wanted, number);
}

/* Copies the first segment of the path; returns the path after it, or NULL after the last one. */
static const char *next_segment(const char *path, char segment[SEGMENT])
{
    const size_t length = strcspn(path, ".");
    snprintf(segment, SEGMENT, "%.*s", (int)(length < SEGMENT ? length : SEGMENT - 1), path);
    return path[length] == '.' ? path + length + 1 : NULL;
}

/* Puts *module at its path, in containers for the segments before its name; where a module that is no container has
 * such a name, the container gets it with "_" after it. */
static oct_status attach_at_path(network *m, const char *path, oct_module **module,
                                 oct_module ***slot)
{
    oct_module *parent = &m->base;
    char segment[SEGMENT];
    for (path = next_segment(path, segment); path; path = next_segment(path, segment)) {
        oct_module *next = oct_module_child(parent, segment), *made = NULL;
        if (next && next->type != &scope_type) {
            strncat(segment, "_", SEGMENT - strlen(segment) - 1);
            next = oct_module_child(parent, segment);
            if (next && next->type != &scope_type) next = NULL, make_name_free(parent, segment);
        }
        if (!next) {
            oct_module **slot_of_scope = NULL;
            oct_status status = oct_module_alloc(&made, &scope_type, sizeof *made);
            if (status == OCT_OK) status = attach_module(m, parent, segment, &made, &slot_of_scope);
            if (status != OCT_OK) {
                oct_module_destroy(module);
                return status;
            }
            next = *slot_of_scope;
        }
        parent = next;
    }
    make_name_free(parent, segment); /* the last segment is the name */
    return attach_module(m, parent, segment, module, slot);
}

/* Appends a node that calls *call on these values; *value: the number of its result, which is the output so far. */
static oct_status add_node(network *m, oct_module **call, const int32_t *inputs, int n,
                           int32_t *value)
{
    network_node node = {.call = call, .num_inputs = n};
    const size_t values = (size_t)m->num_inputs + m->num_nodes + 1;
    OCT_TRY(oct_grow(&m->nodes, &m->cap_nodes, m->num_nodes + 1, sizeof *m->nodes));
    OCT_TRY(oct_grow(&m->values, &m->cap_values, values, sizeof(oct_tensor *)));
    OCT_TRY(oct_alloc(&node.input, (size_t)n, sizeof *inputs));
    for (int i = 0; i < n; i++) {
        OCT_ASSERT(inputs[i] >= 0 && (size_t)inputs[i] + 1 < values);
        node.input[i] = inputs[i];
    }
    m->nodes[m->num_nodes++] = node;
    *value = m->output = (int32_t)values - 1;
    return OCT_OK;
}

oct_status oct_network_add(oct_module *self, const char *path, oct_module **module,
                           const int32_t *inputs, int n, int32_t *value)
{
    oct_module **slot = NULL;
    OCT_TRY(attach_at_path((network *)self, path, module, &slot));
    return add_node((network *)self, slot, inputs, n, value);
}

static const network_node *node_of(const oct_module *self, int32_t value)
{
    const network *m = (const network *)self;
    return value < m->num_inputs ? NULL : &m->nodes[value - m->num_inputs];
}

oct_status oct_network_add_again(oct_module *self, int32_t of, const int32_t *inputs, int n,
                                 int32_t *value)
{
    const network_node *node = node_of(self, of);
    OCT_ASSERT(node);
    return add_node((network *)self, node->call, inputs, n, value);
}

int32_t oct_network_find_call(const oct_module *self, const oct_module_type *type,
                              const oct_op_args *args, const int32_t *inputs, int n)
{
    const network *m = (const network *)self;
    for (size_t k = 0; k < m->num_nodes; k++) {
        const network_node *node = &m->nodes[k];
        const oct_module *called = *node->call;
        oct_op_args has;
        if (called->type != type || called->num_params > 0 || node->num_inputs != n ||
            memcmp(node->input, inputs, (size_t)n * sizeof *inputs) != 0)
            continue;
        oct_module_args(called, &has);
        if (oct_op_args_equal(&has, args)) return m->num_inputs + (int32_t)k;
    }
    return -1;
}

oct_module *oct_network_module(const oct_module *self, int32_t value)
{
    const network_node *node = node_of(self, value);
    return node ? *node->call : NULL;
}

bool oct_network_is_shared(const oct_module *self, int32_t value)
{
    const network *m = (const network *)self;
    const network_node *node = node_of(self, value);
    int calls = 0;
    for (size_t k = 0; node && k < m->num_nodes; k++)
        calls += m->nodes[k].call == node->call;
    return calls > 1;
}

int32_t oct_network_sole_input(const oct_module *self, int32_t value)
{
    const network *m = (const network *)self;
    const network_node *node = node_of(self, value);
    int readers = 0;
    if (!node || node->num_inputs != 1 || oct_network_is_shared(self, value)) return -1;
    for (size_t k = 0; k < m->num_nodes; k++)
        for (int i = 0; i < m->nodes[k].num_inputs; i++)
            readers += m->nodes[k].input[i] == node->input[0];
    return readers == 1 && node->input[0] != m->output ? node->input[0] : -1;
}

void oct_network_set_output(oct_module *self, int32_t value)
{
    ((network *)self)->output = value;
}

/* Ties a parameter to the first one read from this tensor of the file; a buffer or frozen parameter ties nothing. */
static oct_status tie_to_first(network *m, oct_param *param, const char *file,
                               const oct_file_order *order)
{
    for (size_t i = 0; i < m->num_names; i++) {
        if (strcmp(m->names[i].file, file) != 0) continue;
        char path[256];
        snprintf(path, sizeof path, "%s", m->names[i].path);
        char *dot = strrchr(path, '.');
        *dot = '\0';
        oct_param *first = oct_module_param(oct_module_find(&m->base, path), dot + 1);
        return first && !first->frozen ? oct_param_tie(param, order, first, &m->names[i].order)
                                       : OCT_OK;
    }
    return OCT_OK;
}

oct_status oct_network_add_name(oct_module *self, const oct_module *module, const char *name,
                                const char *file, const oct_file_order *order)
{
    network *m = (network *)self;
    oct_network_name made = {.order = *order};
    oct_param *param = oct_module_param(module, name);
    if (param && !param->frozen) OCT_TRY(tie_to_first(m, param, file, order));
    OCT_TRY(oct_grow(&m->names, &m->cap_names, m->num_names + 1, sizeof *m->names));
    OCT_TRY(oct_strdup(&made.file, file));
    oct_status status = oct_format(&made.path, "%s.%s", oct_module_path(module).text, name);
    if (status != OCT_OK)
        oct_free(&made.file);
    else
        m->names[m->num_names++] = made;
    return status;
}

size_t oct_network_names(const oct_module *module, const oct_network_name **names)
{
    const bool is = module->type == &oct_network_type;
    *names = is ? ((const network *)module)->names : NULL;
    return is ? ((const network *)module)->num_names : 0;
}

void oct_network_forget_names(oct_module *self, const char *path)
{
    network *m = (network *)self;
    const size_t length = strlen(path);
    size_t kept = 0;
    for (size_t i = 0; i < m->num_names; i++) {
        oct_network_name *name = &m->names[i];
        if (strncmp(name->path, path, length) != 0 || name->path[length] != '.') {
            m->names[kept++] = *name;
            continue;
        }
        oct_free(&name->file);
        oct_free(&name->path);
    }
    m->num_names = kept;
}

oct_status oct_network_name_ports(oct_module *self, const char *input, const char *output)
{
    char names[2 * 256], clean[sizeof names];
    const int length = snprintf(names, sizeof names, "%s\n%s\n", input, output);
    if (strcmp(names, "input\noutput\n") == 0) return OCT_OK;
    memcpy(clean, names, sizeof names);
    oct_text_clean(clean);
    if (length < (int)sizeof names && input[0] && output[0] && strcmp(clean, names) == 0 &&
        !strpbrk(input, "\n\t") && !strpbrk(output, "\n\t"))
        return oct_strdup(&((network *)self)->port_names, names);
    return oct_network_add_note(self, "its input and output are called input and output where it "
                                      "is exported: their names are too long, or no plain text");
}

const char *oct_network_port_names(const oct_module *self)
{
    return self->type == &oct_network_type ? ((const network *)self)->port_names : NULL;
}

oct_status oct_network_add_note(oct_module *self, const char *note)
{
    network *m = (network *)self;
    if (m->notes.data && strstr(m->notes.data, note)) return OCT_OK;
    return oct_text_add(&m->notes, "%s\n", note);
}

const char *oct_network_notes(const oct_module *self)
{
    const network *m = (const network *)self;
    return self->type == &oct_network_type && m->notes.data ? m->notes.data : "";
}
