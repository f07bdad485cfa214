// `pushpull replay`.

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/replay.h"
#include "common/base/error.h"
#include "common/base/parse_json.h"
#include "common/base/text.h"
#include "common/io/checkpoint.h"
#include "common/io/file.h"
#include "common/io/safetensors.h"
#include "common/job/command_line.h"
#include "common/job/job.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"
#include "ps/report/run_recorder.h"
#include "worker/devices.h"

namespace pushpull {
namespace {

using nlohmann::ordered_json;

const std::vector<KeyHelp>& replay_options() {
  static const std::vector<KeyHelp> options = {
      takes("FILE", {"job", "the record's", "job file; its keys must fit the record's job"}),
      takes("DIR", {"out", "pushpull-replay", "folder for summary.json and model.safetensors"}),
      {"stop-at", "the end", "stop after this many updates of the record's order"},
      takes("DIR", {"data-dir", "the job's", "folder of the data on this machine"}),
      takes(kDeviceWords, {"device", "cpu", "device to compute on: cpu, auto, cuda, cuda:N"}),
      takes("DIR", {"checkpoint", "", "folder of the checkpoint that a resumed run began with"}),
  };
  return options;
}

std::optional<size_t> stop_at(const CommandLine& line, const RunRecord& record) {
  const auto found = line.local.find("stop-at");
  if (found == line.local.end()) return std::nullopt;
  const std::optional<int64_t> value = parse_int64(found->second);
  if (!value || *value < 0 || *value > std::ssize(record.updates)) {
    throw Error(ErrorCode::kUsage, "[replay] --stop-at " + printable(found->second) +
                                       ": must be a whole number from 0 to " +
                                       std::to_string(record.updates.size()) +
                                       ", the record's updates");
  }
  return static_cast<size_t>(*value);
}

void check_same_ground(const RunRecord& record, const Dataset& dataset, Model& model) {
  if (dataset.digest() != record.data_digest) {
    throw Error(ErrorCode::kData, "[replay] the data are not those of the run: digest " +
                                      dataset.digest().substr(0, 12) + ", the record has " +
                                      record.data_digest.substr(0, 12) +
                                      "; --data-dir names their folder");
  }
  if (table_sha256(model.table()) != record.table_sha256) {
    throw Error(
        ErrorCode::kData,
        "[replay] this program's model has different tensors than the run's: replay with the "
        "version that recorded it");
  }
  const std::string here = model.numerics();
  if (here == record.numerics) {
    if (record.choices != model.choices()) model.choose(record.choices);
  } else {
    std::cerr << "[replay] the run computed with \"" << record.numerics
              << "\", this machine with \"" << here << "\": the bits may differ" << std::endl;
  }
}

void write_model(const std::string& path, const TensorTable& table,
                 const std::vector<float>& weights) {
  std::vector<NamedTensor> tensors;
  for (const TensorInfo& t : table.tensors) {
    tensors.push_back(
        {t.name, t.shape,
         std::span(weights).subspan(static_cast<size_t>(t.offset), static_cast<size_t>(t.size))});
  }
  write_safetensors(path + ".tmp", tensors, {{"format", "pt"}});
  std::error_code error;
  std::filesystem::rename(path + ".tmp", path, error);
  if (error) throw_io_error("rename", path + ".tmp", error.value(), " (to " + path + ")");
}

ordered_json push_json(const RecordedPush& push) {
  return {{"worker", push.rank},
          {"step", push.step},
          {"micro_batches", {push.range.lo, push.range.hi}},
          {"read_versions", push.reads}};
}

ordered_json not_finite_json(const FirstNotFinite& found) {
  ordered_json out;
  out["update"] = found.update;
  out["in"] = found.in_weight ? "weight" : "loss or gradient";
  if (found.update > 0) {
    out["server"] = found.at.server;
    out["push"] = push_json(found.push);
  }
  out["tensor"] = found.tensor.empty() ? ordered_json(nullptr) : ordered_json(found.tensor);
  if (found.computed) out["computed"] = push_json(*found.computed);
  out["text"] = found.text;
  return out;
}

std::string summary_text(const RunRecord& record, const Job& job, const ReplayResult& result,
                         const std::string& numerics, double seconds) {
  ordered_json out;
  out["strategy"] = job.strategy.to_string();
  out["servers"] = record.servers;
  out["pushes"] = record.pushes.size();
  out["updates"] = result.done;
  out["updates_recorded"] = record.updates.size();
  out["start_weights_sha256"] = record.start.weights_sha256;
  out["weights_sha256"] = result.weights_sha256;
  out["recorded_weights_sha256"] =
      record.weights_sha256.empty() ? ordered_json(nullptr) : ordered_json(record.weights_sha256);
  out["verified"] = result.verified ? ordered_json(*result.verified) : ordered_json(nullptr);
  out["incomplete"] = record.incomplete.empty()
                          ? ordered_json(nullptr)
                          : ordered_json(printable(record.incomplete, kMaxPathBytes));
  out["first_not_finite"] =
      result.first_not_finite ? not_finite_json(*result.first_not_finite) : ordered_json(nullptr);
  out["same_numerics"] = numerics == record.numerics;
  out["seconds"] = seconds;
  return json_text(out, 2) + "\n";
}

void print_result(const RunRecord& record, const ReplayResult& result, const std::string& out) {
  const size_t pushes = record.pushes.size();
  std::cout << "replayed    " << result.done << " of "
            << plural(static_cast<int64_t>(record.updates.size()), "update") << ", " << pushes
            << (pushes == 1 ? " push, " : " pushes, ") << plural(record.servers, "server") << "\n"
            << "weights     " << result.weights_sha256 << "\n"
            << "verified    ";
  if (result.verified) {
    std::cout << (*result.verified ? "yes: the bits of the run" : "NO: the run has other weights");
  } else if (result.done < record.updates.size()) {
    std::cout << "-, stopped before the end";
  } else {
    std::cout << "-, the run did not finish";
  }
  std::cout << "\n";
  if (!record.incomplete.empty())
    std::cout << "incomplete  " << printable(record.incomplete, kMaxPathBytes) << "\n";
  if (result.first_not_finite) std::cout << "not finite  " << result.first_not_finite->text << "\n";
  std::cout << "written to  " << out << std::endl;
}

// Prints a line every two seconds, so that a long replay shows progress.
class Progress {
 public:
  explicit Progress(size_t updates) : updates_(updates) {}
  void operator()(size_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (now - printed_at_ < std::chrono::seconds(2)) return;
    printed_at_ = now;
    std::cout << "update " << done << " of " << updates_ << std::endl;
  }

