#include "gpu/tuning.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/options.h"
#include "core/platform.h"
#include "core/platform_lock.h"
#include "gpu/device.h"
#include "gpu/kernel.h"
#include "gpu/shader_table.h"

namespace etr::gpu {
namespace {

constexpr const char* kTuningFormat = "echotrain kernels 1";

// {"format", "devices": {NAME: {PROBLEM: CHOICE}}, "kernels": {NAME: CHECKSUM}}. Files of earlier
// versions have no checksums.
Json parse(const std::string& path) {
  const std::string origin = cat("the tuning file '", path, "'");
  Json file = parse_json(platform::read_document(path), origin, {.code = Code::corrupt_data});
  const bool right = file.is_object() && file.contains("format") &&
                     file["format"] == kTuningFormat && file.contains("devices") &&
                     file["devices"].is_object();
  if (!right)
    fail(Code::corrupt_data, origin, " is not a tuning file of this release ('", kTuningFormat,
         "'): remove it, or write it anew with 'echotrain tune-kernels'");
  if (file.contains("kernels") && !file["kernels"].is_object())
    fail(Code::corrupt_data, origin, ": 'kernels' must be an object");
  for (const auto& [device, choices] : file["devices"].items()) {
    if (!choices.is_object())
      fail(Code::corrupt_data, origin, ": what it has for '", device, "' must be an object");
    for (const auto& [problem, choice] : choices.items())
      if (!choice.is_string())
        fail(Code::corrupt_data, origin, ": the choice of '", device, "' for '", problem,
             "' must be a string");
  }
  return file;
}

// Whether the file's choices for a device were measured with the kernels of this checksum.
bool is_current(const Json& file, const std::string& device, std::string_view checksum) {
  return file.contains("kernels") && file["kernels"].contains(device) &&
         file["kernels"][device] == checksum;
}

// Waits for another process, which holds the lock while it reads the file and writes it.
std::unique_ptr<platform::FileLock> lock_of(const std::string& path) try {
  constexpr int kAttempts = 500;
  constexpr std::chrono::milliseconds kPause{20};
  std::string holder;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (auto lock = platform::FileLock::take(path + ".lock", holder)) return lock;
    std::this_thread::sleep_for(kPause);
  }
  fail(Code::io, "the tuning file '", path, "' is locked (", holder,
       "): try again when that process has ended, or write another file");
} catch (const Error& error) {
  if (error.code() != Code::not_found) throw;
  fail(Code::io, "cannot write the tuning file '", path, "': ", error.what());
}

}  // namespace

std::string Tuning::choice(const std::string& problem, const std::vector<std::string>& valid,
                           const Measure& measure) {
  std::scoped_lock lock(mutex_);
  const auto known = choices_.find(problem);
  const bool covered = known != choices_.end() &&
                       (known->second.empty() ||  // there was nothing to choose
                        std::find(valid.begin(), valid.end(), known->second) != valid.end());
  if (covered) return known->second;
  const bool asked = std::any_of(wanted_.begin(), wanted_.end(),
                                 [&](const auto& wanted) { return wanted.first == problem; });
  if (!asked) wanted_.emplace_back(problem, measure);
  return "";
}

void Tuning::measure_wanted(Kernels& kernels,
                            const std::function<bool(const Progress&)>& progress) {
  std::vector<std::pair<std::string, Measure>> wanted;
  {
    std::scoped_lock lock(mutex_);
    wanted = wanted_;
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& [problem, measure] = wanted[i];
    const std::string choice = measure(kernels);
    {
      std::scoped_lock lock(mutex_);
      choices_[problem] = choice;
      const std::string& done = problem;
      std::erase_if(wanted_, [&](const auto& other) { return other.first == done; });
    }
    if (!progress({i + 1, wanted.size(), problem, choice})) return;
  }
}

void Tuning::measure_into(const std::string& path, Kernels& kernels,
                          const std::function<bool(const Progress&)>& progress) {
  const std::string& device = kernels.device()->info().name;
  read(path, device);  // a damaged file fails now, before measuring
  try {
    measure_wanted(kernels, progress);
  } catch (...) {
    try {
      write(path, device);
    } catch (const std::exception& error) {  // the failure that came first is thrown
      log_line(LogLevel::error, cat("what was measured is lost: ", error.what()));
    }
    throw;
  }
  write(path, device);
}

void Tuning::read(const std::string& path, const std::string& device) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return;
  const Json file = parse(path);
  if (!file["devices"].contains(device)) return;
  if (!is_current(file, device, checksum_of_kernels(kind_)))
    return log_line(LogLevel::warning,
                    cat("what the tuning file '", path, "' has for '", device,
                        "' was measured with other kernels than this build's and is not used: "
                        "measure again with 'echotrain tune-kernels'"));
  std::scoped_lock lock(mutex_);
  for (const auto& [problem, choice] : file["devices"][device].items())
    choices_[problem] = choice.get<std::string>();
}

void Tuning::write(const std::string& path, const std::string& device) const {
  std::error_code none;
  const auto file_lock = lock_of(path);
  Json file = std::filesystem::exists(path, none)
                  ? parse(path)
                  : Json{{"format", kTuningFormat}, {"devices", Json::object()}};
  if (!file.contains("kernels")) file["kernels"] = Json::object();
  {
    std::scoped_lock lock(mutex_);
    const std::string_view checksum = checksum_of_kernels(kind_);
    Json& choices = file["devices"][device];
    if (choices.is_null() || !is_current(file, device, checksum)) choices = Json::object();
    for (const auto& [problem, choice] : choices_) choices[problem] = choice;
    file["kernels"][device] = checksum;
  }
  const std::string text = file.dump(1) + "\n";
  platform::write_file_atomic(path, std::as_bytes(std::span(text)));
}

std::string_view Tuning::checksum_of_kernels(DeviceKind kind) {
  return checksum_of_products(kind == DeviceKind::cpu);
}

size_t Tuning::size() const {
  std::scoped_lock lock(mutex_);
  return choices_.size();
}

}  // namespace etr::gpu
