// Training a model with a job's servers or, in all-reduce and in a group that divides the model, with
// its other workers. The caller
// decides which data set and which model.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/net/address.h"
#include "common/net/endpoint.h"
#include "datasets/dataset.h"
#include "models/model.h"
#include "worker/all_reduce/peers.h"
#include "worker/member/work.h"

namespace pushpull {

// A worker computes with these.
struct Computation {
  std::unique_ptr<Dataset> dataset;
  std::unique_ptr<Model> model;
};

// Makes a worker's data set and model for the job. May take long. Throws Error if it cannot.
using MakeComputation = std::function<Computation(const Job& job)>;

// Where other workers connect to this one, in all-reduce and in a group: a port for each of the two.
struct PeerPort {
  std::string listen;     // tcp://ADDR:PORT; default: a port of the interface to the first server
  std::string data_port;  // where `listen` names none: a port, a range of them, or *
  std::string advertise;  // host name or address that the others use; default: that of `listen`
};

class TrainingWork final : public Work {
 public:
  // Throws Error if the job's strategy is not in this build, or as `make` does.
  TrainingWork(const WorkerParts& parts, const MakeComputation& make, PeerPort port);
  ~TrainingWork() override;
  TrainingWork(const TrainingWork&) = delete;
  TrainingWork& operator=(const TrainingWork&) = delete;

  // In all-reduce and with stages, listens for the other workers too.
  wire::Declare declare() override;
  JobEnd run(const JobView& view) override;

 private:
  // Returns where this worker listens for others.
  Address peer_port() const;
  std::unique_ptr<Router> listen_on(const Address& address, const EndpointLimits& limits);
  // Returns the address for the other workers.
  //   address: of a socket that listens.
  std::string advertised(const std::string& address) const;
  // Waits, as a spare, for a place in a group. Returns nothing if the term ended before.
  std::optional<wire::State> wait_for_group(const JobView& view);
  JobEnd train(const JobView& view);
  JobEnd wait_for_share();

  const WorkerParts parts_;
  const PeerPort port_;
  Computation computation_;
  wire::Declare declaration_;
  bool has_listened_ = false;  // in an earlier term
  // Of the term, until it runs; null unless workers meet.
  std::unique_ptr<Router> peers_;  // in all-reduce
  std::unique_ptr<Router> group_;  // in a group
};

}  // namespace pushpull
