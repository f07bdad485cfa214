// Checks of a job's ports, and of this host against the coordinator's answer.
#include <netdb.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/doctor/checks.h"
#include "cli/doctor/within.h"
#include "cli/status/ask_status.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/net/address.h"
#include "common/net/frames.h"
#include "common/net/join.h"
#include "common/net/tcp_socket.h"

namespace pushpull {
namespace {

constexpr double kNameSeconds = 5.0;
constexpr int kConnectMs = 3000;

struct Resolved {
  std::optional<SocketAddress> address;
  std::string why;
};

// Resolves as members do: a name means its IPv6 address only if it has none of IPv4.
Resolved look_up(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
  if (rc != 0) return {std::nullopt, gai_strerror(rc)};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  const addrinfo* chosen = found;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (at->ai_family == AF_INET && chosen->ai_family != AF_INET) chosen = at;
  }
  SocketAddress out;
  std::memcpy(&out.storage, chosen->ai_addr, chosen->ai_addrlen);
  out.length = chosen->ai_addrlen;
  return {out, ""};
}

// Returns why the address does not accept connections, or "" if it does.
std::string why_not_connected(const SocketAddress& to) {
  const UniqueFd fd = start_connect(to);
  if (fd.get() < 0) return errno_text();
  pollfd writable{fd.get(), POLLOUT, 0};
  const int ready = poll(&writable, 1, kConnectMs);
  if (ready == 0) return "no answer within " + std::to_string(kConnectMs / 1000) + " s";
  errno = ready < 0 ? errno : connect_error(fd.get());
  return errno == 0 ? "" : errno_text();
}

}  // namespace

AddressFindings reach(const std::string& address, const std::string& check,
                      const std::string& way_out) {
  const std::string of = check.empty() ? "" : " " + check;
  const Address parsed = parse_address(address, "join");
  const auto resolved = within<Resolved>(kNameSeconds, [parsed] { return look_up(parsed); });
  if (!resolved || !resolved->address) {
    const std::string why = resolved ? resolved->why : "the name service did not answer";
    return {wrong("name" + of,
                  parsed.host + " cannot be resolved: " + why +
                      "; use its IP address, or put the name into DNS or /etc/hosts",
                  ErrorCode::kUnreachable),
            wrong("port" + of, address + " was not tried because its name is unknown",
                  ErrorCode::kUnreachable)};
  }
  const std::string numbers = resolved->address->to_string();
  Finding name = fine("name" + of, parsed.host + " is " + numbers.substr(0, numbers.rfind(':')));
  const std::string why = why_not_connected(*resolved->address);
  if (!why.empty()) {
    return {name, wrong("port" + of, address + " cannot be reached: " + why + "; " + way_out,
                        ErrorCode::kUnreachable)};
  }
  return {name, fine("port" + of, address + " accepts connections"), true};
}

namespace {

using nlohmann::ordered_json;

constexpr int64_t kFilesOfAProcess = 64;
constexpr int64_t kFilesOfAWorker = 16;  // at a server: connections and shared memory

void append_to(std::vector<Finding>& findings, std::vector<Finding> more) {
  for (Finding& one : more) findings.push_back(std::move(one));
}

std::string describe_member(const ordered_json& member) {
  const ordered_json& rank = member.at("rank");
  return printable(member.at("role").get<std::string>()) +
         (rank.is_null() ? "" : " " + std::to_string(rank.get<int64_t>()));
}

// Returns no findings if the job answers, and stores the answer in `answer`.
std::vector<Finding> ask_job(zmq::context_t& context, const std::string& address, const Keys& keys,
                             double timeout_s, std::optional<StatusAnswer>& answer) {
  try {
    answer = ask_status(context, address, keys, timeout_s);
    return {};
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kRefused) return {wrong("key", e.what(), e.code())};
    const bool other_release = e.code() == ErrorCode::kProtocol;
    const std::string text =
        other_release ? std::string(e.what())
                      : address +
                            " accepts connections, but no coordinator has answered: it is "
                            "stopped, or another program listens there (" +
                            e.what() + ")";
    return {wrong(other_release ? "version" : "job", text, e.code())};
  }
}

Finding check_version(const ordered_json& document) {
  const std::string theirs = printable(document.at("version").get<std::string>());
  const std::string text = "the coordinator's program is version " + theirs + ", this one " +
                           program_version() + ", both with protocol version " +
                           std::to_string(kProtocolVersion);
  if (theirs == program_version()) return fine("version", text);
  return warning("version", text + "; they understand each other, but use programs of one release");
}

