// The keys of the job and the flags of programs as help and reference show them. Plain data.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pushpull {

// One key of the job, or one flag of a program, as help and reference show it.
struct KeyHelp {
  std::string key;
  std::string value_default;  // as users read it; "" if there is none
  std::string text;
  std::string group = {};   // heading in the help: "Model", "Data", ...
  bool takes_value = true;  // always for job keys; a program's own flag may be a switch
  // Shells complete this: FILE, DIR, or words between '|'; "": nothing. They add no blank after a word
  // that ends with ':'. kMoreValues at the end: several of the words, between commas.
  std::string value = {};
};

inline constexpr std::string_view kMoreValues = ",...";

// The values of --device.
inline constexpr const char* kDeviceWords = "cpu|auto|cuda|cuda:";

// The values of codec and `pushpull compare --codecs`.
inline constexpr const char* kCodecWords = "fp32|fp16|bf16|int8|topk:";

// Returns the option with this KeyHelp::value.
inline KeyHelp takes(std::string value, KeyHelp option) {
  option.value = std::move(value);
  return option;
}

// Returns all keys with defaults and one line of help, in the order of docs/job-file.md.
const std::vector<KeyHelp>& job_keys();

// Turns "global-batch" into "PUSHPULL_GLOBAL_BATCH".
std::string environment_name(const std::string& key);

}  // namespace pushpull
