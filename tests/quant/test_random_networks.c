/* What prepare promises of every network, on random ones: each method makes the same model, or refuses in
 * words; the prepared model in float is the float model; training, evaluation and the deployed program
 * compute the same bits on any number of threads and ranks.
 *
 * OCT_RANDOM_NETWORKS=N tries N networks, OCT_RANDOM_FIRST=S begins with seed S. A network that fails is
 * shrunk and printed. OCT_SMALL_NETWORKS=L tries all small networks of L operations between the stubs. */
#include "quant/program/step.h"
#include "core/autograd/context.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "core/nn/params.h"
#include "tests/quant/random_network.h"

#include <criterion/criterion.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdarg.h>

enum { SAMPLES = 5, LEAF = 2 }; /* leaves of 2, 2 and 1 */

#ifdef __SANITIZE_ADDRESS__ /* which makes one take four times as long */
enum { NETWORKS = 60 };
#else
enum { NETWORKS = 200 };
#endif

/* What a model computed, part by part, to be compared with another's. */
typedef struct part {
    char what[48];
    size_t end;
} part;

typedef struct trail {
    char *bytes;
    size_t length, capacity;
    part parts[128];
    int count;
} trail;

typedef struct trial {
    rn_plan *plan; /* a copy */
    oct_prepare_options options;
    const oct_collective *group;
    int64_t samples; /* of this rank */
    oct_module *root;
    oct_context *cx;
    oct_leaves leaves;
    oct_params params;
    oct_quantizers quantizers;
    float *x[OCT_MAX_INPUTS];
    oct_tensor *input[OCT_MAX_INPUTS]; /* of the last forward */
    bool refused, fallbacks;           /* float fallbacks: sums of float layers are in it */
    bool freed;                        /* forwards that free activations have been tried */
    trail trail;
} trial;

static _Thread_local char why[1024];

static bool fail_with(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return false;
}

#define WANT(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) return fail_with(__VA_ARGS__);                                           \
    } while (0)

static const char *failure(void)
{
    return oct_error_count() ? oct_error_message(0) : "no sentence";
}

#define WORKS(call) WANT((call) == OCT_OK, "%s: %s", #call, failure())

static bool keep_trail(trial *t, const char *what, const void *data, size_t bytes)
{
    trail *r = &t->trail;
    WANT(r->count < (int)OCT_COUNT(r->parts), "too many parts");
    WORKS(oct_grow(&r->bytes, &r->capacity, r->length + bytes, 1));
    if (bytes) memcpy(r->bytes + r->length, data, bytes);
    r->length += bytes;
    snprintf(r->parts[r->count].what, sizeof r->parts[0].what, "%s", what);
    r->parts[r->count++].end = r->length;
    return true;
}

/* b may end early. */
static bool same_trail(const trail *a, const trail *b)
{
    size_t begin = 0;
    for (int i = 0; i < b->count; i++) {
        if (i >= a->count || strcmp(a->parts[i].what, b->parts[i].what) != 0 ||
            a->parts[i].end != b->parts[i].end)
            return fail_with("part %d is another", i);
        size_t end = a->parts[i].end;
        for (size_t k = begin; k < end; k++)
            WANT(a->bytes[k] == b->bytes[k], "%s differs, byte %zu of %zu", a->parts[i].what,
                 k - begin, end - begin);
        begin = end;
    }
    return true;
}

/* On the threads that OpenMP has at the moment. */
static bool begin_trial(trial *t, const rn_plan *plan, const oct_prepare_options *options,
                        const oct_collective *group)
{
    *t = (trial){.plan = malloc(sizeof *plan), .options = *options, .group = group};
    *t->plan = *plan;
    t->leaves = oct_leaves_split(SAMPLES, LEAF, group->rank, group->size);
    t->samples = oct_leaves_local_samples(&t->leaves);
    WORKS(rn_create(&t->root, t->plan));
    WORKS(oct_context_create(&t->cx, group));
    for (int i = 0; i < plan->example.count; i++) {
        int64_t each = oct_shape_numel(&plan->example.shape[i]);
        float all[SAMPLES * 1024];
        WANT(each <= 1024, "a sample of %lld numbers", (long long)each);
        oct_fill_normal(all, SAMPLES * each, plan->seed, OCT_STREAM_TEST, (uint32_t)i, 0.1f, 1.0f);
        t->x[i] = calloc((size_t)(t->samples * each), sizeof(float));
        memcpy(t->x[i], all + oct_leaves_first_sample(&t->leaves) * each,
               (size_t)(t->samples * each) * sizeof(float));
    }
    return true;
}

