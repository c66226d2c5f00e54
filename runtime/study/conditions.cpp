#include "study/conditions.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/json_members.h"
#include "core/label_text.h"
#include "core/options.h"
#include "study/labels.h"
#include "study/schema.h"
#include "study/summary.h"

namespace etr::study {
namespace {

// The most conditions of a workload. Each is tried out when the study is read.
constexpr uint64_t kMostConditions = 10'000;

void check_label(const std::string& label, const Json& value, const std::string& owner) {
  if (label.empty()) fail(Code::invalid_argument, owner, ": a label has no name; give it one");
  check_no_nul(label, cat(owner, ": the name of a label"));
  check_no_nul(value, cat(owner, ": the label '", label, "'"));
  if (is_own_column(label))
    fail(Code::invalid_argument, owner, ": the label '", label,
         "' has the name of a column of trials.csv or conditions.csv; give it another name");
  if (!value.is_string() && !value.is_number())
    fail(Code::invalid_argument, owner, ": the label '", label, "' is ", brief_json(value),
         "; a label is a text or a number");
}

// Returns how many combinations product() would give, times `others`. Too many are never built.
uint64_t combinations(const Json& lists, uint64_t others, const std::string& owner) {
  uint64_t out = others;
  double exact = static_cast<double>(others);  // for the message
  for (const auto& [label, values] : lists.items()) {
    if (!values.is_array() || values.empty())
      fail(Code::invalid_argument, owner, ": '", label, "' of 'for' is ", brief_json(values),
           "; it takes a list of values");
    for (const Json& value : values) check_label(label, value, owner);
    exact *= static_cast<double>(values.size());
    out = exact > kMostConditions ? kMostConditions + 1 : out * values.size();
  }
  if (out > kMostConditions)
    fail(Code::invalid_argument, owner, ": 'for' gives ", exact, " conditions; at most ",
         kMostConditions, " can be compared: leave out labels or values");
  return out;
}

// Returns all combinations of one value per label; the last label changes fastest. combinations()
// has checked them.
std::vector<Json> product(const Json& lists) {
  std::vector<Json> out{Json::object()};
  for (const auto& [label, values] : lists.items()) {
    std::vector<Json> longer;
    for (const Json& before : out)
      for (const Json& value : values) {
        longer.push_back(before);
        longer.back()[label] = value;
      }
    out = std::move(longer);
  }
  return out;
}

void add_labels(Json& to, const Json& labels, const std::string& owner) {
  for (const auto& [label, value] : labels.items()) {
    if (to.contains(label))
      fail(Code::invalid_argument, owner, ": the label '", label,
           "' has a value already: name it in "
           "'labels' or in one 'for'");
    to[label] = value;
  }
}

Scaling scaling_of(const std::string& key, const Json& given, const Json& labels,
                   const std::string& owner) {
  const std::string where = cat(owner, ": scale of '", key, "'");
  Json plain = given;
  Scaling out{.key = key};
  if (given.is_object() && given.contains("base") && given["base"].is_number()) {
    out.base = given["base"];
    remove_member(plain, "base");
  }
  const Options options(kScaling, where, plain);
  out.rule = options.string("rule");
  out.with = options.string("with");
  out.at = options.number("at");
  std::vector<std::string> names;
  for (const auto& [label, value] : labels.items()) names.push_back(label);
  if (!labels.contains(out.with))
    fail(Code::invalid_argument, where, ": 'with' is '", out.with,
         "', which is not a label of the condition", suggestion(out.with, names));
  const Json& value = labels[out.with];
  if (!value.is_number() || value.get<double>() <= 0 || out.at <= 0)
    fail(Code::invalid_argument, where, ": the label '", out.with, "' is ", value.dump(),
         " and 'at' is ", out.at, "; both must be numbers above 0");
  return out;
}

void take_scalings(Condition& condition, const Json& given, const std::string& owner) {
  for (const auto& [key, scaling] : object_in(given, "scale", owner).items()) {
    condition.scale.push_back(scaling_of(key, scaling, condition.labels, owner));
    if (!condition.scale.back().base && !condition.space.has(key))
      fail(Code::invalid_argument, owner, ": scale of '", key,
           "': its base is \"best\", and the space has no such key; give 'base' a number");
    condition.space.remove(key);
  }
}

uint64_t count_of(const Json& given, const char* key, uint64_t otherwise,
                  const std::string& owner) {
  if (!given.contains(key)) return otherwise;
  Json only = Json::object();
  only[key] = given[key];
  return static_cast<uint64_t>(Options(kSearch, owner, only).integer(key));
}

Condition condition_of(const Json& given, const Json& labels, const std::vector<std::string>& own,
                       const Common& common, const std::string& owner) {
  Condition out;
  out.labels = labels;
  out.name = labels_text(labels);
  out.own = own;
  const std::string where = cat(owner, " (", out.name, ")");
  for (const std::string& text : common.set) out.set.push_back(with_labels(text, labels));
  for (const std::string& text : texts_in(given, "set", where))
    out.set.push_back(with_labels(text, labels));
  out.space = Space(common.space, cat(where, ": space"));
  out.space.change(object_in(given, "space", where), cat(where, ": space"));
  out.trials = count_of(given, "trials", common.trials, where);
  out.searches = count_of(given, "searches", common.searches, where);
  take_scalings(out, given, where);
  return out;
}

// Returns the labels that both have with different values, except `with`.
std::vector<std::string> differences(const Condition& one, const Condition& other,
                                     const std::string& with) {
  std::vector<std::string> out;
  for (const auto& [label, value] : one.labels.items())
    if (label != with && other.labels.contains(label) && other.labels[label] != value)
      out.push_back(label);
  return out;
}

bool may_be_base(const Condition& tuned, const Condition& scaled, const Scaling& by) {
  if (!tuned.scale.empty() || !tuned.labels.contains(by.with)) return false;
  const Json& at = tuned.labels[by.with];
  if (!at.is_number() || at.get<double>() != by.at) return false;
  for (const auto& [label, value] : tuned.labels.items())
    if (!scaled.labels.contains(label)) return false;
  // A label may say how the rate is found ("rule": "tuned"), but a label of 'for' never does.
  const auto differing = differences(scaled, tuned, by.with);
  return std::all_of(differing.begin(), differing.end(), [&](const std::string& label) {
    return std::find(scaled.own.begin(), scaled.own.end(), label) != scaled.own.end();
  });
}

// Returns the tuned condition most similar to the scaled one.
size_t base_of(const Condition& scaled, const Scaling& by, const std::vector<Condition>& all,
               const std::string& owner) {
  std::vector<size_t> found;
  size_t fewest = SIZE_MAX;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!may_be_base(all[i], scaled, by)) continue;
    const size_t differing = differences(scaled, all[i], by.with).size();
    if (differing < fewest) found.clear();
    if (differing <= fewest) found.push_back(i);
    fewest = std::min(fewest, differing);
  }
  if (found.size() == 1) return found[0];
  if (found.size() > 1)
    fail(Code::invalid_argument, owner, " (", scaled.name, "): scale of '", by.key,
         "': the base could be '", all[found[0]].name, "' or '", all[found[1]].name,
         "': give both the labels of one of them");
  fail(Code::invalid_argument, owner, " (", scaled.name, "): scale of '", by.key,
       "': no condition without 'scale' has ", by.with, "=", by.at,
       " and otherwise the same labels; add it, or give 'base' a number");
}

