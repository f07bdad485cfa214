#include "common/job/strategy.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

constexpr int64_t kMaxParameter = 1'000'000;  // K, S, B, H

struct Row {
  StrategyKind kind;
  std::string_view word;
  std::string_view form;         // as a user writes it, with a letter for the parameter
  int64_t Strategy::*parameter;  // null if the word stands alone
  int64_t least;                 // smallest value of the parameter
  StrategyTraits traits;
};

const std::array<Row, 7>& table() {
  static const std::array<Row, 7> rows = {{
      {StrategyKind::kSync, "sync", "sync", nullptr, 0, {.same_bits = true}},
      {StrategyKind::kAsync,
       "async",
       "async",
       nullptr,
       0,
       {.step_versions = false, .single_pushes = true, .leases = true, .recordable = true}},
      {StrategyKind::kBuffered,
       "buffered",
       "buffered:K",
       &Strategy::buffer,
       1,
       {.step_versions = false, .leases = true, .recordable = true}},
      {StrategyKind::kSsp,
       "ssp",
       "ssp:S",
       &Strategy::staleness,
       0,
       {.step_versions = false, .single_pushes = true, .recordable = true}},
      {StrategyKind::kBackup,
       "backup",
       "backup:B",
       &Strategy::backups,
       0,
       {.whole_steps = false, .recordable = true}},
      {StrategyKind::kLocal,
       "local",
       "local:H",
       &Strategy::local_steps,
       1,
       {.outer_optimizer = true}},
      {StrategyKind::kAllReduce,
       "allreduce",
       "allreduce:KIND",
       nullptr,
       0,
       {.same_bits = true, .workers_update = true}},
  }};
  return rows;
}

const Row& row_of(StrategyKind kind) {
  const auto found = std::find_if(table().begin(), table().end(),
                                  [&](const Row& row) { return row.kind == kind; });
  PP_ASSERT(found != table().end());
  return *found;
}

constexpr std::array<std::pair<std::string_view, AllReduceKind>, 3> kAllReduces = {
    {{"tree", AllReduceKind::kTree},
     {"ring", AllReduceKind::kRing},
     {"gloo", AllReduceKind::kGloo}}};

// Returns sync for a bound of 0 clocks and for 0 backup workers (DESIGN P3), and async for a buffer
// of one push.
Strategy simplest(const Strategy& strategy) {
  if (strategy == Strategy{.kind = StrategyKind::kBuffered, .buffer = 1}) {
    return {.kind = StrategyKind::kAsync};
  }
  const int64_t Strategy::*parameter = row_of(strategy.kind).parameter;
  return parameter != nullptr && strategy.*parameter == 0 ? Strategy{} : strategy;
}

}  // namespace

std::string strategy_words() {
  std::string out;
  for (const Row& row : table()) {
    const std::string word(row.word);
    if (row.kind == StrategyKind::kAllReduce) {
      for (const auto& [name, ignored] : kAllReduces) out += word + ":" + std::string(name) + "|";
    } else {
      out += word + (row.parameter != nullptr ? ":|" : "|");
    }
  }
  out.pop_back();
  return out;
}

std::string strategies_with(bool StrategyTraits::*property) {
  std::vector<std::string_view> forms;
  for (const Row& row : table()) {
    if (row.traits.*property) forms.push_back(row.form);
  }
  std::string out;
  for (size_t i = 0; i < forms.size(); ++i) {
    if (i > 0) out += i + 1 == forms.size() ? " or " : ", ";
    out += forms[i];
  }
  return out;
}

Strategy Strategy::parse(const std::string& text) {
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view word = std::string_view(text).substr(0, colon);
  const bool alone = colon == text.size();
  const std::string_view rest = alone ? "" : std::string_view(text).substr(colon + 1);
  for (const Row& row : table()) {
    if (row.word != word) continue;
    Strategy strategy;
    strategy.kind = row.kind;
    if (row.kind == StrategyKind::kAllReduce) {
      for (const auto& [name, algorithm] : kAllReduces) {
        strategy.algorithm = algorithm;
        if (rest == name) return strategy;
      }
    } else if (row.parameter == nullptr) {
      if (alone) return strategy;
    } else if (const auto value = parse_int64(rest);
               value && *value >= row.least && *value <= kMaxParameter) {
      strategy.*row.parameter = *value;
      return simplest(strategy);
    }
  }
  throw Error(ErrorCode::kUsage, "[job] unknown strategy '" + printable(text) + "': must be " +
                                     std::string(kStrategyWords));
}

std::string Strategy::to_string() const {
  const Row& row = row_of(kind);
  std::string word(row.word);
  if (row.parameter != nullptr) return word + ":" + std::to_string(this->*row.parameter);
  if (kind != StrategyKind::kAllReduce) return word;
  for (const auto& [name, which] : kAllReduces) {
    if (algorithm == which) return word + ":" + std::string(name);
  }
  PP_ASSERT(!"an all-reduce has a name");
  return "";
}

const StrategyTraits& Strategy::traits() const { return row_of(kind).traits; }

}  // namespace pushpull
