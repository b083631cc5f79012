/* The leaf audit: every `audit.every` steps another rank computes one leaf of the step again, and the bits of all that
 * it added to sums are compared. Different bits show that a processor or a memory is faulty. Which leaf, and who
 * computes it again, is a pure function of the step, and goes round. One rank alone audits itself. */
#pragma once

#include "core/base/collective.h"
#include "io/batch/loader.h"

/* A leaf of a batch of an update (by indices), its owner, and the rank that computes it again. */
typedef struct oct_audit_choice {
    int64_t batch, leaf;
    int owner, auditor;
} oct_audit_choice;

/* An update of `batches` batches with `samples` samples each, the last one `last`; leaf: the one to audit. */
typedef struct oct_audited_update {
    int64_t batches, samples, last, leaf;
} oct_audited_update;
oct_audit_choice oct_audit_choose(int64_t number, const oct_audited_update *update, int ranks);

/* The digests of an audit: of the owner in the step, of the auditor, and then where those two differ of each rank.
 * Finds the ranks that have once computed something else than most computations were; where there is no most, owner and
 * auditor. Returns how many. */
int oct_audit_judge(const oct_audit_choice *choice, const int64_t *digest, int ranks, bool *faulty);

/* What a trainer needs for it. */
typedef struct oct_leaf_audit {
    oct_loader loader; /* of single leaves */
    float *images;     /* of one leaf; NULL: nothing is ever audited */
    oct_audit_choice choice;
    int64_t done; /* in this process */
} oct_leaf_audit;