// The base's best trial has a number to scale only if the base searches the key.
void check_base(const Condition& scaled, const Condition& base, const Scaling& by,
                const std::string& owner) {
  const auto& dimensions = base.space.dimensions();
  const auto found = std::find_if(dimensions.begin(), dimensions.end(),
                                  [&](const Dimension& d) { return d.key == by.key; });
  const bool numbers =
      found != dimensions.end() && std::all_of(found->values.begin(), found->values.end(),
                                               [](const Json& v) { return v.is_number(); });
  if (numbers) return;
  fail(Code::invalid_argument, owner, " (", scaled.name, "): scale of '", by.key,
       "': its base is the best trial of the condition (", base.name, "), which ",
       found == dimensions.end() ? "does not search that key" : "draws values that are no numbers",
       ": let that condition's 'space' have numbers of it, or give 'base' a number");
}

void find_bases(std::vector<Condition>& all, const std::string& owner) {
  for (Condition& condition : all)
    for (const Scaling& by : condition.scale) {
      if (by.base) continue;
      const size_t base = base_of(condition, by, all, owner);
      if (condition.base.value_or(base) != base)
        fail(Code::invalid_argument, owner, " (", condition.name,
             "): the keys of 'scale' have different bases; give all the same 'with' and 'at'");
      check_base(condition, all[base], by, owner);
      condition.base = base;
    }
}

