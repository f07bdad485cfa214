// The words that shells complete, against the job's own parser. tests/e2e/manual_test.py runs the
// scripts in real shells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/error.h"
#include "common/job/job.h"
#include "common/job/program_help.h"
#include "common/job/strategy.h"

namespace pushpull::completion_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> words_of_key(const std::string& key) {
  const auto found = std::ranges::find(job_keys(), key, &KeyHelp::key);
  EXPECT_NE(found, job_keys().end());
  return value_words(*found);
}

TEST(Completion, TheJobTakesEveryWordThatIsCompleted) {
  int keys_with_words = 0;
  for (const KeyHelp& key : job_keys()) {
    const std::vector<std::string> words = value_words(key);
    keys_with_words += words.empty() ? 0 : 1;
    for (const std::string& word : words) {
      const std::string text = word.ends_with(':') ? word + "1" : word;
      // a word that is no value of the key is refused as "must be"; others may need further keys
      try {
        parse_job("", {{key.key, text}});
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("must be"))) << key.key << " = " << text;
      }
    }
  }
  EXPECT_GE(keys_with_words, 20);
}

TEST(Completion, KnowsModelsDatasetsStrategiesAndOptimizers) {
  EXPECT_THAT(words_of_key("model"),
              ElementsAre("mlp", "convnet", "gpt", "bert", "resnet18", "resnet50", "external"));
  EXPECT_THAT(words_of_key("dataset"),
              ElementsAre("dummy", "dummy-qa", "digits", "idx", "cifar10", "folder", "qa", "text"));
  EXPECT_THAT(words_of_key("strategy"),
              ElementsAre("sync", "async", "buffered:", "ssp:", "backup:", "local:",
                          "allreduce:tree", "allreduce:ring", "allreduce:gloo"));
  EXPECT_THAT(words_of_key("optimizer"), ElementsAre("sgd", "momentum", "nesterov", "adam", "adamw",
                                                     "rmsprop", "adagrad", "lion", "lamb"));
}

TEST(Completion, QuotesTextsForEachShell) {
  const ProgramHelp help = {.name = "x-y",
                            .summary = "s",
                            .usage = {},
                            .options = {takes("a|b:", {"flag", "", "it's [of] c:d"})}};
  EXPECT_THAT(zsh_completion(help), HasSubstr("'--flag=[it'\\''s \\[of\\] c\\:d]:VALUE:(a b\\:)'"));
  EXPECT_THAT(bash_completion(help), HasSubstr("\ncomplete -F _x_y x-y\n"));
  EXPECT_THAT(bash_completion(help), HasSubstr("'--flag=a|b: --help --version'"));
}

}  // namespace
}  // namespace pushpull::completion_test
