// The coordinator's connections: sockets to members, and lines to the program that started it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/base/unique_fd.h"
#include "common/device/device.h"
#include "common/job/job.h"
#include "common/net/endpoint.h"
#include "common/net/keys.h"
#include "common/net/zap_handler.h"
#include "ps/server/data_plane.h"

namespace pushpull {

// The sockets of the first server: control, where all members join, and the data port of its own slices.
// They exclude a second job, so they are taken before any file is touched. The server's thread.
struct ListenOptions {
  std::string listen;   // tcp://HOST:PORT; port * picks a free one
  int64_t ports = 1;    // to try in turn if the port is taken: PORT, PORT + 1, ...
  uint64_t run_id = 0;  // id of the job's first term
  // Where an earlier process of this run listened, so that members find a restarted coordinator there.
  std::optional<std::string> earlier = {};
  std::string data_port = "*";  // of the same host: a port, a range of them, or *
};

class CoordinatorSockets {
 public:
  // Throws Error(kUsage) naming the address.
  CoordinatorSockets(const ListenOptions& options, const std::string& listen, const Job& job,
                     const Keys& keys, const std::shared_ptr<device::Device>& device,
                     uint64_t own_incarnation);

  zmq::context_t context = make_context(1);
  ZapHandler handler;
  Router control;
  DataPlane data;
  const uint64_t incarnation;  // of this process
};

// Binds the earlier process's port, or another one if that process may still run. Throws Error(kUsage)
// naming the address, or the last one, if none is free.
std::unique_ptr<CoordinatorSockets> open_coordinator_sockets(
    const ListenOptions& options, const Job& job, const Keys& keys,
    const std::shared_ptr<device::Device>& device);

// Returns the address of control for readers on this machine, which cannot connect to a wildcard.
//   advertise: host of it for other processes, or "".
std::string control_address(const Router& control, const std::string& advertise);

// Returns the line for users that says where the coordinator listens.
std::string listening_line(const Router& control, const std::string& advertise);

// The lines that the coordinator writes for the program that started it (--announce-fd), which
// cannot see the job from the exit codes of its processes. `cli/run/launcher.cpp` reads them:
//
//   tcp://HOST:PORT          the coordinator listens
//   job WORKER SERVER BAD    on-worker-loss, on-server-loss and on-bad-gradient of a job that a worker's program has said
//   started                  all members have joined
//   lost PID                 the job goes on without this process of this host
//   failed PID CODE REASON   this process of this host has failed the job
//   ended CODE               the run has ended, and the coordinator exits with this code
//
// Used by the coordinator's thread.
class Announcements {
 public:
  //   fd: -1 for none. host: of this process.
  Announcements(int fd, std::string host) : fd_(fd), host_(std::move(host)) {}

  // Returns false if there is a reader to tell but none listens.
  bool address(const std::string& address) { return write_line(address); }
  void job(const Job& job);
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
