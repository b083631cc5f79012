/* A small transformer of images, written by hand: patches and a token of its own, positions, a block of
 * attention and one of two layers, each after a layer norm, and the mean of all tokens before the head. */
#pragma once

#include "core/nn/modules.h"
#include "core/op/ops.h"

enum {
    TOKEN_SIDE = 8,
    TOKEN_IMAGE = TOKEN_SIDE * TOKEN_SIDE * 3,
    TOKEN_WIDTH = 8,
    TOKEN_COUNT = 5, /* four patches and the token */
    TOKEN_CLASSES = 4,
};

typedef struct token_net {
    oct_module base;
    oct_module *patches, *token, *positions, *scale, *norm[3], *query, *key, *value, *wide, *narrow,
        *head;
} token_net;

static inline oct_tensor *token_attention(oct_context *cx, token_net *m, oct_tensor *x)
{
    static const int across[] = {2, 1};
    oct_tensor *query = oct_call(cx, m->query, x), *value = oct_call(cx, m->value, x);
    oct_tensor *key = oct_transpose(cx, oct_call(cx, m->key, x), across);
    oct_tensor *near = oct_mul_scalar(cx, oct_matmul(cx, query, key), 0.35);
    return oct_matmul(cx, oct_softmax(cx, near), value);
}

static inline oct_tensor *token_forward(oct_context *cx, oct_module *self, oct_tensor *const *x,
                                        int n)
{
    token_net *m = (token_net *)self;
    (void)n;
    oct_tensor *patches = oct_flatten(cx, oct_call(cx, m->patches, x[0]));
    oct_tensor *token = oct_flatten(cx, oct_call(cx, m->token, x[0]));
    oct_tensor *all[] = {token, patches};
    oct_tensor *y = oct_reshape(cx, oct_concat(cx, all, 2), OCT_SHAPE(0, TOKEN_COUNT, TOKEN_WIDTH));
    y = oct_call(cx, m->positions, y);
    y = oct_add(cx, y, token_attention(cx, m, oct_call(cx, m->norm[0], y)));
    oct_tensor *step = oct_call(cx, m->wide, oct_call(cx, m->norm[1], y));
    step = oct_call(cx, m->narrow, oct_silu(cx, step));
    y = oct_add(cx, y, oct_call(cx, m->scale, step));
    return oct_call(cx, m->head, oct_mean(cx, oct_call(cx, m->norm[2], y), 1, false));
}

static const oct_module_type token_type = {
    .name = "token_net", .forward = token_forward, .calls_only = true};

#define TOKEN_PART(name, slot, create)                                                             \
    OCT_TRY(create);                                                                               \
    OCT_TRY(oct_module_add_child(*root, name, slot))

static inline oct_status token_net_create(oct_module **root)
{
    const oct_conv_geometry patch = oct_conv_geometry_of(4, 4, 4, 0, 1);
    const int64_t width = TOKEN_WIDTH;
    OCT_TRY(oct_module_alloc(root, &token_type, sizeof(token_net)));
    token_net *m = (token_net *)*root;
    TOKEN_PART("patches", &m->patches, oct_conv2d_create(&m->patches, 3, width, patch, true));
    TOKEN_PART("token", &m->token, oct_parameter_create(&m->token, OCT_SHAPE(1, width)));
    TOKEN_PART("positions", &m->positions,
               oct_add_parameter_create(&m->positions, OCT_SHAPE(TOKEN_COUNT, width)));
    TOKEN_PART("scale", &m->scale, oct_mul_parameter_create(&m->scale, OCT_SHAPE(1, width)));
    TOKEN_PART("norm0", &m->norm[0], oct_layer_norm_create(&m->norm[0], width, 1e-6));
    TOKEN_PART("norm1", &m->norm[1], oct_layer_norm_create(&m->norm[1], width, 1e-6));
    TOKEN_PART("norm2", &m->norm[2], oct_group_norm_create(&m->norm[2], 2, width, 1e-5));
    TOKEN_PART("query", &m->query, oct_linear_create(&m->query, width, width, true));
    TOKEN_PART("key", &m->key, oct_linear_create(&m->key, width, width, true));
    TOKEN_PART("value", &m->value, oct_linear_create(&m->value, width, width, true));
    TOKEN_PART("wide", &m->wide, oct_linear_create(&m->wide, width, 2 * width, true));
    TOKEN_PART("narrow", &m->narrow, oct_linear_create(&m->narrow, 2 * width, width, true));
    TOKEN_PART("head", &m->head, oct_linear_create(&m->head, width, TOKEN_CLASSES, true));
    return OCT_OK;
}
