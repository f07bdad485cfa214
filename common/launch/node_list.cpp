#include "common/launch/node_list.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

constexpr size_t kMaxDigits = 9;

struct NumberRange {
  int64_t first = 0;
  int64_t last = 0;
  size_t width = 0;  // digits, filled up with zeros
};

// A piece of a name: text, or a bracket with ranges.
struct NamePiece {
  std::string text;
  std::vector<NumberRange> ranges;  // not empty: a bracket
};

class NodeListReader {
 public:
  NodeListReader(std::string_view list, const std::string& variable, size_t limit)
      : list_(list), variable_(variable), limit_(limit) {}

  std::vector<std::string> read() {
    do {
      add_names(read_pieces(), 0, "");
    } while (skip(','));
    return std::move(names_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorCode::kUsage, "[join] " + variable_ + "=" + printable(list_, 200) + ": " +
                                       why + " at character " + std::to_string(at_ + 1));
  }

  bool skip(char wanted) {
    const bool found = at_ < list_.size() && list_[at_] == wanted;
    if (found) ++at_;
    return found;
  }

  // Reads one name, up to a comma outside brackets.
  std::vector<NamePiece> read_pieces() {
    std::vector<NamePiece> pieces;
    while (at_ < list_.size() && list_[at_] != ',') {
      if (skip('[')) {
        pieces.push_back({"", read_ranges()});
        continue;
      }
      const size_t end = std::min(list_.find_first_of(",[]", at_), list_.size());
      if (end == at_) fail("a bracket closes that is not open");
      const std::string_view text = list_.substr(at_, end - at_);
      if (!is_plain_text(text) || text.find_first_of(" \t") != std::string_view::npos) {
        fail("a name of a node has no spaces");
      }
      pieces.push_back({std::string(text), {}});
      at_ = end;
    }
    if (pieces.empty()) fail("the name of a node is missing");
    return pieces;
  }

  std::vector<NumberRange> read_ranges() {
    std::vector<NumberRange> ranges;
    do {
      ranges.push_back(read_range());
    } while (skip(','));
    if (at_ < list_.size() && list_[at_] == '[') fail("a bracket inside a bracket");
    if (!skip(']')) fail("']' or ',' is missing");
    return ranges;
  }

  NumberRange read_range() {
    const std::string_view first = read_digits();
    const std::string_view last = skip('-') ? read_digits() : first;
    const NumberRange range{parse_int64(first).value(), parse_int64(last).value(), first.size()};
    if (range.last < range.first) fail("a range runs backwards");
    return range;
  }

  std::string_view read_digits() {
    if (at_ < list_.size() && list_[at_] == '[') fail("a bracket inside a bracket");
    const size_t end = std::min(list_.find_first_not_of("0123456789", at_), list_.size());
    if (end == at_) fail("a number is missing");
    if (end - at_ > kMaxDigits) fail("a number has more than 9 digits");
    const std::string_view digits = list_.substr(at_, end - at_);
    at_ = end;
    return digits;
  }

  void add_names(const std::vector<NamePiece>& pieces, size_t from, const std::string& before) {
    if (names_.size() >= limit_) return;
    if (from == pieces.size()) {
      names_.push_back(before);
      return;
    }
    const NamePiece& piece = pieces[from];
    if (piece.ranges.empty()) return add_names(pieces, from + 1, before + piece.text);
    for (const NumberRange& range : piece.ranges) {
      for (int64_t i = range.first; i <= range.last && names_.size() < limit_; ++i) {
        const std::string digits = std::to_string(i);
        const size_t zeros = range.width > digits.size() ? range.width - digits.size() : 0;
        std::string longer = before;
        longer.append(zeros, '0').append(digits);
        add_names(pieces, from + 1, longer);
      }
    }
  }

  const std::string_view list_;
  const std::string variable_;
  const size_t limit_;
  size_t at_ = 0;
  std::vector<std::string> names_;
};

}  // namespace

std::vector<std::string> expand_node_list(std::string_view list, const std::string& variable,
                                          size_t limit) {
  return NodeListReader(list, variable, limit).read();
}

}  // namespace pushpull
