#include "cli.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

namespace cli {
namespace {

// Insertions, deletions, replacements and swaps of neighbours that make one word of the other.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1), before, older;
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    older = std::exchange(before, row);
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({before[j] + (a[i] != b[j]), row[j] + 1, before[j + 1] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j])
        row[j + 1] = std::min(row[j + 1], older[j - 1] + 1);
    }
  }
  return row.back();
}

// What is further away is another word.
size_t most_edits(size_t letters) {
  return letters < 10 ? std::clamp<size_t>(letters / 2, 1, 3) : letters / 3;
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

etr_tensor field(const Batch& batch, const char* name) {
  etr_tensor out{};
  out.struct_size = sizeof out;
  check(etr_batch_get(batch.get(), name, &out));
  return out;
}

std::string counted(int64_t count, const std::string& one, const std::string& plural) {
  return std::to_string(count) + " " + (count == 1 ? one : plural.empty() ? one + "s" : plural);
}

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  constexpr size_t kBeginning = 4;  // letters of a name that tell which is meant
  const std::string* best = nullptr;
  size_t least = most_edits(word.size()) + 1;
  for (const std::string& name : known) {
    const bool begins = word.size() >= kBeginning && name.compare(0, word.size(), word) == 0;
    if (const size_t d = begins ? 1 : edit_distance(word, name); d < least) {
      least = d;
      best = &name;
    }
  }
  return best ? " (did you mean '" + *best + "'?)" : "";
}

std::vector<LeftOut> bad_records(const Pipeline& pipeline) {
  char* text = nullptr;
  check(etr_pipeline_bad_records(pipeline.get(), &text));
  std::vector<LeftOut> out;
  for (const auto& row : nlohmann::json::parse(take_string(text)))
    out.push_back({row["key"], row["reason"]});
  return out;
}

void print_left_out(const std::vector<LeftOut>& files) {
  std::map<std::string, std::pair<int64_t, std::string>> reasons;  // how many, and an example
  for (const LeftOut& file : files) {
    auto& [count, example] = reasons[file.reason];
    if (count++ == 0) example = file.file;
  }
  for (const auto& [reason, some] : reasons)
    std::printf("left out %s: %s (%s%s)\n", counted(some.first, "file").c_str(), reason.c_str(),
                some.second.c_str(), some.first > 1 ? ", ..." : "");
}

std::string bytes_text(double bytes) {
  char text[32];
  const bool kilo = bytes < 1e6;
  std::snprintf(text, sizeof text, "%.1f %s", bytes * (kilo ? 1e-3 : 1e-6), kilo ? "kB" : "MB");
  return text;
}

void write_file(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush())
    throw Failure("cannot write '" + path + "'" +
                  (errno ? std::string(": ") + std::strerror(errno) : ""));
  std::printf("wrote %s\n", path.c_str());
}

}  // namespace cli
