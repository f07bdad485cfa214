#include "datasets/byte_bpe.h"

#include <algorithm>
#include <queue>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "datasets/utf8.h"

namespace pushpull {
namespace {

constexpr int64_t kLeastCount = 2;  // of a pair that becomes a token

using TokenPair = std::pair<int32_t, int32_t>;

struct HashOfPair {
  size_t operator()(const TokenPair& pair) const {
    return std::hash<uint64_t>{}((uint64_t{static_cast<uint32_t>(pair.first)} << 32U) |
                                 static_cast<uint32_t>(pair.second));
  }
};

// A word of the text as the tokens that it consists of so far.
struct CountedWord {
  std::vector<int32_t> tokens;
  int64_t count = 0;
};

struct PairCount {
  int64_t count = 0;
  std::vector<size_t> words;  // that contain the pair, or did
};

// The pair with the largest count is on top; of equal counts the one with the smaller ids.
struct Frequent {
  int64_t count = 0;
  TokenPair pair;

  bool operator<(const Frequent& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class BpeTrainer {
 public:
  explicit BpeTrainer(std::string_view text) {
    int32_t id = 0;
    std::vector<int32_t> ids(256);
    for (const uint8_t byte : bytes_in_order()) {
      ids[byte] = id++;
      file_.tokens.push_back(to_alphabet(std::string(1, static_cast<char>(byte))));
      ids_.emplace(file_.tokens.back(), ids[byte]);
    }
    file_.byte_level = true;
    count_words(text, ids);
    for (size_t w = 0; w < words_.size(); ++w) count_pairs(w);
    for (const auto& [pair, count] : pairs_) queue_.push({count.count, pair});
  }

  TokenizerFile train(int64_t vocabulary) {
    while (std::ssize(file_.tokens) < vocabulary && !queue_.empty()) {
      const Frequent best = queue_.top();
      queue_.pop();
      const int64_t count = pairs_[best.pair].count;
      if (count != best.count) {  // it has changed since it was queued
        if (count > 0) queue_.push({count, best.pair});
        continue;
      }
      if (count < kLeastCount) break;
      merge(best.pair);
    }
    return std::move(file_);
  }

 private:
  void count_words(std::string_view text, const std::vector<int32_t>& ids) {
    std::unordered_map<std::string_view, size_t> places;
    for (size_t at = 0; at < text.size();) {
      const std::string_view word = text.substr(at, first_word_bytes(text.substr(at)));
      const auto [place, fresh] = places.emplace(word, words_.size());
      if (fresh) {
        CountedWord& added = words_.emplace_back();
        for (const char byte : word) added.tokens.push_back(ids[static_cast<unsigned char>(byte)]);
      }
      ++words_[place->second].count;
      at += word.size();
    }
  }

  void count_pairs(size_t word) {
    const CountedWord& counted = words_[word];
    for (size_t i = 0; i + 1 < counted.tokens.size(); ++i) {
      add({counted.tokens[i], counted.tokens[i + 1]}, counted.count, word);
    }
  }

  void add(const TokenPair& pair, int64_t count, size_t word) {
    PairCount& found = pairs_[pair];
    found.count += count;
    if (count > 0 && (found.words.empty() || found.words.back() != word)) {
      found.words.push_back(word);
    }
  }

  // Makes the pair a token, and replaces it in all words from left to right.
  void merge(const TokenPair& pair) {
    const std::string left = file_.tokens[static_cast<size_t>(pair.first)];
    const std::string right = file_.tokens[static_cast<size_t>(pair.second)];
    // Two pairs may give the same bytes, as ab + c and a + bc: they give one token.
    const auto [place, fresh] =
        ids_.emplace(left + right, static_cast<int32_t>(file_.tokens.size()));
    const int32_t token = place->second;
    if (fresh) file_.tokens.push_back(left + right);
    file_.merges.emplace_back(left, right);
    std::vector<size_t> words = std::move(pairs_[pair].words);
    pairs_.erase(pair);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    changed_.clear();
    for (const size_t word : words) replace(pair, token, word);
    pairs_.erase(pair);
    std::sort(changed_.begin(), changed_.end());
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const TokenPair& one : changed_) {
      if (const auto found = pairs_.find(one); found != pairs_.end() && found->second.count > 0) {
        queue_.push({found->second.count, one});
      }
    }
  }

  void replace(const TokenPair& pair, int32_t token, size_t word) {
    CountedWord& counted = words_[word];
    const std::vector<int32_t> before = std::exchange(counted.tokens, {});
    for (size_t i = 0; i < before.size(); ++i) {
      const bool found =
          i + 1 < before.size() && before[i] == pair.first && before[i + 1] == pair.second;
      counted.tokens.push_back(found ? token : before[i]);
      if (found) ++i;
    }
    if (counted.tokens.size() == before.size()) return;
    for (size_t i = 0; i + 1 < before.size(); ++i) {
      add({before[i], before[i + 1]}, -counted.count, word);
    }
    for (size_t i = 0; i + 1 < counted.tokens.size(); ++i) {
      const TokenPair now{counted.tokens[i], counted.tokens[i + 1]};
      add(now, counted.count, word);
      if (now.first == token || now.second == token) changed_.push_back(now);
    }
  }

  TokenizerFile file_;
  std::unordered_map<std::string, int32_t> ids_;  // of file_.tokens
  std::vector<CountedWord> words_;
  std::unordered_map<TokenPair, PairCount, HashOfPair> pairs_;
  std::priority_queue<Frequent> queue_;
  std::vector<TokenPair> changed_;  // pairs with the newest token
};

}  // namespace

TokenizerFile train_byte_bpe(std::string_view text, int64_t vocabulary) {
  PP_ASSERT(vocabulary >= kLeastBpeVocabulary);
  return BpeTrainer(text).train(vocabulary);
}

namespace {

constexpr uint32_t kLastCharacter = 0x100 + 67;  // 68 bytes are not printable

// The character of each byte and the byte of each character; -1 where there is none.
struct Alphabet {
  std::array<uint32_t, 256> characters{};
  std::array<int, kLastCharacter + 1> bytes{};
  std::array<uint8_t, 256> order{};

  Alphabet() {
    bytes.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      characters[byte] = printable ? byte : next++;
      bytes[characters[byte]] = static_cast<int>(byte);
      order[byte] = static_cast<uint8_t>(byte);
    }
    std::sort(order.begin(), order.end(),
              [this](uint8_t a, uint8_t b) { return characters[a] < characters[b]; });
  }
};

const Alphabet& alphabet() {
  static const Alphabet made;
  return made;
}

}  // namespace

const std::array<uint8_t, 256>& bytes_in_order() { return alphabet().order; }

std::string to_alphabet(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    append_utf8(out, alphabet().characters[static_cast<unsigned char>(byte)]);
  }
  return out;
}

std::optional<std::string> from_alphabet(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const CodePoint code = first_code_point(text);
    const int byte =
        code.bytes == 0 || code.value > kLastCharacter ? -1 : alphabet().bytes[code.value];
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
    text.remove_prefix(code.bytes);
  }
  return out;
}

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