// Compares labels as reports show them, where 1, 1.0 and "1" are the same.
void check_different(const std::vector<Condition>& all, const std::string& owner) {
  std::set<std::string> names, keys;
  for (const Condition& condition : all) {
    const bool is_new_name = names.insert(condition.name).second;
    if (!keys.insert(shown_key(condition.labels)).second || !is_new_name)
      fail(Code::invalid_argument, owner, ": two conditions have the labels (", condition.name,
           "): give one of them a label that says what differs; labels that reports show alike "
           "are the same, as 1, 1.0 and \"1\" are");
  }
}

// Labels and searched keys are columns of trials.csv.
void check_labels(const std::vector<Condition>& all, const std::string& owner) {
  std::set<std::string> searched;
  for (const Condition& condition : all) {
    for (const Dimension& d : condition.space.dimensions()) searched.insert(d.key);
    for (const Scaling& by : condition.scale) searched.insert(by.key);
  }
  for (const Condition& condition : all)
    for (const auto& [label, value] : condition.labels.items())
      if (searched.contains(label))
        fail(Code::invalid_argument, owner, " (", condition.name, "): the label '", label,
             "' has the name of a key that is searched, and both are columns of trials.csv; give "
             "the label another name");
}

}  // namespace

std::vector<Condition> conditions_of(const Json& list, const Common& common,
                                     const std::string& owner, Json& resolved) {
  if (!list.is_array() || list.empty())
    fail(Code::invalid_argument, owner, ": 'conditions' is ", brief_json(list),
         "; it takes a list of conditions");
  std::vector<Condition> out;
  resolved = Json::array();
  const uint64_t count = combinations(common.labels_for, 1, owner);
  const auto all = product(common.labels_for);
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = cat(owner, ": condition ", i + 1);
    if (!list[i].is_object())
      fail(Code::invalid_argument, where, " is ", brief_json(list[i]), "; it takes an object");
    check_keys(list[i], kConditionKeys, where);
    const Json& own = object_in(list[i], "labels", where);
    std::vector<std::string> names;
    for (const auto& [label, value] : own.items()) {
      check_label(label, value, where);
      names.push_back(label);
    }
    const Json& own_for = object_in(list[i], "for", where);
    if (out.size() + combinations(own_for, count, where) > kMostConditions)
      fail(Code::invalid_argument, where, ": there are more than ", kMostConditions,
           " conditions, which is the limit: leave out labels or values of 'for'");
    for (const Json& inner : product(own_for))
      for (const Json& outer : all) {
        Json labels = own;
        add_labels(labels, inner, where);
        add_labels(labels, outer, where);
        out.push_back(condition_of(list[i], labels, names, common, where));
        Json entry = list[i];
        remove_member(entry, "for");
        // Values from 'for' stay separate, because they never say how a key is scaled.
        entry["labels"] = own;
        Json others = Json::object();
        for (const auto& [label, value] : labels.items())
          if (!own.contains(label)) others[label] = Json::array({value});
        if (!others.empty()) entry["for"] = std::move(others);
        resolved.push_back(std::move(entry));
      }
  }
  check_different(out, owner);
  check_labels(out, owner);
  find_bases(out, owner);
  return out;
}

}  // namespace etr::study
