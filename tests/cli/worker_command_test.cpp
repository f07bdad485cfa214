#include "cli/run/worker_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <utility>

#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull::worker_command_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const std::function<void()>& call) {
  return thrown(ErrorCode::kUsage, [&] { call(); });
}

// Returns the words of each text as a shell splits it.
std::vector<std::vector<std::string>> words_of_shell(const std::vector<std::string>& texts) {
  const std::string script = ::testing::TempDir() + "words_of_shell." + std::to_string(getpid());
  std::ofstream file(script);
  for (const std::string& text : texts) {
    file << "set -- " << text << "\nprintf '%s,' \"$@\"; echo\n";
  }
  file.close();
  FILE* const shell = popen(("sh " + script).c_str(), "r");
  std::vector<std::vector<std::string>> all(1);
  std::string word;
  for (int c = fgetc(shell); c != EOF; c = fgetc(shell)) {
    if (c == '\n') {
      all.emplace_back();
    } else if (c == ',') {
      all.back().push_back(std::exchange(word, ""));
    } else {
      word += static_cast<char>(c);
    }
  }
  pclose(shell);
  std::filesystem::remove(script);
  all.pop_back();  // after the last line
  return all;
}

TEST(WorkerCommand, QuotesAndBackslashesAreThoseOfAShell) {
  EXPECT_THAT(split_words("python3  train.py\t--lr 0.1"),
              ElementsAre("python3", "train.py", "--lr", "0.1"));
  EXPECT_THAT(split_words(R"(a 'b  c' "d \"e\" \f" g\ h '' i'j'"k")"),
              ElementsAre("a", "b  c", "d \"e\" \\f", "g h", "", "ijk"));
  EXPECT_THAT(split_words("a\\\nb \"c\\\nd\""), ElementsAre("ab", "cd"));
}

TEST(WorkerCommand, NothingIsExpanded) {
  EXPECT_THAT(split_words("$HOME ~ *.py `x` a|b &"),
              ElementsAre("$HOME", "~", "*.py", "`x`", "a|b", "&"));
}

TEST(WorkerCommand, RandomTextsAreSplitAsAShellSplitsThem) {
  std::mt19937 random(16);
  const std::string alphabet = "ab \t'\"\\";
  std::vector<std::string> texts;
  std::vector<std::vector<std::string>> words;
  while (texts.size() < 5000) {
    std::string text = "x";
    const size_t length = random() % 12;
    while (text.size() <= length) text += alphabet[random() % alphabet.size()];
    try {
      words.push_back(split_words(text));
      texts.push_back(text);
    } catch (const Error&) {
      EXPECT_NE(text.find_first_of("'\"\\"), std::string::npos) << text;
    }
  }
  const std::vector<std::vector<std::string>> wanted = words_of_shell(texts);
  ASSERT_EQ(wanted.size(), texts.size()) << "the shell refuses a text";
  for (size_t i = 0; i < texts.size(); ++i) ASSERT_EQ(words[i], wanted[i]) << texts[i];
}

TEST(WorkerCommand, AnUnfinishedQuoteIsNamed) {
  EXPECT_THAT(refusal([] { split_words("python3 'my train.py"); }), HasSubstr("' without its end"));
  EXPECT_THAT(refusal([] { split_words("python3 \"my train.py\\\""); }),
              HasSubstr("\" without its end"));
  EXPECT_THAT(refusal([] { split_words("a\\"); }), HasSubstr("ends with a backslash"));
  EXPECT_THAT(refusal([] { split_words(" \t"); }), HasSubstr("got ''"));
}

class FindProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "find_program.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
    path_ = std::getenv("PATH");
    std::filesystem::create_directories(dir_ / "first" / "tool");  // a folder of that name
    std::filesystem::create_directories(dir_ / "second");
    make("first/plain", 0644);
    make("second/tool", 0755);
    setenv("PATH", ((dir_ / "first").string() + ":" + (dir_ / "second").string()).c_str(), 1);
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    std::filesystem::remove_all(dir_);
  }
  void make(const char* name, mode_t mode) const {
    std::ofstream(dir_ / name) << "#!/bin/sh\n";
    chmod((dir_ / name).c_str(), mode);
  }

  std::filesystem::path dir_;
  std::string path_;
};

TEST_F(FindProgram, TheFirstExecutableFileInPathIsTaken) {
  EXPECT_EQ(find_program("tool"), (dir_ / "second/tool").string());
  EXPECT_EQ(find_program((dir_ / "second/tool").string()), (dir_ / "second/tool").string());
}

TEST_F(FindProgram, AFileThatCannotBeExecutedIsNamedWithTheReason) {
  EXPECT_THAT(refusal([] { find_program("trian"); }), HasSubstr("no program 'trian' in PATH"));
  EXPECT_THAT(refusal([] { find_program("plain"); }),
              HasSubstr((dir_ / "first/plain").string() + ": it is not executable"));
  EXPECT_THAT(refusal([&] { find_program((dir_ / "none").string()); }),
              HasSubstr("none cannot be executed: No such file"));
  EXPECT_THAT(refusal([&] { find_program((dir_ / "first").string()); }),
              HasSubstr("it is a folder"));
  EXPECT_THAT(refusal([] { find_program(""); }), HasSubstr("no program '' in PATH"));
}

CommandLine line_of(std::map<std::string, std::string> local) {
  CommandLine line;
  line.local = std::move(local);
  return line;
}

TEST(WorkerCommand, TheModelAndTheFlagsMustFit) {
  Job job;
  EXPECT_TRUE(worker_command(line_of({}), job, "run").empty());
  EXPECT_THAT(refusal([&] {
                worker_command(line_of({{"worker", "sh"}}), job, "run");
              }),
              HasSubstr("[run] --worker: the job has model = mlp"));
  job.model = "external";
  EXPECT_THAT(worker_command(line_of({{"worker", "sh -c 'a b'"}}), job, "run"),
              ElementsAre("sh", "-c", "a b"));
  EXPECT_THAT(refusal([&] { worker_command(line_of({}), job, "compare"); }),
              HasSubstr("[compare] model = external: the workers are a program of your own"));
  for (const char* flag : {"device", "trace"}) {
    EXPECT_THAT(refusal([&] {
                  worker_command(line_of({{"worker", "sh"}, {flag, "cuda"}}), job, "run");
                }),
                HasSubstr(std::string("[run] --") + flag + " cuda and --worker"));
  }
}

}  // namespace
}  // namespace pushpull::worker_command_test
