#include "cli/plan_measure.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>

#include "common/base/buffer_pool.h"
#include "common/base/process.h"
#include "common/job/job.h"
#include "common/update/range_update.h"
#include "datasets/dataset.h"
#include "models/model.h"
#include "models/pipeline.h"

namespace pushpull {

namespace {

constexpr int kRounds = 5;  // behind one that is not measured

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Returns the job whose stages are the pieces, with one micro-batch under way.
Job job_of_pieces(Job job, int64_t pieces) {
  job.global_batch = job.micro_batch;
  job.balance = "1";
  for (int64_t i = 1; i < pieces; ++i) job.balance += ",1";
  return job;
}

// The first samples, in a block.
struct FirstSamples {
  FirstSamples(const Job& job, const Dataset& dataset)
      : layout(dataset.fields(), job.micro_batch), indices(static_cast<size_t>(job.micro_batch)) {
    std::iota(indices.begin(), indices.end(), int64_t{0});
    for (int64_t& index : indices) index %= dataset.size(Split::kTrain);
    block.resize(layout.words());
    dataset.read({Split::kTrain, 0, indices, layout}, block.data());
  }
  Samples view() const { return {.step = 0, .micro_batch = 0, .indices = indices, .block = block}; }

  const BatchLayout layout;
  std::vector<int64_t> indices;
  std::vector<float> block;
};

}  // namespace

std::vector<PassCosts> measure_pieces(const Job& job, const Dataset& dataset) {
  Job whole = job;
  whole.balance = "auto";
  const int64_t pieces = plan_stages(whole, dataset.fields(), 1).front().pieces;
  const std::unique_ptr<Model> model =
      make_staged_model(job_of_pieces(job, pieces), dataset.fields(), pieces);
  Pipeline& pipeline = *model->pipeline();
  const auto floats = static_cast<size_t>(model->table().total);
  const std::shared_ptr<float[]> weights = heap_floats(floats);
  const std::shared_ptr<float[]> gradients = heap_floats(floats);
  RangeUpdate(model->table(), {0, model->table().total}, job.optimizer)
      .initialise(job.seed, weights.get());
  const FirstSamples samples(job, dataset);
  const auto count = static_cast<size_t>(pieces);
  std::vector<std::unique_ptr<PipelineStage::Batch>> batches;
  std::vector<std::shared_ptr<float[]>> passed;    // what each piece passes on
  std::vector<std::shared_ptr<float[]>> returned;  // its gradient
  for (size_t p = 0; p < count; ++p) {
    PipelineStage& piece = pipeline.stage(p);
    batches.push_back(piece.prepare(samples.view()));
    passed.push_back(heap_floats(piece.output_floats()));
    returned.push_back(heap_floats(piece.output_floats()));
  }
  const auto pass = [&](size_t p) {
    return PipelineStage::Pass{
        {weights.get(), floats}, {gradients.get(), floats}, batches[p].get(), 0};
  };
  const auto last = count - 1;
  std::vector<std::vector<double>> forward(count);
  std::vector<std::vector<double>> backward(count);
  const auto timed = [](std::vector<double>& times, const auto& work) {
    const double begin_s = now_seconds();
    work();
    times.push_back(now_seconds() - begin_s);
  };
  for (int round = 0; round <= kRounds; ++round) {
    for (size_t p = 0; p < count; ++p) {
      timed(forward[p], [&] {
        pipeline.stage(p).forward(pass(p), p == 0 ? nullptr : passed[p - 1].get(),
                                  p == last ? nullptr : passed[p].get(), {});
      });
    }
    for (size_t p = count; p-- > 0;) {
      timed(backward[p], [&] {
        pipeline.stage(p).backward(pass(p), p == last ? nullptr : returned[p].get(),
                                   p == 0 ? nullptr : returned[p - 1].get(), [](size_t) {});
      });
    }
  }
  std::vector<PassCosts> out;
  for (size_t p = 0; p < count; ++p) {
    forward[p].erase(forward[p].begin());
    backward[p].erase(backward[p].begin());
    out.push_back({median(forward[p]), median(backward[p])});
  }
  return out;
}

}  // namespace pushpull
