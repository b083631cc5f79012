/* Merges two forwards into one graph: what evaluation and what training call, side by side.
 *
 * The two lists of calls are aligned as texts are compared: by the longest common part, where a call
 * whose inputs come from the same places counts twice. Calls that are aligned are one node, so modules
 * and ranges are shared; its inputs may still differ, since a branch may be before it.
 */
#include "quant/graph/graph.h"

#include "core/base/mem.h"

#include <string.h>

enum { SAME_CALL = 1, SAME_INPUTS_TOO = 2 };

typedef struct merger {
    oct_graph *eval, *train;      /* eval becomes the merged graph */
    int64_t *match;               /* node of train -> the one of eval, or -1 */
    size_t *new_eval, *new_train; /* node -> its number in the merged graph */
    int64_t *value;               /* of train -> of the merged graph; -1: nothing reads it */
    int *block;                   /* likewise */
    uint32_t *best; /* likeness of the nodes of eval from a row on and of train from a column on */
    oct_graph_node *nodes; /* the merged list */
    size_t num_nodes;
} merger;

static const oct_graph_block *block_of(const oct_graph *g, const oct_graph_node *node)
{
    return node->block < 0 ? NULL : &g->blocks[node->block];
}

/* Whether two nodes make the same call, whatever their inputs. */
static bool same_call(const oct_graph *a, const oct_graph_node *x, const oct_graph *b,
                      const oct_graph_node *y)
{
    const oct_graph_block *p = block_of(a, x), *q = block_of(b, y);
    const bool same_block =
        p && q ? p->module == q->module && strcmp(p->name, q->name) == 0 : p == q;
    return x->called == y->called && x->caller == y->caller && x->hook == y->hook &&
           strcmp(x->op, y->op) == 0 && x->num_inputs == y->num_inputs &&
           oct_op_args_equal(&x->args, &y->args) && same_block &&
           (x->called || oct_shape_equal(&a->values[x->output].shape, &b->values[y->output].shape));
}

static int64_t evaluation_input(const oct_graph_node *node, int i)
{
    return node->called_input[OCT_MODE_EVALUATION][i];
}

/* Whether two values come from the same call, or are the same input of the model. */
static bool same_source(const oct_graph *a, int64_t value, const oct_graph *b, int64_t other)
{
    int64_t p = a->values[value].producer, q = b->values[other].producer;
    if (p >= 0 && q >= 0) return same_call(a, &a->nodes[p], b, &b->nodes[q]);
    for (int i = 0; p < 0 && q < 0 && i < a->num_inputs[OCT_MODE_EVALUATION]; i++)
        if (a->inputs[i] == value && b->inputs[i] == other) return true;
    return false;
}

/* How much a node of evaluation is like one of training: 0, SAME_CALL or SAME_INPUTS_TOO. */
static uint32_t likeness(const merger *m, size_t in_eval, size_t in_train)
{
    const oct_graph_node *x = &m->eval->nodes[in_eval], *y = &m->train->nodes[in_train];
    if (!same_call(m->eval, x, m->train, y)) return 0;
    for (int i = 0; i < x->num_inputs; i++)
        if (!same_source(m->eval, evaluation_input(x, i), m->train, evaluation_input(y, i)))
            return SAME_CALL;
    return SAME_INPUTS_TOO;
}

/* Aligns the nodes of both forwards by a search for the longest common subsequence, weighted by likeness: best[r][c] is
 * the largest sum of likeness for the nodes from r and c on. */
