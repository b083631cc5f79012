/* What a training step holds: its binding to a model, the state of training with a copy of it, and the numbers that ranks
 * exchange. train_step.c makes the steps. */
#include "quant/train/train_step_impl.h"

#include "core/base/cpu.h"
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "quant/graph/graph.h"

#include <string.h>

static const void *const nonfinite_words[] = {OCT_NONFINITE_LIST(OCT_WORD_ITEM)};
const oct_registry oct_nonfinite_table = OCT_REGISTRY("a mode", nonfinite_words);

/* The numbers of the control reduction; the observers' keys follow, then in some updates the sums of the gates: those of
 * each rank in a place of their own, so that the maximum over the ranks is what each of them has. */
enum {
    CONTROL_BAD_GRAD, /* how many parameters there are from the first one with a bad gradient on */
    CONTROL_FLAGS,
    CONTROL_KEYS = CONTROL_FLAGS + OCT_STEP_FLAGS,
    GATE_NUMBERS = OCT_GATE_OPERANDS * OCT_GATE_SUMS, /* of a gate and rank */
};

/* The state, as spans of memory that are digested, copied and put back. */

/* Appends bytes at `data` to the spans of memory that make up the state. */
static oct_status add_span(oct_step_state *state, void *data, size_t bytes)
{
    OCT_TRY(oct_grow(&state->spans, &state->capacity, state->count + 1, sizeof *state->spans));
    state->spans[state->count++] = (oct_state_span){data, bytes, state->bytes};
    state->bytes += bytes;
    return OCT_OK;
}

static oct_status add_tensor_span(void *user, const oct_state_item *item)
{
    const oct_tensor *tensor = item->tensor;
    return add_span(user, tensor->data, (size_t)oct_numel(tensor) * oct_dtype_bytes(tensor->dtype));
}

static oct_status add_average_span(void *user, const oct_state_item *item)
{
    oct_train_step *s = user;
    float *average = oct_average_of(&s->optim.average, item->tensor);
    if (!average) return OCT_OK;
    return add_span(&s->state, average, (size_t)oct_numel(item->tensor) * sizeof *average);
}

static void free_state(oct_step_state *state)
{
    oct_free(&state->spans);
    *state = (oct_step_state){0};
}

/* Lists the state, unless that was done already: what is listed stays where it is until the next rebind. */
static oct_status list_state(oct_train_step *s)
{
    const oct_optim *optim = &s->optim;
    if (s->state.spans) return OCT_OK;
    oct_status status = oct_module_state(s->root, add_tensor_span, &s->state);
    for (int i = 0; i < optim->num_slots && status == OCT_OK; i++)
        status = add_span(&s->state, optim->slot[i], (size_t)optim->numel * sizeof(float));
    if (status == OCT_OK) status = oct_module_state(s->root, add_average_span, s);
    if (status == OCT_OK)
        status = add_span(&s->state, optim->tiers, (size_t)optim->num_tiers * sizeof *optim->tiers);
    if (status != OCT_OK) free_state(&s->state);
    return status;
}

oct_status oct_train_step_digest(oct_train_step *step, int64_t slice, int64_t slices,
                                 uint64_t *digest)
{
    OCT_TRY(list_state(step));
    const oct_step_state *state = &step->state;
    const int64_t bytes = (int64_t)state->bytes;
    /* The first slices have one byte more. */
    const int64_t begin = bytes / slices * slice + oct_min_i64(slice, bytes % slices);
    const int64_t end = begin + bytes / slices + (slice < bytes % slices);
    uint64_t chain[2] = {0}; /* the digest so far, and that of the next span */
    for (size_t i = 0; i < state->count; i++) {
        const oct_state_span *span = &state->spans[i];
        const int64_t first = oct_max_i64(begin - (int64_t)span->offset, 0);
        const int64_t last = oct_min_i64(end - (int64_t)span->offset, (int64_t)span->bytes);
        if (first >= last) continue;
        chain[1] = oct_digest((const char *)span->data + first, (size_t)(last - first));
        chain[0] = oct_digest(chain, sizeof chain);
    }
    *digest = chain[0];
    return OCT_OK;
}

static void destroy_undo(oct_step_undo *undo)
{
    oct_free(&undo->copy);
    *undo = (oct_step_undo){0};
}

/* Copies the state before a step; the first call takes the memory. */
static oct_status copy_state(oct_train_step *s)
{
    oct_step_undo *undo = &s->undo;
    OCT_TRY(list_state(s));
    if (!undo->copy) OCT_TRY(oct_alloc(&undo->copy, s->state.bytes, 1));
    undo->updates = s->optim.updates;
    undo->average_begun = s->optim.average.begun;
    for (size_t i = 0; i < s->state.count; i++) {
        const oct_state_span *span = &s->state.spans[i];
        if (span->bytes > 0) memcpy(undo->copy + span->offset, span->data, span->bytes);
    }
    return OCT_OK;
}

