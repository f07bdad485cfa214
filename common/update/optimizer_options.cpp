#include "common/update/optimizer_options.h"

#include <algorithm>
#include <string_view>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/layout/name_pattern.h"
#include "common/layout/tensor_table.h"

namespace pushpull {

NoDecay NoDecay::parse(const std::string& text) {
  if (text == "model") return {};
  NoDecay out;
  out.patterns.emplace();
  if (text.empty() || text == "none") return out;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string pattern(trim(std::string_view(text).substr(begin, end - begin)));
    if (!is_name_pattern(pattern)) {
      throw Error(ErrorCode::kUsage, "[job] no-decay '" + printable(text) +
                                         "' must be model, none, or PATTERN,..., as *.bias,*norm*");
    }
    out.patterns->push_back(pattern);
    begin = end + 1;
  }
  return out;
}

std::string NoDecay::to_string() const {
  if (!patterns) return "model";
  if (patterns->empty()) return "none";
  std::string out;
  for (const std::string& pattern : *patterns) out += (out.empty() ? "" : ",") + pattern;
  return out;
}

bool NoDecay::contains(const TensorInfo& tensor) const {
  if (!patterns) return !tensor.decay;
  return std::ranges::any_of(
      *patterns, [&](const std::string& pattern) { return name_fits(pattern, tensor.name); });
}

const std::vector<std::string>& state_names(OptimizerKind kind) {
  static const std::vector<std::string> of_sgd;
  static const std::vector<std::string> of_momentum = {"momentum_buffer"};
  static const std::vector<std::string> of_adam = {"exp_avg", "exp_avg_sq"};
  switch (kind) {
    case OptimizerKind::kSgd:
      return of_sgd;
    case OptimizerKind::kMomentum:
    case OptimizerKind::kNesterov:
      return of_momentum;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return of_adam;
  }
  PP_ASSERT(!"an optimizer of the enumeration");
  return of_sgd;
}

}  // namespace pushpull
