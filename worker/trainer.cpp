#include "worker/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/error.h"
#include "common/net/address.h"
#include "common/norm.h"

namespace pushpull {

namespace {

constexpr int kPollMs = 20;

PushPullSetup setup_of(const Job& job, uint64_t run, uint64_t incarnation, const wire::State& state,
                       int64_t elements, int64_t chunks) {
  PushPullSetup setup;
  setup.run = run;
  setup.incarnation = incarnation;
  setup.job = job;
  setup.total_elements = elements;
  setup.servers = state.data_endpoints_size();
  setup.barriers = {job.eval_every, job.checkpoint_every, state.start_step(), state.end_step()};
  setup.shares = state.shares();
  setup.chunks = chunks;
  return setup;
}

// Exponent bits all set: NaN or infinite.
bool all_finite(const float* x, int64_t n) {
  uint32_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, x + i, sizeof bits);
    found |= static_cast<uint32_t>((bits & 0x7f800000U) == 0x7f800000U);
  }
  return found == 0;
}

}  // namespace

Trainer::Trainer(const Job& job, uint64_t run, uint64_t incarnation, const wire::State& state,
                 const Dataset& dataset, Model& model, Control& control, zmq::context_t& context)
    : job_(job),
      incarnation_(incarnation),
      model_(model),
      control_(control),
      rank_(state.rank()),
      loader_(job, dataset),
      evaluator_(job, dataset, model),
      push_pull_(setup_of(job, run, incarnation, state, model.table().total, evaluator_.chunks())),
      gradient_(model.table(), push_pull_.slices()) {
  EndpointLimits limits;
  limits.max_frame_bytes = std::max(limits.max_frame_bytes, job.slice_bytes + (int64_t{1} << 16));
  for (const std::string& endpoint : state.data_endpoints()) {
    // a first server that listens everywhere is where the job was joined
    Address address = parse_address(endpoint, "advertise");
    if (address.is_everywhere()) address.host = parse_address(control.address(), "join").host;
    servers_.push_back(std::make_unique<Dealer>(context, address.to_string(), limits));
    poll_items_.push_back({servers_.back()->socket().handle(), 0, ZMQ_POLLIN, 0});
  }
  poll_items_.push_back({nullptr, control_.news().fd(), ZMQ_POLLIN, 0});
  push_pull_.on_state(state, now_ms());
}

void Trainer::send_outgoing() {
  for (const ToServer& out : push_pull_.take_outgoing()) {
    servers_[static_cast<size_t>(out.server)]->send(out.message);
  }
}

// Takes in what has come, repeats what is overdue, sends.
void Trainer::exchange() {
  const int64_t now = now_ms();
  for (size_t server = 0; server < servers_.size(); ++server) {
    while (auto message = servers_[server]->receive()) {
      push_pull_.on_message(static_cast<int>(server), *message, now);
    }
  }
  push_pull_.on_tick(now);
  send_outgoing();
}

void Trainer::wait() {
  poll_sockets(poll_items_, kPollMs);
  if ((poll_items_.back().revents & ZMQ_POLLIN) == 0) return;
  control_.news().clear();
  if (const auto state = control_.state()) {
    rank_ = state->rank();
    push_pull_.on_state(*state, now_ms());
  }
}

JobEnd Trainer::run() {
  while (!control_.over()) {
    exchange();
    const Task task = push_pull_.next(now_ms());
    send_outgoing();
    switch (task.kind) {
      case Task::kCompute:
        compute(task);
        break;
      case Task::kEvaluate:
        evaluate(task);
        break;
      default:
        wait();
    }
  }
  return *control_.end();
}

void Trainer::check_loss(int64_t step, int64_t micro_batch, float loss) const {
  if (std::isfinite(loss)) return;
  throw Error(ErrorCode::kNotFinite,
              "[train] the loss of worker " + std::to_string(rank_) + " at step " +
                  std::to_string(step) + ", micro-batch " + std::to_string(micro_batch) + " is " +
                  std::to_string(loss) + "; a smaller lr or clip-norm may help");
}

