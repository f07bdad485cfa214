#include "ps/report/run_recorder.h"

#include <bit>
#include <filesystem>
#include <span>
#include <sstream>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/io/checkpoint.h"
#include "common/io/file.h"
#include "common/io/sha256.h"
#include "common/update/range_update.h"

namespace pushpull {

std::string table_sha256(const TensorTable& table) {
  std::ostringstream text;
  for (const TensorInfo& t : table.tensors) {
    text << t.name.size() << ":" << t.name;
    for (const int64_t size : t.shape) text << " " << size;
    text << " rule " << static_cast<int>(t.rule) << " init " << static_cast<int>(t.init) << " "
         << std::bit_cast<uint32_t>(t.value) << " " << std::bit_cast<uint32_t>(t.average_momentum);
    if (t.lr_scale != 1.0) text << " lr " << print_real(t.lr_scale);
    if (t.weight_decay) text << " decay " << print_real(*t.weight_decay);
    text << "\n";
  }
  const std::string all = text.str();
  return sha256_hex(std::as_bytes(std::span(all.data(), all.size())));
}

std::vector<float> initial_weights(const Job& job, const TensorTable& table) {
  std::vector<float> out(static_cast<size_t>(table.total));
  RangeUpdate(table, {0, table.total}, job.optimizer).initialise(job.seed, out.data());
  return out;
}

InitialWeights weights_of_file(const Job& job, const TensorTable& table) {
  std::vector<float> drawn;
  if (job.init_from_missing) drawn = initial_weights(job, table);
  return read_initial_weights(job.init_from, table, std::move(drawn));
}

RecordedStart recorded_start(const Job& job, const TensorTable& table, const FlatState* initial,
                             bool resumed) {
  RecordedStart out;
  if (initial == nullptr) {
    const std::vector<float> weights = initial_weights(job, table);
    out.weights_sha256 = sha256_hex(std::as_bytes(std::span<const float>(weights)));
    return out;
  }
  out.kind = resumed ? StartKind::kResumed : StartKind::kInitFrom;
  out.step = initial->step;
  out.updates = initial->updates;
  out.weights_sha256 = sha256_hex(std::as_bytes(std::span<const float>(initial->weights)));
  if (initial->slots.empty()) return out;
  Sha256 state;
  for (const std::vector<float>& slot : initial->slots) {
    state.update(std::as_bytes(std::span<const float>(slot)));
  }
  out.state_sha256 = state.hex();
  return out;
}

RunRecorder::RunRecorder(const Job& job) : job_(job) {
  // Fails now rather than at the end of a long run.
  std::error_code unreadable;  // named by the probe
  if (std::filesystem::is_directory(job.record, unreadable)) {
    throw Error(ErrorCode::kIo, "[record] " + job.record + " is a folder; name a file");
  }
  const std::string probe = job.record + ".tmp";
  {
    OutputFile file(probe);
    file.finish();
  }
  std::error_code ignored;
  std::filesystem::remove(probe, ignored);
}

void RunRecorder::start(const Declaration& declaration, int servers, const FlatState* initial,
                        bool resumed) {
  record_.job_ini = to_ini(job_);
  record_.numerics = declaration.numerics;
  record_.choices = declaration.choices;
  record_.data_digest = declaration.data_digest;
  record_.table_sha256 = table_sha256(declaration.table);
  record_.servers = servers;
  record_.stages = static_cast<int>(job_.stages);
  record_.total_steps = total_steps(job_, declaration.train_samples);
  record_.start = recorded_start(job_, declaration.table, initial, resumed);
  record_.incomplete = "server 0 has not written the updates: it was killed, or the run goes on";
  rules_ = version_rules(job_, record_.start, declaration.table, servers);
  write_record(job_.record, record_);
  started_ = true;
}

std::optional<RunRecord> RunRecorder::complete(const ServerLogs* logs, const Membership& members,
                                               const std::optional<RecordedPush>& failed,
                                               const std::string& weights_sha256,
                                               const std::string& ended) {
  if (!started_ || std::exchange(complete_, true)) return std::nullopt;
  record_.incomplete = ended;
  record_.weights_sha256 = weights_sha256;
  record_.failed = failed;
  if (logs == nullptr) return std::move(record_);
  const int64_t left = merge_logs(*logs, rules_, record_);
  if (left > 0 && ended.empty()) {
    record_.incomplete =
        std::to_string(left) + " updates read versions that no server has reported";
  }
  for (const auto& [incarnation, member] : members.all()) {
    if (member.role != wire::ROLE_SERVER || member.peer.empty()) continue;
    const int64_t missing = member.stats.recorded() - logs->have(member.rank);
    if (missing > 0 && ended.empty()) {
      record_.incomplete = "the last " + std::to_string(missing) + " updates of server " +
                           std::to_string(member.rank) + " were not reported";
    }
  }
  return std::move(record_);
}

}  // namespace pushpull
