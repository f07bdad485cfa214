#include "cli/bench/bench_run.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>
#include <system_error>

#include "cli/commands.h"
#include "cli/report/compare_read.h"
#include "cli/run/child.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/unique_fd.h"

namespace pushpull {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMovedBytes = int64_t{8} << 30;  // total of all workers of a row, both ways
constexpr int64_t kMinPlannedSteps = 20;
constexpr int64_t kMaxPlannedSteps = 4000;
constexpr int64_t kMaxProcessLogBytes = int64_t{1} << 20;
constexpr int64_t kMaxTimesBytes = int64_t{1} << 28;
constexpr int64_t kGraceMs = 10000;  // from the first failure until the other processes are killed
constexpr long kPollMs = 20;

// Creates a temporary folder. The destructor deletes it.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::error_code error;
    const fs::path folder = fs::temp_directory_path(error);
    if (error) {
      throw Error(
          ErrorCode::kIo,
          "[bench] the folder for temporary files (TMPDIR) cannot be used: " + error.message());
    }
    std::string pattern = (folder / "pushpull-bench-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw Error(ErrorCode::kIo, "[bench] cannot make a folder like " + pattern + ": " +
                                      std::error_code(errno, std::generic_category()).message() +
                                      "; TMPDIR names another place");
    }
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string times_file(const ScratchFolder& folder, int64_t worker) {
  return folder.file("times-" + std::to_string(worker));
}

std::vector<std::string> worker_words(const ScratchFolder& folder, int64_t worker, int64_t bytes,
                                      bool apart) {
  std::vector<std::string> words = {"--exchange-bytes", std::to_string(bytes), "--exchange-times",
                                    times_file(folder, worker)};
  if (apart) words.emplace_back("--exchange-apart");
  return words;
}

std::string name_of(int64_t bytes, const std::string& how) {
  return "[bench] " + std::to_string(bytes) + " bytes " + how;
}

void read_record(const ScratchFolder& folder, int64_t workers, ExchangeRecord& record) {
  for (int64_t i = 0; i < workers; ++i) {
    const std::string text = read_tail(times_file(folder, i), kMaxTimesBytes);
    record.workers.emplace_back();
    if (!read_times(text, record.workers.back(), record.setting)) {
      throw Error(ErrorCode::kFailed, "[bench] worker " + std::to_string(i) +
                                          " succeeded but left no times in " +
                                          times_file(folder, i));
    }
  }
}

CommandLine job_of(const BenchOptions& options, const ExchangePlan& plan,
                   const ScratchFolder& folder) {
  CommandLine line;
  line.local = {{"servers", std::to_string(options.servers)},
                {"workers", std::to_string(plan.workers)},
                {"out", folder.file("out")}};
  line.keys = options.keys;
  line.keys.insert({{"strategy", "sync"},
                    {"model", "mlp"},
                    {"dataset", "dummy"},
                    {"global-batch", std::to_string(plan.workers)},
                    {"micro-batch", "1"},
                    {"epochs", "0"},
                    {"steps", std::to_string(plan.warm_up + plan.steps)},
                    {"stop-after", "0"},
                    {"eval-every", "0"},
                    {"checkpoint-every", "0"},
                    {"checkpoint-dir", ""},
                    {"resume", "false"},
                    {"init-from", ""},
                    {"record", ""},
                    {"straggler", "none"},
                    {"train-samples", "0"},
                    {"test-samples", "0"},
                    {"on-worker-loss", "abort"},
                    {"transport", transport_name(plan.transport)},
                    {"optimizer", to_string(options.optimizer)}});
  return line;
}

// The worker processes of a joined exchange: the first failure ends the others.
class Workers {
 public:
  Workers(const std::string& program, const std::string& address, const ScratchFolder& folder,
          const BenchOptions& options) {
    for (int64_t i = 0; i < options.workers; ++i) {
      std::vector<std::string> words = {program, "--join", address};
      if (options.insecure) words.emplace_back("--insecure");
      const auto more = worker_words(folder, i, options.bytes.front(), false);
      words.insert(words.end(), more.begin(), more.end());
      children_.push_back(std::make_unique<Child>(StartPlan{.words = words}, false));
    }
    logs_.resize(children_.size());
    ended_.resize(children_.size());
  }

  // Returns the signal that arrived, or 0.
  int wait(HeldSignals& signals) {
    int signal = 0;
    int64_t stop_ms = -1;
    while (std::ranges::count(ended_, false) > 0) {
      if (const int came = signals.take(kPollMs); came != 0 && signal == 0) signal = came;
      reap();
      const bool stop = signal != 0 || failure_.code != 0 || failure_.signal != 0;
      if (stop && stop_ms < 0) {
        stop_ms = now_ms();
        for (const auto& child : children_) child->send(signal != 0 ? signal : SIGTERM);
      }
      if (stop && now_ms() - stop_ms > kGraceMs) {
        for (const auto& child : children_) child->send(SIGKILL);
      }
    }
    return signal;
  }

  const Ending& failure() const { return failure_; }
  // Returns the log of the worker that failed first, or all logs if none failed.
  std::string log() const {
    if (!failure_.success()) return logs_[failed_];
    std::string all;
    for (const std::string& log : logs_) all += log;
    return all;
  }

 private:
  void reap() {
    std::string bytes;
    for (size_t i = 0; i < children_.size(); ++i) {
      if (ended_[i]) continue;
      const std::optional<Ending> ending = children_[i]->poll_end();
      for (UniqueFd* fd : {&children_[i]->out, &children_[i]->err}) {
        while (fd->get() >= 0 && read_available(fd->get(), bytes) && !bytes.empty()) {
          if (logs_[i].size() < static_cast<size_t>(kMaxProcessLogBytes)) logs_[i] += bytes;
        }
      }
      if (!ending) continue;
      ended_[i] = true;
      if (ending->success() || !failure_.success()) continue;
      failure_ = *ending;
      failed_ = i;
    }
  }

