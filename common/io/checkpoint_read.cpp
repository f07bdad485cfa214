// Reads checkpoints (checkpoint.h): verifies the checksum of every file before use.

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/parse_json.h"
#include "common/io/checkpoint.h"
#include "common/io/file.h"
#include "common/io/safetensors.h"

namespace pushpull {
namespace {

constexpr std::array<std::string_view, 2> kBaseModels{"transformer.", "bert."};
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kNorms{
    {{".LayerNorm.weight", ".LayerNorm.gamma"}, {".LayerNorm.bias", ".LayerNorm.beta"}}};

}  // namespace

std::vector<std::string> pretrained_names(const std::string& name) {
  std::vector<std::string> names{name};
  for (const std::string_view prefix : kBaseModels) {
    if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
  }
  for (const auto& [suffix, older] : kNorms) {
    if (!name.ends_with(suffix)) continue;
    for (size_t i = 0, count = names.size(); i < count; ++i) {
      const std::string& known = names[i];
      names.push_back(known.substr(0, known.size() - suffix.size()).append(older));
    }
  }
  return names;
}

// The names of a tensor in files of pretrained networks, which differ from those of state_dict():
// Hugging Face's files of a base model, such as gpt2's, leave out the prefix `transformer.` or
// `bert.`, and older ones call the tensors of a LayerNorm gamma and beta. Any thread.

// Returns the names under which a file may have the model's tensor `name`, its own name first.
std::vector<std::string> pretrained_names(const std::string& name);

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMaxTextBytes = 4 << 20;
constexpr size_t kMaxSlots = 8;  // more than any optimizer has

[[noreturn]] void refuse_checkpoint(const std::string& path, const std::string& reason) {
  throw Error(ErrorCode::kData, "[checkpoint] " + path + ": " + reason);
}

struct StateFile {
  CheckpointState state;
  std::vector<std::string> slot_names;
  std::map<std::string, FileDigest> files;
};

void parse_run(const nlohmann::json& json, CheckpointState& state) {
  state.run = json.at("id").get<std::string>();
  state.initial_weights_sha256 = json.at("initial_weights_sha256").get<std::string>();
  RunCounts& counts = state.counts;
  counts.samples = json.at("samples").get<int64_t>();
  counts.pushes_applied = json.at("pushes_applied").get<int64_t>();
  counts.pushes_dropped = json.at("pushes_dropped").get<int64_t>();
  counts.bad_gradients = json.value("bad_gradients", int64_t{0});
  counts.samples_per_worker = json.at("samples_per_worker").get<std::vector<int64_t>>();
  if (json.contains("samples_per_process")) {
    counts.samples_per_process = json.at("samples_per_process").get<std::map<uint64_t, int64_t>>();
  }
  counts.pushes_dropped_per_worker =
      json.at("pushes_dropped_per_worker").get<std::vector<int64_t>>();
  const auto hash = HashSum::from_hex(json.at("data_order_sha256").get<std::string>());
  if (hash) counts.data_hash = *hash;
  if (json.contains("learning_rate")) counts.learning_rate = json.at("learning_rate").get<double>();
}

void parse_evaluation(const nlohmann::json& json, EvaluationRecord& evaluation) {
  evaluation.measure = json.at("measure").get<std::string>();
  evaluation.step = json.at("step").get<int64_t>();
  evaluation.best_step = json.at("best_step").get<int64_t>();
  evaluation.best = json.at("best").get<double>();
  evaluation.since_best = json.at("since_best").get<int64_t>();
}

StateFile parse_state(const std::string& text, const std::string& path) {
  StateFile file;
  try {
    const nlohmann::json json = parse_json(text);
    if (json.is_discarded()) refuse_checkpoint(path, "not JSON");
    if (json.at("format") != "pushpull-checkpoint")
      refuse_checkpoint(path, "not a pushpull checkpoint");
    if (json.at("version") != 1) {
      refuse_checkpoint(path,
                        "version " + json.at("version").dump() + ", this program reads version 1");
    }
    file.state.step = json.at("step").get<int64_t>();
    file.state.updates = json.at("updates").get<int64_t>();
    file.state.total_steps = json.at("total_steps").get<int64_t>();
    file.state.data_digest = json.at("data_digest").get<std::string>();
    file.state.numerics = json.at("numerics").get<std::string>();
    file.state.choices = json.value("choices", "");
    if (json.contains("run")) parse_run(json.at("run"), file.state);
    if (json.contains("evaluation")) {
      parse_evaluation(json.at("evaluation"), file.state.evaluation);
    }
    file.state.job_ini = json.at("job").get<std::string>();
    file.slot_names = json.at("slots").get<std::vector<std::string>>();
    const nlohmann::json& files = json.at("files");
    std::vector<const char*> names = {kModelFile, kOptimizerFile};
    const auto averaged = std::ranges::count(file.slot_names, kEmaName);
    if (averaged > 1) refuse_checkpoint(path, "two averages of the weights");
    if (averaged == 1) names.push_back(kEmaFile);
    if (files.contains(kTokenizerFile)) names.push_back(kTokenizerFile);
    for (const char* name : names) {
      const nlohmann::json& entry = files.at(name);
      file.files[name] = {entry.at("bytes").get<uint64_t>(), entry.at("sha256").get<std::string>()};
    }
  } catch (const nlohmann::json::exception& error) {
    refuse_checkpoint(path, error.what());
  }
  if (file.state.step < 0 || file.state.updates < 0 || file.state.total_steps < 0) {
    refuse_checkpoint(path, "a step or update count is negative");
  }
  if (file.slot_names.size() > kMaxSlots) {
    refuse_checkpoint(path, std::to_string(file.slot_names.size()) + " optimizer slots, at most " +
                                std::to_string(kMaxSlots) + " are expected");
  }
  return file;
}

// DONE holds the checksum of state.json, which holds those of the other files.
StateFile read_state(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder + "/" + kDoneFile, error)) {
    refuse_checkpoint(folder, "incomplete: DONE is missing, so it was never fully written");
  }
  const std::string done = read_text_file(folder + "/" + kDoneFile, kMaxTextBytes);
  const std::string path = folder + "/" + kStateFile;
  const std::string text = read_text_file(path, kMaxTextBytes);
  const std::string digest = sha256_hex(std::as_bytes(std::span(text)));
  if (done != digest + "\n")
    refuse_checkpoint(path, "damaged: sha256 is " + digest + ", DONE has another");
  return parse_state(text, path);
}

