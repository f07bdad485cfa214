// An event file for TensorBoard (--tensorboard DIR). It is created on the writing thread, with the first event: a folder
// that cannot be used costs one line. Used by the coordinator's thread.
#pragma once

#include <map>
#include <string>

#include "ps/record/run_totals.h"
#include "ps/watch/file_sink.h"

namespace pushpull {

namespace events {
class Event;
class Summary;
}  // namespace events

class TensorBoard : public FileSink {
 public:
  explicit TensorBoard(const std::string& dir);

  void begin(int64_t step) override;
  void moment(const Moment& moment) override;

 private:
  TensorBoard(const std::string& dir, const std::string& path);
  void add_tasks(const RunTotals& totals, events::Summary& summary);
  void add_staleness(const std::map<int64_t, int64_t>& staleness, events::Summary& summary);
  void write_event(events::Event& event);

  bool opened_ = false;
  // of the previous moment
  RunTotals totals_;
  std::map<int64_t, int64_t> staleness_;
};

}  // namespace pushpull
