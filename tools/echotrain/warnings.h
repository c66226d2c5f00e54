// Prints the library's warnings, and how a model is partitioned among ranks, on standard error.
#pragma once

namespace cli {

enum class BadRecords { shown, hidden };  // hidden: the command reports them itself

// From now on prints each warning once, since sources repeat their warnings in every epoch and
// evaluation. Prints only the first few warnings about bad records.
void print_warnings(BadRecords bad_records = BadRecords::shown);

}  // namespace cli
