#include "study/space.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json_members.h"
#include "core/options.h"
#include "study/schema.h"

namespace etr::study {
namespace {

constexpr const char* kScales[] = {"linear", "log", "log_complement"};

void check_range(const Dimension& d, const std::string& where) {
  if (!(d.from < d.to))
    fail(Code::invalid_argument, where, ": 'from' is ", d.from, " and 'to' is ", d.to,
         ": a range begins below its end");
  constexpr double kMostWhole = 9007199254740992;  // 2^53: whole numbers up to here are exact
  if (!std::isfinite(d.to - d.from))
    fail(Code::invalid_argument, where, ": 'from' is ", d.from, " and 'to' is ", d.to,
         ": the range is too wide for its width to be a number; choose nearer ends");
  if (d.integer && (d.from < -kMostWhole || d.to > kMostWhole))
    fail(Code::invalid_argument, where, ": 'from' is ", d.from, " and 'to' is ", d.to,
         ": whole numbers are drawn from -9007199254740992 to 9007199254740992");
  if (d.scale == Scale::log && d.from <= 0)
    fail(Code::invalid_argument, where, ": 'from' is ", d.from,
         ": a logarithmic range begins above 0");
  if (d.scale == Scale::log_complement && d.to >= 1)
    fail(Code::invalid_argument, where, ": 'to' is ", d.to,
         ": a range of scale 'log_complement' ends below 1");
  if (d.integer && (d.from != std::floor(d.from) || d.to != std::floor(d.to)))
    fail(Code::invalid_argument, where, ": 'from' and 'to' of whole numbers are whole numbers");
  if (d.integer && d.scale == Scale::log_complement)
    fail(Code::invalid_argument, where, ": whole numbers have no scale 'log_complement'");
}

double between(double from, double to, double unit) { return from + unit * (to - from); }

double in_range(const Dimension& d, double to, double unit) {
  switch (d.scale) {
    case Scale::linear: return between(d.from, to, unit);
    case Scale::log: return std::exp(between(std::log(d.from), std::log(to), unit));
    case Scale::log_complement:
      return 1 - std::exp(between(std::log1p(-d.from), std::log1p(-to), unit));
  }
  return d.from;
}

}  // namespace

Json Dimension::at(double unit) const {
  if (!values.empty()) {
    const auto place = static_cast<size_t>(unit * static_cast<double>(values.size()));
    return values[std::min(place, values.size() - 1)];
  }
  if (integer)  // each number has its own interval, up to the next one
    return static_cast<int64_t>(std::clamp(std::floor(in_range(*this, to + 1, unit)), from, to));
  return std::clamp(in_range(*this, to, unit), from, to);
}

Dimension dimension_of(const std::string& key, const Json& given, size_t coordinate,
                       const std::string& owner) {
  const std::string where = cat(owner, ": '", key, "'");
  Dimension out;
  out.key = key;
  out.coordinate = coordinate;
  if (!given.is_object())
    fail(Code::invalid_argument, where, " is ", brief_json(given),
         "; it takes {\"from\", \"to\", \"scale\"} or {\"values\"}");
  if (given.contains("values")) {
    if (given.contains("from") || given.contains("to"))
      fail(Code::invalid_argument, where,
           " has both a range ('from' and 'to') and a list ('values'); it takes one of them");
    const std::string known[] = {"values"};
    check_keys(given, known, where);
    const Json& list = given["values"];
    if (!list.is_array() || list.empty() ||
        std::any_of(list.begin(), list.end(), [](const Json& v) { return v.is_structured(); }))
      fail(Code::invalid_argument, where, ": 'values' is ", brief_json(list),
           "; it takes a list of numbers or texts");
    out.values.assign(list.begin(), list.end());
    return out;
  }
  const Options range(kRange, where, given);
  out.from = range.number("from");
  out.to = range.number("to");
  out.integer = range.boolean("integer");
  const std::string scale = range.string("scale");
  out.scale =
      static_cast<Scale>(std::find(std::begin(kScales), std::end(kScales), scale) - kScales);
  check_range(out, where);
  return out;
}

Json to_json(const Dimension& d) {
  if (!d.values.empty()) return {{"values", d.values}};
  Json out{{"from", d.from}, {"to", d.to}, {"scale", kScales[static_cast<int>(d.scale)]}};
  if (d.integer) out["integer"] = true;
  return out;
}

Space::Space(const Json& given, const std::string& owner) { change(given, owner); }

bool Space::has(const std::string& key) const {
  return std::any_of(dimensions_.begin(), dimensions_.end(),
                     [&](const Dimension& d) { return d.key == key; });
}

void Space::remove(const std::string& key) {
  std::erase_if(dimensions_, [&](const Dimension& d) { return d.key == key; });
}

void Space::change(const Json& given, const std::string& owner) {
  if (!given.is_object())
    fail(Code::invalid_argument, owner, " is ", brief_json(given), "; it takes an object");
  for (const auto& [key, range] : given.items()) {
    const auto known = std::find_if(dimensions_.begin(), dimensions_.end(),
                                    [&, &key = key](const Dimension& d) { return d.key == key; });
    if (range.is_null())
      remove(key);
    else if (known != dimensions_.end())
      *known = dimension_of(key, range, known->coordinate, owner);
    else
      dimensions_.push_back(dimension_of(key, range, coordinates_++, owner));
  }
  // The coordinate of a removed key is not reused, so that other conditions draw the same points.
  if (coordinates_ > kMostDimensions)
    fail(Code::invalid_argument, owner, ": it has ", coordinates_,
         " keys, including those that it removes from the common space; at most ", kMostDimensions,
         " can be searched at once");
}

Point Space::point(SequenceKind kind, uint64_t index, uint64_t seed) const {
  Point out;
  for (const Dimension& d : dimensions_) {
    out.unit.push_back(scrambled(kind, index, d.coordinate, seed));
    out.values[d.key] = d.at(out.unit.back());
  }
  return out;
}

Json Space::json() const {
  Json out = Json::object();
  for (const Dimension& d : dimensions_) out[d.key] = to_json(d);
  return out;
}

}  // namespace etr::study
