#include "tests/cli/report_fixture.h"

#include <algorithm>
#include <cmath>

#include "common/job/strategy.h"

namespace pushpull::testing {
namespace {

constexpr int64_t kSamples = 26880;
constexpr int64_t kBatch = 64;
constexpr int64_t kParameters = 54442;
constexpr double kTarget = 0.97;

// A strategy's parameters in this file's model.
struct Traits {
  double compute;  // seconds per step with one worker
  double final_accuracy;
  double slowness;  // samples until 63 % of the final accuracy
  bool servers, waits;
};

Traits traits_of(const std::string& strategy, int64_t workers) {
  const auto more = static_cast<double>(workers - 1);
  if (strategy == "async") return {0.0101, 0.978 - 0.0025 * more, 2600 + 500 * more, true, false};
  if (strategy.starts_with("ssp"))
    return {0.0102, 0.979 - 0.0012 * more, 2500 + 260 * more, true, false};
  if (strategy.starts_with("local"))
    return {0.0099, 0.974 - 0.002 * more, 3300 + 700 * more, true, true};
  if (strategy == "sync") return {0.0103, 0.981, 2500, true, true};
  return {0.0100, 0.981, 2500, false, true};
}

class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  // -1 to 1
  double next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state_ >> 33U) / static_cast<double>(1ULL << 30U) - 1;
  }

 private:
  uint64_t state_;
};

double bandwidth_of(const std::string& link) {
  if (link.empty()) return 3.1e9;
  return link.starts_with("1gbit") ? 117e6 : 11.7e6;
}

StepSplit split_of(const CompareRun& run, const Traits& traits, Noise& noise) {
  const auto n = static_cast<double>(run.workers);
  const double bytes = 4.0 * kParameters;
  const double bandwidth = bandwidth_of(run.link);
  const double once = traits.servers ? std::max(bytes, n * bytes) / bandwidth
                                     : 2 * (n - 1) * bytes / (n * bandwidth);
  StepSplit split;
  // on two cores: from three processes on they share
  split.compute = traits.compute / std::min(n, 2.0) * (1 + 0.04 * noise.next());
  const double part = run.strategy.starts_with("local") ? 1.0 / 16 : 1.0;
  split.push = (0.0003 + once / 2) * part * (1 + 0.1 * noise.next());
  split.pull = (0.0004 + once / 2) * part * (1 + 0.1 * noise.next());
  split.wait =
      n == 1 ? 0.0002 : (traits.waits ? 0.0021 : 0.0004) * part * n * (1 + 0.2 * noise.next());
  return split;
}

void fill_curve(CompareRun& run, const Traits& traits, int64_t evaluations, Noise& noise) {
  const double step = run.split.compute + run.split.push + run.split.wait + run.split.pull;
  const double last = traits.final_accuracy + 0.003 * noise.next();
  for (int64_t i = 0; i <= evaluations; ++i) {
    CurvePoint point;
    point.samples = kSamples * i / evaluations;
    point.step = point.samples / kBatch;
    point.seconds = step * static_cast<double>(point.step) * (1 + 0.01 * noise.next()) +
                    0.02 * static_cast<double>(i);
    const double way = std::exp(-static_cast<double>(point.samples) / traits.slowness);
    point.test_value = std::min(last - (last - 0.1) * way + 0.004 * noise.next(), 0.995);
    point.test_loss = 0.07 + (2.3 - 0.07) * way + 0.01 * std::abs(noise.next());
    point.train_loss = *point.test_loss * 0.8;
    run.curve.push_back(point);
    if (point.test_value >= kTarget && !run.seconds_to_target) {
      run.seconds_to_target = point.seconds;
      run.samples_to_target = point.samples;
    }
  }
}

void fill_staleness(CompareRun& run, Noise& noise) {
  const bool stale = run.strategy == "async" || run.strategy.starts_with("ssp");
  if (!stale || run.workers == 1) {
    run.staleness[0] = run.steps;
    return;
  }
  const auto middle = static_cast<double>(run.workers - 1);
  for (int64_t s = 0; s < 3 * run.workers; ++s) {
    const double away = (static_cast<double>(s) - middle) / 1.1;
    run.staleness[s] =
        static_cast<int64_t>(2000 * std::exp(-away * away) + 4 * std::abs(noise.next()));
  }
  if (run.strategy == "async") run.staleness[41 + static_cast<int64_t>(run.seed)] = 3;
}

