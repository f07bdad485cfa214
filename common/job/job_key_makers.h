// Makers of the entries of the job's keys, by kind of value: a number, a word, a path, or a value
// with its own parser. For job_keys.cpp only. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/job_keys.h"

namespace pushpull::job_key_makers {

// Accesses a member of Job or of one of its option structs: getter and setter.
template <class T>
struct Field {
  T Job::*member;
  T& operator()(Job& job) const { return job.*member; }
  const T& operator()(const Job& job) const { return job.*member; }
};

template <class Options, class T>
struct NestedField {
  Options Job::*options;
  T Options::*member;
  T& operator()(Job& job) const { return job.*options.*member; }
  const T& operator()(const Job& job) const { return job.*options.*member; }
};

template <class T>
Field<T> field(T Job::*member) {
  return {member};
}

template <class Options, class T>
NestedField<Options, T> field(Options Job::*options, T Options::*member) {
  return {options, member};
}

// Key and help of an entry. An empty `shown_default` shows the value of a default-constructed Job.
struct About {
  const char* key;
  std::string text;
  AtResume at_resume = AtResume::kFixed;
  const char* shown_default = "";
  std::string words = {};  // KeyHelp::value, if `expects` does not list it
};

// Returns the words that a value must be one of, between '|': "a|b|c" for "a, b or c". Returns "" if
// other values are possible as well.
inline std::string words_of(std::string expects) {
  constexpr std::string_view kOr = " or ";
  if (const size_t at = expects.rfind(kOr); at != std::string::npos) {
    expects.replace(at, kOr.size(), ", ");
  }
  for (size_t at = expects.find(", "); at != std::string::npos; at = expects.find(", ")) {
    expects.replace(at, 2, "|");
  }
  const bool plain =
      expects.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-|") == std::string::npos;
  return plain ? expects : "";
}

inline JobKey entry(const About& about, std::string expects,
                    std::function<bool(Job&, const std::string&)> set,
                    std::function<std::string(const Job&)> get) {
  std::string shown = *about.shown_default != '\0' ? about.shown_default : get(Job{});
  std::string words = about.words.empty() ? words_of(expects) : about.words;
  return {takes(std::move(words), {about.key, std::move(shown), about.text}), std::move(expects),
          about.at_resume, std::move(set), std::move(get)};
}

template <class F>
JobKey integer(const About& about, F value, int64_t min, int64_t max) {
  return entry(
      about, "a whole number from " + std::to_string(min) + " to " + std::to_string(max),
      [value, min, max](Job& job, const std::string& text) {
        const auto number = parse_int64(text);
        if (!number || *number < min || *number > max) return false;
        value(job) = *number;
        return true;
      },
      [value](const Job& job) { return std::to_string(value(job)); });
}

template <class F>
JobKey real(const About& about, F value, const char* expects, bool (*in_range)(double)) {
  return entry(
      about, expects,
      [value, in_range](Job& job, const std::string& text) {
        const auto number = parse_real(text);
        if (!number || !in_range(*number)) return false;
        value(job) = *number;
        return true;
      },
      [value](const Job& job) { return print_real(value(job)); });
}

// Makes an entry for one of a few words, each of which stands for a value of T.
template <class F, class T, size_t n>
JobKey word(const About& about, F value, const char* expects,
            const std::array<std::pair<const char*, T>, n>& words) {
  return entry(
      about, expects,
      [value, words](Job& job, const std::string& text) {
        for (const auto& [name, meaning] : words) {
          if (text != name) continue;
          value(job) = meaning;
          return true;
        }
        return false;
      },
      [value, words](const Job& job) -> std::string {
        for (const auto& [name, meaning] : words) {
          if (value(job) == meaning) return name;
        }
        PP_ASSERT(!"every value has a word");
        return "";
      });
}

// Makes an entry for one of a few words, which is stored as it is.
template <size_t n>
JobKey name(const About& about, std::string Job::*member, const char* expects,
            const std::array<const char*, n>& names) {
  std::array<std::pair<const char*, std::string>, n> words;
  for (size_t i = 0; i < n; ++i) words[i] = {names[i], names[i]};
  return word(about, field(member), expects, words);
}

// Makes an entry with its own parser, which throws Error, and its own printer.
template <class F, class Parse, class Print>
JobKey parsed(const About& about, F value, const char* expects, Parse parse, Print print) {
  return entry(
      about, expects,
      [value, parse](Job& job, const std::string& text) {
        try {
          value(job) = parse(text);
          return true;
        } catch (const Error&) {
          return false;  // the caller's message adds key and source
        }
      },
      [value, print](const Job& job) { return print(value(job)); });
}

// Makes an entry for a path. The path must survive being written to a job file, in which '#' starts
// a comment.
inline JobKey path(About about, std::string Job::*member) {
  if (about.words.empty()) about.words = "FILE";
  return entry(
      about, "a path in UTF-8 without '#', control characters or blanks at its ends",
      [member](Job& job, const std::string& text) {
        if (text.size() > kMaxPathBytes || !is_plain_text(text)) return false;
        if (text.find('#') != std::string::npos || trim(text) != text) return false;
        job.*member = text;
        return true;
      },
      [member](const Job& job) { return job.*member; });
}

}  // namespace pushpull::job_key_makers
