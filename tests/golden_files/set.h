// A set of golden files: what one version of the library has written, and what was read from it
// then.
//
// All paths in a set are relative to its folder, which is the current one while it is written and
// checked. What a kind of file needs is in cases.json, under the kind's name, so that a set does
// not depend on what a later version of this program would write.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "echotrain/echotrain.hpp"

namespace golden {

namespace et = echotrain;
using Json = nlohmann::ordered_json;

// One kind of file.
struct Kind {
  const char* name;
  // Writes files into the current folder; what check() needs to know.
  std::function<Json()> write;
  // Throws where the files in the current folder, which `version` has written, are not read as
  // `expected` says.
  std::function<void(const Json& expected, const std::string& version)> check;
};

std::vector<Kind> runs();
std::vector<Kind> samples();
std::vector<Kind> records();

inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// Whether `version` is of the minor version that this library has.
bool is_of_today(const std::string& version);

et::Runtime open_device();

// The rows data/rows.jsonl, the images data/images and shards of them.
void write_data();

std::string read_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);

}  // namespace golden
