#include "common/job/program_help.h"

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <sstream>
#include <string_view>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {

namespace {

std::string help_in_format(const std::string& format, const ProgramHelp& help,
                           const std::string& version) {
  if (format.empty()) return help_text(help);
  if (format == "man") return man_page(help, version);
  if (format == "job") return job_man_page(version);
  if (format == "bash") return bash_completion(help);
  if (format == "zsh") return zsh_completion(help);
  if (format == "fish") return fish_completion(help);
  if (format == "commands") {
    std::string out;
    for (const ProgramHelp& command : help.commands) out += last_word(command) + "\n";
    return out;
  }
  throw Error(ErrorCode::kUsage, "[usage] --help-as " + printable(format) +
                                     ": must be man, job, bash, zsh, fish or commands");
}

}  // namespace

bool print_help(const CommandLine& line, const ProgramHelp& help, const std::string& version) {
  if (line.help) {
    std::cout << help_in_format(line.help_as, help, version);
  } else if (line.version) {
    std::cout << help.name.substr(0, help.name.find(' ')) << " " << version << "\n";
  }
  return line.help || line.version;
}

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
  return in_column("  --" + help.key + (help.takes_value ? " " + value_name(help) : ""),
                   help.text + note);
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

std::string help_text(const ProgramHelp& help) {
  std::string out = help.name + ": " + help.summary + "\n\nUsage:\n";
  for (const std::string& line : help.usage) out += "  " + line + "\n";
  if (!help.commands.empty()) out += "\nCommands, each with a --help of its own:\n";
  for (const ProgramHelp& command : help.commands) {
    out += in_column("  " + last_word(command), command.summary);
  }
  out += "\nOptions:\n";
  for (const KeyHelp& option : all_options(help)) {
    out += flag_help(option, option.value_default.empty() ? "" : " [" + option.value_default + "]");
  }
  if (help.job_flags == JobFlags::kAccept) out += job_help();
  if (!help.more.empty()) out += "\n" + help.more;
  return out;
}

std::string last_word(const ProgramHelp& command) {
  return command.name.substr(command.name.rfind(' ') + 1);
}

std::vector<KeyHelp> all_options(const ProgramHelp& help) {
  std::vector<KeyHelp> options = help.options;
  options.push_back({"help", "", "print this and end", "", false});
  options.push_back({"version", "", "print the version and end", "", false});
  return options;
}

std::string value_name(const KeyHelp& option) {
  return option.value == "FILE" || option.value == "DIR" ? option.value : "VALUE";
}

std::vector<std::string> value_words(const KeyHelp& option) {
  std::vector<std::string> words;
  if (option.value.empty() || value_name(option) != "VALUE") return words;
  std::istringstream in(option.value.substr(0, option.value.find(kMoreValues)));
  for (std::string word; std::getline(in, word, '|');) words.push_back(word);
  return words;
}

}  // namespace pushpull
