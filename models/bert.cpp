// The model `bert`: a transformer encoder with heads for question answering.
#include <string>

#include "common/base/error.h"
#include "common/job/job.h"
#include "models/layers.h"
#include "models/models.h"

namespace pushpull {

namespace {

constexpr float kNormEpsilon = 1e-12F;  // Hugging Face's layer_norm_eps
constexpr double kDeviation = 0.02;     // its initializer_range

class Bert {
 public:
  Bert(const Job& job, const FieldTable& fields)
      : job_(job),
        graph_(job.model, job.dataset, job.micro_batch, fields),
        init_(normal_of(kDeviation)) {}

  Graph build() {
    check_fields();
    mask_ = graph_.input("mask");
    Value x = embeddings();
    for (int64_t i = 0; i < job_.layers; ++i) {
      graph_.cut();
      x = block("bert.encoder.layer." + std::to_string(i), x);
    }
    graph_.cut();
    add_span_heads(x);
    add_pooled_heads(x);
    return graph_.take();
  }

 private:
  // Throws Error(kUsage) unless ids, mask and types have one length.
  void check_fields() const {
    const std::vector<int64_t>& shape = graph_.field("ids").shape;
    if (shape.size() == 1 && graph_.field("mask").shape == shape &&
        graph_.field("types").shape == shape) {
      return;
    }
    throw Error(ErrorCode::kUsage,
                "[models] model = bert needs ids, mask and types of one length; dataset = " +
                    job_.dataset + " has others");
  }

  Value norm(const std::string& name, Value x) {
    return layer_norm(graph_, name, x, true, kNormEpsilon);
  }

  Value embeddings() {
    const std::string name = "bert.embeddings";
    const FieldInfo& ids = graph_.field("ids");
    const int64_t positions = job_.positions > 0 ? job_.positions : ids.shape[0];
    const Param words =
        graph_.param(name + ".word_embeddings.weight", {ids.limit, job_.embed}, init_);
    const Param places =
        graph_.param(name + ".position_embeddings.weight", {positions, job_.embed}, init_);
    const Param types = graph_.param(name + ".token_type_embeddings.weight",
                                     {graph_.field("types").limit, job_.embed}, init_);
    Value x = embedding(graph_, name + ".word_embeddings", graph_.input("ids"), words);
    const Value type =
        embedding(graph_, name + ".token_type_embeddings", graph_.input("types"), types);
    x = add(graph_, name + ".add", x, type);
    x = add_positions(graph_, name + ".position_embeddings", x, places);
    return dropout(graph_, name + ".dropout", norm(name + ".LayerNorm", x), job_.dropout);
  }

  // Attention, then two layers with GELU, each added to its input and normalised behind it.
  Value block(const std::string& name, Value x) {
    const std::string self = name + ".attention.self";
    const Value q = dense(graph_, self + ".query", x, job_.embed, init_);
    const Value k = dense(graph_, self + ".key", x, job_.embed, init_);
    const Value v = dense(graph_, self + ".value", x, job_.embed, init_);
    Value y = attention(graph_, self, {q, k, v}, mask_, job_.heads, job_.attention_dropout);
    y = dense(graph_, name + ".attention.output.dense", y, job_.embed, init_);
    x = add_and_norm(name + ".attention.output", x, y);

    const int64_t inner = job_.ffn > 0 ? job_.ffn : 4 * job_.embed;
    y = dense(graph_, name + ".intermediate.dense", x, inner, init_);
    y = activate(graph_, name + ".intermediate.act", y, ops::Function::kGeluErf);
    y = dense(graph_, name + ".output.dense", y, job_.embed, init_);
    return add_and_norm(name + ".output", x, y);
  }

  Value add_and_norm(const std::string& name, Value x, Value y) {
    y = dropout(graph_, name + ".dropout", y, job_.dropout);
    return norm(name + ".LayerNorm", add(graph_, name + ".add", x, y));
  }

  // The scores of each token as the first and as the last one of the answer.
  void add_span_heads(Value x) {
    const Value scores = dense(graph_, "qa_outputs", x, 2, init_);
    graph_.head(
        {.name = "start", .metric = Metric::kExactMatch, .ignored = kNoTarget, .partner = "end"},
        select_last(graph_, "qa_outputs.start", scores, 0), "start");
    graph_.head({.name = "end", .ignored = kNoTarget},
                select_last(graph_, "qa_outputs.end", scores, 1), "end");
  }

  // Heads on the first token, [CLS]: both places of the answer as parts of the length, and the
  // class of the answer.
  void add_pooled_heads(Value x) {
    x = select_position(graph_, "bert.pooler.first", x, 0);
    x = dense(graph_, "bert.pooler.dense", x, job_.embed, init_);
    x = activate(graph_, "bert.pooler.activation", x, ops::Function::kTanh);
    x = dropout(graph_, "dropout", x, job_.dropout);
    for (const char* end : {"start", "end"}) {
      const std::string head = std::string(end) + "-position";
      graph_.head({.name = head, .loss = Loss::kSquaredError, .metric = Metric::kMeanSquaredError},
                  dense(graph_, std::string("reg_") + end, x, 1, init_), head);
    }
    graph_.head({.name = "class"},
                dense(graph_, "classifier", x, graph_.field("class").limit, init_), "class");
  }

  const Job& job_;
  GraphBuilder graph_;
  Init init_;
  Value mask_;
};

}  // namespace

Graph bert_graph(const Job& job, const FieldTable& fields) { return Bert(job, fields).build(); }

}  // namespace pushpull
