#include "common/net/member.h"

namespace pushpull {

wire::State Member::no_state() {
  wire::State state;
  state.set_version(-1);
  return state;
}

void Member::send(Message message) {
  message.header.set_term_id(text_.term_id());
  outgoing_.push_back(std::move(message));
}

Member::News Member::on_message(int64_t now_ms, const Message& message) {
  const wire::Header& header = message.header;
  if (is_known() && header.has_job_text() && header.job_text().term_id() != text_.term_id()) {
    return take_term(header.job_text());
  }
  // from a coordinator of an earlier term, or sent before it began this one
  if (is_known() && header.term_id() != text_.term_id()) return News::kNone;
  heard_ms_ = now_ms;
  closed_ms_.reset();
  silence_logged_ = false;
  if (joining_) {
    const bool answered = joining_->on_message(message);
    // the JobText of a new term may arrive unasked, so a worker has rejoined only once a State
    // arrives
    const bool again = earlier_term_id_ != 0 && options_.role == wire::ROLE_WORKER;
    if (again ? !header.has_state() : !answered) return News::kNone;
    joining_.reset();
    if (header.has_job_text()) {
      text_ = header.job_text();
      if (options_.role == wire::ROLE_WORKER) options_.wanted_rank = text_.rank();
      job_ = parse_job_text(text_.ini(), "the coordinator's job");
      heartbeat_ = Repeat(heartbeat_ms(job_.heartbeat_timeout_s));
      connection_ = Repeat(unheard_ms(job_.heartbeat_timeout_s));
    } else {
      take_state(header.state());
    }
    return News::kJoined;
  }
  if (header.has_refused()) {
    throw Error(static_cast<ErrorCode>(header.refused().code()), header.refused().text());
  }
  if (header.has_state()) return take_state(header.state());
  // the answer to a Hello may arrive again
  return header.has_job_text() ? News::kNone : News::kOther;
}

Member::News Member::take_term(const wire::JobText& text) {
  if (text.run_id() != text_.run_id() || text.ini() != text_.ini()) {
    throw Error(ErrorCode::kPeerLost, "[job] " + text.coordinator() + " at " +
                                          options_.coordinator +
                                          " has begun another run: this process belongs to the "
                                          "previous one; start it again");
  }
  if (text.term() <= text_.term()) return News::kNone;
  earlier_term_id_ = text_.term_id();
  text_ = text;
  state_ = no_state();
  joining_.emplace(options_, "");
  return News::kTerm;
}

Member::News Member::take_state(const wire::State& state) {
  if (state.version() <= state_.version()) return News::kNone;
  state_ = state;
  // acknowledge at once
  heartbeat_.expire();
  return News::kState;
}

void Member::on_tick(int64_t now_ms, const std::function<wire::Stats()>& stats) {
  if (heard_ms_ < 0) heard_ms_ = now_ms;
  if (joining_) {
    if (auto hello = joining_->on_tick(now_ms)) send(std::move(*hello));
    if (std::string line = joining_->waiting(now_ms); !line.empty()) say(std::move(line));
    return;
  }
  if (heartbeat_.due(now_ms)) heartbeat(stats());
  check_silence(now_ms);
}

// A restarted coordinator answers heartbeats of its earlier life, so a silent one needs no Hello.
void Member::check_silence(int64_t now_ms) {
  if (!misses_coordinator(now_ms)) return;
  const std::string text = "[job] " + text_.coordinator() + " at " + options_.coordinator +
                           " has been silent for " + std::to_string(silent_ms(now_ms) / 1000) +
                           " s";
  const bool waits = job_.on_server_loss == OnServerLoss::kRestart;
  const int64_t wait_ms = waits ? static_cast<int64_t>(job_.replacement_timeout_s * 1000) : 0;
  if (silent_ms(now_ms) > lost_ms() + wait_ms) throw Error(ErrorCode::kPeerLost, text);
  if (std::exchange(silence_logged_, true)) return;
  say(text + "; waiting up to " + std::to_string(wait_ms / 1000) +
      " s (replacement-timeout) for it to come back");
}

void Member::on_closed(int64_t now_ms) {
  if (!closed_ms_) connection_.expire();
  closed_ms_ = closed_ms_.value_or(now_ms);
  heartbeat_.expire();
}

// The coordinator soon gives up a member that is not heard after its connection was closed.
bool Member::is_silent(int64_t now_ms) const {
  if (silent_ms(now_ms) > unheard_ms(job_.heartbeat_timeout_s)) return true;
  return closed_ms_ && now_ms - *closed_ms_ > successor_ms(job_.heartbeat_timeout_s);
}

// libzmq does not notice every broken connection: after damaged bytes one end may stop reading but
// stay open. A coordinator that pauses, or a link that stalls, looks the same from here; a second
// connection then does no harm.
bool Member::needs_connection(int64_t now_ms) {
  const bool silent = is_silent(now_ms);
  const bool broken = silent || state_.unheard();
  if (broken && is_known() && !broken_logged_) {
    say((silent ? "[job] no messages from " : "[job] no messages reach ") + text_.coordinator() +
        " at " + options_.coordinator + "; connecting again");
  }
  broken_logged_ = broken;
  if (!broken || !connection_.due(now_ms)) return false;
  heartbeat_.expire();
  return true;
}

void Member::heartbeat(const wire::Stats& stats) {
  Message message;
  wire::Heartbeat* heartbeat = message.header.mutable_heartbeat();
  heartbeat->set_incarnation(options_.incarnation);
  heartbeat->set_state_version(state_.version());
  heartbeat->set_told_to_end(end_signal_);
  *heartbeat->mutable_stats() = stats;
  send(std::move(message));
}

void Member::join_as_server(const std::string& data_endpoint) {
  joining_.emplace(options_, data_endpoint);
}

void Member::leave(int code, const std::string& text, const std::optional<wire::Applied>& failed) {
  Message message;
  wire::Leave* leave = message.header.mutable_leave();
  leave->set_incarnation(options_.incarnation);
  leave->set_code(code);
  leave->set_text(text);
  if (failed) *leave->mutable_failed() = *failed;
  send(std::move(message));
}

}  // namespace pushpull