static oct_status match_nodes(merger *m)
{
    size_t begin = 0, end_eval = m->eval->num_nodes, end_train = m->train->num_nodes;
    for (size_t k = 0; k < end_train; k++)
        m->match[k] = -1;
    /* The common beginning and the common end need no search. */
    for (; begin < end_eval && begin < end_train && likeness(m, begin, begin) == SAME_INPUTS_TOO;
         begin++)
        m->match[begin] = (int64_t)begin;
    while (end_eval > begin && end_train > begin &&
           likeness(m, end_eval - 1, end_train - 1) == SAME_INPUTS_TOO)
        m->match[--end_train] = (int64_t)(--end_eval);
    size_t rows = end_eval - begin, columns = end_train - begin, width = columns + 1;
    OCT_TRY(oct_alloc(&m->best, (rows + 1) * width, sizeof *m->best));
    for (size_t r = rows; r-- > 0;)
        for (size_t c = columns; c-- > 0;) {
            uint32_t *cell = &m->best[r * width + c], down = cell[width], right = cell[1];
            uint32_t like = likeness(m, begin + r, begin + c);
            *cell = down > right ? down : right;
            if (like && like + cell[width + 1] > *cell) *cell = like + cell[width + 1];
        }
    for (size_t r = 0, c = 0; r < rows && c < columns;) {
        const uint32_t *cell = &m->best[r * width + c];
        uint32_t like = likeness(m, begin + r, begin + c);
        if (like && *cell == like + cell[width + 1])
            m->match[begin + c++] = (int64_t)(begin + r++);
        else if (*cell == cell[width])
            r++;
        else
            c++;
    }
    return OCT_OK;
}

/* Numbers the merged nodes in the order of both; between two common calls those of evaluation come first. */
static void number_nodes(merger *m)
{
    size_t in_eval = 0;
    for (size_t k = 0; k <= m->train->num_nodes; k++) {
        size_t next = k;
        while (next < m->train->num_nodes && m->match[next] < 0)
            next++;
        size_t common = next < m->train->num_nodes ? (size_t)m->match[next] : m->eval->num_nodes;
        while (in_eval < common)
            m->new_eval[in_eval++] = m->num_nodes++;
        if (k == m->train->num_nodes) break;
        if (next == k) m->new_eval[in_eval++] = m->num_nodes;
        m->new_train[k] = m->num_nodes++;
    }
}

/* Adds a value that only training has. */
static void add_merged_value(merger *m, int64_t of_train, int64_t producer)
{
    oct_graph *eval = m->eval;
    int64_t number = (int64_t)eval->num_values++;
    eval->values[number] = m->train->values[of_train]; /* its shape and type */
    eval->values[number].producer = producer;
    eval->values[number].alias = number;
    m->value[of_train] = number;
}

/* Gives training's values numbers of the merged graph: evaluation's where nodes or inputs are common, else new ones. */
static oct_status merge_values(merger *m)
{
    oct_graph *eval = m->eval, *train = m->train;
    size_t capacity = eval->num_values;
    OCT_TRY(oct_grow(&eval->values, &capacity, eval->num_values + train->num_values,
                     sizeof *eval->values));
    for (size_t v = 0; v < eval->num_values; v++)
        if (eval->values[v].producer >= 0)
            eval->values[v].producer = (int64_t)m->new_eval[eval->values[v].producer];
    for (size_t v = 0; v < train->num_values; v++)
        m->value[v] = -1;
    for (int i = 0; i < train->num_inputs[OCT_MODE_EVALUATION]; i++) {
        if (i < eval->num_inputs[OCT_MODE_EVALUATION])
            m->value[train->inputs[i]] = eval->inputs[i];
        else
            add_merged_value(m, train->inputs[i], -1);
        eval->inputs[i] = m->value[train->inputs[i]];
    }
    for (size_t k = 0; k < train->num_nodes; k++) {
        if (m->match[k] >= 0)
            m->value[train->nodes[k].output] = eval->nodes[m->match[k]].output;
        else
            add_merged_value(m, train->nodes[k].output, (int64_t)m->new_train[k]);
    }
    return OCT_OK;
}

/* Adds the dynamic blocks that only training has. */
static oct_status merge_blocks(merger *m)
{
    oct_graph *eval = m->eval, *train = m->train;
    size_t capacity = eval->num_blocks;
    OCT_TRY(oct_grow(&eval->blocks, &capacity, eval->num_blocks + train->num_blocks + 1,
                     sizeof *eval->blocks));
    for (size_t i = 0; i < train->num_blocks; i++) {
        m->block[i] = oct_graph_find_block(eval, train->blocks[i].module, train->blocks[i].name);
        if (m->block[i] >= 0) continue;
        m->block[i] = (int)eval->num_blocks;
        eval->blocks[eval->num_blocks++] = train->blocks[i];
        train->blocks[i].name = NULL;
    }
    return OCT_OK;
}

