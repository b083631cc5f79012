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
    if (!v || !v->data || v->times || oct_onnx_numel(v) != 1) return false;
    if (v->dtype == OCT_S64)
        *x = (double)*(const int64_t *)v->data;
    else if (v->dtype == OCT_F32)
        *x = (double)*(const float *)v->data;
    else
        return false;
    return true;
}

/* Reads the bounds from attributes or constant inputs; the largest floats mean that there is none. */
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

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-4 * fmax(fabs(a), fabs(b));
}

/* The node that computes a value, when it is of this type and has inputs; else -1. */
static int64_t find_producer(const oct_onnx_builder *b, int32_t value, const char *type)
{
    const int64_t node = value < 0 ? -1 : b->producer[value];
    return node >= 0 && strcmp(oct_build_type(b, node), type) == 0 && oct_build_inputs(b, node) > 0
               ? node
               : -1;
}

static bool has_two_inputs(const oct_onnx_builder *b, int64_t node)
{
    return node >= 0 && oct_build_inputs(b, node) == 2;
}

/* Finds the operands of a node x op number; only a quotient must have the number as the second. */
static bool split_off_number(const oct_onnx_builder *b, int64_t node, int32_t *x, double *number)
{
    if (!has_two_inputs(b, node)) return false;
    const bool quotient = strcmp(oct_build_type(b, node), "Div") == 0;
    for (int i = quotient ? 1 : 0; i < 2; i++)
        if (oct_build_scalar(b, oct_build_input(b, node, i), number)) {
            *x = oct_build_input(b, node, 1 - i);
            return true;
        }
    return false;
}

/* Has a node stand for a pattern on x, with two numbers where the pattern has some. Returns true. */
static bool fuse(oct_onnx_builder *b, int64_t node, const char *type, int32_t x, double first,
                 double second)
{
    oct_onnx_fused *f = &b->fused[node];
    *f = (oct_onnx_fused){.type = type, .input = {x}, .inputs = 1, .number = {first, second}};
    return true;
}

/* A product of several values and numbers, as a tree of nodes whose results no other node reads. */
enum { FACTORS = 4 };
typedef struct factors {
    int32_t value[FACTORS];
    int count; /* FACTORS + 1: too many */
    double number;
} factors;

static void collect_factor(const oct_onnx_builder *b, int32_t value, factors *f, int depth);

/* Multiplies `f` by all factors of a Mul, or of a Div by a number, and of those inside it; false: it is neither. */
static bool collect_factors(const oct_onnx_builder *b, int64_t node, factors *f, int depth)
{
    double number;
    int32_t x;
    if (node < 0 || b->fused[node].type || b->graph->nodes[node].inputs != 2) return false;
    const oct_onnx_node *n = &b->graph->nodes[node];
    if (strcmp(n->type, "Div") == 0) {
        if (!split_off_number(b, node, &x, &number) || number == 0) return false;
        f->number /= number;
        collect_factor(b, x, f, depth + 1);
        return true;
    }
    if (strcmp(n->type, "Mul") != 0) return false;
    collect_factor(b, n->input[0], f, depth + 1);
    collect_factor(b, n->input[1], f, depth + 1);
    return true;
}

/* Multiplies `f` by a value: by its number, by its factors if it is a product that nothing else reads, or by itself. */
static void collect_factor(const oct_onnx_builder *b, int32_t value, factors *f, int depth)
{
    double number;
    if (value < 0 || f->count > FACTORS) return;
    if (oct_build_scalar(b, value, &number)) {
        f->number *= number;
        return;
    }
    if (depth < 6 && b->reads[value] == 1 && collect_factors(b, b->producer[value], f, depth))
        return;
    if (f->count < FACTORS) f->value[f->count] = value;
    f->count++;
}

/* Clip(Relu(x), lo, hi) is one Clip with bounds of 0 or more. */
static bool fuse_clip(oct_onnx_builder *b, int64_t node)
{
    double lo, hi;
    const int64_t relu = find_producer(b, b->graph->nodes[node].input[0], "Relu");
    if (relu < 0 || !oct_build_bounds(b, &b->graph->nodes[node], &lo, &hi)) return false;
    return fuse(b, node, "octet.Clip", oct_build_input(b, relu, 0), fmax(lo, 0), fmax(hi, 0));
}

/* Is the value Clip(x + c, 0, m), as the file has it or fused? Sets x, c and m. */
static bool is_ramp(const oct_onnx_builder *b, int32_t value, int32_t *x, double *c, double *m)
{
    const int64_t plain = find_producer(b, value, "Clip"),
                  fused = find_producer(b, value, "octet.Clip");
    const int64_t node = plain < 0 ? fused : plain;
    double lo = fused < 0 ? 1 : b->fused[fused].number[0];
    if (fused >= 0) *m = b->fused[fused].number[1];
    return node >= 0 && (fused >= 0 || oct_build_bounds(b, &b->graph->nodes[node], &lo, m)) &&
           lo == 0 && isfinite(*m) && *m > 0 &&
           split_off_number(b, find_producer(b, oct_build_input(b, node, 0), "Add"), x, c);
}