static void end_trial(trial *t)
{
    oct_quantizers_free(&t->quantizers);
    oct_params_unbind(&t->params);
    oct_context_destroy(&t->cx);
    oct_module_destroy(&t->root);
    for (int i = 0; i < OCT_MAX_INPUTS; i++)
        free(t->x[i]);
    oct_free(&t->trail.bytes);
    free(t->plan);
}

/* `runs` of the loops, on all samples. */
static oct_tensor *forward(trial *t, bool record, int runs)
{
    oct_tensor *x[OCT_MAX_INPUTS];
    t->plan->runs = runs;
    if (record) oct_params_zero(&t->params);
    oct_context_begin(t->cx, t->leaves, record);
    for (int i = 0; i < t->plan->example.count; i++) {
        oct_shape shape = t->plan->example.shape[i];
        shape.dim[0] = t->samples;
        x[i] = oct_tensor_view(t->cx, OCT_F32, shape, t->x[i]);
        x[i]->needs_grad = record;
        t->input[i] = x[i];
    }
    return oct_module_call(t->cx, t->root, x, t->plan->example.count);
}

/* Once keeping all activations and once freeing them. */
static bool same_when_freed(trial *t, oct_lifetimes *lifetimes, bool learned_way, int runs)
{
    const oct_tensor *y = forward(t, false, runs);
    WANT(y && oct_context_status(t->cx) == OCT_OK, "%d runs: %s", runs, failure());
    const size_t bytes = (size_t)oct_numel(y) * sizeof(float);
    float *wanted = malloc(bytes);
    memcpy(wanted, y->data, bytes);
    t->cx->lifetimes = lifetimes;
    y = forward(t, false, runs);
    t->cx->lifetimes = NULL;
    bool ok = true;
    const bool diverged = oct_lifetimes_end(lifetimes, y) < 0;
    if (!y && (learned_way || !diverged))
        ok = fail_with("freeing activations: %s", failure());
    else if (y && memcmp(y->data, wanted, bytes) != 0)
        ok = fail_with("another output when activations are freed");
    free(wanted);
    return ok;
}

/* Loops that turn once more or less than was learned are another way. */
static bool check_freed(trial *t, int runs)
{
    oct_lifetimes *lifetimes;
    WANT(oct_module_calls_only(t->root) == (t->plan->num_hooks == 0),
         "networks hand on, unless hooks look at them");
    if (t->plan->num_hooks > 0) return true;
    WORKS(oct_lifetimes_create(&lifetimes));
    bool ok = same_when_freed(t, lifetimes, true, runs) &&
              same_when_freed(t, lifetimes, true, runs) &&
              same_when_freed(t, lifetimes, false, runs + 1) &&
              (runs == 1 || same_when_freed(t, lifetimes, false, runs - 1)) &&
              same_when_freed(t, lifetimes, true, runs);
    oct_lifetimes_destroy(&lifetimes);
    return ok;
}

static bool keep_forward(trial *t, const char *what, bool record, int runs)
{
    const oct_tensor *y = forward(t, record, runs);
    WANT(y && oct_context_status(t->cx) == OCT_OK, "%s: %s", what, failure());
    WANT(y->dtype == OCT_F32, "%s: the output is codes", what);
    if (!keep_trail(t, what, oct_f32(y), (size_t)oct_numel(y) * sizeof(float))) return false;
    if (record || t->root->training || t->freed || omp_get_max_threads() > 1) return true;
    t->freed = true;
    return check_freed(t, runs);
}

static bool update(trial *t)
{
    int64_t keys[512];
    WANT(2 * t->quantizers.count <= OCT_COUNT(keys), "too many quantizers");
    oct_quantizers_keys(&t->quantizers, keys);
    WORKS(t->group->max_i64(t->group, keys, (int64_t)(2 * t->quantizers.count)));
    WORKS(oct_quantizers_sum_counts(&t->quantizers, t->group));
    WORKS(oct_quantizers_update(&t->quantizers, keys));
    return true;
}

/* Random numbers for the output, each sample's its own. */
static void fill_gradient(const trial *t, int64_t each, float *grad)
{
    for (int64_t i = 0; i < t->samples; i++)
        oct_fill_normal(grad + i * each, each, t->plan->seed, OCT_STREAM_TEST,
                        (uint32_t)(100 + i + oct_leaves_first_sample(&t->leaves)), 0.0f, 1.0f);
}