void oct_step_swap_state(oct_train_step *s)
{
    oct_step_undo *undo = &s->undo;
    const int64_t updates = s->optim.updates;
    const bool begun = s->optim.average.begun;
    s->optim.updates = undo->updates;
    s->optim.average.begun = undo->average_begun;
    undo->updates = updates;
    undo->average_begun = begun;
    for (size_t i = 0; i < s->state.count; i++) {
        const oct_state_span *span = &s->state.spans[i];
        uint8_t *now = span->data, *kept = undo->copy + span->offset, buffer[4096];
        for (size_t at = 0; at < span->bytes; at += sizeof buffer) {
            const size_t n = span->bytes - at < sizeof buffer ? span->bytes - at : sizeof buffer;
            memcpy(buffer, now + at, n);
            memcpy(now + at, kept + at, n);
            memcpy(kept + at, buffer, n);
        }
    }
}

/* The binding to a model. */

static void unbind_model(oct_train_step *s)
{
    oct_free(&s->control);
    oct_free(&s->waiting);
    s->waiting_rows = 0;
    oct_free(&s->notes);
    s->notes_capacity = 0;
    s->sums = (oct_step_sums){0};
    destroy_undo(&s->undo);
    free_state(&s->state);
    oct_quantizers_free(&s->quantizers);
    oct_free(&s->gates.items);
    oct_free(&s->gates.state);
    s->gates = (oct_grad_gates){0};
    oct_optim_destroy(&s->optim);
    oct_params_unbind(&s->params);
}

oct_status oct_train_step_renew_memory(oct_train_step *step)
{
    oct_context_destroy(&step->context);
    return oct_context_create(&step->context, step->group);
}

/* Gives a layer with weights a gate. */
static oct_status add_gate(void *user, oct_module *module)
{
    oct_train_step *s = user;
    oct_grad_gates *gates = &s->gates;
    if (module->type != &oct_qat_conv_type) return OCT_OK;
    OCT_TRY(oct_grow(&gates->items, &gates->capacity, gates->count + 1, sizeof *gates->items));
    oct_grad_gate *gate = &gates->items[gates->count++];
    *gate = (oct_grad_gate){.layer = module};
    ((oct_qat_conv *)module)->gate = (int64_t)gates->count;
    const oct_path_text path = oct_module_path(module);
    for (int i = 0; s->int16_layers && i < s->int16_layers->count; i++)
        gate->named |= strcmp(path.text, s->int16_layers->value[i]) == 0;
    return OCT_OK;
}

/* Everything that was made for the model before is made anew. */
oct_status oct_train_step_rebind(oct_train_step *step, oct_module *root)
{
    const oct_leaves full =
        oct_leaves_split(step->batch, step->leaf, step->group->rank, step->group->size);
    unbind_model(step);
    step->root = root;
    step->graph = oct_graph_of(root);
    OCT_TRY(oct_train_step_renew_memory(step));
    OCT_TRY(oct_params_bind_on(&step->params, root, &full, step->group));
    OCT_TRY(oct_optim_create(&step->optim, &step->config, &step->params));
    OCT_TRY(oct_average_create(&step->optim.average, &step->average, root, &step->params));
    OCT_TRY(oct_quantizers_collect(&step->quantizers, root));
    if (step->numerics == OCT_NUMERICS_INT8) OCT_TRY(oct_module_walk(root, add_gate, step));
    const size_t tiers = step->gates.count * OCT_GATE_OPERANDS * OCT_GATE_STATES;
    OCT_TRY(oct_alloc(&step->gates.state, tiers, sizeof(int64_t)));
    step->optim.tiers = step->gates.state; /* so it goes into checkpoints */
    step->optim.num_tiers = (int64_t)tiers;
    return oct_alloc(&step->control,
                     CONTROL_KEYS + 2 * step->quantizers.count +
                         (size_t)step->group->size * (1 + step->gates.count * GATE_NUMBERS),
                     sizeof(int64_t));
}

oct_status oct_train_step_average(oct_train_step *step, const oct_average_options *options)
{
    step->average = *options;
    destroy_undo(&step->undo);
    free_state(&step->state);
    oct_average_destroy(&step->optim.average);
    return oct_average_create(&step->optim.average, options, step->root, &step->params);
}

