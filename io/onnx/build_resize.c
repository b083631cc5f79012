/* Images resized: what the opsets mean, as interpolate's modes. */
#include "io/onnx/build_impl.h"

#include <math.h>
#include <string.h>

/* How a pixel of the output finds its place in the input. */
typedef struct resize_rule {
    const char *mode, *at, *nearest;
    bool
        whole; /* the output is a multiple of the input, where most rules for the nearest pixel agree */
} resize_rule;

/* The same as interpolate's modes count it; -1: not at all. Sizes are what scales say without a rest, so
 * half_pixel_symmetric is half_pixel. */
static int resize_mode(const resize_rule *r)
{
    const bool half = strcmp(r->at, "half_pixel") == 0 ||
                      strcmp(r->at, "pytorch_half_pixel") == 0 ||
                      strcmp(r->at, "half_pixel_symmetric") == 0;
    const bool floors = strcmp(r->nearest, "floor") == 0;
    const bool rounds = strcmp(r->nearest, "round_prefer_floor") == 0;
    const bool from_corner = strcmp(r->at, "asymmetric") == 0;
    if (strcmp(r->mode, "nearest") == 0) {
        if (from_corner && floors) return 0;
        if (r->whole && half && (rounds || strcmp(r->nearest, "round_prefer_ceil") == 0)) return 0;
        if (r->whole && floors && strcmp(r->at, "tf_half_pixel_for_nn") == 0) return 0;
        if (half && rounds) return 4;
        return half && floors ? 5 : -1;
    }
    if (strcmp(r->mode, "linear") != 0) return -1;
    if (half) return 1;
    if (strcmp(r->at, "align_corners") == 0) return 2;
    return from_corner ? 3 : -1;
}

oct_status oct_build_resize(oct_onnx_builder *b, const oct_onnx_node *n)
{
    oct_onnx_view x;
    int64_t in[2], out[2];
    bool whole = true, smaller = false, fits = true;
    OCT_TRY(oct_build_view(b, n, 0, &x));
    OCT_TRY(oct_build_lay_out_image(b, &x));
    const oct_onnx_value *to = &b->graph->values[b->result];
    OCT_CHECK(to->known && to->ndim == x.dims && to->dim[1] == x.shape.dim[3], OCT_PREPARE,
              "it changes the number of channels; only height and width are supported");
    /* Where scales are given, the output must be what they say without a rest, since pixels are found by them. */
    for (int d = 1; d < x.dims; d++)
        fits &= n->args.scale[d] == 0 ||
                !(fabs((double)n->args.scale[d] * (double)oct_view_size(&x, d) -
                       (double)to->dim[d]) > 1e-3);
    for (int i = 0; i < 2; i++) {
        in[i] = x.shape.dim[1 + i];
        out[i] = i == 1 || x.dims == 4 ? to->dim[x.dims - 2 + i] : 1;
        whole &= out[i] % in[i] == 0;
        smaller |= in[i] > out[i] && in[i] % out[i] != 0;
    }
    resize_rule rule = {oct_onnx_string(n, "mode", "nearest"),
                        oct_onnx_string(n, "coordinate_transformation_mode", "half_pixel"),
                        oct_onnx_string(n, "nearest_mode", "round_prefer_floor"), whole};
    if (b->graph->opset <
        11) { /* from the corner; the pixel after where one becomes no whole one */
        rule.at = "asymmetric";
        rule.nearest = smaller ? "ceil" : "floor";
    }
    const int mode = resize_mode(&rule);
    OCT_CHECK(mode >= 0 && fits && oct_onnx_int(n, "antialias", 0) == 0, OCT_PREPARE,
              "it resizes with mode %s, coordinate_transformation_mode %s, nearest_mode %s and "
              "scales that %s; export it with nearest or linear, floor or round_prefer_floor, "
              "opset 11 or later, without antialias, and with scales that give whole sizes",
              rule.mode, rule.at, rule.nearest,
              fits ? "give whole sizes" : "leave a part of a pixel over");
    /* One pixel is that at the corner, not the middle. */
    for (int i = 0; i < 2; i++)
        if (strcmp(rule.at, "pytorch_half_pixel") == 0 && out[i] == 1 && in[i] > 1)
            OCT_CHECK(oct_view_slice(&x, x.dims - 2 + i, 0, 1, 1, &x), OCT_DEFECT,
                      "an image has no first pixel");
    OCT_TRY(oct_build_lay_out_image(b, &x));
    OCT_TRY(oct_build_call(b, "interpolate", OCT_OP_ARGS((double)out[0], (double)out[1], mode),
                           &x.value, 1, &x.value));
    const oct_onnx_view y = oct_build_image(x.value, x.dims, out[0], out[1], x.shape.dim[3]);
    return oct_build_result(b, &y);
}
