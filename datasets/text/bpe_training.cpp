#include "datasets/text/bpe_training.h"

#include <algorithm>
#include <queue>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "datasets/text/byte_alphabet.h"
#include "datasets/text/words.h"

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

}  // namespace pushpull