Finding check_key(const std::string& address, const Keys& keys) {
  if (!keys.insecure()) return fine("key", keys.source() + " opens the job");
  if (parse_address(address, "join").is_loopback()) {
    return fine("key", "none: every user of this host can take part in the job");
  }
  return warning("key", "none: any host that reaches " + address +
                            " can take part in the job; use it on a network that you trust");
}

// Returns an error if the address means another host when used here, such as a loopback address.
std::optional<Finding> check_meant_host(const std::string& who, const std::string& address,
                                        bool same_host) {
  const Address parsed = parse_address(address, "join");
  if (same_host || (!parsed.is_loopback() && !parsed.is_everywhere())) return std::nullopt;
  return wrong(who,
               address +
                   " is an address of its own host, which this one cannot reach; start it "
                   "with --listen tcp://ADDRESS:*, or with --advertise HOST",
               ErrorCode::kUnreachable);
}

// Returns empty for an observer's key, which does not open data connections.
std::optional<Credentials> data_credentials(const Keys& keys, const StatusAnswer& answer) {
  try {
    return keys.data_credentials(answer.encrypt_data, answer.run_id);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<Finding> check_member(zmq::context_t& context, const ordered_json& member,
                                  const std::optional<Credentials>& data, bool same_host) {
  const std::string address = member.at("address").get<std::string>();
  if (address.empty()) return {};
  const std::string who = describe_member(member);
  if (auto meant = check_meant_host(who, address, same_host)) return {std::move(*meant)};
  const AddressFindings way =
      reach(address, "of " + who,
            "let firewalls pass its port, or choose the port with --listen tcp://ADDRESS:PORT");
  std::vector<Finding> findings;
  if (way.name.level != Finding::kOk) findings.push_back(way.name);
  if (!way.ok) findings.push_back(way.port);
  if (!way.ok) return findings;
  if (member.at("role") == "server" && !data) {
    return {way.port, warning(who, "not measured: an observer's key does not reach its data")};
  }
  if (member.at("role") == "server") {
    return check_server(context, who, address, data->to(member.at("listener").get<std::string>()));
  }
  return {way.port};
}

// Only a process on another host can try this way.
Finding way_back() {
  return fine("way back",
              "not tried: other hosts must also reach the port of a server, or in allreduce of a "
              "worker, on this one; once it has joined, run doctor on another host");
}

std::vector<Finding> check_here(const ordered_json& document, bool same_host) {
  const int64_t workers = document.at("workers").get<int64_t>();
  std::vector<Finding> findings = {check_files_here(kFilesOfAProcess + kFilesOfAWorker * workers),
                                   check_shm_here()};
  if (!same_host) findings.push_back(way_back());
  const std::string out = document.at("out").get<std::string>();
  std::error_code absent;
  if (same_host && std::filesystem::is_directory(out, absent)) {
    findings.insert(findings.begin(), check_disk_here(out));
  }
  return findings;
}

std::vector<Finding> check_members(zmq::context_t& context, const ordered_json& document,
                                   const std::optional<Credentials>& data, bool same_host) {
  std::vector<Finding> findings;
  for (const ordered_json& member : document.at("members")) {
    append_to(findings, check_member(context, member, data, same_host));
    const double heard = member.at("heard_seconds").get<double>();
    if (heard < 3.0) continue;
    findings.push_back(
        warning(describe_member(member), "the coordinator has not heard from it for " +
                                             std::to_string(static_cast<int64_t>(heard)) + " s"));
  }
  return findings;
}

}  // namespace

std::vector<Finding> check_job(const std::string& address, const Keys& keys, double timeout_s) {
  const AddressFindings way =
      reach(address, "", "is the job running there, and do firewalls allow its port?");
  std::vector<Finding> findings = {way.name, way.port};
  if (!way.ok) return findings;
  zmq::context_t context(1);
  std::optional<StatusAnswer> answer;
  append_to(findings, ask_job(context, address, keys, timeout_s, answer));
  if (!answer) return findings;
  const ordered_json& document = answer->document;
  try {
    const bool same_host = document.at("host").get<std::string>() == host_name();
    findings.push_back(check_version(document));
    findings.push_back(check_key(address, keys));
    findings.push_back(check_clock(answer->utc_ms, answer->heard_utc_ms, answer->round_trip_ms));
    append_to(findings,
              check_members(context, document, data_credentials(keys, *answer), same_host));
    append_to(findings, check_here(document, same_host));
  } catch (const Error& e) {  // an address in the answer is malformed
    findings.push_back(
        wrong("job", "the answer of " + address + ": " + e.what(), ErrorCode::kProtocol));
  } catch (const nlohmann::json::exception& e) {
    findings.push_back(wrong("job", "the answer of " + address + " lacks something: " + e.what(),
                             ErrorCode::kProtocol));
  }
  return findings;
}

}  // namespace pushpull
