#include "common/help/bash_completion.h"

#include <algorithm>
#include <string_view>

#include "common/base/error.h"
#include "common/help/help_text.h"

namespace pushpull {
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
