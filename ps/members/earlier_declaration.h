// The declaration with which a run first trained. Later terms of the run accept no other one.
// OUT/term.json holds it, without the numerics, for a coordinator that starts again. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pushpull {

struct EarlierDeclaration {
  std::string model_sha256;  // of tensors and heads, in hex
  int64_t train_samples = 0;
  int64_t test_samples = 0;
  std::string data_digest;
  // Nothing: not compared. A coordinator that starts again may be on another host than before, with
  // its workers, and goes on as a resume does.
  std::optional<std::string> numerics;

  friend bool operator==(const EarlierDeclaration&, const EarlierDeclaration&) = default;
};

}  // namespace pushpull
