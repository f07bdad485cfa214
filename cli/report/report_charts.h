// The charts of the report, as figures whose titles say what they show. One link at a time. Any
// thread.
#pragma once

#include <optional>
#include <string>

#include "cli/report/report_data.h"

namespace pushpull {

// The class names that give a strategy its colour, the same in every chart and table.
std::string strategy_style(size_t colour);
// A strategy's name beside a mark in its colour.
std::string strategy_chip(const std::string& strategy, size_t colour);
std::string strategy_legend(const LinkCells& link);

std::string figure(const std::string& title, const std::string& note, const std::string& chart);

// Accuracy and loss against time and against samples, one panel per number of workers.
//   points: maximum per curve.
std::string curve_charts(const LinkCells& link, std::optional<double> target, size_t points);
// Samples/s, time to the target, scaling.
std::string speed_charts(const LinkCells& link, std::optional<double> target);
// Compute, push, wait and pull in an average step.
std::string split_charts(const LinkCells& link);
// The distribution of staleness, one panel per strategy and number of workers that had any.
std::string staleness_charts(const LinkCells& link);

}  // namespace pushpull
