#include "cli/run/merged_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

// Returns the output of a call, in order: "<" marks standard output, "!" standard error.
template <class Call>
std::vector<std::string> shown(const Call& call) {
  std::vector<Output> outputs;
  call(outputs);
  std::vector<std::string> texts;
  texts.reserve(outputs.size());
  for (const Output& output : outputs) {
    texts.push_back((output.to_stderr ? "!" : "<") + output.bytes);
  }
  return texts;
}

std::vector<std::string> line(MergedView& view, size_t source, const std::string& text) {
  return shown([&](auto& out) { view.line(source, std::to_string(source) + "| ", text, out); });
}

TEST(LineSplitter, JoinsPiecesAndKeepsAnUnfinishedLine) {
  LineSplitter splitter;
  EXPECT_THAT(splitter.feed("ab"), IsEmpty());
  EXPECT_THAT(splitter.feed("c\nd\n\nef"), ElementsAre("abc", "d", ""));
  EXPECT_THAT(splitter.feed("g\n"), ElementsAre("efg"));
  EXPECT_THAT(splitter.feed("tail"), IsEmpty());
  EXPECT_EQ(splitter.rest(), "tail");
  EXPECT_EQ(splitter.rest(), "");
}

TEST(LineSplitter, CutsALineThatNeverEnds) {
  LineSplitter splitter;
  size_t lines = 0;
  for (int i = 0; i < 100; ++i) {
    for (const std::string& text : splitter.feed(std::string(1000, 'x'))) {
      EXPECT_EQ(text.size(), LineSplitter::kMaxLine);
      ++lines;
    }
  }
  EXPECT_EQ(lines, 100'000 / LineSplitter::kMaxLine);
  EXPECT_EQ(splitter.rest().size(), 100'000 % LineSplitter::kMaxLine);
}

TEST(MergedView, MarksLinesAndShowsEqualLinesOfOthersOnce) {
  MergedView view;
  EXPECT_THAT(line(view, 1, "no data"), ElementsAre("!1| no data\n"));
  EXPECT_THAT(line(view, 2, "no data"), IsEmpty());
  EXPECT_THAT(line(view, 1, "no data"), ElementsAre("!1| no data\n"));
  EXPECT_THAT(line(view, 2, "other"), ElementsAre("!2| other\n"));
}

TEST(MergedView, PassesTheCoordinatorsWholeLinesUnchanged) {
  MergedView view;
  const auto progress = [&](const char* bytes) {
    return shown([&](auto& out) { view.progress(bytes, out); });
  };
  EXPECT_THAT(progress("step 1\nst"), ElementsAre("<step 1\n"));
  EXPECT_THAT(line(view, 1, "hello"), ElementsAre("!1| hello\n"));
  EXPECT_THAT(progress("ep 2\n"), ElementsAre("<step 2\n"));
  EXPECT_THAT(progress("no end"), IsEmpty());
  EXPECT_THAT(shown([&](auto& out) { view.end_progress(out); }), ElementsAre("<no end\n"));
  EXPECT_THAT(shown([&](auto& out) { view.end_progress(out); }), IsEmpty());
}

TEST(MergedView, ErasesAProgressLineBeforeAnotherLine) {
  MergedView view;
  EXPECT_THAT(shown([&](auto& out) { view.progress("\rstep 1", out); }), ElementsAre("<\rstep 1"));
  EXPECT_THAT(line(view, 1, "hello"), ElementsAre("<\r\x1b[K", "!1| hello\n"));
  EXPECT_THAT(line(view, 1, "again"), ElementsAre("!1| again\n"));
  EXPECT_THAT(shown([&](auto& out) { view.progress("\rstep 2", out); }), ElementsAre("<\rstep 2"));
  EXPECT_THAT(shown([&](auto& out) { view.end_progress(out); }), ElementsAre("<\n"));
}

TEST(MergedView, AfterAFailureShowsTheCauseFirstAndAFewOthers) {
  MergedView view;
  view.hold();
  for (size_t source = 1; source <= 6; ++source) {
    EXPECT_THAT(line(view, source, "from " + std::to_string(source)), IsEmpty());
  }
  EXPECT_THAT(shown([&](auto& out) { view.say("[run] mine", out); }), ElementsAre("![run] mine\n"));
  EXPECT_THAT(shown([&](auto& out) { view.release(5, out); }),
              ElementsAre("!5| from 5\n", "!1| from 1\n", "!2| from 2\n", "!3| from 3\n"));
  EXPECT_THAT(line(view, 5, "late"), IsEmpty());
  EXPECT_THAT(line(view, 6, "from 1"), IsEmpty()) << "the same text was shown";
  EXPECT_EQ(view.left_out(), 3) << "sources 4 and 6, and the late line";
}

TEST(MergedView, ShowsTheEndOfTheJobOnceAndTheLaunchersLastWordsNotAtAll) {
  MergedView view;
  EXPECT_THAT(line(view, 1, "worker 0: [job] stopped by SIGINT"), Not(IsEmpty()));
  EXPECT_THAT(line(view, 2, "worker 1: [job] stopped by SIGINT"), IsEmpty());
  const auto server = [&](const std::string& text) {
    return shown([&](auto& out) { view.line_of_server(text, out); });
  };
  EXPECT_THAT(server("server 0: [job] stopped by SIGINT"), IsEmpty());
  EXPECT_THAT(server("server 0: worker 1 joined"), ElementsAre("!server 0: worker 1 joined\n"));
  view.will_say("[data] no such folder");
  EXPECT_THAT(server("server 0: error: [job] lost worker 1: [data] no such folder"), IsEmpty());
  EXPECT_THAT(line(view, 2, "worker 1: error: [data] no such folder"), IsEmpty());
}

TEST(MergedView, ShowsEveryLineOfUsersProgramsUntilAFailureAndThenOfTheCause) {
  MergedView view(/*repeats=*/true);
  EXPECT_THAT(line(view, 1, "epoch 1"), ElementsAre("!1| epoch 1\n"));
  EXPECT_THAT(line(view, 2, "epoch 1"), ElementsAre("!2| epoch 1\n"));
  view.hold();
  for (const size_t source : {1, 2, 3}) line(view, source, "Traceback");
  EXPECT_THAT(shown([&](auto& out) { view.release(2, out); }), ElementsAre("!2| Traceback\n"))
      << "those of the others are repeats";
  for (int i = 0; i < 9; ++i) EXPECT_THAT(line(view, 2, "RuntimeError"), Not(IsEmpty()));
  EXPECT_THAT(line(view, 1, "RuntimeError"), IsEmpty());
}

}  // namespace
}  // namespace pushpull
