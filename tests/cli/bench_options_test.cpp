#include "cli/bench/bench_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kPlenty = int64_t{1} << 40;

BenchOptions parse(std::vector<const char*> words, int64_t memory = kPlenty) {
  words.insert(words.begin(), "bench");
  return parse_bench(
      parse_command_line(static_cast<int>(words.size()), words.data(), bench_options()),
      "pushpull bench", memory);
}

std::string refusal(const std::vector<const char*>& words, int64_t memory = kPlenty) {
  return thrown(ErrorCode::kUsage, [&] { parse(words, memory); });
}

TEST(BenchOptions, WithoutFlagsAllSizesAndTransportsAreMeasured) {
  const BenchOptions options = parse({});
  EXPECT_THAT(options.bytes, ElementsAre(4096, 65536, 1048576, 26214400, 104857600));
  EXPECT_THAT(options.transports, ElementsAre(Transport::kShm, Transport::kTcp, Transport::kIpc));
  EXPECT_EQ(options.workers, 2);
  EXPECT_EQ(options.servers, 1);
  EXPECT_EQ(options.optimizer, OptimizerKind::kMomentum);
  EXPECT_EQ(options.steps, 0);
  EXPECT_EQ(options.out, "");
}

TEST(BenchOptions, ListsKeepTheirOrder) {
  const BenchOptions options =
      parse({"--bytes", "1M, 4", "--transport", "tcp,shm", "--workers", "4", "--servers", "2",
             "--optimizer", "adam", "--steps", "7", "--out", "b.json", "--slice-bytes", "65536"});
  EXPECT_THAT(options.bytes, ElementsAre(1048576, 4));
  EXPECT_THAT(options.transports, ElementsAre(Transport::kTcp, Transport::kShm));
  EXPECT_EQ(options.workers, 4);
  EXPECT_EQ(options.servers, 2);
  EXPECT_EQ(options.optimizer, OptimizerKind::kAdam);
  EXPECT_EQ(options.steps, 7);
  EXPECT_EQ(options.out, "b.json");
  EXPECT_THAT(options.keys,
              ElementsAre(std::pair<const std::string, std::string>("slice-bytes", "65536")));
}

TEST(BenchOptions, WrongValuesAreNamed) {
  for (const char* bytes :
       {"0", "-4", "6", "1e6", "4096,", "x", "K", "4T", "iB", "99999999999999999999"}) {
    EXPECT_THAT(refusal({"--bytes", bytes}), HasSubstr("a multiple of 4")) << bytes;
  }
  EXPECT_THAT(refusal({"--bytes", "4096,4KiB"}), HasSubstr("given twice"));
  EXPECT_THAT(refusal({"--transport", "udp"}), HasSubstr("'udp' must be shm, tcp, ipc or zmq"));
  EXPECT_THAT(refusal({"--transport", "auto"}), HasSubstr("must be shm, tcp, ipc or zmq"));
  EXPECT_THAT(refusal({"--transport", "tcp,tcp"}), HasSubstr("given twice"));
  EXPECT_THAT(refusal({"--optimizer", "sdg"}), HasSubstr("'sdg' must be sgd"));
  EXPECT_THAT(refusal({"--workers", "0"}), HasSubstr("--workers: '0' must be"));
  EXPECT_THAT(refusal({"--servers", "1.5"}), HasSubstr("--servers: '1.5' must be"));
  EXPECT_THAT(refusal({"--steps", "0"}), HasSubstr("--steps: '0' must be"));
  EXPECT_THAT(refusal({"--out", ""}), HasSubstr("--out"));
  EXPECT_THAT(refusal({"4096"}), HasSubstr("'4096' is not a flag"));
}

TEST(BenchOptions, KeysThatBenchSetsAreRefused) {
  EXPECT_THAT(refusal({"--strategy", "async"}), HasSubstr("--strategy is set by bench"));
  EXPECT_THAT(refusal({"--model", "mlp"}), HasSubstr("--model is set by bench"));
}

TEST(BenchOptions, SizesThatDoNotFitIntoMemoryAreRefused) {
  const std::string text = refusal({"--bytes", "4096,1073741824"}, int64_t{8} << 30);
  EXPECT_THAT(text, HasSubstr("1073741824 with 2 workers needs about 17.0 GiB"));
  EXPECT_THAT(text, HasSubstr("has 8.0 GiB"));
  EXPECT_THAT(refusal({"--bytes", "9223372036854775804"}), HasSubstr("needs about"));
  EXPECT_EQ(refusal({"--bytes", "104857600"}, int64_t{8} << 30), "");
}

TEST(BenchOptions, RunningServersHaveTheirOwnJob) {
  const std::string join = "tcp://192.0.2.2:5555";
  EXPECT_EQ(parse({"--join", join.c_str(), "--bytes", "4096", "--workers", "3"}).join, join);
  EXPECT_THAT(refusal({"--join", join.c_str()}), HasSubstr("measures one size"));
  EXPECT_THAT(refusal({"--join", join.c_str(), "--bytes", "4096", "--servers", "2"}),
              HasSubstr("--servers belongs to the job of the servers"));
  EXPECT_THAT(refusal({"--join", join.c_str(), "--bytes", "4096", "--transport", "tcp"}),
              HasSubstr("--transport belongs to the job of the servers"));
  EXPECT_THAT(refusal({"--join", "nowhere", "--bytes", "4096"}), HasSubstr("nowhere"));
}

}  // namespace
}  // namespace pushpull
