// Key files: where a program finds its key, and how a key file is created. A key file is complete
// or absent, only its owner can read it, and it is never overwritten: it is written under another
// name and then linked (link(2)) to its own, so that programs that start together end up with one
// key. Any thread.
#pragma once

#include <string>
#include <vector>

#include "common/job/command_line.h"
#include "common/net/keys.h"

namespace pushpull {

struct KeyHelp;

// The flags --key and --insecure, the same in every program that connects or listens. Any thread.

// Adds --key and --insecure to a program's own flags.
std::vector<KeyHelp> with_key_flags(std::vector<KeyHelp> flags);

// Returns the key that a command line asks for (see `find_keys`), or none if it has --insecure.
// Throws Error(kUsage) naming the file and the fix.
Keys keys_of(const CommandLine& line);

// Sets the environment of the processes that this one will start, so that they find the key that
// `line` asks for. --insecure is not passed on: the caller must give it to them. If the user's key
// file cannot be created, makes a key for this run, passes it on, and returns a line that says so;
// otherwise returns "". Call before any thread starts. Throws as `keys_of` does.
std::string set_keys_of_children(const CommandLine& line);

// The warning of a program that listens without a key.
inline constexpr const char* kInsecureLine =
    "[key] --insecure: no key is required, any process that reaches these ports can take part";

// Returns the key of --key (`named`, unless it is ""), else of PUSHPULL_KEY_FD, PUSHPULL_KEY or
// PUSHPULL_KEY_FILE, else of the user's own file, which is created if it is absent. Throws
// Error(kUsage) naming the file and the fix.
Keys find_keys(const std::string& named);

// Returns the text of that key, without its line end, for the variable PUSHPULL_KEY of processes on
// other hosts, which cannot read files of this one. Throws as find_keys does.
std::string find_key_text(const std::string& named);

// Returns true if `find_keys("")` would have to create the user's own file but cannot.
bool no_home_for_a_key();

// Returns why, or "" if the user's own file can be read or made, or a variable names another key. Makes
// nothing.
std::string why_no_user_key();

// Returns $XDG_CONFIG_HOME/pushpull/key or ~/.config/pushpull/key, or "" if the user's home folder
// does not exist.
std::string user_key_path();

// Throws Error(kUsage) if the file is absent, is not a key, is accessible to other users, or belongs
// to a user other than this one and root.
AnyKey read_key_file(const std::string& path);

// Returns false if `path` exists already; the file is left as it is. Throws Error(kIo) naming the
// path if it cannot be created.
bool make_key_file(const std::string& path, const AnyKey& key);

// Pass a key on to the processes that this one starts. Call before any thread starts.
// hand_down_file sets their variable PUSHPULL_KEY_FILE to `path`. hand_down_key sets
// PUSHPULL_KEY_FD to a descriptor with `key`, which stays open.
void hand_down_file(const std::string& path);
void hand_down_key(const SecretKey& key);

}  // namespace pushpull
