#include "cli/doctor/job_checks.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/doctor/host_checks.h"
#include "cli/doctor/reach.h"
#include "cli/doctor/server_check.h"
#include "cli/status/ask_status.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/net/address.h"
#include "common/net/frames.h"
#include "common/net/join.h"

namespace pushpull {

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
    return keys.data_credentials(answer.encrypt_data, answer.first_run);
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
