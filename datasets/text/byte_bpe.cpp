#include "datasets/text/byte_bpe.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "common/base/error.h"
#include "datasets/text/byte_alphabet.h"
#include "datasets/text/utf8.h"
#include "datasets/text/words.h"

namespace pushpull {
namespace {

constexpr size_t kKnownWords = 65'536;
constexpr size_t kKnownWordBytes = 256;

uint64_t key_of(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32U) | static_cast<uint32_t>(right);
}

// A token of a word while its pairs are merged; a list in an array.
struct Symbol {
  int32_t token = 0;
  int32_t before = -1;  // position of the neighbour; -1: none
  int32_t after = -1;
  bool gone = false;  // merged into the symbol before it
};

// A pair that may be merged. The lowest rank is first, then the leftmost pair.
struct Candidate {
  int32_t rank = 0;
  int32_t at = 0;
  int32_t token = 0;

  bool operator>(const Candidate& other) const {
    return std::tie(rank, at) > std::tie(other.rank, other.at);
  }
};

}  // namespace

ByteBpe::ByteBpe(TokenizerFile file) : file_(std::move(file)) {
  PP_ASSERT(file_.byte_level);
  std::unordered_map<std::string, int32_t> ids;
  ids_of_bytes_.fill(-1);
  for (const std::string& token : file_.tokens) {
    const auto id = static_cast<int32_t>(bytes_.size());
    const bool is_added = file_.added.contains(id);
    bytes_.push_back(is_added ? token : from_alphabet(token).value_or(token));
    if (!token.empty()) ids.emplace(token, id);
    if (!is_added && bytes_.back().size() == 1 && from_alphabet(token)) {
      ids_of_bytes_[static_cast<unsigned char>(bytes_.back()[0])] = id;
    }
  }
  int32_t rank = 0;
  for (const auto& [left, right] : file_.merges) {
    merges_[key_of(ids.at(left), ids.at(right))] = {rank++, ids.at(left + right)};
  }
  for (const auto& [id, content] : file_.added) {
    added_.emplace_back(content, id);
    begins_added_[static_cast<unsigned char>(content[0])] = true;
  }
  std::stable_sort(added_.begin(), added_.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
}

const ByteBpe::Merge* ByteBpe::merge_of(int32_t left, int32_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::pair<int32_t, size_t> ByteBpe::added_at(std::string_view text) const {
  if (text.empty() || !begins_added_[static_cast<unsigned char>(text[0])]) return {-1, 0};
  for (const auto& [content, id] : added_) {
    if (text.starts_with(content)) return {id, content.size()};
  }
  return {-1, 0};
}

std::optional<size_t> ByteBpe::try_encode(std::string_view text, std::vector<int32_t>& ids) const {
  if (const std::optional<size_t> invalid = find_invalid_utf8(text)) return invalid;
  Known known;
  size_t begin = 0;  // of the piece before the next added token
  for (size_t at = 0; at <= text.size();) {
    const auto [id, bytes] = added_at(text.substr(at));
    if (id < 0 && at < text.size()) {
      ++at;
      continue;
    }
    const auto stop = encode_piece(text.substr(begin, at - begin), known, ids);
    if (stop) return begin + *stop;
    if (id < 0) break;
    ids.push_back(id);
    at += bytes;
    begin = at;
  }
  return std::nullopt;
}

std::optional<size_t> ByteBpe::encode_piece(std::string_view text, Known& known,
                                            std::vector<int32_t>& ids) const {
  std::string prefixed;
  size_t extra = 0;
  if (file_.add_prefix_space && !text.empty() && text[0] != ' ') {
    prefixed = " " + std::string(text);
    text = prefixed;
    extra = 1;
  }
  for (size_t at = 0; at < text.size();) {
    const std::string_view word = text.substr(at, first_word_bytes(text.substr(at)));
    const std::string key(word);
    if (const auto found = known.find(key); found != known.end()) {
      ids.insert(ids.end(), found->second.begin(), found->second.end());
    } else {
      const size_t before = ids.size();
      if (const auto stop = encode_word(word, ids)) return std::max(at + *stop, extra) - extra;
      if (known.size() < kKnownWords && word.size() <= kKnownWordBytes) {
        known[key].assign(ids.begin() + static_cast<int64_t>(before), ids.end());
      }
    }
    at += word.size();
  }
  return std::nullopt;
}

std::optional<size_t> ByteBpe::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  std::vector<int32_t> tokens;
  for (size_t at = 0; at < word.size(); ++at) {
    tokens.push_back(ids_of_bytes_[static_cast<unsigned char>(word[at])]);
    if (tokens.back() < 0) return at;
  }
  const std::vector<int32_t> found = merged(tokens);
  ids.insert(ids.end(), found.begin(), found.end());
  return std::nullopt;
}

std::vector<int32_t> ByteBpe::merged(const std::vector<int32_t>& tokens) const {
  const auto count = static_cast<int32_t>(tokens.size());
  std::vector<Symbol> symbols(tokens.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbols[left].after < 0) return;
    const Merge* merge = merge_of(symbols[left].token, symbols[symbols[left].after].token);
    if (merge != nullptr) queue.push({merge->rank, left, merge->token});
  };
  for (int32_t i = 0; i < count; ++i) {
    symbols[i] = {tokens[i], i - 1, i + 1 < count ? i + 1 : -1, false};
  }
  for (int32_t i = 0; i + 1 < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.at];
    if (left.gone || left.after < 0) continue;
    Symbol& right = symbols[left.after];
    const Merge* merge = merge_of(left.token, right.token);
    if (merge == nullptr || merge->token != best.token) continue;  // the pair has changed
    left.token = best.token;
    left.after = right.after;
    right.gone = true;
    if (left.after >= 0) symbols[left.after].before = best.at;
    consider(left.before);
    consider(best.at);
  }
  std::vector<int32_t> out;
  for (int32_t i = 0; i >= 0 && count > 0; i = symbols[i].after) out.push_back(symbols[i].token);
  return out;
}

std::string ByteBpe::decode(std::span<const int32_t> ids) const {
  std::string out;
  for (const int32_t id : ids) {
    if (id >= 0 && id < size()) out += bytes_[static_cast<size_t>(id)];
  }
  return out;
}

}  // namespace pushpull
