#include "common/help/zsh_completion.h"

#include <string_view>

#include "common/help/help_text.h"

namespace pushpull {
namespace {

// Escapes `special` characters by a backslash, and quotes for a word in single quotes.
std::string zsh_escaped(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (special.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// Returns the action of _arguments that completes a value.
std::string zsh_action(const KeyHelp& option) {
  if (option.value == "FILE") return "_files";
  if (option.value == "DIR") return "_files -/";
  std::string words;
  for (const std::string& word : value_words(option)) words += " " + zsh_escaped(word, ":");
  if (words.empty()) return " ";
  if (option.value.ends_with(kMoreValues)) return "_sequence compadd -" + words;
  return "(" + words.substr(1) + ")";
}

std::string zsh_spec(const KeyHelp& option) {
  std::string out = "'--" + option.key + (option.takes_value ? "=" : "") + "[" +
                    zsh_escaped(option.text, "[]\\:") + "]";
  if (option.takes_value) out += ":" + value_name(option) + ":" + zsh_action(option);
  return out + "'";
}

std::string zsh_arguments(const ProgramHelp& help, const std::string& indent) {
  std::string out = indent + "_arguments -S";
  for (const KeyHelp& option : all_options(help)) out += " \\\n" + indent + "  " + zsh_spec(option);
  if (help.job_flags == JobFlags::kAccept) {
    for (const KeyHelp& key : job_keys()) out += " \\\n" + indent + "  " + zsh_spec(key);
  }
  if (!help.words.empty()) {
    out += " \\\n" + indent + "  '*:" + help.words + ":" +
           zsh_action({.key = {}, .value_default = {}, .text = {}, .value = help.words}) + "'";
  }
  return out + "\n";
}

}  // namespace

std::string zsh_completion(const ProgramHelp& help) {
  std::string out = "#compdef " + help.name + "\n# Completion of " + help.name +
                    " in zsh, made by `" + help.name + " --help-as zsh`.\n";
  if (help.commands.empty()) return out + zsh_arguments(help, "");
  out += "if (( CURRENT == 2 )); then\n  local -a commands=(\n";
  for (const ProgramHelp& command : help.commands) {
    out += "    '" + last_word(command) + ":" + zsh_escaped(command.summary, ":\\") + "'\n";
  }
  out +=
      "  )\n  _describe command commands\n  return\nfi\nshift words\n(( CURRENT-- ))\ncase "
      "$words[1] in\n";
  for (const ProgramHelp& command : help.commands) {
    out += "  " + last_word(command) + ")\n" + zsh_arguments(command, "    ") + "    ;;\n";
  }
  return out + "esac\n";
}

}  // namespace pushpull
