/* Plug-ins: layers, observers, fake-quants, networks, losses and metrics of one's own, in a shared library that a recipe
 * names (`plugins: [path, ...]`), or in the program itself.
 *
 *     cc -shared -fPIC -ffp-contract=off -o mine.so mine.c $(pkg-config --cflags octet)
 *
 * The library links nothing of Octet: it uses the functions of <octet/...> through the program that loads it. It
 * defines oct_plugin_entry. Everything that this points to lives as long as the process. No C++ exception may leave a
 * function that Octet calls. Without contraction to fused multiply-adds, floats have the same bits on all processors.
 */
#ifndef OCTET_PLUGIN_H
#define OCTET_PLUGIN_H

#include <octet/nn.h>
#include <octet/quantizer.h>
#include <octet/task.h>

OCT_BEGIN_DECLS

/* A network that recipes build by its name. */
typedef struct oct_model_spec {
    const char *name, *help; /* [a-z0-9_-]+, and a line for `octet help models` */
    int64_t min_size;        /* smallest height and width that it takes */
    /* Builds the network for inputs (h, w, c); its parameters get their first values afterwards. The caller destroys
     * what a failure leaves in *root. */
    oct_status (*build)(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes);
    /* For quant.method eager: fuses by hand (oct_fuse_module_lists). NULL: it cannot be prepared so. */
    oct_status (*fuse)(oct_module **root);
    /* 0: one, an image. Data sets have one; a network of more is for programs of one's own (octet/train.h), and the
     * commands say so. */
    int num_inputs;
    bool per_pixel; /* its output is (N, h, w, classes), not (N, classes) */
} oct_model_spec;

/* Each list ends with NULL; a list itself may be NULL. */
typedef struct oct_plugin {
    uint64_t abi;                                  /* OCT_PLUGIN_ABI; always the first member */
    const char *name;                              /* [a-z0-9_-]+: for messages and run.json */
    const oct_module_spec *const *modules;         /* those of deployed models, found by name */
    const oct_observer *const *observers;          /* quant.observer */
    const oct_fake_quant_kind *const *fake_quants; /* quant.fake_quant, quant.weight_fake_quant */
    const oct_model_spec *const *models;           /* model.name */
    const oct_loss_kind *const *losses;            /* loss.kind */
    const oct_metric *const *metrics;              /* metrics */
} oct_plugin;

/* What Octet and a plug-in must agree on: the number of this interface, which rises when something that they share
 * changes its meaning, and 48 bits that follow from the sizes of all structs that they share: since the factor is odd, they
 * change with each of them. */
enum { OCT_PLUGIN_VERSION = 9 };
#define OCT_PLUGIN_ABI                                                                             \
    ((uint64_t)OCT_PLUGIN_VERSION << 48 | (OCT_PLUGIN_SIZES & UINT64_C(0xffffffffffff)))
#define OCT_SIZE(type, others) (sizeof(type) + UINT64_C(0x100000001b3) * (others))
#define OCT_SIZES(a, b, c, d, others) OCT_SIZE(a, OCT_SIZE(b, OCT_SIZE(c, OCT_SIZE(d, others))))
/* clang-format off */
#define OCT_PLUGIN_SIZES                                                                           \
    OCT_SIZES(oct_plugin, oct_model_spec, oct_module_spec, oct_arg,                                \
    OCT_SIZES(oct_shape, oct_qparams, oct_conv_geometry, oct_pool_geometry,                        \
    OCT_SIZES(oct_padding, oct_move_map, oct_bn_args, oct_conv_bn,                                 \
    OCT_SIZES(oct_hook_handle, oct_range, oct_observation, oct_observer,                           \
    OCT_SIZES(oct_fake_quant_kind, oct_output_row, oct_loss_options, oct_loss_scale,               \
    OCT_SIZES(oct_loss_kind, oct_goals, oct_output_rows, oct_metric_column,                        \
    OCT_SIZES(oct_metric_details, oct_ranked, oct_metric_order, oct_metric, 0)))))))
/* clang-format on */

/* The entry of a library, which defines it. */
__attribute__((visibility("default"))) const oct_plugin *oct_plugin_entry(void);

/* Brings the parts of a plug-in, to be named in the settings of a training: for a program's own ones. Called again with
 * the same plug-in it does nothing. OCT_USAGE: the plug-in has another ABI, a part is incomplete, or a name is taken; then
 * nothing of it is there. Neither function may run while another thread uses Octet. */
OCT_API oct_status oct_plugin_register(const oct_plugin *plugin);
/* Loads the plug-in at a path, or of this name in a folder of OCT_PLUGIN_PATH; it stays for the rest of the process. */
OCT_API oct_status oct_plugin_load(const char *path);

OCT_END_DECLS

#endif
