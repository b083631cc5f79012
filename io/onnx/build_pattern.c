/* Exporters write functions that ONNX did not have in their opset as several nodes. The last of them is made to
 * stand for all; those before it are needed no more, unless somebody else reads them. */
#include "io/onnx/build_impl.h"

#include <math.h>
#include <string.h>

const char *oct_build_type(const oct_onnx_builder *b, int64_t node)
{
    return b->fused[node].type ? b->fused[node].type : b->graph->nodes[node].type;
}

int oct_build_inputs(const oct_onnx_builder *b, int64_t node)
{
    return b->fused[node].type ? b->fused[node].inputs : b->graph->nodes[node].inputs;
}

int32_t oct_build_input(const oct_onnx_builder *b, int64_t node, int i)
{
    return b->fused[node].type ? b->fused[node].input[i] : b->graph->nodes[node].input[i];
}

bool oct_build_scalar(const oct_onnx_builder *b, int32_t value, double *x)
{
    const oct_onnx_value *v = value < 0 ? NULL : &b->graph->values[value];
    if (!v || !v->data || oct_onnx_numel(v) != 1) return false;
    if (v->dtype == OCT_S64)
        *x = (double)*(const int64_t *)v->data;
    else if (v->dtype == OCT_F32)
        *x = (double)*(const float *)v->data;
    else
        return false;
    return true;
}

/* The bounds of floats stand for none. */
bool oct_build_bounds(const oct_onnx_builder *b, const oct_onnx_node *n, double *lo, double *hi)
{
    const double none = 3.4e38;
    *lo = (double)oct_onnx_float(n, "min", -INFINITY);
    *hi = (double)oct_onnx_float(n, "max", INFINITY);
    if (n->inputs > 1 && n->input[1] >= 0 && !oct_build_scalar(b, n->input[1], lo)) return false;
    if (n->inputs > 2 && n->input[2] >= 0 && !oct_build_scalar(b, n->input[2], hi)) return false;
    if (*lo <= -none) *lo = -(double)INFINITY;
    if (*hi >= none) *hi = (double)INFINITY;
    return true;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-4 * fmax(fabs(a), fabs(b));
}

/* The node that makes a value, when it is of this type; -1. */
static int64_t made_by(const oct_onnx_builder *b, int32_t value, const char *type)
{
    const int64_t node = value < 0 ? -1 : b->maker[value];
    return node >= 0 && strcmp(oct_build_type(b, node), type) == 0 && oct_build_inputs(b, node) > 0
               ? node
               : -1;
}

static bool has_two(const oct_onnx_builder *b, int64_t node)
{
    return node >= 0 && oct_build_inputs(b, node) == 2;
}

/* Finds the input of a node that has a number as the other one; a quotient has the number as the second. */
static bool with_number(const oct_onnx_builder *b, int64_t node, int32_t *x, double *number)
{
    if (!has_two(b, node)) return false;
    const bool quotient = strcmp(oct_build_type(b, node), "Div") == 0;
    for (int i = quotient ? 1 : 0; i < 2; i++)
        if (oct_build_scalar(b, oct_build_input(b, node, i), number)) {
            *x = oct_build_input(b, node, 1 - i);
            return true;
        }
    return false;
}

static void fuse(oct_onnx_builder *b, int64_t node, const char *type, int32_t x)
{
    b->fused[node].type = type;
    b->fused[node].input[0] = x;
    b->fused[node].inputs = 1;
}

/* A product of several values and numbers, as a tree of nodes whose results no other node reads. */
enum { FACTORS = 4 };
typedef struct factors {
    int32_t value[FACTORS];
    int count; /* FACTORS + 1: too many */
    double number;
} factors;

static void collect(const oct_onnx_builder *b, int32_t value, factors *f, int depth);

/* Collects what a Mul or Div multiplies; false: it is none of both. */
static bool collect_node(const oct_onnx_builder *b, int64_t node, factors *f, int depth)
{
    double number;
    int32_t x;
    if (node < 0 || b->fused[node].type || b->graph->nodes[node].inputs != 2) return false;
    const oct_onnx_node *n = &b->graph->nodes[node];
    if (strcmp(n->type, "Div") == 0) {
        if (!with_number(b, node, &x, &number) || number == 0) return false;
        f->number /= number;
        collect(b, x, f, depth + 1);
        return true;
    }
    if (strcmp(n->type, "Mul") != 0) return false;
    collect(b, n->input[0], f, depth + 1);
    collect(b, n->input[1], f, depth + 1);
    return true;
}

static void collect(const oct_onnx_builder *b, int32_t value, factors *f, int depth)
{
    double number;
    if (value < 0 || f->count > FACTORS) return;
    if (oct_build_scalar(b, value, &number)) {
        f->number *= number;
        return;
    }
    if (depth < 6 && b->uses[value] == 1 && collect_node(b, b->maker[value], f, depth)) return;
    if (f->count < FACTORS) f->value[f->count] = value;
    f->count++;
}

