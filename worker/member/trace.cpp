#include "worker/member/trace.h"

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/parse_json.h"

namespace pushpull {

namespace {

constexpr double kMicro = 1e6;

// Texts of an event, indexed by Trace::Kind.
struct KindText {
  const char* category;
  const char* verb;
  size_t row = 0;  // in the picture: 0 is the worker, others belong to a device
};

constexpr std::array<const char*, 3> kDeviceRows = {"", ": copies in", ": copies out"};

const KindText& text_of(uint8_t kind) {
  static constexpr KindText kTexts[] = {{"compute", "forward "},
                                        {"compute", "backward "},
                                        {"push", "push slice "},
                                        {"pull", ""},
                                        {"wait", ""},
                                        {"evaluate", "evaluate chunk "},
                                        {"compute", "part from "},
                                        {"device", "forward ", 1},
                                        {"device", "backward ", 1},
                                        {"device", "forward and backward ", 1},
                                        {"device", "copy in ", 2},
                                        {"device", "copy in ", 2},
                                        {"device", "copy out slice ", 3}};
  return kTexts[kind];
}

// Rows of several devices follow one another.
size_t row_of(uint8_t kind, uint8_t device) {
  const size_t row = text_of(kind).row;
  return row == 0 ? 0 : row + device * kDeviceRows.size();
}

Error cannot_write(const std::string& file) {
  return {ErrorCode::kIo, "[trace] cannot write " + file + "; give --trace another file"};
}

}  // namespace

Trace::Trace(std::string file, size_t most) : file_(std::move(file)), most_(most) {
  if (!on()) return;
  if (!std::ofstream(file_)) throw cannot_write(file_);
  events_.reserve(most_);
}

Trace::~Trace() {
  if (!on()) return;
  std::ofstream out(file_);
  out << to_json();
  const Log log("worker " + std::to_string(rank_));
  if (!out.flush()) log.error(cannot_write(file_).what());
  const int64_t lost = added_ - std::ssize(events_);
  if (lost > 0)
    log.info("[trace] " + file_ + " holds the newest " + std::to_string(events_.size()) +
             " events; " + std::to_string(lost) + " older ones did not fit");
}

void Trace::add(Kind kind, int64_t step, int64_t number, double begin_s, double end_s,
                int64_t bytes, uint8_t device) {
  if (!on()) return;
  ++added_;
  const Event event{kind, device, step, number, begin_s, end_s, bytes};
  if (events_.size() < most_) {
    events_.push_back(event);
    return;
  }
  events_[oldest_] = event;
  oldest_ = (oldest_ + 1) % most_;
}

std::string Trace::name_of(const Event& event) const {
  const std::string number = std::to_string(event.number);
  const auto tensor = static_cast<size_t>(event.number);
  const std::string& tensor_name = tensor < tensors_.size() ? tensors_[tensor].name : number;
  if (event.kind == kPull) return "slice " + number + " is here";
  if (event.kind == kPush && event.number < 0) return "end of push";
  if (event.kind == kDeviceWeights) return "copy in " + tensor_name;
  if (event.kind != kWait) return text_of(event.kind).verb + number;
  if (event.number == kFirstWeights) return "wait for the first weights";
  if (event.number == kLastWeights) return "wait for the last weights";
  return "wait for " + tensor_name;
}

std::string Trace::row_name(size_t row) const {
  const size_t device = (row - 1) / kDeviceRows.size();
  const std::string name = device < devices_.size() ? devices_[device] : "device";
  return name + kDeviceRows.at((row - 1) % kDeviceRows.size());
}

std::string Trace::to_json() const {
  std::string out = "[\n";
  const std::string process = "worker " + std::to_string(rank_);
  out += json_text(nlohmann::json{
      {"name", "process_name"}, {"ph", "M"}, {"pid", rank_}, {"args", {{"name", process}}}});
  if (slice_elements_ > 0) {
    nlohmann::json tensors = nlohmann::json::array();
    for (const TensorInfo& tensor : tensors_) {
      tensors.push_back({{"name", tensor.name}, {"offset", tensor.offset}, {"size", tensor.size}});
    }
    out += ",\n" + json_text(nlohmann::json{
                       {"name", "model"},
                       {"ph", "M"},
                       {"pid", rank_},
                       {"args", {{"tensors", tensors}, {"slice_elements", slice_elements_}}}});
  }
  std::set<size_t> rows;
  for (const Event& event : events_) rows.insert(row_of(event.kind, event.device));
  for (const size_t row : rows) {
    if (row == 0) continue;
    out += ",\n" + json_text(nlohmann::json{{"name", "thread_name"},
                                            {"ph", "M"},
                                            {"pid", rank_},
                                            {"tid", row},
                                            {"args", {{"name", row_name(row)}}}});
  }
  for (size_t i = 0; i < events_.size(); ++i) {
    const Event& event = events_[(oldest_ + i) % events_.size()];
    nlohmann::json args{{"step", event.step}};
    if (event.bytes > 0) args["bytes"] = event.bytes;
    out += ",\n" + json_text(nlohmann::json{{"name", name_of(event)},
                                            {"cat", text_of(event.kind).category},
                                            {"ph", "X"},
                                            {"pid", rank_},
                                            {"tid", row_of(event.kind, event.device)},
                                            {"ts", event.begin_s * kMicro},
                                            {"dur", (event.end_s - event.begin_s) * kMicro},
                                            {"args", args}});
  }
  return out + "\n]\n";
}

}  // namespace pushpull
