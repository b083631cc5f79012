/* safetensors: 8 bytes of length, a header in JSON that says type, shape and place of each tensor, and the
 * tensors one after another. Parameters and statistics have PyTorch's names and layouts. */
#include "io/export/format.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <string.h>

enum { LENGTH_BYTES = 8, ALIGNMENT = 8 };

/* The file that is written. */
typedef struct file_writer {
    const oct_float_network *network;
    oct_text header;
    uint8_t *data; /* of the tensors so far */
    size_t size, capacity;
} file_writer;

/* Adds the entry of a tensor to the header, and its values to the data. */
static oct_status add_tensor(file_writer *out, const char *layer, const oct_layer_array *array,
                             const oct_torch_array *made)
{
    size_t bytes = sizeof(float);
    OCT_TRY(oct_text_add(&out->header, ",\"%s%s%s\":{\"dtype\":\"F32\",\"shape\":[", layer,
                         *layer ? "." : "", array->name));
    for (int i = 0; i < made->ndim; i++) {
        OCT_TRY(oct_text_add(&out->header, "%s%" PRId64, i ? "," : "", made->dim[i]));
        bytes *= (size_t)made->dim[i];
    }
    OCT_TRY(oct_grow(&out->data, &out->capacity, out->size + bytes, 1));
    if (bytes > 0) memcpy(out->data + out->size, made->data, bytes);
    OCT_TRY(
        oct_text_add(&out->header, "],\"data_offsets\":[%zu,%zu]}", out->size, out->size + bytes));
    out->size += bytes;
    return OCT_OK;
}

/* Adds the parameters and buffers of a module. */
static oct_status add_arrays_of_owner(file_writer *out, int64_t owner)
{
    const oct_float_network *network = out->network;
    const oct_layer_tensor unknown = {.shape = {0}};
    const oct_layer_tensor *input = &unknown; /* of its module's first call, if there is one */
    oct_float_layer layer;
    oct_float_network_owner_layer(network, owner, &layer);
    for (size_t i = network->trace.num_nodes; i-- > 0;)
        if (network->owner_of[i] == owner)
            input = &network->tensors[network->trace.nodes[i].input[0]];
    for (int i = 0; i < layer.num_arrays; i++) {
        oct_torch_array made;
        OCT_TRY(oct_torch_array_make(&made, &layer, &layer.array[i], input));
        const oct_status status = add_tensor(out, layer.name, &layer.array[i], &made);
        oct_free(&made.data);
        OCT_TRY(status);
    }
    return OCT_OK;
}

static oct_status write_network(const oct_export *job, oct_exported *out)
{
    file_writer f = {.network = job->network};
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_text_add(&f.header, "{\"__metadata__\":{\"format\":\"pt\"}"));
    for (size_t i = 0; i < job->network->num_owners; i++)
        OCT_TRY_OUT(add_arrays_of_owner(&f, (int64_t)i));
    OCT_TRY_OUT(oct_text_add(&f.header, "}"));
    while (f.header.length % ALIGNMENT != 0)
        OCT_TRY_OUT(oct_text_add(&f.header, " "));
    out->size = LENGTH_BYTES + f.header.length + f.size;
    OCT_TRY_OUT(oct_alloc(&out->bytes, out->size, 1));
    uint8_t *bytes = out->bytes;
    for (int i = 0; i < LENGTH_BYTES; i++)
        bytes[i] = (uint8_t)((uint64_t)f.header.length >> (8 * i));
    memcpy(bytes + LENGTH_BYTES, f.header.data, f.header.length);
    if (f.size > 0) memcpy(bytes + LENGTH_BYTES + f.header.length, f.data, f.size);
out:
    oct_text_free(&f.header);
    oct_free(&f.data);
    return status;
}

const oct_export_format oct_export_format_safetensors = {
    .name = "safetensors",
    .help = "the float parameters of a checkpoint, with PyTorch's names and layouts",
    .suffix = ".safetensors",
    .write_network = write_network,
};
