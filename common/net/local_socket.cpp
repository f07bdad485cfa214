#include "common/net/local_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string_view>

#include "common/base/error.h"
#include "common/base/unique_fd.h"
#include "common/net/address.h"

namespace pushpull {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kScheme = "ipc://";
constexpr std::string_view kSuffix = ".sock";
constexpr time_t kStaleS = 60;  // spares the socket of a server that is just starting

std::string parent_folder() {
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && value[0] == '/') return value;
  }
  return "/tmp";
}

// Returns a folder that only its owner can list and in which only the owner can connect to sockets.
// Whichever user created the folder first, it is used only if it is ours.
std::string private_folder() {
  std::string path = parent_folder() + "/pushpull-" + std::to_string(getuid());
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorCode::kIo, "[ipc] " + path + " " + why +
                                    "; set TMPDIR to another folder, or use transport = tcp");
  };
  if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    fail(std::string("cannot be created: ") + std::strerror(errno));
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) fail(std::strerror(errno));
  if (!S_ISDIR(info.st_mode)) fail("is not a folder");
  if (info.st_uid != getuid()) fail("belongs to another user");
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) fail("is accessible to other users");
  return path;
}

bool connects(const std::string& path) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (fd.get() < 0 || path.size() >= sizeof address.sun_path) return false;
  path.copy(address.sun_path, path.size());
  // EAGAIN: the accept queue is full, so a process listens
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
         errno == EAGAIN;
}

}  // namespace

std::string local_endpoint(uint64_t term_id, const std::string& data_endpoint) {
  const std::string path = private_folder() + "/" + std::to_string(term_id) + "-" +
                           parse_address(data_endpoint, "listen").port + std::string(kSuffix);
  if (path.size() >= sizeof sockaddr_un::sun_path) {
    throw Error(ErrorCode::kIo, "[ipc] " + path +
                                    " is too long for a socket's name, which has at "
                                    "most " +
                                    std::to_string(sizeof sockaddr_un::sun_path - 1) +
                                    " bytes; set TMPDIR to a folder with a shorter name");
  }
  return std::string(kScheme) + path;
}

LocalSocketName::LocalSocketName(const std::string& local_endpoint)
    : path_(local_endpoint.substr(kScheme.size())) {}

std::string LocalSocketName::endpoint() const { return std::string(kScheme) + path_; }

LocalSocketName::~LocalSocketName() { unlink(path_.c_str()); }

bool answers(const std::string& local_endpoint) {
  return connects(local_endpoint.substr(kScheme.size()));
}

void remove_stale(const std::string& local_endpoint) {
  const fs::path folder = fs::path(local_endpoint.substr(kScheme.size())).parent_path();
  std::error_code ignored;  // another process may be deleting it too
  for (fs::directory_iterator it(folder, ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    const std::string path = it->path().string();
    struct stat info {};
    if (it->path().extension() != kSuffix || lstat(path.c_str(), &info) != 0) continue;
    if (!S_ISSOCK(info.st_mode) || std::time(nullptr) - info.st_mtime < kStaleS) continue;
    if (!connects(path) && errno == ECONNREFUSED) unlink(path.c_str());
  }
}

}  // namespace pushpull
