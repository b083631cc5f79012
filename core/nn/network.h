/* A network is a container that is made from a description instead of a forward of its own: nodes in order;
 * each node calls a module on inputs of the network or results of earlier nodes.
 *
 * Its modules stand in a tree, by paths such as "layer1.0.conv1"; what is in between are containers that
 * nobody calls. A node may call a module that an earlier one calls too: then both share its parameters.
 */
#pragma once

#include "core/nn/module.h"

extern const oct_module_type oct_network_type;

/* A parameter or buffer that came from a tensor of a file, and goes back as one. */
typedef struct oct_network_name {
    char *file; /* the tensor's name there: "layer1.0.conv1.weight" */
    char *path; /* of the state item, as oct_module_state gives it; also after prepare */
    oct_file_order order;
} oct_network_name;

oct_status oct_network_create(oct_module **m, int num_inputs);
/* Adds a node that calls *module, which is taken over (set to NULL), also on failure; its result has the number
 * *value. Inputs of the network have the numbers from 0 on. The path, segments of [a-z0-9_], gets a number
 * when it is taken already. */
oct_status oct_network_add(oct_module *network, const char *path, oct_module **module,
                           const int32_t *inputs, int n, int32_t *value);
/* Adds a node that calls the module of an earlier one, that which made `of`, once more. */
oct_status oct_network_add_again(oct_module *network, int32_t of, const int32_t *inputs, int n,
                                 int32_t *value);
/* Finds a node that calls a module without parameters of this type, with these arguments, on these inputs: its
 * result; -1: there is none. */
int32_t oct_network_find_call(const oct_module *network, const oct_module_type *type,
                              const oct_op_args *args, const int32_t *inputs, int n);
/* The module that made a result; NULL of an input. */
oct_module *oct_network_module(const oct_module *network, int32_t value);
/* The input of the node that makes `value`, perhaps an input of the network. -1 unless the node has one input, no other
 * node reads that, it is not the network's output, and no other node calls the node's module; -1 also of an input. */
int32_t oct_network_sole_input(const oct_module *network, int32_t value);
/* Is the module that made this result called by other nodes too? */
bool oct_network_is_shared(const oct_module *network, int32_t value);
/* Says which value is the network's output; without a call the last one is. */
void oct_network_set_output(oct_module *network, int32_t value);

/* Writes down where a tensor of a file belongs: the parameter or buffer `name` of a module in the tree. A parameter
 * whose tensor an earlier one has already is tied to that one (oct_param_tie). */
oct_status oct_network_add_name(oct_module *network, const oct_module *module, const char *name,
                                const char *file, const oct_file_order *order);
/* The table of these names; 0 and NULL for a module of another type. */
size_t oct_network_names(const oct_module *module, const oct_network_name **names);
/* Forgets those of the module at this path. */
void oct_network_forget_names(oct_module *network, const char *path);
/* Keeps what the file calls the input and the output; a note says where that is too long, or no plain text. */
oct_status oct_network_name_ports(oct_module *network, const char *input, const char *output);
/* Two lines, the input's name and the output's; NULL: they are input and output. */
const char *oct_network_port_names(const oct_module *module);
/* What its user should know about how it was made: lines, each once; "": nothing, or it is no network. */
oct_status oct_network_add_note(oct_module *network, const char *note);
const char *oct_network_notes(const oct_module *module);
