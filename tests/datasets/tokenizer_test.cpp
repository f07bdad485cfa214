#include "datasets/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "datasets/byte_bpe.h"
#include "datasets/tokenizer_json.h"
#include "datasets/utf8.h"
#include "tests/datasets/small_tokenizer.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t bytes = first_word_bytes(text);
    words.emplace_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return words;
}

TEST(Utf8, ReadsWhatItWrites) {
  for (const uint32_t code : {0U, 0x7fU, 0x80U, 0x7ffU, 0x800U, 0xffffU, 0x10000U, 0x10ffffU}) {
    std::string text;
    append_utf8(text, code);
    EXPECT_EQ(first_code_point(text).value, code);
    EXPECT_EQ(first_code_point(text).bytes, text.size());
    EXPECT_EQ(find_invalid_utf8(text.substr(0, text.size() - 1)),
              text.size() == 1 ? std::nullopt : std::optional<size_t>(0));
  }
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8("caf\xc3\xa9"), std::nullopt);
  for (const char* bad : {"\x80", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                          "\xc3", "\xc3(", "\xff"}) {
    EXPECT_EQ(find_invalid_utf8("\xc3\xa9" + std::string(bad)), 2U) << bad;
  }
}

TEST(UnicodeClass, FollowsTheGeneralCategory) {
  for (const uint32_t code : {0x41U, 0x7aU, 0xe9U, 0x6f22U, 0x627U, 0x1d49cU, 0x2b0U}) {
    EXPECT_EQ(class_of(code), CharacterClass::kLetter) << code;
  }
  for (const uint32_t code : {0x30U, 0xb2U, 0xbdU, 0x663U, 0x2167U}) {
    EXPECT_EQ(class_of(code), CharacterClass::kNumber) << code;
  }
  for (const uint32_t code : {0x9U, 0x20U, 0x85U, 0xa0U, 0x2003U, 0x3000U}) {
    EXPECT_EQ(class_of(code), CharacterClass::kSpace) << code;
  }
  for (const uint32_t code : {0x0U, 0x1cU, 0x5fU, 0x301U, 0x200bU, 0x1f389U, 0x10ffffU}) {
    EXPECT_EQ(class_of(code), CharacterClass::kOther) << code;
  }
}

TEST(Words, AreCutAsGpt2CutsThem) {
  EXPECT_THAT(words_of("don't we'll 'tis"), ElementsAre("don", "'t", " we", "'ll", " '", "tis"));
  EXPECT_THAT(words_of("It cost $12.50!!"),
              ElementsAre("It", " cost", " $", "12", ".", "50", "!!"));
  EXPECT_THAT(words_of("a  b   c \n\n d\n"),
              ElementsAre("a", " ", " b", "  ", " c", " \n\n", " d", "\n"));
  EXPECT_THAT(words_of("x\t\ty"), ElementsAre("x", "\t", "\t", "y"));
  EXPECT_THAT(words_of("\xc3\xa9t\xc3\xa9 \xc2\xb2"),
              ElementsAre("\xc3\xa9t\xc3\xa9", " \xc2\xb2"));
}

TEST(ByteAlphabet, HasACharacterForEachByteInGpt2sOrder) {
  std::string all;
  for (const uint8_t byte : bytes_in_order()) all += static_cast<char>(byte);
  EXPECT_EQ(from_alphabet(to_alphabet(all)), all);
  EXPECT_EQ(all.substr(0, 3), "!\"#");
  EXPECT_EQ(static_cast<uint8_t>(all[188]), 0);
  EXPECT_EQ(static_cast<uint8_t>(all[255]), 0xad);
  EXPECT_EQ(to_alphabet(" \n"), "\xc4\xa0\xc4\x8a");
  EXPECT_EQ(from_alphabet(" "), std::nullopt);
}

TEST(CharTokenizer, NumbersTheCharactersInOrder) {
  const auto tokenizer = CharTokenizer::of("hello \xc3\xa9!");
  EXPECT_EQ(tokenizer->size(), 7);
  EXPECT_THAT(tokenizer->encode(" !eh\xc3\xa9", "text"), ElementsAre(0, 1, 2, 3, 6));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{3, 6, 99, -1, 1}), "h\xc3\xa9!");
}

TEST(CharTokenizer, NamesACharacterThatItDoesNotKnow) {
  const auto tokenizer = CharTokenizer::of("abc");
  EXPECT_THAT([&] { tokenizer->encode("ab\xc3\xa9", "--prompt"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("--prompt: byte 2"), HasSubstr("U+00E9"))));
  EXPECT_THAT(
      [&] { tokenizer->encode("a\xff", "--prompt"); },
      ThrowsMessage<Error>(AllOf(HasSubstr("byte 1"), HasSubstr("UTF-8"), HasSubstr("\\xff"))));
}

TEST(CharTokenizer, IsReadBackFromItsFile) {
  const auto tokenizer = CharTokenizer::of(std::string("\0 \n\"\\\xc3\xa9\xf0\x9f\x8e\x89", 12));
  const auto again = tokenizer_from_json(tokenizer->to_json(), "copy");
  EXPECT_EQ(again->kind(), "char");
  EXPECT_EQ(again->to_json(), tokenizer->to_json());
  EXPECT_EQ(again->size(), tokenizer->size());
}

