#include "cli.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/nearest.h"

namespace cli {
int32_t check(int32_t status) {
  if (status == ETR_INVALID_ARGUMENT || status == ETR_NOT_FOUND) throw Mistake(etr_last_error());
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

void tell_new_name(const std::string& former, const std::string& name) {
  std::fprintf(stderr, "echotrain: '%s' is now called '%s'; the old name will stop working\n",
               former.c_str(), name.c_str());
}

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = etr::nearest(word, known);
  return near.empty() ? "" : " (did you mean '" + near + "'?)";
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
  // a count and an example for each
  std::map<std::string, std::pair<int64_t, std::string>> reasons;
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

void write_file(const std::string& path, const std::string& text, std::FILE* told) {
  errno = 0;
  std::ofstream out(std::filesystem::path(path), std::ios::binary);
  out << text;
  if (!out.flush())
    throw Failure("cannot write '" + path + "'" +
                  (errno ? std::string(": ") + std::strerror(errno) : ""));
  std::fprintf(told, "wrote %s\n", path.c_str());
}

}  // namespace cli