/* Clip(x + c, 0, m) / m, as factors, is HardSigmoid(x) with alpha 1 / m and beta c / m. */
static bool fuse_hard_sigmoid(oct_onnx_builder *b, int64_t node, const factors *f)
{
    int32_t x;
    double c, m;
    return f->count == 1 && is_ramp(b, f->value[0], &x, &c, &m) && is_near(f->number * m, 1) &&
           fuse(b, node, "octet.HardSigmoid", x, 1 / m, c / m);
}

/* x Clip(x + 3, 0, 6) / 6 or x HardSigmoid(x), as factors, is HardSwish(x). */
static bool fuse_hard_swish(oct_onnx_builder *b, int64_t node, const factors *f)
{
    for (int i = 0; i < 2 && f->count == 2; i++) {
        const int32_t x = f->value[1 - i];
        int32_t in;
        double c, m, alpha, beta;
        if (is_ramp(b, f->value[i], &in, &c, &m) && in == x && is_near(c, 3) && is_near(m, 6) &&
            is_near(f->number, 1.0 / 6))
            return fuse(b, node, "octet.HardSwish", x, 0, 0);
        const int64_t plain = find_producer(b, f->value[i], "HardSigmoid");
        const int64_t fused = find_producer(b, f->value[i], "octet.HardSigmoid");
        if (plain < 0 && fused < 0) continue;
        const oct_onnx_node *n = &b->graph->nodes[plain < 0 ? fused : plain];
        alpha = plain < 0 ? b->fused[fused].number[0] : (double)oct_onnx_float(n, "alpha", 0.2F);
        beta = plain < 0 ? b->fused[fused].number[1] : (double)oct_onnx_float(n, "beta", 0.5F);
        if (oct_build_input(b, plain < 0 ? fused : plain, 0) == x && is_near(alpha, 1.0 / 6) &&
            is_near(beta, 0.5) && is_near(f->number, 1))
            return fuse(b, node, "octet.HardSwish", x, 0, 0);
    }
    return false;
}

/* x Sigmoid(x), as factors, is SiLU(x). */
static bool fuse_silu(oct_onnx_builder *b, int64_t node, const factors *f)
{
    for (int i = 0; i < 2 && f->count == 2 && is_near(f->number, 1); i++) {
        const int64_t sigmoid = find_producer(b, f->value[i], "Sigmoid");
        if (sigmoid >= 0 && oct_build_input(b, sigmoid, 0) == f->value[1 - i])
            return fuse(b, node, "octet.Silu", f->value[1 - i], 0, 0);
    }
    return false;
}

/* Is the value 0.044715 x^3? */
static bool is_cube(const oct_onnx_builder *b, int32_t value, int32_t x)
{
    factors f = {.number = 1};
    double power;
    if (!collect_factors(b, b->producer[value], &f, 0) || !is_near(f.number, 0.044715))
        return false;
    const int64_t pow = f.count == 1 ? find_producer(b, f.value[0], "Pow") : -1;
    if (has_two_inputs(b, pow))
        return oct_build_input(b, pow, 0) == x &&
               oct_build_scalar(b, oct_build_input(b, pow, 1), &power) && power == 3;
    return f.count == 3 && f.value[0] == x && f.value[1] == x && f.value[2] == x;
}

/* 0.5 x (1 + erf(x / sqrt(2))), and 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
static bool fuse_gelu(oct_onnx_builder *b, int64_t node, const factors *f)
{
    for (int i = 0; i < 2 && f->count == 2 && is_near(f->number, 0.5); i++) {
        const int32_t x = f->value[1 - i];
        int32_t inner;
        double one;
        factors in = {.number = 1};
        if (!split_off_number(b, find_producer(b, f->value[i], "Add"), &inner, &one) ||
            !is_near(one, 1))
            continue;
        const int64_t erf = find_producer(b, inner, "Erf"), tanh = find_producer(b, inner, "Tanh");
        if (erf < 0 && tanh < 0) continue;
        collect_factor(b, oct_build_input(b, erf < 0 ? tanh : erf, 0), &in, 0);
        if (erf >= 0 && in.count == 1 && in.value[0] == x && is_near(in.number, sqrt(0.5)))
            return fuse(b, node, "octet.Gelu", x, 0, 0);
        const int64_t sum = tanh >= 0 && in.count == 1 ? find_producer(b, in.value[0], "Add") : -1;
        for (int k = 0;
             k < 2 && has_two_inputs(b, sum) && is_near(in.number, sqrt(2 / 3.14159265358979)); k++)
            if (oct_build_input(b, sum, k) == x && is_cube(b, oct_build_input(b, sum, 1 - k), x))
                return fuse(b, node, "octet.GeluTanh", x, 0, 0);
    }
    return false;
}

/* Is the value x - mean(x)? Sets x and the node of the mean. */
static bool is_centred(const oct_onnx_builder *b, int32_t value, int32_t *x, int64_t *mean)
{
    const int64_t sub = find_producer(b, value, "Sub");
    if (!has_two_inputs(b, sub)) return false;
    *x = oct_build_input(b, sub, 0);
    *mean = find_producer(b, oct_build_input(b, sub, 1), "ReduceMean");
    return *mean >= 0 && oct_build_input(b, *mean, 0) == *x;
}