static bool train_steps(trial *t, int runs)
{
    oct_tensor *y = forward(t, true, runs);
    WANT(y && oct_context_status(t->cx) == OCT_OK, "training forward: %s", failure());
    if (!keep_trail(t, "training output", oct_f32(y), (size_t)oct_numel(y) * sizeof(float)))
        return false;
    if (y->needs_grad && y->node) {
        float *grad = oct_scratch(t->cx, (size_t)oct_numel(y) * sizeof(float) + 64);
        fill_gradient(t, oct_numel(y) / t->samples, grad);
        oct_add_grad(t->cx, y, grad);
        WORKS(oct_backward(t->cx, y));
    }
    WORKS(oct_params_reduce(&t->params, t->group, &t->leaves));
    WORKS(oct_quantizers_backward(&t->quantizers));
    for (int64_t i = 0; i < t->params.numel; i++)
        WANT(isfinite(t->params.grads[i]), "a gradient is not finite");
    return keep_trail(t, "gradients", t->params.grads, (size_t)t->params.numel * sizeof(float));
}

static void descend(trial *t)
{
    for (size_t p = 0; p < t->params.count; p++) {
        oct_param *param = t->params.items[p];
        for (int64_t i = 0; i < oct_numel(&param->value); i++)
            oct_f32(&param->value)[i] -= 0.02f * param->grad[i] / (1.0f + fabsf(param->grad[i]));
    }
}

typedef struct names {
    trial *t;
    char (*all)[256];
    size_t count, capacity;
    bool twice;
} names;

static oct_status keep_item(void *user, const oct_state_item *item)
{
    names *n = user;
    size_t bytes = (size_t)oct_numel(item->tensor) * oct_dtype_bytes(item->tensor->dtype);
    OCT_TRY(oct_grow(&n->all, &n->capacity, n->count + 1, sizeof *n->all));
    for (size_t i = 0; i < n->count; i++)
        n->twice |= strcmp(n->all[i], item->path) == 0;
    snprintf(n->all[n->count++], sizeof *n->all, "%s", item->path);
    trail *r = &n->t->trail;
    OCT_TRY(oct_grow(&r->bytes, &r->capacity, r->length + bytes + 256, 1));
    memcpy(r->bytes + r->length, n->all[n->count - 1], strlen(item->path));
    memcpy(r->bytes + r->length + strlen(item->path), item->tensor->data, bytes);
    r->length += bytes + strlen(item->path);
    return OCT_OK;
}

static bool keep_state(trial *t)
{
    names n = {.t = t};
    oct_status status = oct_module_state(t->root, keep_item, &n);
    oct_free(&n.all);
    WANT(status == OCT_OK, "state: %s", failure());
    WANT(!n.twice, "two things in the state have one name");
    return keep_trail(t, "state", NULL, 0);
}

/* Prepares; false only for what may not happen. */
static bool prepare(trial *t)
{
    t->plan->runs = 2;
    oct_text report = {0};
    oct_status status = oct_prepare(&t->root, &t->plan->example, &t->options, &report);
    oct_text_free(&report);
    t->refused = status != OCT_OK;
    if (!t->refused) {
        WORKS(oct_params_bind(&t->params, t->root, &t->leaves));
        WORKS(oct_quantizers_collect(&t->quantizers, t->root));
        return true;
    }
    WANT(status == OCT_PREPARE, "prepare fails with code %d: %s", status, failure());
    WANT(oct_error_count() > 0, "prepare refuses without a word");
    for (size_t i = 0; i < oct_error_count(); i++)
        WANT(strlen(oct_error_message(i)) > 10, "prepare refuses with '%s'", oct_error_message(i));
    return true;
}

static bool check_quantizers(trial *t)
{
    oct_tensor_quantizer *list = NULL;
    size_t count = 0, found = 0;
    WORKS(oct_graph_quantizers(oct_graph_of(t->root), &list, &count));
    for (size_t q = 0; q < t->quantizers.count; q++)
        for (size_t i = 0; i < count; i++)
            if (list[i].fq == t->quantizers.items[q]) {
                found++;
                break;
            }
    oct_free(&list);
    WANT(found == t->quantizers.count, "%zu quantizers of %zu belong to a tensor", found,
         t->quantizers.count);
    return true;
}

static bool check_texts(trial *t)
{
    oct_text report = {0}, tree = {0}, table = {0};
    bool written = oct_report_write(&report, t->root) == OCT_OK &&
                   oct_tree_write(&tree, t->root) == OCT_OK &&
                   oct_graph_table(oct_graph_of(t->root), &table) == OCT_OK;
    bool full = written && report.length && tree.length && table.length;
    oct_text_free(&report);
    oct_text_free(&tree);
    oct_text_free(&table);
    WANT(full, "report, tree or table: %s", failure());
    return true;
}