oct_status oct_train_step_create(oct_train_step *step, oct_module *root,
                                 const oct_optim_config *config, int64_t batch, int64_t leaf,
                                 const oct_collective *group)
{
    *step = (oct_train_step){.group = group,
                             .config = *config,
                             .batch = batch,
                             .leaf = leaf,
                             .loss = {.kind = &oct_loss_cross_entropy, .metric = &oct_metric_top1}};
    OCT_TRY(oct_check_rounding());
    OCT_CHECK(batch > 0 && leaf > 0, OCT_USAGE,
              "a batch of %lld samples in leaves of %lld; both must be at least 1",
              (long long)batch, (long long)leaf);
    const oct_status status = oct_train_step_rebind(step, root);
    if (status != OCT_OK) oct_train_step_destroy(step);
    return status;
}

void oct_train_step_destroy(oct_train_step *step)
{
    unbind_model(step);
    oct_replay_free(&step->audit.replay);
    oct_context_destroy(&step->context);
}

/* Checks that the loss takes the goals that the batch has: labels, values for each output, a teacher's outputs. */
static oct_status check_goals(const oct_loss_kind *loss, const oct_batch *b)
{
    const bool both = b->labels && b->targets;
    if (!b->labels && !b->targets) return OCT_OK;
    OCT_CHECK(!both || loss->takes & OCT_LOSS_OF_BOTH, OCT_USAGE,
              "a batch has labels or targets, but this one has both");
    OCT_CHECK(both || loss->takes & (b->labels ? OCT_LOSS_OF_LABELS : OCT_LOSS_OF_VALUES),
              OCT_USAGE, "the loss %s does not take %s", loss->name,
              b->labels ? "labels" : "values for each output");
    OCT_CHECK(!b->teacher || loss->uses & OCT_LOSS_USES_TEACHER, OCT_USAGE,
              "the loss %s does not take a teacher's outputs", loss->name);
    return OCT_OK;
}

oct_status oct_step_check_batch(const oct_train_step *s, const oct_batch *b)
{
    OCT_TRY(oct_check_rounding());
    /* A step on a tree that has changed would train what has left it, and leave new quantizers without ranges. */
    OCT_CHECK(oct_graph_of(s->root) == s->graph && oct_params_are_of(&s->params, s->root),
              OCT_USAGE,
              "the model has changed since its parameters were bound (prepare, folding); call "
              "oct_train_step_rebind first");
    OCT_CHECK(b->num_inputs >= 1 && b->num_inputs <= OCT_MODEL_INPUTS, OCT_USAGE,
              "a batch has 1 to %d inputs, but this one has %d", OCT_MODEL_INPUTS, b->num_inputs);
    for (int i = 0; i < b->num_inputs; i++)
        OCT_CHECK(b->shape[i].ndim >= 1 && b->shape[i].dim[0] == b->shape[0].dim[0] &&
                      oct_shape_numel(&b->shape[i]) > 0,
                  OCT_USAGE,
                  "the inputs of a batch have its samples in front, but input 0 is %s and input %d "
                  "is %s",
                  oct_text_shape(&b->shape[0]).text, i, oct_text_shape(&b->shape[i]).text);
    const oct_leaves leaves =
        oct_leaves_split(b->shape[0].dim[0], s->leaf, s->group->rank, s->group->size);
    for (int i = 0; i < b->num_inputs; i++)
        OCT_CHECK(b->input[i] || oct_leaves_local_samples(&leaves) == 0, OCT_USAGE,
                  "the array of the batch's input %d is missing", i);
    return check_goals(s->loss.kind, b);
}

oct_status oct_step_check_learning(const oct_train_step *s, const oct_batch *b)
{
    OCT_TRY(oct_step_check_batch(s, b));
    OCT_CHECK(b->shape[0].dim[0] <= s->batch, OCT_USAGE,
              "a batch of %lld samples, but the training step was made for at most %lld; give "
              "oct_train_step_create the largest batch",
              (long long)b->shape[0].dim[0], (long long)s->batch);
    OCT_CHECK(oct_params_are_bound(&s->params), OCT_USAGE,
              "another training step has taken the model's parameters since; call "
              "oct_train_step_rebind, which starts the optimizer anew, or run that one");
    return OCT_OK;
}

oct_status oct_train_step_begin(oct_train_step *step, int64_t batches, int64_t samples, float lr)
{
    OCT_CHECK(batches > 0 && samples >= batches, OCT_USAGE,
              "an update of %lld batches with %lld samples together; there must be at least one "
              "batch, and a sample in each",
              (long long)batches, (long long)samples);
    oct_quantizers_discard_batch(&step->quantizers);
    step->gates.measures = step->update % OCT_GATE_EVERY == OCT_GATE_EVERY - 1;
    for (size_t i = 0; i < step->gates.count; i++) {
        memset(step->gates.items[i].sums, 0, sizeof step->gates.items[i].sums);
        memset(step->gates.items[i].changed, 0, sizeof step->gates.items[i].changed);
    }
    step->sums = (oct_step_sums){.batches = batches, .samples = samples, .lr = lr};
    if (step->nonfinite == OCT_NONFINITE_SKIP || step->audit.on) OCT_TRY(copy_state(step));
    /* Rows for the gradients that wait: as many as a binary counter up to `batches` has digits. */
    int rows = 0;
    while ((batches - 1) >> rows)
        rows++;
    if (rows <= step->waiting_rows) return OCT_OK;
    oct_free(&step->waiting);
    step->waiting_rows = 0;
    OCT_TRY(oct_alloc(&step->waiting, (size_t)rows, (size_t)step->params.numel * sizeof(float)));
    step->waiting_rows = rows;
    return OCT_OK;
}