/* Is the value (x - mean(x))^2, as a power or as a product? */
static bool is_square_of_centred(const oct_onnx_builder *b, int32_t value, int32_t x)
{
    double power;
    const int64_t pow = find_producer(b, value, "Pow"), mul = find_producer(b, value, "Mul");
    int32_t of = -1, in;
    int64_t mean;
    if (has_two_inputs(b, pow) && oct_build_scalar(b, oct_build_input(b, pow, 1), &power) &&
        power == 2)
        of = oct_build_input(b, pow, 0);
    if (has_two_inputs(b, mul) && oct_build_input(b, mul, 0) == oct_build_input(b, mul, 1))
        of = oct_build_input(b, mul, 0);
    return of >= 0 && is_centred(b, of, &in, &mean) && in == x;
}

/* (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) */
static bool fuse_layer_norm(oct_onnx_builder *b, int64_t node)
{
    int32_t x, sum;
    int64_t mean;
    double eps;
    if (b->graph->nodes[node].inputs != 2 ||
        !is_centred(b, b->graph->nodes[node].input[0], &x, &mean))
        return false;
    const int64_t root = find_producer(b, b->graph->nodes[node].input[1], "Sqrt");
    if (root < 0 ||
        !split_off_number(b, find_producer(b, oct_build_input(b, root, 0), "Add"), &sum, &eps))
        return false;
    const int64_t variance = find_producer(b, sum, "ReduceMean");
    if (variance < 0 || !is_square_of_centred(b, oct_build_input(b, variance, 0), x) || eps <= 0)
        return false;
    (void)fuse(b, node, "octet.LayerNorm", x, eps, 0);
    b->fused[node].inner = &b->graph->nodes[mean];
    return true;
}

/* Is this a constant of floats that are all x? */
static bool is_filled_with(const oct_onnx_value *v, float x)
{
    if (!v || !v->data || v->dtype != OCT_F32) return false;
    for (int64_t i = 0, n = oct_onnx_numel(v); i < n; i++)
        if (((const float *)v->data)[i] != x) return false;
    return true;
}

/* Reshape to (N, groups, ...), InstanceNormalization with scale 1 and shift 0, Reshape back */
static bool fuse_group_norm(oct_onnx_builder *b, int64_t node)
{
    const oct_onnx_value *values = b->graph->values;
    const int64_t norm = find_producer(b, b->graph->nodes[node].input[0], "InstanceNormalization");
    if (norm < 0) return false;
    const oct_onnx_node *n = &b->graph->nodes[norm];
    const int64_t before = find_producer(b, n->input[0], "Reshape");
    if (before < 0 || !is_filled_with(oct_onnx_input(b->graph, n, 1), 1) ||
        !is_filled_with(oct_onnx_input(b->graph, n, 2), 0))
        return false;
    const oct_onnx_value *image = &values[b->graph->nodes[before].input[0]];
    const oct_onnx_value *groups = &values[n->input[0]];
    const oct_onnx_value *back = &values[b->graph->nodes[node].output[0]];
    if (image->ndim < 3 || image->ndim > 4 || back->ndim != image->ndim || groups->ndim < 3 ||
        memcmp(back->dim, image->dim, (size_t)image->ndim * sizeof image->dim[0]) != 0)
        return false;
    return fuse(b, node, "octet.GroupNorm", b->graph->nodes[before].input[0],
                (double)oct_onnx_float(n, "epsilon", 1e-5F), (double)groups->dim[1]);
}

void oct_onnx_find_patterns(oct_onnx_builder *b)
{
    for (int64_t k = 0; k < b->graph->num_nodes; k++) {
        const char *type = b->graph->nodes[k].type;
        factors f = {.number = 1};
        if (!b->needed[k] || b->graph->nodes[k].inputs < 1) continue;
        if (strcmp(type, "Reshape") == 0) {
            (void)fuse_group_norm(b, k);
        } else if (strcmp(type, "Clip") == 0) {
            (void)fuse_clip(b, k);
        } else if (collect_factors(b, k, &f, 0)) {
            if (!fuse_hard_sigmoid(b, k, &f) && !fuse_hard_swish(b, k, &f) && !fuse_silu(b, k, &f))
                (void)fuse_gelu(b, k, &f);
        } else if (strcmp(type, "Div") == 0) {
            (void)fuse_layer_norm(b, k);
        }
    }
}
