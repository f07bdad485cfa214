// The page of a report: page.html, filled with text, and with data that its script draws as tables
// and charts. One file that needs no network. Any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pushpull {

// Parts of the page by name. page.html shows `{{name}}` as the part, and `{{#name}}...{{/name}}`
// only if the part is not empty.
using Parts = std::map<std::string, std::string>;

// Returns the page. `parts` are HTML, `data` is JSON.
std::string report_page(const Parts& parts, const std::string& data);

// Escapes text for HTML, elements and quoted attributes; shows control characters and invalid UTF-8
// as \xNN. Line breaks stay.
std::string html(std::string_view text);
// Returns a list of names and values. Escapes both, and leaves out names without a value.
std::string html_facts(const std::vector<std::pair<std::string, std::string>>& facts);

// Returns the value of a key in the text of a job file, or "".
std::string job_key(const std::string& job_ini, std::string_view key);
// Returns "mlp on digits".
std::string job_title(const std::string& job_ini);
// Returns "global-batch 64 · optimizer momentum · ...".
std::string job_line(const std::string& job_ini);

// Returns what the page's script knows of a metric: a JSON object.
std::string metric_json(const std::string& metric);

}  // namespace pushpull
