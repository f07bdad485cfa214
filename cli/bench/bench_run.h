// Runs one exchange with real processes and reads the times that its workers record. One thread.
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
  int64_t warm_up = 0;  // steps at the start that are not measured
  int64_t steps = 0;    // measured steps
  bool apart = false;   // push and pull one after the other
};

// Chooses the steps so that a row takes a few seconds, or as the options say.
ExchangePlan plan_exchange(const BenchOptions& options, int64_t bytes, Transport transport,
                           int64_t workers);

// The workers' records of one exchange.
struct ExchangeRecord {
  std::vector<std::vector<ExchangeTimes>> workers;
  ExchangeSetting setting;  // the job's, as the workers received it
  std::string note;         // a transport that was not available; empty: none
  int signal = 0;           // that ended it; if set, nothing else is
};

// Duration of each measured step in microseconds, from its start until all weights of the next step
// have arrived, for the slowest worker. Steps that some worker did not finish are left out.
std::vector<double> exchange_us(const ExchangeRecord& record, int64_t warm_up);
// The same for one worker that pushed and pulled separately.
OneWay one_way(const ExchangeRecord& record, int64_t warm_up);

// Parses a worker's file; false if it is not one.
bool read_times(const std::string& text, std::vector<ExchangeTimes>& times,
                ExchangeSetting& setting);

// A worker's warning about a transport that was not available, and what it used instead; empty:
// none.
std::string fallback_note(const std::string& log);

// Both throw Error with one line that names the exchange and the reason; nothing is left behind.
//   program_dir: folder of the programs.
ExchangeRecord run_exchange(const BenchOptions& options, const ExchangePlan& plan,
                            const std::string& program_dir);
// For running servers: starts only the workers.
ExchangeRecord join_exchange(const BenchOptions& options, const std::string& program_dir,
                             HeldSignals& signals);

}  // namespace pushpull