void Trainer::check_finite(int64_t step, int slice, const Payload& part) const {
  const auto n = static_cast<int64_t>(part.float_count());
  if (all_finite(part.floats(), n)) return;
  const int64_t first = push_pull_.slices().elements(slice).lo;
  int64_t i = 0;
  while (std::isfinite(part.floats()[i])) ++i;
  const TensorInfo* found = nullptr;
  for (const TensorInfo& tensor : model_.table().tensors) {
    if (tensor.offset <= first + i) found = &tensor;
  }
  const std::string what = found->rule == UpdateRule::kAverage ? "batch statistic" : "gradient";
  throw Error(ErrorCode::kNotFinite, "[train] the " + what + " of worker " + std::to_string(rank_) +
                                         " at step " + std::to_string(step) +
                                         " is not finite in tensor " + found->name +
                                         "; a smaller lr or clip-norm may help");
}

void Trainer::hint_next() {
  const std::optional<Task> task = push_pull_.upcoming();
  if (!task) return;
  const int64_t ahead = std::min<int64_t>(task->range.size(), Loader::kMaxHints / 2);
  for (int64_t i = 0; i < ahead; ++i) loader_.hint(task->step, task->range.lo + i);
}

void Trainer::compute_node(const Task& task, Range node, bool stream, std::vector<float>& losses) {
  gradient_.begin(node.size());
  const auto push_slice = [&](int slice, Payload part) {
    check_finite(task.step, slice, part);
    push_pull_.add_part(slice, node, std::move(part));
    if (stream) send_outgoing();
  };
  const GradientReady ready = [&](size_t tensor) {
    if (gradient_.in_last_leaf()) gradient_.tensor_ready(tensor, push_slice);
  };
  for (int64_t m = node.lo; m < node.hi && !control_.over(); ++m) {
    const MicroBatch& batch = loader_.get(task.step, m);
    const float loss = model_.train(push_pull_.weights(), batch.images.data(), batch.labels.data(),
                                    gradient_.leaf(), ready);
    check_loss(task.step, m, loss);
    losses.push_back(loss);
    gradient_.end_leaf();
  }
}

double Trainer::push_squares(int64_t micro_batches) const {
  const std::span<const float> sum = gradient_.sum();
  const auto total = static_cast<int64_t>(sum.size());
  std::vector<double> squares;
  std::array<float, kBlockElements> mean{};
  for (int64_t lo = 0; lo < total; lo += kBlockElements) {
    const int64_t hi = std::min(lo + kBlockElements, total);
    mean.fill(0.0F);  // running statistics do not count
    for (const TensorInfo& tensor : model_.table().tensors) {
      if (tensor.rule != UpdateRule::kOptimizer) continue;
      const int64_t first = std::max(lo, tensor.offset);
      const int64_t last = std::min(hi, tensor.offset + tensor.size);
      for (int64_t i = first; i < last; ++i) {
        mean[static_cast<size_t>(i - lo)] =
            sum[static_cast<size_t>(i)] / static_cast<float>(micro_batches);
      }
    }
    squares.push_back(block_squares(mean.data(), hi - lo));
  }
  return total_squares(norm_parts(squares, 0, std::ssize(squares)), std::ssize(squares));
}

void Trainer::compute(const Task& task) {
  // clipping by push needs the whole gradient before the first byte may go
  const bool clip = job_.clip_norm > 0 && job_.strategy.kind != StrategyKind::kSync;
  hint_next();
  push_pull_.begin_push(task.step, task.range);
  std::vector<float> losses;
  for (const Range& node : push_pull_.nodes(task.range)) {
    compute_node(task, node, !clip, losses);
    if (control_.over()) return;
  }
  const double squares = clip ? push_squares(task.range.size()) : 0.0;
  push_pull_.end_push(losses, squares, now_ms());
  send_outgoing();
}

void Trainer::evaluate(const Task& task) {
  wire::EvalResult result;
  result.set_incarnation(incarnation_);
  result.set_step(task.step);
  for (int64_t chunk = task.range.lo; chunk < task.range.hi && !control_.over(); ++chunk) {
    const ChunkResult r = evaluator_.run(push_pull_.weights(), chunk);
    wire::ChunkResult* out = result.add_chunks();
    out->set_chunk(r.chunk);
    out->set_correct(r.correct);
    out->set_loss(r.loss);
  }
  if (control_.over()) return;
  control_.report(std::move(result));
  push_pull_.finish_evaluation();
}

}  // namespace pushpull
