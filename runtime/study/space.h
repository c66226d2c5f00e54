// A search space: keys of a job, each with a range or a list of values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "study/sequence.h"

namespace etr::study {

enum class Scale { linear, log, log_complement };

// One key of a job, with a range or, if `values` is not empty, a list.
struct Dimension {
  std::string key;  // "schedule.learning_rate", or a variable of the job
  double from = 0, to = 0;
  Scale scale = Scale::linear;
  bool integer = false;
  std::vector<Json> values;
  size_t coordinate = 0;  // of the sequence; a key keeps it when others leave the space

  // Returns the value at `unit`, in [0, 1].
  Json at(double unit) const;
};

// Reads {"from", "to", "scale", "integer"} or {"values"}. Error(invalid_argument) names `key` and
// its `owner`.
Dimension dimension_of(const std::string& key, const Json& given, size_t coordinate,
                       const std::string& owner);
Json to_json(const Dimension& dimension);

struct Point {
  Json values = Json::object();  // by key
  std::vector<double> unit;      // in the order of the keys
};

class Space {
 public:
  Space() = default;
  Space(const Json& given, const std::string& owner);

  const std::vector<Dimension>& dimensions() const { return dimensions_; }
  bool empty() const { return dimensions_.empty(); }
  bool has(const std::string& key) const;
  void remove(const std::string& key);

  // Changes a key: replaces an existing one, removes it if `given` is null, otherwise adds it at
  // the end.
  void change(const Json& given, const std::string& owner);

  // Returns the point of trial `index` of the search with this seed. It depends neither on the
  // number of trials nor on keys that were added after a key.
  Point point(SequenceKind kind, uint64_t index, uint64_t seed) const;

  Json json() const;

 private:
  std::vector<Dimension> dimensions_;
  size_t coordinates_ = 0;
};

}  // namespace etr::study
