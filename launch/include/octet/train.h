/* Trains a network, quantizes it, and makes an int8 model of it that computes the same bits.
 *
 *     oct_training *t;
 *     oct_training_create(&t, &root, &(oct_training_options){.input = {{8, 8, 1}}, .batch = 64});
 *     oct_training_fit(t, &data, 20, 0.05, NULL, NULL);                       float
 *     oct_quantize(t, &data, &(oct_quantize_options){.epochs = 5, .lr = 0.01}, &model);
 *     oct_model_save("model.int8.h5", model);
 *
 * oct_quantize makes the calls that experts make one by one, in this order (one that comes too early gives OCT_USAGE with
 * the name of the one before it):
 *
 *     oct_training_prepare       float network to QAT network: fusions, fake-quants, the check report
 *     oct_training_calibrate     the first ranges of activations
 *     oct_training_fit           QAT; oct_training_step, where steps are wanted
 *     oct_training_freeze        scales and batch norms stay as they are: what oct_training_evaluate gives from now on is
 *                                what the int8 model computes, to the bit
 *     oct_model_make             integer program
 *     oct_model_certify          compares both over data, and keeps the proof
 *     oct_model_set_golden       inputs with the digest of each layer, for octet verify and oct_net_verify
 *
 * With a communicator the ranks call all of this together (collective), on the same data, and get the same bits as one
 * process does. The calling thread and those of OpenMP round to nearest (fegetround), or calls give OCT_USAGE. A training
 * and its network are for one thread at a time. What has failed is destroyed like what has not.
 */
#ifndef OCTET_TRAIN_H
#define OCTET_TRAIN_H

#include <octet/comm.h>
#include <octet/net.h>
#include <octet/nn.h>

OCT_BEGIN_DECLS

enum { OCT_INPUTS_MAX = 8 }; /* of a network */

/* One sample of an input: rows, columns, channels; h and w 0: c features. */
typedef struct oct_dims {
    int64_t h, w, c;
} oct_dims;

/* Samples in memory, borrowed. All ranks have all of them, and each reads its own share. */
typedef struct oct_data {
    int64_t count;
    const float *input[OCT_INPUTS_MAX]; /* count x dims of the input, channels last */
    /* What the outputs should be: class numbers from 0, or values, as many as there are outputs. */
    const int32_t *labels;
    const float *targets;
    /* Labels of a sample, such as one for each pixel, where negative ones count nothing; or rows of targets. 0: 1. */
    int64_t rows;
} oct_data;
/* Samples of one input with labels, which may be NULL. */
OCT_API oct_data oct_data_of(int64_t count, const float *input, const int32_t *labels);

typedef struct oct_training oct_training;
/* Zeros are the defaults. */
typedef struct oct_training_options {
    oct_dims input[OCT_INPUTS_MAX]; /* as many as the network has */
    int64_t batch;                  /* samples of a step, over all ranks; 0: 128 */
    uint64_t seed;                  /* of all random numbers, up to 1e15; 0: 1 */
    const oct_comm *comm;           /* borrowed; NULL: this process alone */
    /* "KEY=VALUE" of a recipe, ended by NULL; NULL: all defaults. optimizer.*, loss.*, metrics, numerics, batch.leaf,
     * batch_norm.group, float.* and qat.* but for epochs and lr, calibrate.batches, quant.* but for limits, ema.*:
     * `octet help recipe` describes them. Others are refused. */
    const char *const *settings;
} oct_training_options;

/* Takes *root over, which becomes NULL, also on failure. Where all weights are zero, the network gets initial values
 * (oct_init_parameters). Where a later call fails in the middle of changing the network, all others fail, too, and the
 * training is there to be destroyed. */
OCT_API oct_status oct_training_create(oct_training **t, oct_module **root,
                                       const oct_training_options *options) OCT_NODISCARD;
OCT_API void oct_training_destroy(oct_training **t); /* with its network; NULL is allowed */
OCT_API oct_module *oct_training_root(oct_training *t);
/* One step on all samples of `batch`, at most options.batch. loss and metric, which may be NULL: of the batch before the
 * update; NAN where there is none. OCT_NUMERIC: a number is not finite, and nothing was learned. */
OCT_API oct_status oct_training_step(oct_training *t, const oct_data *batch, double lr,
                                     double *loss, double *metric) OCT_NODISCARD;
/* Epochs of steps over data in an order that follows from the seed; the learning rate falls from lr to 0 by a cosine, or as
 * float.schedule and qat.schedule say. QAT freezes batch norms after half of its steps, and scales after three quarters
 * (qat.freeze_batch_norm, qat.freeze_scales), in the first of several calls. loss and metric: means of the last epoch. */
