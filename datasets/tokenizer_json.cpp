#include "datasets/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "common/base/error.h"
#include "common/base/parse_json.h"
#include "common/base/text.h"
#include "common/io/file.h"
#include "datasets/byte_bpe.h"
#include "datasets/tokenizer.h"
#include "datasets/utf8.h"

namespace pushpull {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;

// Reads the parts of one file and refuses what this program does not do.
class TokenizerParser {
 public:
  TokenizerParser(const Json& root, const std::string& name) : root_(root), name_(name) {}

  TokenizerFile parse() {
    if (!root_.is_object()) refuse("expected an object, got " + shown(root_));
    const Json& model = part(root_, "model");
    if (!model.is_object()) refuse("model: expected an object, got " + shown(model));
    demand(model, "model", "type", {"BPE", nullptr});
    demand(model, "model", "dropout", {nullptr, 0.0});
    demand(model, "model", "continuing_subword_prefix", {nullptr, ""});
    demand(model, "model", "end_of_word_suffix", {nullptr, ""});
    demand(model, "model", "byte_fallback", {nullptr, false});
    demand(model, "model", "ignore_merges", {nullptr, false});
    demand(root_, "", "normalizer", {nullptr});
    read_words(part(root_, "pre_tokenizer"));
    read_vocabulary(part(model, "vocab"));
    read_added(part(root_, "added_tokens"));
    read_merges(part(model, "merges"));
    return std::move(file_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::kData, "[data] " + name_ + ": " + why +
                                      "; take the tokenizer.json of a model like GPT-2, or train "
                                      "one here without tokenizer-file");
  }

  static std::string shown(const Json& value) {
    if (value.is_null()) return "nothing";
    return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 60);
  }

  static const Json& part(const Json& object, const char* key) {
    static const Json none;
    const auto found = object.find(key);
    return found == object.end() ? none : *found;
  }

  // Refuses a value other than these. The first one is the value of an absent key too if it is null.
  void demand(const Json& object, const std::string& where, const char* key,
              const std::vector<Json>& allowed) const {
    const Json& value = part(object, key);
    if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
    refuse((where.empty() ? "" : where + ".") + key + ": expected " + shown(allowed.front()) +
           ", got " + shown(value));
  }

  void read_words(const Json& words) {
    if (words.is_null()) return;
    if (!words.is_object()) refuse("pre_tokenizer: expected an object, got " + shown(words));
    demand(words, "pre_tokenizer", "type", {"ByteLevel"});
    demand(words, "pre_tokenizer", "use_regex", {true, nullptr});
    demand(words, "pre_tokenizer", "add_prefix_space", {false, true});
    file_.byte_level = true;
    file_.add_prefix_space = part(words, "add_prefix_space") == true;
  }

  int32_t id_of(const Json& id, const std::string& where) const {
    if (!id.is_number_integer() || id < 0 || id >= kMaxVocabulary) {
      refuse(where + ": expected an id from 0 to " + std::to_string(kMaxVocabulary - 1) + ", got " +
             shown(id));
    }
    return id.get<int32_t>();
  }

  void put(int32_t id, const std::string& token, const std::string& where) {
    if (token.empty()) refuse(where + ": expected a token, got an empty string");
    if (static_cast<size_t>(id) >= file_.tokens.size()) {
      file_.tokens.resize(static_cast<size_t>(id) + 1);
    }
    std::string& there = file_.tokens[static_cast<size_t>(id)];
    if (!there.empty() && there != token) {
      refuse(where + ": expected one token for id " + std::to_string(id) + ", got \"" +
             printable(there) + "\" and \"" + printable(token) + "\"");
    }
    there = token;
    known_.insert(token);
  }

  void read_vocabulary(const Json& vocabulary) {
    if (!vocabulary.is_object() || vocabulary.empty()) {
      refuse("model.vocab: expected an object of tokens and ids, got " + shown(vocabulary));
    }
    for (const auto& [token, id] : vocabulary.items()) {
      const std::string where = "model.vocab \"" + printable(token) + "\"";
      put(id_of(id, where), token, where);
      if (file_.byte_level) continue;
      if (first_code_point(token).bytes != token.size()) {
        refuse(where + ": expected one character, since pre_tokenizer is not ByteLevel");
      }
    }
  }

