// What lies in a folder that 'init' is given: images or shards, and their classes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cli {

using Json = nlohmann::ordered_json;

inline const std::string kDataVariable = "${data}";  // the folder, in the job's sources

struct DataSet {
  Json train, validation;            // source stages; validation is null where there is none
  std::vector<std::string> classes;  // in the order of their numbers; empty: not known by name
  bool in_order = false;             // the source itself does not shuffle samples
  std::vector<std::string> notes;    // what lies there and is not used
};

// Throws Failure that says what was looked for. The folder appears in the sources as kDataVariable.
DataSet find_data_set(const std::string& folder);

}  // namespace cli
