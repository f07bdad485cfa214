// Runs one exchange with real processes and reads the times that its workers leave. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/bench_options.h"
#include "cli/bench/bench_result.h"
#include "cli/run/held_signals.h"
#include "worker/exchange/exchange_loop.h"

namespace pushpull {

struct ExchangePlan {
  int64_t bytes = 0;
  Transport transport = Transport::kTcp;
  int64_t workers = 1;
  int64_t warm_up = 0;  // steps that are left out, at the start
  int64_t steps = 0;    // that are measured
  bool apart = false;   // push and pull one after the other
};

// Steps so that a row takes some seconds, or as the options say.
ExchangePlan plan_exchange(const BenchOptions& options, int64_t bytes, Transport transport,
                           int64_t workers);

// What the workers have written down.
struct ExchangeRecord {
  std::vector<std::vector<ExchangeTimes>> workers;
  ExchangeSetting setting;  // of the job, as the workers were told
  std::string note;         // a transport that could not be had; empty: nothing
  int signal = 0;           // that ended it, and then nothing else is here
};

// Of each measured step the time in microseconds from its begin to the moment at which all weights
// of the next are here, of the worker for which that took longest. Steps that a worker has not
// finished are left out.
std::vector<double> exchange_us(const ExchangeRecord& record, int64_t warm_up);
// The same of one worker whose pushes and pulls were made apart.
OneWay one_way(const ExchangeRecord& record, int64_t warm_up);

// The text of a worker's file; false where it is no such file.
bool read_times(const std::string& text, std::vector<ExchangeTimes>& times,
                ExchangeSetting& setting);

// What a worker has warned of: a transport that it could not have, and what it took instead. Empty:
// nothing.
std::string fallback_note(const std::string& log);

// Both throw Error with one line that names the exchange and why it failed; nothing is left behind.
//   program_dir: where the programs lie.
ExchangeRecord run_exchange(const BenchOptions& options, const ExchangePlan& plan,
                            const std::string& program_dir);
// With servers that run already: starts the workers alone.
ExchangeRecord join_exchange(const BenchOptions& options, const std::string& program_dir,
                             HeldSignals& signals);

}  // namespace pushpull
