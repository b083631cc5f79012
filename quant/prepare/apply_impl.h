/* What carrying a plan out works on. Every module that the forward calls has a slot in its parent.
 * What replaces it takes the slot with the hooks; a member that is fused away leaves an identity
 * there, so hooks stay where the user put them and run at the same call. Further calls of a
 * module, and ops, get generated modules. */
#pragma once

#include "quant/prepare/prepare_plan.h"

/* A slot of the user's: what the forward called there and what is there now. */
typedef struct oct_apply_slot {
    oct_module *was, *now;
    bool keep, taken;
} oct_apply_slot;

typedef struct oct_apply {
    oct_prepare_plan *plan;
    oct_graph *graph;
    oct_apply_slot *slots;
    size_t num_slots;
    oct_module **made; /* per node: what runs there */
} oct_apply;

/* apply_modules.c */
oct_status oct_apply_find_slots(oct_apply *w) OCT_NODISCARD;
oct_apply_slot *oct_apply_slot_of(const oct_apply *w, const oct_module *called);
/* Takes the called module out of its slot, which an identity holds from now on. */
oct_status oct_apply_take_out(oct_apply *w, oct_apply_slot *slot,
                              oct_module **module) OCT_NODISCARD;
/* Puts what was made for a node into its slot, or into the tree under a generated name. */
oct_status oct_apply_insert(oct_apply *w, int64_t node, oct_module **made) OCT_NODISCARD;
/* Makes the quantized module of a node that runs one. */
oct_status oct_apply_make_module(oct_apply *w, int64_t node) OCT_NODISCARD;
