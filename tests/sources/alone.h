// A source on its own, without a pipeline.
#pragma once

#include "sources/files.h"

namespace etr::test {

class Alone {
 public:
  Alone(const std::string& stage, const Json& options)
      : options_(spec_options(stage, options)),
        stage_(pipeline::find_stage(stage).make(options_, {})),
        source_(*pipeline::source_of(stage_)) {
    source_.start_pass(0, 0);
  }
  // Returns an error's message, "" for a sample, or "end".
  std::string next(Item& item) {
    item = {};
    try {
      return source_.next(item) ? "" : "end";
    } catch (const Error& error) {
      return error.what();
    }
  }
  std::string next() {
    Item item;
    return next(item);
  }
  void skip() { source_.skip(); }
  void start_pass(uint64_t pass) { source_.start_pass(0, pass); }

 private:
  static Options spec_options(const std::string& stage, const Json& options) {
    return Options(pipeline::find_stage(stage).options, stage, options);
  }
  const Options options_;
  const pipeline::AnyStage stage_;
  pipeline::Source& source_;
};

// Returns the first error of a source, including its opening, for forked processes, where no
// pipeline may run.
inline std::string failure_alone(const std::string& stage, const Json& options) {
  try {
    return Alone(stage, options).next();
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace etr::test
