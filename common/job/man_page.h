// Manual pages in the language of man(7), as groff and mandoc read it. Any thread.
#pragma once

#include <string>

#include "common/job/program_help.h"

namespace pushpull {

// Returns the page of a program or of one of its commands, for section 1. Flags that are keys of
// the job are left to the page of the job file.
std::string man_page(const ProgramHelp& help, const std::string& version);

// Returns pushpull-job(5), from the table of the job's keys.
std::string job_man_page(const std::string& version);

}  // namespace pushpull
