// The models as graphs, one file each.
#pragma once

#include "common/layout/fields.h"
#include "models/graph.h"

namespace pushpull {

struct Job;

// Flatten as in torch, then Linear and ReLU for each width in `hidden`, then Linear. Tensors
// layers.I.weight and layers.I.bias.
Graph mlp_graph(const Job& job, const FieldTable& fields);

// The small MNIST network of the PyTorch courses at CSC: two blocks of 5x5 convolution (16, 32
// channels), BatchNorm, ReLU and 2x2 max pooling, then one Linear. Tensors layer1.0 and layer2.0
// (convolution), layer1.1 and layer2.1 (BatchNorm), fc. Throws Error(kUsage) for an image that is
// too small.
Graph convnet_graph(const Job& job, const FieldTable& fields);

// A decoder-only transformer: Hugging Face's GPT2LMHeadModel (Radford et al., Language Models are
// Unsupervised Multitask Learners, 2019) with its names, its layout of weights and its initial
// values. Reads the fields ids and target [sequence]; the head `token` measures perplexity over the
// targets that are not kNoTarget. Throws Error(kUsage) if heads does not divide embed.
Graph gpt_graph(const Job& job, const FieldTable& fields);

// A transformer encoder for question answering: Hugging Face's BertModel (Devlin et al.,
// arXiv:1810.04805) with its names and initial values, and heads on it: qa_outputs (start with the
// exact match of both ends, end), reg_start and reg_end (both places as parts of the length) and
// classifier (class). Reads the fields ids, mask, types [sequence], start, end, start-position,
// end-position and class. Throws Error(kUsage) if heads does not divide embed.
Graph bert_graph(const Job& job, const FieldTable& fields);

// Residual networks (He et al., arXiv:1512.03385) with torchvision's names and initial values.
// Job::stem cifar begins with a 3x3 convolution instead of a 7x7 one of stride 2 and max pooling.
// Biases and norms have no weight decay.
Graph resnet18_graph(const Job& job, const FieldTable& fields);
Graph resnet50_graph(const Job& job, const FieldTable& fields);

}  // namespace pushpull
