#include "common/net/join.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/net/frames.h"

namespace pushpull {

std::string program_version() { return PUSHPULL_VERSION; }

bool is_logged_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '/';
  });
}

std::string foreign_version_text(const std::string& address, int version) {
  return "[join] the server at " + address + " speaks protocol version " + std::to_string(version) +
         ", this program version " + std::to_string(kProtocolVersion) +
         "; use programs of one release";
}

Joining::Joining(const JoinOptions& options, const std::string& data_endpoint) : options_(options) {
  wire::Hello* hello = hello_.header.mutable_hello();
  hello->set_role(options.role);
  hello->set_host(options.host);
  hello->set_pid(options.pid);
  hello->set_incarnation(options.incarnation);
  hello->set_version(program_version());
  hello->set_data_endpoint(data_endpoint);
  hello->set_device(options.device);
  hello->set_job_token(options.job_token);
  hello->set_wanted_rank(options.wanted_rank + 1);
  hello->set_job_keys(options.job_keys);
}

std::optional<Message> Joining::on_tick(int64_t now_ms) {
  // no line in the first second: most answers come sooner
  if (!began_ms_) line_.restart(now_ms + 1000 - kWaitingMs);
  if (!began_ms_ || std::exchange(answered_, false)) began_ms_ = now_ms;
  const int64_t waited_ms = now_ms - *began_ms_;
  if (waited_ms > static_cast<int64_t>(options_.timeout_s * 1000)) {
    throw Error(ErrorCode::kUnreachable,
                "[join] no server has answered at " + options_.coordinator + " for " +
                    std::to_string(waited_ms / 1000) +
                    " s; is it running there? --join-timeout sets how long to wait");
  }
  if (!repeat_.due(now_ms)) return std::nullopt;
  return hello_;
}

bool Joining::on_message(const Message& message) {
  const wire::Header& header = message.header;
  if (header.has_refused()) {
    throw Error(static_cast<ErrorCode>(header.refused().code()), header.refused().text());
  }
  if (header.has_no_place_yet()) {
    no_place_ = header.no_place_yet().text();
    answered_ = true;
    return false;
  }
  return hello_.header.hello().data_endpoint().empty() ? header.has_job_text() : header.has_state();
}

std::string Joining::waiting(int64_t now_ms) {
  if (!began_ms_ || !line_.due(now_ms)) return "";
  if (!no_place_.empty()) return "waiting for a place: " + no_place_;
  return "waiting for the server at " + options_.coordinator;
}

}  // namespace pushpull