void check_file(const std::string& path, const FileDigest& expected) {
  const FileDigest actual = digest_file(path);
  if (actual == expected) return;
  if (actual.bytes == expected.bytes) {
    refuse_checkpoint(path,
                      "damaged: sha256 is " + actual.sha256 + ", expected " + expected.sha256);
  }
  refuse_checkpoint(path,
                    std::string(actual.bytes < expected.bytes ? "truncated: " : "too long: ") +
                        std::to_string(actual.bytes) + " bytes, expected " +
                        std::to_string(expected.bytes) + " (sha256 differs)");
}

// The canonical order is the order in the file; the map is sorted by name.
TensorTable table_of(const SafetensorsFile& file) {
  using Named = const std::pair<const std::string, SafetensorsFile::Entry>*;
  std::vector<Named> by_place;
  for (const auto& named : file.tensors) by_place.push_back(&named);
  std::sort(by_place.begin(), by_place.end(), [](Named a, Named b) {
    return std::pair(a->second.first, a->second.count) <
           std::pair(b->second.first, b->second.count);
  });
  TensorTable table;
  for (const Named named : by_place) {
    TensorInfo info;
    info.name = named->first;
    info.shape = named->second.shape;
    table.add(std::move(info));
  }
  return table;
}

// Fills the slots of `checkpoint`. Tensors without state (running statistics) keep zeros; a tensor
// with only part of its state is an error.
void read_slots(const std::string& path, Checkpoint& checkpoint) {
  const SafetensorsFile file = read_safetensors(path);
  const auto total = static_cast<size_t>(checkpoint.table.total);
  checkpoint.slots.assign(checkpoint.slot_names.size(), std::vector<float>(total));
  size_t used = 0;
  const auto averaged = static_cast<size_t>(std::ranges::count(checkpoint.slot_names, kEmaName));
  for (const TensorInfo& info : checkpoint.table.tensors) {
    size_t found = 0;
    for (size_t s = 0; s < checkpoint.slots.size(); ++s) {
      if (checkpoint.slot_names[s] == kEmaName) continue;
      const std::string name = slot_tensor_name(info.name, checkpoint.slot_names[s]);
      const auto at = file.tensors.find(name);
      if (at == file.tensors.end()) continue;
      if (at->second.shape != info.shape) {
        refuse_checkpoint(path,
                          "tensor " + quote_name(name) + " does not have the shape of its weights");
      }
      std::copy_n(file.data.begin() + static_cast<int64_t>(at->second.first), at->second.count,
                  checkpoint.slots[s].begin() + info.offset);
      ++found;
    }
    if (found != 0 && found != checkpoint.slots.size() - averaged) {
      refuse_checkpoint(path,
                        "tensor " + quote_name(info.name) + " lacks a part of its optimizer state");
    }
    used += found;
  }
  if (used != file.tensors.size()) {
    refuse_checkpoint(path, std::to_string(file.tensors.size()) + " tensors, expected " +
                                std::to_string(used) + " by the slots of " + kStateFile);
  }
}

