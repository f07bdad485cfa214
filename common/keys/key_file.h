// Key files: where a program finds its key, and how a file with a key comes to be. A key file is
// whole or absent, only its owner can read it, and it is never overwritten: it is written under
// another name and linked (link(2)) to its own, so that programs that start together end with one
// key. Any thread.
#pragma once

#include <string>

#include "common/keys/keys.h"

namespace pushpull {

// The key of --key (`named`; empty: not given), else of PUSHPULL_KEY_FD or PUSHPULL_KEY_FILE, else
// of the user's own file, which is made where it is absent.
// Throws Error(kUsage) naming the file and the way out.
Keys find_keys(const std::string& named);

// True: `find_keys("")` would have to make the user's own file, and cannot.
bool no_home_for_a_key();

// $XDG_CONFIG_HOME/pushpull/key or ~/.config/pushpull/key; empty where the user's home folder does
// not exist.
std::string user_key_path();

// Throws Error(kUsage): absent, not a key, or others than its owner can read it.
AnyKey read_key_file(const std::string& path);

// Returns false where `path` exists already; it is left as it is.
// Throws Error(kIo) naming the path where it cannot be made.
bool make_key_file(const std::string& path, const AnyKey& key);

// For the processes that this one starts. Call them before any thread starts.
// The first: their variable PUSHPULL_KEY_FILE names `path`. The second: PUSHPULL_KEY_FD names a
// descriptor with `key`, which stays open.
void hand_down_file(const std::string& path);
void hand_down_key(const SecretKey& key);

}  // namespace pushpull
