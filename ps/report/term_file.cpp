#include "ps/report/term_file.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/parse_json.h"
#include "common/base/text.h"
#include "common/io/file.h"

namespace pushpull {

namespace {

constexpr uint64_t kMaxTermBytes = 1 << 20;
constexpr std::streamoff kTailBytes = 64 << 10;  // many lines of metrics

std::string path_of(const std::string& out_dir) { return out_dir + "/term.json"; }

RunEnd parse_end(const nlohmann::json& json) {
  RunEnd end;
  end.term_id = json.at("run").get<uint64_t>();
  end.finished = json.at("finished").get<bool>();
  end.code = json.at("code").get<int>();
  end.text = json.at("text").get<std::string>();
  end.exit_code = json.at("exit_code").get<int>();
  end.members = json.at("members").get<int64_t>();
  return end;
}

EarlierDeclaration parse_declared(const nlohmann::json& json) {
  EarlierDeclaration declared;
  declared.model_sha256 = json.at("model_sha256").get<std::string>();
  declared.train_samples = json.at("train_samples").get<int64_t>();
  declared.test_samples = json.at("test_samples").get<int64_t>();
  declared.data_digest = json.at("data_digest").get<std::string>();
  return declared;
}

TermRecord parse_term(const nlohmann::json& json) {
  TermRecord out;
  out.term = json.at("term").get<int64_t>();
  out.run_id = json.at("first_run").get<uint64_t>();
  out.address = json.at("address").get<std::string>();
  out.job_ini = json.at("job").get<std::string>();
  out.started = json.at("started").get<bool>();
  out.began_ms = json.at("began_unix_ms").get<int64_t>();
  out.history.first_step = json.at("first_step").get<int64_t>();
  const nlohmann::json& resumed = json.at("resumed_from_step");
  if (!resumed.is_null()) out.history.resumed_from_step = resumed.get<int64_t>();
  out.history.recoveries = json.at("recoveries").get<int64_t>();
  out.history.steps_repeated = json.at("steps_repeated").get<int64_t>();
  out.history.workers_lost = json.value("workers_lost", int64_t{0});
  out.history.quarantined = json.value("quarantined", int64_t{0});
  out.history.checkpoints_failed = json.value("checkpoints_failed", int64_t{0});
  out.history.own_weights_sha256 = json.value("own_weights_sha256", std::string());
  if (json.contains("declared")) out.history.declared = parse_declared(json.at("declared"));
  if (json.contains("end")) out.end = parse_end(json.at("end"));
  return out;
}

}  // namespace

std::optional<TermRecord> read_term(const std::string& out_dir) {
  std::error_code error;
  if (!std::filesystem::exists(path_of(out_dir), error)) return std::nullopt;
  try {
    const std::string text = read_text_file(path_of(out_dir), kMaxTermBytes);
    TermRecord record = parse_term(parse_json(text));
    if (record.term < 1 || record.run_id == 0) return std::nullopt;
    return record;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void write_term(const std::string& out_dir, const TermRecord& record) {
  nlohmann::ordered_json json;
  json["term"] = record.term;
  json["first_run"] = record.run_id;
  json["address"] = record.address;
  json["started"] = record.started;
  json["began_unix_ms"] = record.began_ms;
  json["first_step"] = record.history.first_step;
  json["resumed_from_step"] = record.history.resumed_from_step
                                  ? nlohmann::ordered_json(*record.history.resumed_from_step)
                                  : nullptr;
  json["recoveries"] = record.history.recoveries;
  json["steps_repeated"] = record.history.steps_repeated;
  json["workers_lost"] = record.history.workers_lost;
  json["quarantined"] = record.history.quarantined;
  json["checkpoints_failed"] = record.history.checkpoints_failed;
  if (!record.history.own_weights_sha256.empty()) {
    json["own_weights_sha256"] = record.history.own_weights_sha256;
  }
  if (const auto& declared = record.history.declared) {
    json["declared"] = {{"model_sha256", declared->model_sha256},
                        {"train_samples", declared->train_samples},
                        {"test_samples", declared->test_samples},
                        {"data_digest", declared->data_digest}};
  }
  if (record.end) {
    json["end"] = {{"run", record.end->term_id},         {"finished", record.end->finished},
                   {"code", record.end->code},           {"text", record.end->text},
                   {"exit_code", record.end->exit_code}, {"members", record.end->members}};
  }
  json["job"] = record.job_ini;
  write_file(path_of(out_dir),
             json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

void remove_term(const std::string& out_dir) {
  std::error_code ignored;
  std::filesystem::remove(path_of(out_dir), ignored);
}

int64_t newest_step_of_metrics(const std::string& out_dir) {
  std::ifstream file(out_dir + "/metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!file) return -1;
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kTailBytes));
  int64_t newest = -1;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json json = parse_json(line);
    if (json.is_object() && json.value("step", nlohmann::json()).is_number_integer()) {
      newest = json.at("step").get<int64_t>();
    }
  }
  return newest;
}

}  // namespace pushpull
