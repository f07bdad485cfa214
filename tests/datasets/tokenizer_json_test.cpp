// Damaged tokenizer.json files: each is read or refused in one line.
#include "datasets/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "common/base/error.h"
#include "tests/datasets/allocations.h"
#include "tests/datasets/idx_writer.h"
#include "tests/datasets/small_tokenizer.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Returns the small file with one part replaced.
std::string with(const std::string& part, const std::string& other) {
  std::string json = kSmallTokenizer;
  const size_t at = json.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return json.replace(at, part.size(), other);
}

std::string refusal_of(const std::string& json) {
  try {
    tokenizer_from_json(json, "x/tokenizer.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kData);
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos);
    EXPECT_THAT(text, testing::StartsWith("[data] x/tokenizer.json: "));
    return text;
  }
  return "read";
}

TEST(TokenizerJson, RefusesWhatIsNoJson) {
  EXPECT_THAT(refusal_of(""), HasSubstr("expected JSON"));
  EXPECT_THAT(refusal_of("{\"model\": \n"), HasSubstr("expected JSON"));
  EXPECT_THAT(refusal_of("[1]"), HasSubstr("expected an object, got [1]"));
  EXPECT_THAT(refusal_of("{}"), HasSubstr("model: expected an object, got nothing"));
  EXPECT_THAT(refusal_of("{\"model\": {\"vocab\": {\"\xff\": 1}}}"), HasSubstr("expected JSON"));
  EXPECT_THAT(refusal_of(std::string(100'000, '[')), HasSubstr("expected JSON"));
}

TEST(TokenizerJson, NamesAPartThatIsMissing) {
  EXPECT_THAT(refusal_of(with("\"vocab\"", "\"words\"")), HasSubstr("model.vocab: expected"));
  EXPECT_THAT(refusal_of(with("\"merges\"", "\"pairs\"")),
              HasSubstr("model.merges: expected a list, got nothing"));
  EXPECT_THAT(refusal_of(with("\"pre_tokenizer\"", "\"words\"")),
              AllOf(HasSubstr("expected one character"), HasSubstr("ByteLevel")));
}

TEST(TokenizerJson, RefusesOtherKindsOfTokenizers) {
  EXPECT_THAT(refusal_of(with("\"type\": \"BPE\"", "\"type\": \"WordPiece\"")),
              HasSubstr("model.type: expected \"BPE\", got \"WordPiece\""));
  EXPECT_THAT(refusal_of(with("\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}")),
              HasSubstr("normalizer: expected nothing"));
  EXPECT_THAT(refusal_of(with("\"type\": \"ByteLevel\"", "\"type\": \"Metaspace\"")),
              HasSubstr("pre_tokenizer.type: expected \"ByteLevel\", got \"Metaspace\""));
  EXPECT_THAT(refusal_of(with("\"dropout\": null", "\"dropout\": 0.1")),
              HasSubstr("model.dropout"));
  EXPECT_THAT(refusal_of(with("\"lstrip\": false", "\"lstrip\": true")),
              HasSubstr("added_tokens 0.lstrip: expected false, got true"));
}

TEST(TokenizerJson, NamesABadEntry) {
  EXPECT_THAT(refusal_of(with("\"th e\"", "\"th x\"")),
              HasSubstr("model.merges 1: expected tokens of model.vocab, got \"x\""));
  EXPECT_THAT(refusal_of(with("\"th e\"", "\"h e\"")), HasSubstr("got \"he\""));
  EXPECT_THAT(refusal_of(with("\"th e\"", "\"the\"")), HasSubstr("expected two tokens"));
  EXPECT_THAT(refusal_of(with("\"th e\"", "[\"th\"]")), HasSubstr("expected two tokens"));
  EXPECT_THAT(refusal_of(with("\"th e\"", "\"th  e\"")), HasSubstr("expected two tokens"));
  EXPECT_THAT(refusal_of(with("\"ee\": 32", "\"ee\": -1")),
              AllOf(HasSubstr("model.vocab \"ee\""), HasSubstr("got -1")));
  EXPECT_THAT(refusal_of(with("\"ee\": 32", "\"ee\": 1000000")), HasSubstr("999999"));
  EXPECT_THAT(refusal_of(with("\"ee\": 32", "\"ee\": 2.5")), HasSubstr("2.5"));
  EXPECT_THAT(refusal_of(with("\"ee\": 32", "\"ee\": 31")), HasSubstr("one token for id 31"));
  EXPECT_THAT(refusal_of(with("\"id\": 33", "\"id\": 32")), HasSubstr("one token for id 32"));
  EXPECT_THAT(refusal_of(with("\"content\": \"<|endoftext|>\"", "\"content\": \"\"")),
              HasSubstr("empty string"));
}

TEST(TokenizerJson, ReadsMergesAsPairsToo) {
  const auto tokenizer = tokenizer_from_json(with("\"th e\"", "[\"th\", \"e\"]"), "pairs");
  EXPECT_EQ(tokenizer->to_json(), tokenizer_from_json(kSmallTokenizer, "small")->to_json());
}

TEST(TokenizerJson, RefusesAVocabularyOfCharactersWithGapsOrMerges) {
  const auto chars = [](const std::string& vocab, const std::string& merges) {
    return refusal_of(R"({"model": {"vocab": )" + vocab + R"(, "merges": )" + merges + "}}");
  };
  EXPECT_EQ(chars(R"({"a": 0, "b": 1})", "[]"), "read");
  EXPECT_THAT(chars(R"({"a": 0, "b": 2})", "[]"), HasSubstr("none for id 1"));
  EXPECT_THAT(chars(R"({"a": 0, "bc": 1})", "[]"), HasSubstr("expected one character"));
  EXPECT_THAT(chars(R"({"": 0})", "[]"), HasSubstr("empty string"));
  EXPECT_THAT(chars(R"({"a": 0})", R"(["a a"])"), HasSubstr("model.merges: expected none"));
  EXPECT_THAT(chars("{}", "[]"), HasSubstr("model.vocab"));
}

TEST(TokenizerJson, NamesAFileThatIsNotThere) {
  const TestFolder folder;
  EXPECT_THAT([&] { read_tokenizer(folder.file("none.json")); },
              testing::ThrowsMessage<Error>(HasSubstr("none.json")));
}

// Edits bytes, and cuts and repeats parts between commas.
class JsonMutator {
 public:
  std::string mutate(std::string json) {
    for (uint64_t n = 1 + below(3); n > 0; --n) mutate_once(json);
    return json;
  }

 private:
  uint64_t below(uint64_t n) { return random_() % n; }

  void mutate_once(std::string& json) {
    static constexpr std::string_view kBytes = "\"{}[]:,0123456789-. nulltrue\xc4\xa0";
    if (json.empty()) return;
    const size_t at = below(json.size());
    switch (below(5)) {
      case 0:
        json[at] = kBytes[below(kBytes.size())];
        break;
      case 1:
        json[at] = static_cast<char>(below(256));
        break;
      case 2:
        json.erase(at, 1 + below(8));
        break;
      case 3: {
        const size_t end = json.find(',', at);
        if (end != std::string::npos) json.erase(at, end - at);
        break;
      }
      default:
        json.insert(below(json.size()), json.substr(at, 1 + below(12)));
    }
  }

  std::mt19937_64 random_{7};
};

TEST(TokenizerJson, DamagedFilesAreReadOrRefused) {
  JsonMutator mutator;
  int read = 0;
  int refused = 0;
  for (int n = 0; n < 4000; ++n) {
    const std::string json = mutator.mutate(kSmallTokenizer);
    try {
      const auto tokenizer = tokenizer_from_json(json, "fuzz");
      std::vector<int32_t> ids;
      tokenizer->try_encode("the cat's 12 caf\xc3\xa9<|endoftext|>", ids);
      for (const int32_t id : ids) EXPECT_TRUE(id >= 0 && id < tokenizer->size());
      tokenizer->decode(ids);
      EXPECT_EQ(tokenizer_from_json(tokenizer->to_json(), "copy")->to_json(), tokenizer->to_json());
      ++read;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kData);
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      ++refused;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace pushpull
