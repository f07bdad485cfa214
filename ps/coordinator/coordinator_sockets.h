// The sockets of the first server: control, where all members join, and the data port of its own slices.
// They exclude a second job, so they are taken before any file is touched. The server's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/device/device.h"
#include "common/job/job.h"
#include "common/net/endpoint.h"
#include "common/net/keys.h"
#include "common/net/zap_handler.h"
#include "ps/server/data_plane.h"

namespace pushpull {

struct ListenOptions {
  std::string listen;      // tcp://HOST:PORT; port * picks a free one
  int64_t ports = 1;       // to try in turn if the port is taken: PORT, PORT + 1, ...
  uint64_t first_run = 0;  // id of the job's first term
  // Where an earlier process of this run listened, so that members find a restarted coordinator there.
  std::optional<std::string> earlier = {};
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

}  // namespace pushpull