/* Clip(Relu(x)) has one pair of bounds. */
static bool clip(oct_onnx_builder *b, int64_t node)
{
    double lo, hi;
    const int64_t relu = made_by(b, b->graph->nodes[node].input[0], "Relu");
    if (relu < 0 || !oct_build_bounds(b, &b->graph->nodes[node], &lo, &hi)) return false;
    fuse(b, node, "octet.Clip", oct_build_input(b, relu, 0));
    b->fused[node].number[0] = fmax(lo, 0);
    b->fused[node].number[1] = fmax(hi, 0);
    return true;
}

/* Clip(x + c, 0, m): x, c and m. */
static bool is_ramp(const oct_onnx_builder *b, int32_t value, int32_t *x, double *c, double *m)
{
    const int64_t own = made_by(b, value, "Clip"), made = made_by(b, value, "octet.Clip");
    const int64_t node = own < 0 ? made : own;
    double lo = made < 0 ? 1 : b->fused[made].number[0];
    if (made >= 0) *m = b->fused[made].number[1];
    return node >= 0 && (made >= 0 || oct_build_bounds(b, &b->graph->nodes[node], &lo, m)) &&
           lo == 0 && isfinite(*m) && *m > 0 &&
           with_number(b, made_by(b, oct_build_input(b, node, 0), "Add"), x, c);
}

/* Clip(x + c, 0, m) / m */
static bool hard_sigmoid(oct_onnx_builder *b, int64_t node, const factors *f)
{
    int32_t x;
    double c, m;
    if (f->count != 1 || !is_ramp(b, f->value[0], &x, &c, &m) || !near(f->number * m, 1))
        return false;
    fuse(b, node, "octet.HardSigmoid", x);
    b->fused[node].number[0] = 1 / m;
    b->fused[node].number[1] = c / m;
    return true;
}

/* x * HardSigmoid(x), whole or with its ramp */
static bool hard_swish(oct_onnx_builder *b, int64_t node, const factors *f)
{
    for (int i = 0; i < 2 && f->count == 2; i++) {
        const int32_t x = f->value[1 - i];
        int32_t in;
        double c, m, alpha, beta;
        if (is_ramp(b, f->value[i], &in, &c, &m) && in == x && near(c, 3) && near(m, 6) &&
            near(f->number, 1.0 / 6)) {
            fuse(b, node, "octet.HardSwish", x);
            return true;
        }
        const int64_t own = made_by(b, f->value[i], "HardSigmoid");
        const int64_t made = made_by(b, f->value[i], "octet.HardSigmoid");
        if (own < 0 && made < 0) continue;
        const oct_onnx_node *n = &b->graph->nodes[own < 0 ? made : own];
        alpha = own < 0 ? b->fused[made].number[0] : (double)oct_onnx_float(n, "alpha", 0.2F);
        beta = own < 0 ? b->fused[made].number[1] : (double)oct_onnx_float(n, "beta", 0.5F);
        if (oct_build_input(b, own < 0 ? made : own, 0) == x && near(alpha, 1.0 / 6) &&
            near(beta, 0.5) && near(f->number, 1)) {
            fuse(b, node, "octet.HardSwish", x);
            return true;
        }
    }
    return false;
}

/* x * Sigmoid(x) */
static bool silu(oct_onnx_builder *b, int64_t node, const factors *f)
{
    for (int i = 0; i < 2 && f->count == 2 && near(f->number, 1); i++) {
        const int64_t sigmoid = made_by(b, f->value[i], "Sigmoid");
        if (sigmoid < 0 || oct_build_input(b, sigmoid, 0) != f->value[1 - i]) continue;
        fuse(b, node, "octet.Silu", f->value[1 - i]);
        return true;
    }
    return false;
}

/* Is the value the cube of x, times 0.044715? */
static bool is_cube(const oct_onnx_builder *b, int32_t value, int32_t x)
{
    factors f = {.number = 1};
    double power;
    if (!collect_node(b, b->maker[value], &f, 0) || !near(f.number, 0.044715)) return false;
    const int64_t pow = f.count == 1 ? made_by(b, f.value[0], "Pow") : -1;
    if (has_two(b, pow))
        return oct_build_input(b, pow, 0) == x &&
               oct_build_scalar(b, oct_build_input(b, pow, 1), &power) && power == 3;
    return f.count == 3 && f.value[0] == x && f.value[1] == x && f.value[2] == x;
}

