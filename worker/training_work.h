// Training a model with a job's servers or, in all-reduce, with its other workers. The caller
// decides which data set and which model.
#pragma once

#include <functional>
#include <memory>
#include <string>

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

// Where other workers connect to this one, in all-reduce.
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

  // In all-reduce, listens for the other workers too.
  wire::Declare declare() override;
  JobEnd run(const JobView& view) override;

 private:
  std::string listen_for_peers();
  std::unique_ptr<Router> listen_on(ZapHandler& handler, const std::string& address) const;
  JobEnd wait_for_share();

  const WorkerParts parts_;
  const PeerPort port_;
  Computation computation_;
  wire::Declare declaration_;
  bool has_listened_ = false;  // in an earlier term
  std::unique_ptr<Router>
      peers_;  // of the term, until it runs; null unless the job is an all-reduce
};

}  // namespace pushpull
