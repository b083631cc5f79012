/* A leaf is computed again with what decides its bits: the state before the step, its samples, the number of the update,
 * and the sums over the whole batch that its batch norms and its loss have used. It has the same bits alone and
 * with other leaves, and for any number of ranks. */
#include "quant/train/train_step_impl.h"

static oct_leaves audited_leaf(const oct_train_step *s, const oct_batch *batch)
{
    oct_leaves leaves = oct_leaves_split(batch->shape[0].dim[0], s->leaf, 0, 1);
    leaves.first = s->audit.leaf;
    leaves.local = 1;
    return leaves;
}

void oct_step_audit_open(oct_train_step *s, const oct_batch *batch)
{
    oct_step_audit *audit = &s->audit;
    if (!audit->on || s->sums.done != audit->batch) return;
    const oct_leaves here =
        oct_leaves_split(batch->shape[0].dim[0], s->leaf, s->group->rank, s->group->size);
    const int64_t leaf = audit->leaf - here.first;
    audit->sums = s->sums;
    audit->watch = (oct_leaf_watch){.active = leaf >= 0 && leaf < here.local, .leaf = leaf};
    oct_replay_record(&audit->replay, s->group);
    s->context->group = &audit->replay.face;
}

void oct_step_audit_close(oct_train_step *s)
{
    oct_step_audit *audit = &s->audit;
    if (s->context->group == s->group) return;
    s->context->group = s->group;
    audit->digest = s->context->watch.digest;
    audit->watch = (oct_leaf_watch){0};
}

static oct_status compute_leaf(oct_train_step *s, const oct_batch *batch)
{
    const oct_leaves leaf = audited_leaf(s, batch);
    oct_tensor *loss = oct_step_loss(s, batch, &leaf);
    OCT_TRY(oct_context_status(s->context));
    return oct_backward(s->context, loss);
}

oct_status oct_train_step_again(oct_train_step *step, const oct_batch *batch, uint64_t *digest)
{
    oct_step_audit *audit = &step->audit;
    oct_context *cx = step->context;
    const oct_step_sums sums = step->sums;
    OCT_CHECK(audit->on && audit->batch < sums.done && !sums.skipped, OCT_USAGE,
              "a leaf is computed again after a step with an audit");
    oct_step_undo_swap(&step->undo, &step->optim);
    step->sums = audit->sums;
    step->update--;
    audit->watch = (oct_leaf_watch){.active = true};
    oct_replay_again(&audit->replay);
    cx->group = &audit->replay.face;
    oct_params_put_parts(&step->params, true);
    const oct_status status = compute_leaf(step, batch);
    oct_params_put_parts(&step->params, false);
    *digest = cx->watch.digest;
    cx->group = step->group;
    audit->watch = (oct_leaf_watch){0};
    step->update++;
    step->sums = sums;
    oct_quantizers_discard_batch(&step->quantizers);
    oct_step_undo_swap(&step->undo, &step->optim);
    return status;
}

oct_status oct_train_step_digest(oct_train_step *step, int64_t slice, int64_t slices,
                                 uint64_t *digest)
{
    OCT_TRY(oct_step_state_list(&step->state, step->root, &step->optim));
    *digest = oct_step_state_digest(&step->state, slice, slices);
    return OCT_OK;
}
