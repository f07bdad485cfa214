#include "ps/run/coordinator_sockets.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/job/job_keys.h"
#include "common/net/address.h"
#include "common/net/data_proof.h"

namespace pushpull {

namespace {

// Returns the addresses to try, in this order.
std::vector<std::string> addresses(const ListenOptions& options) {
  const std::string port = parse_address(options.listen, "listen").port;
  const std::optional<int64_t> first = parse_int64(port);
  if (!first && options.earlier) {
    return {with_port(options.listen, parse_address(*options.earlier, "listen").port),
            options.listen};
  }
  std::vector<std::string> all{options.listen};
  for (int64_t more = 1; first && more < options.ports && *first + more <= 65535; ++more) {
    all.push_back(with_port(options.listen, std::to_string(*first + more)));
  }
  return all;
}

}  // namespace

CoordinatorSockets::CoordinatorSockets(const ListenOptions& options, const std::string& listen,
                                       const Job& job, const Keys& keys,
                                       const std::shared_ptr<device::Device>& device,
                                       uint64_t own_incarnation)
    : handler(context, keys.control_demand()),
      control(handler, listen, EndpointLimits{}),
      data(with_port(options.listen, options.data_port), job.slice_bytes, device,
           keys.data_demand(job.encrypt_data, options.run_id, listener_name(own_incarnation))),
      incarnation(own_incarnation) {}

std::unique_ptr<CoordinatorSockets> open_coordinator_sockets(
    const ListenOptions& options, const Job& job, const Keys& keys,
    const std::shared_ptr<device::Device>& device) {
  const std::vector<std::string> all = addresses(options);
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    try {
      return std::make_unique<CoordinatorSockets>(options, all[i], job, keys, device, random_id());
    } catch (const Error&) {
      // taken: the next one
    }
  }
  return std::make_unique<CoordinatorSockets>(options, all.back(), job, keys, device, random_id());
}

std::string control_address(const Router& control, const std::string& advertise) {
  const std::string address = advertised(control.address(), advertise);
  const bool everywhere = parse_address(address, "listen").is_everywhere();
  return everywhere ? advertised(address, "127.0.0.1") : address;
}

std::string listening_line(const Router& control, const std::string& advertise) {
  const bool everywhere = parse_address(control.address(), "listen").is_everywhere();
  if (everywhere && advertise.empty()) {
    return "listening on " + control.address() + ", all interfaces of this host";
  }
  return "listening on " + control_address(control, advertise);
}

namespace {

constexpr size_t kMaxLineReasonBytes = 400;

}  // namespace

void Announcements::job(const Job& job) {
  std::string line = "job";
  for (const char* key : {"on-worker-loss", "on-server-loss", "on-bad-gradient"})
    line += " " + find_job_key(key)->get(job);
  write_line(line);
}

void Announcements::lost(const std::string& host, int64_t pid) {
  if (host == host_) write_line("lost " + std::to_string(pid));
}

void Announcements::failed(const std::string& host, int64_t pid, int code,
                           const std::string& reason) {
  if (host != host_ || std::exchange(failed_, true)) return;
  write_line("failed " + std::to_string(pid) + " " + std::to_string(code) + " " +
             printable(reason, kMaxLineReasonBytes));
}

bool Announcements::write_line(const std::string& text) {
  if (fd_.get() < 0) return true;
  const std::string line = text + "\n";
  if (write(fd_.get(), line.data(), line.size()) == std::ssize(line)) return true;
  fd_.reset();
  return false;
}

}  // namespace pushpull
