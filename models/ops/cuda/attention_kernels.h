// The kernels of attention between its products, enqueued on the backend's stream. Matrices of
// activations and of f32 are in aligned memory; tensors [N, T, ...] may lie anywhere. Used on the
// backend's thread.
#pragma once

#include <cstdint>
#include <memory>

#include "models/ops/attention.h"
#include "models/ops/cuda/attention_pass.h"
#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

// Attention on CUDA: products by cuBLASLt and own kernels between them. The scores of a group of
// heads and a block of queries lie in scratch memory at a time, so memory is linear in the
// positions. Used on the backend's thread.

// Blocks and groups depend on these and the shape alone, so equal shapes give equal bits.
struct AttentionLimits {
  int64_t rows = 256;   // queries of a block, a multiple of eight
  int64_t extents = 4;  // different numbers of keys of causal blocks; each has its plans
  int64_t scores = int64_t{16} << 20;  // of a block, unless one head has more
};

std::unique_ptr<Operation> make_attention_within(Shared& shared, const AttentionShape& shape,
                                                 const AttentionLimits& limits);

void split_heads(Shared& shared, const HeadsPass& pass, const Activation* tensor,
                 Activation* matrices);
//   factors: of each row of the matrices; null: 1.
void join_heads(Shared& shared, const HeadsPass& pass, const float* matrices, const float* factors,
                Activation* tensor);

// deltas [pairs, rows of a matrix] = sum of dy y over the head.
void multiply_outputs(Shared& shared, const HeadsPass& pass, const Activation* y,
                      const Activation* dy, float* deltas);

// p = e^(score - largest) with dropout, which may be the scores if activations are f32; y = inverse
// p v. inverses: of each row of the matrices. log_sums: of each query of all pairs; null: not wanted.
void find_softmax(Shared& shared, const ScoresPass& pass, const float* scores, Activation* p,
                  float* inverses, float* log_sums);

// p = softmax with dropout, ds = gradients of the scores times `scale`; if activations are f32 they
// may be the scores and dp.
struct ScoreGradients {
  const float* scores = nullptr;
  const float* dp = nullptr;
  const float* log_sums = nullptr;
  const float* deltas = nullptr;
  float scale = 1.0F;
};
void find_score_gradients(Shared& shared, const ScoresPass& pass, const ScoreGradients& from,
                          Activation* p, Activation* ds);

}  // namespace pushpull::ops::cuda
