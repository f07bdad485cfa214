// `pushpull keygen`.

#include <iostream>

#include "cli/commands.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/command_line.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"
#include "common/net/key_file.h"

namespace pushpull {
namespace {

const std::vector<KeyHelp>& keygen_options() {
  static const std::vector<KeyHelp> options = {
      {"observer", "",
       "make a key for observers: it allows reading a job's status and nothing else", "", false},
      takes("FILE", {"key", "",
                     "the job's key, from which the observers' key is derived; default: "
                     "PUSHPULL_KEY_FILE, else "
                     "the user's "
                     "own, ~/.config/pushpull/key"}),
  };
  return options;
}

AnyKey key_of(const CommandLine& line) {
  if (line.local.contains("observer")) return find_keys(line.own("key", "")).observer_key();
  if (!line.local.contains("key")) return new_secret_key();
  throw Error(
      ErrorCode::kUsage,
      "[keygen] --key requires --observer: a job's key is new and not derived from another key");
}

}  // namespace

const ProgramHelp& keygen_help() {
  static const ProgramHelp help = {
      .name = "pushpull keygen",
      .summary = "makes the key of a job, or one for its observers",
      .usage = {"pushpull keygen FILE", "pushpull keygen --observer [--key FILE] FILE"},
      .options = keygen_options(),
      .words = "FILE"};
  return help;
}

int keygen_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, keygen_options(), JobFlags::kRefuse);
  if (print_help(line, keygen_help(), PUSHPULL_VERSION)) return 0;
  if (line.positional.size() != 1 || line.positional.front().empty()) {
    throw Error(ErrorCode::kUsage,
                "[keygen] one file for the key must be named: pushpull keygen FILE");
  }
  const std::string& path = line.positional.front();
  const std::string shown = printable(path, kMaxPathBytes);
  if (!make_key_file(path, key_of(line))) {
    throw Error(ErrorCode::kUsage, "[keygen] " + shown +
                                       " exists; a key is never overwritten: name another file, or "
                                       "remove this one");
  }
  std::cout << "wrote " << shown << std::endl;
  return 0;
}

}  // namespace pushpull
