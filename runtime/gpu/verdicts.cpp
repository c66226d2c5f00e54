#include "gpu/verdicts.h"

#include <filesystem>

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/options.h"
#include "core/platform.h"

namespace etr::gpu {
namespace {

constexpr const char* kVerdictsFormat = "echotrain verdicts 1";
constexpr const char *kRight = "right", *kRightPlainly = "right without optimizer";

// {"format", "kernels": {KERNEL: VERDICT}}
std::map<std::string, Verdict> read(const std::string& path) {
  const Json file = parse_json(platform::read_document(path), cat("'", path, "'"));
  std::map<std::string, Verdict> out;
  const bool right = file.is_object() && file.contains("format") &&
                     file["format"] == kVerdictsFormat && file.contains("kernels") &&
                     file["kernels"].is_object();
  if (!right) fail(Code::corrupt_data, "'", path, "' has none of this release's verdicts");
  for (const auto& [kernel, verdict] : file["kernels"].items())
    out[kernel] = verdict == kRight          ? Verdict::right
                  : verdict == kRightPlainly ? Verdict::right_plainly
                                             : Verdict::unknown;
  return out;
}

}  // namespace

Verdicts::Verdicts(std::string path) : path_(std::move(path)) {
  std::error_code none;
  if (path_.empty() || !std::filesystem::exists(path_, none)) return;
  try {
    verdicts_ = read(path_);
  } catch (const Error& error) {
    log_line(LogLevel::warning, cat("kernels are compared anew: ", error.what()));
  }
}

Verdict Verdicts::of(const std::string& kernel) const {
  std::scoped_lock lock(mutex_);
  const auto found = verdicts_.find(kernel);
  return found == verdicts_.end() ? Verdict::unknown : found->second;
}

void Verdicts::set(const std::string& kernel, Verdict verdict) {
  std::scoped_lock lock(mutex_);
  verdicts_[kernel] = verdict;
  changed_ = true;
}

void Verdicts::save() noexcept {
  try {
    std::scoped_lock lock(mutex_);
    if (path_.empty() || !changed_) return;
    Json file{{"format", kVerdictsFormat}, {"kernels", Json::object()}};
    for (const auto& [kernel, verdict] : verdicts_)
      if (verdict != Verdict::unknown)
        file["kernels"][kernel] = verdict == Verdict::right ? kRight : kRightPlainly;
    const std::string text = file.dump(1) + "\n";
    platform::write_file_atomic(path_, std::as_bytes(std::span(text)));
    changed_ = false;
  } catch (const std::exception& error) {
    try_log_line(LogLevel::warning,
                 {"the results of comparing kernels were not saved: ", error.what()});
  }
}

}  // namespace etr::gpu
