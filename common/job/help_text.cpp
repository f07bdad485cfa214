// The text of --help: own flags first, then the job's keys by group.
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/command_line.h"
#include "common/job/key_help.h"

namespace pushpull {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kTextColumn = 30;

// Appends the words of `text` to `line`, wrapped between kTextColumn and kColumns.
std::string in_column(std::string line, std::string_view text) {
  std::string out;
  const auto wrap = [&] {
    out += line + "\n";
    line.assign(kTextColumn - 1, ' ');
  };
  if (line.size() >= kTextColumn) wrap();
  line.resize(std::max(line.size(), kTextColumn - 1), ' ');
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    if (line.size() + 1 + word.size() > kColumns) wrap();
    line += ' ';
    line += word;
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return out + line + "\n";
}

std::string flag_help(const KeyHelp& help, const std::string& note = "") {
  return in_column("  --" + help.key + (help.takes_value ? " VALUE" : ""), help.text + note);
}

std::string job_help() {
  std::string out =
      "\nThe job, in brackets default and variable. Each key is a flag, a line of the job\n"
      "file and a variable of the environment: --global-batch 64, `global-batch = 64` and\n"
      "PUSHPULL_GLOBAL_BATCH=64 mean the same. Flags override the environment, the\n"
      "environment overrides the file. docs/job-file.md explains every key.\n";
  std::string group;
  for (const KeyHelp& help : job_keys()) {
    if (help.group != group) out += "\n" + help.group + ":\n";
    group = help.group;
    out += flag_help(help);
    out += in_column("", "[" + help.value_default + "; " + environment_name(help.key) + "]");
  }
  return out;
}

}  // namespace

std::string help_text(const std::string& summary, const std::vector<std::string>& usage,
                      const std::vector<KeyHelp>& local_options, JobFlags job_flags) {
  std::string out = summary + "\n\nUsage:\n";
  for (const std::string& line : usage) out += "  " + line + "\n";
  out += "\nOptions:\n";
  for (const KeyHelp& option : local_options) {
    out += flag_help(option, option.value_default.empty() ? "" : " [" + option.value_default + "]");
  }
  out += flag_help({"help", "", "print this and end", "", false});
  out += flag_help({"version", "", "print the version and end", "", false});
  if (job_flags == JobFlags::kAccept) out += job_help();
  return out;
}

}  // namespace pushpull
