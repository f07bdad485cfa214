// The figures of a job in Prometheus' text format.
#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/base/text.h"
#include "ps/report/metrics_sink.h"

namespace pushpull {

namespace {

constexpr size_t kMaxLabelBytes = 255;
// Upper bounds of the buckets of the staleness histogram.
constexpr std::array<int64_t, 13> kBounds = {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096};

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return print_real(value);
}

// Members choose their names: the value is made valid UTF-8, and the three characters that the
// format reserves are escaped.
std::string label_value(const std::string& text) {
  std::string out;
  for (const char c : printable(text, kMaxLabelBytes)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

using Labels = std::initializer_list<std::pair<const char*, std::string>>;

class Page {
 public:
  // Begins a metric. Its samples follow.
  void metric(const std::string& name, const char* type, const char* help) {
    name_ = "pushpull_" + name;
    text_ += "# HELP " + name_ + " " + help + "\n# TYPE " + name_ + " " + type + "\n";
  }
  void sample(const Labels& labels, double value, const char* suffix = "") {
    text_ += name_ + suffix;
    char before = '{';
    for (const auto& [label, label_text] : labels) {
      text_ += before;
      text_ += label;
      text_ += "=\"" + label_value(label_text) + "\"";
      before = ',';
    }
    text_ += (before == ',' ? "} " : " ") + number(value) + "\n";
  }
  std::string take() { return std::move(text_); }

 private:
  std::string name_;
  std::string text_;
};

void add_job(Page& page, const RunFigures& f) {
  page.metric("info", "gauge", "The job and its program; always 1.");
  page.sample({{"version", f.version}, {"strategy", f.strategy}, {"host", f.host}}, 1);
  page.metric("phase", "gauge", "1 for the phase that the job is in.");
  for (const wire::Phase phase :
       {wire::PHASE_GATHERING, wire::PHASE_TRAINING, wire::PHASE_FINISHING, wire::PHASE_FINISHED,
        wire::PHASE_FAILED}) {
    page.sample({{"phase", phase_name(phase)}}, phase == f.phase ? 1 : 0);
  }
}

void add_staleness(Page& page, const Figure::Metric& metric,
                   const std::map<int64_t, int64_t>& staleness) {
  page.metric(metric.name, metric.type, metric.help);
  double sum = 0.0;
  double count = 0.0;
  auto next = staleness.begin();
  const auto take_until = [&](int64_t bound) {
    for (; next != staleness.end() && next->first <= bound; ++next) {
      sum += static_cast<double>(next->first) * static_cast<double>(next->second);
      count += static_cast<double>(next->second);
    }
  };
  for (const int64_t bound : kBounds) {
    take_until(bound);
    page.sample({{"le", std::to_string(bound)}}, count, "_bucket");
  }
  take_until(INT64_MAX);
  page.sample({{"le", "+Inf"}}, count, "_bucket");
  page.sample({}, sum, "_sum");
  page.sample({}, count, "_count");
}

// A value that is an object has a sample for each of its fields.
void add_figure(Page& page, const Figure::Metric& metric, const Figure::Value& value) {
  if (value.is_null()) return;
  page.metric(metric.name, metric.type, metric.help);
  if (!value.is_object()) return page.sample({}, metric.factor * value.get<double>());
  for (const auto& [field, number] : value.items()) {
    page.sample({{metric.label, field}}, metric.factor * number.get<double>());
  }
}

void add_evaluation(Page& page, const Evaluation& evaluation) {
  page.metric("test_loss", "gauge", "Test loss of each head at that step.");
  for (const HeadResult& head : evaluation.heads) {
    if (const auto loss = head.loss()) page.sample({{"head", head.info.name}}, *loss);
  }
  page.metric("test_metric", "gauge", "The metric of each head at that step.");
  for (const HeadResult& head : evaluation.heads) {
    if (const auto value = head.value()) {
      page.sample({{"head", head.info.name}, {"metric", to_string(head.info.metric)}}, *value);
    }
  }
}

// Samples of one metric follow each other, so each metric goes over all members.
void add_members(Page& page, const MembersView& view) {
  const std::vector<MemberFigures> members = member_figures(view);
  const auto each = [&](const char* name, const char* type, const char* help, bool workers_only,
                        double MemberFigures::*value) {
    page.metric(name, type, help);
    for (const MemberFigures& m : members) {
      if (workers_only && !m.worker) continue;
      page.sample({{"role", m.worker ? "worker" : "server"},
                   {"rank", m.rank < 0 ? "" : std::to_string(m.rank)},
                   {"host", m.host},
                   {"pid", std::to_string(m.pid)}},
                  m.*value);
    }
  };
  each("member_step", "gauge", "A server's first incomplete step; the step after a worker's push.",
       false, &MemberFigures::step);
  each("member_heard_seconds", "gauge", "Seconds since a member's last heartbeat.", false,
       &MemberFigures::heard_seconds);
  each("member_cpu_seconds_total", "counter", "User and system time of a member.", false,
       &MemberFigures::cpu_seconds);
  each("member_peak_memory_bytes", "gauge", "Largest resident memory of a member so far.", false,
       &MemberFigures::peak_memory_bytes);
  each("member_memory_bytes", "gauge", "Resident memory of a member.", false,
       &MemberFigures::memory_bytes);
  each("member_cores", "gauge", "Cores that a member can use: affinity and CPU quota.", false,
       &MemberFigures::cores);
  each("member_sent_bytes_total", "counter", "Bytes of messages that a member has sent.", false,
       &MemberFigures::sent_bytes);
  each("member_received_bytes_total", "counter", "Bytes of messages that a member has received.",
       false, &MemberFigures::received_bytes);
  const bool devices =
      std::ranges::any_of(members, [](const MemberFigures& m) { return m.device_bytes > 0.0; });
  if (devices) {
    each("member_device_memory_bytes", "gauge",
         "Memory in use on a member's devices, by all processes; 0 without a device.", false,
         &MemberFigures::device_used_bytes);
    each("member_device_memory_limit_bytes", "gauge", "Memory of a member's devices.", false,
         &MemberFigures::device_bytes);
  }
  each("member_samples", "gauge", "A worker's samples in the weights.", true,
       &MemberFigures::samples);
  each("member_samples_per_second", "gauge", "A worker's samples per second.", true,
       &MemberFigures::samples_per_second);
  each("member_straggler", "gauge", "1 for a worker that the others wait for.", true,
       &MemberFigures::straggler);
  const bool divided =
      std::ranges::any_of(members, [](const MemberFigures& m) { return m.stage >= 0.0; });
  if (divided) {
    each("member_group", "gauge", "The group of a worker; 0 while it waits for one.", true,
         &MemberFigures::group);
    each("member_stage", "gauge", "The stage of the model that a worker computes; -1: none yet.",
         true, &MemberFigures::stage);
  }
  page.metric("members_left_total", "counter",
              "Members that left or were lost before the job was over.");
  page.sample({},
              static_cast<double>(std::ssize(view.members->former()) + view.members->forgotten()));
}

}  // namespace

std::string prometheus_text(const MembersView& view, const RunFigures& figures) {
  Page page;
  add_job(page, figures);
  for (const Figure* row : shown_figures(figures, Figure::kPrometheus)) {
    const Figure::Metric& metric = row->shown.prometheus;
    if (std::string_view(metric.type) == "histogram") {
      add_staleness(page, metric, figures.staleness);
    } else {
      add_figure(page, metric, row->value(figures));
    }
  }
  if (figures.evaluation) add_evaluation(page, *figures.evaluation);
  add_members(page, view);
  return page.take();
}

}  // namespace pushpull
