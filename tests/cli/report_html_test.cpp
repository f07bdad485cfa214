#include "cli/report/report_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <cmath>
#include <regex>
#include <sstream>

#include "tests/cli/report_fixture.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using testing::fixture;
using ::testing::HasSubstr;
using ::testing::Not;

size_t count_of(const std::string& page, const std::string& what) {
  size_t count = 0;
  for (size_t at = page.find(what); at != std::string::npos; at = page.find(what, at + 1)) ++count;
  return count;
}

constexpr const char* kChart = "<svg class=\"chart\"";
constexpr const char* kAlert = "role=\"alert\"";

// Returns the page after the checks that every page must pass.
std::string checked_page(const CompareResult& result) {
  std::string page = report_html(result);
  std::istringstream in(page);
  boost::property_tree::ptree tree;
  EXPECT_NO_THROW(boost::property_tree::read_xml(in, tree));
  EXPECT_EQ(tree.get("html.<xmlattr>.lang", ""), "en");
  const std::regex outside(
      R"((src|href)\s*=\s*"(?!#|data:,)|url\(|@import|<script|<img|<link rel="(?!icon))");
  std::smatch found;
  EXPECT_FALSE(std::regex_search(page, found, outside)) << found.str();
  // a non-finite number must not reach a drawing
  EXPECT_FALSE(std::regex_search(page, found, std::regex(R"(="[^"]*\b(nan|inf)\b[^"]*")")))
      << found.str();
  return page;
}

TEST(ReportHtml, ShowsEveryStrategyEveryNumberOfWorkersAndEveryChart) {
  const CompareResult result = fixture({});
  const std::string page = checked_page(result);
  for (const std::string& strategy : result.strategies) EXPECT_THAT(page, HasSubstr(strategy));
  for (const char* section : {"results", "accuracy", "speed", "steps", "staleness", "costs"}) {
    EXPECT_EQ(count_of(page, std::string("<section id=\"") + section + "\""), 1U) << section;
  }
  // four rows of three panels; speed; split by workers; async and ssp with two and four workers
  EXPECT_EQ(count_of(page, kChart), 4U * 3 + 3 + 3 + 4);
  EXPECT_THAT(page, AllOf(HasSubstr("class=\"band s0\""), HasSubstr("prefers-color-scheme:dark"),
                          Not(HasSubstr("href=\"#links\"")), Not(HasSubstr(kAlert))));
}

TEST(ReportHtml, NamesItsCommandMachineAndVersions) {
  CompareResult result = fixture({});
  result.straggler = "1:4.25";
  const std::string page = checked_page(result);
  for (const std::string& value :
       {result.command, result.commit, result.machine, result.libraries.at("libzmq"),
        result.congestion_control, result.notes.at(0), result.runs[0].initial_weights_sha256,
        std::string("lr = 0.05"), std::string("4.25")}) {
    EXPECT_THAT(page, HasSubstr(value));
  }
}

TEST(ReportHtml, TextFromOutsideIsNeverMarkup) {
  CompareResult result = fixture({.strategies = {"sync", "<img src=x>"}, .failures = true});
  const std::string bad = "<script>alert('&\"')</script>\x01\xff";
  const std::string good = "&lt;script&gt;alert(&#39;&amp;&quot;&#39;)&lt;/script&gt;\\x01\\xff";
  result.command = result.commit = result.version = result.machine = bad;
  result.congestion_control = result.job_ini = result.began = result.straggler = bad;
  result.device = result.server_device = bad;
  result.libraries = {{bad, bad}};
  result.links = {{bad, 1e6, 1, bad}};
  result.notes = {bad};
  for (CompareRun& run : result.runs) {
    run.link = run.tuned = run.out = run.initial_weights_sha256 = run.data_order_sha256 = bad;
    run.cpu_seconds = run.peak_mib = {{bad, 1.0}};
  }
  result.runs[0].failure = bad;
  result.runs[1].initial_weights_sha256 = bad + bad;
  const std::string page = checked_page(result);
  EXPECT_THAT(page, HasSubstr(good));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;img src=x&gt;"));
}

TEST(ReportHtml, FailuresAreShownAsFailures) {
  const std::string page = checked_page(fixture({.failures = true}));
  EXPECT_THAT(page, AllOf(HasSubstr("6 of 90 runs"), HasSubstr("id=\"failures\""),
                          HasSubstr("<td class=\"n bad\">5 of 5<"),
                          HasSubstr("<td class=\"n bad\">1 of 5<"),
                          HasSubstr("&lt;script&gt;alert(&quot;x&quot;)")));
}

TEST(ReportHtml, AReportNeedsNoGoodRun) {
  const std::string page =
      checked_page(fixture({.strategies = {"allreduce:gloo"}, .workers = {4}, .failures = true}));
  EXPECT_THAT(page, AllOf(HasSubstr("id=\"failures\""), Not(HasSubstr("<svg"))));
  EXPECT_THAT(checked_page(CompareResult{}), Not(HasSubstr("id=\"results\"")));
}

TEST(ReportHtml, OneRunHasNoBandAndNoWhisker) {
  const std::string page =
      checked_page(fixture({.strategies = {"sync"}, .workers = {1}, .seeds = 1}));
  EXPECT_THAT(page,
              AllOf(Not(HasSubstr("<path class=\"band")), Not(HasSubstr("<path class=\"whisker"))));
}

TEST(ReportHtml, AnUnreachedTargetHasNoTimeAndNoChart) {
  CompareResult result = fixture({.strategies = {"sync"}, .workers = {2}});
  const size_t charts = count_of(checked_page(result), kChart);
  for (CompareRun& run : result.runs) {
    run.seconds_to_target.reset();
    run.samples_to_target.reset();
  }
  const std::string never = checked_page(result);
  EXPECT_THAT(never, AllOf(HasSubstr(">0 of 5<"), HasSubstr(">never<")));
  EXPECT_EQ(count_of(never, kChart), charts - 1);
  result.target.reset();
  EXPECT_THAT(checked_page(result), Not(HasSubstr(">never<")));
}

TEST(ReportHtml, AnotherMetricThanAccuracyHasItsNameAndDirection) {
  CompareResult result = fixture({});
  result.metric = "perplexity";
  result.target = 6.5;
  for (CompareRun& run : result.runs) {
    run.metric = result.metric;
    for (CurvePoint& point : run.curve) point.test_value = 20.0 - 15.0 * point.test_value;
    run.test_value = run.curve.empty() ? 9.0 : run.curve.back().test_value;
  }
  const std::string page = checked_page(result);
  EXPECT_THAT(page, AllOf(HasSubstr("Perplexity and loss"), HasSubstr("Best perplexity at the end"),
                          HasSubstr("final perplexity"), HasSubstr("6.5 test perplexity"),
                          HasSubstr("Perplexity over time"), Not(HasSubstr("ccuracy over"))));
}

TEST(ReportHtml, DifferentHashesRaiseAnAlert) {
  CompareResult result = fixture({});
  result.runs[1].data_order_sha256 = std::string(64, 'd');
  EXPECT_THAT(checked_page(result), AllOf(HasSubstr(kAlert), HasSubstr("<td class=\"bad\">"),
                                          HasSubstr(result.runs[1].data_order_sha256)));
  result.runs[1].data_order_sha256.clear();
  EXPECT_THAT(checked_page(result), AllOf(Not(HasSubstr(kAlert)), HasSubstr("17 of 18 runs")));
}

TEST(ReportHtml, ManyNotesAreOneList) {
  CompareResult result = fixture({.strategies = {"sync"}, .workers = {2}, .seeds = 1});
  result.notes = {"first", "second"};
  EXPECT_EQ(count_of(checked_page(result), "<div class=\"warning\">"), 2U);
  result.notes = {"first", "second", "third", "fourth <b>"};
  const std::string page = checked_page(result);
  EXPECT_EQ(count_of(page, "<div class=\"warning\">"), 1U);
  EXPECT_THAT(page,
              AllOf(HasSubstr("<ul><li>first</li>"), HasSubstr("<li>fourth &lt;b&gt;</li></ul>")));
}

TEST(ReportHtml, OtherSamplesUnderBackupRaiseNoAlert) {
  CompareResult result = fixture({.strategies = {"sync", "backup:1"}, .workers = {2}, .seeds = 1});
  for (CompareRun& run : result.runs) {
    if (run.strategy == "backup:1") run.data_order_sha256 = std::string(64, 'e');
  }
  EXPECT_THAT(checked_page(result),
              AllOf(Not(HasSubstr(kAlert)), HasSubstr("1 of 1 run<"), HasSubstr("backup")));
  for (CompareRun& run : result.runs) run.initial_weights_sha256 = run.strategy;
  EXPECT_THAT(checked_page(result), HasSubstr(kAlert));
}

TEST(ReportHtml, LinksHaveAMapAndTheModelBesideThem) {
  const std::string page = checked_page(fixture({.links = {"", "1gbit,1ms", "100mbit,5ms"}}));
  EXPECT_THAT(page, AllOf(HasSubstr("href=\"#links\""), HasSubstr("td class=\"won s")));
  EXPECT_EQ(count_of(page, "<details class=\"link\">"), 2U);
  // 54,442 parameters over 11.7 MB/s: a ring of two needs 18.6 ms, one server 37.2 ms
  EXPECT_THAT(page,
              HasSubstr("<td class=\"n\">18.6</td><td class=\"n\">37.2</td><td>all-reduce</td>"));
}

TEST(ReportHtml, MissingAndImpossibleValuesKeepThePageValid) {
  CompareResult result = fixture({.links = {"", "100mbit,5ms"}});
  for (size_t i = 0; i < result.runs.size(); ++i) {
    CompareRun& run = result.runs[i];
    if (i % 5 == 0) {
      const std::string strategy = run.strategy;
      run = CompareRun{};
      run.strategy = strategy;
    }
    if (i % 5 == 1) run.samples_per_second = NAN;
    if (i % 5 == 2) run.split = {NAN, INFINITY, NAN, NAN};
    if (i % 5 == 3) run.curve.resize(1);
    if (i % 5 == 4) run.curve.back().test_loss = run.curve.back().test_value = NAN;
    if (i % 3 == 0) run.cpu_seconds["worker"] = NAN;
    if (i % 7 == 0) run.staleness = {{0, 0}};
  }
  result.links[1].bytes_per_second = NAN;
  result.seconds = NAN;
  result.target = NAN;
  checked_page(result);
  for (CompareRun& run : result.runs) run.samples_per_second = 0;
  result.model_parameters = 0;
  checked_page(result);
}

TEST(ReportHtml, AnAllZeroStalenessIsNotDrawn) {
  CompareResult result = fixture({.strategies = {"sync"}, .workers = {2}});
  const size_t charts = count_of(checked_page(result), kChart);
  for (CompareRun& run : result.runs) run.staleness = {{0, 5}, {1, 3}};
  EXPECT_EQ(count_of(checked_page(result), kChart), charts + 1);
}

TEST(ReportHtml, FourHundredRunsStayBelowAMegabyte) {
  testing::FixtureOptions many{.workers = {1, 2, 4, 8, 16}, .evaluations = 600};
  many.strategies = {"sync",    "async",    "ssp:1",          "ssp:4",
                     "local:4", "local:16", "allreduce:ring", "allreduce:tree"};
  many.seeds = 10;
  const CompareResult ten_seeds = fixture(many);
  EXPECT_EQ(ten_seeds.runs.size(), 400U);
  EXPECT_LT(checked_page(ten_seeds).size(), 1000000U);
  many.seeds = 1;
  many.links = {"", "a", "b", "c", "d", "e", "f", "g", "h", "i"};
  const CompareResult ten_links = fixture(many);
  EXPECT_EQ(ten_links.runs.size(), 400U);
  EXPECT_LT(checked_page(ten_links).size(), 1000000U);
}

}  // namespace
}  // namespace pushpull
