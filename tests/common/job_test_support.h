// Helpers for the tests of the job: the error of a call, and files and variables that clean up
// after themselves.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull {

// Returns the text of the Error(kUsage) that `call` throws. The test fails if it throws none.
template <class Call>
std::string usage_error(const Call& call) {
  std::string text = thrown(ErrorCode::kUsage, call);
  EXPECT_NE(text, "") << "no error";
  return text;
}

// A job file in the test's temporary folder.
class ScopedFile {
 public:
  explicit ScopedFile(const std::string& text) {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = ::testing::TempDir() + test->test_suite_name() + "-" + test->name() + ".ini";
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~ScopedFile() { std::filesystem::remove(path_); }
  ScopedFile(const ScopedFile&) = delete;
  ScopedFile& operator=(const ScopedFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class ScopedVariable {
 public:
  ScopedVariable(std::string name, const std::string& value) : name_(std::move(name)) {
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~ScopedVariable() { unsetenv(name_.c_str()); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  std::string name_;
};

}  // namespace pushpull