  void read_added(const Json& added) {
    if (added.is_null()) return;
    if (!added.is_array()) refuse("added_tokens: expected a list, got " + shown(added));
    for (size_t i = 0; i < added.size(); ++i) {
      const std::string where = "added_tokens " + std::to_string(i);
      const Json& one = added[i];
      if (!one.is_object() || !part(one, "content").is_string()) {
        refuse(where + ": expected an object with content, got " + shown(one));
      }
      for (const char* key : {"single_word", "lstrip", "rstrip"}) {
        demand(one, where, key, {false, nullptr});
      }
      if (!file_.byte_level) refuse(where + ": expected none in a vocabulary of characters");
      const int32_t id = id_of(part(one, "id"), where);
      const auto content = part(one, "content").get<std::string>();
      put(id, content, where);
      file_.added[id] = content;
    }
  }

  void read_merges(const Json& merges) {
    if (!merges.is_array()) refuse("model.merges: expected a list, got " + shown(merges));
    if (!file_.byte_level && !merges.empty()) {
      refuse("model.merges: expected none, since pre_tokenizer is not ByteLevel, got " +
             std::to_string(merges.size()));
    }
    for (size_t i = 0; i < merges.size(); ++i) {
      const std::string where = "model.merges " + std::to_string(i);
      file_.merges.push_back(pair_of(merges[i], where));
      const auto& [left, right] = file_.merges.back();
      for (const std::string& token : {left, right, left + right}) {
        if (!known_.contains(token)) {
          refuse(where + ": expected tokens of model.vocab, got \"" + printable(token) + "\"");
        }
      }
    }
  }

  // Reads "a b", or ["a", "b"] as newer files have it.
  std::pair<std::string, std::string> pair_of(const Json& merge, const std::string& where) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    }
    if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      const size_t blank = text.find(' ');
      if (blank != std::string::npos && text.find(' ', blank + 1) == std::string::npos) {
        return {text.substr(0, blank), text.substr(blank + 1)};
      }
    }
    refuse(where + ": expected two tokens, got " + shown(merge));
  }

  const Json& root_;
  const std::string& name_;
  TokenizerFile file_;
  std::set<std::string> known_;
};

}  // namespace

TokenizerFile parse_tokenizer_file(const std::string& json, const std::string& name) {
  const auto root = parse_json<Json>(json);
  if (root.is_discarded()) {
    throw Error(ErrorCode::kData, "[data] " + name + ": expected JSON, at most " +
                                      std::to_string(kMaxJsonDepth) +
                                      " levels deep; copy it again");
  }
  return TokenizerParser(root, name).parse();
}

std::string to_text(const TokenizerFile& file) {
  using Out = nlohmann::ordered_json;
  Out added = Out::array();
  for (const auto& [id, content] : file.added) {
    added.push_back({{"id", id},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  Out vocabulary = Out::object();
  for (size_t id = 0; id < file.tokens.size(); ++id) {
    // Appended without a search for the key, which would take the square of their number.
    if (!file.tokens[id].empty()) {
      vocabulary.get_ref<Out::object_t&>().emplace_back(file.tokens[id], id);
    }
  }
  Out merges = Out::array();
  for (const auto& [left, right] : file.merges) merges.push_back(left + " " + right);
  const Out byte_level = {{"type", "ByteLevel"},
                          {"add_prefix_space", file.add_prefix_space},
                          {"trim_offsets", true},
                          {"use_regex", true}};
  const Out out = {{"version", "1.0"},
                   {"truncation", nullptr},
                   {"padding", nullptr},
                   {"added_tokens", added},
                   {"normalizer", nullptr},
                   {"pre_tokenizer", file.byte_level ? byte_level : Out(nullptr)},
                   {"post_processor", nullptr},
                   {"decoder", file.byte_level ? byte_level : Out{{"type", "Fuse"}}},
                   {"model",
                    {{"type", "BPE"},
                     {"dropout", nullptr},
                     {"unk_token", nullptr},
                     {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr},
                     {"fuse_unk", false},
                     {"byte_fallback", false},
                     {"ignore_merges", false},
                     {"vocab", vocabulary},
                     {"merges", merges}}}};
  return out.dump(-1, ' ', false, Out::error_handler_t::replace) + "\n";
}

std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& json, const std::string& name) {
  TokenizerFile file = parse_tokenizer_file(json, name);
  if (file.byte_level) return std::make_unique<ByteBpe>(std::move(file));
  std::vector<uint32_t> characters;
  for (const std::string& token : file.tokens) {
    if (token.empty()) {
      throw Error(ErrorCode::kData, "[data] " + name + ": model.vocab: expected a character for " +
                                        "each id, got none for id " +
                                        std::to_string(characters.size()) +
                                        "; number them from 0 without gaps");
    }
    characters.push_back(first_code_point(token).value);
  }
  return std::make_unique<CharTokenizer>(std::move(characters));
}

std::unique_ptr<Tokenizer> read_tokenizer(const std::string& path) {
  return tokenizer_from_json(read_text_file(path, kMaxFileBytes), path);
}

}  // namespace pushpull