OCT_API oct_status oct_training_fit(oct_training *t, const oct_data *data, int64_t epochs,
                                    double lr, double *loss, double *metric) OCT_NODISCARD;
/* Evaluates without learning, in batches of bounded size. outputs, which may be NULL: count x outputs of a sample, on every
 * rank; of a network that returns class numbers, these as floats, without loss and metric. */
OCT_API oct_status oct_training_evaluate(oct_training *t, const oct_data *data, float *outputs,
                                         double *loss, double *metric) OCT_NODISCARD;
/* *outputs: numbers that a network returns for a sample; 0: it returns its loss. inputs: its dims, ended by one of c = 0
 * unless they are OCT_INPUTS_MAX. */
OCT_API oct_status oct_module_outputs(oct_module *root, const oct_dims *inputs,
                                      int64_t *outputs) OCT_NODISCARD;
/* Evaluates a network without a training: in this process, in evaluation mode. outputs as of oct_training_evaluate. */
OCT_API oct_status oct_forward(oct_module *root, const oct_dims *inputs, const oct_data *data,
                               float *outputs) OCT_NODISCARD;

/* *report, which may be NULL: the check report as text, which lives as long as the training. */
OCT_API oct_status oct_training_prepare(oct_training *t, const char **report) OCT_NODISCARD;
/* On calibrate.batches batches, in an order that follows from the seed. */
OCT_API oct_status oct_training_calibrate(oct_training *t, const oct_data *data) OCT_NODISCARD;
OCT_API oct_status oct_training_freeze(oct_training *t) OCT_NODISCARD;

/* An int8 model in memory. With a communicator each rank has all of it. */
typedef struct oct_model oct_model;
typedef struct oct_quantize_options {
    int64_t epochs;       /* of QAT; 0: calibration alone */
    double lr;            /* its peak; 0: 0.01 */
    const oct_data *test; /* compared for the certificate; NULL: the training data */
    int64_t golden;       /* golden inputs, the first of test; 0: 8 */
} oct_quantize_options;
OCT_API oct_status oct_quantize(oct_training *t, const oct_data *data,
                                const oct_quantize_options *options,
                                oct_model **model) OCT_NODISCARD;
OCT_API oct_status oct_model_make(oct_model **model, oct_training *t) OCT_NODISCARD;
/* Compares QAT evaluation and integer program on every output of data, and on every layer for the golden inputs, which are
 * the first 8 samples where the model has none: OCT_MISMATCH where a bit differs. The model holds counts and digests
 * afterwards. */
OCT_API oct_status oct_model_certify(oct_model *model, oct_training *t,
                                     const oct_data *data) OCT_NODISCARD;
OCT_API oct_status oct_model_set_golden(oct_model *model, const oct_data *data,
                                        int64_t count) OCT_NODISCARD;
/* How pixels become the inputs of the network: (x / 255 - mean[c]) / std[c], for oct_net_run_pixels, octet run and
 * exports. To the bit it is (x * (1 / 255) - mean[c]) * (1 / std[c]) in float. n: 1, or the channels. */
OCT_API oct_status oct_model_set_pixels(oct_model *model, const float *mean, const float *std,
                                        int n) OCT_NODISCARD;
OCT_API oct_status oct_model_set_class_names(oct_model *model, const char *const *names,
                                             int n) OCT_NODISCARD;
/* Writes *.int8.h5. OCT_DATA where it could not be read again. */
OCT_API oct_status oct_model_save(const char *path, const oct_model *model) OCT_NODISCARD;
OCT_API void oct_model_destroy(oct_model **model); /* NULL is allowed */
/* A net of the model; the model may be destroyed while the net is open. */
OCT_API oct_status oct_net_open_model(oct_net **net, const oct_model *model,
                                      const oct_net_options *options) OCT_NODISCARD;

/* A network from an ONNX file of float32, with its weights. Zeros are the defaults. */
typedef struct oct_onnx_options {
    int64_t h, w;       /* of an image whose size the file leaves open */
    const char *output; /* of several, the one that is wanted; NULL: the first */
    /* A Softmax or ArgMax at the end stays; otherwise it is left out, since losses take logits. */
    bool keep_softmax;
    bool drop_sigmoid; /* a Sigmoid at the end is left out, as bce wants it */
    int64_t new_head;  /* outputs of a last layer with weights that is made anew; 0: it stays */
    uint64_t seed;     /* of a new head */
} oct_onnx_options;
/* inputs: OCT_INPUTS_MAX dims that are set to those of the network; may be NULL. */
OCT_API oct_status oct_module_from_onnx(oct_module **root, const char *path,
                                        const oct_onnx_options *options,
                                        oct_dims *inputs) OCT_NODISCARD;

OCT_END_DECLS

#endif
