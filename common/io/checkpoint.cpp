#include "common/io/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/io/file.h"
#include "common/io/safetensors.h"
#include "common/io/sha256.h"

namespace pushpull {

namespace fs = std::filesystem;

namespace {

using Slots = std::span<const std::span<const float>>;
using SlotNames = std::span<const std::string>;

std::string aside_name(const char* prefix, int64_t step) {
  return prefix + step_folder_name(step) + "-" + std::to_string(::getpid());
}

void rename_folder(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) throw_io_error("rename", from, error.value(), " (to " + to + ")");
}

void delete_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw_io_error("delete", path, error.value());
}

// Creates the folder and its parents, durably.
void create_folders(const std::string& path) {
  std::error_code error;
  std::vector<fs::path> fresh;
  for (fs::path p = fs::absolute(path, error); !p.empty() && !fs::exists(p, error);
       p = p.parent_path()) {
    fresh.push_back(p);
  }
  fs::create_directories(path, error);
  if (error) throw_io_error("create folder", path, error.value());
  for (const fs::path& p : fresh) sync_folder(p.parent_path().string());
}

// A folder that is deleted unless kept, so that no partial checkpoint stays behind.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {
    delete_folder(path_);
    std::error_code error;
    fs::create_directory(path_, error);
    if (error) throw_io_error("create folder", path_, error.value());
  }
  ~TemporaryFolder() {
    std::error_code ignored;  // the failure that led here is the one to report
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  void keep() { path_.clear(); }

 private:
  std::string path_;
};

FileDigest write_model(const std::string& path, const TensorTable& table,
                       std::span<const float> weights) {
  std::vector<NamedTensor> tensors;
  for (const TensorInfo& info : table.tensors) {
    tensors.push_back(
        {info.name, info.shape,
         weights.subspan(static_cast<size_t>(info.offset), static_cast<size_t>(info.size))});
  }
  // PyTorch's loaders expect the entry "format".
  return write_safetensors(path, tensors, {{"format", "pt"}});
}

FileDigest write_optimizer(const std::string& path, const TensorTable& table, Slots slots,
                           SlotNames slot_names) {
  std::vector<NamedTensor> tensors;
  for (const TensorInfo& info : table.tensors) {
    if (info.rule != UpdateRule::kOptimizer) continue;
    for (size_t s = 0; s < slots.size(); ++s) {
      if (slot_names[s] == kEmaName) continue;
      tensors.push_back(
          {slot_tensor_name(info.name, slot_names[s]), info.shape,
           slots[s].subspan(static_cast<size_t>(info.offset), static_cast<size_t>(info.size))});
    }
  }
  return write_safetensors(path, tensors, {{"format", "pt"}});
}

FileDigest write_text(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  return file.finish();
}

using Digests = std::vector<std::pair<const char*, FileDigest>>;

