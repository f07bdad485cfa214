#include "worker/server_memory.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/error.h"

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

}  // namespace

ServerMemory::ServerMemory(PushPull& push_pull, int rank, PagesMapped mapped)
    : push_pull_(push_pull),
      allowed_(shares_memory(push_pull.setup().job)),
      wanted_(push_pull.setup().job.transport == Transport::kShm),
      log_("worker " + std::to_string(rank)),
      mapped_(std::move(mapped)),
      pool_([this](const std::string& why) { log_.warn(why); }),
      servers_(static_cast<size_t>(push_pull.setup().servers)) {
  if (!allowed_) {
    for (Server& server : servers_) server.way = Way::kSocket;
    said_ = true;
    return;
  }
  probe_ = pool_.get(1);
  if (!pool_.find(std::as_bytes(std::span(probe_.get(), 1))).segment) {
    for (int i = 0; i < push_pull.setup().servers; ++i) {
      use_socket(i, "this worker can have no shared memory");
    }
    say_if_settled();
  }
}

std::vector<ToServer> ServerMemory::due(int64_t now_ms) {
  std::vector<ToServer> out;
  for (size_t i = 0; i < servers_.size(); ++i) {
    Server& server = servers_[i];
    if (server.way != Way::kAsked) continue;
    if (server.asked_ms < 0) server.heard_ms = now_ms;
    if (!server.silent && now_ms - server.heard_ms >= kSilenceMs) {
      server.silent = true;
      say_if_settled();
    }
    const int64_t again_ms = server.silent ? kAskSilentMs : kAskAgainMs;
    if (server.asked_ms >= 0 && now_ms - server.asked_ms < again_ms) continue;
    server.asked_ms = now_ms;
    Message message;
    wire::Attach* attach = message.header.mutable_attach();
    attach->mutable_sender()->set_run(push_pull_.setup().run);
    attach->mutable_sender()->set_incarnation(push_pull_.setup().incarnation);
    attach->set_host(host_identity());
    *attach->mutable_probe() =
        pool_.find(std::as_bytes(std::span(probe_.get(), 1))).segment->description();
    out.push_back({static_cast<int>(i), std::move(message)});
  }
  return out;
}

bool ServerMemory::settled() const {
  return std::none_of(servers_.begin(), servers_.end(), [](const Server& server) {
    return server.way == Way::kAsked && !server.silent;
  });
}

bool ServerMemory::may_share() const {
  return std::any_of(servers_.begin(), servers_.end(),
                     [](const Server& server) { return server.way != Way::kSocket; });
}

FloatAllocator ServerMemory::gradients() {
  return [this](size_t floats) { return may_share() ? pool_.get(floats) : heap_floats(floats); };
}

bool ServerMemory::on_message(int server, Message& message, int64_t now_ms) {
  Server& s = servers_[static_cast<size_t>(server)];
  if (message.header.has_attached()) {
    on_attached(server, message.header.attached());
    return false;
  }
  // it does not know the job or this worker yet
  if (s.way == Way::kAsked && message.header.has_status()) s.heard_ms = now_ms;
  if (!message.header.has_weights()) return true;
  try {
    if (s.memory) {
      resolve(message, *s.memory, push_pull_.slices());
    } else if (has_references(message.header)) {
      throw Error(ErrorCode::kProtocol, "[shm] its memory is not attached");
    }
    return true;
  } catch (const Error& e) {
    ++rejected_;
    if (s.way == Way::kShared) use_socket(server, e.what());
    return false;
  }
}

void ServerMemory::on_send(ToServer& out) const {
  if (servers_[static_cast<size_t>(out.server)].way != Way::kShared) return;
  refer(out.message, pool_, push_pull_.slices());
}

void ServerMemory::on_attached(int server, const wire::Attached& attached) {
  Server& s = servers_[static_cast<size_t>(server)];
  if (!attached.ok()) {
    if (s.way != Way::kSocket) use_socket(server, attached.text());
  } else if (s.way == Way::kAsked) {
    try {
      s.memory.emplace(most_segment_bytes(push_pull_.slices()), mapped_);
      s.memory->map(attached.probe());
      s.way = Way::kShared;
      push_pull_.share_memory(server, true);
      if (said_) say("server " + std::to_string(server) + " shares memory from here on");
    } catch (const Error& e) {
      use_socket(server, e.what());
    }
  }
  say_if_settled();
}

void ServerMemory::use_socket(int server, const std::string& why) {
  Server& s = servers_[static_cast<size_t>(server)];
  s.way = Way::kSocket;
  s.why = why.substr(0, why.find('\n'));
  push_pull_.share_memory(server, false);
  if (said_)
    log_.warn("server " + std::to_string(server) + " is reached over its socket: " + s.why);
}

// One line for all servers.
void ServerMemory::say_if_settled() {
  if (said_ || !settled()) return;
  said_ = true;
  std::vector<int> shared;
  std::map<std::string, std::vector<int>> sockets;  // by reason
  for (size_t i = 0; i < servers_.size(); ++i) {
    const Server& server = servers_[i];
    const auto rank = static_cast<int>(i);
    if (server.way == Way::kShared) {
      shared.push_back(rank);
    } else {
      sockets[server.silent ? "no answer yet" : server.why].push_back(rank);
    }
  }
  std::string text;
  if (!shared.empty()) text = "shared memory with " + text_of(shared);
  for (const auto& [why, ranks] : sockets) {
    text += (text.empty() ? "" : "; ") + ("sockets to " + text_of(ranks)) + " (" + why + ")";
  }
  if (sockets.empty()) {
    log_.info(text);
  } else {
    say(text);
  }
}

void ServerMemory::say(const std::string& text) const {
  if (wanted_) {
    log_.warn(text);
  } else {
    log_.info(text);
  }
}

}  // namespace pushpull
