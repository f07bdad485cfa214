// JSON from outside.
#include "common/base/parse_json.h"

#include <gtest/gtest.h>

#include <string>

namespace pushpull {
namespace {

std::string nested(int depth) {
  const auto n = static_cast<size_t>(depth);
  return std::string(n, '[') + std::string(n, ']');
}

TEST(ParseJson, ReturnsTheValue) {
  EXPECT_EQ(parse_json(R"({"a": [1, "]\"[{"]})")["a"][1], "]\"[{");
  EXPECT_EQ(parse_json<nlohmann::ordered_json>(R"({"b": 1, "a": 2})").begin().key(), "b");
}

TEST(ParseJson, DiscardsWhatIsNotJsonOrDeep) {
  EXPECT_TRUE(parse_json("{").is_discarded());
  EXPECT_TRUE(parse_json("").is_discarded());
  EXPECT_FALSE(parse_json(nested(kMaxJsonDepth)).is_discarded());
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth + 1)).is_discarded());
  EXPECT_TRUE(parse_json(std::string(10'000'000, '[')).is_discarded());
  std::string deep;
  for (int i = 0; i < 1'000'000; ++i) deep += "{\"\\\"\":";
  EXPECT_TRUE(parse_json(deep).is_discarded());
  EXPECT_FALSE(parse_json("\"" + std::string(1000, '[') + "\"").is_discarded()) << "a string";
  EXPECT_FALSE(is_deep_json("\"\\")) << "ends in an escape";
}

TEST(JsonText, HoldsBytesThatAreNotUtf8AsReplacementCharacters) {
  EXPECT_EQ(json_text(nlohmann::json{{"path", "a\xff/b"}}), "{\"path\":\"a\xEF\xBF\xBD/b\"}");
  EXPECT_EQ(json_text(nlohmann::json{1}, 1), "[\n 1\n]");
}

}  // namespace
}  // namespace pushpull
