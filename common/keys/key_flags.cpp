#include "common/keys/key_flags.h"

#include "common/base/error.h"
#include "common/job/key_help.h"
#include "common/keys/key_file.h"

namespace pushpull {

std::vector<KeyHelp> with_key_flags(std::vector<KeyHelp> flags) {
  flags.push_back(takes(
      "FILE", {"key", "",
               "file with the key of the job; default: PUSHPULL_KEY_FILE, else the user's own, "
               "~/.config/pushpull/key, made at its first use"}));
  flags.push_back(
      {"insecure", "",
       "use no key: any process that reaches the ports can take part; only for a network "
       "that you trust",
       "", false});
  return flags;
}

Keys keys_of(const CommandLine& line) {
  const std::string file = line.own("key", "");
  if (line.local.contains("key") && file.empty()) {
    throw Error(ErrorCode::kUsage, "[key] --key needs the name of a file");
  }
  if (!line.local.contains("insecure")) return find_keys(file);
  if (file.empty()) return {};
  throw Error(ErrorCode::kUsage,
              "[key] --key and --insecure contradict each other; leave one of them out");
}

std::string set_keys_of_children(const CommandLine& line) {
  const bool by_itself = !line.local.contains("key") && !line.local.contains("insecure");
  if (!by_itself || !no_home_for_a_key()) {
    keys_of(line);  // reports a wrong key before anything starts
    if (line.local.contains("key")) hand_down_file(line.local.at("key"));
    return "";
  }
  hand_down_key(new_secret_key());
  const std::string path = user_key_path();
  return "[key] " + (path.empty() ? "this user has no home" : path + " cannot be made") +
         ": this run has a key of its own, which only the processes that it starts know";
}

}  // namespace pushpull
