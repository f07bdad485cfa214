#include "cli/report/report_page.h"

#include "cli/report/html_text.h"
#include "cli/report/report_style.h"

namespace pushpull {

std::string report_page(const std::string& title, const std::string& body) {
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; img-src data:\"/>"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>"
      "<meta name=\"generator\" content=\"pushpull\"/><link rel=\"icon\" href=\"data:,\"/>"
      "<title>" +
      html(title) + "</title><style>";
  out += report_style();
  return out + "</style></head><body><main>\n" + body + "</main></body></html>\n";
}

std::string report_section(const std::string& id, const std::string& title, const std::string& lead,
                           const std::string& body) {
  return "<section id=\"" + id + "\"><h2>" + title + "</h2><p class=\"lead\">" + lead + "</p>\n" +
         body + "</section>\n";
}

std::string report_fact(const std::string& name, const std::string& value) {
  if (value.empty()) return "";
  return "<dt>" + html(name) + "</dt><dd>" + html(value) + "</dd>";
}

}  // namespace pushpull