/* 0.5 x (1 + erf(x / sqrt(2))), and 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
static bool gelu(oct_onnx_builder *b, int64_t node, const factors *f)
{
    for (int i = 0; i < 2 && f->count == 2 && near(f->number, 0.5); i++) {
        const int32_t x = f->value[1 - i];
        int32_t inner;
        double one;
        factors in = {.number = 1};
        if (!with_number(b, made_by(b, f->value[i], "Add"), &inner, &one) || !near(one, 1))
            continue;
        const int64_t erf = made_by(b, inner, "Erf"), tanh = made_by(b, inner, "Tanh");
        if (erf < 0 && tanh < 0) continue;
        collect(b, oct_build_input(b, erf < 0 ? tanh : erf, 0), &in, 0);
        if (erf >= 0 && in.count == 1 && in.value[0] == x && near(in.number, sqrt(0.5))) {
            fuse(b, node, "octet.Gelu", x);
            return true;
        }
        const int64_t sum = tanh >= 0 && in.count == 1 ? made_by(b, in.value[0], "Add") : -1;
        for (int k = 0; k < 2 && has_two(b, sum) && near(in.number, sqrt(2 / 3.14159265358979));
             k++)
            if (oct_build_input(b, sum, k) == x && is_cube(b, oct_build_input(b, sum, 1 - k), x)) {
                fuse(b, node, "octet.GeluTanh", x);
                return true;
            }
    }
    return false;
}

/* x - mean(x): x and the node of the mean. */
static bool is_centred(const oct_onnx_builder *b, int32_t value, int32_t *x, int64_t *mean)
{
    const int64_t sub = made_by(b, value, "Sub");
    if (!has_two(b, sub)) return false;
    *x = oct_build_input(b, sub, 0);
    *mean = made_by(b, oct_build_input(b, sub, 1), "ReduceMean");
    return *mean >= 0 && oct_build_input(b, *mean, 0) == *x;
}

static bool is_square_of(const oct_onnx_builder *b, int32_t value, int32_t x)
{
    double power;
    const int64_t pow = made_by(b, value, "Pow"), mul = made_by(b, value, "Mul");
    int32_t of = -1, in;
    int64_t mean;
    if (has_two(b, pow) && oct_build_scalar(b, oct_build_input(b, pow, 1), &power) && power == 2)
        of = oct_build_input(b, pow, 0);
    if (has_two(b, mul) && oct_build_input(b, mul, 0) == oct_build_input(b, mul, 1))
        of = oct_build_input(b, mul, 0);
    return of >= 0 && is_centred(b, of, &in, &mean) && in == x;
}

/* (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) */
static bool layer_norm(oct_onnx_builder *b, int64_t node)
{
    int32_t x, sum;
    int64_t mean;
    double eps;
    if (b->graph->nodes[node].inputs != 2 ||
        !is_centred(b, b->graph->nodes[node].input[0], &x, &mean))
        return false;
    const int64_t root = made_by(b, b->graph->nodes[node].input[1], "Sqrt");
    if (root < 0 || !with_number(b, made_by(b, oct_build_input(b, root, 0), "Add"), &sum, &eps))
        return false;
    const int64_t variance = made_by(b, sum, "ReduceMean");
    if (variance < 0 || !is_square_of(b, oct_build_input(b, variance, 0), x) || eps <= 0)
        return false;
    fuse(b, node, "octet.LayerNorm", x);
    b->fused[node].number[0] = eps;
    b->fused[node].of = &b->graph->nodes[mean];
    return true;
}

static bool all_are(const oct_onnx_value *v, float x)
{
    if (!v || !v->data || v->dtype != OCT_F32) return false;
    for (int64_t i = 0, n = oct_onnx_numel(v); i < n; i++)
        if (((const float *)v->data)[i] != x) return false;
    return true;
}

/* Reshape to (N, groups, ...), InstanceNormalization by 1 and 0, Reshape back */
static bool group_norm(oct_onnx_builder *b, int64_t node)
{
    const oct_onnx_value *values = b->graph->values;
    const int64_t norm = made_by(b, b->graph->nodes[node].input[0], "InstanceNormalization");
    if (norm < 0) return false;
    const oct_onnx_node *n = &b->graph->nodes[norm];
    const int64_t before = made_by(b, n->input[0], "Reshape");
    if (before < 0 || !all_are(oct_onnx_input(b->graph, n, 1), 1) ||
        !all_are(oct_onnx_input(b->graph, n, 2), 0))
        return false;
    const oct_onnx_value *image = &values[b->graph->nodes[before].input[0]];
    const oct_onnx_value *groups = &values[n->input[0]];
    const oct_onnx_value *back = &values[b->graph->nodes[node].output[0]];
    if (image->ndim < 3 || image->ndim > 4 || back->ndim != image->ndim || groups->ndim < 3 ||
        memcmp(back->dim, image->dim, (size_t)image->ndim * sizeof image->dim[0]) != 0)
        return false;
    fuse(b, node, "octet.GroupNorm", b->graph->nodes[before].input[0]);
    b->fused[node].number[0] = (double)oct_onnx_float(n, "epsilon", 1e-5F);
    b->fused[node].number[1] = (double)groups->dim[1];
    return true;
}

void oct_onnx_find_patterns(oct_onnx_builder *b)
{
    for (int64_t k = 0; k < b->graph->num_nodes; k++) {
        const char *type = b->graph->nodes[k].type;
        factors f = {.number = 1};
        if (!b->needed[k] || b->graph->nodes[k].inputs < 1) continue;
        if (strcmp(type, "Reshape") == 0) {
            (void)group_norm(b, k);
        } else if (strcmp(type, "Clip") == 0) {
            (void)clip(b, k);
        } else if (collect_node(b, k, &f, 0)) {
            if (!hard_sigmoid(b, k, &f) && !hard_swish(b, k, &f) && !silu(b, k, &f))
                (void)gelu(b, k, &f);
        } else if (strcmp(type, "Div") == 0) {
            (void)layer_norm(b, k);
        }
    }
}
