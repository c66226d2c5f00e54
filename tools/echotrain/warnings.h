// The library's warnings on standard error, and how it shares a model out among ranks.
#pragma once

namespace cli {

enum class BadRecords { shown, hidden };  // hidden: the command reports them itself

// From now on, each warning once: sources give theirs again in every epoch and evaluation. Of bad records only the first few.
void print_warnings(BadRecords bad_records = BadRecords::shown);

}  // namespace cli
