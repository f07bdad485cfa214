#include "worker/worker_life.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/host/shortage.h"
#include "common/net/address.h"

namespace pushpull {

int wanted_rank() {
  const char* const text = std::getenv("PUSHPULL_RANK");  // NOLINT(concurrency-mt-unsafe)
  const std::optional<int64_t> rank = parse_int64(text == nullptr ? "" : text);
  return rank && *rank >= 0 && *rank < INT_MAX ? static_cast<int>(*rank) : -1;
}

namespace {

JoinOptions join_options(const WorkerOptions& options) {
  JoinOptions out;
  out.incarnation = random_id();
  out.host = host_name();
  out.pid = getpid();
  out.coordinator = options.join;
  out.timeout_s = options.join_timeout_s;
  out.job_token = options.job_token;
  out.job_keys = options.job_keys;
  out.device = options.device;
  out.wanted_rank = wanted_rank();
  return out;
}

// What the smallest job needs: with less, libzmq ends the process.
constexpr int64_t kFiles = 32;
constexpr int kThreads = 12;

const WorkerOptions& checked(const WorkerOptions& options) {
  parse_address(options.join, "join");
  check_descriptors(kFiles, "a worker");
  check_threads(kThreads, "a worker");
  return options;
}

std::unique_ptr<Dealer> coordinator_socket(zmq::context_t& context, const WorkerOptions& options) {
  return std::make_unique<Dealer>(context, options.join, control_limits(),
                                  options.keys.control_credentials());
}

}  // namespace

WorkerLife::WorkerLife(const WorkerOptions& options, WorkerOwner& owner)
    : owner_(owner),
      context_(make_context(data_io_threads())),
      trace_(checked(options).trace),
      control_(coordinator_socket(control_context_, options), join_options(options), owner,
               options.keys) {}

JobEnd WorkerLife::run(const MakeWork& make) {
  if (!control_.wait_joined()) {
    JobEnd why = *control_.end();
    if (why.signal != 0) return why;
    throw Error(why.code, why.text);
  }
  JobEnd end;
  try {
    end = run_terms(make);
    const std::string failure = owner_.failure();
    if (!end.success && !failure.empty()) throw Error(owner_.failure_code(), failure);
  } catch (const Error& e) {
    const bool by_owner = owner_.failure() == e.what();  // as the computation has seen it
    control_.leave(static_cast<int>(by_owner ? owner_.failure_code() : e.code()), e.what());
    throw;
  } catch (const std::exception& e) {
    const std::optional<Error> shortage = shortage_of(e);
    control_.leave(static_cast<int>(shortage ? shortage->code() : ErrorCode::kFailed),
                   shortage ? shortage->what() : std::string("[worker] ") + e.what());
    if (shortage) throw Error(*shortage);
    throw;
  }
  if (end.signal != 0) {
    control_.leave(static_cast<int>(ErrorCode::kPeerLost), end.text);
  } else {
    control_.leave(0, "");
  }
  if (!end.success) end.stopped() ? log_.info(end.text) : log_.error(end.text);
  return end;
}

// The work is destroyed before the worker leaves.
JobEnd WorkerLife::run_terms(const MakeWork& make) {
  const std::unique_ptr<Work> work = make({control_, context_, trace_});
  while (true) {
    JobEnd end = run_term(*work);
    if (!end.next_term) return end;
    log_.info("a server was lost: all workers go back to the newest checkpoint");
  }
}

JobEnd WorkerLife::run_term(Work& work) {
  const uint64_t term_id = control_.enter_term();
  control_.declare(work.declare());
  const std::optional<wire::State> state = wait_for_training();
  if (!state) return *control_.end();
  if (state->rank() >= 0) log_.rename("worker " + std::to_string(state->rank()));
  try {
    return work.run({control_.job(), term_id, control_.incarnation(), *state});
  } catch (const Error& e) {
    // the coordinator may be about to declare the silent server or worker lost, and then says more
    const bool reason_may_follow = e.code() == ErrorCode::kUnreachable;
    if (!reason_may_follow || !control_.wait_for_reason()) throw;
    return *control_.end();
  }
}

// Waits until training starts. Returns nothing if the job is over first.
std::optional<wire::State> WorkerLife::wait_for_training() {
  int64_t logged_ms = now_ms();
  while (!control_.over()) {
    zmq::pollitem_t item{nullptr, control_.news().fd(), ZMQ_POLLIN, 0};
    poll_sockets({&item, 1}, 200);
    control_.news().clear();
    auto state = control_.state();
    if (state && state->phase() >= wire::PHASE_TRAINING && state->phase() <= wire::PHASE_FINISHED) {
      return state;
    }
    control_.activity().wait([] { return std::string("the start of training"); });
    if (now_ms() - logged_ms > 5000) {
      log_.info("waiting for the job to start");
      logged_ms = now_ms();
    }
  }
  return std::nullopt;
}

}  // namespace pushpull
