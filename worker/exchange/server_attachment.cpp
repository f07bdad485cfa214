#include "worker/exchange/server_attachment.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/error.h"
#include "common/direct/direct_door.h"
#include "worker/compute/device_memory.h"

namespace pushpull {

namespace {

constexpr int64_t kAskAgainMs = 50;
constexpr int64_t kAskSilentMs = 1000;
constexpr int64_t kSilenceMs = 2000;  // then training begins over the socket

std::string text_of(const std::vector<int>& servers) {
  std::string out = servers.size() == 1 ? "server " : "servers ";
  for (size_t i = 0; i < servers.size(); ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(servers[i]);
  }
  return out;
}

std::span<const std::byte> bytes_of(const std::shared_ptr<float[]>& probe) {
  return std::as_bytes(std::span(probe.get(), 1));
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

ServerAttachment::ServerAttachment(PushPull& push_pull, int rank, PagesMapped mapped,
                                   std::shared_ptr<device::Device> device)
    : push_pull_(push_pull),
      allowed_(shares_memory(push_pull.setup().job)),
      wanted_(push_pull.setup().job.transport == Transport::kShm),
      log_("worker " + std::to_string(rank)),
      mapped_(std::move(mapped)),
      pool_([this](const std::string& why) { log_.warn(why); }),
      servers_(static_cast<size_t>(push_pull.setup().servers)) {
  try {
    const Job& job = push_pull.setup().job;
    if (allowed_ || allows_direct(job)) rings_ = std::make_unique<Rings>(job.wait);
  } catch (const Error& e) {
    log_.warn(e.what());  // sockets remain
  }
  if (!allowed_) {
    for (Server& server : servers_) server.path = Path::kSocket;
    may_share_ = false;
    logged_ = true;
    return;
  }
  probe_ = pool_.get(1);
  if (pool_.find(bytes_of(probe_)).segment) {
    if (!device) return;
    device_pool_ = std::make_unique<DevicePool>(std::move(device),
                                                [this](const std::string& why) { log_.warn(why); });
    device_probe_ = device_pool_->get(1);
    if (!device_pool_->find(bytes_of(device_probe_)).segment) device_pool_.reset();
  } else {
    for (int i = 0; i < push_pull.setup().servers; ++i) {
      use_socket(i, "this worker can have no shared memory");
    }
    log_if_settled();
  }
}

std::vector<ToServer> ServerAttachment::due(int64_t now_ms) {
  std::vector<ToServer> out;
  for (size_t i = 0; i < servers_.size(); ++i) {
    Server& server = servers_[i];
    if (server.path != Path::kAsked) continue;
    if (server.asked_ms < 0) server.heard_ms = now_ms;
    if (!server.silent && now_ms - server.heard_ms >= kSilenceMs) {
      server.silent = true;
      log_if_settled();
    }
    const int64_t again_ms = server.silent ? kAskSilentMs : kAskAgainMs;
    if (server.asked_ms >= 0 && now_ms - server.asked_ms < again_ms) continue;
    server.asked_ms = now_ms;
    out.push_back({static_cast<int>(i), question(static_cast<int>(i))});
  }
  return out;
}

Message ServerAttachment::question(int server) {
  Message message;
  wire::Attach* attach = message.header.mutable_attach();
  attach->mutable_sender()->set_term_id(push_pull_.setup().term_id);
  attach->mutable_sender()->set_incarnation(push_pull_.setup().incarnation);
  attach->set_host(host_identity());
  *attach->mutable_probe() = pool_.find(bytes_of(probe_)).segment->description();
  std::unique_ptr<RingPair>& ring = servers_[static_cast<size_t>(server)].ring;
  try {
    if (!ring && rings_) ring = std::make_unique<RingPair>(*rings_);
    if (ring) *attach->mutable_ring() = ring->description();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kFailed)
      throw;  // otherwise there is no memory: the socket needs none
  }
  if (device_pool_) {
    *attach->mutable_device_probe() =
        device_pool_->find(bytes_of(device_probe_)).segment->description();
  }
  return message;
}

std::vector<ToServer> ServerAttachment::questions_before_leaving() {
  std::vector<ToServer> out;
  for (int i = 0; i < push_pull_.setup().servers; ++i) {
    if (!servers_[static_cast<size_t>(i)].on_device) continue;
    for (int c = 0; c < push_pull_.connections(i); ++c) out.push_back({i, question(i), c});
  }
  unanswered_ = static_cast<int>(out.size());
  return out;
}

bool ServerAttachment::settled() const {
  return std::none_of(servers_.begin(), servers_.end(), [](const Server& server) {
    return server.path == Path::kAsked && !server.silent;
  });
}

FloatAllocator ServerAttachment::gradients() {
  return [this](size_t floats) { return may_share_ ? pool_.get(floats) : heap_floats(floats); };
}

FloatAllocator ServerAttachment::device_gradients() {
  const bool all = std::all_of(servers_.begin(), servers_.end(),
                               [](const Server& server) { return server.on_device; });
  if (!all) return nullptr;
  return [this](size_t floats) { return device_pool_->get(floats); };
}

bool ServerAttachment::on_message(int server, Message& message, int64_t now_ms) {
  Server& s = servers_[static_cast<size_t>(server)];
  if (message.header.has_attached()) {
    on_attached(server, message.header.attached());
    return false;
  }
  // the server does not know the job or this worker yet
  if (s.path == Path::kAsked && message.header.has_status()) s.heard_ms = now_ms;
  if (!message.header.has_weights()) return true;
  try {
    if (s.memory) {
      resolve(message, *s.memory, push_pull_.slices());
    } else if (has_references(message.header)) {
      throw Error(ErrorCode::kProtocol, "[shm] its memory is not attached");
    }
    return true;
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kDevice) throw;  // not the server's fault
    ++rejected_;
    if (s.path == Path::kShared) on_refusal(server, e.what());
    return false;
  }
}

// Gradients on a device that the server cannot read are sent as copies over the socket: a copy in
// shared memory would have to stay until the server has read it.
void ServerAttachment::on_send(ToServer& out) const {
  const Server& server = servers_[static_cast<size_t>(out.server)];
  if (server.path == Path::kShared) {
    refer(out.message, pool_, push_pull_.slices(), server.on_device ? device_pool_.get() : nullptr);
  }
  for (Payload& payload : out.message.payloads) {
    if (payload.on_device) payload = copy_to_host(*device_pool_->device(), payload);
  }
}

void ServerAttachment::on_attached(int server, const wire::Attached& attached) {
  Server& s = servers_[static_cast<size_t>(server)];
  if (unanswered_ > 0) --unanswered_;
  if (!attached.ok()) {
    if (s.path != Path::kSocket) on_refusal(server, attached.text());
  } else if (s.path == Path::kAsked) {
    try {
      s.memory.emplace(max_segment_bytes(push_pull_.slices()), mapped_,
                       device_pool_ ? device_pool_->device() : nullptr);
      s.memory->map(attached.probe());
      if (device_pool_) attach_device(s, attached);
      attach_ring(s, attached);
      s.path = Path::kShared;
      push_pull_.share_memory(server, true, s.on_device);
      if (logged_) say("server " + std::to_string(server) + " shares memory from here on");
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kDevice) throw;
      use_socket(server, e.what());
    }
  }
  log_if_settled();
}

