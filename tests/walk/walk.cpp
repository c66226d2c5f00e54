#include "walk.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "world.h"

namespace walk {
namespace {

namespace fs = std::filesystem;

// Calls of this thread. One within another, in a function of the program, has a message of its own.
thread_local uint64_t calls_here = 0;

// Gives the thread a message that no other call gives, so that what a call leaves can be told.
std::string fresh_message() {
  static std::atomic<uint64_t> number{0};
  const std::string kind = "walk" + std::to_string(++number);
  char* json = nullptr;
  etr_schema(kind.c_str(), &json);
  return etr_last_error();
}

bool is_utf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i++]);
    const int more = lead < 0x80             ? 0
                     : (lead & 0xe0) == 0xc0 ? 1
                     : (lead & 0xf0) == 0xe0 ? 2
                     : (lead & 0xf8) == 0xf0 ? 3
                                             : -1;
    if (more < 0) return false;
    for (int j = 0; j < more; ++j)
      if (i >= text.size() || (static_cast<unsigned char>(text[i++]) & 0xc0) != 0x80) return false;
  }
  return true;
}

// What exceptions of the C++ library and of the JSON library say, which nobody but the developers
// of EchoTrain can use.
bool speaks_of_internals(const std::string& message) {
  for (const char* word : {"std::bad", "std::__", "basic_string", "vector::", "json.exception",
                           "bad_variant", "bad_function", "bad_optional", "unordered_map",
                           "map::at", "stoi", "unknown exception", "Assertion"})
    if (message.find(word) != std::string::npos) return true;
  return false;
}

// oneTBB keeps the threads that it has made, and makes as many as one pipeline of the walk asks
// for.
constexpr size_t kWorkers = 4;

size_t entries_of(const char* folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++count;
  return count;
}

std::string threads_by_name() {
  std::map<std::string, int> names;
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    ++names[name];
  }
  std::string out;
  for (const auto& [name, count] : names) out += " " + name + ":" + std::to_string(count);
  return out;
}

std::string files_by_name() {
  std::string out;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator("/proc/self/fd"))
    out += " " + fs::read_symlink(file.path(), ignored).string();
  return out;
}

}  // namespace

Walk::Walk(Trace& its_trace, uint64_t seed, std::string its_folder, double its_within_s)
    : trace(its_trace),
      random(seed),
      folder(std::move(its_folder)),
      within_s(its_within_s),
      world(std::make_unique<World>()),
      seed_(seed) {
  std::ofstream rows(folder + "/rows.jsonl");
  for (int i = 0; i < 24; ++i)
    rows << "{\"image\": [" << i % 7 << ".5, 1.5, 2.5, 1, 0, " << i % 3
         << ".25], \"label\": " << i % 2 << "}\n";
}

Walk::~Walk() = default;

int32_t Walk::call(const char* function, const std::string& detail, Codes allowed,
                   const std::function<int32_t()>& body, bool says_nothing) {
  const std::string before = fresh_message();
  const uint64_t own = ++calls_here;
  const uint64_t number = trace.begin(function, detail);
  const int32_t status = body();
  trace.end(number, status);
  check_message(function, status, says_nothing, before, calls_here != own);
  if (status > ETR_END || status < ETR_RANK_LOST || !(allowed & code(status)))
    trace.fail(std::string(function) + "(" + detail + ") has returned " + name_of(status) +
               ", not one of " + names_of(allowed) + ". etr_last_error: " + etr_last_error());
  return status;
}

void Walk::call_void(const char* function, const std::function<void()>& body) {
  const std::string before = fresh_message();
  const uint64_t own = ++calls_here;
  const uint64_t number = trace.begin(function, "");
  body();
  trace.end(number);
  check_message(function, ETR_OK, false, before, calls_here != own);
}

void Walk::called_within() { ++calls_here; }

void Walk::check_message(const char* function, int32_t status, bool says_nothing,
                         const std::string& before, bool called_within) {
  const std::string message = etr_last_error();
  const auto wrong = [&](const char* what) {
    trace.fail(std::string(function) + ": " + name_of(status) + ": " + what +
               ". etr_last_error: " + message);
  };
  if (status >= 0 || says_nothing) {
    if (message != before && !called_within) wrong("a call that sets no message has changed it");
    return;
  }
  if (message == before) wrong("the call has set no message");
  if (message.empty()) wrong("the message is empty");
  if (!is_utf8(message)) wrong("the message is not UTF-8");
  if (message.size() > 20000) wrong("the message is long");
  if (speaks_of_internals(message)) wrong("the message is of the implementation");
}

