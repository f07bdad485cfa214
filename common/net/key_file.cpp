#include "common/net/key_file.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/base/unique_fd.h"
#include "common/job/job_keys.h"

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

namespace {

constexpr const char* kFileVariable = "PUSHPULL_KEY_FILE";
constexpr const char* kDescriptorVariable = "PUSHPULL_KEY_FD";
constexpr const char* kKeyVariable = "PUSHPULL_KEY";
constexpr int kFirstDescriptor = 100;
constexpr const char* kMakeOne = "; `pushpull keygen FILE` makes a key, --key FILE names it";

std::string shown(const std::string& path) { return printable(path, kMaxPathBytes); }

std::string variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no thread sets it
  return value == nullptr ? "" : value;
}

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ErrorCode::kUsage, "[key] " + text);
}

// Returns the user's home in the password file: HOME is not set in every container and batch job.
std::string home_of_user() {
  std::array<char, 4096> space{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(getuid(), &entry, space.data(), space.size(), &found) != 0 || found == nullptr) {
    return "";
  }
  return found->pw_dir;
}

std::string user_home() {
  const std::string home = variable("HOME");
  return home.empty() ? home_of_user() : home;
}

// Reads `fd` from its start, up to one byte more than a key can have.
std::string read_from(int fd) {
  std::string text(kMaxKeyTextBytes + 1, '\0');
  size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t n = pread(fd, &text[filled], text.size() - filled, static_cast<off_t>(filled));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    filled += static_cast<size_t>(n);
  }
  text.resize(filled);
  return text;
}

AnyKey key_in(const std::string& text, const std::string& name) {
  if (const auto key = parse_key(text)) return *key;
  refuse(name + " holds no key of this version of pushpull" + kMakeOne);
}

struct FoundKey {
  AnyKey key;
  std::string source;  // for messages
};

FoundKey key_of_descriptor(const std::string& text) {
  const std::string name = std::string(kDescriptorVariable) + "=" + printable(text);
  const std::optional<int64_t> fd = parse_int64(text);
  if (!fd || *fd < 0 || *fd > INT32_MAX || fcntl(static_cast<int>(*fd), F_GETFD) < 0) {
    refuse(name +
           " is not a descriptor of this process; `pushpull run` sets it for those it starts");
  }
  return {key_in(read_from(static_cast<int>(*fd)), name), name};
}

FoundKey key_of_file(const std::string& path) { return {read_key_file(path), shown(path)}; }

// Returns "" once `text` is written and on disk, else the reason why not.
std::string write_new(const std::string& path, const std::string& text) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd.get() < 0) return std::strerror(errno);
  const ssize_t n = write(fd.get(), text.data(), text.size());
  if (n < 0 || fsync(fd.get()) != 0) return std::strerror(errno);
  return n == static_cast<ssize_t>(text.size()) ? "" : "the disk is full";
}

// Creates the folders above `path` that are missing, accessible by their owner only.
void make_folders(const std::filesystem::path& path) {
  if (path.empty()) return;
  const auto fail = [&](const char* verb) {
    throw Error(ErrorCode::kIo, std::string("[key] cannot ") + verb + " the folder " + shown(path) +
                                    ": " + std::strerror(errno));
  };
  struct stat about {};
  if (stat(path.c_str(), &about) == 0) return;
  if (errno != ENOENT) fail("use");
  make_folders(path.parent_path());
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) fail("make");
}

// Returns whether a variable names a key in the place of the user's own.
bool is_key_named() {
  for (const char* name : {kDescriptorVariable, kKeyVariable, kFileVariable}) {
    if (!variable(name).empty()) return true;
  }
  return false;
}

// Creates the user's own key file if it is absent.
void make_user_key(const std::string& path) {
  if (access(path.c_str(), F_OK) == 0) return;
  make_folders(std::filesystem::path(path).parent_path());
  make_key_file(path, new_secret_key());
}

}  // namespace

std::string user_key_path() {
  if (const std::string config = variable("XDG_CONFIG_HOME"); config.starts_with('/')) {
    return config + "/pushpull/key";
  }
  const std::string home = user_home();
  // Service accounts have a home that does not exist, often /nonexistent; do not create it.
  std::error_code ignored;
  const bool exists = !home.empty() && std::filesystem::is_directory(home, ignored);
  return exists ? home + "/.config/pushpull/key" : "";
}

