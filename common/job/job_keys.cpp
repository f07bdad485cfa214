#include "common/job/job_keys.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/job.h"
#include "common/job/job_key_makers.h"

namespace pushpull {

using namespace job_key_makers;

std::vector<JobKey> network_keys() {
  constexpr auto kIsFraction = [](double v) { return v >= 0.0 && v < 1.0; };
  constexpr const char* kFraction = "a number >= 0 and < 1";
  return {
      integer({"layers", "blocks of attention and feed-forward (gpt, bert)"}, field(&Job::layers),
              1, 1000),
      integer({"heads", "heads of each attention; divides embed (gpt, bert)"}, field(&Job::heads),
              1, 1024),
      integer({"embed", "width of a token in the network (gpt, bert)"}, field(&Job::embed), 1,
              65'536),
      integer({"ffn", "width of the feed-forward layers; 0: 4 times embed (gpt, bert)"},
              field(&Job::ffn), 0, 262'144),
      real({"dropout", "share of elements set to 0 in training (gpt, bert)"}, field(&Job::dropout),
           kFraction, kIsFraction),
      real({"attention-dropout", "share of attention weights set to 0 in training (gpt, bert)"},
           field(&Job::attention_dropout), kFraction, kIsFraction),
      word({"tie-embeddings", "the output layer uses the weights of the token embedding (gpt)"},
           field(&Job::tie_embeddings), "true or false",
           std::array<std::pair<const char*, bool>, 2>{{{"true", true}, {"false", false}}}),
      word({"norm", "normalisation: layer (LayerNorm) or rms (RMSNorm) (gpt)"}, field(&Job::norm),
           "layer or rms",
           std::array<std::pair<const char*, Norm>, 2>{
               {{"layer", Norm::kLayer}, {"rms", Norm::kRms}}}),
      integer({"positions", "rows of the table of positions; 0: sequence (gpt, bert)"},
              field(&Job::positions), 0, 1'000'000),
      parsed({"head-weights", "NAME:WEIGHT,...: factors of the losses of the model's heads",
              AtResume::kFixed, "1 for each head"},
             field(&Job::head_weights), "NAME:WEIGHT,..., as start:1,class:0.5", HeadWeights::parse,
             [](const HeadWeights& weights) { return weights.to_string(); }),
      real({"label-smoothing", "share of each label that is spread over all classes, in training"},
           field(&Job::label_smoothing), kFraction, kIsFraction),
  };
}

// The keys of the sizes of gpt, bert and other networks. For job_keys.cpp only. Any thread.
std::vector<JobKey> network_keys();

using namespace job_key_makers;

namespace {

constexpr int64_t kMaxSamples = 1'000'000'000'000;
constexpr int64_t kMaxSteps = 1'000'000'000'000;
constexpr int64_t kMaxEpochs = 1'000'000;  // times kMaxSamples still fits an int64_t
constexpr int64_t kMaxWorkers = 1'000'000;
constexpr int64_t kMaxInputSize = 100'000'000;
constexpr int64_t kMaxInputSide = 100'000;
constexpr int64_t kMaxWidth = 1'000'000;
constexpr size_t kMaxHiddenLayers = 1000;

// Splits `text` at separators; "a,,b" has an empty part.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end = text.find(separator); end != std::string_view::npos;
       end = text.find(separator)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

std::string join(const std::vector<int64_t>& numbers, char separator) {
  std::string out;
  for (const int64_t number : numbers) {
    if (!out.empty()) out += separator;
    out += std::to_string(number);
  }
  return out;
}

// Reads integers 1..max between separators. Returns an empty vector if one of them is invalid.
std::vector<int64_t> parse_sizes(std::string_view text, char separator, int64_t max) {
  std::vector<int64_t> sizes;
  for (const std::string_view part : split(text, separator)) {
    const auto size = parse_int64(trim(part));
    if (!size || *size < 1 || *size > max) return {};
    sizes.push_back(*size);
  }
  return sizes;
}

bool set_hidden(Job& job, const std::string& text) {
  std::vector<int64_t> widths;
  if (!text.empty() && text != "none") {
    widths = parse_sizes(text, ',', kMaxWidth);
    if (widths.empty() || widths.size() > kMaxHiddenLayers) return false;
  }
  job.hidden = std::move(widths);
  return true;
}

bool set_input(Job& job, const std::string& text) {
  const std::vector<int64_t> sides = parse_sizes(text, 'x', kMaxInputSide);
  if (sides.size() != 1 && sides.size() != 3) return false;
  const InputShape shape =
      sides.size() == 1 ? InputShape{sides[0], 1, 1} : InputShape{sides[0], sides[1], sides[2]};
  if (shape.size() > kMaxInputSize) return false;
  job.input = shape;
  return true;
}

std::string get_input(const Job& job) {
  const InputShape& shape = job.input;
  if (shape.height == 1 && shape.width == 1) return std::to_string(shape.channels);
  return join({shape.channels, shape.height, shape.width}, 'x');
}

bool set_checkpoint_every(Job& job, const std::string& text) {
  job.checkpoint_auto = text == "auto";
  const std::optional<int64_t> steps = job.checkpoint_auto ? 0 : parse_int64(text);
  if (!steps || *steps < 0 || *steps > kMaxSteps) return false;
  job.checkpoint_every = *steps;
  return true;
}

bool set_balance(Job& job, const std::string& text) {
  if (text != "auto" && text != "parameters" && parse_sizes(text, ',', kMaxWidth).empty()) {
    return false;
  }
  job.balance = text;
  return true;
}

using Keys = std::vector<JobKey>;

bool set_dataset(Job& job, const std::string& text) {
  job.dataset = text;
  return find_dataset_name(text) != nullptr;
}

Keys model_keys() {
  return {
      name({"model",
            "network to train: mlp (fully connected, ReLU), convnet, gpt, bert, resnet18, "
            "resnet50; external: programs with a model of their own are the workers"},
           &Job::model, "mlp, convnet, gpt, bert, resnet18, resnet50 or external",
           std::array{"mlp", "convnet", "gpt", "bert", "resnet18", "resnet50", "external"}),
      entry({"hidden", "widths of mlp's hidden layers: 64,32; none: no hidden layer"},
            "widths from 1 to 1000000 between commas, such as 64,32, or none", set_hidden,
            [](const Job& job) { return job.hidden.empty() ? "none" : join(job.hidden, ','); }),
      name({"stem", "first layers of resnet18 and resnet50: cifar (small images) or imagenet"},
           &Job::stem, "cifar or imagenet", std::array{"cifar", "imagenet"}),
      integer({"stages",
               "divide the model among so many workers: a group of them computes a share together, "
               "one stage each",
               AtResume::kMayChange},
              field(&Job::stages), 1, 1000),
      name({"schedule",
            "order in which the stages of a model compute: 1f1b (one forward, one backward), or "
            "gpipe (all forward passes first)",
            AtResume::kMayChange},
           &Job::stage_schedule, "1f1b or gpipe", std::array{"1f1b", "gpipe"}),
      entry({"balance",
             "what the stages of a model have: auto (equal computing), parameters (equal numbers "
             "of them), or 3,2 (pieces of each)",
             AtResume::kMayChange},
            "auto, parameters or numbers from 1 to 1000000 between commas, such as 3,2",
            set_balance, [](const Job& job) { return job.balance; }),
      path({"init-from",
            "file with the initial weights: .safetensors, or the .json index of several",
            AtResume::kMayChange, "the model's own initialisation"},
           &Job::init_from),
      word({"init-from-missing",
            "tensors that the file of init-from lacks: refuse, or allow (draw them anew; model = "
            "external: the workers' own)",
            AtResume::kMayChange},
           field(&Job::init_from_missing), "refuse or allow",
           std::array<std::pair<const char*, bool>, 2>{{{"refuse", false}, {"allow", true}}}),
      word({"numerics",
            "workers with other arithmetic than the first one's (processor, libraries): same: sync "
            "refuses them; "
            "any: it takes them, and bits depend on which worker computes what",
            AtResume::kMayChange},
           field(&Job::mixed_numerics), "same or any",
           std::array<std::pair<const char*, bool>, 2>{{{"same", false}, {"any", true}}}),
      entry(
          {"seed", "seed of initial weights and of the order of the samples"},
          "a whole number from 0 to 18446744073709551615",
          [](Job& job, const std::string& text) {
            const auto number = parse_uint64(text);
            job.seed = number.value_or(job.seed);
            return number.has_value();
          },
          [](const Job& job) { return std::to_string(job.seed); }),
  };
}

Keys data_keys() {
  return {
      entry({"dataset", dataset_help()}, dataset_names(), set_dataset,
            [](const Job& job) { return job.dataset; }),
      path({"data-dir", "files of the dataset: a folder, or a file of text", AtResume::kMayChange,
            "none"},
           &Job::data_dir),
      integer({"train-samples", "train on the first N samples of the training split; 0: all"},
              field(&Job::train_samples), 0, kMaxSamples),
      integer({"test-samples", "evaluate on the first N samples of the test split; 0: all",
               AtResume::kMayChange},
              field(&Job::test_samples), 0, kMaxSamples),
      word({"shuffle", "permute the samples in each epoch, by seed: true or false"},
           field(&Job::shuffle), "true or false",
           std::array<std::pair<const char*, bool>, 2>{{{"true", true}, {"false", false}}}),
      word({"sampler",
            "uniform: each sample once in an epoch; weighted: classes equally often, or by weights "
            "of a script"},
           field(&Job::sampler), "uniform or weighted",
           std::array<std::pair<const char*, SamplerKind>, 2>{
               {{"uniform", SamplerKind::kUniform}, {"weighted", SamplerKind::kWeighted}}}),
      entry({"input",
             "shape of a sample of dataset dummy, and of folder, whose images are made to fit: 784 "
             "or "
             "1x28x28 (channels x height x width)"},
            "N or CxHxW, each from 1 to 100000 and at most 100000000 together, such as 784 or "
            "1x28x28",
            set_input, get_input),
      integer({"classes", "number of classes of dataset dummy"}, field(&Job::classes), 2,
              1'000'000),
  };
}

Keys token_keys() {
  return {
      name({"tokenizer", "tokens of dataset text: char (characters) or bpe (byte pairs)"},
           &Job::tokenizer, "char or bpe", std::array{"char", "bpe"}),
      path({"tokenizer-file", "tokenizer.json of dataset text", AtResume::kMayChange,
            "made from the text"},
           &Job::tokenizer_file),
      integer({"sequence", "tokens of a sample"}, field(&Job::sequence), 1, 32'768),
      integer({"vocab", "tokens of a BPE that is trained on the text, and of dummy-qa; 0: 1024"},
              field(&Job::vocab), 0, 1'000'000),
  };
}

Keys batch_keys() {
  return {
      integer({"epochs", "passes over the training samples; give epochs or steps, not both",
               AtResume::kHorizon, "1 where steps is not given"},
              field(&Job::epochs), 0, kMaxEpochs),
      integer({"steps", "length of the job in steps (global batches), instead of epochs",
               AtResume::kHorizon, "0 (count in epochs)"},
              field(&Job::steps), 0, kMaxSteps),
      integer({"stop-after", "end early after this step, with a checkpoint; 0: never",
               AtResume::kMayChange},
              field(&Job::stop_after), 0, kMaxSteps),
      integer({"global-batch", "samples of one step, over all workers"}, field(&Job::global_batch),
              1, 1'000'000'000),
      integer({"micro-batch", "samples that a worker computes at once; divides global-batch"},
              field(&Job::micro_batch), 1, 1'000'000'000),
      integer({"threads", "compute threads of each worker"}, field(&Job::threads), 1, 1024),
      name({"precision", "arithmetic of workers: fp32, bf16, and on GPUs tf32 and fp16"},
           &Job::precision, "fp32, tf32, bf16 or fp16", std::array{"fp32", "tf32", "bf16", "fp16"}),
      entry(
          {"loss-scale", "factor that scales gradients within the layers (precision = fp16)"},
          "a power of two from 1 to 16777216",
          [](Job& job, const std::string& text) {
            const auto number = parse_int64(text);
            if (!number || *number < 1 || *number > (1 << 24)) return false;
            if (!std::has_single_bit(static_cast<uint64_t>(*number))) return false;
            job.loss_scale = *number;
            return true;
          },
          [](const Job& job) { return std::to_string(job.loss_scale); }),
      word(
          {"algorithms", "kernels of GPU libraries: library (its first choice) or timed (fastest)"},
          field(&Job::timed_algorithms), "library or timed",
          std::array<std::pair<const char*, bool>, 2>{{{"library", false}, {"timed", true}}}),
  };
}

Keys optimizer_keys() {
  constexpr const char* kFraction = "a number >= 0 and < 1";
  constexpr auto kIsFraction = [](double v) { return v >= 0.0 && v < 1.0; };
  constexpr auto kIsPositive = [](double v) { return v > 0.0; };
  constexpr auto kIsNotNegative = [](double v) { return v >= 0.0; };
  const auto optimizer = [](auto member) { return field(&Job::optimizer, member); };
  const auto schedule = [](auto member) { return field(&Job::schedule, member); };
  return {
      parsed({"optimizer",
              "update rule: sgd, momentum, nesterov, adam, adamw, rmsprop, adagrad or lion"},
             optimizer(&OptimizerOptions::kind),
             "sgd, momentum, nesterov, adam, adamw, rmsprop, adagrad or lion", parse_optimizer,
             [](OptimizerKind kind) { return to_string(kind); }),
      real({"lr", "learning rate after the warm-up"}, schedule(&ScheduleOptions::lr),
           "a number > 0", kIsPositive),
      real({"momentum", "factor of the running gradient (momentum, nesterov)"},
           optimizer(&OptimizerOptions::momentum), kFraction, kIsFraction),
      real({"beta1", "decay of the first moment (adam, adamw, lion)"},
           optimizer(&OptimizerOptions::beta1), kFraction, kIsFraction),
      real({"beta2", "decay of the second moment (adam, adamw, rmsprop), of lion's moment",
            AtResume::kFixed, "0.999; rmsprop, lion: 0.99"},
           optimizer(&OptimizerOptions::beta2), kFraction, kIsFraction),
      real({"epsilon", "added to the denominator (adam, adamw, rmsprop, adagrad)", AtResume::kFixed,
            "1e-08; adagrad: 1e-10"},
           optimizer(&OptimizerOptions::epsilon), "a number > 0", kIsPositive),
      real({"weight-decay", "L2 term in the gradient; decoupled in adamw and lion"},
           optimizer(&OptimizerOptions::weight_decay), "a number >= 0", kIsNotNegative),
      parsed({"no-decay", "PATTERN,...: tensors without weight decay; none; model: its own choice"},
             optimizer(&OptimizerOptions::no_decay),
             "model, none, or PATTERN,..., as *.bias,*norm*", NoDecay::parse,
             [](const NoDecay& tensors) { return tensors.to_string(); }),
      real({"ema", "decay of an average of the weights, kept by servers: 0.999; 0: none"},
           optimizer(&OptimizerOptions::ema), kFraction, kIsFraction),
      parsed(
          {"lr-schedule",
           "learning rate after the warm-up: constant, step, cosine, linear, multistep, onecycle "
           "(has its own), inverse-sqrt, points (instead of lr), or external (the workers' program "
           "says it)"},
          schedule(&ScheduleOptions::kind),
          "constant, step, cosine, linear, multistep, onecycle, inverse-sqrt, points or external",
          parse_schedule, [](ScheduleKind kind) { return to_string(kind); }),
      integer({"lr-step", "steps between two drops (lr-schedule = step)"},
              schedule(&ScheduleOptions::step), 0, kMaxSteps),
      real({"lr-gamma", "factor of a drop (lr-schedule = step, multistep)"},
           schedule(&ScheduleOptions::gamma), "a number > 0 and <= 1",
           [](double v) { return v > 0.0 && v <= 1.0; }),
      parsed({"lr-milestones", "steps at which the rate drops: 300,600 (lr-schedule = multistep)"},
             schedule(&ScheduleOptions::milestones), "rising steps between commas, or none",
             parse_milestones,
             [](const std::vector<int64_t>& milestones) { return to_string(milestones); }),
      parsed({"lr-points", "STEP:RATE,...: rates, with lines between them (lr-schedule = points)"},
             schedule(&ScheduleOptions::points), "STEP:RATE,..., or none", parse_points,
             [](const std::vector<RatePoint>& points) { return to_string(points); }),
      integer(
          {"lr-horizon",
           "steps after which cosine, linear and onecycle end, and of which warmup-fraction is a "
           "part; 0: the job's"},
          schedule(&ScheduleOptions::horizon), 0, kMaxSteps),
      real({"lr-min", "rate at the end (lr-schedule = cosine, linear, onecycle)"},
           schedule(&ScheduleOptions::min), "a number >= 0", kIsNotNegative),
      integer({"warmup-steps", "steps in which the rate rises linearly to lr"},
              schedule(&ScheduleOptions::warmup_steps), 0, kMaxSteps),
      real({"warmup-fraction", "the same as a part of all steps, instead of warmup-steps"},
           schedule(&ScheduleOptions::warmup_fraction), kFraction, kIsFraction),
      real({"warmup-from", "rate from which the warm-up rises"},
           schedule(&ScheduleOptions::warmup_from), "a number >= 0", kIsNotNegative),
      word({"warmup-shape",
            "linear, or that of DeepSpeed's schedulers, with their count of steps: deepspeed-log, "
            "deepspeed-linear"},
           schedule(&ScheduleOptions::warmup_shape), "linear, deepspeed-log or deepspeed-linear",
           std::array<std::pair<const char*, WarmupShape>, 3>{
               {{"linear", WarmupShape::kLinear},
                {"deepspeed-log", WarmupShape::kDeepSpeedLog},
                {"deepspeed-linear", WarmupShape::kDeepSpeedLinear}}}),
      real({"clip-norm", "largest global norm of a gradient; 0: no clipping"},
           field(&Job::clip_norm), "a number >= 0", kIsNotNegative),
  };
}

Codec parse_pull_codec(const std::string& text) {
  const Codec codec = Codec::parse(text);
  if (codec.kind == CodecKind::kFp32 || codec.kind == CodecKind::kBf16) return codec;
  throw Error(ErrorCode::kUsage, "[job] pull-codec '" + printable(text) + "' must be fp32 or bf16");
}

Keys strategy_keys() {
  constexpr std::array<std::pair<const char*, bool>, 2> kTruths = {
      {{"false", false}, {"true", true}}};
  return {
      parsed({"strategy",
              "when a push counts: sync, async, buffered:K, ssp:S, backup:B, local:H; or "
              "allreduce:tree, :ring, :gloo",
              AtResume::kFixed, "", strategy_words()},
             field(&Job::strategy), kStrategyWords.data(), Strategy::parse,
             [](const Strategy& strategy) { return strategy.to_string(); }),
      real({"outer-lr", "rate at which mean changes are applied (local:H)"}, field(&Job::outer_lr),
           "a number > 0", [](double v) { return v > 0.0; }),
      real({"outer-momentum", "Nesterov momentum of the mean changes (local:H); 0: none"},
           field(&Job::outer_momentum), "a number >= 0 and < 1",
           [](double v) { return v >= 0.0 && v < 1.0; }),
      word({"staleness-aware", "divide a push's learning rate by 1 + its staleness (async, ssp)"},
           field(&Job::staleness_aware), "false or true", kTruths),
      real({"delay-compensation", "lambda of DC-ASGD (async, ssp); 0: off"},
           field(&Job::delay_compensation), "a number >= 0", [](double v) { return v >= 0.0; }),
      parsed({"straggler", "RANK:FACTOR: this worker computes FACTOR times slower, on purpose",
              AtResume::kMayChange},
             field(&Job::straggler), kStragglerWords.data(), Straggler::parse,
             [](const Straggler& straggler) { return straggler.to_string(); }),
      path({"record",
            "file to record the order of updates in, for replay (async, buffered, ssp, backup)",
            AtResume::kMayChange, "none"},
           &Job::record),
  };
}

Keys transfer_keys() {
  constexpr std::array<std::pair<const char*, Transport>, 5> kTransports = {
      {{"auto", Transport::kAuto},
       {"shm", Transport::kShm},
       {"ipc", Transport::kIpc},
       {"tcp", Transport::kTcp},
       {"zmq", Transport::kZmq}}};
  return {
      integer(
          {"slice-bytes", "largest unit of transfer and update, in bytes", AtResume::kMayChange},
          field(&Job::slice_bytes), 256, int64_t{1} << 30),
      word({"transport", "how workers and servers communicate: auto, shm, ipc, tcp or zmq",
            AtResume::kMayChange},
           field(&Job::transport), "auto, shm, ipc, tcp or zmq", kTransports),
      word({"wait", "how a thread waits for messages that come without ZeroMQ: auto, spin or sleep",
            AtResume::kMayChange},
           field(&Job::wait), "auto, spin or sleep",
           std::array<std::pair<const char*, Wait>, 3>{
               {{"auto", Wait::kAuto}, {"spin", Wait::kSpin}, {"sleep", Wait::kSleep}}}),
      word({"encrypt", "traffic to encrypt: control, or all (data, too)", AtResume::kMayChange},
           field(&Job::encrypt_data), "control or all",
           std::array<std::pair<const char*, bool>, 2>{{{"control", false}, {"all", true}}}),
      integer(
          {"connections", "data connections from each worker to each server", AtResume::kMayChange},
          field(&Job::connections), 1, 16),
      integer({"server-threads", "threads per server that update weights; 0: one per core",
               AtResume::kMayChange},
              field(&Job::server_threads), 0, 256),
      parsed({"codec", "encoding of gradients on the wire: fp32, fp16, bf16, int8 or topk:FRACTION",
              AtResume::kFixed, "", kCodecWords},
             field(&Job::codec), "fp32, fp16, bf16, int8, or topk:F with 0 < F <= 1", Codec::parse,
             [](const Codec& codec) { return codec.to_string(); }),
      parsed({"codec-tensors", "PATTERN=CODEC,...: other codecs for some tensors", AtResume::kFixed,
              "none"},
             field(&Job::codec_tensors), "PATTERN=CODEC,..., such as fc.*=int8,*.bias=fp32",
             TensorCodecs::parse, [](const TensorCodecs& codecs) { return codecs.to_string(); }),
      parsed({"pull-codec", "encoding of weights on the wire: fp32 or bf16"},
             field(&Job::pull_codec), "fp32 or bf16", parse_pull_codec,
             [](const Codec& codec) { return codec.to_string(); }),
  };
}

Keys loss_keys() {
  constexpr std::array<std::pair<const char*, OnWorkerLoss>, 3> kLosses = {
      {{"abort", OnWorkerLoss::kAbort},
       {"wait", OnWorkerLoss::kWait},
       {"continue", OnWorkerLoss::kContinue}}};
  constexpr std::array<std::pair<const char*, OnServerLoss>, 2> kServerLosses = {
      {{"restart", OnServerLoss::kRestart}, {"abort", OnServerLoss::kAbort}}};
  constexpr std::array<std::pair<const char*, OnBadGradient>, 3> kBadGradients = {
      {{"abort", OnBadGradient::kAbort},
       {"skip", OnBadGradient::kSkip},
       {"quarantine", OnBadGradient::kQuarantine}}};
  return {
      word({"on-worker-loss", "when a worker dies: abort, wait (for another) or continue (without)",
            AtResume::kMayChange, "continue in async, buffered, ssp and backup, else abort"},
           field(&Job::on_worker_loss), "abort, wait or continue", kLosses),
      word({"on-server-loss",
            "when a server dies: restart (go on from the newest checkpoint once it is back) or "
            "abort",
            AtResume::kMayChange},
           field(&Job::on_server_loss), "restart or abort", kServerLosses),
      word({"recovery",
            "source of a lost server's weights: the newest checkpoint, to which all members go "
            "back, or "
            "copies that its peers keep (sync, local), so that no step is repeated",
            AtResume::kMayChange},
           field(&Job::recovery), "checkpoint or peers",
           std::array<std::pair<const char*, Recovery>, 2>{
               {{"checkpoint", Recovery::kCheckpoint}, {"peers", Recovery::kPeers}}}),
      integer({"copy-every",
               "steps between two copies of the other servers on server 0 (recovery = peers)",
               AtResume::kMayChange},
              field(&Job::copy_every), 1, kMaxSteps),
      word(
          {"on-bad-gradient",
           "a gradient that is not finite: abort, skip (counts as zeros) or quarantine (its worker "
           "ends, another computes it again)",
           AtResume::kMayChange},
          field(&Job::on_bad_gradient), "abort, skip or quarantine", kBadGradients),
  };
}

Keys checkpoint_keys() {
  constexpr std::array<std::pair<const char*, Resume>, 3> kResumes = {
      {{"false", Resume::kFalse}, {"true", Resume::kTrue}, {"auto", Resume::kAuto}}};
  constexpr std::array<std::pair<const char*, OnCheckpointFailure>, 2> kFailures = {
      {{"abort", OnCheckpointFailure::kAbort}, {"continue", OnCheckpointFailure::kContinue}}};
  return {
      integer({"eval-every", "evaluate every N steps; 0: at the end only", AtResume::kMayChange},
              field(&Job::eval_every), 0, kMaxSteps),
      word({"eval-weights", "evaluate the model's weights, or the averaged ones: ema",
            AtResume::kMayChange},
           field(&Job::eval_ema), "model or ema",
           std::array<std::pair<const char*, bool>, 2>{{{"model", false}, {"ema", true}}}),
      parsed({"stop-when",
              "[HEAD/]METRIC:PATIENCE: end once that many evaluations brought nothing better",
              AtResume::kMayChange},
             field(&Job::stop_when), kStopWhenWords, StopWhen::parse,
             [](const StopWhen& rule) { return rule.to_string(); }),
      word({"checkpoint-best", "keep the checkpoint of the best evaluation as well",
            AtResume::kMayChange},
           field(&Job::checkpoint_best), "false or true",
           std::array<std::pair<const char*, bool>, 2>{{{"false", false}, {"true", true}}}),
      path({"checkpoint-dir", "folder of the checkpoints", AtResume::kMayChange, "OUT/checkpoints",
            "DIR"},
           &Job::checkpoint_dir),
      entry(
          {"checkpoint-every",
           "checkpoint every N steps; 0: at the end only; auto: as often as 1 % of the time allows",
           AtResume::kMayChange},
          "a whole number from 0 to " + std::to_string(kMaxSteps) + ", or auto",
          set_checkpoint_every,
          [](const Job& job) {
            return job.checkpoint_auto ? "auto" : std::to_string(job.checkpoint_every);
          }),
      integer({"checkpoint-keep", "newest checkpoints to keep", AtResume::kMayChange},
              field(&Job::checkpoint_keep), 1, 1'000'000),
      integer({"keep-runs",
               "earlier runs whose checkpoints stay in OUT/checkpoints.1, .2, ... when the output "
               "folder is used again",
               AtResume::kMayChange},
              field(&Job::keep_runs), 0, 1'000),
      word({"on-checkpoint-failure",
            "a checkpoint that cannot be written: abort, or continue (go on without it)",
            AtResume::kMayChange},
           field(&Job::on_checkpoint_failure), "abort or continue", kFailures),
      word({"resume", "resume from the newest checkpoint: false, true, or auto (if there is one)",
            AtResume::kMayChange},
           field(&Job::resume), "false, true or auto", kResumes),
  };
}

Keys limit_keys() {
  constexpr const char* kTimeout = "a number of seconds from 0.1 to 1000000";
  constexpr auto kIsTimeout = [](double v) { return v >= 0.1 && v <= 1e6; };
  constexpr const char* kLimit = "0, or a number of seconds from 0.1 to 1000000";
  constexpr auto kIsLimit = [](double v) { return v == 0 || (v >= 0.1 && v <= 1e6); };
  return {
      real({"heartbeat-timeout", "seconds of silence after which a member counts as lost",
            AtResume::kMayChange},
           field(&Job::heartbeat_timeout_s), kTimeout, kIsTimeout),
      integer({"min-workers", "training pauses with fewer workers (on-worker-loss = continue)",
               AtResume::kMayChange},
              field(&Job::min_workers), 1, kMaxWorkers),
      integer(
          {"max-workers", "further workers wait as spares; 0: no limit (on-worker-loss = continue)",
           AtResume::kMayChange},
          field(&Job::max_workers), 0, kMaxWorkers),
      real({"replacement-timeout", "seconds to wait for the replacement of a lost worker or server",
            AtResume::kMayChange},
           field(&Job::replacement_timeout_s), kTimeout, kIsTimeout),
      real({"progress-timeout",
            "seconds without a micro-batch or chunk after which a worker counts as lost; 0: never",
            AtResume::kMayChange},
           field(&Job::progress_timeout_s), kLimit, kIsLimit),
      real({"task-timeout", "seconds that a program may take for a task (model = external); 0: any",
            AtResume::kMayChange},
           field(&Job::task_timeout_s), kLimit, kIsLimit),
  };
}

std::vector<JobKey> build_table() {
  Keys table;
  const auto append = [&table](const char* group, Keys keys) {
    for (JobKey& key : keys) {
      key.help.group = group;
      table.push_back(std::move(key));
    }
  };
  append("Model", model_keys());
  append("Model", network_keys());
  append("Data", data_keys());
  append("Data", token_keys());
  append("Batch and length", batch_keys());
  append("Optimizer", optimizer_keys());
  append("Strategy", strategy_keys());
  append("Strategy", transfer_keys());
  append("Strategy", loss_keys());
  append("Checkpoints and evaluation", checkpoint_keys());
  append("Limits", limit_keys());
  return table;
}

}  // namespace

const std::vector<JobKey>& job_key_table() {
  static const std::vector<JobKey> table = build_table();
  return table;
}

const JobKey* find_job_key(const std::string& key) {
  const auto& table = job_key_table();
  const auto found = std::ranges::find(table, key, [](const JobKey& k) { return k.help.key; });
  return found == table.end() ? nullptr : &*found;
}

const std::vector<std::string>& job_key_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const JobKey& key : job_key_table()) out.push_back(key.help.key);
    return out;
  }();
  return names;
}

const std::vector<KeyHelp>& job_keys() {
  static const std::vector<KeyHelp> help = [] {
    std::vector<KeyHelp> out;
    for (const JobKey& key : job_key_table()) out.push_back(key.help);
    return out;
  }();
  return help;
}

}  // namespace pushpull
