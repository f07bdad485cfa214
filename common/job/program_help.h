// A program or command as its users see it, and the texts that are made from its description:
// --help, manual pages, completion of shells.
#pragma once

#include <string>
#include <vector>

#include "common/job/command_line.h"
#include "common/job/job_keys.h"

namespace pushpull {

// One program or command as its users see it. --help, the man page and the completion of shells are
// made from this description and from nothing else. Plain data; any thread.
struct ProgramHelp {
  std::string name;                   // "pushpull run"
  std::string summary;                // "trains on this machine"
  std::vector<std::string> usage;     // command lines; one that begins with a blank continues
  std::vector<KeyHelp> options = {};  // its own flags
  JobFlags job_flags = JobFlags::kRefuse;
  std::string words = {};                  // its positional words, as KeyHelp::value
  std::string more = {};                   // indented text below the options, or ""
  std::vector<ProgramHelp> commands = {};  // of `pushpull`
};

// Prints what --help, --version or the hidden --help-as asks for on standard output. Returns false
// if the command line has none of them. --help-as FORMAT serves scripts/manual.sh: man, job (the
// page of the job file), bash, zsh, fish, or commands (their names). Throws Error(kUsage) for
// another format.
bool print_help(const CommandLine& line, const ProgramHelp& help, const std::string& version);

// The text of --help: a program's own flags, then the job's keys by group. Any thread.

// Returns the whole text, wrapped at 100 columns.
std::string help_text(const ProgramHelp& help);

// Returns the name of a command without its program: "run".
std::string last_word(const ProgramHelp& command);

// Returns a program's own flags with --help and --version, which every program has.
std::vector<KeyHelp> all_options(const ProgramHelp& help);

// Returns the name of an option's value for users: FILE, DIR, or VALUE.
std::string value_name(const KeyHelp& option);

// Returns the words that an option's value can have, or none if it is no list of words.
std::vector<std::string> value_words(const KeyHelp& option);

// Manual pages in the language of man(7), as groff and mandoc read it. Any thread.

// Returns the page of a program or of one of its commands, for section 1. Flags that are keys of
// the job are left to the page of the job file.
std::string man_page(const ProgramHelp& help, const std::string& version);

// Returns pushpull-job(5), from the table of the job's keys.
std::string job_man_page(const std::string& version);

// Completion of a program's command line in bash, fish and zsh.
//
// Completion of a program's command line in bash 4 or newer: commands, flags, files, values. Any
// thread.

// Completion of a program's command line in zsh: commands, flags, files, values. Any thread.

// Returns the text of a file that zsh loads as the function _PROGRAM from a folder of its `fpath`.
std::string zsh_completion(const ProgramHelp& help);

// Completion of a program's command line in fish: commands, flags, files, values. Any thread.

// Returns a script of `complete` commands, which fish loads by the program's name.
std::string fish_completion(const ProgramHelp& help);

// Returns a script that needs nothing but bash: bash-completion loads it by the program's name, and
// a shell without that package sources it.
std::string bash_completion(const ProgramHelp& help);

}  // namespace pushpull
