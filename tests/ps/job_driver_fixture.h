// A job of one worker and one server, the latter in the coordinator's process, for tests of
// JobDriver.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/net/model_wire.h"
#include "ps/run/job_driver.h"
#include "ps/server/data_plane.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {

using testing::HasSubstr;

// A job of one worker and this process's server. The test plays the outside world.
class JobDriverTest : public testing::Test, public JobEffects, public ServerParts {
 protected:
  void make(const std::string& keys = "", double join_timeout_s = 600.0, int servers = 1,
            int64_t term = 1) {
    CoordinatorOptions options;
    options.job = job_of(keys + "slice-bytes = 4096\n");
    options.term_id = kTermId;
    options.term = term;
    options.run_id = kTermId;
    options.servers = servers;
    options.grant_key = kGrantKey;
    options.self.incarnation = 1;
    options.self.host = "head";
    options.self.pid = 1;
    options.self.data_endpoint = "tcp://head:1";
    driver_ = std::make_unique<JobDriver>(options, join_timeout_s, data_, *this, history_, stops_);
  }
  void turn(int64_t ms = 5) {
    now_ += ms;
    driver_->on_turn(now());
    finish_files();
  }
  // Ends the work on files, unless the file system hangs.
  void finish_files() {
    while (file_work_ && !file_system_hangs_)
      driver_->on_files(now(), *std::exchange(file_work_, {}));
  }
  Now now() const { return {now_, now_, now_}; }
  // The worker sends Hello and its declaration.
  void join(uint64_t term_id = kTermId) {
    Message message;
    message.header.set_term_id(term_id);
    message.header.mutable_hello()->set_role(wire::ROLE_WORKER);
    message.header.mutable_hello()->set_incarnation(kAnna);
    EXPECT_FALSE(driver_->on_message(now(), "anna", message));
    wire::Declare* declare = message.header.mutable_declare();
    declare->set_incarnation(kAnna);
    declare->set_peer_endpoint("tcp://node:3");  // of all-reduce
    to_wire(table_, declare->mutable_tensors());
    declare->set_train_samples(64);
    declare->set_tokenizer("{}");
    declare->set_own_weights(own_weights_);
    EXPECT_FALSE(driver_->on_message(now(), "anna", message));
    turn();  // starts
    turn();  // sends the state to all
  }
  // The member ends with an error, and says so.
  void leave(const char* peer, uint64_t incarnation, const std::string& text = "") {
    Message message;
    message.header.set_term_id(kTermId);
    message.header.mutable_leave()->set_incarnation(incarnation);
    message.header.mutable_leave()->set_code(static_cast<int>(ErrorCode::kPeerLost));
    message.header.mutable_leave()->set_text(text);
    EXPECT_FALSE(driver_->on_message(now(), peer, message));
  }
  void join_server(uint64_t term_id = kTermId) {
    Message message;
    message.header.set_term_id(term_id);
    wire::Hello* hello = message.header.mutable_hello();
    hello->set_role(wire::ROLE_SERVER);
    hello->set_incarnation(kBert);
    hello->set_pid(2);
    hello->set_data_endpoint("tcp://node:2");
    EXPECT_FALSE(driver_->on_message(now(), "bert", message));
  }
  // Returns the messages sent to a member since the last call.
  std::vector<wire::Header> messages_to(const PeerId& peer) {
    std::vector<wire::Header> out;
    for (const auto& [to, message] : std::exchange(sent_, {})) {
      if (to == peer) out.push_back(message.header);
    }
    return out;
  }
  void report_wait() {
    Message message;
    message.header.set_term_id(kTermId);
    message.header.mutable_heartbeat()->set_incarnation(kAnna);
    message.header.mutable_heartbeat()->mutable_stats()->set_waits_for("weights");
    EXPECT_FALSE(driver_->on_message(now(), "anna", message));
  }
  // Lets the server in this process answer the driver's requests.
  void exchange_with_shards() {
    for (int i = 0; i < 5; ++i) {
      for (const Message& message : std::exchange(to_shards_, {})) {
        data_.take("driver", message);
      }
      data_.work();
      for (const Outgoing& out : data_.take_outgoing())
        driver_->on_shard_message(now(), out.message);
      turn();
    }
  }

