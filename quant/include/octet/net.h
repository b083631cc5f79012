/* Runs an int8 model: a flat file, or, with the libraries octet-runtime and octet, an HDF5 model too.
 *
 *     oct_net *net;
 *     if (oct_net_open(&net, "model.flat", NULL) == OCT_OK)
 *         status = oct_net_run(net, 1, inputs, output);
 *     oct_net_close(&net);
 *
 * A file is checked before anything of it is used: digest, sizes, and every number that the computation relies on. The
 * results are the bits of training's evaluation, on every processor, for any number of threads and samples. The rounding
 * mode of the calling thread does not matter, and is as it was afterwards.
 *
 * A net is for one thread at a time: a second one gets OCT_USAGE. oct_net_clone makes another of the same model, which
 * shares its file and weights. Images are rows of columns of channels (H, W, C).
 *
 * What fails returns OCT_USAGE for a wrong argument, OCT_DATA for a file that is missing, damaged or asks for too much,
 * OCT_PREPARE for layers that stay float where the library has no modules for them (only the library octet has), and
 * OCT_RESOURCE where memory is out; the sentences name the file.
 */
#ifndef OCTET_NET_H
#define OCTET_NET_H

#include <octet/status.h>

OCT_BEGIN_DECLS

typedef struct oct_net oct_net;

/* Zeros are the defaults. */
typedef struct oct_net_options {
    int64_t max_batch; /* samples that a run may have; 0: 1 */
    /* Threads of a run. 0: as many as OpenMP has. 1: the calling thread alone, and nothing of OpenMP is entered but by
     * layers that stay float. After a fork the child's runs have one. */
    int threads;
    /* Takes models that need more than 256 MiB or 2^36 multiply-adds for a sample; otherwise they are refused, since a
     * file of others may ask for anything. */
    bool large;
} oct_net_options;

/* Opens a model. options: NULL for the defaults. On failure *net is NULL. A flat file is mapped, and must not change until
 * the net and all its clones are closed; replace it by renaming another one. */
OCT_API oct_status oct_net_open(oct_net **net, const char *path,
                                const oct_net_options *options) OCT_NODISCARD;
/* Opens a flat file that lies in memory, at any address. The bytes are copied unless they begin at a multiple of 64;
 * then they are borrowed until the net and all its clones are closed. */
OCT_API oct_status oct_net_open_bytes(oct_net **net, const void *bytes, size_t size,
                                      const oct_net_options *options) OCT_NODISCARD;
/* Makes another net of the same model, with the same options, for another thread. Either may be closed first. It costs the
 * memory of the values between layers, but no weights. `net` may be at work meanwhile. */
OCT_API oct_status oct_net_clone(oct_net **clone, const oct_net *net) OCT_NODISCARD;
/* Frees the net and sets *net to NULL; NULL is allowed. */
OCT_API void oct_net_close(oct_net **net);
/* Computes the golden inputs in the file: OCT_MISMATCH where a value has other bits than those in the file, OCT_USAGE
 * where the file has none. */
OCT_API oct_status oct_net_verify(oct_net *net) OCT_NODISCARD;

typedef enum oct_port_type {
    OCT_PORT_FLOAT, /* float */
    OCT_PORT_CLASS, /* int32_t: the number of a class */
    OCT_PORT_U8,    /* uint8_t: a code; of layers alone, like the next */
    OCT_PORT_U16    /* uint16_t: a code */
} oct_port_type;

/* What goes into a net or comes out of it or of one of its layers, for one sample. */
typedef struct oct_port {
    const char *name; /* in the network that the model came from; "": it had none */
    int64_t h, w, c;  /* rows, columns, channels; values without a plane have h = w = 1 */
    int64_t numel;    /* h * w * c */
    size_t bytes;     /* in the caller's array */
    oct_port_type type;
    /* The codes, or those that the floats become or come from: real = scale * (code - zero_point). bits 0: none, as of
     * results that are not quantized, and scale and zero_point are 0, too. */
    int bits;
    float scale;
    int32_t zero_point;
} oct_port;

