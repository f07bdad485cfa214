// `pushpull plan`.

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "cli/commands.h"
#include "cli/plan_measure.h"
#include "common/base/error.h"
#include "common/base/parse_json.h"
#include "common/base/text.h"
#include "common/job/command_line.h"
#include "common/job/job.h"
#include "common/job/program_help.h"
#include "datasets/dataset.h"
#include "models/model.h"
#include "models/stages.h"

namespace pushpull {
namespace {

using nlohmann::ordered_json;

const std::vector<KeyHelp>& plan_options() {
  static const std::vector<KeyHelp> options = {
      takes("FILE", {"job", "", "job file (INI) whose model is divided; keys as flags do as well"}),
      {"measure", "",
       "measure the pieces of the model on this processor, and balance by that where balance = "
       "auto",
       "", false},
      {"json", "", "print JSON", "", false},
  };
  return options;
}

std::string fixed(double value, int digits) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << value;
  return text.str();
}

std::string in_mib(int64_t bytes) { return fixed(static_cast<double>(bytes) / (1 << 20), 1); }

// The measured times of a division into stages.
struct Measured {
  std::string balance;            // as a value of the key
  std::vector<PassCosts> passes;  // seconds, by stage
  std::vector<double> bubbles;    // by stage
  // Returns the seconds of a micro-batch in the stage that takes longest: a pipeline is as fast as this one.
  double slowest() const {
    double most = 0.0;
    for (const PassCosts& pass : passes) most = std::max(most, pass.forward + pass.backward);
    return most;
  }
};

// The division that the FLOP suggest, or the job, and, where balance = auto, the one by measured times.
struct Measurement {
  Measured predicted;
  Measured measured;
};

Measured measured_of(const Job& job, const std::vector<PassCosts>& pieces,
                     const std::vector<int64_t>& pieces_of_stages) {
  Measured out;
  size_t piece = 0;
  for (const int64_t count : pieces_of_stages) {
    out.balance += (out.balance.empty() ? "" : ",") + std::to_string(count);
    PassCosts stage;
    for (const size_t end = piece + static_cast<size_t>(count); piece < end; ++piece) {
      stage.forward += pieces[piece].forward;
      stage.backward += pieces[piece].backward;
    }
    out.passes.push_back(stage);
  }
  out.bubbles = stage_bubbles(job.stage_schedule, out.passes, job.micro_batches());
  return out;
}

Measurement measure(const Job& job, const Dataset& dataset, const std::vector<StagePlan>& plan) {
  const std::vector<PassCosts> pieces = measure_pieces(job, dataset);
  std::vector<int64_t> planned;
  for (const StagePlan& stage : plan) planned.push_back(stage.pieces);
  Measurement out{measured_of(job, pieces, planned), {}};
  out.measured = out.predicted;
  if (job.balance != "auto") return out;
  std::vector<int64_t> nanoseconds;
  for (const PassCosts& piece : pieces) {
    nanoseconds.push_back(static_cast<int64_t>(1e9 * (piece.forward + piece.backward)));
  }
  out.measured = measured_of(job, pieces, balanced(nanoseconds, std::ssize(plan)));
  return out;
}

void print_measured(std::ostream& out, const Job& job, const Measurement& measurement) {
  const auto ms = [](double seconds) { return fixed(1e3 * seconds, 2); };
  const Measured& best = measurement.measured;
  constexpr int kWidth = 13;
  out << "\nmeasured, balance = " << best.balance << "\n" << std::setw(5) << "stage";
  for (const char* title : {"forward ms", "backward ms", "bubble %"}) {
    out << " " << std::setw(kWidth) << title;
  }
  out << "\n";
  for (size_t s = 0; s < best.passes.size(); ++s) {
    out << std::setw(5) << s;
    for (const std::string& cell : {ms(best.passes[s].forward), ms(best.passes[s].backward),
                                    fixed(100 * best.bubbles[s], 1)}) {
      out << " " << std::setw(kWidth) << cell;
    }
    out << "\n";
  }
  const auto slowest = [&](const Measured& of) {
    return "balance = " + of.balance + ", whose slowest stage takes " + ms(of.slowest()) +
           " ms for a micro-batch\n";
  };
  out << (job.balance == "auto" ? "by FLOP:     " : "the job's:   ")
      << slowest(measurement.predicted);
  if (job.balance == "auto") out << "by the time: " << slowest(best);
}

ordered_json json_of(const Measured& measured) {
  ordered_json j;
  j["balance"] = measured.balance;
  j["slowest_seconds"] = measured.slowest();
  j["stages"] = ordered_json::array();
  for (size_t s = 0; s < measured.passes.size(); ++s) {
    j["stages"].push_back({{"forward_seconds", measured.passes[s].forward},
                           {"backward_seconds", measured.passes[s].backward},
                           {"bubble", measured.bubbles[s]}});
  }
  return j;
}

void print_table(std::ostream& out, const std::vector<StagePlan>& stages) {
  constexpr int kWidth = 13;
  out << std::right << std::setw(5) << "stage";
  for (const char* title : {"layers", "parameters", "MFLOP", "weights MiB", "micro-batches",
                            "arena MiB", "KiB to next", "bubble %"}) {
    out << " " << std::setw(kWidth) << title;
  }
  out << "\n";
  for (size_t s = 0; s < stages.size(); ++s) {
    const StagePlan& stage = stages[s];
    out << std::setw(5) << s;
    for (const std::string& cell :
         {std::to_string(stage.layers), std::to_string(stage.parameters),
          fixed(static_cast<double>(stage.flops) / 1e6, 1), in_mib(stage.weights_bytes),
          std::to_string(stage.slots), in_mib(stage.arena_bytes),
          fixed(static_cast<double>(stage.bytes_out) / 1024, 1), fixed(100 * stage.bubble, 1)}) {
      out << " " << std::setw(kWidth) << cell;
    }
    out << "\n";
  }
}

void print_json(std::ostream& out, const Job& job, const std::vector<StagePlan>& stages,
                const std::optional<Measurement>& measurement) {
  ordered_json j;
  j["model"] = job.model;
  j["schedule"] = job.stage_schedule;
  j["balance"] = job.balance;
  j["micro_batches"] = job.micro_batches();
  j["stages"] = ordered_json::array();
  for (const StagePlan& stage : stages) {
    j["stages"].push_back({{"pieces", stage.pieces},
                           {"layers", stage.layers},
                           {"parameters", stage.parameters},
                           {"flops", stage.flops},
                           {"memory_bytes", 2 * stage.weights_bytes + stage.arena_bytes},
                           {"weights_bytes", stage.weights_bytes},
                           {"slots", stage.slots},
                           {"arena_bytes", stage.arena_bytes},
                           {"bytes_out", stage.bytes_out},
                           {"bubble", stage.bubble}});
  }
  if (measurement) {
    j["measured"] = {{"predicted", json_of(measurement->predicted)},
                     {"balanced", json_of(measurement->measured)}};
  }
  out << json_text(j) << "\n";
}

}  // namespace

