#include "cli.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>

namespace cli {
namespace {

// Insertions, deletions and replacements that make one word of the other.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

int32_t check(int32_t status) {
  if (status < 0) throw Failure(etr_last_error());
  return status;
}

std::string take_string(char* text) {
  std::string out = text ? text : "";
  etr_string_free(text);
  return out;
}

std::string counted(int64_t count, const std::string& one, const std::string& plural) {
  return std::to_string(count) + " " + (count == 1 ? one : plural.empty() ? one + "s" : plural);
}

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  size_t least = std::min(std::max<size_t>(2, word.size() / 3) + 1, word.size());
  for (const std::string& name : known)
    if (const size_t d = distance(word, name); d < least) {
      least = d;
      best = &name;
    }
  return best ? " (did you mean '" + *best + "'?)" : "";
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) throw Failure("cannot write '" + path + "'");
  std::printf("wrote %s\n", path.c_str());
}

}  // namespace cli