OCT_API int oct_net_num_inputs(const oct_net *net);
/* A description of input i, or of the output; lives as long as the net. NULL: there is none. */
OCT_API const oct_port *oct_net_input(const oct_net *net, int i);
OCT_API const oct_port *oct_net_output(const oct_net *net);
/* Bytes of a sample's pixels in oct_net_run_pixels, H * W * C; 0: the net has several inputs. */
OCT_API size_t oct_net_pixels(const oct_net *net);
/* Number of classes that the outputs stand for (of values, how many there are), and the name of class k, in UTF-8; NULL: it
 * has none. Names live as long as the net. */
OCT_API int oct_net_num_classes(const oct_net *net);
OCT_API const char *oct_net_class_name(const oct_net *net, int k);
/* Classes that oct_net_classify gives for one sample: 1, or as many as the output has pixels. */
OCT_API int64_t oct_net_num_rows(const oct_net *net);

/* Runs `samples` samples, 0 to max_batch. inputs[i]: samples x input i, normalised as in training; output: samples x the
 * output. NaN and infinite inputs do not fail: they become the lowest or highest code. Allocates nothing where no layer is
 * float. */
OCT_API oct_status oct_net_run(oct_net *net, int64_t samples, const float *const *inputs,
                               void *output) OCT_NODISCARD;

/* Layers in the order in which they run: the steps of the integer program. Two may have the same name, such as those that
 * make codes of an input and its first layer. */
OCT_API int oct_net_num_layers(const oct_net *net);
/* A description of what layer i gives, and what it does, such as "conv"; both live as long as the net. NULL: there is
 * none. */
OCT_API const oct_port *oct_net_layer(const oct_net *net, int i);
OCT_API const char *oct_net_layer_kind(const oct_net *net, int i);
/* Is called for layer i with samples x what it gives, which are there until it returns. It does not call the net. */
typedef void (*oct_net_layer_fn)(void *user, int i, const void *values);
/* Runs as oct_net_run does, in one thread, and shows what each layer gives. */
OCT_API oct_status oct_net_run_layers(oct_net *net, int64_t samples, const float *const *inputs,
                                      void *output, oct_net_layer_fn show,
                                      void *user) OCT_NODISCARD;

typedef enum oct_pixel_order {
    OCT_PIXELS_AS_TRAINED, /* C bytes for each pixel, such as red, green, blue */
    OCT_PIXELS_REVERSED,   /* channels in reverse, such as blue, green, red; of 2 or more */
    OCT_PIXELS_PADDED,     /* as trained, and one more byte that is not read, such as alpha */
    OCT_PIXELS_REVERSED_PADDED,
    OCT_PIXELS_PLANES /* a plane H x W for each channel */
} oct_pixel_order;

/* How pixels lie in memory; zeros: one after another, as trained. */
typedef struct oct_pixels {
    size_t row_stride;   /* bytes from one row to the next; 0: rows follow each other */
    size_t image_stride; /* bytes from one image to the next; 0: images follow each other */
    oct_pixel_order order;
} oct_pixels;

/* Normalises pixels, bytes from 0 to 255, as training did, and runs. Images have the size of the net's input: nothing is
 * resized. layout: NULL for the default. OCT_USAGE where the net has several inputs. The first call for a net allocates what
 * max_batch samples take. */
OCT_API oct_status oct_net_run_pixels(oct_net *net, int64_t samples, const uint8_t *pixels,
                                      const oct_pixels *layout, void *output) OCT_NODISCARD;
/* The same for nets that return classes: for each row of the output (oct_net_num_rows of each sample) the number of the best
 * class, the first of equal ones, and its softmax probability, or NAN where the net returns class numbers. scores may be
 * NULL. */
OCT_API oct_status oct_net_classify(oct_net *net, int64_t samples, const uint8_t *pixels,
                                    const oct_pixels *layout, int32_t *classes,
                                    float *scores) OCT_NODISCARD;

OCT_END_DECLS

#endif
