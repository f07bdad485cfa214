// Writes the reports for tests/cli/report_browser_test.py into the folder of its argument.

#include <fstream>
#include <iostream>
#include <string>

#include "cli/report/report_html.h"
#include "cli/report/run_report.h"
#include "tests/cli/report_fixture.h"

namespace {

using pushpull::CompareResult;
using pushpull::testing::fixture;

bool write(const std::string& path, const std::string& page) {
  std::ofstream file(path, std::ios::binary);
  file << page;
  file.close();
  if (!file) std::cerr << "cannot write " << path << '\n';
  return file.good();
}

bool write(const std::string& path, const CompareResult& result) {
  return write(path, pushpull::report_html(result));
}

// A run of `pushpull report` with many lines of metrics, a long host name and faults.
pushpull::RunData run_data() {
  pushpull::RunData data;
  data.folder = "out/a-rather-long-name-of-a-folder/with-another-one-below-it";
  data.job_ini = "model = mlp\n# <not a tag>\n" + std::string(200, 'x') + "\n";
  data.finished = true;
  data.run = fixture({.strategies = {"async"}, .workers = {2}, .seeds = 1}).runs.front();
  for (int i = 1; i <= 1000; ++i) {
    data.points.push_back({.seconds = 0.25 * i,
                           .step = i,
                           .samples = 64 * i,
                           .loss = 2.0 / i + 0.01 * (i % 7),
                           .samples_per_second = 20'000.0 + 100 * (i % 11)});
  }
  for (int rank = 0; rank < 4; ++rank) {
    data.members.push_back({.role = rank == 0 ? "server" : "worker",
                            .rank = rank,
                            .host = "node17.a-cluster.example.org",
                            .pid = 4'194'303,
                            .device = "cuda:0",
                            .step = 1000,
                            .samples = 64'000,
                            .cpu_seconds = 123.456,
                            .peak_mib = 2048.5,
                            .reason = "",
                            .at_seconds = std::nullopt});
  }
  data.left = data.members;
  for (auto& left : data.left) left.reason = "its connection closed 2.0 s ago <b>&";
  data.faults = {{"steps repeated", 17}, {"messages rejected: push-share", 3}};
  return data;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: report_writer FOLDER\n";
    return 2;
  }
  const std::string folder = argv[1];
  CompareResult full = fixture({.links = {"", "1gbit,1ms", "100mbit,5ms"}, .failures = true});
  full.runs[0].tuned = "lr=0.05";
  CompareResult failed =
      fixture({.strategies = {"allreduce:gloo"}, .workers = {4}, .failures = true});
  failed.runs[0].initial_weights_sha256.clear();
  CompareResult unfair = fixture({.strategies = {"sync", "async"}, .workers = {1, 2}, .seeds = 2});
  unfair.runs[1].initial_weights_sha256 = std::string(64, 'd');
  const bool good = write(folder + "/full.html", full) &&
                    write(folder + "/one_run.html",
                          fixture({.strategies = {"sync"}, .workers = {1}, .seeds = 1})) &&
                    write(folder + "/failures.html", failed) &&
                    write(folder + "/unfair.html", unfair) &&
                    write(folder + "/nothing.html", CompareResult{}) &&
                    write(folder + "/run.html", pushpull::run_report_html(run_data())) &&
                    write(folder + "/new_run.html", pushpull::run_report_html({}));
  return good ? 0 : 1;
}