  // Starts a job and hashes its initial weights.
  void train_one_worker(const std::string& keys) {
    keys_ = keys;
    make(keys);
    join();
    exchange_with_shards();
    driver_->on_written(now(), {0, "first", nullptr});
  }
  // The worker pushes the step.
  void push_step(int64_t step) {
    const ServerSetup setup = server_setup(job_of(keys_ + "slice-bytes = 4096\n"), 3000, 0, 1, 1);
    data_.take("anna", push_message(setup, kAnna, step + 1, step, {0, 4}, 1.0F));
    data_.work();
    driver_->on_data_taken(now());
    turn();
    exchange_with_shards();
  }
  // The worker pushes the step. `error` is the outcome of the checkpoint after it, if one is due.
  void finish_step(int64_t step, const std::exception_ptr& error) {
    push_step(step);
    if (written_.empty() || written_.back() != step + 1) return;
    driver_->on_written(now(), {step + 1, "of step " + std::to_string(step + 1), error});
    turn();
  }
  // The worker hears that the job is done and leaves.
  void leave_when_done() {
    Message message;
    message.header.mutable_heartbeat()->set_incarnation(kAnna);
    message.header.mutable_heartbeat()->set_state_version(1'000);
    message.header.set_term_id(kTermId);
    driver_->on_message(now(), "anna", message);
    turn();
  }

  bool send(const PeerId& to, const Message& message) override {
    sent_.push_back({to, message});
    return !closed_;
  }
  void connect_shards(const std::vector<DataPort>& ports) override { shards_ = ports; }
  void send_to_shard(int server, const Message& message) override {
    EXPECT_LT(server, std::ssize(shards_));
    to_shards_.push_back(message);
  }
  void load_start(const Declaration& /*declaration*/) override {
    work_on("read out/checkpoints");
    if (start_error_.empty()) {
      file_work_->start = StartPoint{start_, ""};
      file_work_->start->drawn = drawn_;
    } else {
      file_work_->error = std::make_exception_ptr(Error(ErrorCode::kData, start_error_));
    }
  }
  void open_files(const Declaration& /*declaration*/, const StartPoint& start,
                  const RunHistory& history) override {
    work_on("write out/job.ini");
    if (start.weights) opened_ = start.weights->weights;
    history_ = history;
  }
  void save_term(int64_t term, const RunHistory& history) override {
    work_on("write out/term.json");
    saved_terms_.push_back(term);
    history_ = history;
  }
  void save_end(const RunEnd& end) override {
    work_on("write out/term.json");
    for (const auto& [to, message] : sent_) {
      EXPECT_LT(message.header.state().phase(), wire::PHASE_FINISHED) << "a member has heard of it";
    }
    ends_.push_back(end);
  }
  void write_summary(RunFigures summary) override {
    work_on("write out/summary.json");
    summaries_.push_back(std::move(summary));
  }
  std::string file_wait() const override { return "the file system to " + file_; }
  int64_t file_bytes() const override { return 0; }
  TermIds begin_term(int64_t term) override {
    EXPECT_EQ(saved_terms_.back(), term);
    terms_.push_back(term);
    return {kTermId + static_cast<uint64_t>(term), "another key"};
  }
  void started(const Declaration& /*declaration*/, int64_t /*start_step*/) override {
    EXPECT_EQ(driver_->coordinator().phase(), wire::PHASE_TRAINING);
    ++started_;
  }
  void hash_weights(GatheredState snapshot) override { hashed_.push_back(snapshot.step); }
  void write_checkpoint(GatheredState /*snapshot*/, CheckpointState state,
                        CheckpointKind kind) override {
    written_.push_back(state.step);
    EXPECT_EQ(state.tokenizer, "{}") << "the worker's, in each checkpoint";
    const Barriers& barriers = driver_->coordinator().barriers();
    if (kind == CheckpointKind::kBest) return;
    EXPECT_EQ(kind == CheckpointKind::kLast,
              state.step == barriers.end_step || barriers.stops_at(state.step));
  }
  void members_lost(const std::vector<MemberInfo>& members) override {
    for (const MemberInfo& member : members) lost_.push_back(member.pid);
  }
  void show_line(const std::string& line) override { lines_ += line + "\n"; }
  void show_moment(const RunFigures& moment) override { moments_.push_back(moment); }
  void show_members(const std::string& json) override { members_.push_back(json); }
  void show_status(const MembersView& view, const RunFigures& facts) override {
    status_ = status_json(view, facts);
  }
  std::unique_ptr<Server> make_server(const JobView& /*job*/, ServerSetup setup,
                                      TrainingObserver* observer) override {
    EXPECT_NE(observer, nullptr);
    return std::make_unique<Server>(std::move(setup), observer);
  }

  void work_on(const std::string& file) {
    EXPECT_FALSE(file_work_) << "one work at a time";
    file_ = file;
    file_work_ = FilesDone{};
  }

  int64_t now_ = 1'000'000;
  ServedData data_{*this};
  std::unique_ptr<JobDriver> driver_;
  std::vector<std::pair<PeerId, Message>> sent_;
  std::vector<Message> to_shards_;
  std::vector<DataPort> shards_;
  std::shared_ptr<const FlatState> start_;
  std::vector<std::string> drawn_;      // tensors that start_ lacks
  std::vector<float> opened_;           // weights of the term that were opened with its files
  TensorTable table_ = table_of(3000);  // that the worker declares
  std::string start_error_;
  bool own_weights_ = false;  // the worker's
  std::string lines_;
  std::string keys_;
  std::vector<int64_t> hashed_;
  std::vector<int64_t> written_;
  std::vector<RunFigures> moments_;
  std::string status_;  // the newest one
  std::vector<std::string> members_;
  std::vector<RunFigures> summaries_;
  std::vector<RunEnd> ends_;
  std::optional<FilesDone> file_work_;  // in progress, with its outcome
  std::string file_;                    // that it waits for
  bool file_system_hangs_ = false;
  std::vector<int64_t> saved_terms_;
  int started_ = 0;
  std::vector<int64_t> terms_;
  std::vector<int64_t> lost_;  // process ids
  RunHistory history_;
  StopOptions stops_;
  bool closed_ = false;
};

}  // namespace pushpull
