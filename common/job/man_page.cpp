// Manual pages in the language of man(7).
#include <algorithm>
#include <cctype>
#include <string_view>

#include "common/job/job_keys.h"
#include "common/job/program_help.h"

namespace pushpull {
namespace {

// Escapes what groff would interpret or replace by a typographic character. `code` becomes bold.
std::string roff(std::string_view text) {
  std::string out;
  bool bold = false;
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      case '`':
        bold = !bold;
        out += bold ? "\\fB" : "\\fR";
        break;
      default:
        out += c;
    }
  }
  // a line that begins with a dot would be a request
  return out.starts_with('.') ? "\\&" + out : out;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }

// Returns "pushpull-run" for "pushpull run".
std::string page_name(const ProgramHelp& help) {
  std::string name = help.name;
  std::ranges::replace(name, ' ', '-');
  return name;
}

// Hyphens and adjusted lines would put flags and addresses in pieces.
std::string page_head(const std::string& name, const std::string& section,
                      const std::string& summary, const std::string& version) {
  std::string title = name;
  std::ranges::transform(title, title.begin(), [](unsigned char c) { return std::toupper(c); });
  return ".\\\" Made from the tables of options by scripts/manual.sh.\n.TH " + roff(title) + " " +
         section + " \"\" \"pushpull " + version + "\" \"pushpull\"\n.nh\n.ad l\n.SH NAME\n" +
         roff(name) + " \\- " + roff(summary) + "\n";
}

std::string tagged(const std::string& tag, const std::string& text) {
  return ".TP\n" + tag + "\n" + text + "\n";
}

std::string option_entry(const KeyHelp& option) {
  std::string tag = bold("--" + option.key);
  if (option.takes_value) tag += " " + italic(value_name(option));
  std::string text = roff(option.text);
  if (!option.value_default.empty()) text += ".\nDefault: " + roff(option.value_default);
  return tagged(tag, text.ends_with('.') ? text : text + ".");
}

std::string synopsis_section(const ProgramHelp& help) {
  std::string out = ".SH SYNOPSIS\n";
  for (const std::string& line : help.usage) {
    const bool goes_on = line.starts_with(' ');
    if (!goes_on) out += &line == &help.usage.front() ? "" : ".br\n";
    const size_t first = std::min(line.find_first_not_of(' '), line.size());
    const bool named = !goes_on && line.starts_with(help.name);
    out += named ? bold(help.name) + roff(line.substr(help.name.size())) : roff(line.substr(first));
    out += "\n";
  }
  return out;
}

std::string description_section(const ProgramHelp& help) {
  std::string out = ".SH DESCRIPTION\n" + bold(help.name) + ": " + roff(help.summary) + ".\n";
  if (help.commands.empty()) return out;
  out += ".SH COMMANDS\n";
  for (const ProgramHelp& command : help.commands) {
    out += tagged(bold(last_word(command)),
                  roff(command.summary) + ". See\n" + bold(page_name(command)) + "(1).");
  }
  return out;
}

std::string options_section(const ProgramHelp& help) {
  std::string out = ".SH OPTIONS\n";
  for (const KeyHelp& option : all_options(help)) out += option_entry(option);
  if (help.job_flags == JobFlags::kAccept) {
    out += ".PP\nEach key of the job is an option as well, such as\n" + bold("--global-batch 64") +
           ". See\n.BR pushpull\\-job (5).\n";
  }
  if (!help.more.empty()) out += ".PP\n.nf\n" + roff(help.more) + ".fi\n";
  return out;
}

std::string environment_section(const ProgramHelp& help) {
  std::string entries;
  const bool has_key =
      std::ranges::any_of(help.options, [](const KeyHelp& option) { return option.key == "key"; });
  if (has_key) {
    entries += tagged(bold("PUSHPULL_KEY_FILE"),
                      "The file with the job's key, if there is no\n" + bold("--key") + ".");
  }
  if (help.job_flags == JobFlags::kAccept) {
    entries += tagged(bold("PUSHPULL_GLOBAL_BATCH") + ", ...",
                      "Keys of the job: see\n.BR pushpull\\-job (5).");
  }
  return entries.empty() ? "" : ".SH ENVIRONMENT\n" + entries;
}

std::string page_tail(const std::string& name) {
  std::string out =
      ".SH EXIT STATUS\n"
      "0: done. 2: a wrong flag, key or value. 75: stopped by a signal, with a checkpoint; the "
      "same\n"
      "command goes on from it.\n.I exit\\-codes.md\nlists all codes.\n"
      ".SH FILES\n" +
      tagged(italic("~/.config/pushpull/key"), "The user's key, made at its first use.") +
      tagged(italic("/usr/share/doc/pushpull"),
             "The pages of the documentation, or\n.I share/doc/pushpull\nbeside the programs.") +
      ".SH SEE ALSO\n";
  for (const char* other : {"pushpull", "pushpull-server", "pushpull-worker"}) {
    if (name != other) out += ".BR " + roff(other) + " (1),\n";
  }
  return out + ".BR pushpull\\-job (5)\n";
}

std::string key_entry(const JobKey& key) {
  std::string text = roff(key.help.text) + ".\n.br\nMust be " + roff(key.expects) +
                     ". Default: " + roff(key.help.value_default) +
                     ".\n.br\nVariable: " + roff(environment_name(key.help.key)) + ".";
  if (key.at_resume == AtResume::kMayChange) text += "\nMay change at a resume.";
  return tagged(bold(key.help.key) + " = " + italic(value_name(key.help)), text);
}

}  // namespace

std::string man_page(const ProgramHelp& help, const std::string& version) {
  const std::string name = page_name(help);
  return page_head(name, "1", help.summary, version) + synopsis_section(help) +
         description_section(help) + options_section(help) + environment_section(help) +
         page_tail(name);
}

std::string job_man_page(const std::string& version) {
  std::string out = page_head("pushpull-job", "5", "the job file of pushpull", version) +
                    ".SH DESCRIPTION\n"
                    "A job file has a line\n.I key = value\nfor each key that differs from its "
                    "default. A # begins a comment.\nEach key is also a flag of the programs that "
                    "start a job, and a variable of the environment:\n" +
                    bold("--global-batch 64") + ",\n" + bold("global-batch = 64") + " and\n" +
                    bold("PUSHPULL_GLOBAL_BATCH=64") +
                    " mean the same. A flag overrides a variable, and a variable overrides the "
                    "file.\n";
  std::string group;
  for (const JobKey& key : job_key_table()) {
    if (key.help.group != group) {
      group = key.help.group;
      std::string title = group;
      std::ranges::transform(title, title.begin(), [](unsigned char c) { return std::toupper(c); });
      out += ".SH " + roff(title) + "\n";
    }
    out += key_entry(key);
  }
  return out +
         ".SH SEE ALSO\n.BR pushpull (1),\n.BR pushpull\\-run (1),\n.BR pushpull\\-server "
         "(1)\n.PP\nThe page\n.I job\\-file.md\nexplains every key.\n";
}

}  // namespace pushpull
