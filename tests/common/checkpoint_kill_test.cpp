// Ends a writer at each of its system calls in turn: the store must then hold the complete old or
// new checkpoint, and the next start must remove the rest.
//
// The functions below replace libc's for this program and for libstdc++'s file system. A child
// counts its calls and exits at the n-th, either before the call or after doing half of it.
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/io/checkpoint.h"
#include "tests/common/scratch_folder.h"

namespace {

constexpr int kEndedAtCall = 77;  // exit code of a child that ended at its n-th call

int calls_left = -1;          // until the process exits; -1: calls are not counted
bool by_half = false;         // do half of the last call, if it is a write
std::string* seen = nullptr;  // receives the names of the calls; null: not recorded

// Counts a call. Returns true if the process must exit at this one.
bool last_call(const char* name) {
  if (seen != nullptr) *seen += std::string(name) + " ";
  return calls_left > 0 && --calls_left == 0;
}

template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

void end_at(const char* name) {
  if (last_call(name)) _exit(kEndedAtCall);
}

}  // namespace

// for calls of other libraries, too
#pragma GCC visibility push(default)
extern "C" {

ssize_t write(int fd, const void* bytes, size_t size) {
  static auto* const next = real<ssize_t(int, const void*, size_t)>("write");
  if (last_call("write")) {
    if (by_half) next(fd, bytes, size / 2);
    _exit(kEndedAtCall);
  }
  return next(fd, bytes, size);
}

// Data that a process has written survives its exit, synced or not.
int fsync(int /*fd*/) {
  end_at("fsync");
  return 0;
}

int close(int fd) {
  end_at("close");
  static auto* const next = real<int(int)>("close");
  return next(fd);
}

int rename(const char* from, const char* to) noexcept {
  end_at("rename");
  static auto* const next = real<int(const char*, const char*)>("rename");
  return next(from, to);
}

int mkdir(const char* path, mode_t mode) noexcept {
  end_at("mkdir");
  static auto* const next = real<int(const char*, mode_t)>("mkdir");
  return next(path, mode);
}

int unlink(const char* path) noexcept {
  end_at("unlink");
  static auto* const next = real<int(const char*)>("unlink");
  return next(path);
}

int rmdir(const char* path) noexcept {
  end_at("rmdir");
  static auto* const next = real<int(const char*)>("rmdir");
  return next(path);
}

int remove(const char* path) noexcept {
  end_at("remove");
  static auto* const next = real<int(const char*)>("remove");
  return next(path);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  end_at("unlinkat");
  static auto* const next = real<int(int, const char*, int)>("unlinkat");
  return next(folder, path, flags);
}

int open(const char* path, int flags, ...) {
  end_at("open");
  static auto* const next = real<int(const char*, int, ...)>("open");
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return next(path, flags, mode);
}

}  // extern "C"
#pragma GCC visibility pop