/* Whether a node of one forward may run in the other one's mode: a dynamic block may run any
 * number of times, so that one forward did not run it does not say that it never does. */
static bool may_run(const oct_graph *other, const oct_graph *g, const oct_graph_node *node)
{
    const oct_graph_block *block = block_of(g, node);
    int there = block ? oct_graph_find_block(other, block->module, block->name) : -1;
    return block && (there < 0 || other->blocks[there].begin == other->blocks[there].end);
}

/* Notes the modes that each node is called in: also the other one, where the other forward makes the same call, or did
 * not run the dynamic block that the call is in but might (may_run). */
static void set_modes(merger *m)
{
    oct_graph *eval = m->eval, *train = m->train;
    for (size_t i = 0; i < eval->num_nodes; i++)
        eval->nodes[i].in[OCT_MODE_TRAINING] = may_run(train, eval, &eval->nodes[i]);
    for (size_t k = 0; k < train->num_nodes; k++) {
        if (m->match[k] >= 0)
            eval->nodes[m->match[k]].in[OCT_MODE_TRAINING] = true;
        else
            train->nodes[k].in[OCT_MODE_EVALUATION] = may_run(eval, train, &train->nodes[k]);
    }
}

static int64_t value_or_none(const merger *m, int64_t of_train)
{
    return of_train < 0 ? -1 : m->value[of_train];
}

static void move_node(merger *m, oct_graph_node *from, size_t number)
{
    m->nodes[number] = *from;
    from->op = from->path = NULL;
}

/* Makes the list of merged nodes; those that training calls get the inputs that its forward passes to them. */
static oct_status merge_nodes(merger *m)
{
    OCT_TRY(oct_alloc(&m->nodes, m->num_nodes, sizeof *m->nodes));
    for (size_t i = 0; i < m->eval->num_nodes; i++)
        move_node(m, &m->eval->nodes[i], m->new_eval[i]);
    for (size_t k = 0; k < m->train->num_nodes; k++) {
        oct_graph_node *from = &m->train->nodes[k], *node = &m->nodes[m->new_train[k]];
        const bool only_train = m->match[k] < 0;
        if (only_train) move_node(m, from, m->new_train[k]);
        int64_t inputs[OCT_MAX_INPUTS] = {0};
        for (int i = 0; i < from->num_inputs; i++)
            inputs[i] = m->value[evaluation_input(from, i)];
        memcpy(node->called_input[OCT_MODE_TRAINING], inputs, sizeof inputs);
        node->given[OCT_MODE_TRAINING] = value_or_none(m, from->given[OCT_MODE_EVALUATION]);
        if (!only_train) continue;
        memcpy(node->called_input[OCT_MODE_EVALUATION], node->called_input[OCT_MODE_TRAINING],
               sizeof node->called_input[0]);
        node->given[OCT_MODE_EVALUATION] = node->given[OCT_MODE_TRAINING];
        node->output = m->value[from->output];
        if (from->block >= 0) node->block = m->block[from->block];
    }
    return OCT_OK;
}

/* Makes the merged list that of the graph, and finds the range of each block's nodes in it. */
static void install_nodes(merger *m)
{
    oct_graph *eval = m->eval;
    oct_free(&eval->nodes);
    eval->nodes = m->nodes;
    eval->num_nodes = m->num_nodes;
    m->nodes = NULL;
    for (size_t i = 0; i < eval->num_blocks; i++)
        eval->blocks[i].begin = eval->blocks[i].end = 0;
    for (size_t i = 0; i < eval->num_nodes; i++) {
        if (eval->nodes[i].block < 0) continue;
        oct_graph_block *block = &eval->blocks[eval->nodes[i].block];
        if (block->end == 0) block->begin = i;
        block->end = i + 1;
    }
}

