// Runs one exchange with real processes and reads the times that its workers record. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/bench_options.h"
#include "cli/bench/bench_result.h"
#include "cli/run/signals.h"
#include "worker/exchange_work.h"

namespace pushpull {

struct ExchangePlan {
  int64_t bytes = 0;
  Transport transport = Transport::kTcp;
  int64_t workers = 1;
  int64_t warm_up = 0;  // unmeasured steps at the start
  int64_t steps = 0;    // measured steps
  bool apart = false;   // push and pull separately, one after the other
};

// Chooses the steps so that a row takes a few seconds, unless --steps is given.
ExchangePlan plan_exchange(const BenchOptions& options, int64_t bytes, Transport transport,
                           int64_t workers);

// The workers' records of one exchange.
struct ExchangeRecord {
  std::vector<std::vector<ExchangeTimes>> workers;
  ExchangeSetting setting;  // the job's, as the workers received it
  std::string note;         // reports a transport that was not available; empty = none
  int signal = 0;  // signal that interrupted the exchange, 0 = none; if set, the other fields are
                   // empty
};

// Returns the duration of each measured step at its slowest worker, in microseconds: from the start
// of the push until all weights of the next step have arrived. Omits steps that some worker did not
// finish.
std::vector<double> exchange_us(const ExchangeRecord& record, int64_t warm_up);
// Returns the push times and the pull times of one worker, which pushed and pulled separately.
OneWay one_way(const ExchangeRecord& record, int64_t warm_up);

// Parses a worker's file. Returns false if it is malformed.
bool read_times(const std::string& text, std::vector<ExchangeTimes>& times,
                ExchangeSetting& setting);

// Returns the warning about an unavailable transport and its replacement, taken from a worker's
// log. Empty if there is none.
std::string fallback_note(const std::string& log);

// run_exchange and join_exchange throw Error with one line that names the exchange and the reason.
// Both remove their temporary files.
//   program_dir: folder of the programs.
ExchangeRecord run_exchange(const BenchOptions& options, const ExchangePlan& plan,
                            const std::string& program_dir);
// Runs the workers against servers that run already.
ExchangeRecord join_exchange(const BenchOptions& options, const std::string& program_dir,
                             HeldSignals& signals);

}  // namespace pushpull
