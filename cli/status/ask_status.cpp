#include "cli/status/ask_status.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "common/base/error.h"
#include "common/base/parse_json.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/net/address.h"
#include "common/net/join.h"
#include "ps/report/term_file.h"

namespace pushpull {

namespace {

constexpr int64_t kAskMs = 500;

StatusAnswer answer_of(const wire::StatusReply& reply, double asked_s, const std::string& address) {
  StatusAnswer answer;
  answer.document = parse_json<nlohmann::ordered_json>(reply.json());
  if (!answer.document.is_object()) {
    throw Error(ErrorCode::kProtocol,
                "[status] the answer of " + address + " is not a JSON object");
  }
  answer.utc_ms = reply.utc_ms();
  answer.run_id = reply.run_id();
  answer.encrypt_data = reply.encrypt_data();
  answer.heard_utc_ms = utc_ms();
  answer.round_trip_ms = (now_seconds() - asked_s) * 1000.0;
  return answer;
}

std::string address_in_folder(const std::string& folder, const std::string& tag) {
  const std::optional<TermRecord> term = read_term(folder);
  if (term) return term->address;
  throw Error(
      ErrorCode::kUsage,
      "[" + tag + "] no job writes to " + printable(folder, kMaxPathBytes) +
          " now (there is no term.json); `pushpull report` shows what a run has left there");
}

}  // namespace

std::string asked_address(const CommandLine& line, const std::string& tag) {
  const auto join = line.local.find("join");
  if (line.positional.size() + (join == line.local.end() ? 0 : 1) != 1) {
    throw Error(ErrorCode::kUsage, "[" + tag +
                                       "] whose? Give the address of the first server, HOST:PORT, "
                                       "or the output folder of a job");
  }
  std::string text = join == line.local.end() ? line.positional.front() : join->second;
  std::error_code error;
  if (join == line.local.end() && std::filesystem::is_directory(text, error))
    return address_in_folder(text, tag);
  if (text.find("://") == std::string::npos) text.insert(0, "tcp://");
  parse_address(text, "join");
  return text;
}

StatusQuestion::StatusQuestion(zmq::context_t& context, const std::string& address,
                               const Keys& keys)
    : address_(address),
      dealer_(context, address, control_limits(), keys.control_credentials()),
      question_(kAskMs) {}

zmq::pollitem_t StatusQuestion::item() { return {dealer_.socket().handle(), 0, ZMQ_POLLIN, 0}; }

std::optional<StatusAnswer> StatusQuestion::turn() {
  if (question_.due(now_ms())) {
    Message message;
    const int64_t number = std::ssize(asked_s_) + 1;
    message.header.mutable_status_request()->set_number(number);
    asked_s_[number] = now_seconds();
    dealer_.send(message);
  }
  while (const auto message = dealer_.receive()) {
    const wire::Header& header = message->header;
    if (header.has_refused()) {
      throw Error(static_cast<ErrorCode>(header.refused().code()), header.refused().text());
    }
    const auto asked = asked_s_.find(header.status_reply().number());
    if (header.has_status_reply() && asked != asked_s_.end()) {
      return answer_of(header.status_reply(), asked->second, address_);
    }
  }
  if (const auto why = dealer_.refused()) throw Error(ErrorCode::kRefused, *why);
  if (dealer_.foreign_version() != 0) {
    throw Error(ErrorCode::kProtocol, foreign_version_text(address_, dealer_.foreign_version()));
  }
  return std::nullopt;
}

StatusAnswer ask_status(zmq::context_t& context, const std::string& address, const Keys& keys,
                        double timeout_s) {
  StatusQuestion question(context, address, keys);
  const double end_s = now_seconds() + timeout_s;
  while (now_seconds() < end_s) {
    if (auto answer = question.turn()) return std::move(*answer);
    zmq::pollitem_t item = question.item();
    const auto left_ms = static_cast<int>((end_s - now_seconds()) * 1000.0);
    poll_sockets({&item, 1}, std::clamp(left_ms, 0, static_cast<int>(kAskMs)));
  }
  throw Error(ErrorCode::kUnreachable,
              "[status] no answer from " + address + " within " +
                  std::to_string(static_cast<int64_t>(timeout_s)) + " s; " +
                  (question.unresolved().empty() ? "is the job running there?"
                                                 : question.unresolved() + ";") +
                  " `pushpull doctor --join " + address +
                  "` looks for the reason, --join-timeout sets how long to wait");
}

}  // namespace pushpull
