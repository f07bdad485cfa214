// Completion of a program's command line in bash, fish and zsh.
#include <algorithm>
#include <string_view>

#include "common/base/error.h"
#include "common/job/program_help.h"

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

namespace {

// NAME stands for the program's function. An option is listed as --flag, or --flag=VALUES with its
// KeyHelp::value.
constexpr std::string_view kBashScript = R"bash(
# Fills COMPREPLY with what can follow $2 as a value of the kind $1.
NAME_values() {
  local kind=$1 value=$2 before='' word
  case $kind in
    FILE) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$value") ;;
    DIR) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$value") ;;
    *)
      if [[ $kind == *,... ]]; then
        kind=${kind%,...}
        [[ $value != *,* ]] || before=${value%,*},
      fi
      for word in ${kind//|/ }; do
        [[ $before$word != "$value"* ]] || COMPREPLY+=("$before$word")
      done
      [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *: ]] || compopt -o nospace
      ;;
  esac
  # bash replaces only what follows the last colon
  [[ $COMP_WORDBREAKS != *:* || $value != *:* ]] || COMPREPLY=("${COMPREPLY[@]#"${value%"${value##*:}"}"}")
}

NAME() {
  local line=${COMP_LINE:0:COMP_POINT} typed words command='' options option flag value
  COMPREPLY=()
  typed=${line##*[[:space:]]}
  read -ra words <<<"${line%"$typed"}"
  COMMAND
  options=$(NAME_options "$command")
  if [[ $typed == --*=* ]]; then
    flag=${typed%%=*} value=${typed#*=}
  else
    flag=${words[${#words[@]} - 1]} value=$typed
  fi
  for option in $options; do
    [[ $option != "$flag="* ]] || { NAME_values "${option#*=}" "$value"; return; }
  done
  if [[ $typed == -* ]]; then
    for option in $options; do
      option=${option%%=*}
      [[ $option != "$typed"* ]] || COMPREPLY+=("$option")
    done
    return
  fi
  option=$(NAME_words "$command")
  [ -z "$option" ] || NAME_values "$option" "$typed"
}
)bash";

std::string text_with(std::string text, std::string_view what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

// The script quotes them singly and splits them at blanks.
void append_bash_option(std::string& out, const KeyHelp& option) {
  PP_ASSERT(option.value.find_first_of(" '*?[\\") == std::string::npos);
  out += " --" + option.key + (option.takes_value ? "=" + option.value : "");
}

std::string bash_options(const ProgramHelp& help) {
  std::string out;
  for (const KeyHelp& option : all_options(help)) append_bash_option(out, option);
  return out.substr(1) + (help.job_flags == JobFlags::kAccept ? "'\"$job\"'" : "");
}

std::string bash_commands(const ProgramHelp& help) {
  std::string out;
  for (const ProgramHelp& command : help.commands) {
    out += (out.empty() ? "" : "|") + last_word(command);
  }
  return out;
}

}  // namespace

std::string bash_completion(const ProgramHelp& help) {
  std::string name = "_" + help.name;
  std::ranges::replace(name, '-', '_');
  std::string job;
  for (const KeyHelp& key : job_keys()) append_bash_option(job, key);
  std::string options;
  std::string words;
  for (const ProgramHelp& command : help.commands) {
    options += "    " + last_word(command) + ") echo '" + bash_options(command) + "' ;;\n";
    if (!command.words.empty()) {
      words += "    " + last_word(command) + ") echo '" + command.words + "' ;;\n";
    }
  }
  options += "    '') echo '" + bash_options(help) + "' ;;\n";
  if (!help.commands.empty()) words += "    '') echo '" + bash_commands(help) + "' ;;\n";
  const bool has_job = options.find("$job") != std::string::npos;
  // the first word that is no flag is the command
  const std::string command = help.commands.empty()
                                  ? ""
                                  : "if [[ ${#words[@]} -gt 1 && ${words[1]} != -* ]]; then "
                                    "command=${words[1]}; fi";
  std::string out =
      "# Completion of " + help.name + " in bash, made by `" + help.name +
      " --help-as bash`.\n\n# Prints the options of the command $1.\n" + name + "_options() {\n" +
      (has_job ? "  local job='" + job + "'\n" : "") + "  case $1 in\n" + options +
      "  esac\n}\n\n" + "# Prints the kind of the command's other words.\n" + name +
      "_words() {\n  case $1 in\n" + (words.empty() ? "    *) ;;\n" : words) + "  esac\n}\n";
  out += text_with(text_with(std::string(kBashScript), "  COMMAND\n",
                             command.empty() ? "" : "  " + command + "\n"),
                   "NAME", name);
  return out + "\ncomplete -F " + name + " " + help.name + "\n";
}

}  // namespace pushpull