// Fills the slot of the averaged weights, which are those of a model like the checkpoint's.
void read_average(const std::string& path, Checkpoint& checkpoint) {
  const auto slot = std::ranges::find(checkpoint.slot_names, kEmaName);
  SafetensorsFile file = read_safetensors(path);
  const TensorTable table = table_of(file);
  const auto same = [](const TensorInfo& a, const TensorInfo& b) {
    return a.name == b.name && a.shape == b.shape;
  };
  if (!std::ranges::equal(table.tensors, checkpoint.table.tensors, same)) {
    refuse_checkpoint(path, "its tensors are not those of " + std::string(kModelFile));
  }
  checkpoint.slots[static_cast<size_t>(slot - checkpoint.slot_names.begin())] =
      std::move(file.data);
}

Checkpoint read_folder(const std::string& folder) {
  StateFile state = read_state(folder);
  const std::string name = fs::path(folder).filename().string();
  const auto named_step = step_of_folder(name);
  if (named_step && *named_step != state.state.step) {
    refuse_checkpoint(folder, "state.json is for step " + std::to_string(state.state.step));
  }
  const std::string model_path = folder + "/" + kModelFile;
  const std::string optimizer_path = folder + "/" + kOptimizerFile;
  check_file(model_path, state.files.at(kModelFile));
  check_file(optimizer_path, state.files.at(kOptimizerFile));
  Checkpoint checkpoint;
  checkpoint.path = folder;
  checkpoint.state = std::move(state.state);
  if (const auto tokenizer = state.files.find(kTokenizerFile); tokenizer != state.files.end()) {
    const std::string path = folder + "/" + kTokenizerFile;
    check_file(path, tokenizer->second);
    checkpoint.state.tokenizer = read_text_file(path, kMaxTokenizerBytes);
  }
  checkpoint.slot_names = std::move(state.slot_names);
  SafetensorsFile model = read_safetensors(model_path);
  checkpoint.table = table_of(model);
  checkpoint.weights = std::move(model.data);
  read_slots(optimizer_path, checkpoint);
  if (state.files.contains(kEmaFile)) {
    const std::string path = folder + "/" + kEmaFile;
    check_file(path, state.files.at(kEmaFile));
    read_average(path, checkpoint);
  }
  return checkpoint;
}

// Returns the reasons as one line. Leaves out those of old checkpoints if there are many.
std::string one_line(const std::vector<std::string>& reasons) {
  constexpr size_t kMax = 8;  // more checkpoints than most jobs keep
  std::string line;
  for (size_t i = 0; i < std::min(reasons.size(), kMax); ++i) {
    line += (i == 0 ? "" : "; ") + reasons[i];
  }
  const size_t more = reasons.size() - std::min(reasons.size(), kMax);
  return more == 0 ? line : line + "; " + std::to_string(more) + " older ones are damaged, too";
}

// Reads the newest undamaged checkpoint. If there is none, throws an error with the reasons of all.
Checkpoint read_store(const std::string& dir) {
  const std::map<int64_t, std::string> whole = whole_checkpoints(dir);
  if (whole.empty())
    refuse_checkpoint(dir, "no complete checkpoint (step-.../DONE) in this folder");
  std::vector<std::string> skipped;
  for (auto at = whole.rbegin(); at != whole.rend(); ++at) {
    try {
      Checkpoint checkpoint = read_folder(at->second);
      checkpoint.skipped = std::move(skipped);
      return checkpoint;
    } catch (const Error& error) {
      skipped.emplace_back(error.what());
    }
  }
  throw Error(ErrorCode::kData, one_line(skipped));
}

