#include "worker/training_work.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/job/job.h"
#include "common/net/address.h"
#include "common/net/data_proof.h"
#include "common/net/join.h"
#include "common/net/key_file.h"
#include "common/net/model_wire.h"
#include "common/net/zap_handler.h"
#include "datasets/tokenizer.h"
#include "models/pipeline.h"
#include "worker/all_reduce/all_reduce_step.h"
#include "worker/all_reduce/collective.h"
#include "worker/compute/device_memory.h"
#include "worker/compute/group_norm.h"
#include "worker/compute/stage_parts.h"
#include "worker/exchange/socket_links.h"
#include "worker/group/socket_group.h"
#include "worker/trainer.h"

namespace pushpull {

namespace {

Computation make_for(const Job& job, const MakeComputation& make) {
  if (job.strategy.kind == StrategyKind::kAllReduce) check_built(job.strategy.algorithm);
  return make(job);
}

wire::Declare declaration_of(const Dataset& dataset, Model& model) {
  wire::Declare declare;
  to_wire(model.table(), declare.mutable_tensors());
  to_wire(model.heads(), declare.mutable_heads());
  declare.set_train_samples(dataset.size(Split::kTrain));
  declare.set_test_samples(dataset.size(Split::kTest));
  declare.set_data_digest(dataset.digest());
  if (const Tokenizer* tokenizer = dataset.tokenizer()) {
    declare.set_tokenizer(tokenizer->to_json());
  }
  declare.set_numerics(model.numerics());
  declare.set_choices(model.choices());
  declare.set_arena_bytes(static_cast<int64_t>(model.arena_bytes()));
  declare.set_slots(static_cast<int64_t>(model.slots()));
  declare.set_own_weights(!model.own_weights().empty());
  if (model.group_stage() == nullptr) return declare;
  declare.set_local_stages(model.group_stage()->local_stages());
  if (const OwnStage* const own = model.group_stage()->own_stage()) {
    declare.mutable_own_stage()->set_stage(own->stage);
    declare.mutable_own_stage()->set_stages(own->stages);
    declare.mutable_own_stage()->set_port(own->port);
    declare.mutable_own_stage()->set_digest(own->digest);
  }
  return declare;
}

// A worker listens to its group between two passes, and while it waits, and a pass may take long. The coordinator
// notices a dead one.
int64_t silence_ms(const Job& job) {
  const double seconds = job.progress_timeout_s > 0 ? job.progress_timeout_s : 3600.0;
  return std::max(group_silence_ms(job), static_cast<int64_t>(1000 * seconds));
}

// Returns the size of the largest part that passes between the stages of a group, or a limit of it if
// this worker knows its own stage only.
int64_t part_bytes(Model& model) {
  GroupStage& group = *model.group_stage();
  constexpr size_t kTask = 4 * sizeof(int64_t) / sizeof(float);  // KIND_TASK
  size_t floats = std::max(group.boundary_floats(), kTask);
  if (group.own_stage() != nullptr) return static_cast<int64_t>(floats * sizeof(float));
  const SliceMap map(model.table(), kBlockElements, 1);
  floats = std::max(floats, GroupNorm::largest_part(map));
  for (int stage = 0; stage < group.stages(); ++stage) {
    for (const auto& part : stage_parts(model.table(), map, group.tensors_read(), stage).returns) {
      floats = std::max(floats, part.floats());
    }
  }
  return static_cast<int64_t>(floats * sizeof(float));
}

}  // namespace

TrainingWork::TrainingWork(const WorkerParts& parts, const MakeComputation& make, PeerPort port)
    : parts_(parts),
      port_(std::move(port)),
      computation_(make_for(parts.control.job(), make)),
      declaration_(declaration_of(*computation_.dataset, *computation_.model)) {
  PP_ASSERT(!declaration_.own_weights() ||
            std::ssize(computation_.model->own_weights()) == computation_.model->table().total);
  parts_.control.offer_weights(computation_.model->own_weights());
}

TrainingWork::~TrainingWork() { parts_.control.offer_weights({}); }

wire::Declare TrainingWork::declare() {
  peers_.reset();
  group_.reset();
  const Job& job = parts_.control.job();
  const bool sums = job.strategy.traits().workers_update;
  const bool divides = job.stages > 1;
  if (!sums && !divides) return declaration_;
  if (parts_.control.keys().insecure()) Log("worker").warn(kInsecureLine);
  const Address listen = peer_port();
  if (sums && divides && listen.port != "*" && listen.ports().size() == 1) {
    throw Error(ErrorCode::kUsage, "[usage] --listen " + listen.to_string() +
                                       ": a worker needs two ports, one for its group and one for "
                                       "the all-reduce; give a range of ports");
  }
  if (sums) {
    peers_ = listen_on(listen, {});
    declaration_.set_peer_endpoint(advertised(peers_->address()));
  }
  if (divides) {
    group_ = listen_on(listen, data_limits(part_bytes(*computation_.model)));
    declaration_.set_group_endpoint(advertised(group_->address()));
  }
  has_listened_ = true;
  return declaration_;
}

// As joined servers do, workers listen on the interface that reaches the coordinator, unless the port names another
// one.
Address TrainingWork::peer_port() const {
  const Control& control = parts_.control;
  const Address joined = parse_address(control.address(), "join");
  Address listen = joined;
  if (!port_.listen.empty()) {
    listen = parse_address(port_.listen, "listen");
  } else {
    listen.host = local_address_towards(joined);
    listen.port = "*";
  }
  if (listen.port == "*") listen.port = port_.data_port;
  if (control.job().strategy.algorithm == AllReduceKind::kGloo && !listen.is_loopback() &&
      !control.keys().insecure()) {
    throw Error(ErrorCode::kUsage,
                "[usage] --listen " + listen.to_string() +
                    ": Gloo opens its own sockets, which check no keys; use "
                    "allreduce:ring, or start all with --insecure on a network that you trust");
  }
  return listen;
}

std::string TrainingWork::advertised(const std::string& address) const {
  Address endpoint = parse_address(address, "listen");
  if (!port_.advertise.empty()) {
    check_host(port_.advertise, "advertise");
    endpoint.host = port_.advertise;
  } else if (endpoint.is_everywhere()) {
    endpoint.host = local_address_towards(parse_address(parts_.control.address(), "join"));
  }
  return endpoint.to_string();
}

// libzmq closes a socket in the background: the port of the last term may still be in use.
std::unique_ptr<Router> TrainingWork::listen_on(const Address& address,
                                                const EndpointLimits& limits) {
  Control& control = parts_.control;
  // one handler per context; it outlives the terms
  std::shared_ptr<ZapHandler> handler = control.handler();
  if (!handler) {
    handler = std::make_shared<ZapHandler>(
        parts_.context, control.keys().data_demand(control.job().encrypt_data, control.run_id(),
                                                   listener_name(control.incarnation())));
    control.report_refused(handler);
  }
  constexpr int64_t kClosedMs = 5000;
  const int64_t until_ms = has_listened_ ? now_ms() + kClosedMs : 0;
  while (true) {
    try {
      return std::make_unique<Router>(*handler, address.to_string(), limits);
    } catch (const Error&) {
      if (now_ms() >= until_ms) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

JobEnd TrainingWork::run(const JobView& view) {
  if (computation_.model->group_stage() == nullptr) return train(view);
  const std::optional<wire::State> state = wait_for_group(view);
  if (!state) return *parts_.control.end();
  return train({view.job, view.term_id, view.incarnation, *state});
}

JobEnd TrainingWork::train(const JobView& view) {
  const Dataset& dataset = *computation_.dataset;
  Model& model = *computation_.model;
  Control& control = parts_.control;
  // this worker chose its kernels itself; the job may have begun with other choices
  if (view.state.choices() != model.choices()) model.choose(view.state.choices());
  const bool grouped = model.group_stage() != nullptr;
  if (peers_ && view.state.assigned_size() == 0) return wait_for_share();
  TrainerMakers make;
  SocketLinks* sockets = nullptr;
  make.links = [&](PushPull& push_pull) {
    auto links =
        std::make_unique<SocketLinks>(view, push_pull, control, parts_.context,
                                      weights_mapped(model), device_to_share(model, view.job));
    sockets = links.get();
    return links;
  };
  make.step = push_steps(view.job, model, view.state.total_steps());
  if (grouped) {
    make.group = [&](Links& /*links*/) {
      auto group = std::make_unique<SocketGroup>(
          view.job, parts_.context, std::move(group_),
          GroupSetup{view.term_id, view.incarnation, silence_ms(view.job), part_bytes(model)},
          control.data_credentials());
      sockets->also_wait_for([group = group.get()](std::vector<zmq::pollitem_t>& items) {
        group->add_poll_items(items);
      });
      return group;
    };
  }
  if (peers_) {
    make.step = [&](const StepParts& parts) {
      return std::make_unique<AllReduceStep>(view, model, parts, control, parts_.context,
                                             control.data_credentials(), std::move(peers_));
    };
  }
  return Trainer(view, trainer_setup(view, dataset, model), dataset, model, control, make,
                 parts_.trace)
      .run();
}

std::optional<wire::State> TrainingWork::wait_for_group(const JobView& view) {
  Control& control = parts_.control;
  std::optional<wire::State> state = view.state;
  while (!state || !state->has_group()) {
    if (control.over()) return std::nullopt;
    control.activity().wait(
        [] { return std::string("a place in a group (this worker is a spare)"); });
    zmq::pollitem_t item{nullptr, control.news().fd(), ZMQ_POLLIN, 0};
    poll_sockets({&item, 1}, 200);
    control.news().clear();
    state = control.state();
  }
  GroupStage& stage = *computation_.model->group_stage();
  if (stage.own_stage() != nullptr) stage.take_whole(from_wire(state->tensors()));
  take_stage(stage, view.job, *state);
  return state;
}

// Waits, as a spare, until the term is over: no share becomes free in an all-reduce job.
JobEnd TrainingWork::wait_for_share() {
  Control& control = parts_.control;
  while (!control.over()) {
    control.activity().wait([] { return std::string("a share (this worker is a spare)"); });
    zmq::pollitem_t item{nullptr, control.news().fd(), ZMQ_POLLIN, 0};
    poll_sockets({&item, 1}, 200);
    control.news().clear();
  }
  return *control.end();
}

}  // namespace pushpull
