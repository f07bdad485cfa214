// The model `gpt`: a decoder-only transformer.
#include <cmath>
#include <string>

#include "common/base/error.h"
#include "common/job/job.h"
#include "models/layers.h"
#include "models/models.h"

namespace pushpull {

namespace {

constexpr float kNormEpsilon = 1e-5F;  // Hugging Face's layer_norm_epsilon
constexpr double kDeviation = 0.02;    // its initializer_range

class Gpt {
 public:
  Gpt(const Job& job, const FieldTable& fields)
      : job_(job), graph_(job.model, job.dataset, job.micro_batch, fields) {}

  Graph build() {
    const FieldInfo& ids = graph_.field("ids");
    const FieldInfo& target = graph_.field("target");
    if (ids.shape.size() != 1 || target.shape != ids.shape) {
      throw Error(ErrorCode::kUsage,
                  "[models] model = gpt needs ids and target of one length; "
                  "dataset = " +
                      job_.dataset + " has others");
    }
    const int64_t width = job_.embed;
    const Init init = normal_of(kDeviation);
    const Param tokens = graph_.param("transformer.wte.weight", {ids.limit, width}, init);
    const int64_t positions = job_.positions > 0 ? job_.positions : ids.shape[0];
    const Param places = graph_.param("transformer.wpe.weight", {positions, width}, init);
    Value x = embedding(graph_, "transformer.wte", graph_.input("ids"), tokens);
    x = add_positions(graph_, "transformer.wpe", x, places);
    x = dropout(graph_, "transformer.drop", x, job_.dropout);
    for (int64_t i = 0; i < job_.layers; ++i) {
      graph_.cut();
      x = block("transformer.h." + std::to_string(i), x);
    }
    graph_.cut();
    x = norm("transformer.ln_f", x);
    const Param output =
        job_.tie_embeddings ? tokens : graph_.param("lm_head.weight", {ids.limit, width}, init);
    x = linear_on(graph_, "lm_head", x, output);
    graph_.head({.name = "token", .metric = Metric::kPerplexity, .ignored = kNoTarget}, x,
                "target");
    return graph_.take();
  }

 private:
  Value norm(const std::string& name, Value x) {
    return layer_norm(graph_, name, x, job_.norm == Norm::kLayer, kNormEpsilon);
  }

  // Attention, then two layers with GELU, each normalised before and added to x.
  Value block(const std::string& name, Value x) {
    const Init init = normal_of(kDeviation);
    // of the layers that add to x (GPT-2: scaled by the number of such layers)
    const Init residual = normal_of(kDeviation / std::sqrt(2.0 * static_cast<double>(job_.layers)));
    Value y = norm(name + ".ln_1", x);
    y = conv1d(graph_, name + ".attn.c_attn", y, 3 * job_.embed, init);
    y = self_attention(graph_, name + ".attn", y, job_.heads, true, job_.attention_dropout);
    y = conv1d(graph_, name + ".attn.c_proj", y, job_.embed, residual);
    y = dropout(graph_, name + ".attn.resid_dropout", y, job_.dropout);
    x = add(graph_, name + ".attn.add", x, y);

    y = norm(name + ".ln_2", x);
    y = conv1d(graph_, name + ".mlp.c_fc", y, job_.ffn > 0 ? job_.ffn : 4 * job_.embed, init);
    y = activate(graph_, name + ".mlp.act", y, ops::Function::kGeluTanh);
    y = conv1d(graph_, name + ".mlp.c_proj", y, job_.embed, residual);
    y = dropout(graph_, name + ".mlp.dropout", y, job_.dropout);
    return add(graph_, name + ".mlp.add", x, y);
  }

  const Job& job_;
  GraphBuilder graph_;
};

}  // namespace

Graph gpt_graph(const Job& job, const FieldTable& fields) { return Gpt(job, fields).build(); }

}  // namespace pushpull
