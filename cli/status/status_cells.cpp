#include "cli/status/status_cells.h"

#include <array>
#include <cstdio>

#include "common/base/text.h"

namespace pushpull {

namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxCell = 60;
constexpr double kSilentSeconds = 3.0;

}  // namespace

std::string number_text(const ordered_json& value, int digits) {
  if (!value.is_number()) return "-";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value.get<double>());
  return text.data();
}

std::string clock_of(const ordered_json& seconds) {
  return seconds.is_number() ? clock_text(seconds.get<double>()) : "?";
}

std::string text_of(const ordered_json& value) {
  return printable(value.get<std::string>(), kMaxCell);
}

std::string member_name(const ordered_json& member) {
  const ordered_json& rank = member.at("rank");
  return text_of(member.at("role")) +
         (rank.is_null() ? "" : " " + std::to_string(rank.get<int64_t>()));
}

std::string member_remark(const ordered_json& member) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (member.value("straggler", false)) add("STRAGGLER: the others wait for it");
  const double heard = member.at("heard_seconds").get<double>();
  if (heard >= kSilentSeconds) add("silent for " + number_text(heard, 0) + " s");
  const std::string state = text_of(member.at("state"));
  if (state != "active") add(state);
  const std::string waits = member.value("waits_for", "");
  // A computing member waits now and then, too.
  if (!waits.empty() && member.value("samples_per_second", 0.0) == 0.0)
    add("waits for " + printable(waits, kMaxCell));
  return out;
}

std::string member_staleness(const ordered_json& member) {
  return number_text(member.at("staleness_mean"), 1) + " (" +
         std::to_string(member.at("staleness_max").get<int64_t>()) + ")";
}

}  // namespace pushpull