// Returns the file's name of each tensor that it has.
std::map<std::string, std::string> names_in_file(const SafetensorsFile& file,
                                                 const TensorTable& table) {
  std::map<std::string, std::string> names;
  for (const TensorInfo& info : table.tensors) {
    for (const std::string& name : pretrained_names(info.name)) {
      if (file.tensors.contains(name)) {
        names[info.name] = name;
        break;
      }
    }
  }
  return names;
}

}  // namespace

Checkpoint read_checkpoint(const std::string& path) {
  std::error_code error;
  fs::path folder = fs::path(path).lexically_normal();
  if (folder.has_relative_path() && !folder.has_filename()) folder = folder.parent_path();
  if (!fs::is_directory(folder, error)) {
    refuse_checkpoint(path, fs::exists(folder, error) ? "not a folder" : "no such folder");
  }
  const bool one = step_of_folder(folder.filename().string()).has_value() ||
                   fs::exists(folder / kStateFile, error);
  return one ? read_folder(folder.string()) : read_store(folder.string());
}

std::optional<Checkpoint> find_checkpoint(
    const std::string& dir, const std::function<bool(const CheckpointState& state)>& fits,
    std::vector<std::string>& skipped) {
  skipped.clear();
  std::error_code error;
  if (!fs::exists(dir, error)) return std::nullopt;
  const std::map<int64_t, std::string> whole = whole_checkpoints(dir);
  for (auto at = whole.rbegin(); at != whole.rend(); ++at) {
    try {
      if (!fits(read_state(at->second).state)) continue;
      return read_folder(at->second);
    } catch (const Error& e) {
      skipped.emplace_back(e.what());
    }
  }
  return std::nullopt;
}

InitialWeights read_initial_weights(const std::string& path, const TensorTable& table,
                                    std::vector<float> drawn) {
  const PretrainedFile pretrained = read_pretrained(path);
  const SafetensorsFile& file = pretrained.floats;
  const std::map<std::string, std::string> names = names_in_file(file, table);
  std::set<std::string> used;
  for (const auto& [tensor, name] : names) used.insert(name);
  const bool exactly = drawn.empty();
  InitialWeights out;
  out.weights = std::move(drawn);
  out.weights.resize(static_cast<size_t>(table.total));
  for (const auto& [name, entry] : file.tensors) {
    if (used.contains(name)) continue;
    if (exactly) {
      throw_safetensors_error(path, "tensor " + quote_name(name) + " is unknown to the model");
    }
    out.unused.push_back(name);
  }
  for (const auto& [name, dtype] : pretrained.skipped)
    out.unused.push_back(name);  // counters, masks
  for (const TensorInfo& info : table.tensors) {
    for (const std::string& name : pretrained_names(info.name)) {
      const auto other = pretrained.skipped.find(name);
      if (other == pretrained.skipped.end() || names.contains(info.name)) continue;
      throw_safetensors_error(path, "tensor " + quote_name(name) + " is " + other->second +
                                        ": expected F32, F16, BF16 or F64");
    }
    const auto named = names.find(info.name);
    if (named == names.end()) {
      if (exactly) {
        throw_safetensors_error(path, "tensor " + quote_name(info.name) +
                                          " of the model is missing; init-from-missing = allow "
                                          "draws it anew");
      }
      out.missing.push_back(info.name);
      continue;
    }
    const SafetensorsFile::Entry& entry = file.tensors.at(named->second);
    if (entry.shape != info.shape) {
      throw_safetensors_error(path, "tensor " + quote_name(info.name) + " has shape " +
                                        shape_text(entry.shape) + ", the model's is " +
                                        shape_text(info.shape));
    }
    const auto data = std::span(file.data).subspan(entry.first, entry.count);
    const auto bad =
        std::find_if(data.begin(), data.end(), [](float x) { return !std::isfinite(x); });
    if (bad != data.end()) {
      throw_safetensors_error(path, "tensor " + quote_name(info.name) + " is " +
                                        std::to_string(*bad) + " at element " +
                                        std::to_string(bad - data.begin()));
    }
    std::copy(data.begin(), data.end(), out.weights.begin() + info.offset);
  }
  if (!table.tensors.empty() && out.missing.size() == table.tensors.size()) {
    throw_safetensors_error(path, "no tensor of the model is in it; the first one is " +
                                      quote_name(table.tensors.front().name));
  }
  return out;
}

}  // namespace pushpull
