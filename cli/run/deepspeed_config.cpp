#include "cli/run/deepspeed_config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "common/base/parse_json.h"
#include "common/base/text.h"
#include "common/io/file.h"
#include "common/job/job.h"
#include "common/job/job_settings.h"

namespace pushpull {

namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxFileBytes = 1 << 20;
constexpr int64_t kMaxBatch = 1'000'000'000;  // of the job's keys
constexpr const char* kHuggingFace = "\"auto\", which the Trainer of Hugging Face fills in";

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string comma_list(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

// An object of the file, of which each key must be asked for.
class Section {
 public:
  // where: file and path of the object, such as "ds.json: optimizer.params".
  Section(const Json& json, std::string file, std::string path, DeepSpeedKeys& to)
      : json_(json), file_(std::move(file)), path_(std::move(path)), to_(to) {
    if (!json_.is_object()) refuse_value(path_, json_, "an object");
  }

  [[noreturn]] void refuse(const std::string& text) const {
    throw Error(ErrorCode::kUsage, "[deepspeed] " + file_ + ": " + text);
  }
  [[noreturn]] void refuse_value(const std::string& name, const Json& value,
                                 const std::string& expected) const {
    refuse(name + " is " + printable(json_text(value)) + ": must be " + expected);
  }
  const std::string& file() const { return file_; }
  std::string name_of(const std::string& key) const {
    return path_.empty() ? key : path_ + "." + key;
  }

  // Returns the value, or null if it is absent or null in the file.
  const Json* find(const std::string& key) {
    known_.insert(key);
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  // The following return nothing for an absent key and for "auto". Then `job_key`, if it is not "", must have a value
  // from elsewhere.
  std::optional<double> number(const std::string& key, const std::string& job_key = "") {
    const Json* value = find_unless_auto(key, job_key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) refuse_value(name_of(key), *value, "a number");
    return value->get<double>();
  }
  std::optional<int64_t> count(const std::string& key, int64_t min, int64_t max,
                               const std::string& job_key = "") {
    const std::optional<double> value = number(key, job_key);
    if (!value) return std::nullopt;
    // also 2e8, which is a float in JSON
    const double most = static_cast<double>(max);
    if (*value < static_cast<double>(min) || *value > most ||
        static_cast<double>(static_cast<int64_t>(*value)) != *value) {
      refuse_value(name_of(key), *find(key),
                   "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
    }
    return static_cast<int64_t>(*value);
  }
  std::optional<bool> truth(const std::string& key) {
    const Json* value = find_unless_auto(key, "");
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) refuse_value(name_of(key), *value, "true or false");
    return value->get<bool>();
  }
  std::optional<std::string> text(const std::string& key) {
    const Json* value = find_unless_auto(key, "");
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) refuse_value(name_of(key), *value, "a text");
    return value->get<std::string>();
  }
  std::optional<Section> section(const std::string& key) {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    return Section(*value, file_, name_of(key), to_);
  }

  // Refuses the value unless it is the only one that has an effect here.
  void must_be(const std::string& key, const Json& expected, const std::string& reason) {
    const Json* value = find(key);
    if (value == nullptr || *value == expected) return;
    refuse(name_of(key) + " is " + printable(json_text(*value)) + ": " + reason);
  }

  // Returns those of the keys that the object has.
  std::vector<std::string> take(std::span<const char* const> keys) {
    std::vector<std::string> out;
    for (const char* key : keys) {
      if (find(key) != nullptr) out.push_back(name_of(key));
    }
    return out;
  }
  void take_all() {
    for (const auto& [key, value] : json_.items()) known_.insert(key);
  }

  // Refuses a key that nobody has asked for.
  void end() const {
    for (const auto& [key, value] : json_.items()) {
      if (known_.contains(key)) continue;
      refuse("unknown key " + printable(name_of(key)) +
             did_you_mean(key, {known_.begin(), known_.end()}) +
             "; docs/from-deepspeed.md lists those of DeepSpeed");
    }
  }

 private:
  const Json* find_unless_auto(const std::string& key, const std::string& job_key) {
    const Json* value = find(key);
    if (value == nullptr || *value != "auto") return value;
    if (!job_key.empty()) to_.missing.emplace(job_key, name_of(key));
    return nullptr;
  }

  const Json& json_;
  std::string file_;
  std::string path_;
  DeepSpeedKeys& to_;
  std::set<std::string> known_;
};

// Keys that neither change the weights nor the servers.
constexpr auto kWithoutEffect = std::to_array<const char*>({"steps_per_print",
                                                            "wall_clock_breakdown",
                                                            "dump_state",
                                                            "memory_breakdown",
                                                            "zero_allow_untested_optimizer",
                                                            "zero_force_ds_cpu_optimizer",
                                                            "disable_allgather",
                                                            "flops_profiler",
                                                            "tensorboard",
                                                            "wandb",
                                                            "csv_monitor",
                                                            "comet",
                                                            "monitor_config",
                                                            "comms_logger",
                                                            "timers",
                                                            "activation_checkpointing",
                                                            "aio",
                                                            "checkpoint",
                                                            "autotuning",
                                                            "nebula",
                                                            "compile",
                                                            "dataloader_drop_last",
                                                            "gradient_accumulation_dtype",
                                                            "data_types",
                                                            "fp32_allreduce",
                                                            "graph_harvesting",
                                                            "prescale_gradients",
                                                            "gradient_predivide_factor",
                                                            "managed_gradient_accumulation",
                                                            "use_node_local_storage",
                                                            "load_universal_checkpoint",
                                                            "zero_quantized_weights",
                                                            "zero_quantized_gradients",
                                                            "use_multi_rank_bucket_allreduce",
                                                            "seq_parallel_communication_data_type",
                                                            "checkpoint_tag_validation_enabled"});

// Keys that change the weights, with no counterpart. {"enabled": false} is taken.
constexpr auto kNotOffered = std::to_array<std::pair<const char*, const char*>>(
    {{"pipeline", "a model in stages is divided by its scripts (docs/pipeline.md)"},
     {"tensor_parallel", "a layer is not divided among workers"},
     {"sparse_attention", "the model is the script's: change it there"},
     {"curriculum_learning", "sample lengths are the script's: change them there"},
     {"data_efficiency", "sampling is the job's or the script's"},
     {"progressive_layer_drop", "the model is the script's: change it there"},
     {"eigenvalue", "quantisation is not offered"},
     {"quantize_training", "quantisation is not offered"},
     {"compression_training", "compression is not offered"},
     {"weight_quantization", "quantisation is not offered"},
     {"elasticity", "the batch does not depend on the number of workers here"},
     {"hybrid_engine", "the script's own generation is not pushpull's"},
     {"data_sampling", "sampling is the job's or the script's"}});

constexpr auto kOfZero = std::to_array<const char*>({"allgather_partitions",
                                                     "allgather_bucket_size",
                                                     "overlap_comm",
                                                     "reduce_scatter",
                                                     "reduce_bucket_size",
                                                     "contiguous_gradients",
                                                     "offload_optimizer",
                                                     "offload_param",
                                                     "cpu_offload",
                                                     "cpu_offload_params",
                                                     "cpu_offload_use_pin_memory",
                                                     "sub_group_size",
                                                     "prefetch_bucket_size",
                                                     "param_persistence_threshold",
                                                     "model_persistence_threshold",
                                                     "max_live_parameters",
                                                     "max_reuse_distance",
                                                     "gather_16bit_weights_on_model_save",
                                                     "stage3_max_live_parameters",
                                                     "stage3_max_reuse_distance",
                                                     "stage3_prefetch_bucket_size",
                                                     "stage3_param_persistence_threshold",
                                                     "stage3_model_persistence_threshold",
                                                     "stage3_gather_16bit_weights_on_model_save",
                                                     "stage3_gather_fp16_weights_on_model_save",
                                                     "stage3_use_all_reduce_for_fetch_params",
                                                     "stage3_module_granularity_threshold",
                                                     "use_all_reduce_for_fetch_params",
                                                     "module_granularity_threshold",
                                                     "elastic_checkpoint",
                                                     "load_from_fp32_weights",
                                                     "ignore_unused_parameters",
                                                     "legacy_stage1",
                                                     "round_robin_gradients",
                                                     "zero_hpz_partition_size",
                                                     "zero_quantized_weights",
                                                     "zero_quantized_nontrainable_weights",
                                                     "zero_quantized_gradients",
                                                     "mics_shard_size",
                                                     "mics_hierarchical_params_gather",
                                                     "memory_efficient_linear",
                                                     "pipeline_loading_checkpoint",
                                                     "override_module_apply",
                                                     "use_multi_rank_bucket_allreduce",
                                                     "log_trace_cache_warnings",
                                                     "zeropp_loco_param",
                                                     "enable_sanity_checks",
                                                     "save_muon_momentum_buffer_in_memory"});

class Reader {
 public:
  Reader(const Json& json, const std::string& file, double lr, int64_t workers)
      : workers_(workers), top_(json, file, "", out_), given_lr_(lr) {}

  DeepSpeedKeys run() {
    batch();
    optimizer();
    scheduler();
    if (const auto norm = top_.number("gradient_clipping", "clip-norm")) {
      out_.keys["clip-norm"] = print_real(*norm);
    }
    if (const auto type = top_.text("communication_data_type")) {
      out_.keys["codec"] = lower_case(*type);  // the job's check refuses another word
    }
    top_.must_be("sparse_gradients", false, "gradients are dense here: set it to false");
    precision();
    zero();
    for (const auto& [key, reason] : kNotOffered) not_offered(key, reason);
    if (const auto unused = top_.take(kWithoutEffect); !unused.empty()) {
      out_.notes.push_back("without effect here: " + comma_list(unused));
    }
    top_.end();
    return std::move(out_);
  }

 private:
  int64_t known_workers(const std::string& absent) {
    if (workers_ > 0) return workers_;
    top_.refuse(absent +
                " is missing, and the number of workers is not known here: add it to the file");
  }

  // Returns all / parts. Refuses a remainder.
  int64_t divided(int64_t all, int64_t parts, const std::string& of) {
    if (all % parts == 0) return all / parts;
    top_.refuse("train_batch_size " + std::to_string(all) + " is no multiple of " + of + " = " +
                std::to_string(parts));
  }

  void batch() {
    const auto all = top_.count("train_batch_size", 1, kMaxBatch, "global-batch");
    const auto micro = top_.count("train_micro_batch_size_per_gpu", 1, kMaxBatch, "micro-batch");
    const auto steps = top_.count("gradient_accumulation_steps", 1, 1'000'000);
    if (!all && !micro) {
      out_.missing.emplace("global-batch", "train_batch_size");
      return;
    }
    const int64_t accumulated = steps.value_or(1);
    const std::string of_workers = plural(workers_, "worker");
    int64_t samples = micro.value_or(0);
    if (!micro) {
      samples = divided(
          *all, accumulated * known_workers("train_micro_batch_size_per_gpu"),
          "gradient_accumulation_steps " + std::to_string(accumulated) + " x " + of_workers);
    }
    int64_t total = all.value_or(0);
    if (!all) total = product(samples, accumulated, known_workers("train_batch_size"));
    if (all && micro && steps && workers_ > 0) {
      check_three(total, samples, accumulated, of_workers);
    }
    out_.keys["global-batch"] = std::to_string(total);
    out_.keys["micro-batch"] = std::to_string(samples);
    out_.missing.erase("global-batch");  // "auto", which follows from the others
    out_.missing.erase("micro-batch");
  }

  int64_t product(int64_t samples, int64_t steps, int64_t workers) {
    const double all =
        static_cast<double>(samples) * static_cast<double>(steps) * static_cast<double>(workers);
    if (all <= static_cast<double>(kMaxBatch)) return samples * steps * workers;
    top_.refuse("the batch of a step is " + print_real(all) + " samples: must be at most " +
                std::to_string(kMaxBatch));
  }

  void check_three(int64_t all, int64_t micro, int64_t steps, const std::string& of_workers) {
    const int64_t found = product(micro, steps, workers_);
    if (found == all) return;
    const bool fits = all % (micro * steps) == 0;
    top_.refuse("train_batch_size " + std::to_string(all) +
                " is not train_micro_batch_size_per_gpu " + std::to_string(micro) +
                " x gradient_accumulation_steps " + std::to_string(steps) + " x " + of_workers +
                " = " + std::to_string(found) + ": " +
                (fits ? "take --workers " + std::to_string(all / (micro * steps)) + ", or " : "") +
                "leave gradient_accumulation_steps out, which follows from the other two");
  }

  // ---- the optimizer ----

  void optimizer() {
    auto section = top_.section("optimizer");
    if (!section) {
      out_.notes.emplace_back(
          "no optimizer in the file: that of the job's keys counts, not one that the script makes");
      return;
    }
    const std::string type = section->text("type").value_or("");
    auto params = section->section("params");
    const Json none = Json::object();
    if (!params) params.emplace(none, section->file(), "optimizer.params", out_);
    const std::string name = lower_case(type);
    if (name == "adam" || name == "adamw") {
      adam(name, *params);
    } else if (name == "sgd") {
      sgd(*params);
    } else if (name == "lion") {
      set_lr(*params, 1e-4);
      out_.keys["optimizer"] = "lion";
      betas(*params, 0.9, 0.99);
      decay(*params, 0.0);
    } else if (name == "lamb") {
      lamb(*params);
    } else if (name == "adagrad" || name == "rmsprop") {
      set_lr(*params, 0.01);
      out_.keys["optimizer"] = name;
      if (name == "rmsprop")
        out_.keys["beta2"] = print_real(params->number("alpha").value_or(0.99));
      epsilon(*params, name == "rmsprop" ? 1e-8 : 1e-10);
      decay(*params, 0.0);
      params->must_be("momentum", 0, "rmsprop has no momentum here: set it to 0");
      params->must_be("centered", false, "rmsprop is not centered here: set it to false");
      params->must_be("lr_decay", 0, "use a scheduler");
      params->must_be("initial_accumulator_value", 0, "adagrad begins at 0 here");
    } else {
      section->refuse("optimizer.type is '" + printable(type) +
                      "': servers have Adam, AdamW, SGD, RMSprop, Adagrad, Lion and Lamb");
    }
    constexpr auto kImplementation = std::to_array<const char*>(
        {"torch_adam", "adam_w_mode", "adamw_mode", "fused", "foreach", "capturable",
         "differentiable", "set_grad_none", "fp32_optimizer_states"});
    params->take(kImplementation);
    params->must_be("amsgrad", false, "amsgrad is not offered: set it to false");
    params->must_be("maximize", false, "servers minimise: set it to false");
    params->must_be("bias_correction", true, name + " corrects its moments here: set it to true");
    if (params->find("max_grad_norm") != nullptr) {
      params->refuse(
          "optimizer.params.max_grad_norm: DeepSpeed refuses it, too; use the key "
          "gradient_clipping");
    }
    params->end();
    section->end();
  }

  void set_lr(Section& params, double other) {
    const auto lr = params.number("lr", "lr");
    lr_ = given_lr_ > 0.0 ? given_lr_ : lr.value_or(other);
    out_.keys["lr"] = print_real(lr_);
  }

  void adam(const std::string& name, Section& params) {
    // FusedAdam's defaults, or torch.optim's
    const bool decoupled = params.truth("adam_w_mode").value_or(true) || name == "adamw";
    const bool torchs = params.truth("torch_adam").value_or(false);
    set_lr(params, 1e-3);
    out_.keys["optimizer"] = decoupled ? "adamw" : "adam";
    betas(params, 0.9, 0.999);
    epsilon(params, 1e-8);
    decay(params, torchs && decoupled ? 0.01 : 0.0);
  }

  // FusedLamb's defaults
  void lamb(Section& params) {
    set_lr(params, 1e-3);
    out_.keys["optimizer"] = "lamb";
    betas(params, 0.9, 0.999);
    epsilon(params, 1e-8);
    decay(params, 0.0);
    params.must_be("eps_inside_sqrt", false, "eps is added to the root here: set it to false");
    const double least = params.number("min_coeff").value_or(0.01);
    const double most = params.number("max_coeff").value_or(10.0);
    out_.notes.push_back(
        "optimizer Lamb: trust ratios have no bounds here; those of DeepSpeed lie from min_coeff " +
        print_real(least) + " to max_coeff " + print_real(most));
  }

  void sgd(Section& params) {
    set_lr(params, 1e-3);
    const double momentum = params.number("momentum").value_or(0.0);
    const bool nesterov = params.truth("nesterov").value_or(false);
    out_.keys["optimizer"] = momentum == 0.0 ? "sgd" : nesterov ? "nesterov" : "momentum";
    if (momentum != 0.0) out_.keys["momentum"] = print_real(momentum);
    params.must_be("dampening", 0, "momentum is not dampened here: set it to 0");
    decay(params, 0.0);
  }

  void betas(Section& params, double first, double second) {
    const Json* value = params.find("betas");
    if (value != nullptr && *value == "auto") {
      out_.missing.emplace("beta1", "optimizer.params.betas");
      out_.missing.emplace("beta2", "optimizer.params.betas");
      return;
    }
    if (value != nullptr) {
      const bool pair = value->is_array() && value->size() == 2 && (*value)[0].is_number() &&
                        (*value)[1].is_number();
      if (!pair) params.refuse_value("optimizer.params.betas", *value, "two numbers");
      first = (*value)[0].get<double>();
      second = (*value)[1].get<double>();
    }
    out_.keys["beta1"] = print_real(first);
    out_.keys["beta2"] = print_real(second);
  }

  void epsilon(Section& params, double other) {
    out_.keys["epsilon"] = print_real(params.number("eps", "epsilon").value_or(other));
  }

  // DeepSpeed decays all tensors, unless the script has groups.
  void decay(Section& params, double other) {
    const auto value = params.number("weight_decay", "weight-decay");
    out_.keys["weight-decay"] = print_real(value.value_or(other));
    out_.keys["no-decay"] = "none";
  }

  // ---- the scheduler ----

  void scheduler() {
    auto section = top_.section("scheduler");
    if (!section) return;
    const std::string type = section->text("type").value_or("");
    auto params = section->section("params");
    if (!params) section->refuse("scheduler.params is missing");
    if (type == "WarmupLR" || type == "WarmupDecayLR" || type == "WarmupCosineLR") {
      warmup(type, *params);
    } else if (type == "OneCycle") {
      one_cycle(*params);
    } else {
      section->refuse("scheduler.type is '" + printable(type) +
                      "': the job has WarmupLR, WarmupDecayLR, WarmupCosineLR and OneCycle, and "
                      "those of the key lr-schedule");
    }
    params->must_be("last_batch_iteration", -1, "a job goes on by --resume");
    params->end();
    section->end();
  }

  void warmup(const std::string& type, Section& params) {
    constexpr int64_t kMaxCount = 1'000'000'000'000;
    const std::string shape = params.text("warmup_type").value_or("log");
    if (shape != "log" && shape != "linear") {
      params.refuse("scheduler.params.warmup_type is '" + printable(shape) +
                    "': must be log or linear");
    }
    out_.keys["warmup-shape"] = "deepspeed-" + shape;
    const auto steps = params.count("warmup_num_steps", 1, kMaxCount, "warmup-steps");
    out_.keys["warmup-steps"] = std::to_string(steps.value_or(1000));
    if (type != "WarmupLR") {
      const bool open = params.find("total_num_steps") == nullptr;
      const auto total = params.count("total_num_steps", 1, kMaxCount);
      if (open) params.refuse("scheduler.params.total_num_steps is missing: it is required");
      if (total) out_.keys["lr-horizon"] = std::to_string(*total);  // "auto": the job's steps
    }
    double from = 0.0;
    double low = 0.0;
    if (type == "WarmupCosineLR") {
      from = lr_ * params.number("warmup_min_ratio").value_or(0.0);
      low = lr_ * params.number("cos_min_ratio").value_or(1e-4);
    } else {
      from = params.number("warmup_min_lr", "warmup-from").value_or(0.0);
      const auto most = params.number("warmup_max_lr", "lr");
      const double other = type == "WarmupLR" ? lr_ : 1e-3;
      out_.keys["lr"] = print_real(most.value_or(other));
      low = from;
    }
    out_.keys["warmup-from"] = print_real(from);
    out_.keys["lr-schedule"] = type == "WarmupLR"        ? "constant"
                               : type == "WarmupDecayLR" ? "linear"
                                                         : "cosine";
    if (type != "WarmupLR") out_.keys["lr-min"] = print_real(low);
  }

  void one_cycle(Section& params) {
    constexpr int64_t kMaxCount = 100'000'000'000;
    const auto low = params.number("cycle_min_lr");
    const auto high = params.number("cycle_max_lr");
    if (!low || !high) {
      params.refuse("scheduler.params of OneCycle: cycle_min_lr and cycle_max_lr are required");
    }
    const int64_t up = params.count("cycle_first_step_size", 1, kMaxCount).value_or(2000);
    const int64_t down = params.count("cycle_second_step_size", 1, kMaxCount).value_or(up);
    out_.keys["lr-schedule"] = "points";
    out_.keys["lr"] = print_real(*high);
    out_.keys["lr-points"] = "0:" + print_real(*low) + "," + std::to_string(up) + ":" +
                             print_real(*high) + "," + std::to_string(up + down) + ":" +
                             print_real(*low);
    params.must_be("cycle_first_stair_count", 0, "a cycle has no stairs here: set it to 0");
    params.must_be("cycle_second_stair_count", 0, "a cycle has no stairs here: set it to 0");
    const double rate = params.number("decay_lr_rate").value_or(0.0);
    const double every = params.number("decay_step_size").value_or(0.0);
    if (rate != 0.0 && every != 0.0) {
      params.refuse(
          "scheduler.params.decay_lr_rate: the rate stays at cycle_min_lr after the cycle here: "
          "set "
          "it to 0, or give the rates by the key lr-points");
    }
    // of optimizers with betas only
    const std::string optimizer = out_.keys.contains("optimizer") ? out_.keys["optimizer"] : "";
    const bool has_betas =
        optimizer == "adam" || optimizer == "adamw" || optimizer == "lion" || optimizer == "lamb";
    if (params.truth("cycle_momentum").value_or(true) && has_betas) {
      params.refuse("scheduler.params.cycle_momentum, true by default, would change beta1 of " +
                    optimizer + " in each step, which is constant here: set it to false");
    }
    constexpr auto kOfMomentum =
        std::to_array<const char*>({"cycle_min_mom", "cycle_max_mom", "decay_mom_rate"});
    params.take(kOfMomentum);
  }

  // ---- what the script computes, and where servers keep state ----

  void precision() {
    std::vector<std::string> asked;
    for (const char* key : {"fp16", "bf16", "bfloat16", "amp", "torch_autocast"}) {
      auto section = top_.section(key);
      if (!section) continue;
      const Json* enabled = section->find("enabled");
      if (enabled != nullptr && *enabled != false) asked.emplace_back(key);
      section->take_all();
    }
    if (asked.empty()) return;
    out_.notes.push_back(comma_list(asked) +
                         ": the script's own, by torch.autocast; servers hold, sum and update "
                         "float32, and no loss is scaled");
  }

  void zero() {
    auto section = top_.section("zero_optimization");
    if (!section) return;
    const int64_t stage = section->count("stage", 0, 3).value_or(0);
    section->take(kOfZero);
    section->end();
    if (stage == 0) return;
    std::string text = "zero_optimization stage " + std::to_string(stage) +
                       ": the optimizer's state is divided among the servers (--servers N)";
    if (stage == 2) text += "; each worker holds all gradients";
    if (stage == 3) {
      text +=
          "; each worker holds all weights and gradients, or those of its stage "
          "(docs/pipeline.md)";
    }
    out_.notes.push_back(text);
  }

  void not_offered(const char* key, const std::string& reason) {
    const Json* value = top_.find(key);
    if (value == nullptr) return;
    const bool off =
        value->is_object() && value->contains("enabled") && (*value)["enabled"] == false;
    if (!off && *value != false && *value != Json::object()) {
      top_.refuse(std::string(key) + " is not offered: " + reason + "; remove it");
    }
  }

  int64_t workers_;
  DeepSpeedKeys out_;
  Section top_;
  double given_lr_;
  double lr_ = 1e-3;  // that of the optimizer
};

std::string text_of_file(const std::string& path) {
  try {
    InputFile file(path);
    if (file.size_bytes() <= kMaxFileBytes) {
      std::string text(file.size_bytes(), '\0');
      file.read(std::as_writable_bytes(std::span(text)));
      return text;
    }
  } catch (const Error& error) {
    throw Error(ErrorCode::kUsage, error.what());
  }
  throw Error(ErrorCode::kUsage, "[deepspeed] " + printable(path, kMaxPathBytes) + " has " +
                                     "more than 1 MiB: is it a configuration of DeepSpeed?");
}

// Returns the value as a job prints it, or the text if no job takes it.
std::string plain_value(const std::string& key, const std::string& value) {
  Job job;
  const JobKey* known = find_job_key(key);
  try {
    if (known != nullptr && known->set(job, value)) return known->get(job);
  } catch (const Error&) {
    // the job's own check names it
  }
  return value;
}

void refuse_two_sources(const Settings& of_file, const DeepSpeedKeys& found,
                        const std::string& file) {
  for (const auto& [key, value] : found.keys) {
    const auto other = of_file.find(key);
    if (other == of_file.end()) continue;
    if (plain_value(key, other->second.value) == plain_value(key, value)) continue;
    throw Error(ErrorCode::kUsage, "[deepspeed] " + file + " says " + key + " = " + value + ", " +
                                       other->second.source + " " + key + " = " +
                                       printable(other->second.value) +
                                       ": remove one of them, or give --" + key);
  }
}

}  // namespace

DeepSpeedKeys read_deepspeed(const std::string& text, const std::string& file, double lr,
                             int64_t workers) {
  const Json json = parse_json<Json>(text);
  if (json.is_discarded() || !json.is_object()) {
    throw Error(ErrorCode::kUsage, "[deepspeed] " + file + " is not an object in JSON");
  }
  return Reader(json, file, lr, workers).run();
}

KeyHelp deepspeed_help() {
  return takes("FILE", {"deepspeed", "",
                        "DeepSpeed's ds_config.json: its batch, optimizer, scheduler and clipping "
                        "become keys of the job; flags come before them"});
}

std::vector<std::string> add_deepspeed_keys(CommandLine& line, int64_t workers) {
  const auto flag = line.local.find("deepspeed");
  if (flag == line.local.end()) return {};
  const std::string path = flag->second;
  const std::string file = printable(path, kMaxPathBytes);
  const std::string job_file = line.own("job", "");
  const Settings of_file = job_file.empty() ? Settings() : settings_of_file(job_file);
  const Settings variables = settings_of_environment();
  const auto elsewhere = [&](const std::string& key) {
    return line.keys.contains(key) || variables.contains(key) || of_file.contains(key);
  };
  const auto lr = line.keys.contains("lr") ? parse_real(line.keys.at("lr")) : std::nullopt;
  DeepSpeedKeys found = read_deepspeed(text_of_file(path), file, lr.value_or(0.0), workers);
  for (const auto& [key, where] : found.missing) {
    if (elsewhere(key)) {
      found.keys.erase(key);
    } else {
      throw Error(ErrorCode::kUsage, "[deepspeed] " + file + ": " + where + " is absent, or " +
                                         kHuggingFace + ": give --" + key);
    }
  }
  for (const auto& [key, value] : line.keys) found.keys.erase(key);
  for (const auto& [key, setting] : variables) found.keys.erase(key);
  refuse_two_sources(of_file, found, file);
  if (line.local.contains("worker") && !elsewhere("model")) found.keys["model"] = "external";
  std::vector<std::string> shown;
  for (const auto& [key, value] : found.keys) shown.push_back(key + " = " + value);
  std::vector<std::string> lines = {"[deepspeed] " + file + ": " + comma_list(shown)};
  for (const std::string& note : found.notes) lines.push_back("[deepspeed] " + note);
  line.keys.merge(found.keys);
  line.local.erase("deepspeed");
  return lines;
}

}  // namespace pushpull