// Without a ring messages go over the socket alone.
void ServerAttachment::attach_ring(Server& server, const wire::Attached& attached) {
  if (!attached.has_ring() || !server.ring) return server.ring.reset();
  try {
    server.ring->open(attached.ring());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kProtocol) throw;
    server.ring.reset();
  }
}

bool ServerAttachment::send(const ToServer& message) {
  const Server& server = servers_[static_cast<size_t>(message.server)];
  return server.ring && server.ring->is_open() &&
         server.ring->send(message.connection, message.message);
}

std::optional<Message> ServerAttachment::receive(int server) {
  Server& s = servers_[static_cast<size_t>(server)];
  if (!s.ring) return std::nullopt;
  try {
    if (auto received = s.ring->receive()) return std::move(received->message);
  } catch (const Error& e) {
    ++rejected_;
    log_.warn("server " + std::to_string(server) + " is reached over its socket: " + e.what());
    s.ring.reset();
  }
  return std::nullopt;
}

void ServerAttachment::attach_device(Server& server, const wire::Attached& attached) {
  if (!attached.has_device_probe()) {
    server.why_not_on_device = first_line(attached.device_text());
    return;
  }
  try {
    server.memory->map(attached.device_probe());
    server.on_device = true;
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kDevice) throw;
    server.why_not_on_device = first_line(e.what());
  }
}

// Gives up shared memory: first the device's, then the host's.
void ServerAttachment::on_refusal(int server, const std::string& why) {
  Server& s = servers_[static_cast<size_t>(server)];
  if (!s.on_device) return use_socket(server, why);
  s.on_device = false;
  s.why_not_on_device = first_line(why);
  push_pull_.share_memory(server, true, false);
  log_.warn("server " + std::to_string(server) +
            " shares host memory from here on: " + s.why_not_on_device);
}

void ServerAttachment::use_socket(int server, const std::string& why) {
  Server& s = servers_[static_cast<size_t>(server)];
  s.path = Path::kSocket;
  s.ring.reset();
  s.on_device = false;
  s.why = first_line(why);
  may_share_ = std::any_of(servers_.begin(), servers_.end(),
                           [](const Server& other) { return other.path != Path::kSocket; });
  push_pull_.share_memory(server, false);
  if (logged_)
    log_.warn("server " + std::to_string(server) + " is reached over its socket: " + s.why);
}

void ServerAttachment::start_over(int server) {
  Server& s = servers_[static_cast<size_t>(server)];
  if (s.path == Path::kSocket) return;
  s = {};
  s.silent = true;  // training does not wait for it
  push_pull_.share_memory(server, false);
}

// Logs one line for all servers.
void ServerAttachment::log_if_settled() {
  if (logged_ || !settled()) return;
  logged_ = true;
  std::vector<int> on_device;
  std::map<std::string, std::vector<int>> shared;   // by the reason against device memory
  std::map<std::string, std::vector<int>> sockets;  // by reason
  for (size_t i = 0; i < servers_.size(); ++i) {
    const Server& server = servers_[i];
    const auto rank = static_cast<int>(i);
    if (server.on_device) {
      on_device.push_back(rank);
    } else if (server.path == Path::kShared) {
      shared[server.why_not_on_device].push_back(rank);
    } else {
      sockets[server.silent ? "no answer yet" : server.why].push_back(rank);
    }
  }
  std::string text;
  const auto add = [&text](const std::string& what, const std::vector<int>& ranks,
                           const std::string& why) {
    text += (text.empty() ? "" : "; ") + what + text_of(ranks);
    if (!why.empty()) text += " (" + why + ")";
  };
  if (!on_device.empty()) add("shared device memory with ", on_device, "");
  for (const auto& [why, ranks] : shared) add("shared memory with ", ranks, why);
  for (const auto& [why, ranks] : sockets) add("sockets to ", ranks, why);
  if (sockets.empty()) {
    log_.info(text);
  } else {
    say(text);
  }
}

void ServerAttachment::say(const std::string& text) const {
  if (wanted_) {
    log_.warn(text);
  } else {
    log_.info(text);
  }
}

}  // namespace pushpull
