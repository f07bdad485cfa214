// The other end of a worker's connection to the coordinator: the test decides what it answers.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "common/job/job.h"
#include "common/net/endpoint.h"

namespace pushpull {

// A coordinator that answers each message with `answer`, on its own thread.
class FakeCoordinator {
 public:
  using Answer = std::function<void(Router&, const PeerId&, const Message&)>;

  explicit FakeCoordinator(Answer answer)
      : router_(context_, "tcp://127.0.0.1:*", EndpointLimits{}),
        address_(router_.address()),
        thread_([this, answer = std::move(answer)](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            zmq::pollitem_t item{router_.socket().handle(), 0, ZMQ_POLLIN, 0};
            poll_sockets({&item, 1}, 10);
            while (auto m = router_.receive()) answer(router_, m->first, m->second);
          }
        }) {}

  const std::string& address() const { return address_; }

 private:
  zmq::context_t context_{1};
  Router router_;
  std::string address_;
  std::jthread thread_;
};

// Answers a Hello with a job of 10 steps.
inline void give_job(Router& router, const PeerId& peer) {
  Job job;
  job.steps = 10;
  Message text;
  text.header.mutable_job_text()->set_term_id(5);
  text.header.mutable_job_text()->set_ini(to_ini(job));
  router.send(peer, text);
}

}  // namespace pushpull