  std::vector<std::unique_ptr<Child>> children_;
  std::vector<std::string> logs_;
  std::vector<bool> ended_;
  Ending failure_;
  size_t failed_ = 0;
};

}  // namespace

ExchangePlan plan_exchange(const BenchOptions& options, int64_t bytes, Transport transport,
                           int64_t workers) {
  // Shared memory is several times faster: more steps fit in the same time.
  const int64_t moved = transport == Transport::kShm ? kMovedBytes * 3 : kMovedBytes;
  ExchangePlan plan{bytes, transport, workers, 0, options.steps, false};
  if (plan.steps == 0) {
    plan.steps = std::clamp(moved / (2 * workers) / bytes, kMinPlannedSteps, kMaxPlannedSteps);
  }
  plan.warm_up = std::clamp<int64_t>(plan.steps / 10, 3, 200);
  return plan;
}

std::vector<double> exchange_us(const ExchangeRecord& record, int64_t warm_up) {
  constexpr double kNsPerUs = 1e3;
  size_t steps = SIZE_MAX;
  for (const auto& worker : record.workers) steps = std::min(steps, worker.size());
  std::vector<double> found;
  for (auto step = static_cast<size_t>(warm_up); steps != SIZE_MAX && step < steps; ++step) {
    int64_t longest = 0;
    bool finished = true;
    for (const auto& worker : record.workers) {
      finished = finished && worker[step].end >= worker[step].begin;
      longest = std::max(longest, worker[step].end - worker[step].begin);
    }
    if (finished) found.push_back(static_cast<double>(longest) / kNsPerUs);
  }
  return found;
}

OneWay one_way(const ExchangeRecord& record, int64_t warm_up) {
  constexpr double kNsPerUs = 1e3;
  PP_ASSERT(record.workers.size() == 1);
  const std::vector<ExchangeTimes>& steps = record.workers.front();
  std::vector<double> push;
  std::vector<double> pull;
  for (auto i = static_cast<size_t>(warm_up); i < steps.size(); ++i) {
    const ExchangeTimes& step = steps[i];
    if (step.pushed < step.begin || step.end < step.pushed) continue;
    push.push_back(static_cast<double>(step.pushed - step.begin) / kNsPerUs);
    pull.push_back(static_cast<double>(step.end - step.pushed) / kNsPerUs);
  }
  if (push.empty()) {
    throw Error(ErrorCode::kFailed, "[bench] no step of one worker alone was finished");
  }
  return {percentiles(push), percentiles(pull)};
}

bool read_times(const std::string& text, std::vector<ExchangeTimes>& times,
                ExchangeSetting& setting) {
  std::istringstream lines(text);
  if (!(lines >> setting.transport >> setting.optimizer >> setting.servers)) return false;
  ExchangeTimes step;
  while (lines >> step.begin >> step.pushed >> step.end) times.push_back(step);
  return lines.eof() && !times.empty();
}

std::string fallback_note(const std::string& log) {
  constexpr std::string_view kWarning = ": warning: ";
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(kWarning);
    if (at == std::string::npos || line.find("worker ") != 0) continue;
    if (line.find("socket", at) == std::string::npos) continue;
    return line.substr(at + kWarning.size());
  }
  return "";
}

ExchangeRecord run_exchange(const BenchOptions& options, const ExchangePlan& plan,
                            const std::string& program_dir) {
  const ScratchFolder folder;
  ExchangeRecord record;
  LauncherOptions launcher = plan_run(job_of(options, plan, folder), program_dir, false);
  launcher.insecure = options.insecure;
  launcher.places.resize(static_cast<size_t>(options.servers + plan.workers));
  for (int64_t i = 0; i < plan.workers; ++i) {
    launcher.places[static_cast<size_t>(options.servers + i)].arguments =
        worker_words(folder, i, plan.bytes, plan.apart);
  }
  const std::string log = folder.file("log.txt");
  const UniqueFd fd(open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (fd.get() < 0) throw Error(ErrorCode::kIo, "[bench] cannot write " + log);
  launcher.out_fd = fd.get();
  launcher.err_fd = fd.get();
  launcher.stopped_by = &record.signal;
  const int code = launch(launcher);
  if (record.signal != 0) return record;
  const std::string output = read_tail(log, kMaxProcessLogBytes);
  if (code != 0) {
    throw Error(static_cast<ErrorCode>(code),
                name_of(plan.bytes, "over " + transport_name(plan.transport)) +
                    " failed: " + failure_line(output, code));
  }
  record.note = fallback_note(output);
  read_record(folder, plan.workers, record);
  return record;
}

ExchangeRecord join_exchange(const BenchOptions& options, const std::string& program_dir,
                             HeldSignals& signals) {
  const ScratchFolder folder;
  ExchangeRecord record;
  Workers workers(program_dir + "/pushpull-worker", options.join, folder, options);
  record.signal = workers.wait(signals);
  if (record.signal != 0) return record;
  if (!workers.failure().success()) {
    const int code = workers.failure().exit_code();
    throw Error(static_cast<ErrorCode>(code),
                name_of(options.bytes.front(), "with the servers at " + options.join) +
                    " failed: " + failure_line(workers.log(), code));
  }
  record.note = fallback_note(workers.log());
  read_record(folder, options.workers, record);
  return record;
}

}  // namespace pushpull
