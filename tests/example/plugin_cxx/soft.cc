/* A plug-in in C++11 or later: a layer with a backward of its own, an observer, and a model that uses the layer.
 *
 *     g++ -std=c++17 -shared -fPIC -ffp-contract=off -o soft.so soft.cc $(pkg-config --cflags octet)
 *
 * Designated initializers are C++20's, so a function without a name fills each table by the names of its members; what it
 * leaves out is zero. A module's data is zeroed memory, for which no constructor runs. */
#include <octet/plugin.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace {

/* y = x / (1 + s |x|), and dx = dy / (1 + s |x|)^2. */
struct SoftSign {
    double slope;
};

void soft_backward(oct_context *cx, oct_node *node)
{
    const auto s = static_cast<float>(static_cast<SoftSign *>(oct_node_saved(node))->slope);
    oct_tensor *x = oct_node_input(node, 0);
    const float *values = oct_tensor_values(x);
    float *grad = oct_detach_grad(oct_node_output(node));
    for (std::int64_t i = 0; i < oct_tensor_numel(x); i++) {
        const float below = 1.0F + s * std::fabs(values[i]);
        grad[i] /= below * below;
    }
    oct_add_grad(cx, x, grad);
}

oct_tensor *soft_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    if (!oct_inputs_ok(cx, x, n)) return nullptr;
    const auto *args = static_cast<const SoftSign *>(oct_module_own_args(self));
    const auto s = static_cast<float>(args->slope);
    const float *values = oct_tensor_values(x[0]);
    if (!values)
        return static_cast<oct_tensor *>(oct_context_fail(cx, OCT_USAGE, "soft_sign takes floats"));
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, oct_tensor_shape(x[0]));
    if (!y) return nullptr;
    std::transform(values, values + oct_tensor_numel(x[0]), oct_tensor_values(y),
                   [s](float v) { return v / (1.0F + s * std::fabs(v)); });
    oct_node *node = oct_record(cx, "soft_sign", soft_backward, x, 1, false, y);
    return oct_node_save(cx, node, args, sizeof *args) ? y : nullptr;
}

const oct_arg soft_arg = []() -> oct_arg {
    oct_arg arg = {};
    arg.name = "slope";
    arg.type = OCT_ARG_DOUBLE;
    arg.offset = offsetof(SoftSign, slope);
    arg.least = 0.125;
    arg.most = 8;
    arg.text = "slope #";
    return arg;
}();

const oct_module_spec soft_sign = []() -> oct_module_spec {
    oct_module_spec spec = {};
    spec.name = "soft_sign";
    spec.forward = soft_forward;
    spec.inputs = 1;
    spec.atomic = true;
    spec.args = &soft_arg;
    spec.num_args = 1;
    spec.args_bytes = sizeof(SoftSign);
    return spec;
}();

/* Takes the widest range of all steps, but each step may widen it by no more than a quarter. */
void widen(oct_range *range, const oct_observation *seen)
{
    if (!(seen->min <= seen->max)) return; /* nothing was seen */
    if (range->updates++ == 0) {
        range->min = seen->min;
        range->max = seen->max;
    }
    const float most = 0.25F * (range->max - range->min);
    range->min = std::min(range->min, std::max(seen->min, range->min - most));
    range->max = std::max(range->max, std::min(seen->max, range->max + most));
}

const oct_observer steady = []() -> oct_observer {
    oct_observer observer = {};
    observer.name = "steady";
    observer.update = widen;
    return observer;
}();

struct SoftNet {
    oct_module *quant, *stem, *soft, *pool, *head, *dequant;
};

oct_tensor *net_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int)
{
    const auto *m = static_cast<SoftNet *>(oct_module_data(self));
    oct_tensor *y = x[0];
    for (oct_module *layer : {m->quant, m->stem, m->soft, m->pool, m->head, m->dequant})
        y = oct_call(cx, layer, y);
    return y;
}

const oct_module_spec soft_net = []() -> oct_module_spec {
    oct_module_spec spec = {};
    spec.name = "soft_net";
    spec.data_bytes = sizeof(SoftNet);
    spec.forward = net_forward;
    return spec;
}();

oct_status build(oct_module **root, std::int64_t, std::int64_t, std::int64_t c, std::int64_t classes)
{
    OCT_TRY(oct_module_create(root, &soft_net, nullptr));
    auto *m = static_cast<SoftNet *>(oct_module_data(*root));
    const SoftSign args = {0.5};
    oct_conv_bn layer = {};
    layer.in = c;
    layer.out = 8;
    layer.stride = 2;
    OCT_TRY(oct_module_add(*root, "quant", &m->quant, oct_quant_stub_create(&m->quant)));
    OCT_TRY(oct_module_add(*root, "stem", &m->stem, oct_sequential_create(&m->stem)));
    OCT_TRY(oct_append_conv_bn(m->stem, &layer));
    OCT_TRY(oct_module_add(*root, "soft", &m->soft, oct_module_create(&m->soft, &soft_sign, &args)));
    OCT_TRY(oct_module_add(*root, "pool", &m->pool, oct_global_avg_pool_create(&m->pool)));
    OCT_TRY(oct_module_add(*root, "head", &m->head, oct_linear_create(&m->head, 8, classes, true)));
    return oct_module_add(*root, "dequant", &m->dequant, oct_dequant_stub_create(&m->dequant));
}

const oct_model_spec soft_net_model = []() -> oct_model_spec {
    oct_model_spec spec = {};
    spec.name = "soft-net";
    spec.help = "1 convolution, a soft sign, 1 linear layer";
    spec.min_size = 4;
    spec.build = build;
    return spec;
}();

const oct_module_spec *const modules[] = {&soft_sign, nullptr};
const oct_observer *const observers[] = {&steady, nullptr};
const oct_model_spec *const models[] = {&soft_net_model, nullptr};

const oct_plugin plugin = []() -> oct_plugin {
    oct_plugin p = {};
    p.abi = OCT_PLUGIN_ABI;
    p.name = "soft";
    p.modules = modules;
    p.observers = observers;
    p.models = models;
    return p;
}();

} // namespace

const oct_plugin *oct_plugin_entry()
{
    return &plugin;
}
