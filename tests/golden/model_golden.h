/* Trained numbers of PyTorch's twins of the models. Made by make_model_golden.py, never by hand. */
#pragma once

static const struct {
    const char *name;
    long long numel;
} golden_models[] = {
    {"cnn-small", 591466},    {"resnet20", 272474},      {"resnet18c", 11173962},
    {"resnet18", 11181642},   {"resnet50", 23528522},    {"vgg11c", 9494794},
    {"mobilenetv2", 2236682}, {"mobilenetv2c", 2236682}, {"mobilenetv2c-relu", 2236682},
    {"fpn-small", 107034},    {"unet-small", 118746},    {"autoencoder", 497954},
    {"mlp", 411146},
};
