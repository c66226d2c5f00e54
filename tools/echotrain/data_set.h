// Recognizes the data set in the folder given to 'init': images or shards, and their classes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cli {

using Json = nlohmann::ordered_json;

inline const std::string kDataVariable = "${data}";  // the folder, in the job's sources

struct DataSet {
  Json train, validation;            // source stages; validation is null if there is none
  std::vector<std::string> classes;  // by class number; empty: names unknown
  bool in_order = false;             // the source does not shuffle samples itself
  std::vector<std::string> notes;    // about what was found but is not used
};

// Throws Failure, which says what was looked for. The sources name the folder kDataVariable.
DataSet find_data_set(const std::string& folder);

}  // namespace cli
