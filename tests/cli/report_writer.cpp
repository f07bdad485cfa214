// Writes the reports for tests/cli/report_browser_test.py into the folder of its argument.

#include <fstream>
#include <iostream>
#include <string>

#include "cli/report/report_html.h"
#include "tests/cli/report_fixture.h"

namespace {

using pushpull::CompareResult;
using pushpull::testing::fixture;

bool write(const std::string& path, const CompareResult& result) {
  std::ofstream file(path, std::ios::binary);
  file << pushpull::report_html(result);
  file.close();
  if (!file) std::cerr << "cannot write " << path << '\n';
  return file.good();
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
                    write(folder + "/nothing.html", CompareResult{});
  return good ? 0 : 1;
}
