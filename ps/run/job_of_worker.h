// The start of a first server whose job the workers' programs know: it listens, takes the job of the first
// worker that says one, and then begins as with a job file. The server's thread.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "common/base/process.h"
#include "common/job/job.h"
#include "common/net/keys.h"
#include "common/net/message.h"

namespace pushpull {

struct JobWait {
  std::string listen;  // tcp://HOST:PORT; port * picks a free one
  std::string advertise;
  std::string job_token;                     // see CoordinatorProgram
  Keys keys;                                 // decide which processes may join
  std::map<std::string, std::string> flags;  // keys of the job that override the program's
  int workers = 1;
  double timeout_s = 600.0;
  int announce_fd = -1;  // receives the address and the line `job` (Announcements); stays open
};

struct FoundJob {
  Job job;
  std::string listen;  // with the port that workers know
};

// Answers one message before there is a job.
class JobDesk {
 public:
  explicit JobDesk(const JobWait& wait) : wait_(wait) {}

  // Returns the answer, if the message needs one.
  std::optional<Message> on_message(const Message& message);
  // Returns the job, once there is one.
  const std::optional<Job>& job() const { return job_; }
  // Returns why the job that a program said is none, or "".
  const std::string& failure() const { return failure_; }

 private:
  const JobWait& wait_;
  std::optional<Job> job_;
  std::string failure_;
};

// Waits for the job. Returns nothing after a signal that asks to end; `signal` is it then. Throws Error(kUsage)
// if the first job is wrong, as its worker is told, too, and Error(kUnreachable) if none comes in time.
std::optional<FoundJob> wait_for_job(const JobWait& wait, SignalFd& signals, int& signal);

}  // namespace pushpull