static bool near(const float *a, const float *b, int64_t n, double bound)
{
    double largest = 1e-3;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)b[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= bound * largest)) return false;
    return true;
}

/* With all quantizers off the prepared model is the float model. Folding rounds weights, so it gives the
 * float model's values to rounding only. */
static bool check_float(trial *t)
{
    trial f;
    bool ok = begin_trial(&f, t->plan, &t->options, t->group);
    for (int runs = 2; ok && runs >= 1; runs--) {
        oct_module_train(f.root, false);
        oct_module_train(t->root, false);
        ok = keep_forward(&f, "float", false, runs);
        const oct_tensor *y = ok ? forward(t, false, runs) : NULL;
        if (!ok || !y) {
            ok = ok && fail_with("float state: %s", failure());
            break;
        }
        const float *wanted = (const float *)(const void *)f.trail.bytes;
        ok = t->options.fold_batch_norm
                 ? near(oct_f32(y), wanted, oct_numel(y), 1e-4)
                 : memcmp(y->data, wanted, (size_t)oct_numel(y) * sizeof(float)) == 0;
        if (!ok)
            fail_with("with quantizers off the output is not the float model's (%d runs)", runs);
        f.trail.length = 0;
    }
    end_trial(&f);
    oct_module_train(t->root, true);
    return ok;
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The same gradients in any order: fusion moves parameters about in the tree, and rounds sums of several
 * gradients of one tensor in another order. */
static bool near_sorted(const float *a, const float *b, size_t n)
{
    float *x = malloc(n * sizeof *x + 1), *y = malloc(n * sizeof *y + 1);
    memcpy(x, a, n * sizeof *x);
    memcpy(y, b, n * sizeof *y);
    qsort(x, n, sizeof *x, ascending);
    qsort(y, n, sizeof *y, ascending);
    bool same = near(x, y, (int64_t)n, 1e-4);
    free(x);
    free(y);
    return same;
}

/* Scales that could be learned are frozen in float, and have no gradient. */
static bool same_gradients(const oct_params *t, const oct_params *f)
{
    float *own = malloc((size_t)t->numel * sizeof *own + 1);
    int64_t n = 0;
    bool same = true;
    for (size_t p = 0; p < t->count; p++) {
        const oct_param *param = t->items[p];
        for (int64_t i = 0; i < oct_numel(&param->value); i++) {
            if (!param->frozen) own[n++] = param->grad[i];
            same &= !param->frozen || param->grad[i] == 0.0f;
        }
    }
    same = same && n == f->numel && near_sorted(own, f->grads, (size_t)n);
    free(own);
    return same;
}

static bool same_input_gradients(const trial *a, const trial *b)
{
    for (int i = 0; i < a->plan->example.count; i++) {
        const oct_tensor *x = a->input[i], *y = b->input[i];
        WANT(!x->grad == !y->grad, "input %d has a gradient in one model only", i);
        WANT(!x->grad || near(x->grad, y->grad, oct_numel(x), 1e-4),
             "the gradient of input %d is not the float model's", i);
    }
    return true;
}

/* The last step of t was one of the float model. */
static bool check_float_step(const trial *t)
{
    trial f;
    bool ok = begin_trial(&f, t->plan, &t->options, t->group) &&
              oct_params_bind(&f.params, f.root, &f.leaves) == OCT_OK && train_steps(&f, 2);
    const trail *a = &t->trail, *b = &f.trail;
    if (ok &&
        (a->parts[0].end != b->parts[0].end || memcmp(a->bytes, b->bytes, a->parts[0].end) != 0))
        ok = fail_with("with quantizers off a training step's output is not the float model's");
    if (ok && !same_gradients(&t->params, &f.params))
        ok = fail_with("with quantizers off gradients of parameters are not the float model's");
    ok = ok && same_input_gradients(t, &f);
    end_trial(&f);
    return ok;
}

/* Parameters that nothing of the output depends on have no gradient. */
static bool check_dead(trial *t, int body)
{
    const rn_body *b = &t->plan->body[body];
    char prefix[80];
    for (int c = 0; c < b->num_children; c++) {
        if (rn_reaches(t->plan, body, c)) {
            if (b->child[c].kind == RN_BODY && !check_dead(t, b->child[c].body)) return false;
            continue;
        }
        snprintf(prefix, sizeof prefix, "%sc%d", b->path, c);
        oct_module *m = oct_module_find(t->root, prefix);
        WANT(m, "%s is gone", prefix);
        for (size_t i = 0; i < m->num_params; i++)
            for (int64_t k = 0; k < oct_numel(&m->params[i]->value); k++)
                WANT(m->params[i]->grad[k] == 0, "%s reaches nothing and has a gradient", prefix);
    }
    return true;
}

static bool sums_in_float(const oct_program *p)
{
    for (int64_t i = 0; i < p->num_steps; i++) {
        const char *type = oct_step_operation(&p->steps[i]);
        if (strncmp(type, "conv", 4) == 0 || strcmp(type, "linear") == 0) return true;
    }
    return false;
}

static bool check_program(trial *t, const oct_tensor *y, const char *when)
{
    oct_program program = {0};
    oct_runtime *runtime = NULL;
    bool ok = true;
    const char *failed = NULL;
    size_t bytes = (size_t)oct_numel(y) * sizeof(float);
    float *wanted = malloc(bytes), *out = malloc(bytes);
    memcpy(wanted, y->data, bytes);
    if (oct_convert(&program, t->root, &t->plan->example, t->options.target, NULL) != OCT_OK)
        failed = "convert";
    else if (oct_runtime_create(&runtime, &program,
                                &(oct_runtime_options){.max_batch = t->samples,
                                                       .host = &oct_module_fallbacks}) != OCT_OK)
        failed = "runtime";
    else if (oct_runtime_run(runtime, t->samples, (const float *const *)t->x, out) != OCT_OK)
        failed = "run";
    if (failed)
        ok = fail_with("%s %s: %s", failed, when, failure());
    else if (memcmp(out, wanted, bytes) != 0)
        ok = fail_with("the program differs from evaluation, %s", when);
    t->fallbacks |= !failed && sums_in_float(&program);
    oct_runtime_destroy(&runtime);
    oct_program_free(&program);
    free(wanted);
    free(out);
    return ok;
}

/* Training forward, evaluation and program of a frozen model, then with batch norms folded. */
static bool check_frozen(trial *t, int runs)
{
    oct_freeze_batch_norm(t->root, true);
    oct_quantizers_set_state(&t->quantizers, OCT_QUANT_FROZEN);
    const oct_tensor *y = forward(t, false, runs);
    WANT(y && oct_context_status(t->cx) == OCT_OK, "frozen forward: %s", failure());
    size_t bytes = (size_t)oct_numel(y) * sizeof(float);
    float *trained = malloc(bytes);
    memcpy(trained, y->data, bytes);
    oct_module_train(t->root, false);
    bool ok = oct_set_fake_quant(t->root, OCT_STATE_VALIDATION) == OCT_OK;
    y = ok ? forward(t, false, runs) : NULL;
    ok = y && oct_context_status(t->cx) == OCT_OK;
    if (!ok) fail_with("evaluation: %s", failure());
    bool same = ok && memcmp(trained, y->data, bytes) == 0;
    ok = ok && keep_trail(t, "evaluation", y->data, bytes) && check_program(t, y, "frozen");
    if (ok && !same && !t->fallbacks && !t->plan->branches)
        ok = fail_with("frozen training and evaluation differ");
    free(trained);
    return ok;
}

static bool check_folded(trial *t, int runs)
{
    const oct_tensor *y = forward(t, false, runs);
    WANT(y && oct_context_status(t->cx) == OCT_OK, "before the fold: %s", failure());
    size_t bytes = (size_t)oct_numel(y) * sizeof(float);
    float *before = malloc(bytes);
    memcpy(before, y->data, bytes);
    oct_params_unbind(&t->params);
    bool ok = oct_fold_batch_norm(t->root) == OCT_OK;
    y = ok ? forward(t, false, runs) : NULL;
    ok = y && oct_context_status(t->cx) == OCT_OK;
    if (!ok)
        fail_with("fold: %s", failure());
    else if (memcmp(before, y->data, bytes) != 0)
        ok = fail_with("folding changed the evaluation");
    free(before);
    return ok && check_program(t, y, "folded");
}

/* The whole life of a model of this plan, whose trail stays for comparison. */
static bool live(trial *t, bool thorough)
{
    if (!prepare(t)) return false;
    if (t->refused) return true;
    if (thorough && (!check_quantizers(t) || !check_texts(t))) return false;
    if (thorough && !check_float(t)) return false;
    oct_module_train(t->root, true);
    WORKS(oct_set_fake_quant(t->root, OCT_STATE_FLOAT));
    if (!train_steps(t, 2)) return false;
    if (thorough && !t->options.fold_batch_norm && !check_float_step(t)) return false;
    WORKS(oct_set_fake_quant(t->root, OCT_STATE_CALIBRATION));
    if (!keep_forward(t, "calibration", false, 2) || !update(t) || !keep_state(t)) return false;
    WORKS(oct_set_fake_quant(t->root, OCT_STATE_QAT));
    for (int runs = 1; runs <= 3; runs += 2) {
        if (!train_steps(t, runs) || !check_dead(t, 0)) return false;
        descend(t);
        if (!update(t) || !keep_state(t)) return false;
    }
    if (t->quantizers.count == 0) return true; /* all of it stayed float */
    if (!check_frozen(t, 2)) return false;
    if (thorough && t->plan->has_loop) {
        oct_module_train(t->root, true);
        if (!check_frozen(t, 3)) return false;
    }
    if (thorough && (!check_texts(t) || !check_folded(t, 2))) return false;
    return true;
}

typedef struct tally {
    int tried, prepared, compared, fallbacks;
} tally;

/* A second life, to be the same as the first. */
static bool again(const trial *first, oct_prepare_method method, int threads, tally *count)
{
    trial t;
    oct_prepare_options options = first->options;
    options.method = method;
    omp_set_num_threads(threads);
    bool comparable = method != OCT_METHOD_JIT_STRIP || rn_quantizes_the_same(first->plan);
    bool ok = begin_trial(&t, first->plan, &options, &oct_collective_one) && live(&t, threads == 1);
    bool excused = t.refused && first->plan->has_loop && method == OCT_METHOD_SYMBOLIC;
    omp_set_num_threads(1);
    if (ok && comparable && !excused && t.refused != first->refused)
        ok = fail_with("one method refuses and another does not: %s", failure());
    if (ok && comparable && !t.refused && !first->refused) {
        ok = same_trail(&first->trail, &t.trail);
        count->compared++;
    }
    end_trial(&t);
    return ok;
}

/* Two ranks, each a thread with a model of its own. */
typedef struct crowd {
    pthread_mutex_t lock;
    pthread_cond_t turn;
    int arrived, barrier;
    bool left; /* one of them has failed */
    const void *shown[2];
    const oct_leaves *leaves[2];
} crowd;

typedef struct member {
    oct_collective collective;
    crowd *crowd;
    const trial *first;
    trial trial;
    bool ok;
    char why[sizeof why];
} member;

static oct_status synchronize(crowd *c)
{
    pthread_mutex_lock(&c->lock);
    int barrier = c->barrier;
    if (++c->arrived == 2) {
        c->arrived = 0;
        c->barrier++;
        pthread_cond_broadcast(&c->turn);
    }
    while (c->barrier == barrier && !c->left)
        pthread_cond_wait(&c->turn, &c->lock);
    bool complete = c->barrier != barrier;
    pthread_mutex_unlock(&c->lock);
    return complete ? OCT_OK : oct_fail(OCT_LOST, "the other rank has failed");
}

static void leave(crowd *c)
{
    pthread_mutex_lock(&c->lock);
    c->left = true;
    pthread_cond_broadcast(&c->turn);
    pthread_mutex_unlock(&c->lock);
}

static oct_status show(const oct_collective *self, const oct_leaves *leaves, const void *data)
{
    const member *m = (const member *)self;
    m->crowd->shown[self->rank] = data;
    m->crowd->leaves[self->rank] = leaves;
    return synchronize(m->crowd);
}

/* The parts of both ranks in one list; each rank merges them for itself. */
static oct_status sum(const oct_collective *self, const oct_leaves *leaves, void *parts, int64_t n,
                      size_t width, void *out)
{
    crowd *c = ((const member *)self)->crowd;
    oct_subtree trees[2 * OCT_MAX_PARTS];
    void *vectors[2 * OCT_MAX_PARTS];
    const oct_leaves all = oct_leaves_split(leaves->samples, leaves->leaf, 0, 1); /* of one rank */
    int count = 0;
    OCT_TRY(show(self, leaves, parts));
    for (int rank = 0; rank < 2; rank++) {
        int more = oct_leaves_parts(c->leaves[rank], trees + count);
        for (int p = 0; p < more; p++) {
            vectors[count + p] = malloc((size_t)n * width + 1);
            memcpy(vectors[count + p], (const char *)c->shown[rank] + (size_t)(p * n) * width,
                   (size_t)n * width);
        }
        count += more;
    }
    oct_status status = synchronize(c); /* both have copies, and out may be the first part */
    oct_tree_merge(&all, trees, vectors, count, n, width);
    memcpy(out, vectors[0], (size_t)n * width);
    for (int p = 0; p < count; p++)
        free(vectors[p]);
    return status;
}

/* At once, in one vector for each part. */
static oct_status sum_rows(const oct_collective *self, const oct_leaves *leaves, float *parts,
                           int64_t stride, int64_t n)
{
    oct_subtree trees[OCT_MAX_PARTS];
    const int count = oct_leaves_parts(leaves, trees);
    float *rows = malloc((size_t)(count * n + 1) * sizeof *rows);
    for (int p = 0; p < count; p++)
        memcpy(rows + p * n, parts + p * stride, (size_t)n * sizeof *rows);
    const oct_status status = sum(self, leaves, rows, n, sizeof *rows, parts);
    free(rows);
    return status;
}

static oct_status nothing_moves(const oct_collective *self)
{
    (void)self;
    return OCT_OK;
}

static oct_status largest(const oct_collective *self, int64_t *values, int64_t n)
{
    crowd *c = ((const member *)self)->crowd;
    int64_t mine[1024];
    OCT_CHECK(n <= (int64_t)OCT_COUNT(mine), OCT_DEFECT, "too many keys");
    memcpy(mine, values, (size_t)n * sizeof *mine);
    OCT_TRY(show(self, NULL, mine));
    const int64_t *other = c->shown[1 - self->rank];
    for (int64_t i = 0; i < n; i++)
        if (other[i] > values[i]) values[i] = other[i];
    return synchronize(c);
}

static oct_status both_well(const oct_collective *self, oct_status mine)
{
    OCT_TRY(show(self, NULL, &mine));
    const crowd *c = ((const member *)self)->crowd;
    oct_status other = *(const oct_status *)c->shown[1 - self->rank];
    OCT_TRY(synchronize(((const member *)self)->crowd));
    return mine != OCT_OK ? mine : other;
}

static void *live_as_rank(void *user)
{
    member *m = user;
    omp_set_num_threads(1);
    m->ok = begin_trial(&m->trial, m->first->plan, &m->first->options, &m->collective) &&
            live(&m->trial, false);
    if (!m->ok) leave(m->crowd);
    snprintf(m->why, sizeof m->why, "%s", why);
    return NULL;
}

static size_t part_begin(const trail *r, int i)
{
    return i ? r->parts[i - 1].end : 0;
}

/* Outputs of both ranks are the whole's, one after another; all else each rank has whole. */
static bool same_ranks(const trail *whole, const trail *a, const trail *b)
{
    WANT(a->count == b->count && a->count <= whole->count, "ranks differ in what they did");
    for (int i = 0; i < a->count; i++) {
        const char *what = whole->parts[i].what;
        size_t at = part_begin(whole, i), all = whole->parts[i].end - at;
        size_t in_a = part_begin(a, i), in_b = part_begin(b, i);
        size_t of_a = a->parts[i].end - in_a, of_b = b->parts[i].end - in_b;
        bool split = strcmp(what, "gradients") != 0 && strcmp(what, "state") != 0;
        WANT(split ? of_a + of_b == all : of_a == all && of_b == all, "%s: other sizes", what);
        WANT(memcmp(whole->bytes + at, a->bytes + in_a, of_a) == 0, "%s differs on rank 0", what);
        WANT(memcmp(whole->bytes + at + (split ? of_a : 0), b->bytes + in_b, of_b) == 0,
             "%s differs on rank 1", what);
    }
    return true;
}

static bool live_on_ranks(const trial *first, tally *count)
{
    crowd c = {.lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER};
    pthread_t threads[2];
    member *m = calloc(2, sizeof *m);
    for (int i = 0; i < 2; i++) { /* nothing in a step broadcasts or gathers */
        m[i].collective = oct_collective_one;
        m[i].collective.rank = i;
        m[i].collective.size = 2;
        m[i].collective.tree_sum = sum;
        m[i].collective.max_i64 = largest;
        m[i].collective.agree = both_well;
        m[i].collective.sum_begin = sum_rows;
        m[i].collective.sums_move = nothing_moves;
        m[i].collective.sums_finish = nothing_moves;
        m[i].crowd = &c;
        m[i].first = first;
        pthread_create(&threads[i], NULL, live_as_rank, &m[i]);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    bool ok = true;
    for (int i = 0; i < 2; i++)
        if (!m[i].ok && !strstr(m[i].why, "the other rank has failed"))
            ok = fail_with("rank %d: %.900s", i, m[i].why);
    if (ok) ok = same_ranks(&first->trail, &m[0].trial.trail, &m[1].trial.trail);
    count->compared += ok;
    for (int i = 0; i < 2; i++)
        end_trial(&m[i].trial);
    free(m);
    return ok;
}

/* crowded: also on two threads and on two ranks. */
static bool check_network(const rn_plan *plan, bool crowded, tally *count)
{
    trial t;
    size_t held = oct_mem_live();
    oct_prepare_options options = plan->options;
    options.method = OCT_METHOD_JIT;
    const char *at = "jit";
    count->tried++;
    omp_set_num_threads(1);
    bool ok = begin_trial(&t, plan, &options, &oct_collective_one) && live(&t, true);
    count->prepared += !t.refused;
    count->fallbacks += t.fallbacks;
    if (ok) at = "symbolic", ok = again(&t, OCT_METHOD_SYMBOLIC, 1, count);
    if (ok) at = "jit_strip", ok = again(&t, OCT_METHOD_JIT_STRIP, 1, count);
    crowded = crowded && !t.refused;
    if (ok && crowded) at = "two threads", ok = again(&t, OCT_METHOD_JIT, 2, count);
    if (ok && crowded) at = "two ranks", ok = live_on_ranks(&t, count);
    end_trial(&t);
    if (ok && oct_mem_live() != held) ok = fail_with("%zu bytes are left", oct_mem_live() - held);
    if (!ok) {
        char text[sizeof why];
        snprintf(text, sizeof text, "%s", why);
        fail_with("%s: %.900s", at, text);
    }
    return ok;
}

/* Leaves out every operation without which it fails with the same words. */
static void shrink(rn_plan *plan)
{
    tally ignored = {0};
    char words[48];
    snprintf(words, sizeof words, "%.47s", why);
    for (int i = 0; i < plan->drawn && i < 64; i++) {
        plan->skipped |= UINT64_C(1) << i;
        if (check_network(plan, true, &ignored) || strncmp(why, words, sizeof words - 1) != 0)
            plan->skipped &= ~(UINT64_C(1) << i);
    }
    check_network(plan, true, &ignored);
}

static long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    int64_t given = otherwise;
    cr_assert(!text || oct_parse_i64(text, &given), "%s=%s is no whole number", name, text);
    return (long)given;
}

Test(random_networks, keep_every_promise, .timeout = 100000)
{
    long networks = setting("OCT_RANDOM_NETWORKS", NETWORKS),
         first = setting("OCT_RANDOM_FIRST", 1);
    tally count = {0};
    int failed = 0;
    rn_plan *plan = malloc(sizeof *plan);
    cr_assert_eq(oct_module_type_register(&rn_own_type), OCT_OK);
    for (long i = 0; i < networks; i++) {
        rn_plan_draw(plan, (uint64_t)(first + i), 1000);
        if (check_network(plan, true, &count)) continue;
        fprintf(stderr, "seed %ld: %s\n", first + i, why);
        failed++;
        if (!getenv("OCT_RANDOM_SHRINK")) continue;
        shrink(plan);
        rn_print(plan, stderr);
        fprintf(stderr, "  shrunk: %s\n", why);
    }
    fprintf(stderr, "%d networks: %d prepared, %d comparisons, %d with float layers\n", count.tried,
            count.prepared, count.compared, count.fallbacks);
    free(plan);
    cr_assert_eq(failed, 0, "%d networks of %ld failed", failed, networks);
}

/* All of length 2, and some of length 3. */
Test(random_networks, every_small_one_keeps_them, .timeout = 100000)
{
    long given = setting("OCT_SMALL_NETWORKS", 0), failed = 0;
    tally count = {0};
    rn_plan *plan = malloc(sizeof *plan);
    for (int length = given ? (int)given : 2; length <= (given ? given : 3); length++) {
        long step = !given && length == 3 ? 17 : 1;
        for (long i = 0; i < rn_small_count(length); i += step) {
            rn_small(plan, i, length);
            if (check_network(plan, i % 16 == 0, &count)) continue;
            fprintf(stderr, "number %ld of length %d: %s\n", i, length, why);
            rn_print(plan, stderr);
            failed++;
        }
    }
    fprintf(stderr, "%d networks: %d prepared, %d comparisons\n", count.tried, count.prepared,
            count.compared);
    free(plan);
    cr_assert_eq(failed, 0, "%ld networks failed", failed);
}
