#include "ps/members/admission.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/text.h"
#include "common/net/address.h"
#include "common/net/join.h"
#include "ps/members/message_checks.h"

namespace pushpull {
namespace {

constexpr size_t kMost = 64;
constexpr int64_t kForgetMs = 3600'000;

}  // namespace

int64_t Newcomers::wait(int64_t now_ms, const PeerId& peer, uint64_t incarnation) {
  std::erase_if(all_,
                [now_ms](const auto& entry) { return now_ms - entry.second.since_ms > kForgetMs; });
  // A flood of Hellos must not displace a process that repeats its own.
  if (all_.size() >= kMost && !all_.contains(incarnation)) {
    all_.erase(std::min_element(all_.begin(), all_.end(), [](const auto& a, const auto& b) {
      return a.second.heard_ms < b.second.heard_ms;
    }));
  }
  Newcomer& newcomer = all_.try_emplace(incarnation, Newcomer{now_ms, now_ms, peer}).first->second;
  newcomer.heard_ms = now_ms;
  newcomer.peer = peer;
  return now_ms - newcomer.since_ms;
}

void Newcomers::answer(const PeerId& peer, const std::string& reason) {
  Message message;
  message.header.mutable_no_place_yet()->set_text(reason);
  out_.send(peer, std::move(message));
}

void Newcomers::end(const Error& end) {
  if (end_) return;
  end_ = end;
  for (const auto& [incarnation, newcomer] : all_) {
    out_.refuse(newcomer.peer, end.code(), end.what());
  }
  all_.clear();
}

namespace {

// A host name has at most 255 bytes, the other fields less than twice as many.
constexpr size_t kMaxWordBytes = 512;
// More than users start; guards against a peer that sends Hello after Hello.
constexpr int kMaxSpares = 4096;
constexpr int64_t kReplacementMs = 2000;  // that a surplus server waits beyond heartbeat-timeout

// Returns true if `text` is an address that other processes can connect to.
bool is_endpoint(const std::string& text) {
  try {
    return parse_address(text, "data-endpoint").port != "*";
  } catch (const Error&) {
    return false;
  }
}

std::string quoted(const std::string& text) { return "'" + printable(text, 80) + "'"; }

}  // namespace

Checked check_hello(const wire::Hello& hello) {
  if (hello.role() != wire::ROLE_SERVER && hello.role() != wire::ROLE_WORKER) {
    return refused("bad-role", "role server or worker", std::to_string(hello.role()));
  }
  if (hello.incarnation() == 0) return refused("no-incarnation", "an incarnation", "0");
  const size_t longest =
      std::max({hello.host().size(), hello.version().size(), hello.data_endpoint().size(),
                hello.device().size(), hello.job_token().size()});
  if (longest > kMaxWordBytes) {
    return refused("long-hello", "at most " + std::to_string(kMaxWordBytes) + " bytes a word",
                   std::to_string(longest));
  }
  if (hello.job_keys().size() > kMaxJobKeysBytes) {
    return refused("long-hello", "at most " + std::to_string(kMaxJobKeysBytes) + " bytes of keys",
                   std::to_string(hello.job_keys().size()));
  }
  const bool listens = hello.role() == wire::ROLE_SERVER && !hello.data_endpoint().empty();
  if (listens && !is_endpoint(hello.data_endpoint())) {
    return refused("bad-endpoint", "an address with a port", quoted(hello.data_endpoint()));
  }
  return std::nullopt;
}

Admission::Admission(const CoordinatorOptions& options, Membership& members, Actions& out)
    : options_(options),
      members_(members),
      out_(out),
      declarations_(options.job, options.declared),
      newcomers_(out),
      places_(options.workers) {
  MemberInfo& self = members_.add(options_.self);
  self.role = wire::ROLE_SERVER;
  self.rank = 0;
  self.peer.clear();
}

Checked Admission::on_hello(int64_t now_ms, const PeerId& peer, const wire::Hello& hello,
                            wire::Phase phase) {
  if (Checked refusal = check_hello(hello)) return refusal;
  if (refuse_other_job(peer, hello)) return std::nullopt;
  if (members_.find(hello.incarnation()) == nullptr) {
    if (refuse_hello(now_ms, peer, hello, phase)) return std::nullopt;
    if (members_.find_peer(peer) != nullptr) {
      return refused("one-member", "one process on a connection",
                     "another one from host " + quoted(hello.host()));
    }
    if (Checked refusal = make_room(hello)) return refusal;
    // A server asks for the job first: it must know the slice size before it listens.
    const bool only_asks = hello.role() == wire::ROLE_SERVER && hello.data_endpoint().empty();
    if (!only_asks) add_member(hello);
  }
  Message answer = job_text();
  if (MemberInfo* member = members_.find(hello.incarnation())) {
    members_.heard(*member, peer, now_ms);
    answer.header.mutable_job_text()->set_rank(std::max(0, member->wanted_rank));
  }
  out_.send(peer, std::move(answer));
  out_.repeat_state(hello.incarnation());
  return std::nullopt;
}

Message Admission::job_text() const {
  Message message;
  wire::JobText* job = message.header.mutable_job_text();
  job->set_term_id(options_.term_id);
  job->set_term(options_.term);
  job->set_run_id(options_.run_id);
  job->set_workers(options_.workers);
  job->set_ini(to_ini(options_.job));
  job->set_coordinator(members_.find_rank(wire::ROLE_SERVER, 0)->name());
  return message;
}

// Drops the oldest member that has only said Hello, if the list is full: a worker that goes on to
// join sends a heartbeat as soon as it has the answer.
Checked Admission::make_room(const wire::Hello& hello) {
  const auto room = options_.servers + options_.workers + kMaxSpares;
  if (std::ssize(members_.all()) < room) return {};
  const MemberInfo* oldest = nullptr;
  for (const auto& [incarnation, member] : members_.all()) {
    if (member.role != wire::ROLE_WORKER || member.declared || member.state_version >= 0) continue;
    if (oldest == nullptr || member.last_heard_ms < oldest->last_heard_ms) oldest = &member;
  }
  if (oldest == nullptr) {
    return refused("no-room", "at most " + std::to_string(room) + " members",
                   "one more from host " + quoted(hello.host()));
  }
  members_.remove(oldest->incarnation);
  return {};
}

// A replacement may join before the coordinator notices that the old server has died.
bool Admission::may_replace(int64_t now_ms, const PeerId& peer, const wire::Hello& hello) {
  if (options_.job.on_server_loss != OnServerLoss::kRestart) return false;
  if (options_.servers == 1) return false;  // server 0 cannot be replaced by another process
  const int64_t waited_ms = newcomers_.wait(now_ms, peer, hello.incarnation());
  const auto silence_ms = static_cast<int64_t>(options_.job.heartbeat_timeout_s * 1000);
  return waited_ms <= silence_ms + kReplacementMs;
}

// A process without a token was given the address by its user.
std::string other_job_text(const std::string& own, const wire::Hello& hello) {
  if (own.empty() || hello.job_token().empty() || hello.job_token() == own) return "";
  return "[join] this server belongs to another job, " + printable(own, kMaxWordBytes) +
         ", and this process to " + printable(hello.job_token(), kMaxWordBytes) +
         "; start both by one launcher, or set one PUSHPULL_JOB_TOKEN for both";
}

bool Admission::refuse_other_job(const PeerId& peer, const wire::Hello& hello) {
  const std::string text = other_job_text(options_.job_token, hello);
  if (!text.empty()) out_.refuse(peer, ErrorCode::kRefused, text);
  return !text.empty();
}

bool Admission::refuse_hello(int64_t now_ms, const PeerId& peer, const wire::Hello& hello,
                             wire::Phase phase) {
  if (const auto& end = newcomers_.ended()) {
    out_.refuse(peer, end->code(), end->what());
    return true;
  }
  if (phase >= wire::PHASE_FINISHING) {
    newcomers_.wait(now_ms, peer, hello.incarnation());
    newcomers_.answer(peer, "the job is ending; this process ends as soon as it hears how");
    return true;
  }
  if (hello.role() != wire::ROLE_SERVER) return false;
  const int servers = members_.count(wire::ROLE_SERVER);
  if (holds_servers_) {
    newcomers_.wait(now_ms, peer, hello.incarnation());
    newcomers_.answer(peer,
                      "a server was lost; this one joins once OUT/term.json holds the next term");
    return true;  // the server asks again
  }
  // A place may be empty in training, too: the next server takes it, and the term continues.
  if (servers >= options_.servers) {
    if (may_replace(now_ms, peer, hello)) {
      newcomers_.answer(peer, "the job has all its " + counted(options_.servers, "server") +
                                  "; this one is needed only if one of them is lost");
      return true;  // the server asks again
    }
    out_.refuse(peer, ErrorCode::kUsage,
                "[join] the job was started for " + counted(options_.servers, "server") +
                    " and has " + (options_.servers == 1 ? "it" : "them all") +
                    "; start it with --servers " + std::to_string(servers + 1));
    return true;
  }
  return !hello.data_endpoint().empty() &&
         refuse_taken_endpoint(peer, hello.role(), hello.incarnation(), hello.data_endpoint());
}

bool Admission::refuse_taken_endpoint(const PeerId& peer, wire::Role role, uint64_t incarnation,
                                      const std::string& endpoint) {
  const bool server = role == wire::ROLE_SERVER;
  for (const auto& [other, member] : members_.all()) {
    if (member.role != role || other == incarnation) continue;
    const bool taken = server
                           ? member.data_endpoint == endpoint
                           : member.peer_endpoint == endpoint || member.group_endpoint == endpoint;
    if (!taken) continue;
    out_.refuse(peer, ErrorCode::kUsage,
                "[join] " + endpoint + " is the address of " + member.name() +
                    " already; give this " + (server ? "server" : "worker") +
                    " another --listen or --advertise");
    return true;
  }
  return false;
}

void Admission::add_member(const wire::Hello& hello) {
  MemberInfo info;
  info.role = hello.role();
  info.incarnation = hello.incarnation();
  info.host = hello.host();
  info.pid = hello.pid();
  info.data_endpoint = hello.data_endpoint();
  info.device = hello.device();
  info.launched =
      options_.launched && !options_.job_token.empty() && hello.job_token() == options_.job_token;
  if (hello.role() == wire::ROLE_WORKER) info.wanted_rank = unclaimed_rank(hello.wanted_rank());
  if (hello.role() == wire::ROLE_SERVER)
    info.rank = members_.free_rank(info.role, options_.servers);
  newcomers_.forget(hello.incarnation());
  const MemberInfo& member = members_.add(info);
  if (info.rank >= 0) out_.notice(member.name() + " joined from " + info.data_endpoint);
}

// Returns the rank that the worker's launcher numbers it by, unless another worker has it or was told it; else
// the lowest such rank.
//   wanted: plus 1, as in Hello.
int Admission::unclaimed_rank(int wanted) const {
  std::set<int> claimed;
  for (const auto& [incarnation, member] : members_.all()) {
    const bool gone = member.disconnected_ms >= 0;  // its replacement comes before it is given up
    if (member.role != wire::ROLE_WORKER || gone) continue;
    claimed.insert({member.rank, member.wanted_rank});
  }
  const bool exists = wanted > 0 && wanted <= options_.workers;
  if (exists && !claimed.contains(wanted - 1)) return wanted - 1;
  int rank = 0;
  while (claimed.contains(rank)) ++rank;
  return rank;
}

Admission::Declared Admission::on_declare(int64_t now_ms, const PeerId& peer,
                                          const wire::Declare& declare, wire::Phase phase) {
  MemberInfo* member = members_.find(declare.incarnation());
  if (Checked refusal = check_member(member, wire::ROLE_WORKER, declare.incarnation())) {
    return {.refusal = std::move(refusal)};
  }
  members_.heard(*member, peer, now_ms);
  out_.repeat_state(declare.incarnation());
  if (member->declared) return {};
  const bool sums = options_.job.strategy.traits().workers_update;
  const bool divides = options_.job.stages > 1;
  for (const auto& [needed, endpoint, own] :
       {std::tuple(sums, declare.peer_endpoint(), &MemberInfo::peer_endpoint),
        std::tuple(divides, declare.group_endpoint(), &MemberInfo::group_endpoint)}) {
    if (!needed) continue;
    if (endpoint.size() > kMaxWordBytes || !is_endpoint(endpoint)) {
      return {.refusal = refused("bad-endpoint", "an address for the other workers, with a port",
                                 quoted(endpoint) + " from " + member->name())};
    }
    if (refuse_taken_endpoint(peer, member->role, member->incarnation, endpoint)) {
      members_.remove(member->incarnation);
      return {};
    }
    member->*own = endpoint;
  }
  Declared outcome = check_declaration(peer, *member, declare);
  if (outcome.admitted) {
    member->stage = declare.has_own_stage() ? declare.own_stage().stage() : -1;
    member->port = declare.own_stage().port();
    member->local_stages = std::max(1, declare.local_stages());
    admit(*member, phase);
  } else if (!outcome.job_error) {
    const MemberInfo refused_one = *member;
    members_.remove(member->incarnation);
    if (phase == wire::PHASE_GATHERING) forget(refused_one);
  }
  return outcome;
}

Admission::Declared Admission::check_declaration(const PeerId& peer, const MemberInfo& member,
                                                 const wire::Declare& declare) {
  try {
    const std::string difference = declarations_.take(declare);
    if (!difference.empty()) {
      out_.refuse(peer, ErrorCode::kProtocol, "[declare] this worker cannot join: " + difference);
      out_.notice("refused " + member.name() + ": " + difference);
      return {};
    }
  } catch (const Error& e) {
    out_.refuse(peer, e.code(), e.what());
    // A malformed declaration is this peer's fault alone.
    if (e.code() != ErrorCode::kProtocol) {
      // The data in a folder may be wrong on one host only.
      if (options_.job.data_dir.empty()) return {.job_error = e};
      out_.notice("refused " + member.name() + ": " + e.what());
      return {};
    }
    return {.refusal =
                refused("bad-declaration", std::string(e.what()) + ", from " + member.name())};
  }
  const std::string other_bits = declarations_.other_bits(member.name(), declare);
  if (!other_bits.empty()) out_.notice(other_bits);
  return {.admitted = true};
}

void Admission::admit(MemberInfo& member, wire::Phase phase) {
  member.declared = true;
  member.rank = rank_for(member);
  out_.state_changed();
  if (member.rank < 0) {
    out_.notice(member.name() + " joined as a spare");
  } else if (phase == wire::PHASE_GATHERING) {
    const auto& all = members_.all();
    const auto ready = std::count_if(all.begin(), all.end(), [](const auto& entry) {
      return entry.second.role == wire::ROLE_WORKER && entry.second.rank >= 0;
    });
    out_.notice(member.name() + " joined, " + std::to_string(ready) + " of " +
                std::to_string(options_.workers));
  } else if (member.rank < options_.workers) {
    out_.notice(member.name() + " takes the free place");
  } else {
    out_.notice(member.name() + " joined, and takes part as soon as there is work for it");
  }
}

int64_t Admission::places_of(int stage) const {
  const int64_t stages = options_.job.stages;
  return options_.workers / stages + (stage < options_.workers % stages ? 1 : 0);
}

int64_t Admission::taken_of(int stage) const {
  const auto& all = members_.all();
  return std::count_if(all.begin(), all.end(), [stage](const auto& entry) {
    return entry.second.rank >= 0 && entry.second.stage == stage;
  });
}

// Returns the rank that the worker was told, if it is free and the job was started for it; else the lowest
// free one, or -1. Looks at no more ranks than there are workers, since places_ may be unlimited. While they are
// not, workers that have declared one stage leave the places of the others free.
int Admission::rank_for(const MemberInfo& worker) const {
  const bool limited = worker.stage >= 0 && places_ <= options_.workers;
  if (limited && taken_of(worker.stage) >= places_of(worker.stage)) return -1;
  const int wanted = worker.wanted_rank;
  const bool exists = wanted >= 0 && wanted < options_.workers;
  if (exists && members_.find_rank(wire::ROLE_WORKER, wanted) == nullptr) return wanted;
  const int64_t most = members_.count(wire::ROLE_WORKER);
  return members_.free_rank(wire::ROLE_WORKER, static_cast<int>(std::min(places_, most)));
}

void Admission::begin_training() {
  const Job& job = options_.job;
  if (job.on_worker_loss != OnWorkerLoss::kContinue) return;
  places_ = job.max_workers > 0 ? job.max_workers : INT64_MAX;
}

void Admission::forget(const MemberInfo& member) {
  if (member.role != wire::ROLE_WORKER) return;
  std::set<int> declared;
  for (const auto& [incarnation, other] : members_.all()) {
    if (other.role == wire::ROLE_WORKER && other.declared)
      declared.insert(std::max(0, other.stage));
  }
  declarations_.keep(declared);
  promote_spares();
}

void Admission::promote_spares() {
  for (auto& [incarnation, member] : members_.all()) {
    if (member.role != wire::ROLE_WORKER || !member.declared || member.rank >= 0) continue;
    member.rank = rank_for(member);
    if (member.rank < 0) continue;
    out_.notice(member.name() + (member.rank < options_.workers
                                     ? " was a spare and takes the free place"
                                     : " takes part as soon as there is work for it"));
    out_.state_changed();
  }
}

bool Admission::has_quorum() const {
  return declarations_.complete() && members_.count(wire::ROLE_SERVER) == options_.servers;
}

bool Admission::complete() const {
  return declarations_.complete() && members_.count(wire::ROLE_SERVER) == options_.servers &&
         members_.free_rank(wire::ROLE_WORKER, options_.workers) < 0;
}

std::string Admission::waiting_for() const {
  int ready = 0;
  int preparing = 0;
  for (const auto& [incarnation, member] : members_.all()) {
    if (member.role != wire::ROLE_WORKER) continue;
    ++(member.declared ? ready : preparing);
  }
  std::string text = "waiting for members: " + std::to_string(members_.count(wire::ROLE_SERVER)) +
                     " of " + counted(options_.servers, "server") + ", " + std::to_string(ready) +
                     " of " + counted(options_.workers, "worker");
  if (preparing > 0) text += " (" + std::to_string(preparing) + " reading data)";
  if (!declarations_.by_stage()) return text;
  for (int stage = 0; stage < options_.job.stages; ++stage) {
    const int64_t lacking = places_of(stage) - taken_of(stage);
    if (lacking > 0) {
      text += ", stage " + std::to_string(stage) + " lacks " + counted(lacking, "worker");
    }
  }
  return text;
}

}  // namespace pushpull
