#include "cli/report/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands.h"
#include "cli/compare/compare_output.h"
#include "common/base/error.h"
#include "tests/cli/report_fixture.h"
#include "tests/common/scratch_folder.h"

namespace pushpull {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using testing::fixture;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kAlert = "<b>This comparison is not fair.</b>";
const std::string kBad = "</script><!--<script>alert('&\"')</script>]]>{{data}}{{#run}}\x01\xff";

size_t count_of(const std::string& page, const std::string& what) {
  size_t count = 0;
  for (size_t at = page.find(what); at != std::string::npos; at = page.find(what, at + 1)) ++count;
  return count;
}

// The page as XML, after the checks that every page must pass.
boost::property_tree::ptree parsed(const std::string& page) {
  std::istringstream in(page);
  boost::property_tree::ptree tree;
  EXPECT_NO_THROW(boost::property_tree::read_xml(in, tree));
  EXPECT_EQ(tree.get("html.<xmlattr>.lang", ""), "en");
  EXPECT_EQ(count_of(page, "</script>"), 2U) << "the data and the script";
  EXPECT_EQ(tree.get_child("html.body").count("script"), 2U);
  for (const char* outside : {"src=\"", "href=\"http", "@import", "<img", "<iframe"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  return tree;
}

json data_of(const std::string& page) {
  return json::parse(parsed(page).get<std::string>("html.body.script"));
}

TEST(ReportPage, FillsPartsOnceAndShowsBlocksThatAreNotEmpty) {
  const std::string page = report_page({{"title", "a {{subtitle}} b"}, {"subtitle", "c"}}, "{}");
  EXPECT_THAT(page, HasSubstr("<h1>a {{subtitle}} b</h1>"));
  EXPECT_THAT(page, Not(HasSubstr("id=\"reading\"")));
  EXPECT_THAT(report_page({{"compare", "yes"}}, "{}"), HasSubstr("id=\"reading\""));
}

TEST(ReportPage, DataCannotEndItsElementAndArriveAsTheyAre) {
  const json data = {{"text", "</script><!--<script>&amp;]]>"}};
  EXPECT_EQ(data_of(report_page({}, data.dump())), data);
}

TEST(ReportPage, TheBrowserRunsNoScriptButItsOwn) {
  const std::string page = report_page({}, "{}");
  EXPECT_THAT(page, AllOf(HasSubstr("default-src 'none'"), HasSubstr("script-src 'sha256-")));
  EXPECT_THAT(page, Not(HasSubstr("script-src 'unsafe")));
}

TEST(ReportPage, MarkupIsEscapedAndCharactersThatXmlForbidsAreNumbers) {
  EXPECT_EQ(html("<b a='1' c=\"2\">&</b>"),
            "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;&lt;/b&gt;");
  EXPECT_EQ(html(std::string_view("a\0b\x01\xff\ngrün\n", 12)), "a\\x00b\\x01\\xff\ngrün\n");
  EXPECT_EQ(html_facts({{"a<", "b"}, {"without", ""}}), "<dl><dt>a&lt;</dt><dd>b</dd></dl>");
}

TEST(ReportPage, TheTitleNamesModelAndData) {
  const std::string job = "model = mlp\ndataset=digits \nglobal-batch = 64\nlr = 0.1\nsteps = 0\n";
  EXPECT_EQ(job_title(job), "mlp on digits");
  EXPECT_EQ(job_line(job), "global-batch 64 · lr 0.1");
  EXPECT_EQ(job_title(""), "");
}

TEST(ComparePage, HoldsTheResultAsItIs) {
  const CompareResult result = fixture({.failures = true});
  json whole = json::parse(compare_json(result));
  for (json& run : whole["runs"]) run["seed"] = std::to_string(run["seed"].get<uint64_t>());
  whole.erase("tuning");
  const json data = data_of(compare_page(result));
  EXPECT_EQ(data["compare"], whole);
  EXPECT_EQ(data["rows"], row_names(result));
  EXPECT_EQ(data["metric"]["unit"], "%");
}

TEST(ComparePage, HasItsFiguresAsTextForReadersWithoutScripts) {
  CompareResult result = fixture({});
  result.straggler = "1:4.25";
  const std::string page = compare_page(result);
  for (const std::string& value :
       {result.command, result.commit, result.machine, result.libraries.at("libzmq"),
        result.congestion_control, result.notes.at(0), result.runs[0].initial_weights_sha256,
        std::string("lr = 0.05"), std::string("1:4.25"), std::string("54442 parameters"),
        std::string("<h1>convnet on digits: strategies compared</h1>"),
        std::string("beside sync, median (min-max)")}) {
    EXPECT_THAT(page, HasSubstr(value));
  }
  EXPECT_THAT(page, Not(HasSubstr(kAlert)));
}

TEST(ComparePage, TextFromOutsideIsNeverMarkup) {
  CompareResult result = fixture({.strategies = {"sync", kBad}, .failures = true});
  result.command = result.commit = result.version = result.machine = kBad;
  result.congestion_control = result.began = result.straggler = kBad;
  result.worker = result.device = result.server_device = kBad;
  result.job_ini = "model = " + kBad + "\ndataset = " + kBad;
  result.libraries = {{kBad, kBad}};
  result.links = {{kBad, 1e6, 1, kBad}};
  result.notes = {kBad};
  for (CompareRun& run : result.runs) {
    run.link = run.tuned = run.out = run.initial_weights_sha256 = run.data_order_sha256 = kBad;
    run.cpu_seconds = run.peak_mib = {{kBad, 1.0}};
  }
  result.runs[0].failure = kBad;
  const std::string page = compare_page(result);
  EXPECT_THAT(data_of(page)["compare"]["runs"][0]["failure"].get<std::string>(),
              HasSubstr("</script><!--<script>alert('&\"')</script>]]>{{data}}"));
  EXPECT_THAT(page, HasSubstr("&lt;/script&gt;&lt;!--&lt;script&gt;alert(&#39;&amp;&quot;&#39;)"));
}

TEST(ComparePage, FailuresAreCountedAtTheTop) {
  EXPECT_THAT(compare_page(fixture({.failures = true})),
              AllOf(HasSubstr("<b>FAILED</b>: 6 of 90 runs"), HasSubstr("class=\"note loud\"")));
  EXPECT_THAT(compare_page(fixture({})), Not(HasSubstr("<b>FAILED</b>")));
  parsed(compare_page(CompareResult{}));
}

TEST(ComparePage, DifferentHashesRaiseAnAlert) {
  CompareResult result = fixture({});
  result.runs[1].data_order_sha256 = std::string(64, 'd');
  EXPECT_THAT(compare_page(result), HasSubstr(kAlert));
  result.runs[1].data_order_sha256.clear();
  EXPECT_THAT(compare_page(result), Not(HasSubstr(kAlert)));
}

TEST(ComparePage, OtherSamplesUnderBackupRaiseNoAlert) {
  CompareResult result = fixture({.strategies = {"sync", "backup:1"}, .workers = {2}, .seeds = 1});
  for (CompareRun& run : result.runs) {
    if (run.strategy == "backup:1") run.data_order_sha256 = std::string(64, 'e');
  }
  EXPECT_THAT(compare_page(result), Not(HasSubstr(kAlert)));
  for (CompareRun& run : result.runs) run.initial_weights_sha256 = run.strategy;
  EXPECT_THAT(compare_page(result), HasSubstr(kAlert));
}

TEST(ComparePage, MissingAndImpossibleValuesAreNull) {
  CompareResult result = fixture({.links = {"", "100mbit,5ms"}});
  for (size_t i = 0; i < result.runs.size(); ++i) {
    CompareRun& run = result.runs[i];
    if (i % 4 == 0) run.samples_per_second = NAN;
    if (i % 4 == 1) run.curve.back().test_loss = run.curve.back().test_value = NAN;
    if (i % 4 == 2) run.cpu_seconds["worker"] = INFINITY;
  }
  result.links[1].bytes_per_second = result.seconds = NAN;
  result.target = NAN;
  const json data = data_of(compare_page(result));
  EXPECT_TRUE(data["compare"]["target"].is_null());
  EXPECT_TRUE(data["compare"]["runs"][0]["samples_per_second"].is_null());
}

TEST(ComparePage, FourHundredRunsWithLongCurvesStayBelowSixMegabytes) {
  testing::FixtureOptions many{.workers = {1, 2, 4, 8, 16}, .evaluations = 600};
  many.strategies = {"sync",    "async",    "ssp:1",          "ssp:4",
                     "local:4", "local:16", "allreduce:ring", "allreduce:tree"};
  many.seeds = 10;
  const CompareResult result = fixture(many);
  EXPECT_EQ(result.runs.size(), 400U);
  const std::string page = compare_page(result);
  EXPECT_LT(page.size(), 6'000'000U);
  const json curve = data_of(page)["compare"]["runs"][7]["curve"];
  EXPECT_EQ(curve.front()["samples"], result.runs[7].curve.front().samples);
  EXPECT_EQ(curve.back()["samples"], result.runs[7].curve.back().samples);
}

class RunReport : public ::testing::Test {
 protected:
  RunReport() { put("job.ini", "model = mlp\nstrategy = async\nglobal-batch = 64\n"); }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  // Makes the newest sign of life a minute old.
  void stops() const {
    std::filesystem::last_write_time(
        folder_ / "members.json",
        std::filesystem::file_time_type::clock::now() - std::chrono::minutes(1));
  }
  std::string page() const { return run_page(folder_.path()); }

  ScratchFolder folder_;
};

TEST_F(RunReport, NeedsAJob) {
  std::filesystem::remove(folder_ / "job.ini");
  EXPECT_THROW(page(), Error);
}

TEST_F(RunReport, ARunWithoutFilesIsAPageWithoutData) {
  EXPECT_THAT(page(), HasSubstr("not finished"));
  const json data = data_of(page());
  EXPECT_TRUE(data["metrics"].empty());
  EXPECT_EQ(data["workers"], 1);
}

TEST_F(RunReport, DamagedFilesAreLeftOut) {
  put("metrics.jsonl",
      "{\"seconds\":1,\"step\":10,\"samples\":640,\"loss\":2.5}\n[]\nnonsense\n"
      "{\"seconds\":\"x\",\"step\":11}\n{\"seconds\":2,\"step\":20,\"samples\":1280,\"loss\":1.5}\n"
      "{\"seconds\":3,\"step\":3");
  for (const char* damaged : {"", "[]", "{\"members\":7,\"left\":{}}", "{\"members\":[3,{}]"}) {
    put("members.json", damaged);
    put("summary.json", damaged);
    const std::string text = page();
    EXPECT_EQ(data_of(text)["metrics"].size(), 2U);
    EXPECT_THAT(text, HasSubstr("not finished"));
  }
}

TEST_F(RunReport, ManyLinesAreThinnedAndKeepEvaluationsAndLosses) {
  std::string lines;
  for (int i = 0; i < 20'000; ++i) {
    const int step = i < 10'001 ? i : i - 500;  // a server was lost: back by 500 steps
    lines += "{\"seconds\":" + std::to_string(i) + ",\"step\":" + std::to_string(step) +
             (i == 7777 ? ",\"test_step\":7777" : "") +
             (i == 9999 ? ",\"lost\":[\"worker 1\"]" : "") +
             (i == 10'001 ? ",\"lost\":[\"server 0\"],\"back_to_step\":9500" : "") + "}\n";
  }
  put("metrics.jsonl", lines);
  const json metrics = data_of(page())["metrics"];
  EXPECT_LT(metrics.size(), 5000U);
  std::vector<int> seconds;
  for (const json& line : metrics) seconds.push_back(line["seconds"]);
  for (const int kept : {0, 7777, 9999, 10'000, 10'001, 19'999}) {
    EXPECT_THAT(seconds, ::testing::Contains(kept));
  }
}

TEST_F(RunReport, TextOfMembersIsEscaped) {
  put("members.json",
      R"({"members":[{"role":"worker","rank":0,"host":"<b>&\"","pid":1,"cpu_seconds":1.5}],
          "left":[{"role":"worker","rank":null,"reason":"</table></script><script>"}]})");
  const std::string text = page();
  EXPECT_THAT(text, HasSubstr("&lt;b&gt;&amp;"));
  EXPECT_EQ(data_of(text)["members"]["left"][0]["reason"], "</table></script><script>");
}

TEST_F(RunReport, CountsOfFaultsAreShownIfThereAreAny) {
  put("summary.json", R"({"samples_per_second":5,"workers":3,"servers":2,"recoveries":2,
      "checkpoints_failed":0,"rejected_by_reason":{"push-share":4,"x":"y"}})");
  const std::string text = page();
  EXPECT_EQ(data_of(text)["workers"], 3);
  EXPECT_THAT(text, AllOf(HasSubstr("<dt>recoveries</dt><dd>2</dd>"),
                          HasSubstr("<dt>rejected: push-share</dt><dd>4</dd>"),
                          HasSubstr("async, 3 workers"), Not(HasSubstr("checkpoints failed"))));
}

TEST_F(RunReport, ARunThatFailedSaysSoAtTheTopWithItsReason) {
  put("members.json", R"({"members":[],"left":[],"workers":2,"exit_code":null,"failure":""})");
  EXPECT_THAT(page(), AllOf(HasSubstr("not finished: it goes on"), HasSubstr("async, 2 workers"),
                            Not(HasSubstr("FAILED"))));
  stops();
  EXPECT_THAT(page(),
              AllOf(HasSubstr("<b>FAILED</b>: its first server"), Not(HasSubstr("goes on"))));
  put("members.json", R"({"workers":3,"exit_code":7,"failure":"[train] the loss is not finite"})");
  EXPECT_THAT(page(), AllOf(HasSubstr("<b>FAILED</b>: exit code 7 (not finite): [train] the loss"),
                            HasSubstr("async, 3 workers")));
}

TEST_F(RunReport, ARunThatWasStoppedSaysWhere) {
  put("summary.json", R"json({"samples_per_second":5,"steps":392,"total_steps":1600,
      "stopped_by":"SIGINT (server 0 (vm, pid 7))"})json");
  EXPECT_THAT(page(), HasSubstr("stopped at step 392 of 1600 by SIGINT (server 0 (vm, pid 7))"));
}

}  // namespace
}  // namespace pushpull
