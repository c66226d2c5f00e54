// One source by itself, without a pipeline around it.
#pragma once

#include "sources/files.h"

namespace etr::test {

class Alone {
 public:
  Alone(const std::string& stage, const Json& options)
      : options_(spec_options(stage, options)),
        stage_(pipeline::find_stage(stage).make(options_, {})),
        source_(static_cast<pipeline::Source&>(*stage_)) {
    source_.start_pass(0, 0);
  }
  // The message of an error; "" for a sample; "end" at the end.
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

 private:
  static Options spec_options(const std::string& stage, const Json& options) {
    return Options(pipeline::find_stage(stage).options, stage, options);
  }
  const Options options_;
  const std::unique_ptr<pipeline::Stage> stage_;
  pipeline::Source& source_;
};

// The first error of a source, its opening included: for processes that are forked, where no pipeline may run.
inline std::string failure_alone(const std::string& stage, const Json& options) {
  try {
    return Alone(stage, options).next();
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace etr::test
