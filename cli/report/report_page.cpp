#include "cli/report/report_page.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "cli/report/metric_style.h"
#include "common/base/text.h"
#include "common/io/sha256.h"

namespace pushpull {

// The texts of the files of the page, embedded by cmake/Embed.cmake.
namespace page_files {
extern const std::string_view kPageHtml, kPageCss;
extern const std::string_view kChartJs, kTablesJs, kMeasuresJs, kChartsJs, kSvgJs, kPageJs;
}  // namespace page_files

namespace {

// One pass: braces within a part stay as they are.
std::string filled(std::string_view text, const Parts& parts) {
  const auto part = [&](const std::string& name) {
    const auto found = parts.find(name);
    return found == parts.end() ? std::string() : found->second;
  };
  std::string out;
  for (size_t open = 0; (open = text.find("{{")) != std::string_view::npos;) {
    out += text.substr(0, open);
    const size_t close = text.find("}}", open);
    const std::string name(text.substr(open + 2, close - open - 2));
    text.remove_prefix(close + 2);
    if (!name.starts_with('#')) {
      out += part(name);
      continue;
    }
    const std::string end = "{{/" + name.substr(1) + "}}";
    const size_t length = text.find(end);
    if (!part(name.substr(1)).empty()) out += filled(text.substr(0, length), parts);
    text.remove_prefix(length + end.size());
  }
  return out.append(text);
}

// The page's policy allows this script, by its hash, and no other.
std::string base64_hash(const std::string& script) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(script)));
  const std::array<std::byte, 32> digest = hash.digest();
  std::array<unsigned char, 48> text{};
  const int length = EVP_EncodeBlock(
      text.data(), reinterpret_cast<const unsigned char*>(digest.data()), digest.size());
  return {text.begin(), text.begin() + length};
}

// In JSON these characters occur only within strings. Escaped, no text can end the script element,
// and the page is XML, too.
std::string json_in_html(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '<' ? "\\u003c" : c == '>' ? "\\u003e" : c == '&' ? "\\u0026" : std::string(1, c);
  }
  return out;
}

}  // namespace

std::string report_page(const Parts& parts, const std::string& data) {
  Parts all = parts;
  std::string& script = all["script"] = "//<![CDATA[\n";
  using namespace page_files;
  for (const std::string_view file :
       {kChartJs, kTablesJs, kMeasuresJs, kChartsJs, kSvgJs, kPageJs}) {
    script.append(file).append("\n");
  }
  script += "//]]>";
  all["script_hash"] = base64_hash(script);
  all["style"] = kPageCss;
  all["data"] = json_in_html(data);
  return filled(kPageHtml, all);
}

std::string html(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    for (const char c : printable(text.substr(0, end), std::numeric_limits<size_t>::max())) {
      const size_t found = std::string_view("&<>\"'").find(c);
      constexpr std::array kNames = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
      out += found == std::string_view::npos ? std::string(1, c) : kNames.at(found);
    }
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string html_facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string out;
  for (const auto& [name, value] : facts) {
    if (!value.empty()) out += "<dt>" + html(name) + "</dt><dd>" + html(value) + "</dd>";
  }
  return out.empty() ? "" : "<dl>" + out + "</dl>";
}

std::string job_key(const std::string& job_ini, std::string_view key) {
  std::istringstream lines(job_ini);
  for (std::string line; std::getline(lines, line);) {
    const std::string_view text = line;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || trim(text.substr(0, equals)) != key) continue;
    return std::string(trim(text.substr(equals + 1)));
  }
  return "";
}

std::string job_title(const std::string& job_ini) {
  const std::string model = job_key(job_ini, "model");
  const std::string data = job_key(job_ini, "dataset");
  return model + (model.empty() || data.empty() ? "" : " on ") + data;
}

std::string job_line(const std::string& job_ini) {
  std::string out;
  for (const char* key : {"global-batch", "micro-batch", "optimizer", "lr", "epochs", "steps"}) {
    const std::string value = job_key(job_ini, key);
    if (value.empty() || value == "0") continue;
    out += (out.empty() ? "" : " · ") + std::string(key) + " " + value;
  }
  return out;
}

std::string metric_json(const std::string& metric) {
  const MetricStyle style = style_of(metric);
  return nlohmann::json{{"name", style.name},     {"title", style.title()},
                        {"scale", style.scale},   {"unit", style.unit},
                        {"digits", style.digits}, {"higher", style.higher_is_better},
                        {"share", style.counts}}
      .dump();
}

}  // namespace pushpull
