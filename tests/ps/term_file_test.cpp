#include "ps/report/term_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

namespace pushpull {
namespace {

TermRecord record() {
  TermRecord out;
  out.term = 3;
  out.run_id = 17;
  out.address = "tcp://head:1";
  out.job_ini = "steps = 5\n";
  out.started = true;
  return out;
}

class TermFile : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(dir_); }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  const std::string dir_ = testing::TempDir() + "term_file_" + std::to_string(getpid());
};

TEST_F(TermFile, ReturnsWhatWasWritten) {
  TermRecord written = record();
  written.history.declared = EarlierDeclaration{"model", 64, 16, "digest \"1\"", "avx2"};
  written.history.own_weights_sha256 = "0123abcd";
  write_term(dir_, written);
  const std::optional<TermRecord> read = read_term(dir_);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->term, 3);
  // the coordinator may start again on another host
  written.history.declared->numerics.reset();
  EXPECT_EQ(read->history.declared, written.history.declared);
  EXPECT_EQ(read->history.own_weights_sha256, "0123abcd");
}

TEST_F(TermFile, HasNoDeclarationBeforeTheRunTrains) {
  write_term(dir_, record());
  const std::optional<TermRecord> read = read_term(dir_);
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->history.declared);
  EXPECT_EQ(read->history.own_weights_sha256, "");
}

}  // namespace
}  // namespace pushpull
