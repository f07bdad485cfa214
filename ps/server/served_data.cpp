#include "ps/server/served_data.h"

#include <algorithm>

namespace pushpull {

namespace {

// 0: it names none.
uint64_t run_of(const wire::Header& header) {
  if (header.has_exchange()) return header.exchange().sender().run();
  if (header.has_load()) return header.load().sender().run();
  if (header.has_fetch()) return header.fetch().sender().run();
  if (header.has_store()) return header.store().sender().run();
  if (header.has_received()) return header.received().sender().run();
  return 0;
}

}  // namespace

void ServedData::on_state(const JobView& job, TrainingObserver* observer) {
  const wire::State& state = job.state;
  if (state.phase() < wire::PHASE_TRAINING || state.phase() > wire::PHASE_FINISHED) return;
  if (!server_) {
    const int servers = std::max(1, state.data_endpoints_size());
    server_ = parts_.make_server(job, setup_of(state, job.run, job.incarnation, servers, job.job),
                                 observer);
  }
  parts_.on_state(state);
  server_->on_state(state);
}

void ServedData::end_term(uint64_t run) {
  earlier_run_ = run;
  if (!server_) return;
  server_.reset();
  parts_.on_term_end();
}

void ServedData::on_answer(const wire::Header& answer) {
  if (!server_) return;
  parts_.on_answer(answer);
  if (answer.has_norm_total()) server_->on_norm_total(answer.norm_total());
  if (answer.has_chosen()) server_->on_chosen(answer.chosen());
  if (answer.has_record_taken()) server_->log().confirm(answer.record_taken().through());
}

Checked ServedData::take(const PeerId& peer, Message message) {
  if (earlier_run_ != 0 && run_of(message.header) == earlier_run_) return {};
  if (server_) return server_->take(peer, std::move(message));
  Message answer;
  answer.header.mutable_status()->set_not_ready(true);
  not_ready_.push_back({peer, std::move(answer)});
  return {};
}

void ServedData::work() {
  if (server_) server_->work();
}

std::vector<Outgoing> ServedData::take_outgoing() {
  return server_ ? server_->take_outgoing() : std::exchange(not_ready_, {});
}

wire::Stats ServedData::stats() const {
  wire::Stats stats = server_ ? server_->stats() : wire::Stats();
  parts_.add_stats(&stats);
  return stats;
}

}  // namespace pushpull
