#include "common/job/job_sources.h"

#include <algorithm>
#include <array>
#include <boost/program_options/errors.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/job.h"
#include "common/job/job_keys.h"

namespace pushpull {
namespace {

namespace po = boost::program_options;

constexpr size_t kMaxFileBytes = 1 << 20;  // a job has 50 lines; this stops at /dev/zero
constexpr std::string_view kPrefix = "PUSHPULL_";

[[noreturn]] void refuse_source(const std::string& text) {
  throw Error(ErrorCode::kUsage, "[job] " + text);
}

[[noreturn]] void refuse_twice(const std::string& key, const std::string& first,
                               const std::string& second) {
  refuse_source(key + " is given twice: " + first + " and " + second);
}

// Parses one line at a time, because Boost does not report the line of a key.
std::vector<po::option> options_of_line(const std::string& line, const std::string& where) {
  if (trim(line).starts_with('[')) {
    refuse_source(where + ": '" + printable(trim(line)) + "' opens a section; a job file has none");
  }
  std::istringstream stream(line);
  try {
    return po::parse_config_file(stream, po::options_description(), true).options;
  } catch (const po::error&) {
    refuse_source(where + ": '" + printable(trim(line)) + "' is not `key = value`");
  }
}

std::string unknown_variable(const std::string& variable) {
  const std::string nearest = nearest_name(variable.substr(kPrefix.size()), job_key_names());
  return "unknown variable " + printable(variable) + " in the environment" +
         (nearest.empty() ? "" : "; did you mean " + environment_name(nearest) + "?");
}

// Variables that programs (client, common/device, common/host, common/keys, common/launch, datasets) read
// themselves: not keys of the job.
constexpr std::array<std::string_view, 15> kLocalVariables = {"PUSHPULL_SHARE",
                                                              "PUSHPULL_CUDA_LIBS",
                                                              "PUSHPULL_KEY_FILE",
                                                              "PUSHPULL_KEY_FD",
                                                              "PUSHPULL_LIBRARY",
                                                              "PUSHPULL_JOIN",
                                                              "PUSHPULL_INSECURE",
                                                              "PUSHPULL_RANK",
                                                              "PUSHPULL_WORLD_SIZE",
                                                              "PUSHPULL_LOCAL_RANK",
                                                              "PUSHPULL_PORT",
                                                              "PUSHPULL_CORES",
                                                              "PUSHPULL_LOCAL_WORLD_SIZE",
                                                              "PUSHPULL_KEY",
                                                              "PUSHPULL_JOB_TOKEN"};

// Returns whether programs or tests read this variable themselves.
bool is_local_variable(const std::string& name) {
  return std::ranges::find(kLocalVariables, name) != kLocalVariables.end() ||
         name.starts_with("PUSHPULL_TEST_");
}

}  // namespace

std::string environment_name(const std::string& key) {
  std::string name(kPrefix);
  for (const char c : key) {
    name += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return name;
}

Settings settings_of_text(const std::string& ini, const std::string& source) {
  Settings settings;
  std::istringstream lines(ini);
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    const std::string where = source + ":" + std::to_string(number);
    for (const po::option& option : options_of_line(line, where)) {
      const std::string& key = option.string_key;
      if (find_job_key(key) == nullptr) {
        refuse_source("unknown key '" + printable(key) + "' (" + where + ")" +
                      did_you_mean(key, job_key_names()));
      }
      const std::string value = option.value.empty() ? "" : option.value.front();
      const auto [first, is_new] = settings.try_emplace(key, Setting{value, where});
      if (!is_new) refuse_twice(key, first->second.source, where);
    }
  }
  return settings;
}

Settings settings_of_file(const std::string& path) {
  const std::string shown = printable(path, kMaxPathBytes);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse_source("job file " + shown + " cannot be opened: " + std::strerror(errno));
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  // opening a folder succeeds; reading it fails here
  if (file.bad()) refuse_source("job file " + shown + " cannot be read; is it a file?");
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    refuse_source("job file " + shown + " has more than " + std::to_string(kMaxFileBytes) +
                  " bytes; is it the right file?");
  }
  return settings_of_text(text, shown);
}

Settings settings_of_environment() {
  const auto is_ours = [](const std::string& variable) {
    return variable.starts_with(kPrefix) && !is_local_variable(variable) ? variable : "";
  };
  const auto parsed = po::parse_environment(po::options_description(), is_ours);
  Settings settings;
  for (const po::option& option : parsed.options) {
    const std::string& variable = option.string_key;
    const auto& keys = job_key_names();
    const auto key = std::ranges::find(keys, variable, environment_name);
    if (key == keys.end()) refuse_source(unknown_variable(variable));
    settings[*key] = {option.value.front(), variable};
  }
  return settings;
}

Settings settings_of_flags(const std::map<std::string, std::string>& flags) {
  Settings settings;
  for (const auto& [key, value] : flags) {
    if (find_job_key(key) == nullptr) {
      refuse_source("unknown flag --" + printable(key) + did_you_mean(key, job_key_names(), "--"));
    }
    settings[key] = {value, "--" + key};
  }
  return settings;
}

}  // namespace pushpull