 private:
  size_t updates_;
  std::chrono::steady_clock::time_point printed_at_ = std::chrono::steady_clock::now();
};

}  // namespace

Job job_to_replay(const RunRecord& record, const std::optional<Job>& given,
                  const std::string& given_name) {
  Job job = parse_job_text(record.job_ini, "the record's job");
  // The straggler only slows the run down.
  job.straggler = {};
  if (!given) return job;
  std::string names;
  for (const std::string& key : keys_that_forbid_resume(job, *given)) {
    names += (names.empty() ? "" : ", ") + key;
  }
  if (!names.empty()) {
    throw Error(ErrorCode::kUsage,
                "[replay] " + given_name +
                    " is a different job than the record's; these keys determine the "
                    "weights and differ: " +
                    names + "; without --job, the record's job is used");
  }
  job.data_dir = given->data_dir;
  job.init_from = given->init_from.empty() ? job.init_from : given->init_from;
  return job;
}

std::shared_ptr<const FlatState> start_to_replay(const RunRecord& record, const Job& job,
                                                 const TensorTable& table,
                                                 const std::string& checkpoint) {
  auto out = std::make_shared<FlatState>();
  std::string from;
  if (!checkpoint.empty() && record.start.kind != StartKind::kResumed) {
    throw Error(ErrorCode::kUsage,
                "[replay] --checkpoint " + checkpoint +
                    ": the recorded run was not resumed from a checkpoint; remove it");
  }
  if (record.start.kind == StartKind::kInitFrom) {
    from = job.init_from;
    out->weights = weights_of_file(job, table).weights;
  } else if (record.start.kind == StartKind::kResumed) {
    const std::string wanted = "step " + std::to_string(record.start.step);
    if (checkpoint.empty()) {
      throw Error(ErrorCode::kUsage, "[replay] the run was resumed at " + wanted +
                                         ": give the folder of that checkpoint as --checkpoint");
    }
    from = checkpoint;
    // In a folder of several checkpoints, chooses the one that the run started from.
    std::error_code unreadable;  // named by the one that reads it
    if (!std::filesystem::exists(checkpoint + "/" + kStateFile, unreadable)) {
      const auto all = whole_checkpoints(checkpoint);
      const auto found = all.find(record.start.step);
      if (found == all.end()) {
        throw Error(ErrorCode::kData, "[replay] " + checkpoint + " holds no checkpoint of " +
                                          wanted + ", with which the run began");
      }
      from = found->second;
    }
    Checkpoint state = read_checkpoint(from);
    out->step = state.state.step;
    out->updates = state.state.updates;
    out->weights = std::move(state.weights);
    out->slots = std::move(state.slots);
  } else {
    out = nullptr;
  }
  const bool sizes_fit = !out || std::ssize(out->weights) == table.total;
  const RecordedStart here =
      sizes_fit ? recorded_start(job, table, out.get(), record.start.kind == StartKind::kResumed)
                : RecordedStart{};
  if (here == record.start) return out;
  throw Error(ErrorCode::kData, "[replay] " + (from.empty() ? "the initial weights" : from) +
                                    " are not what the run began with: weights " +
                                    here.weights_sha256.substr(0, 12) + ", the record has " +
                                    record.start.weights_sha256.substr(0, 12));
}

const ProgramHelp& replay_help() {
  static const ProgramHelp help = {
      .name = "pushpull replay",
      .summary = "computes a recorded run again, in one process, to the same bits",
      .usage = {"pushpull replay FILE [--job FILE] [--out DIR] [--stop-at N] [--data-dir DIR] "
                "[--checkpoint DIR]"},
      .options = replay_options(),
      .words = "FILE"};
  return help;
}

int replay_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, replay_options(), JobFlags::kRefuse);
  if (print_help(line, replay_help(), PUSHPULL_VERSION)) return 0;
  if (line.positional.size() != 1) {
    throw Error(ErrorCode::kUsage, "[replay] one record is needed: pushpull replay FILE");
  }
  const RunRecord record = read_record(line.positional.front());
  const std::string job_file = line.own("job", "");
  std::optional<Job> given;
  if (!job_file.empty()) given = parse_job(job_file, {});
  const Job job = job_to_replay(record, given, job_file);
  refuse_external(job, "[replay] " + line.positional.front(), "start the job again with it");
  const std::optional<size_t> stop = stop_at(line, record);
  const std::unique_ptr<Dataset> dataset = open_dataset(job, line.own("data-dir", ""));
  const device::DeviceName device =
      choose_device(line.own("device", ""),
                    [](const std::string& text) { std::cerr << "[replay] " << text << std::endl; });
  if (job.stages > 1 && device.kind != device::DeviceName::kCpu &&
      !line.own("device", "").empty()) {
    throw Error(ErrorCode::kUsage, "[replay] --device " + line.own("device", "") +
                                       ": the run had stages, which compute on the processor");
  }
  const std::unique_ptr<Model> model = job.stages > 1
                                           ? make_staged_model(job, dataset->fields(), job.stages)
                                           : make_model(job, dataset->fields(), device);
  check_same_ground(record, *dataset, *model);
  const auto start = start_to_replay(record, job, model->table(), line.own("checkpoint", ""));
  const std::string out = line.own("out", "pushpull-replay");
  std::error_code error;
  std::filesystem::create_directories(out, error);
  if (!error) std::filesystem::remove(out + "/summary.json", error);
  if (error) {
    throw Error(ErrorCode::kIo,
                "[replay] cannot write to the folder " + out + ": " + error.message());
  }
  const auto began = std::chrono::steady_clock::now();
  const ReplayResult result = replay({record, job, *dataset, *model, start.get(), stop,
                                      Progress(stop.value_or(record.updates.size()))});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  write_model(out + "/model.safetensors", model->table(), result.weights);
  write_file(out + "/summary.json",
             summary_text(record, job, result, model->numerics(), took.count()));
  print_result(record, result, out);
  if (result.verified.value_or(true)) return 0;
  throw Error(ErrorCode::kFailed,
              "[replay] the weights differ from the run's: " + result.weights_sha256.substr(0, 12) +
                  " against " + record.weights_sha256.substr(0, 12));
}

}  // namespace pushpull
