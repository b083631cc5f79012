/* The replica check: weights and all other state of training have the same bits on all ranks. Where they differ, the
 * memory or the processor of a host is faulty, and the run ends before that spreads: a slice of the state is digested
 * before each step and compared in its control reduction, all of it before a checkpoint is written. */
#pragma once

#include "core/base/collective.h"
#include "quant/train/train_step.h"

/* How many steps check all of the state. */
enum { OCT_REPLICA_CHECK_SLICES = 32 };

/* The flags of a step that show whether all ranks have the same digest. */
typedef struct oct_replica_check {
    int64_t digest;      /* of this rank */
    int64_t most, least; /* the flags: maximum over the ranks of the digest, and of its negative */
} oct_replica_check;

/* Before a step, and after it with the reduced words. Collective where they differ: OCT_LOST, which names the ranks
 * whose state differs from that of most; of two ranks, both. step: the one that begins with the state. */
oct_status oct_replica_check_slice(oct_replica_check *check, oct_train_step *training,
                                   int64_t step) OCT_NODISCARD;
oct_status oct_replica_check_judge(const oct_replica_check *check, const oct_collective *group,
                                   int64_t step) OCT_NODISCARD;
/* Collective: compares all of the state after `steps` steps. */
oct_status oct_replica_check_whole(oct_train_step *training, const oct_collective *group,
                                   int64_t steps) OCT_NODISCARD;

/* Finds the digest that more than half of n are; false: there is none. */
bool oct_find_most(const int64_t *digest, int n, int64_t *most);
/* Names these ranks, some of them where they are many. */
void oct_name_ranks(const oct_collective *group, const bool *which, char *text, size_t bytes);