const ProgramHelp& plan_help() {
  static const ProgramHelp help = {
      .name = "pushpull plan",
      .summary = "what each stage of a divided model has and costs",
      .usage = {"pushpull plan --job FILE [--stages N] [--KEY VALUE ...] [--measure] [--json]"},
      .options = plan_options(),
      .job_flags = JobFlags::kAccept};
  return help;
}

int plan_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, plan_options());
  if (print_help(line, plan_help(), PUSHPULL_VERSION)) return 0;
  if (!line.positional.empty()) {
    throw Error(ErrorCode::kUsage, "[plan] '" + printable(line.positional.front()) +
                                       "' is not a flag; give the job file as --job FILE");
  }
  if (!line.local.contains("job") && line.keys.empty()) {
    throw Error(ErrorCode::kUsage, "[plan] a job is needed; give it as --job FILE");
  }
  // the number alone: a job in which no group can train may have workers with stages
  std::map<std::string, std::string> keys = line.keys;
  const auto given = keys.extract("stages");
  const Job job = parse_job(line.own("job", ""), keys);
  const std::string text =
      given ? given.mapped() : std::to_string(std::max<int64_t>(job.stages, 2));
  const std::optional<int64_t> stages = parse_int64(text);
  if (!stages || *stages < 1) {
    throw Error(ErrorCode::kUsage,
                "[plan] --stages " + printable(text) + ": must be a whole number from 1 on");
  }
  refuse_external(job, "[plan] " + line.own("job", "the job"),
                  "the programs that are its workers divide it themselves");
  const std::unique_ptr<Dataset> dataset = open_dataset(job);
  const std::vector<StagePlan> plan = plan_stages(job, dataset->fields(), *stages);
  std::optional<Measurement> measurement;
  if (line.local.contains("measure")) measurement = measure(job, *dataset, plan);
  if (line.local.contains("json")) {
    print_json(std::cout, job, plan, measurement);
  } else {
    print_table(std::cout, plan);
    if (measurement) print_measured(std::cout, job, *measurement);
  }
  return 0;
}

}  // namespace pushpull
