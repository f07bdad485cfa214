// `pushpull plan`.

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands.h"
#include "common/base/error.h"
#include "common/base/parse_json.h"
#include "common/base/text.h"
#include "common/job/command_line.h"
#include "common/job/job.h"
#include "common/job/program_help.h"
#include "datasets/dataset.h"
#include "models/model.h"

namespace pushpull {
namespace {

using nlohmann::ordered_json;

const std::vector<KeyHelp>& plan_options() {
  static const std::vector<KeyHelp> options = {
      takes("FILE", {"job", "", "job file (INI) whose model is divided; keys as flags do as well"}),
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

void print_json(std::ostream& out, const Job& job, const std::vector<StagePlan>& stages) {
  ordered_json j;
  j["model"] = job.model;
  j["schedule"] = job.stage_schedule;
  j["balance"] = job.balance;
  j["micro_batches"] = job.micro_batches();
  j["stages"] = ordered_json::array();
  for (const StagePlan& stage : stages) {
    j["stages"].push_back({{"layers", stage.layers},
                           {"parameters", stage.parameters},
                           {"flops", stage.flops},
                           {"memory_bytes", 2 * stage.weights_bytes + stage.arena_bytes},
                           {"weights_bytes", stage.weights_bytes},
                           {"slots", stage.slots},
                           {"arena_bytes", stage.arena_bytes},
                           {"bytes_out", stage.bytes_out},
                           {"bubble", stage.bubble}});
  }
  out << json_text(j) << "\n";
}

}  // namespace

const ProgramHelp& plan_help() {
  static const ProgramHelp help = {
      .name = "pushpull plan",
      .summary = "what each stage of a divided model has and costs",
      .usage = {"pushpull plan --job FILE [--stages N] [--KEY VALUE ...] [--json]"},
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
  if (line.local.contains("json")) {
    print_json(std::cout, job, plan);
  } else {
    print_table(std::cout, plan);
  }
  return 0;
}

}  // namespace pushpull
