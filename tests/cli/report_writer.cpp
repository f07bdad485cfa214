// Writes the reports for tests/cli/report_browser_test.py into the folder of its argument: made-up
// comparisons, and NAME.html for each run in its folder runs/NAME.

#include <filesystem>
#include <iostream>
#include <string>

#include "cli/commands.h"
#include "cli/compare/compare_output.h"
#include "common/io/file.h"
#include "tests/cli/report_fixture.h"

using pushpull::compare_page;
using pushpull::CompareResult;
using pushpull::write_file;
using pushpull::testing::fixture;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: report_writer FOLDER\n";
    return 2;
  }
  const std::string folder = argv[1];
  CompareResult full = fixture({.links = {"", "1gbit,1ms", "100mbit,5ms"}, .failures = true});
  full.runs[0].tuned = "lr=0.05";
  for (size_t i = 0; i < full.runs.size(); ++i) {
    full.runs[i].other_cores = 0.05 * static_cast<double>(i % 7);
  }
  CompareResult failed =
      fixture({.strategies = {"allreduce:gloo"}, .workers = {4}, .failures = true});
  CompareResult unfair = fixture({.strategies = {"sync", "async"}, .workers = {1, 2}, .seeds = 2});
  unfair.runs[1].initial_weights_sha256 = std::string(64, 'd');
  CompareResult hostile = fixture({.strategies = {"sync", "</script><img src=x>"}, .seeds = 2});
  hostile.job_ini = "model = <b>x</b>\ndataset = {{data}}\n";
  write_file(folder + "/full.html", compare_page(full));
  write_file(folder + "/one_run.html",
             compare_page(fixture({.strategies = {"sync"}, .workers = {1}, .seeds = 1})));
  write_file(folder + "/failures.html", compare_page(failed));
  write_file(folder + "/unfair.html", compare_page(unfair));
  write_file(folder + "/hostile.html", compare_page(hostile));
  write_file(folder + "/nothing.html", compare_page(CompareResult{}));
  for (const auto& run : std::filesystem::directory_iterator(folder + "/runs")) {
    write_file(folder + "/" + run.path().filename().string() + ".html",
               pushpull::run_page(run.path().string()));
  }
  return 0;
}