std::string state_json(const CheckpointState& state, SlotNames slot_names, const Digests& digests) {
  nlohmann::ordered_json files;
  for (const auto& [name, digest] : digests) {
    files[name] = {{"bytes", digest.bytes}, {"sha256", digest.sha256}};
  }
  nlohmann::ordered_json json = {
      {"format", "pushpull-checkpoint"},
      {"version", 1},
      {"step", state.step},
      {"updates", state.updates},
      {"total_steps", state.total_steps},
      {"data_digest", state.data_digest},
      {"numerics", state.numerics},
      {"job", state.job_ini},
      {"slots", std::vector<std::string>(slot_names.begin(), slot_names.end())},
      {"files", files}};
  if (!state.choices.empty()) json["choices"] = state.choices;
  if (!state.run.empty()) {
    json["run"] = {{"id", state.run},
                   {"samples", state.counts.samples},
                   {"samples_per_worker", state.counts.samples_per_worker},
                   {"samples_per_process", state.counts.samples_per_process},
                   {"pushes_applied", state.counts.pushes_applied},
                   {"pushes_dropped", state.counts.pushes_dropped},
                   {"bad_gradients", state.counts.bad_gradients},
                   {"pushes_dropped_per_worker", state.counts.pushes_dropped_per_worker},
                   {"data_order_sha256", state.counts.data_hash.hex()},
                   {"initial_weights_sha256", state.initial_weights_sha256}};
    if (state.counts.learning_rate) json["run"]["learning_rate"] = *state.counts.learning_rate;
  }
  if (const EvaluationRecord& evaluation = state.evaluation; !evaluation.measure.empty()) {
    json["evaluation"] = {{"measure", evaluation.measure},
                          {"step", evaluation.step},
                          {"best_step", evaluation.best_step},
                          {"best", evaluation.best},
                          {"since_best", evaluation.since_best}};
  }
  // JSON must be UTF-8: invalid bytes are replaced, so that they do not fail the checkpoint.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// Renames the folder to its final name. If the process crashes in between, the old checkpoint stays
// under its .old- name.
void publish(const std::string& dir, TemporaryFolder& folder, int64_t step) {
  const std::string final_path = dir + "/" + step_folder_name(step);
  const std::string old_path = dir + "/" + aside_name(".old-", step);
  std::error_code ignored;
  const bool replaces = fs::exists(final_path, ignored);
  if (replaces) {
    delete_folder(old_path);
    rename_folder(final_path, old_path);
  }
  try {
    rename_folder(folder.path(), final_path);
  } catch (const Error&) {
    if (replaces) fs::rename(old_path, final_path, ignored);
    throw;
  }
  folder.keep();
  sync_folder(dir);
  if (replaces) delete_folder(old_path);
}

// Renames first, so that a half-deleted folder never has a checkpoint's name.
void delete_checkpoint(const std::string& dir, int64_t step, const std::string& path) {
  const std::string doomed = dir + "/" + aside_name(".del-", step);
  delete_folder(doomed);
  rename_folder(path, doomed);
  sync_folder(dir);
  delete_folder(doomed);
}

// Cleans up after a writer that was killed: deletes partial checkpoints, and moves a checkpoint
// back to its name if it was moved aside and its replacement never arrived.
void clean_store(const std::string& dir) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator entry(dir, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) throw_io_error("list folder", dir, error.value());
  for (const std::string& name : names) {
    const std::string path = (fs::path(dir) / name).string();
    if (step_of_aside(name, ".tmp-") || step_of_aside(name, ".del-")) delete_folder(path);
    const auto old_step = step_of_aside(name, ".old-");
    if (!old_step) continue;
    const std::string final_path = dir + "/" + step_folder_name(*old_step);
    if (fs::exists(final_path, error)) {
      delete_folder(path);
    } else {
      rename_folder(path, final_path);
    }
  }
}

// Deletes the checkpoints in a store, then its folder if that is empty.
void delete_store(const std::string& dir) {
  clean_store(dir);
  for (const auto& [step, path] : whole_checkpoints(dir)) delete_checkpoint(dir, step, path);
  std::error_code ignored;
  fs::remove(dir, ignored);
}

// Deletes the stores that were moved aside, but for the last `keep`. A failure wastes disk space only: the new checkpoint
// is complete.
void delete_stores_aside(const std::string& dir, int64_t keep) {
  std::error_code ignored;
  try {
    for (const auto& [number, store] : folders_aside(dir)) {
      if (std::cmp_less_equal(number, keep)) continue;
      const std::string best = store + "/" + kBestFolder;
      if (fs::is_directory(best, ignored)) delete_store(best);
      delete_store(store);
    }
  } catch (const Error&) {
    return;  // a folder cannot be listed or belongs to another user
  }
}

}  // namespace

CheckpointStore::CheckpointStore(std::string dir, int64_t keep, int64_t keep_runs)
    : dir_(std::move(dir)), keep_(keep), keep_runs_(keep_runs) {
  PP_ASSERT(keep_ >= 1);
  create_folders(dir_);
  clean_store(dir_);
}

void CheckpointStore::write(const CheckpointState& state, const TensorTable& table,
                            std::span<const float> weights, Slots slots, SlotNames slot_names) {
  const auto total = static_cast<size_t>(table.total);
  PP_ASSERT(state.step >= 0 && weights.size() == total && slots.size() == slot_names.size());
  for (const std::span<const float> slot : slots) PP_ASSERT(slot.size() == total);

  TemporaryFolder folder(dir_ + "/" + aside_name(".tmp-", state.step));
  const std::string inside = folder.path() + "/";
  Digests digests = {
      {kModelFile, write_model(inside + kModelFile, table, weights)},
      {kOptimizerFile, write_optimizer(inside + kOptimizerFile, table, slots, slot_names)}};
  for (size_t s = 0; s < slots.size(); ++s) {
    if (slot_names[s] != kEmaName) continue;
    digests.emplace_back(kEmaFile, write_model(inside + kEmaFile, table, slots[s]));
  }
  if (!state.tokenizer.empty()) {
    digests.emplace_back(kTokenizerFile, write_text(inside + kTokenizerFile, state.tokenizer));
  }
  const FileDigest state_file =
      write_text(inside + kStateFile, state_json(state, slot_names, digests));
  sync_folder(folder.path());
  write_text(inside + kDoneFile, state_file.sha256 + "\n");
  sync_folder(folder.path());
  publish(dir_, folder, state.step);
  if (std::exchange(earlier_is_aside_, false)) delete_stores_aside(dir_, keep_runs_);

  // Checkpoints of later steps predate a resume at an earlier step; they must not displace new
  // ones.
  std::map<int64_t, std::string> known = whole_checkpoints(dir_);
  known.erase(known.upper_bound(state.step), known.end());
  while (std::cmp_greater(known.size(), keep_)) {
    delete_checkpoint(dir_, known.begin()->first, known.begin()->second);
    known.erase(known.begin());
  }
}