/* The control reduction. */

/* Makes the first n control numbers their maximum over all ranks, and rank_flag with them, which follows the n. */
static oct_status max_over_ranks(oct_train_step *s, int64_t n)
{
    const int64_t more = s->rank_flag ? s->group->size : 0;
    int64_t *rank_flag = s->control + n;
    if (more > 0) memcpy(rank_flag, s->rank_flag, (size_t)more * sizeof *rank_flag);
    OCT_TRY(s->group->max_i64(s->group, s->control, n + more));
    if (more > 0) memcpy(s->rank_flag, rank_flag, (size_t)more * sizeof *rank_flag);
    return OCT_OK;
}

oct_status oct_step_reduce_flags(oct_train_step *s)
{
    memcpy(s->control, s->flag, sizeof s->flag);
    OCT_TRY(max_over_ranks(s, OCT_STEP_FLAGS));
    memcpy(s->flag, s->control, sizeof s->flag);
    return OCT_OK;
}

oct_status oct_step_reduce_control(oct_train_step *s, int64_t bad)
{
    const int64_t count = (int64_t)s->params.count;
    int64_t *control = s->control, *keys = control + CONTROL_KEYS;
    control[CONTROL_BAD_GRAD] = bad < 0 ? 0 : count - bad;
    memcpy(control + CONTROL_FLAGS, s->flag, sizeof s->flag);
    oct_quantizers_keys(&s->quantizers, keys);
    int64_t *sums = keys + 2 * s->quantizers.count;
    const size_t each = s->gates.measures ? s->gates.count * GATE_NUMBERS : 0;
    const size_t ranks = (size_t)s->group->size, own = (size_t)s->group->rank * each;
    memset(sums, 0, ranks * each * sizeof *sums);
    for (size_t i = 0; i < each / GATE_NUMBERS; i++)
        memcpy(sums + own + i * GATE_NUMBERS, s->gates.items[i].sums, GATE_NUMBERS * sizeof *sums);
    OCT_TRY(max_over_ranks(s, sums + ranks * each - control));
    memcpy(s->flag, control + CONTROL_FLAGS, sizeof s->flag);
    bad = control[CONTROL_BAD_GRAD];
    if (bad > 0) return oct_params_fail(&s->params, count - bad, true, s->root);
    OCT_TRY(oct_quantizers_check(&s->quantizers, keys));
    return oct_quantizers_sum_counts(&s->quantizers, s->group);
}

oct_status oct_step_update_observers(oct_train_step *s, bool learned)
{
    const oct_grad_gates *gates = &s->gates;
    const int64_t *keys = s->control + CONTROL_KEYS, *sums = keys + 2 * s->quantizers.count;
    const size_t each = gates->count * GATE_NUMBERS;
    OCT_TRY(oct_quantizers_update(&s->quantizers, keys));
    for (size_t i = 0; learned && i < gates->count * OCT_GATE_OPERANDS; i++) {
        oct_grad_gate *gate = &gates->items[i / OCT_GATE_OPERANDS];
        int64_t *total = gate->sums[i % OCT_GATE_OPERANDS];
        int64_t *state = gates->state + i * OCT_GATE_STATES, was = state[OCT_GATE_LEFT];
        for (size_t k = 0; gates->measures && k < OCT_GATE_SUMS; k++) {
            total[k] = 0;
            for (size_t r = 0; r < (size_t)s->group->size; r++)
                total[k] += sums[r * each + i * OCT_GATE_SUMS + k];
        }
        if (was > 0)
            state[OCT_GATE_LEFT]--;
        else if (gates->measures && total[OCT_GATE_ERROR] > total[OCT_GATE_SIGNAL] / 100)
            state[OCT_GATE_FAILURES]++;
        else if (gates->measures)
            state[OCT_GATE_FAILURES] = 0;
        if (state[OCT_GATE_FAILURES] == 2) {
            state[OCT_GATE_FAILURES] = 0;
            state[OCT_GATE_LEFT] = OCT_GATE_UPDATES;
        }
        gate->changed[i % OCT_GATE_OPERANDS] = (was > 0) != (state[OCT_GATE_LEFT] > 0);
    }
    return OCT_OK;
}
