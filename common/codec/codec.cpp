#include "common/codec/codec.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/base/error.h"
#include "common/base/strict_number.h"
#include "common/base/text.h"
#include "common/layout/name_pattern.h"

namespace pushpull {

namespace {

constexpr std::array<std::pair<const char*, CodecKind>, 4> kWords = {{{"fp32", CodecKind::kFp32},
                                                                      {"fp16", CodecKind::kFp16},
                                                                      {"bf16", CodecKind::kBf16},
                                                                      {"int8", CodecKind::kInt8}}};
constexpr std::string_view kTopK = "topk:";

[[noreturn]] void refuse(const std::string& text, const std::string& wanted) {
  throw Error(ErrorCode::kUsage, "[job] codec '" + printable(text) + "' must be " + wanted);
}

}  // namespace

Codec Codec::parse(const std::string& text) {
  for (const auto& [word, kind] : kWords) {
    if (text == word) return {kind, 1.0};
  }
  if (text.starts_with(kTopK)) {
    const auto fraction = parse_real(text.substr(kTopK.size()));
    if (fraction && *fraction > 0.0 && *fraction <= 1.0) return {CodecKind::kTopK, *fraction};
  }
  refuse(text, "fp32, fp16, bf16, int8, or topk:F with 0 < F <= 1");
}

std::string Codec::to_string() const {
  for (const auto& [word, of_word] : kWords) {
    if (kind == of_word) return word;
  }
  return std::string(kTopK) + print_real(fraction);
}

TensorCodecs TensorCodecs::parse(const std::string& text) {
  TensorCodecs out;
  if (text.empty()) return out;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string rule(trim(std::string_view(text).substr(begin, end - begin)));
    const size_t equals = rule.find('=');
    if (equals == std::string::npos || !is_name_pattern(rule.substr(0, equals))) {
      refuse(text, "PATTERN=CODEC,..., as fc.*=int8,*.bias=fp32");
    }
    out.rules.emplace_back(rule.substr(0, equals), Codec::parse(rule.substr(equals + 1)));
    begin = end + 1;
  }
  return out;
}

std::string TensorCodecs::to_string() const {
  std::string out;
  for (const auto& [pattern, codec] : rules) {
    out += (out.empty() ? "" : ",") + pattern + "=" + codec.to_string();
  }
  return out;
}

std::optional<Codec> TensorCodecs::of(const std::string& tensor) const {
  for (const auto& [pattern, codec] : rules) {
    if (name_fits(pattern, tensor)) return codec;
  }
  return std::nullopt;
}

}  // namespace pushpull
