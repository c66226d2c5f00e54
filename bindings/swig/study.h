// A study for languages other than C++: events and results are JSON.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "facade.h"

namespace echotrain::facade {

class StudyHandle {
 public:
  StudyHandle(const std::string& path, const std::vector<std::string>& overrides)
      : study_("study", Study::load(path, overrides)) {}

  std::string json() const { return get()->json(); }
  std::string output_dir() const { return get()->output_dir(); }
  // `directory`: "" for output_dir().
  void start(const RuntimeHandle& runtime, const std::string& directory, int parallel,
             bool overwrite) {
    get()->start(*runtime.get(), directory, parallel, overwrite);
  }
  // Returns "" after the last event.
  std::string next_event(double seconds) { return get()->next_event(seconds).value_or(""); }
  void stop() { get()->stop(); }
  std::string results(const std::string& directory) const { return get()->results(directory); }

  void write_report(const std::string& directory) const { get()->write_report(directory); }

  // Stops the study; a thread that is waiting for an event returns first.
  void close() {
    // Fails, without effect, if it was not started.
    if (const auto last = study_.close()) etr_study_stop(last->get());
  }

 private:
  std::shared_ptr<Study> get() const { return study_.get(); }
  Closable<Study> study_;
};

}  // namespace echotrain::facade
