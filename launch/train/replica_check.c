/* Digests are compared by two maxima, and only where they differ do all ranks hear all of them. */
#include "launch/train/replica_check.h"

#include "core/base/mem.h"

#include <stdio.h>

enum { NAMED_MAX = 4 };

bool oct_find_most(const int64_t *digest, int n, int64_t *most)
{
    for (int i = 0; i < n; i++) {
        int equal = 0;
        for (int j = 0; j < n; j++)
            equal += digest[j] == digest[i];
        *most = digest[i];
        if (equal * 2 > n) return true;
    }
    return false;
}

void oct_name_ranks(const oct_collective *group, const bool *which, char *text, size_t bytes)
{
    size_t used = 0;
    int named = 0;
    char one[128];
    text[0] = '\0';
    for (int r = 0; r < group->size; r++) {
        if (!which[r] || named++ >= NAMED_MAX) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", used > 0 ? ", " : "",
                                 group->name(group, r, one));
        if (used >= bytes) used = bytes - 1;
    }
    if (named > NAMED_MAX) snprintf(text + used, bytes - used, " and %d more", named - NAMED_MAX);
}

static oct_status report_differing_ranks(const oct_collective *group, const int64_t *digest,
                                         int64_t step)
{
    char names[NAMED_MAX * 130 + 32];
    bool *odd;
    int64_t most;
    int count = 0;
    OCT_TRY(oct_alloc(&odd, (size_t)group->size, sizeof *odd));
    const bool known = oct_find_most(digest, group->size, &most);
    for (int r = 0; r < group->size; r++) {
        odd[r] = !known || digest[r] != most;
        count += odd[r];
    }
    oct_name_ranks(group, odd, names, sizeof names);
    const oct_status status =
        oct_fail(OCT_LOST,
                 "weights or optimizer state of %s differ from %s before step %lld: %smemory or "
                 "processor there is faulty; test %s, or leave %s out, and repeat the command: it "
                 "continues from the newest checkpoint, where all ranks had the same state",
                 names, known ? "those of the other ranks" : "each other", (long long)step,
                 known ? "" : "it is unknown which of them is right; ",
                 count > 1 ? "these hosts" : "that host", count > 1 ? "the faulty one" : "it");
    oct_free(&odd);
    return status;
}

/* Collective, of ranks whose digests are not all the same. */
static oct_status find_differing(int64_t mine, const oct_collective *group, int64_t step)
{
    int64_t *digest;
    OCT_TRY(oct_alloc(&digest, (size_t)group->size, sizeof *digest));
    digest[group->rank] = mine;
    oct_status status = group->max_i64(group, digest, group->size);
    if (status == OCT_OK) status = report_differing_ranks(group, digest, step);
    oct_free(&digest);
    return status;
}

static oct_status digest_state(oct_replica_check *check, oct_train_step *training, int64_t slice,
                               int64_t slices)
{
    uint64_t digest;
    OCT_TRY(oct_train_step_digest(training, slice, slices, &digest));
    check->digest = check->most = (int64_t)(digest >> 1);
    check->least = -check->most;
    return OCT_OK;
}

oct_status oct_replica_check_slice(oct_replica_check *check, oct_train_step *training, int64_t step)
{
    if (training->group->size > 1)
        return digest_state(check, training, step % OCT_REPLICA_CHECK_SLICES,
                            OCT_REPLICA_CHECK_SLICES);
    *check = (oct_replica_check){0};
    return OCT_OK;
}

oct_status oct_replica_check_judge(const oct_replica_check *check, const oct_collective *group,
                                   int64_t step)
{
    return check->most == -check->least ? OCT_OK : find_differing(check->digest, group, step);
}

oct_status oct_replica_check_whole(oct_train_step *training, const oct_collective *group,
                                   int64_t steps)
{
    oct_replica_check check;
    if (group->size == 1) return OCT_OK;
    OCT_TRY(digest_state(&check, training, 0, 1));
    int64_t words[2] = {check.most, check.least};
    OCT_TRY(group->max_i64(group, words, 2));
    check.most = words[0];
    check.least = words[1];
    return oct_replica_check_judge(&check, group, steps + 1);
}
