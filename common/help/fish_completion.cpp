#include "common/help/fish_completion.h"

#include <string_view>

#include "common/help/help_text.h"

namespace pushpull {
namespace {

std::string fish_word(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

// `start` is the part of the line that selects the program and command.
std::string fish_line(const std::string& start, const KeyHelp& option) {
  std::string out = start + " -l " + option.key;
  if (option.takes_value) out += option.value == "FILE" ? " -rF" : " -x";
  std::string words;
  for (const std::string& word : value_words(option)) words += " " + word;
  if (option.value == "DIR") words = " (__fish_complete_directories)";
  // fish's own function completes lists between commas
  if (option.value.ends_with(kMoreValues)) {
    words = " (__fish_append , (string split ' ' -- " + fish_word(words.substr(1)) + "))";
  }
  if (!words.empty()) out += " -a " + fish_word(words.substr(1));
  return out + " -d " + fish_word(option.text) + "\n";
}

std::string fish_lines(const std::string& start, const ProgramHelp& help) {
  std::string out;
  for (const KeyHelp& option : all_options(help)) out += fish_line(start, option);
  if (help.job_flags == JobFlags::kAccept) {
    for (const KeyHelp& key : job_keys()) out += fish_line(start, key);
  }
  if (help.words == "FILE") out += start + " -F\n";
  if (help.words == "DIR") out += start + " -xa '(__fish_complete_directories)'\n";
  return out;
}

}  // namespace

std::string fish_completion(const ProgramHelp& help) {
  const std::string start = "complete -c " + help.name;
  std::string out = "# Completion of " + help.name + " in fish, made by `" + help.name +
                    " --help-as fish`.\n" + start + " -f\n";
  if (help.commands.empty()) return out + fish_lines(start, help);
  const std::string first = start + " -n __fish_use_subcommand";
  for (const ProgramHelp& command : help.commands) {
    out += first + " -a " + last_word(command) + " -d " + fish_word(command.summary) + "\n";
  }
  out += fish_lines(first, help);
  for (const ProgramHelp& command : help.commands) {
    out +=
        fish_lines(start + " -n '__fish_seen_subcommand_from " + last_word(command) + "'", command);
  }
  return out;
}

}  // namespace pushpull
