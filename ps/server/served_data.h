// State machine of a server process's data connection: says "not ready" until it
// has its map of the job, builds the `Server` from the first State of a job that trains, and hands
// later ones to it. Knows no socket; one thread.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/net/job_view.h"
#include "common/net/message.h"
#include "common/net/refusal.h"
#include "ps/server/server.h"

namespace pushpull {

// Parts that a process gives to its server, and events that it hears of it.
class ServerParts {
 public:
  virtual ~ServerParts() = default;
  // Memory, engine and threads. Throws Error(kDevice | kIo).
  virtual std::unique_ptr<Server> make_server(const JobView& job, ServerSetup setup,
                                              TrainingObserver* observer) = 0;
  // Each State, once there is a server and before it takes the State in.
  virtual void on_state(const wire::State& /*state*/) {}
  // The server that was made has been destroyed: what it lay in may go.
  virtual void on_term_end() {}
  // Each answer of the coordinator to this server, before the server takes it in.
  virtual void on_answer(const wire::Header& /*answer*/) {}
  // Adds what only the process knows: memory, processor time, rejected frames.
  virtual void add_stats(wire::Stats* /*stats*/) const {}
};

class ServedData {
 public:
  // Borrowed.
  explicit ServedData(ServerParts& parts) : parts_(parts) {}

  // observer: null for a server without the coordinator. Throws Error(kProtocol) where the state's
  // tensors cannot be a model, and what make_server throws.
  void on_state(const JobView& job, TrainingObserver* observer);
  // The term with this run is over: forgets the server with its weights, until a State of the next
  // one.
  void end_term(uint64_t run);
  // NormTotal, Chosen or RecordTaken of the coordinator.
  void on_answer(const wire::Header& answer);
  // A message on the data connection, or why it was dropped. One of the term before counts no more:
  // its sender is about to learn of this term.
  Checked take(const PeerId& peer, Message message);
  // Applies what is due, then answers whom it can.
  void work();
  std::vector<Outgoing> take_outgoing();

  // Null until the job trains, and between two terms.
  Server* server() const { return server_.get(); }
  // All that this process reports to the coordinator.
  wire::Stats stats() const;

 private:
  ServerParts& parts_;
  std::unique_ptr<Server> server_;
  uint64_t earlier_run_ = 0;  // of the term before
  std::vector<Outgoing> not_ready_;
};

}  // namespace pushpull