// The ids are those of Hugging Face's tokenizers 0.23 with the same file.
TEST(ByteBpe, GivesTheIdsOfHuggingFace) {
  const auto tokenizer = tokenizer_from_json(kSmallTokenizer, "small");
  EXPECT_EQ(tokenizer->size(), 34);
  const auto ids = [&](const char* text) { return tokenizer->encode(text, "text"); };
  EXPECT_THAT(ids("the cat's at the cathode"),
              ElementsAre(23, 27, 28, 18, 25, 24, 18, 3, 2, 22, 10, 4, 5));
  EXPECT_THAT(ids("the  cat   sat\n\nthen "),
              ElementsAre(23, 18, 27, 30, 18, 12, 25, 19, 19, 23, 9, 18));
  EXPECT_THAT(ids("don't!' 's"), ElementsAre(4, 10, 9, 1, 13, 0, 1, 18, 1, 12));
  EXPECT_THAT(ids("1212 12the"), ElementsAre(29, 29, 18, 29, 23));
  EXPECT_THAT(ids("the cat<|endoftext|>the cat"), ElementsAre(23, 27, 33, 23, 27));
  EXPECT_THAT(ids("eee the eeee"), ElementsAre(32, 5, 24, 18, 32, 32));
  EXPECT_THAT(ids("\xc3\xa9!"), ElementsAre(31, 0));
  EXPECT_THAT(ids(""), ElementsAre());
}

TEST(ByteBpe, DecodesToTheSameText) {
  const auto tokenizer = tokenizer_from_json(kSmallTokenizer, "small");
  const std::string text = "the  cat's\n12 \xc3\xa9<|endoftext|>!";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, "text")), text);
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{20}), "\xc3") << "a part of a character";
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{-1, 34, 0}), "!");
}

TEST(ByteBpe, NamesAByteWithoutAToken) {
  const auto tokenizer = tokenizer_from_json(kSmallTokenizer, "small");
  EXPECT_THAT([&] { tokenizer->encode("the cat<|endoftext|>s cafe", "story.txt"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("story.txt: byte 24"), HasSubstr("U+0066 f"))));
  EXPECT_THAT([&] { tokenizer->encode("the \xc3", "story.txt"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("byte 4"), HasSubstr("UTF-8"))));
}

TEST(ByteBpe, BeginsEachPieceWithABlankIfTheFileSaysSo) {
  std::string json = kSmallTokenizer;
  const std::string key = "\"add_prefix_space\": false";
  json.replace(json.find(key), key.size(), "\"add_prefix_space\": true");
  const auto tokenizer = tokenizer_from_json(json, "small");
  EXPECT_THAT(tokenizer->encode("the<|endoftext|>cat at", "text"), ElementsAre(24, 33, 27, 18, 25));
  EXPECT_THAT([&] { tokenizer->encode("the<|endoftext|>f", "text"); },
              ThrowsMessage<Error>(HasSubstr("byte 16")));
}

TEST(ByteBpe, IsReadBackFromItsFile) {
  const auto tokenizer = tokenizer_from_json(kSmallTokenizer, "small");
  const auto again = tokenizer_from_json(tokenizer->to_json(), "copy");
  EXPECT_EQ(again->kind(), "bpe");
  EXPECT_EQ(again->to_json(), tokenizer->to_json());
  EXPECT_EQ(again->encode("the cat<|endoftext|>", "text"),
            tokenizer->encode("the cat<|endoftext|>", "text"));
}

TEST(ByteBpe, EncodesALongWordInLittleTime) {
  // A scan for each merge would take the square of its length.
  TokenizerFile file = train_byte_bpe("aaaa aaaa", 300);
  const ByteBpe tokenizer(file);
  const std::string word(200'000, 'a');
  const std::vector<int32_t> ids = tokenizer.encode(word, "text");
  EXPECT_EQ(ids.size(), word.size() / 4);
  EXPECT_EQ(tokenizer.decode(ids), word);
}

TEST(BpeTraining, MergesTheMostFrequentPairFirst) {
  // Pairs by count: "lo" and "ow" 7, "we" 5, "er" 3; "l" has the smaller id.
  const TokenizerFile file = train_byte_bpe("low low lower lower lower slow mow", 260);
  using Pair = std::pair<std::string, std::string>;
  ASSERT_EQ(file.tokens.size(), 260U);
  ASSERT_EQ(file.merges.size(), 4U);
  EXPECT_EQ(file.merges[0], Pair("o", "w"));
  EXPECT_EQ(file.merges[1], Pair("l", "ow"));
  EXPECT_EQ(file.tokens[257], "low");
}

TEST(BpeTraining, EndsWhenNoPairOccursTwice) {
  const TokenizerFile file = train_byte_bpe("abab", 1000);
  EXPECT_EQ(file.tokens.size(), 257U) << "abab occurs once";
  EXPECT_EQ(train_byte_bpe("abc", 1000).tokens.size(), 256U);
  EXPECT_EQ(train_byte_bpe("", 1000).tokens.size(), 256U);
}

TEST(BpeTraining, TheSameTextGivesTheSameFile) {
  const std::string text = "the cat sat on the mat, the cat's mat; \xc3\xa9t\xc3\xa9 12 12 12";
  const TokenizerFile file = train_byte_bpe(text, 280);
  EXPECT_EQ(to_text(train_byte_bpe(text, 280)), to_text(file));
  const auto tokenizer = tokenizer_from_json(to_text(file), "trained");
  EXPECT_EQ(tokenizer->size(), std::ssize(file.tokens));
  const std::vector<int32_t> ids = tokenizer->encode(text, "text");
  EXPECT_LT(ids.size(), text.size());
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("\xf0\x9f\x8e\x89 new", "text")),
            "\xf0\x9f\x8e\x89 new")
      << "each byte has a token";
}

}  // namespace
}  // namespace pushpull
