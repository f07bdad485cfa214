#include "cli/report/svg_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <cmath>
#include <sstream>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> labels(const Axis& axis) {
  std::vector<std::string> out;
  for (const Tick& tick : axis.ticks) out.push_back(tick.label);
  return out;
}

void expect_well_formed(const std::string& text) {
  std::istringstream in(text);
  boost::property_tree::ptree tree;
  EXPECT_NO_THROW(boost::property_tree::read_xml(in, tree)) << text;
  EXPECT_EQ(tree.count("svg"), 1U);
}

TEST(SvgChart, TicksAreOneTwoOrFiveTimesAPowerOfTenApart) {
  EXPECT_THAT(round_ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(round_ticks(0, 0.9, 4), ElementsAre(0, 0.5));
  EXPECT_THAT(round_ticks(3, 47, 5), ElementsAre(10, 20, 30, 40));
  EXPECT_THAT(round_ticks(-1, 1, 4), ElementsAre(-1, -0.5, 0, 0.5, 1));
}

TEST(SvgChart, AnAxisEndsAtRoundNumbers) {
  EXPECT_THAT(labels(linear_axis(83, 98.5, "accuracy", "%", 4)),
              ElementsAre("80%", "85%", "90%", "95%", "100%"));
  EXPECT_THAT(labels(linear_axis(0, 10357, "samples/s")), ElementsAre("0", "5k", "10k", "15k"));
}

TEST(SvgChart, ARangeWithoutLengthStillMakesAnAxis) {
  for (const double value : {0.0, 5.0, -3.0, 1e-12, 1e15}) {
    const Axis axis = linear_axis(value, value, "x");
    EXPECT_LT(axis.min, axis.max) << value;
    // the ends are multiples of a step, rounded once
    EXPECT_LE(axis.min, value + 1e-9 * std::abs(value));
    EXPECT_GE(axis.max, value - 1e-9 * std::abs(value));
  }
  EXPECT_LT(linear_axis(NAN, INFINITY, "x").min, linear_axis(NAN, INFINITY, "x").max);
  EXPECT_LT(linear_axis(2, 1, "x").min, linear_axis(2, 1, "x").max);
}

TEST(SvgChart, ALogarithmicAxisHasTicksInEachDecade) {
  EXPECT_THAT(labels(log_axis(0.07, 1.2, "loss")), ElementsAre("0.1", "0.2", "0.5", "1"));
  EXPECT_THAT(labels(log_axis(0.001, 10, "loss")), ElementsAre("0.001", "0.01", "0.1", "1", "10"));
}

LineChart two_points() {
  LineChart chart;
  chart.about = "about <this>";
  chart.x = linear_axis(0, 10, "x");
  chart.y = linear_axis(0, 10, "y");
  chart.lines.push_back({.style = "s0", .label = "a & b", .points = {{0, 0, 0, 0}, {10, 5, 4, 6}}});
  return chart;
}

TEST(SvgChart, ALinePassesThroughItsPoints) {
  const std::string text = svg(two_points());
  expect_well_formed(text);
  EXPECT_THAT(text, HasSubstr("a &amp; b"));
  EXPECT_THAT(text, HasSubstr("aria-label=\"about &lt;this&gt;\""));
  // the plot is 164 units high: 0 is at its foot, 5 in its middle; its right end is 322.6
  EXPECT_THAT(text, HasSubstr("d=\"M0 164L322.6 82\""));
}

TEST(SvgChart, AStepHoldsItsValueUntilTheNext) {
  LineChart chart = two_points();
  chart.lines[0].steps = true;
  EXPECT_THAT(svg(chart), HasSubstr("d=\"M0 164H322.6V82\""));
  EXPECT_THAT(svg(chart), Not(HasSubstr("class=\"band")));
  chart.lines[0].band = true;
  EXPECT_THAT(svg(chart), HasSubstr("class=\"band s0\""));
  expect_well_formed(svg(chart));
}

TEST(SvgChart, ASinglePointIsADot) {
  LineChart chart = two_points();
  chart.lines[0].points.resize(1);
  EXPECT_THAT(svg(chart), HasSubstr("<circle"));
}

TEST(SvgChart, ABarWithoutValueShowsItsSign) {
  BarChart chart{.about = "bars", .y = linear_axis(0, 4, "y"), .x_title = "x", .groups = {}};
  chart.groups.push_back({"2",
                          {{"s0", "one", Spread{2, 1, 3, 5}, "×"},
                           {"s1", "two", Spread{2, 2, 2, 1}, "×"},
                           {"s2", "three", std::nullopt, "×"}}});
  const std::string text = svg(chart);
  expect_well_formed(text);
  EXPECT_THAT(text, HasSubstr("class=\"bar s0\""));
  EXPECT_THAT(text, HasSubstr(">×</text>"));
  // a single seed has no whisker
  EXPECT_EQ(text.find("whisker"), text.rfind("whisker"));
}

TEST(SvgChart, TouchingLabelsAreLeftOut) {
  BarChart chart{.about = "bars", .y = linear_axis(0, 4, "y"), .x_title = "x", .groups = {}};
  for (int i = 0; i < 60; ++i) chart.groups.push_back({"label " + std::to_string(i), {}});
  const std::string text = svg(chart);
  EXPECT_THAT(text, HasSubstr(">label 0<"));
  EXPECT_THAT(text, Not(HasSubstr(">label 1<")));
}

TEST(SvgChart, StackedPartsFollowEachOther) {
  StackChart chart{.about = "parts", .x = linear_axis(0, 10, "ms"), .rows = {}};
  chart.rows.push_back(
      {"sync", "10 ms", {{"p0", "compute", 5}, {"p1", "push", 0}, {"p2", "wait", 5}}});
  const std::string text = svg(chart);
  expect_well_formed(text);
  EXPECT_THAT(text, HasSubstr("<rect x=\"8\" y=\"21\" width=\"169\""));
  EXPECT_THAT(text, HasSubstr("<rect x=\"177\" y=\"21\" width=\"169\""));
  EXPECT_THAT(text, Not(HasSubstr("bar p1")));
}

TEST(SvgChart, EmptyChartsAreValid) {
  expect_well_formed(svg(LineChart{}));
  expect_well_formed(svg(BarChart{}));
  expect_well_formed(svg(StackChart{}));
}

}  // namespace
}  // namespace pushpull