namespace pushpull {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSize = 300;
constexpr int64_t kOld = 5;

TensorTable make_table() {
  TensorTable table;
  table.add({.name = "w", .shape = {kSize}});
  return table;
}

std::vector<float> values_of(float version) { return std::vector<float>(kSize, version); }

void write_step(CheckpointStore& store, int64_t step, float version) {
  const std::vector<float> weights = values_of(version);
  CheckpointState state;
  state.step = step;
  store.write(state, make_table(), weights, {}, {});
}

// One write by a child, in a folder with a checkpoint of step kOld and version 1. The child writes
// version 2.
struct Deed {
  const char* name;
  int64_t step;        // of the new checkpoint
  bool aside = false;  // a fresh run, which moves the old checkpoint aside
};
constexpr Deed kDeeds[] = {{"a later step, and the old one goes", kOld + 1},
                           {"the same step again", kOld},
                           {"a fresh run", 1, true}};

class CheckpointKill : public testing::Test {
 protected:
  // Runs the write in a child that exits at its `calls`-th call, or never if `calls` is 0. Returns
  // whether it exited early.
  bool child(const Deed& deed, const std::string& dir, int calls, bool half) {
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("fork");
    if (pid == 0) {
      try {
        by_half = half;
        calls_left = calls > 0 ? calls : -1;
        do_it(deed, dir);
        _exit(0);
      } catch (const std::exception& error) {
        std::fputs(error.what(), stderr);
        _exit(1);
      }
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_TRUE(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kEndedAtCall)
        << "the write failed";
    return WEXITSTATUS(status) == kEndedAtCall;
  }
  static void do_it(const Deed& deed, const std::string& dir) {
    CheckpointStore store(dir, 1);
    if (deed.aside) store.set_earlier_aside();
    write_step(store, deed.step, 2.0F);
  }
  // Makes a folder with the old checkpoint.
  std::string folder() {
    std::string dir = scratch_ / ("c" + std::to_string(++folders_)) + "/checkpoints";
    CheckpointStore store(dir, 1);
    write_step(store, kOld, 1.0F);
    return dir;
  }
  // Checks that the old or the new checkpoint is complete in one of the places where a start looks.
  void check(const Deed& deed, const std::string& dir) {
    std::vector<std::string> places{dir};
    for (const auto& [number, aside] : folders_aside(dir)) places.push_back(aside);
    bool found = false;
    for (const std::string& place : places) {
      if (!fs::exists(place) || whole_checkpoints(place).empty()) continue;
      const Checkpoint read = read_checkpoint(place);
      EXPECT_THAT(read.skipped, testing::IsEmpty());
      const bool is_new = read.weights == values_of(2.0F);
      EXPECT_TRUE(is_new || read.weights == values_of(1.0F));
      EXPECT_EQ(read.state.step, is_new ? deed.step : kOld);
      found = true;
    }
    EXPECT_TRUE(found) << "neither the old nor the new checkpoint is there";
  }
  // Checks that the next start can write the same step, and leaves no other files behind.
  void check_next_start(const Deed& deed, const std::string& dir) {
    const bool aside = fs::exists(dir + ".1");
    CheckpointStore store(dir, 1);
    for (const auto& entry : fs::directory_iterator(dir)) {
      EXPECT_TRUE(step_of_folder(entry.path().filename().string())) << entry.path();
    }
    if (aside) store.expect_earlier_aside();
    if (deed.aside && !aside) store.set_earlier_aside();
    write_step(store, deed.step, 3.0F);
    EXPECT_EQ(read_checkpoint(dir).weights, values_of(3.0F));
    EXPECT_EQ(store.steps(), std::vector<int64_t>{deed.step});
    EXPECT_THAT(folders_aside(dir), testing::IsEmpty());
  }

  ScratchFolder scratch_;
  int folders_ = 0;
};

TEST_F(CheckpointKill, CallsAreCounted) {
  const std::string dir = folder();
  std::string names;
  seen = &names;
  do_it(kDeeds[0], dir);
  seen = nullptr;
  for (const char* name : {"open ", "write ", "fsync ", "close ", "rename ", "mkdir "}) {
    EXPECT_THAT(names, testing::HasSubstr(name));
  }
  EXPECT_THAT(names, testing::AnyOf(testing::HasSubstr("unlink"), testing::HasSubstr("remove")))
      << "libstdc++ deletes by one of these";
}

TEST_F(CheckpointKill, AnExitAtAnyCallLeavesACompleteCheckpoint) {
  for (const Deed& deed : kDeeds) {
    for (const bool half : {false, true}) {
      int calls = 1;
      for (bool gone = true; gone; ++calls) {
        SCOPED_TRACE(testing::Message()
                     << deed.name << ", gone at call " << calls << (half ? ", by half" : ""));
        const std::string dir = folder();
        gone = child(deed, dir, calls, half);
        check(deed, dir);
        check_next_start(deed, dir);
        if (HasFailure()) return;
        ASSERT_LT(calls, 1000);
      }
      EXPECT_GT(calls, 20) << deed.name << ": the calls are not counted";
    }
  }
}

}  // namespace
}  // namespace pushpull
