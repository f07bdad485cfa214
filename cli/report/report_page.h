// The frame of a report: one self-contained HTML page, no network, no other file, no script; also
// well-formed XML. Any thread.
#pragma once

#include <string>

namespace pushpull {

// Returns the page. `title` is escaped, `body` is HTML.
std::string report_page(const std::string& title, const std::string& body);
// Returns a section with a heading and an anchor. Title, lead and body are HTML.
std::string report_section(const std::string& id, const std::string& title, const std::string& lead,
                           const std::string& body);
// Returns a row of a list of facts (<dl>), or "" without a value. Both are escaped.
std::string report_fact(const std::string& name, const std::string& value);

}  // namespace pushpull
