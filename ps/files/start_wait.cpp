#include "ps/files/start_wait.h"

#include <poll.h>
#include <unistd.h>

#include <string>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/io/file.h"
#include "ps/files/transfer_watch.h"

namespace pushpull {

namespace {

constexpr int kPollMs = 100;
// A signal waits this long for the task, so that the coordinator's loop can stop a run that goes on
// from an earlier term with a checkpoint.
constexpr int64_t kSignalWaitMs = 2000;

[[noreturn]] void give_up(int code, const std::string& why) {
  Log("server 0").error(why);
  flush_output();
  _exit(code);
}

}  // namespace

void run_before_start(TaskThread& thread, SignalFd& signals, double timeout_s,
                      const std::function<void()>& task) {
  TransferWatch watch(timeout_s, "[out]");
  AwakeClock clock;
  const int64_t start = clock.now_ms();
  thread.start(task);
  while (true) {
    if (const auto result = thread.take()) {
      if (*result) std::rethrow_exception(*result);
      return;
    }
    const int64_t now = clock.now_ms();
    watch.running(now, thread.waiting(), file_bytes_moved(), 0);
    const bool takes_signals = now - start >= kSignalWaitMs;
    if (const int signal = takes_signals ? signals.take() : 0; signal != 0) {
      give_up(128 + signal, "[job] ended by " + signal_name(signal) + "; " + watch.text(now));
    }
    if (watch.overdue(now)) give_up(static_cast<int>(ErrorCode::kIo), watch.overdue_text(now));
    if (const auto notice = watch.take_notice(now)) Log("server 0").warn(*notice);
    pollfd ready[] = {{thread.done_fd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    poll(ready, takes_signals ? 2 : 1, kPollMs);
  }
}

}  // namespace pushpull
