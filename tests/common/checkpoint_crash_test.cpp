// Kills a writer at random instants: afterwards the store must hold a complete checkpoint, at least
// as new as the last that was reported to be on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <thread>

#include "common/base/error.h"
#include "common/io/checkpoint.h"
#include "tests/common/scratch_folder.h"

namespace pushpull {
namespace {

constexpr int64_t kSize = 20'000;
constexpr int64_t kKeep = 2;

TensorTable make_table() {
  TensorTable table;
  table.add({.name = "w", .shape = {kSize}});
  return table;
}

std::vector<float> values_at(int64_t step, float scale) {
  std::vector<float> values;
  for (int64_t i = 0; i < kSize; ++i) {
    values.push_back(scale * static_cast<float>(step) + static_cast<float>(i));
  }
  return values;
}

void write_step(CheckpointStore& store, int64_t step) {
  const std::vector<float> weights = values_at(step, 1.0F);
  const std::vector<float> slot = values_at(step, 2.0F);
  const std::span<const float> slots[] = {slot};
  const std::string names[] = {"momentum_buffer"};
  CheckpointState state;
  state.step = step;
  store.write(state, make_table(), weights, slots, names);
}

// Runs in the child: opens the store, continues from `first`, writes each step twice (the second
// replaces the first) and reports each step that is on disk. Returns only by _exit.
[[noreturn]] void write_until_killed(const std::string& dir, int64_t first, int report) {
  try {
    CheckpointStore store(dir, kKeep);
    for (int64_t step = first;; ++step) {
      for (int twice = 0; twice < 2; ++twice) {
        write_step(store, step);
        if (::write(report, &step, sizeof(step)) != sizeof(step)) ::_exit(2);
      }
    }
  } catch (const std::exception& error) {
    std::fputs(error.what(), stderr);
    ::_exit(1);
  }
}

// Starts a writer, waits for its first report if `after_its_first_report`, lets it run for `life`
// and kills it. Returns the last step that it reported, or -1.
int64_t kill_a_writer_after(std::chrono::microseconds life, bool after_its_first_report,
                            const std::string& dir, int64_t first) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("pipe");
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) write_until_killed(dir, first, ends[1]);
  ::close(ends[1]);
  int64_t last = -1;
  int64_t step = 0;
  const auto next_report = [&] { return ::read(ends[0], &step, sizeof(step)) == sizeof(step); };
  if (after_its_first_report && next_report()) last = step;
  std::this_thread::sleep_for(life);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the writer failed before the kill";
  while (next_report()) last = step;
  ::close(ends[0]);
  return last;
}

TEST(CheckpointCrash, SixtyKillsLoseNoReportedCheckpoint) {
  const ScratchFolder folder;
  std::mt19937 engine(60);
  int64_t promised = 1;
  const auto start = std::chrono::steady_clock::now();
  {
    CheckpointStore store(folder.path(), kKeep);
    write_step(store, promised);
  }
  // A writer lives for up to three writes, also on a slow disk, so that kills hit every part of a
  // write.
  const auto write_time = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - start);
  for (int round = 0; round < 60; ++round) {
    const std::chrono::microseconds life(engine() % (3 * write_time.count() + 1));
    promised =
        std::max(promised, kill_a_writer_after(life, round % 2 == 0, folder.path(), promised + 1));
    const Checkpoint checkpoint = read_checkpoint(folder.path());
    ASSERT_GE(checkpoint.state.step, promised) << round;
    ASSERT_THAT(checkpoint.skipped, testing::IsEmpty());
    ASSERT_EQ(checkpoint.weights, values_at(checkpoint.state.step, 1.0F));
    ASSERT_EQ(checkpoint.slots.at(0), values_at(checkpoint.state.step, 2.0F));
    promised = checkpoint.state.step;
  }
  EXPECT_GE(promised, 30);  // every second writer lived long enough to report a step
  // After any of these kills, the next store holds complete checkpoints only.
  CheckpointStore store(folder.path(), kKeep);
  write_step(store, promised + 1);
  EXPECT_THAT(store.steps(), testing::ElementsAre(promised, promised + 1));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
}

}  // namespace
}  // namespace pushpull
