// Kills the coordinator at one of its system calls. Loaded into programs with LD_PRELOAD; acts in
// the first `pushpull-server --job` only, which the file KILL_MARK then names.
//
//   KILL_MARK   file that is made when the counting begins; a later process finds it and is spared
//   KILL_FROM   part of a path: the first call on such a path begins the counting
//   KILL_CALL   names of that call, such as "remove unlink"; any if empty
//   KILL_AFTER  number of the call that is not made: the process is gone before it. 1 is the first
//               one; 0 counts only.
//
// KILL_MARK gets one line at the end of the process: the number of calls, the name of the last one or
// "exit", 1 if KILL_FROM has got its final name by a rename (else 0), and the path of the call.
//
// Counts calls that change files, and those that send to sockets. Wakes of other threads (8 bytes to
// an eventfd) do not count.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<bool> counting{false};
std::atomic<long> calls{0};
long kill_after = 0;
int mark = -1;
std::atomic<bool> renamed{false};  // KILL_FROM has its final name

template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

const char* text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

// Returns true in `pushpull-server --job ...`.
bool find_coordinator() {
  static auto* const open_file = real<int(const char*, int, ...)>("open");
  char words[4096] = {};
  const int fd = open_file("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t size = read(fd, words, sizeof words - 1);
  static auto* const close_file = real<int(int)>("close");
  close_file(fd);
  bool job = false;
  for (ssize_t at = 0; at < size; at += static_cast<ssize_t>(std::strlen(words + at)) + 1) {
    job = job || std::strcmp(words + at, "--job") == 0;
  }
  return job && std::strstr(words, "pushpull-server") != nullptr;
}

bool is_coordinator() {
  static const bool found = find_coordinator();
  return found;
}

void write_mark(const char* what, const char* path) {
  char line[1024];
  const int size =
      std::snprintf(line, sizeof line, "%ld %s %d %s\n", calls.load(), what, renamed ? 1 : 0, path);
  static auto* const next = real<ssize_t(int, const void*, size_t)>("write");
  next(mark, line, static_cast<size_t>(size));
}

void begin(const char* name, const char* path) {
  const char* call = text_of("KILL_CALL");
  if (*text_of("KILL_FROM") == 0 || std::strstr(path, text_of("KILL_FROM")) == nullptr) return;
  if (*call != 0 && std::strstr(call, name) == nullptr) return;
  static auto* const open_file = real<int(const char*, int, ...)>("open");
  mark = open_file(text_of("KILL_MARK"), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (mark < 0) return;
  kill_after = std::atol(text_of("KILL_AFTER"));
  counting = true;
}

// path: "" if the call has none.
void count(const char* name, const char* path) {
  if (!is_coordinator()) return;
  if (!counting && *path != 0) begin(name, path);
  if (!counting || ++calls != kill_after) return;
  write_mark(name, path);
  kill(getpid(), SIGKILL);
  pause();
}

__attribute__((destructor)) void at_exit() {
  if (counting) write_mark("exit", "");
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  count("open", path);
  static auto* const next = real<int(const char*, int, ...)>("open");
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return next(path, flags, mode);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  if (size != 8) count("write", "");
  static auto* const next = real<ssize_t(int, const void*, size_t)>("write");
  return next(fd, bytes, size);
}

ssize_t send(int fd, const void* bytes, size_t size, int flags) {
  count("send", "");
  static auto* const next = real<ssize_t(int, const void*, size_t, int)>("send");
  return next(fd, bytes, size, flags);
}

int fsync(int fd) {
  count("fsync", "");
  static auto* const next = real<int(int)>("fsync");
  return next(fd);
}

int close(int fd) {
  count("close", "");
  static auto* const next = real<int(int)>("close");
  return next(fd);
}

int rename(const char* from, const char* to) noexcept {
  count("rename", to);
  static auto* const next = real<int(const char*, const char*)>("rename");
  const int result = next(from, to);
  const char* name = std::strrchr(to, '/');
  if (counting && result == 0 && name != nullptr &&
      std::strcmp(name + 1, text_of("KILL_FROM")) == 0) {
    renamed = true;
  }
  return result;
}

int mkdir(const char* path, mode_t mode) noexcept {
  count("mkdir", path);
  static auto* const next = real<int(const char*, mode_t)>("mkdir");
  return next(path, mode);
}

int unlink(const char* path) noexcept {
  count("unlink", path);
  static auto* const next = real<int(const char*)>("unlink");
  return next(path);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  count("unlinkat", path);
  static auto* const next = real<int(int, const char*, int)>("unlinkat");
  return next(folder, path, flags);
}

int rmdir(const char* path) noexcept {
  count("rmdir", path);
  static auto* const next = real<int(const char*)>("rmdir");
  return next(path);
}

int remove(const char* path) noexcept {
  count("remove", path);
  static auto* const next = real<int(const char*)>("remove");
  return next(path);
}

}  // extern "C"
