// The lines that the coordinator writes for the program that started it (--announce-fd), which
// cannot see the job from the exit codes of its processes. `cli/run/launcher.cpp` reads them:
//
//   tcp://HOST:PORT          the coordinator listens
//   started                  all members have joined
//   lost PID                 the job goes on without this process of this host
//   failed PID CODE REASON   this process of this host has failed the job
//   ended CODE               the run has ended, and the coordinator exits with this code
//
// Used by the coordinator's thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/unique_fd.h"

namespace pushpull {

class Announcements {
 public:
  //   fd: -1 for none. host: of this process.
  Announcements(int fd, std::string host) : fd_(fd), host_(std::move(host)) {}

  // Returns false if there is a reader to tell but none listens.
  bool address(const std::string& address) { return write_line(address); }
  void started() { write_line("started"); }
  // The reader knows no processes of other hosts: the next two write nothing for those.
  void lost(const std::string& host, int64_t pid);
  // Later calls write nothing.
  void failed(const std::string& host, int64_t pid, int code, const std::string& reason);
  // Call before the files say no more that the run has ended: a coordinator that is killed after that
  // has done its work.
  void ended(int code) { write_line("ended " + std::to_string(code)); }

 private:
  bool write_line(const std::string& text);

  UniqueFd fd_;
  const std::string host_;
  bool failed_ = false;
};

}  // namespace pushpull
