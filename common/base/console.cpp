#include "common/base/console.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

#include "common/base/background_writer.h"
#include "common/base/text.h"

namespace pushpull {

void Log::write(std::string_view level, std::string_view text) const {
  // `text` may hold bytes from untrusted peers: no line breaks, no terminal escapes, bounded length
  constexpr size_t kMaxTextBytes = 2 * kMaxPathBytes;
  std::string line = who_;
  line.append(": ").append(level).append(printable(text, kMaxTextBytes)).append("\n");
  print(STDERR_FILENO, line);
}

bool is_terminal(int fd) {
  const char* const term = std::getenv("TERM");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  const bool dumb = term == nullptr || std::string_view(term) == "dumb";
  return !dumb && isatty(fd) != 0 &&
         std::getenv("OMPI_COMM_WORLD_RANK") == nullptr;  // NOLINT(concurrency-mt-unsafe)
}

namespace {

constexpr int64_t kFlushMs = 5000;

bool is_one_file(int a, int b) {
  struct stat one {};
  struct stat other {};
  return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

std::atomic<Console*> process_console = nullptr;

// Never destroyed, as the console is.
struct Sink {
  std::mutex mutex;
  PrintSink print;  // guarded by mutex
};

Sink& process_sink() {
  static Sink* const sink = new Sink;
  return *sink;
}

// Returns false if there is no sink.
bool print_to_sink(int fd, std::string_view text) {
  Sink& sink = process_sink();
  const std::lock_guard lock(sink.mutex);
  if (sink.print) sink.print(fd, text);
  return static_cast<bool>(sink.print);
}

}  // namespace

class Console::Stream {
 public:
  explicit Stream(int fd) : writer_(fd) {}

  void print(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (left_out_ > 0 && writer_.write("[output] " + plural(left_out_, "line") +
                                       " left out here: this output was not being read\n")) {
      left_out_ = 0;
    }
    if (left_out_ > 0 || !writer_.write(std::string(text))) ++left_out_;
  }
  void flush() { writer_.flush(kFlushMs); }

 private:
  std::mutex mutex_;
  BackgroundWriter writer_;
  int64_t left_out_ = 0;  // texts, since the last notice; guarded by mutex_
};

Console::Console(int out_fd, int err_fd)
    : out_(std::make_shared<Stream>(out_fd)),
      err_(is_one_file(out_fd, err_fd) ? out_ : std::make_shared<Stream>(err_fd)) {}

void Console::out(std::string_view text) { out_->print(text); }

void Console::err(std::string_view text) { err_->print(text); }

void Console::flush() {
  out_->flush();
  if (err_ != out_) err_->flush();
}

void set_print_sink(PrintSink sink) {
  const std::lock_guard lock(process_sink().mutex);
  process_sink().print = std::move(sink);
}

void print(int fd, std::string_view text) {
  if (print_to_sink(fd, text)) return;
  if (Console* const console = process_console.load()) {
    if (fd == STDOUT_FILENO) {
      console->out(text);
    } else {
      console->err(text);
    }
    return;
  }
  const ssize_t ignored = ::write(fd, text.data(), text.size());
  (void)ignored;  // there is nowhere to report a failure
}

void flush_output() {
  if (Console* const console = process_console.load()) console->flush();
}

// Never deleted, since threads that outlive main may still print.
ProcessConsole::ProcessConsole() { process_console = new Console(STDOUT_FILENO, STDERR_FILENO); }

}  // namespace pushpull