void fill(CompareRun& run, int64_t evaluations) {
  Noise noise(run.seed * 1000 + static_cast<uint64_t>(run.workers) * 10 + run.strategy.size() +
              static_cast<uint64_t>(run.strategy.back()) * 100000);
  const Traits traits = traits_of(run.strategy, run.workers);
  run.servers = traits.servers ? 1 : 0;
  run.initial_weights_sha256 = std::string(63, 'a') + std::to_string(run.seed % 10);
  run.data_order_sha256 = std::string(63, 'b') + std::to_string(run.seed % 10);
  run.weights_sha256 = std::string(64, 'c');
  run.samples = kSamples;
  run.steps = kSamples / kBatch;
  run.split = split_of(run, traits, noise);
  fill_curve(run, traits, evaluations, noise);
  fill_staleness(run, noise);
  run.seconds = run.curve.back().seconds;
  run.samples_per_second = static_cast<double>(kSamples) / run.seconds;
  run.test_value = run.curve.back().test_value;
  run.test_loss = run.curve.back().test_loss;
  run.bytes_pushed = run.steps * run.workers * 4 * kParameters;
  run.bytes_pulled = run.bytes_pushed;
  run.pushes_applied = run.steps * run.workers;
  run.cpu_seconds["worker"] = 4.6 + 0.3 * noise.next();
  run.peak_mib["worker"] = 148 + 3 * noise.next();
  if (traits.servers) {
    run.cpu_seconds["server"] = 0.8 + 0.3 * static_cast<double>(run.workers) + 0.1 * noise.next();
    run.peak_mib["server"] = 31 + noise.next();
  }
}

std::string failure_of(const CompareRun& run) {
  if (run.strategy == "allreduce:gloo" && run.workers == 4) {
    return "[job] Gloo is not built into this worker; install libgloo-dev and build again";
  }
  if (run.strategy == "async" && run.workers == 4 && run.seed == 9) {
    return "[train] loss is not finite at step 311 <script>alert(\"x\")</script> & 'worse' \x01";
  }
  return "";
}

void fill_frame(CompareResult& result, const FixtureOptions& options) {
  result.command =
      "pushpull compare --job docs/examples/digits.ini --strategies "
      "sync,async,ssp:4,local:16,allreduce:ring,allreduce:gloo --workers 1,2,4 --seeds 5 "
      "--target-accuracy 0.97 --out out/compare";
  result.commit = "de615d6f0c4b7a9e8d1c2b3a4f5e6d7c8b9a0f1e";
  result.version = "0.3.0";
  result.machine = "Intel(R) Xeon(R) Processor @ 2.10GHz, 2 cores, 24 GiB, Linux 6.1.0";
  result.cores = 2;
  result.congestion_control = "cubic";
  result.libraries = {{"libzmq", "4.3.4"}, {"oneDNN", "2.6.3"}, {"protobuf", "3.21.12"}};
  result.job_ini =
      "model = convnet\ndataset = digits\n\nepochs = 15\nglobal-batch = 64\nlr = 0.05\n";
  result.began = "2024-05-04T09:12:33Z";
  result.seconds = 743.2;
  result.model_parameters = kParameters;
  result.target = kTarget;
  result.strategies = options.strategies;
  result.workers = options.workers;
  for (const std::string& link : options.links) {
    result.links.push_back({link, bandwidth_of(link), link.empty() ? 0.06 : 10.3,
                            link.empty() ? "loopback" : "network namespaces, tbf; delay by proxy"});
  }
  if (options.workers.back() > 1) {
    result.notes.push_back(
        "more processes than cores: 4 workers and 1 server share 2 cores, so "
        "the comparison with 4 workers is about sharing a core");
  }
}

}  // namespace

CompareResult fixture(const FixtureOptions& options) {
  CompareResult result;
  fill_frame(result, options);
  for (const std::string& link : options.links) {
    const int64_t seeds =
        link == options.links.front() ? options.seeds : std::min<int64_t>(options.seeds, 2);
    for (int64_t seed = 0; seed < seeds; ++seed) {
      for (const int64_t workers : options.workers) {
        for (const std::string& strategy : options.strategies) {
          CompareRun run;
          run.strategy = strategy;
          run.workers = workers;
          run.seed = static_cast<uint64_t>(7 + seed);
          run.link = link;
          run.out = "runs/" + std::to_string(result.runs.size());
          if (options.failures) run.failure = failure_of(run);
          if (run.failure.empty()) {
            fill(run, options.evaluations);
          } else {
            run.exit_code = 3;
          }
          result.runs.push_back(run);
        }
      }
    }
  }
  return result;
}

}  // namespace pushpull::testing
