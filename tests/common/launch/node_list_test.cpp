// Tests Slurm's node lists: by hand, against a generator that knows the names, and with random text.
#include "common/launch/node_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kAll = 100'000;

std::vector<std::string> expand(const std::string& list, size_t limit = kAll) {
  return expand_node_list(list, "SLURM_STEP_NODELIST", limit);
}

std::string refusal_of(const std::string& list) {
  return thrown(ErrorCode::kUsage, [&] { expand(list); });
}

TEST(NodeList, ExpandsRangesWithTheirZeros) {
  EXPECT_THAT(expand("gpu[003-005,7]"), ElementsAre("gpu003", "gpu004", "gpu005", "gpu7"));
  EXPECT_THAT(expand("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(expand("n[08-10]"), ElementsAre("n08", "n09", "n10"));
  EXPECT_THAT(expand("n[98-101]"), ElementsAre("n98", "n99", "n100", "n101"));
}

TEST(NodeList, ExpandsNamesWithoutBrackets) {
  EXPECT_THAT(expand("login"), ElementsAre("login"));
  EXPECT_THAT(expand("a,b-2.site,c"), ElementsAre("a", "b-2.site", "c"));
}

TEST(NodeList, TheLastOfSeveralBracketsRunsFastest) {
  EXPECT_THAT(expand("r[1-2]n[1-2]-ib,x"),
              ElementsAre("r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib", "x"));
}

TEST(NodeList, StopsAtTheLimitButChecksTheRest) {
  EXPECT_THAT(expand("n[0-999999999],m[0-999999999]", 2), ElementsAre("n0", "n1"));
  EXPECT_THROW(expand("n[0-999999999],m[", 2), Error);
}

TEST(NodeList, RefusesWhatSlurmDoesNotWriteAndNamesThePlace) {
  EXPECT_THAT(refusal_of("n[0-[1-2]]"),
              AllOf(HasSubstr("SLURM_STEP_NODELIST=n[0-[1-2]]"),
                    HasSubstr("a bracket inside a bracket at character 5")));
  EXPECT_THAT(refusal_of("n[[1-2]]"), HasSubstr("a bracket inside a bracket"));
  EXPECT_THAT(refusal_of("n[1[2]]"), HasSubstr("a bracket inside a bracket"));
  EXPECT_THAT(refusal_of("n[1-2"), HasSubstr("']' or ',' is missing"));
  EXPECT_THAT(refusal_of("n1]"), HasSubstr("a bracket closes that is not open"));
  EXPECT_THAT(refusal_of("n[5-3]"), HasSubstr("a range runs backwards"));
  EXPECT_THAT(refusal_of("n[1-2x]"), HasSubstr("']' or ',' is missing"));
  EXPECT_THAT(refusal_of("n[]"), HasSubstr("a number is missing"));
  EXPECT_THAT(refusal_of("n[1-]"), HasSubstr("a number is missing"));
  EXPECT_THAT(refusal_of("n[1,]"), HasSubstr("a number is missing"));
  EXPECT_THAT(refusal_of("n[0000000001]"), HasSubstr("more than 9 digits"));
  for (const char* list : {"", ",", "a,", ",a", "a,,b"}) {
    EXPECT_THAT(refusal_of(list), HasSubstr("the name of a node is missing")) << list;
  }
  EXPECT_THAT(refusal_of("a b"), HasSubstr("no spaces"));
}

// Writes random lists together with the names that they stand for.
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  int64_t number(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }

  // Returns the list; adds its names to `names`.
  std::string list(std::vector<std::string>& names) {
    std::string text;
    for (int64_t i = number(1, 4); i > 0; --i) {
      std::vector<std::string> of_name = {""};
      for (int64_t j = number(1, 3); j > 0; --j) {
        append_text(text, of_name);
        if (number(0, 2) > 0) append_bracket(text, of_name);
      }
      names.insert(names.end(), of_name.begin(), of_name.end());
      if (i > 1) text += ',';
    }
    return text;
  }

 private:
  void append_text(std::string& text, std::vector<std::string>& names) {
    static const std::vector<std::string> kTexts = {"n", "gpu-", "rack.", "a0x"};
    const std::string& piece = kTexts[static_cast<size_t>(number(0, 3))];
    text += piece;
    for (std::string& name : names) name += piece;
  }

  void append_bracket(std::string& text, std::vector<std::string>& names) {
    std::vector<std::string> numbers;
    text += '[';
    for (int64_t i = number(1, 3); i > 0; --i) {
      const int64_t first = number(0, 120);
      const int64_t last = first + (number(0, 1) == 0 ? 0 : number(0, 5));
      const int64_t width = number(0, 1) == 0 ? 1 : number(1, 5);
      for (int64_t n = first; n <= last; ++n) numbers.push_back(padded(n, width));
      text += padded(first, width);
      if (last > first) text += '-' + padded(last, width);
      if (i > 1) text += ',';
    }
    text += ']';
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& digits : numbers) longer.push_back(name + digits);
    }
    names = longer;
  }

  static std::string padded(int64_t number, int64_t width) {
    std::string digits = std::to_string(number);
    while (static_cast<int64_t>(digits.size()) < width) digits.insert(digits.begin(), '0');
    return digits;
  }

  std::mt19937_64 random_;
};

TEST(NodeList, ExpandsGeneratedListsToTheirNames) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::vector<std::string> names;
    const std::string list = Generator(seed).list(names);
    ASSERT_EQ(expand(list), names) << "seed " << seed << ": " << list;
    ASSERT_THAT(expand(list, 1), ElementsAre(names.front())) << "seed " << seed << ": " << list;
  }
}

TEST(NodeList, AnyTextIsExpandedOrRefused) {
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    Generator random(seed);
    std::string text;
    for (int64_t i = random.number(0, 16); i > 0; --i) {
      text += "n01[]],-9\x01\xff "[random.number(0, 11)];
    }
    try {
      for (const std::string& name : expand(text, 50)) ASSERT_NE(name, "") << "seed " << seed;
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ErrorCode::kUsage) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace pushpull