void CheckpointStore::write_best(const CheckpointState& state, const TensorTable& table,
                                 std::span<const float> weights, Slots slots,
                                 SlotNames slot_names) const {
  const std::string dir = dir_ + "/" + kBestFolder;
  CheckpointStore(dir, 1).write(state, table, weights, slots, slot_names);
  for (const auto& [step, path] : whole_checkpoints(dir)) {
    if (step != state.step) delete_checkpoint(dir, step, path);  // of a run that went on from there
  }
}

std::vector<int64_t> CheckpointStore::steps() const {
  std::vector<int64_t> steps;
  for (const auto& [step, path] : whole_checkpoints(dir_)) steps.push_back(step);
  return steps;
}

std::string CheckpointStore::set_earlier_aside() {
  earlier_is_aside_ = true;
  if (whole_checkpoints(dir_).empty()) return "";
  int64_t number = 1;
  std::error_code error;
  const auto path = [&](int64_t n) { return dir_ + "." + std::to_string(n); };
  while (fs::is_directory(path(number), error)) ++number;
  if (fs::exists(path(number), error)) {  // a file of the user's: the folders stay where they are
    while (fs::exists(path(number), error)) ++number;
  } else {
    for (; number > 1; --number) rename_folder(path(number - 1), path(number));
  }
  std::string aside = path(number);
  rename_folder(dir_, aside);
  create_folders(dir_);
  sync_folder(fs::path(dir_).parent_path().string());
  return aside;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 sha256;
  sha256.update(bytes);
  return sha256.hex();
}

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kStepPrefix = "step-";

// Parses 8 to 18 digits, so that the number fits. Returns nullopt for any other text.
std::optional<int64_t> parse_step(std::string_view digits) {
  int64_t step = 0;
  const bool shape =
      digits.size() >= 8 && digits.size() <= 18 &&
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!shape) return std::nullopt;
  std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return step;
}

}  // namespace

std::string slot_tensor_name(const std::string& tensor, const std::string& slot) {
  return tensor + "." + slot;
}

std::string step_folder_name(int64_t step) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "step-%08lld", static_cast<long long>(step));
  return text.data();
}

std::optional<int64_t> step_of_folder(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  return parse_step(std::string_view(name).substr(kStepPrefix.size()));
}

std::optional<int64_t> step_of_aside(const std::string& name, const std::string& prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const size_t dash = name.rfind('-');
  if (dash < prefix.size()) return std::nullopt;
  return step_of_folder(name.substr(prefix.size(), dash - prefix.size()));
}

std::map<int64_t, std::string> whole_checkpoints(const std::string& dir) {
  std::map<int64_t, std::string> paths;
  std::map<int64_t, std::string> old_paths;
  std::error_code error;
  fs::directory_iterator entry(dir, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code absent;
    if (!fs::exists(entry->path() / kDoneFile, absent)) continue;
    if (const auto step = step_of_folder(name)) paths[*step] = entry->path().string();
    if (const auto step = step_of_aside(name, ".old-")) old_paths[*step] = entry->path().string();
  }
  if (error) {
    throw Error(ErrorCode::kData,
                "[checkpoint] cannot list the folder " + dir + ": " + error.message());
  }
  paths.merge(old_paths);
  return paths;
}

std::map<uint64_t, std::string> folders_aside(const std::string& dir) {
  const fs::path store(dir);
  const std::string prefix = store.filename().string() + ".";
  std::map<uint64_t, std::string> found;
  std::error_code error;
  fs::directory_iterator entry(store.parent_path(), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code absent;
    if (!name.starts_with(prefix) || !entry->is_directory(absent)) continue;
    if (const auto number = parse_uint64(name.substr(prefix.size()))) {
      found[*number] = entry->path().string();
    }
  }
  if (error) {
    throw Error(ErrorCode::kData, "[checkpoint] cannot list the folder " +
                                      store.parent_path().string() + ": " + error.message());
  }
  return found;
}

}  // namespace pushpull
