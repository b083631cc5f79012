/* The order of nodes: files should list each after those that it needs, but not all do. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/onnx/read_impl.h"

#include <string.h>

/* What a node needs: its inputs, and the conditions of the branches that it is in. */
typedef struct needs {
    const oct_onnx_graph *graph;
    const oct_onnx_node *node;
    int input;
    int32_t branch;
} needs;

static needs needs_of(const oct_onnx_graph *g, int64_t node)
{
    return (needs){.graph = g, .node = &g->nodes[node], .branch = g->nodes[node].branch};
}

/* The next value that is needed and not left out; -1: that was all. */
static int32_t next_need(needs *n)
{
    while (n->input < n->node->inputs) {
        const int32_t value = n->node->input[n->input++];
        if (value >= 0) return value;
    }
    if (n->branch < 0) return -1;
    const oct_onnx_branch *branch = &n->graph->branches[n->branch];
    n->branch = branch->outer;
    return branch->condition;
}

static bool is_sorted(const oct_onnx_graph *g, const int32_t *maker)
{
    for (int32_t i = 0; i < (int32_t)g->num_nodes; i++) {
        needs n = needs_of(g, i);
        for (int32_t value; (value = next_need(&n)) >= 0;)
            if (maker[value] >= i) return false;
    }
    return true;
}

/* Links from each node to those that use it: the users of node i are list[first[i]] to list[first[i + 1] - 1]. */
typedef struct users {
    int32_t *first, *list, *waits; /* waits: for how many inputs a node does */
    int32_t *order;
} users;

static void free_users(users *u)
{
    oct_free(&u->first);
    oct_free(&u->list);
    oct_free(&u->waits);
    oct_free(&u->order);
}

static oct_status link_users(const oct_onnx_graph *g, const int32_t *maker, users *u)
{
    const size_t count = (size_t)g->num_nodes;
    OCT_TRY(oct_alloc(&u->first, count + 2, sizeof *u->first));
    OCT_TRY(oct_alloc(&u->waits, count, sizeof *u->waits));
    OCT_TRY(oct_alloc(&u->order, count, sizeof *u->order));
    for (size_t i = 0; i < count; i++) {
        needs n = needs_of(g, (int64_t)i);
        for (int32_t value; (value = next_need(&n)) >= 0;) {
            if (maker[value] < 0) continue;
            u->first[maker[value] + 2]++;
            u->waits[i]++;
        }
    }
    for (size_t i = 0; i < count; i++)
        u->first[i + 2] += u->first[i + 1];
    OCT_TRY(oct_alloc(&u->list, (size_t)u->first[count + 1], sizeof *u->list));
    for (size_t i = 0; i < count; i++) {
        needs n = needs_of(g, (int64_t)i);
        for (int32_t value; (value = next_need(&n)) >= 0;)
            if (maker[value] >= 0) u->list[u->first[maker[value] + 1]++] = (int32_t)i;
    }
    return OCT_OK;
}

/* Kahn's way: a node comes when it waits for nothing any more. */
static oct_status find_order(const oct_onnx_graph *g, users *u)
{
    int32_t count = 0;
    for (int32_t i = 0; i < (int32_t)g->num_nodes; i++)
        if (u->waits[i] == 0) u->order[count++] = i;
    for (int32_t done = 0; done < count; done++) {
        const int32_t node = u->order[done];
        for (int32_t k = u->first[node]; k < u->first[node + 1]; k++)
            if (--u->waits[u->list[k]] == 0) u->order[count++] = u->list[k];
    }
    for (int64_t i = 0; i < g->num_nodes && count < g->num_nodes; i++)
        OCT_CHECK(u->waits[i] == 0, OCT_DATA,
                  "%s: the node '%s' needs its own result, by way of others; a network has no "
                  "circles",
                  g->path, oct_show(g->nodes[i].name, strlen(g->nodes[i].name)).text);
    return OCT_OK;
}

static oct_status reorder(oct_onnx_graph *g, const int32_t *order)
{
    oct_onnx_node *nodes = NULL;
    OCT_TRY(oct_alloc(&nodes, (size_t)g->num_nodes, sizeof *nodes));
    for (int64_t i = 0; i < g->num_nodes; i++)
        nodes[i] = g->nodes[order[i]];
    oct_free(&g->nodes);
    g->nodes = nodes;
    return OCT_OK;
}

oct_status oct_onnx_sort_nodes(oct_onnx_graph *g)
{
    oct_status status = OCT_OK;
    users u = {0};
    int32_t *maker = NULL;
    OCT_TRY_OUT(oct_alloc(&maker, (size_t)g->num_values, sizeof *maker));
    for (int64_t i = 0; i < g->num_values; i++)
        maker[i] = -1;
    for (int64_t i = 0; i < g->num_nodes; i++)
        for (int k = 0; k < g->nodes[i].outputs; k++)
            if (g->nodes[i].output[k] >= 0) maker[g->nodes[i].output[k]] = (int32_t)i;
    if (is_sorted(g, maker)) goto out;
    OCT_TRY_OUT(link_users(g, maker, &u));
    OCT_TRY_OUT(find_order(g, &u));
    OCT_TRY_OUT(reorder(g, u.order));
out:
    free_users(&u);
    oct_free(&maker);
    return status;
}
