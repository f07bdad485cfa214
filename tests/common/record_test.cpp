#include "common/io/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <span>

#include "common/base/error.h"
#include "common/io/checkpoint.h"
#include "tests/common/scratch_folder.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

constexpr size_t kHeadBytes = 28;
constexpr size_t kSumBytes = 64;

RunRecord small() {
  RunRecord out;
  out.job_ini = "lr = 1\n";
  out.numerics = "avx2";
  out.choices = "linear a";
  out.data_digest = "d1";
  out.table_sha256 = "t1";
  out.servers = 2;
  out.total_steps = 9;
  out.start = {StartKind::kResumed, 3, 17, "w0", "s0"};
  out.weights_sha256 = "w1";
  out.pushes = {{0, 3, {0, 2}, {17, 17}}, {1, 3, {2, 4}, {17, 18}}, {0, 4, {0, 2}, {18, 18}}};
  out.updates = {{0, 0, false}, {1, 0, false}, {1, 1, true}, {0, 2, false}, {0, 1, false}};
  return out;
}

// Returns a record of groups with two stages, of which the second one reads nothing of server 1.
RunRecord with_stages() {
  RunRecord out = small();
  out.stages = 2;
  for (RecordedPush& push : out.pushes) push.reads.insert(push.reads.end(), {push.step, -1});
  return out;
}

RunRecord large(size_t pushes) {
  RunRecord out = small();
  out.pushes.clear();
  out.updates.clear();
  for (size_t i = 0; i < pushes; ++i) {
    const auto version = static_cast<int64_t>(i);
    out.pushes.push_back({static_cast<int>(i % 3),
                          version / 3,
                          {version % 3, version % 3 + 1},
                          {17 + version, 17 + version}});
    out.updates.push_back({0, i, false});
    out.updates.push_back({1, i, false});
  }
  return out;
}

// Appends a matching sum, as an attacker can.
std::string summed(std::string bytes) {
  return bytes + sha256_hex(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

std::string refusal_of_record(const std::string& bytes) {
  try {
    decode_record(bytes, "some.rec");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kData);
    EXPECT_THAT(e.what(), HasSubstr("[record] some.rec"));
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.what();
  }
  return "";
}

TEST(Record, SurvivesEncodingAndDecoding) {
  EXPECT_EQ(decode_record(encode_record(small()), "r"), small());
  RunRecord cut = small();
  cut.weights_sha256 = "";
  cut.incomplete = "ended by SIGTERM";
  cut.failed = RecordedPush{4, 5, {1, 2}, {19, 20}};
  EXPECT_EQ(decode_record(encode_record(cut), "r"), cut);
  RunRecord empty = small();
  empty.pushes.clear();
  empty.updates.clear();
  EXPECT_EQ(decode_record(encode_record(empty), "r"), empty);
  EXPECT_EQ(decode_record(encode_record(with_stages()), "r"), with_stages());
}

TEST(Record, IsSmall) {
  const RunRecord record = large(10'000);
  const std::string bytes = encode_record(record);
  EXPECT_EQ(decode_record(bytes, "r"), record);
  EXPECT_LT(bytes.size(), 11 * record.pushes.size()) << "per push at two servers";
}

TEST(Record, IsCompleteOrAbsentOnDisk) {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/a.rec";
  write_record(path, small());
  EXPECT_EQ(read_record(path), small());
  write_record(path, large(5));
  EXPECT_EQ(read_record(path), large(5));
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    ++files;
  }
  EXPECT_EQ(files, 1U) << "a temporary file was left";
  EXPECT_THROW(write_record(folder.path() + "/none/a.rec", small()), Error);
}

TEST(Record, EveryFlippedBitIsDetected) {
  const std::string bytes = encode_record(small());
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      EXPECT_NE(refusal_of_record(changed), "") << "byte " << at;
    }
  }
}

TEST(Record, EveryTruncationIsDetected) {
  const std::string bytes = encode_record(small());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(refusal_of_record(bytes.substr(0, size)), "") << size;
  }
  EXPECT_NE(refusal_of_record(bytes + "x"), "");
  EXPECT_THAT(refusal_of_record(bytes.substr(0, bytes.size() - 7)), HasSubstr("cut off"));
  EXPECT_THAT(refusal_of_record("[job]\nlr = 1\n"), HasSubstr("not a record"));
}

TEST(Record, AnotherFormatIsNamed) {
  std::string bytes = encode_record(small());
  bytes.resize(bytes.size() - kSumBytes);
  bytes[16] = 9;
  EXPECT_THAT(refusal_of_record(summed(bytes)), HasSubstr("format version 9"));
}

// A record that was made to be bad has a matching sum, so its body must be checked.
TEST(Record, RandomBodiesAreReadOrRefused) {
  const std::string whole = encode_record(large(40));
  std::mt19937 random(5);
  int read = 0;
  int refused = 0;
  for (int turn = 0; turn < 30'000; ++turn) {
    std::string body = whole.substr(kHeadBytes, whole.size() - kHeadBytes - kSumBytes);
    const auto changes = 1 + random() % 6;
    for (unsigned i = 0; i < changes; ++i) {
      const size_t at = random() % body.size();
      if (random() % 4 == 0) {
        body.erase(at, 1 + random() % 3);
      } else if (random() % 4 == 0) {
        body.insert(at, 1, static_cast<char>(random()));
      } else {
        body[at] = static_cast<char>(random());
      }
    }
    std::string bytes = whole.substr(0, kHeadBytes);
    for (size_t i = 0; i < 8; ++i) bytes[20 + i] = static_cast<char>(body.size() >> (8 * i));
    bytes = summed(bytes + body);
    try {
      const RunRecord record = decode_record(bytes, "r");
      EXPECT_GE(record.servers, 1);
      for (const RecordedPush& push : record.pushes) {
        ASSERT_EQ(std::ssize(push.reads), record.servers * record.stages);
        ASSERT_LT(push.range.lo, push.range.hi);
      }
      for (const RecordedUpdate& update : record.updates) {
        ASSERT_LT(update.push, record.pushes.size());
        ASSERT_LT(update.server, record.servers);
        ASSERT_GE(update.server, 0);
      }
      ++read;
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ErrorCode::kData) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 0);
}

TEST(Record, AHeadWithLargeCountsAllocatesNothing) {
  std::string bytes = encode_record(small());
  bytes.resize(bytes.size() - kSumBytes);
  for (size_t i = 20; i < 28; ++i) bytes[i] = '\x7f';
  EXPECT_THAT(refusal_of_record(summed(bytes)), HasSubstr("its head says"));
}

}  // namespace
}  // namespace pushpull
