// Random jobs survive conversion to text and back, and parsing randomly damaged text throws nothing
// but Error. The seeds are fixed, so a failure is reproducible.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "common/base/error.h"
#include "common/job/job.h"

namespace pushpull {
namespace {

using namespace std::string_view_literals;  // a literal with a 0 byte in it

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t between(int64_t min, int64_t max) {
    return min + static_cast<int64_t>(engine_() % static_cast<uint64_t>(max - min + 1));
  }
  bool coin() { return between(0, 1) == 1; }
  // Spread over many magnitudes, with all digits used.
  double positive() {
    const double mantissa = 1.0 + static_cast<double>(engine_() >> 12U) * 0x1p-52;
    return std::ldexp(mantissa, static_cast<int>(between(-60, 20)));
  }
  double fraction() { return static_cast<double>(engine_() >> 11U) * 0x1p-53; }
  uint64_t bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

std::string random_path(Random& random) {
  static constexpr std::string_view kCharacters = "ab/.=[]\"'; \\-_";
  std::string path = "p";
  const int64_t length = random.between(0, 20);
  for (int64_t i = 0; i < length; ++i) {
    path += kCharacters[static_cast<size_t>(random.between(0, kCharacters.size() - 1))];
  }
  return path + "\xc3\xbc";
}

Job random_job(Random& random) {
  Job job;
  job.model = random.coin() ? "mlp" : "convnet";
  job.hidden.resize(static_cast<size_t>(random.between(0, 4)));
  for (int64_t& width : job.hidden) width = random.between(1, 1'000'000);
  job.dataset = random.coin() ? "idx" : "digits";
  job.data_dir = random_path(random);
  job.micro_batch = random.between(1, 1000);
  job.global_batch = job.micro_batch * random.between(1, 65'536);
  job.train_samples = random.coin() ? 0 : job.global_batch + random.between(0, 1000);
  job.test_samples = random.between(0, 1000);
  job.shuffle = random.coin();
  job.sampler = random.coin() ? SamplerKind::kUniform : SamplerKind::kWeighted;
  job.input = {random.between(1, 1000), random.between(1, 100), random.between(1, 100)};
  job.classes = random.between(2, 1'000'000);
  (random.coin() ? job.epochs : job.steps) = random.between(1'000, 1'000'000);
  job.stop_after = random.between(0, 1'000);
  job.threads = random.between(1, 1024);
  job.precision = random.coin() ? "bf16" : "tf32";
  job.loss_scale = int64_t{1} << random.between(0, 24);
  job.timed_algorithms = random.coin();
  job.seed = random.bits();
  job.wait = static_cast<Wait>(random.between(0, 2));
  job.slice_bytes = random.between(256, 1 << 30);
  job.eval_every = random.between(0, 1000);
  job.checkpoint_dir = random.coin() ? "" : random_path(random);
  job.checkpoint_every = random.between(0, 1000);
  job.checkpoint_keep = random.between(1, 1000);
  job.resume = static_cast<Resume>(random.between(0, 2));
  job.init_from = random.coin() ? "" : random_path(random);
  job.on_worker_loss = static_cast<OnWorkerLoss>(random.between(0, 2));
  job.strategy.kind = static_cast<StrategyKind>(random.between(0, 2));
  if (job.strategy.kind == StrategyKind::kSsp)
    job.strategy.staleness = random.between(1, 1'000'000);
  job.replacement_timeout_s = 0.1 + random.fraction() * 1e5;
  job.heartbeat_timeout_s = 0.1 + random.fraction();
  return job;
}

void randomize_numerics(Random& random, Job& job) {
  const int64_t last = job.strategy.traits().step_versions ? 8 : 7;  // lamb
  job.optimizer.kind = static_cast<OptimizerKind>(random.between(0, last));
  job.optimizer.momentum = random.fraction();
  job.optimizer.beta1 = random.fraction();
  job.optimizer.beta2 = random.fraction();
  job.optimizer.epsilon = random.positive();
  job.optimizer.weight_decay = random.coin() ? 0.0 : random.positive();
  job.optimizer.ema = random.coin() ? 0.0 : random.fraction();
  job.eval_ema = job.optimizer.ema > 0.0 && job.stages == 1 && random.coin();
  if (random.coin()) {
    job.optimizer.no_decay = NoDecay::parse(random.coin() ? "none" : "*.bias,layer*norm.weight");
  }
  job.schedule.kind = static_cast<ScheduleKind>(random.between(0, 6));
  job.schedule.milestones = {random.between(1, 1000), random.between(1001, 2000)};
  job.schedule.points = {{random.between(0, 9), random.fraction()}, {10, random.positive()}};
  job.schedule.horizon = random.between(0, 1000);
  job.schedule.lr = random.positive();
  job.schedule.warmup_from = job.schedule.lr * random.fraction();
  job.schedule.step = random.between(1, 1000);
  job.schedule.gamma = 1.0 - random.fraction();
  job.schedule.min = job.schedule.lr * random.fraction();
  if (random.coin()) {
    job.schedule.warmup_steps = random.between(0, 1000);
  } else {
    job.schedule.warmup_fraction = random.fraction();
  }
  job.clip_norm = random.coin() ? 0.0 : random.positive();
}

TEST(JobProperty, ARandomJobReadsBackEqual) {
  Random random(20260101);
  for (int i = 0; i < 2000; ++i) {
    Job job = random_job(random);
    randomize_numerics(random, job);
    const std::string ini = to_ini(job);
    const Job again = parse_job_text(ini, "round " + std::to_string(i));
    ASSERT_EQ(again, job) << ini;
    ASSERT_EQ(to_ini(again), ini);
    ASSERT_TRUE(keys_that_forbid_resume(job, again).empty());
  }
}

// One edit: a byte changed, inserted or removed; a piece doubled, cut or moved.
void mutate(Random& random, std::string& text) {
  static constexpr std::string_view kSpice = "=#[]\n\r\t\0\xff-+.,:x0123456789e \"*"sv;
  if (text.empty()) text.push_back('=');
  const auto at = static_cast<size_t>(random.between(0, static_cast<int64_t>(text.size()) - 1));
  const char byte = random.coin()
                        ? static_cast<char>(random.between(0, 255))
                        : kSpice[static_cast<size_t>(random.between(0, kSpice.size() - 1))];
  const std::string piece = text.substr(at, static_cast<size_t>(random.between(1, 40)));
  switch (random.between(0, 5)) {
    case 0:
      text[at] = byte;
      break;
    case 1:
      text.insert(at, 1, byte);
      break;
    case 2:
      text.erase(at, 1);
      break;
    case 3:
      text.insert(at, piece);
      break;
    case 4:
      text.erase(at, piece.size());
      break;
    default:
      text.insert(static_cast<size_t>(random.between(0, static_cast<int64_t>(at))), piece);
  }
}

// One edit within the value of one line, to reach the parsers of numbers, lists and paths.
void mutate_value(Random& random, std::string& text) {
  const auto at = static_cast<size_t>(random.between(0, static_cast<int64_t>(text.size())));
  const size_t equals = text.find('=', at);
  if (equals == std::string::npos) return;
  const size_t begin = equals + 1;
  const size_t end = std::min(text.find('\n', begin), text.size());
  std::string value = text.substr(begin, end - begin);
  mutate(random, value);
  text.replace(begin, end - begin, value);
}

TEST(JobFuzz, DamagedTextParsesOrThrowsErrorOnly) {
  Random random(7);
  int parsed = 0;
  int refused = 0;
  for (int i = 0; i < 6'000; ++i) {
    Job job = random_job(random);
    std::string text = to_ini(job);
    const int64_t edits = random.between(1, 4);
    for (int64_t edit = 0; edit < edits; ++edit) {
      random.coin() ? mutate(random, text) : mutate_value(random, text);
    }
    try {
      const Job damaged = parse_job_text(text, "fuzz");
      // text that parses is a job: it reads back equal
      ASSERT_EQ(parse_job_text(to_ini(damaged), "fuzz"), damaged) << text;
      ++parsed;
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ErrorCode::kUsage) << e.what();
      ASSERT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
      ++refused;
    }
  }
  // both outcomes must occur often, or the test proves nothing
  EXPECT_GT(parsed, 250);
  EXPECT_GT(refused, 250);
}

}  // namespace
}  // namespace pushpull
