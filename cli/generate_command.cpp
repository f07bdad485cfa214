// `pushpull generate`.

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <optional>

#include "cli/commands.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/text.h"
#include "common/job/command_line.h"
#include "common/job/job.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"
#include "common/layout/fields.h"
#include "datasets/tokenizer_json.h"
#include "models/model.h"

namespace pushpull {
namespace {

constexpr int64_t kMaxTokens = 1'000'000;

const std::vector<KeyHelp>& generate_options() {
  static const std::vector<KeyHelp> options = {
      takes("DIR", {"checkpoint", "",
                    "folder of checkpoints (the newest is used), or one step-... folder"}),
      {"prompt", "a line break", "text to go on with"},
      {"tokens", "200", "tokens to generate"},
      {"temperature", "1", "below 1: likely tokens more often; 0: always the likeliest"},
      {"top-k", "0", "draw from the K likeliest tokens; 0: from all"},
      {"seed", "1", "of the drawing; the same seed gives the same text"},
      {"threads", "the job's", "compute threads"},
  };
  return options;
}

std::string flag_of(const CommandLine& line, const std::string& name, const std::string& value) {
  const auto found = line.local.find(name);
  return found == line.local.end() ? value : found->second;
}

int64_t whole_number(const CommandLine& line, const std::string& name, int64_t value, int64_t least,
                     int64_t most) {
  const std::string text = flag_of(line, name, std::to_string(value));
  const std::optional<int64_t> number = parse_int64(text);
  if (number && *number >= least && *number <= most) return *number;
  throw Error(ErrorCode::kUsage, "[generate] --" + name + " " + text + ": must be from " +
                                     std::to_string(least) + " to " + std::to_string(most));
}

Sampling sampling_of(const CommandLine& line) {
  Sampling sampling;
  const std::string temperature = flag_of(line, "temperature", "1");
  const std::optional<double> number = parse_real(temperature);
  if (!number || *number < 0.0 || *number > 1000.0) {
    throw Error(ErrorCode::kUsage,
                "[generate] --temperature " + temperature + ": must be from 0 to 1000");
  }
  sampling.temperature = *number;
  sampling.top_k = whole_number(line, "top-k", 0, 0, INT32_MAX);
  const std::string seed = flag_of(line, "seed", "1");
  const std::optional<uint64_t> parsed = parse_uint64(seed);
  if (!parsed) {
    throw Error(ErrorCode::kUsage, "[generate] --seed " + seed + ": must be a whole number");
  }
  sampling.seed = *parsed;
  return sampling;
}

}  // namespace

int32_t draw_token(std::span<const float> scores, const Sampling& sampling, int64_t place) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](int32_t token) { return scores[static_cast<size_t>(token)]; };
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return score(a) > score(b); });
  if (sampling.temperature == 0.0) return order.front();
  if (sampling.top_k > 0 && sampling.top_k < std::ssize(order)) {
    order.resize(static_cast<size_t>(sampling.top_k));
  }
  const auto top = static_cast<double>(score(order.front()));
  std::vector<double> sums;
  double sum = 0.0;
  for (const int32_t token : order) {
    sum += std::exp((static_cast<double>(score(token)) - top) / sampling.temperature);
    sums.push_back(sum);
  }
  const double at = static_cast<double>(uniform01(sampling.seed, RandomStream::kGenerate, 0,
                                                  static_cast<uint64_t>(place))) *
                    sum;
  const auto found = std::ranges::upper_bound(sums, at);
  return found == sums.end() ? order.back() : order[static_cast<size_t>(found - sums.begin())];
}

void generate_tokens(Model& model, std::span<const float> weights, int64_t sequence,
                     int64_t vocabulary, const Sampling& sampling, int64_t count,
                     std::vector<int32_t>& ids, const std::function<void(int32_t)>& each) {
  PP_ASSERT(!ids.empty());
  const BatchLayout layout(token_fields(sequence, vocabulary), 1);
  std::vector<float> block(layout.words());
  std::fill_n(as_ints(block.data() + layout.offset(1)), sequence, kNoTarget);
  const int64_t sample = 0;
  std::vector<HeadSums> sums(model.heads().size());
  for (int64_t i = 0; i < count; ++i) {
    const auto known = std::min(sequence, std::ssize(ids));
    std::copy(ids.end() - known, ids.end(), as_ints(block.data() + layout.offset(0)));
    model.evaluate(weights, {-1, 0, {&sample, 1}, block}, sums);
    const auto row = static_cast<size_t>((known - 1) * vocabulary);
    ids.push_back(
        draw_token(model.scores().subspan(row, static_cast<size_t>(vocabulary)), sampling, i));
    each(ids.back());
  }
}

const ProgramHelp& generate_help() {
  static const ProgramHelp help = {.name = "pushpull generate",
                                   .summary = "text that a trained language model goes on with",
                                   .usage = {"pushpull generate OUT [--prompt TEXT] [--tokens N]",
                                             "pushpull generate --checkpoint DIR"},
                                   .options = generate_options()};
  return help;
}

int generate_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, generate_options(), JobFlags::kRefuse);
  if (print_help(line, generate_help(), PUSHPULL_VERSION)) return 0;
  const std::string path = checkpoint_path(line, "generate");
  const int64_t count = whole_number(line, "tokens", 200, 1, kMaxTokens);
  const Sampling sampling = sampling_of(line);
  const Checkpoint checkpoint = read_checkpoint(path);
  Job job = parse_job_text(checkpoint.state.job_ini, path);
  refuse_external(job, "[generate] " + path, "load model.safetensors there and generate with it");
  if (checkpoint.state.tokenizer.empty()) {
    throw Error(ErrorCode::kData, "[generate] " + path + ": model = " + job.model +
                                      " was trained on dataset = " + job.dataset +
                                      ", which is no text: there is no tokenizer.json");
  }
  const std::unique_ptr<Tokenizer> tokenizer =
      tokenizer_from_json(checkpoint.state.tokenizer, path + "/tokenizer.json");
  const std::string prompt = flag_of(line, "prompt", "\n");
  std::vector<int32_t> ids = tokenizer->encode(prompt, "--prompt");
  if (ids.empty()) throw Error(ErrorCode::kUsage, "[generate] --prompt: must not be empty");

  job.micro_batch = 1;
  job.precision = "fp32";
  job.threads = whole_number(line, "threads", job.threads, 1, 1024);
  const std::unique_ptr<Model> model =
      make_model(job, token_fields(job.sequence, tokenizer->size()));
  const std::vector<float> weights = weights_for(checkpoint, model->table(), path);
  std::cout << prompt << std::flush;
  generate_tokens(*model, weights, job.sequence, tokenizer->size(), sampling, count, ids,
                  [&](int32_t token) {
                    std::cout << tokenizer->decode({&token, 1}) << std::flush;
                  });
  std::cout << std::endl;
  return 0;
}

}  // namespace pushpull
