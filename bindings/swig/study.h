// A study, as languages other than C++ see it: events and results are JSON.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "facade.h"

namespace echotrain::facade {

class StudyHandle {
 public:
  StudyHandle(const std::string& path, const std::vector<std::string>& overrides)
      : study_(std::make_shared<Study>(Study::load(path, overrides))) {}

  std::string json() const { return get()->json(); }
  std::string output_dir() const { return get()->output_dir(); }
  // `directory`: "" for output_dir().
  void start(const RuntimeHandle& runtime, const std::string& directory, int parallel,
             bool overwrite) {
    get()->start(runtime.get(), directory, parallel, overwrite);
  }
  // "" after the last one.
  std::string next_event(double seconds) { return get()->next_event(seconds).value_or(""); }
  void stop() { get()->stop(); }
  std::string results(const std::string& directory) const { return get()->results(directory); }

  void write_report(const std::string& directory) const { get()->write_report(directory); }

  // A thread that waits for an event goes on first.
  void close() {
    std::shared_ptr<Study> last;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      last.swap(study_);
    }
    if (last) etr_study_stop(last->get());  // which one that was not started has no need of
  }

 private:
  std::shared_ptr<Study> get() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!study_) closed("study");
    return study_;
  }
  mutable std::mutex mutex_;
  std::shared_ptr<Study> study_;
};

}  // namespace echotrain::facade
