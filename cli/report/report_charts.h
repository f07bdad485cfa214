// The charts of the report: figures with titles that name their contents. Each function draws one
// link. Any thread.
#pragma once

#include <optional>
#include <string>

#include "cli/report/report_data.h"

namespace pushpull {

// Returns the class names that give a strategy its colour, the same in every chart and table.
std::string strategy_style(size_t colour);
// Returns a strategy's name beside a mark in its colour.
std::string strategy_chip(const std::string& strategy, size_t colour);
std::string strategy_legend(const LinkCells& link);

std::string figure(const std::string& title, const std::string& note, const std::string& chart);

// Draws accuracy and loss against time and against samples, one panel per number of workers.
//   points: maximum per curve.
std::string curve_charts(const LinkCells& link, std::optional<double> target, size_t points);
// Draws samples/s, time to the target, and scaling.
std::string speed_charts(const LinkCells& link, std::optional<double> target);
// Draws compute, push, wait and pull of an average step.
std::string split_charts(const LinkCells& link);
// Draws the distribution of staleness, one panel per strategy and number of workers with stale
// updates.
std::string staleness_charts(const LinkCells& link);

}  // namespace pushpull