std::string Walk::text(const char* function, const std::string& detail, Codes allowed,
                       const std::function<int32_t(char**)>& body) {
  char* const made_text = made<char>(function, detail, allowed, body);
  if (!made_text) return "";
  std::string out = made_text;
  etr_string_free(made_text);
  if (out.empty()) trace.fail(std::string(function) + " has returned an empty text");
  if (!is_utf8(out)) trace.fail(std::string(function) + " has returned a text that is not UTF-8");
  return out;
}

void Walk::soon(const char* what, const std::function<bool()>& holds) {
  const auto began = std::chrono::steady_clock::now();
  const std::chrono::duration<double> most(within_s);
  while (!holds()) {
    if (std::chrono::steady_clock::now() - began > most)
      trace.fail(std::string(what) + " has not happened within " + std::to_string(within_s) + " s");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Walk::step(uint64_t number) {
  static const std::vector<Step> steps = [] {
    std::vector<Step> all;
    for (const auto* some : {&kDocumentSteps, &kBatchSteps, &kPipelineSteps, &kTrainerSteps,
                             &kRunSteps, &kServiceSteps, &kThreadSteps})
      all.insert(all.end(), some->begin(), some->end());
    return all;
  }();
  static const uint64_t sum = [] {
    uint64_t weights = 0;
    for (const Step& step : steps) weights += static_cast<uint64_t>(step.weight);
    return weights;
  }();
  random.begin(seed_, number);
  auto drawn = static_cast<int64_t>(random.below(sum));
  for (const Step& step : steps)
    if ((drawn -= step.weight) < 0) return step.take(*this);
}

bool destroy_any(Walk& walk) {
  World& world = *walk.world;
  if (!world.tensors.empty()) {
    free_tensor(world.tensors.back());
    world.tensors.pop_back();
    return true;
  }
  const auto destroy_of = [&](auto& pool) {
    auto* const record = pool.any(walk.random);
    if (record) pool.take(record);
    return record != nullptr;
  };
  // In any order.
  for (uint64_t kind = walk.random.below(11), tried = 0; tried < 11; ++tried, ++kind)
    switch (kind % 11) {
      case 0:
        if (destroy_of(world.options)) return true;
        break;
      case 1:
        if (destroy_of(world.batches)) return true;
        break;
      case 2:
        if (destroy_of(world.pipelines)) return true;
        break;
      case 3:
        if (destroy_of(world.models)) return true;
        break;
      case 4:
        if (destroy_of(world.optimizers)) return true;
        break;
      case 5:
        if (destroy_of(world.runtimes)) return true;
        break;
      case 6:
        if (destroy_of(world.trainers)) return true;
        break;
      case 7:
        if (destroy_of(world.jobs)) return true;
        break;
      case 8:
        if (destroy_of(world.runs)) return true;
        break;
      case 9:
        if (destroy_of(world.servers)) return true;
        break;
      default:
        if (destroy_of(world.studies)) return true;
        break;
    }
  return false;
}

void Walk::check_user_data() {
  const std::scoped_lock lock(mutex_);
  for (const auto& data : user_data_)
    if (data->destroyed > 1) trace.fail("a function's user_data was destroyed twice");
}

void Walk::rest() {
  while (destroy_any(*this)) {
  }
  call("etr_set_log_hook", "NULL", kOk, [] { return etr_set_log_hook(nullptr, nullptr, nullptr); });
  call("etr_set_allocator", "NULL", kOk,
       [] { return etr_set_allocator(nullptr, nullptr, nullptr, nullptr); });
  // Pipelines that were destroyed in functions of theirs end on threads of their own.
  soon("the end of all functions of the program", [&] {
    const std::scoped_lock lock(mutex_);
    for (const auto& data : user_data_)
      if (data->destroyed == 0) return false;
    return true;
  });
  check_user_data();
  user_data_.clear();
  if (++rests_ == 1) {
    threads_ = entries_of("/proc/self/task") + kWorkers;
    files_ = entries_of("/proc/self/fd");
    return;
  }
  const auto began = std::chrono::steady_clock::now();
  while (entries_of("/proc/self/task") > threads_ || entries_of("/proc/self/fd") > files_) {
    if (std::chrono::steady_clock::now() - began > std::chrono::duration<double>(within_s))
      trace.fail(
          "left when everything is destroyed: " + std::to_string(entries_of("/proc/self/task")) +
          " threads, at most " + std::to_string(threads_) + " (" + threads_by_name() + "); " +
          std::to_string(entries_of("/proc/self/fd")) + " files, at first " +
          std::to_string(files_) + " (" + files_by_name() + ")");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Walk::print_rest() const {
  std::printf(
      "%llu times everything was destroyed; at the end there are %zu threads and %zu files\n",
      static_cast<unsigned long long>(rests_), entries_of("/proc/self/task"),
      entries_of("/proc/self/fd"));
}

}  // namespace walk
