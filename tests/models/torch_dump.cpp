// Runs one micro-batch and writes the results, which torch_check.py compares with PyTorch:
//   torch_dump MODEL C H W CLASSES MICRO_BATCH HIDDEN IN OUT
// HIDDEN: widths with commas, or "-". IN: raw f32: weights, images, labels. OUT: raw f32: loss; the
// sum of losses and the number correct of `evaluate`; gradients. Prints "NAME DIM DIM ..." for each
// tensor.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "models/model.h"

namespace {

using pushpull::InputShape;
using pushpull::Job;

template <class T>
void write(std::ofstream& out, const std::vector<T>& values) {
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(T)));
}

int run(const std::vector<std::string>& args) {
  Job job;
  job.model = args[0];
  const InputShape input{std::stoll(args[1]), std::stoll(args[2]), std::stoll(args[3])};
  const int64_t classes = std::stoll(args[4]);
  job.micro_batch = std::stoll(args[5]);
  job.hidden.clear();
  std::istringstream widths(args[6] == "-" ? "" : args[6]);
  for (std::string width; std::getline(widths, width, ',');)
    job.hidden.push_back(std::stoll(width));

  const pushpull::FieldTable fields =
      pushpull::image_fields({input.channels, input.height, input.width}, classes);
  const auto model = pushpull::make_model(job, fields);
  for (const pushpull::TensorInfo& tensor : model->table().tensors) {
    std::cout << tensor.name;
    for (const int64_t d : tensor.shape) std::cout << ' ' << d;
    std::cout << '\n';
  }

  const auto samples = static_cast<size_t>(job.micro_batch);
  std::vector<float> weights(static_cast<size_t>(model->table().total));
  std::vector<float> images(samples * static_cast<size_t>(input.size()));
  std::vector<float> labels_as_float(samples);
  std::ifstream in(args[7], std::ios::binary);
  for (std::vector<float>* part : {&weights, &images, &labels_as_float}) {
    in.read(reinterpret_cast<char*>(part->data()),
            static_cast<std::streamsize>(part->size() * sizeof(float)));
  }
  const pushpull::BatchLayout layout(fields, job.micro_batch);
  std::vector<float> block(layout.words());
  std::copy(images.begin(), images.end(), block.begin());
  std::copy(labels_as_float.begin(), labels_as_float.end(),
            pushpull::as_ints(block.data() + layout.offset(1)));
  const std::vector<int64_t> indices(samples);
  const pushpull::Samples batch{0, 0, indices, block};

  std::vector<float> gradients(weights.size());
  const float loss = model->train(weights, batch, gradients, [](size_t) {});
  std::vector<pushpull::HeadSums> heads(model->heads().size());
  model->evaluate(weights, batch, heads);
  const pushpull::HeadSums& sums = heads.front();

  std::ofstream out(args[8], std::ios::binary);
  write(out,
        std::vector<float>{loss, static_cast<float>(sums.loss), static_cast<float>(sums.metric)});
  write(out, gradients);
  out.flush();
  return in && out ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 10) {
    std::fprintf(stderr, "usage: torch_dump MODEL C H W CLASSES MICRO_BATCH HIDDEN IN OUT\n");
    return 2;
  }
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