std::string why_no_user_key() {
  if (is_key_named()) return "";
  const std::string path = user_key_path();
  if (path.empty()) return "this user has no home: " + shown(user_home()) + " is not a folder";
  if (access(path.c_str(), R_OK) == 0) return "";
  if (errno != ENOENT) return shown(path) + " cannot be read: " + std::strerror(errno);
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  while (access(folder.c_str(), F_OK) != 0 && errno == ENOENT) folder = folder.parent_path();
  if (access(folder.c_str(), W_OK | X_OK) == 0) return "";
  return shown(folder) + " cannot be written: " + std::strerror(errno);
}

AnyKey read_key_file(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (fd.get() < 0 || fstat(fd.get(), &about) != 0) {
    refuse("cannot read " + shown(path) + ": " + std::strerror(errno) + kMakeOne);
  }
  if (!S_ISREG(about.st_mode)) refuse(shown(path) + " is not a regular file" + kMakeOne);
  if ((about.st_mode & 077) != 0) {
    refuse("users other than its owner can read or write " + shown(path) +
           ", so the key is not secret; run `chmod 600` on it, or make a new key if another user "
           "may have read it");
  }
  if (about.st_uid != geteuid() && about.st_uid != 0) {
    refuse(shown(path) + " belongs to user " + std::to_string(about.st_uid) + ", this is user " +
           std::to_string(geteuid()) +
           ", so the key is another user's; run `chown` on a copy, or make a key of your own" +
           kMakeOne);
  }
  return key_in(read_from(fd.get()), shown(path));
}

bool make_key_file(const std::string& path, const AnyKey& key) {
  const std::string fresh = path + ".new-" + std::to_string(random_id());
  const auto fail = [&](const std::string& why) {
    unlink(fresh.c_str());
    throw Error(ErrorCode::kIo, "[key] cannot make " + shown(path) + ": " + why);
  };
  if (const std::string why = write_new(fresh, key_text(key)); !why.empty()) fail(why);
  const bool linked = link(fresh.c_str(), path.c_str()) == 0;
  if (!linked && errno != EEXIST) fail(std::strerror(errno));
  unlink(fresh.c_str());
  return linked;
}

bool no_home_for_a_key() {
  if (is_key_named()) return false;
  const std::string path = user_key_path();
  if (path.empty()) return true;
  try {
    make_user_key(path);
  } catch (const Error&) {
    return true;
  }
  return false;
}

namespace {

FoundKey find_key(const std::string& named) {
  if (!named.empty()) return key_of_file(named);
  if (const std::string fd = variable(kDescriptorVariable); !fd.empty()) {
    return key_of_descriptor(fd);
  }
  if (const std::string text = variable(kKeyVariable); !text.empty()) {
    return {key_in(text, kKeyVariable), kKeyVariable};
  }
  if (const std::string file = variable(kFileVariable); !file.empty()) return key_of_file(file);
  const std::string path = user_key_path();
  if (path.empty()) {
    refuse("this user has no home for a key: " + shown(user_home()) + " is not a folder" +
           kMakeOne);
  }
  try {
    make_user_key(path);
  } catch (const Error& e) {
    throw Error(ErrorCode::kUsage, std::string(e.what()) + kMakeOne);
  }
  return key_of_file(path);
}

}  // namespace

Keys find_keys(const std::string& named) {
  FoundKey found = find_key(named);
  return {std::move(found.key), std::move(found.source)};
}

std::string find_key_text(const std::string& named) {
  std::string text = key_text(find_key(named).key);
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

void hand_down_file(const std::string& path) {
  // NOLINTBEGIN(concurrency-mt-unsafe): before any thread starts
  setenv(kFileVariable, path.c_str(), 1);
  unsetenv(kDescriptorVariable);
  unsetenv(kKeyVariable);
  // NOLINTEND(concurrency-mt-unsafe)
}

void hand_down_key(const SecretKey& key) {
  const std::string text = key_text(key);
  const UniqueFd memory(memfd_create("pushpull-key", MFD_CLOEXEC));
  // above the numbers that a launcher gives to pipes
  const int fd = fcntl(memory.get(), F_DUPFD, kFirstDescriptor);
  if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw Error(ErrorCode::kFailed,
                std::string("[key] cannot keep a key for this run: ") + std::strerror(errno));
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread starts
  setenv(kDescriptorVariable, std::to_string(fd).c_str(), 1);
}

}  // namespace pushpull
