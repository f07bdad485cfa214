#include "common/net/model_wire.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/layout/tensor_table.h"

namespace pushpull {
namespace {

constexpr int kMaxHeads = 64;

std::string text(const HeadInfo& head) {
  return head.name + " (" + to_string(head.metric) + ", " + std::to_string(head.targets) +
         (head.targets == 1 ? " target" : " targets") + ")";
}

}  // namespace

void to_wire(const std::vector<HeadInfo>& heads, WireHeads* out) {
  for (const HeadInfo& head : heads) {
    wire::Head* h = out->Add();
    h->set_name(head.name);
    h->set_metric(to_string(head.metric));
    h->set_targets(head.targets);
  }
}

std::vector<HeadInfo> from_wire(const WireHeads& heads) {
  const auto fail = [](const std::string& what) {
    return Error(ErrorCode::kProtocol, "[declare] " + what);
  };
  if (heads.size() > kMaxHeads) {
    throw fail("a model with " + std::to_string(heads.size()) + " heads; at most " +
               std::to_string(kMaxHeads) + " are allowed");
  }
  std::vector<HeadInfo> out;
  std::set<std::string> names;
  for (const wire::Head& h : heads) {
    if (!is_head_name(h.name())) throw fail("a head has an impossible name");
    const std::optional<Metric> metric = metric_of(h.metric());
    if (!metric) throw fail("head " + h.name() + ": unknown metric");
    if (h.targets() < 1 || h.targets() > kMaxTargets) {
      throw fail("head " + h.name() + ": " + std::to_string(h.targets()) +
                 " targets of a sample; 1 to " + std::to_string(kMaxTargets) + " are allowed");
    }
    if (!names.insert(h.name()).second) throw fail("two heads are called " + h.name());
    out.push_back({h.name(), *metric, h.targets()});
  }
  return out;
}

std::string difference(const std::vector<HeadInfo>& want, const std::vector<HeadInfo>& got) {
  const size_t both = std::min(want.size(), got.size());
  for (size_t i = 0; i < both; ++i) {
    if (want[i] == got[i]) continue;
    return "head " + std::to_string(i) + ": the job has " + text(want[i]) + ", this worker has " +
           text(got[i]);
  }
  if (want.size() == got.size()) return "";
  return "the job's model has " + std::to_string(want.size()) + " heads, this worker's has " +
         std::to_string(got.size());
}

void to_wire(std::span<const HeadSums> sums, wire::ChunkResult* out) {
  for (const HeadSums& head : sums) {
    wire::HeadSums* s = out->add_sums();
    s->set_loss(head.loss);
    s->set_counted(head.counted);
    s->set_metric(head.metric);
  }
}

HeadSums from_wire(const wire::HeadSums& sums) {
  return {sums.loss(), sums.counted(), sums.metric()};
}

namespace {

constexpr int kMaxTensors = 100'000;
constexpr int kMaxDims = 8;
constexpr auto kLastRule = static_cast<int>(UpdateRule::kAverage);
constexpr auto kLastInit = static_cast<int>(InitKind::kNormal);

std::string tensor_text(const TensorInfo& tensor) {
  std::string text = tensor.name + " " + shape_text(tensor.shape);
  if (!tensor.decay) text += " without weight decay";
  if (tensor.lr_scale != 1.0) text += " with lr times " + print_real(tensor.lr_scale);
  if (tensor.weight_decay) text += " with weight decay " + print_real(*tensor.weight_decay);
  if (tensor.begins_stage) text += " as the first one of a stage";
  return text;
}

TensorInfo tensor_from_wire(const wire::Tensor& t) {
  const auto fail = [&](const char* what) {
    return Error(ErrorCode::kProtocol, "[declare] tensor " + t.name() + ": " + what);
  };
  if (const std::string mistake = tensor_name_mistake(t.name()); !mistake.empty()) {
    throw Error(ErrorCode::kProtocol, "[declare] tensor '" + printable(t.name()) + "': " + mistake);
  }
  TensorInfo info;
  info.name = t.name();
  if (t.shape_size() > kMaxDims) throw fail("too many dimensions");
  int64_t size = 1;
  for (const int64_t d : t.shape()) {
    if (d < 1 || size > kMaxModelElements / d) throw fail("impossible shape");
    size *= d;
    info.shape.push_back(d);
  }
  if (t.rule() < 0 || t.rule() > kLastRule || t.init() < 0 || t.init() > kLastInit) {
    throw fail("unknown rule");
  }
  if (!std::isfinite(t.value()) ||
      !(t.average_momentum() >= 0.0F && t.average_momentum() <= 1.0F)) {
    throw fail("bad init value or momentum");
  }
  info.rule = static_cast<UpdateRule>(t.rule());
  info.init = static_cast<InitKind>(t.init());
  info.value = t.value();
  info.average_momentum = t.average_momentum();
  info.decay = !t.no_decay();
  if (t.has_lr_scale()) info.lr_scale = t.lr_scale();
  if (t.has_weight_decay()) info.weight_decay = t.weight_decay();
  info.begins_stage = t.begins_stage();
  const auto is_rate = [](double x) { return std::isfinite(x) && x >= 0.0; };
  if (!is_rate(info.lr_scale) || !is_rate(info.weight_decay.value_or(0.0))) {
    throw fail("bad learning rate or weight decay");
  }
  return info;
}

}  // namespace

void to_wire(const TensorTable& table, WireTensors* out) {
  for (const TensorInfo& tensor : table.tensors) {
    wire::Tensor* t = out->Add();
    t->set_name(tensor.name);
    for (const int64_t d : tensor.shape) t->add_shape(d);
    t->set_rule(static_cast<int32_t>(tensor.rule));
    t->set_init(static_cast<int32_t>(tensor.init));
    t->set_value(tensor.value);
    t->set_average_momentum(tensor.average_momentum);
    t->set_no_decay(!tensor.decay);
    if (tensor.lr_scale != 1.0) t->set_lr_scale(tensor.lr_scale);
    if (tensor.weight_decay) t->set_weight_decay(*tensor.weight_decay);
    t->set_begins_stage(tensor.begins_stage);
  }
}

TensorTable from_wire(const WireTensors& tensors) {
  if (tensors.empty() || tensors.size() > kMaxTensors) {
    throw Error(ErrorCode::kProtocol,
                "[declare] a model with " + std::to_string(tensors.size()) + " tensors");
  }
  TensorTable table;
  std::set<std::string> names;
  for (const wire::Tensor& t : tensors) {
    table.add(tensor_from_wire(t));
    if (!names.insert(t.name()).second) {
      throw Error(ErrorCode::kProtocol, "[declare] two tensors are called " + t.name());
    }
    if (table.total > kMaxModelElements) {
      throw Error(ErrorCode::kProtocol, "[declare] the model has too many elements");
    }
  }
  return table;
}

std::string difference(const TensorTable& want, const TensorTable& got) {
  const size_t both = std::min(want.tensors.size(), got.tensors.size());
  for (size_t i = 0; i < both; ++i) {
    const TensorInfo& a = want.tensors[i];
    const TensorInfo& b = got.tensors[i];
    if (a == b) continue;
    return "tensor " + std::to_string(i) + ": the job has " + tensor_text(a) +
           ", this worker has " + tensor_text(b);
  }
  if (want.tensors.size() != got.tensors.size()) {
    return "the job's model has " + std::to_string(want.tensors.size()) +
           " tensors, this worker's has " + std::to_string(got.tensors.size());
  }
  return "";
}

}  // namespace pushpull
