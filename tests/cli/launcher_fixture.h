// Runs the launcher with shell scripts in place of the real programs, in a process of its own, like
// `pushpull run`, so that a test can signal and kill it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "cli/run/launcher.h"
#include "common/base/error.h"

namespace pushpull::launcher_test {

inline constexpr std::chrono::seconds kPatience{60};  // only a failing test waits so long

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline int64_t lines_of(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

inline bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// Returns whether the process runs; a zombie does not count.
inline bool lives(const std::string& pid) {
  const std::string stat = read_file("/proc/" + pid + "/stat");
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.at(name_end + 2) != 'Z';
}

// The first lines of every script: sets $dir and records the pid.
inline constexpr const char* kHead = R"sh(#!/bin/sh
dir="$(dirname "$0")"
echo $$ >> "$dir/pids"
)sh";
// A coordinator that announces itself.
inline constexpr const char* kAnnounce =
    "case \"$1\" in --join) ;; *) echo tcp://127.0.0.1:1 >&3 ;; esac\n";
// Sets $first in the first process that runs this.
inline constexpr const char* kFirst = "mkdir \"$dir/first\" 2>/dev/null && first=yes\n";

class LauncherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "launcher_test.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
    options_.server_program = (dir_ / "server").string();
    options_.worker_program = (dir_ / "worker").string();
    options_.supervisor.settle_ms = 100;
  }
  void TearDown() override {
    if (launcher_ > 0) {
      kill(launcher_, SIGKILL);
      waitpid(launcher_, nullptr, 0);
    }
    EXPECT_TRUE(eventually([&] { return living().empty(); }))
        << "processes left behind: " << living();
    std::filesystem::remove_all(dir_);
  }

  void script(const char* name, const std::string& body) const {
    std::ofstream(dir_ / name) << kHead << body << "\n";
    chmod((dir_ / name).c_str(), 0755);
  }

  void start() {
    launcher_ = fork();
    ASSERT_GE(launcher_, 0);
    if (launcher_ == 0) {
      options_.out_fd =
          open((dir_ / "out").c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
      options_.err_fd =
          open((dir_ / "err").c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
      int code = 99;
      try {
        code = launch(options_);
      } catch (const Error& error) {
        dprintf(options_.err_fd, "%s\n", error.what());
        code = static_cast<int>(error.code());
      }
      _exit(code);
    }
  }
  // Waits for the launcher and returns its exit code.
  int wait_for_end() {
    int status = 0;
    const bool ended =
        eventually([&] { return waitpid(launcher_, &status, WNOHANG) == launcher_; });
    if (!ended) {
      ADD_FAILURE() << "the launcher hangs: " << err();
      return -1;
    }
    launcher_ = -1;
    EXPECT_EQ(living(), "") << "processes left behind by the launcher";
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  int run() {
    start();
    return wait_for_end();
  }

  std::string out() const { return read_file(dir_ / "out"); }
  std::string err() const { return read_file(dir_ / "err"); }
  bool has_lines(const char* file, int64_t count) const {
    return eventually([&] { return lines_of(read_file(dir_ / file)) >= count; });
  }
  std::string living() const {
    std::istringstream pids(read_file(dir_ / "pids"));
    std::string found;
    for (std::string pid; pids >> pid;) {
      found += lives(pid) ? pid + " " : "";
    }
    return found;
  }

  std::filesystem::path dir_;
  LauncherOptions options_;
  pid_t launcher_ = -1;
};

}  // namespace pushpull::launcher_test
