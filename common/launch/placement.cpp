#include "common/launch/placement.h"

#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>

#include "common/base/process.h"
#include "common/base/text.h"
#include "common/launch/claim.h"
#include "common/net/address.h"

namespace pushpull {

namespace {

constexpr int64_t kDefaultPort = 5555;  // pushpull-server's own
constexpr int64_t kPortsToTry = 16;
constexpr const char* kByHand = "give the address by hand: --join tcp://HOST:PORT";

// "torchrun rank 3 of 4", or the launcher alone if it has no ranks.
std::string rank_text(const Claim& claim) {
  if (!claim.rank) return claim.source;
  return claim.source + " rank " + std::to_string(claim.rank->value) +
         (claim.size ? " of " + std::to_string(claim.size->value) : "");
}

bool places(const Claim& claim) {
  return claim.missing.empty() && (claim.rank.has_value() || claim.role.has_value());
}

// Returns the value of the first claim that has it.
template <class T>
std::optional<Found<T>> first_of(const std::vector<Claim>& claims,
                                 std::optional<Found<T>> Claim::*value) {
  for (const Claim& claim : claims) {
    if (claim.*value) return claim.*value;
  }
  return std::nullopt;
}

Claim claim_of_address(const std::string& join, bool server) {
  const Address address = parse_address(join, "join");
  Claim claim{.source = "--join"};
  claim.role = {server ? TaskRole::kServer : TaskRole::kWorker, "--join"};
  claim.host = {address.host, "--join"};
  claim.port = {std::stoi(address.port == "*" ? "0" : address.port), "--join"};
  return claim;
}

[[noreturn]] void refuse_halves(const std::vector<Claim>& claims) {
  if (claims.empty()) {
    refuse_launch(std::string("--join auto finds no launcher's variables (PUSHPULL_JOIN, RANK and "
                              "WORLD_SIZE, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_STEP_ID, "
                              "JOB_COMPLETION_INDEX, TF_CONFIG); ") +
                  kByHand);
  }
  std::string text;
  for (const Claim& claim : claims) text += claim.source + ": " + claim.missing + "; ";
  refuse_launch(text + "or " + kByHand);
}

[[noreturn]] void refuse_pair(const std::string& one, const std::string& other) {
  refuse_launch(one + " contradicts " + other + "; unset the variables of one of them");
}

// A half claim before the one that counts must agree with it.
void check_half(const Claim& half, const Claim& chosen) {
  const auto check = [](const std::optional<Found<int64_t>>& one,
                        const std::optional<Found<int64_t>>& other) {
    if (!one || !other || one->value == other->value) return;
    refuse_pair(one->from + "=" + std::to_string(one->value),
                other->from + "=" + std::to_string(other->value));
  };
  check(half.rank, chosen.rank);
  check(half.size, chosen.size);
}

// Launchers may be nested: torchrun in a Slurm step has ranks and sizes of its own. But ranks that a
// script has set, once for all tasks, are not those of the launcher inside which they were set.
//   outer: the next complete claim.
void check_outer(const Claim& chosen, const Claim& outer) {
  const bool scripted = chosen.source == "torchrun" && !chosen.own_ranks;
  if (!scripted || outer.role || !outer.size || !chosen.size) return;
  if (outer.size->value != chosen.size->value || outer.rank->value == chosen.rank->value) return;
  refuse_pair(rank_text(chosen) + " (RANK, WORLD_SIZE)", rank_text(outer));
}

// Hosts that users or launchers name must be one host; PUSHPULL_JOIN overrides them. torchrun in a pod
// of Kubeflow may give its host another name.
void check_hosts(const std::vector<Claim>& claims) {
  constexpr std::array kNaming = {"torchrun", "TF_CONFIG", "ps-lite"};
  const Claim* first = nullptr;
  for (const Claim& claim : claims) {
    if (!claim.host || std::ranges::find(kNaming, claim.source) == kNaming.end()) continue;
    if (first == nullptr) first = &claim;
    if (claim.host->value == first->host->value) continue;
    refuse_pair(first->host->from + " " + first->host->value,
                claim.host->from + " " + claim.host->value);
  }
}

// Returns the index of the claim that places this task. An address alone places a worker, or a
// further server.
size_t choose_claim(std::vector<Claim>& claims, bool server) {
  const auto complete = std::ranges::find_if(claims, places);
  if (complete != claims.end()) return static_cast<size_t>(complete - claims.begin());
  const bool halves = std::ranges::any_of(
      claims, [](const Claim& claim) { return claim.rank.has_value() || claim.size.has_value(); });
  const bool address =
      !claims.empty() && claims.front().host && claims.front().host->from == "PUSHPULL_JOIN";
  if (halves || !address) refuse_halves(claims);
  claims.front().role = {server ? TaskRole::kServer : TaskRole::kWorker, "PUSHPULL_JOIN"};
  claims.front().missing.clear();
  return 0;
}

Found<int64_t> servers_of(const LaunchFlags& flags, const Claim& chosen) {
  if (flags.servers) return {*flags.servers, "--servers"};
  return chosen.servers.value_or(Found<int64_t>{1, "default"});
}

void set_workers(const LaunchFlags& flags, const Claim& chosen, Placement& to) {
  if (flags.workers) {
    to.workers = {*flags.workers, "--workers"};
  } else if (chosen.workers) {
    to.workers = chosen.workers;
  } else if (to.size && !chosen.role) {
    to.workers = {to.size->value, "one for each task"};
  }
}

void set_role(const LaunchFlags& flags, const Claim& chosen, Placement& to) {
  const char* program = flags.server ? "pushpull-server" : "pushpull-worker";
  to.role_from = program;
  if (chosen.role && flags.server == (chosen.role->value == TaskRole::kWorker)) {
    refuse_launch(
        chosen.role->from + " makes this task a " +
        (flags.server ? "worker: start pushpull-worker" : "server: start pushpull-server") +
        " here, not " + program);
  }
  if (!flags.server) {
    to.role = TaskRole::kWorker;
  } else if (chosen.role) {
    to.role =
        chosen.role->value == TaskRole::kFirstServer ? TaskRole::kFirstServer : TaskRole::kServer;
    to.role_from += ", " + chosen.role->from;
  } else {
    const int64_t rank = chosen.rank->value;
    to.role = rank == 0                 ? TaskRole::kFirstServer
              : rank < to.servers.value ? TaskRole::kServer
                                        : TaskRole::kNone;
    to.role_from += ", rank " + std::to_string(rank);
  }
}

void set_address(const std::vector<Claim>& claims, const Claim& chosen, Placement& to) {
  check_hosts(claims);
  const auto naming =
      std::ranges::find_if(claims, [](const Claim& c) { return c.host.has_value(); });
  if (naming == claims.end()) {
    refuse_launch(rank_text(chosen) + ": no variable names the first server's host: " +
                  chosen.no_host + ", or " + kByHand);
  }
  to.host = *naming->host;
  const bool user = claims.front().port && claims.front().source == "PUSHPULL_*";
  const auto port = user           ? claims.front().port
                    : naming->port ? naming->port
                                   : first_of(claims, &Claim::port);
  to.port = port.value_or(Found<int64_t>{kDefaultPort, "default"});
  to.job_token = chosen.job;
  const bool derived = chosen.port && chosen.port->from == to.port.from;
  if (derived && !chosen.job.empty()) to.ports = kPortsToTry;
}

}  // namespace

std::string Placement::address() const {
  return Address{host.value, std::to_string(port.value)}.to_string();
}

std::string Placement::listen() const {
  const Address first{host.value, std::to_string(port.value)};
  const bool v6 = host_is_ipv6 || first.host.find(':') != std::string::npos;
  const char* own = v6 ? "::1" : "127.0.0.1";
  const char* everywhere = v6 ? "::" : "*";
  return Address{first.is_loopback() ? own : everywhere, first.port}.to_string();
}

Placement place_task(const LaunchFlags& flags, const std::vector<Claim>& given) {
  std::vector<Claim> claims = given;
  if (flags.join != "auto") claims = {claim_of_address(flags.join, flags.server)};
  const size_t index = choose_claim(claims, flags.server);
  const Claim& chosen = claims[index];
  const std::vector<Claim> counting(claims.begin(), claims.begin() + static_cast<long>(index) + 1);
  Placement placement;
  placement.launcher = chosen.source;
  placement.rank = chosen.rank;
  placement.size = chosen.size ? chosen.size : first_of(counting, &Claim::size);
  placement.local_rank =
      chosen.local_rank ? chosen.local_rank : first_of(counting, &Claim::local_rank);
  for (size_t i = 0; i < index; ++i) check_half(claims[i], chosen);
  for (size_t i = index + 1; i < claims.size(); ++i) {
    if (!places(claims[i])) continue;
    if (placement.unused.empty()) check_outer(chosen, claims[i]);
    placement.unused.push_back(rank_text(claims[i]));
  }
  if (placement.rank && placement.size && placement.rank->value >= placement.size->value) {
    refuse_pair(placement.rank->from + "=" + std::to_string(placement.rank->value),
                placement.size->from + "=" + std::to_string(placement.size->value));
  }
  placement.servers = servers_of(flags, chosen);
  set_workers(flags, chosen, placement);
  set_role(flags, chosen, placement);
  set_address(claims, chosen, placement);
  return placement;
}

Environment environment_of_this_process() {
  Environment environment;
  // Not `environ`: the wheel's library has none (client/old_glibc.cpp).
  for (char** entry = __environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) {
      environment.try_emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return environment;
}

std::string job_token_of_this_process() {
  const char* const token = std::getenv("PUSHPULL_JOB_TOKEN");  // NOLINT(concurrency-mt-unsafe)
  return token == nullptr ? "" : token;
}

namespace {

std::string full_host_name() {
  std::string name = host_name();
  addrinfo hints{};
  hints.ai_flags = AI_CANONNAME;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return name;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  return list->ai_canonname != nullptr ? list->ai_canonname : name;
}

}  // namespace

Placement place_this_process(const LaunchFlags& flags) {
  const Environment environment = environment_of_this_process();
  const bool in_pod = environment.contains("JOB_COMPLETION_INDEX");
  Placement placement =
      place_task(flags, read_claims(environment, in_pod ? full_host_name() : host_name()));
  const std::string token = job_token_of_this_process();
  if (!token.empty()) placement.job_token = token;
  const bool listens = placement.role == TaskRole::kFirstServer;
  placement.host_is_ipv6 = listens && look_up_host(placement.host.value).only_ipv6();
  return placement;
}

namespace {

constexpr size_t kColumn = 14;  // where values begin

std::string row(const std::string& name, const std::string& value, const std::string& from) {
  return name + std::string(kColumn - name.size(), ' ') + value +
         (from.empty() ? "" : " (" + from + ")") + "\n";
}

std::string row(const std::string& name, const Found<int64_t>& value) {
  return row(name, std::to_string(value.value), value.from);
}

std::string role_name(TaskRole role) {
  switch (role) {
    case TaskRole::kWorker:
      return "worker";
    case TaskRole::kFirstServer:
      return "first server";
    case TaskRole::kServer:
      return "further server";
    case TaskRole::kNone:
      return "none";
  }
  return "";
}

std::string rank_of(const Placement& placement) {
  if (!placement.rank) return "";
  return std::to_string(placement.rank->value) +
         (placement.size ? " of " + std::to_string(placement.size->value) : "");
}

}  // namespace

std::string explain(const Placement& placement) {
  std::string text = row("launcher", placement.launcher, "");
  text += row("role", role_name(placement.role), placement.role_from);
  if (placement.rank) {
    const bool two = placement.size && placement.size->from != placement.rank->from;
    text += row("rank", rank_of(placement),
                placement.rank->from + (two ? ", " + placement.size->from : ""));
  }
  if (placement.local_rank) text += row("local rank", *placement.local_rank);
  text += row("first server", placement.address(),
              "host: " + placement.host.from + "; port: " + placement.port.from);
  if (placement.role != TaskRole::kWorker) {
    text += row("servers", placement.servers);
    text += placement.workers ? row("workers", *placement.workers)
                              : row("workers", "unknown", "give --workers");
  }
  for (const std::string& unused : placement.unused) text += row("not needed", unused, "");
  return text;
}

std::string summary_line(const Placement& placement) {
  return "--join auto: " + placement.launcher + (placement.rank ? ", rank " : "") +
         rank_of(placement) + ", first server at " + placement.address() +
         " (port: " + placement.port.from + ")";
}

}  // namespace pushpull