/* Renumbers the carried uses of evaluation for the merged graph, and adds those of training. */
static oct_status merge_carried_uses(merger *m)
{
    oct_graph *eval = m->eval, *train = m->train;
    for (size_t r = 0; r < eval->num_carried; r++)
        eval->carried[r].node = (int64_t)m->new_eval[eval->carried[r].node];
    for (size_t r = 0; r < train->num_carried; r++) {
        const oct_graph_carried_use *use = &train->carried[r];
        OCT_TRY(oct_graph_add_carried_use(
            eval, (oct_graph_carried_use){.node = (int64_t)m->new_train[use->node],
                                          .value = m->value[use->value],
                                          .input = use->input}));
    }
    return OCT_OK;
}

/* The scopes of one mode cover ranges of its nodes: makes them ranges of the merged nodes. */
static void renumber_scopes(const merger *m, oct_trace_scope *scopes, size_t count,
                            const size_t *merged_index, size_t num_nodes)
{
    for (size_t i = 0; i < count; i++) {
        oct_trace_scope *s = &scopes[i];
        bool empty = s->begin == s->end;
        size_t end = empty ? 0 : merged_index[s->end - 1] + 1;
        s->begin = s->begin < num_nodes ? merged_index[s->begin] : m->num_nodes;
        s->end = empty ? s->begin : end;
    }
}

/* Gives the merged graph the scopes of the training forward too, with its numbers of nodes and values. */
static void merge_scopes(merger *m)
{
    oct_graph *eval = m->eval, *train = m->train;
    oct_trace_scope *scopes = train->scopes[OCT_MODE_EVALUATION];
    size_t count = train->num_scopes[OCT_MODE_EVALUATION];
    renumber_scopes(m, eval->scopes[OCT_MODE_EVALUATION], eval->num_scopes[OCT_MODE_EVALUATION],
                    m->new_eval, eval->num_nodes);
    renumber_scopes(m, scopes, count, m->new_train, train->num_nodes);
    for (size_t i = 0; i < count; i++) {
        scopes[i].input = value_or_none(m, scopes[i].input);
        scopes[i].given = value_or_none(m, scopes[i].given);
        scopes[i].output = value_or_none(m, scopes[i].output);
    }
    oct_free(&eval->scopes[OCT_MODE_TRAINING]);
    eval->scopes[OCT_MODE_TRAINING] = scopes;
    eval->num_scopes[OCT_MODE_TRAINING] = count;
    train->scopes[OCT_MODE_EVALUATION] = NULL;
}

oct_status oct_graph_merge_modes(oct_graph *graph, oct_graph **training)
{
    oct_graph *eval = graph, *train = *training;
    merger m = {.eval = eval, .train = train};
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_alloc(&m.match, train->num_nodes, sizeof *m.match));
    OCT_TRY_OUT(oct_alloc(&m.new_eval, eval->num_nodes, sizeof *m.new_eval));
    OCT_TRY_OUT(oct_alloc(&m.new_train, train->num_nodes, sizeof *m.new_train));
    OCT_TRY_OUT(oct_alloc(&m.value, train->num_values, sizeof *m.value));
    OCT_TRY_OUT(oct_alloc(&m.block, train->num_blocks, sizeof *m.block));
    OCT_TRY_OUT(match_nodes(&m));
    number_nodes(&m);
    set_modes(&m);
    OCT_TRY_OUT(merge_values(&m));
    merge_scopes(&m);
    OCT_TRY_OUT(merge_blocks(&m));
    OCT_TRY_OUT(merge_nodes(&m));
    install_nodes(&m);
    OCT_TRY_OUT(merge_carried_uses(&m));
    eval->output[OCT_MODE_TRAINING] = m.value[train->output[OCT_MODE_EVALUATION]];
    eval->num_inputs[OCT_MODE_TRAINING] = train->num_inputs[OCT_MODE_EVALUATION];
out:
    OCT_FREE_ALL(&m.match, &m.new_eval, &m.new_train, &m.value, &m.block, &m.best, &m.nodes);
    oct_graph_destroy(training);
    return status;
}
