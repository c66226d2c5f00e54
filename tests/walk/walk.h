// A random walk over the C API: what is called, what each handle's state is, and which statuses the
// header allows there.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "echotrain/echotrain.h"
#include "trace.h"

namespace walk {

constexpr Codes kOk = code(ETR_OK), kEnd = code(ETR_END), kInvalid = code(ETR_INVALID_ARGUMENT),
                kNotFound = code(ETR_NOT_FOUND), kIo = code(ETR_IO),
                kCorrupt = code(ETR_CORRUPT_DATA), kNoDevice = code(ETR_NO_DEVICE),
                kCancelled = code(ETR_CANCELLED), kState = code(ETR_STATE),
                kUnsupported = code(ETR_UNSUPPORTED), kCallback = code(ETR_CALLBACK),
                kNotFinite = code(ETR_NOT_FINITE), kRankLost = code(ETR_RANK_LOST);

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  // Begins a sequence of its own for each step, so that a step does not depend on how many numbers
  // the steps before it have drawn.
  void begin(uint64_t seed, uint64_t step) { engine_.seed(seed * 0x9e3779b97f4a7c15u + step); }
  uint64_t below(uint64_t count) { return engine_() % count; }
  bool one_in(uint64_t count) { return below(count) == 0; }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low + 1)));
  }
  template <typename Choices>
  auto& of(Choices& choices) {
    return choices[below(std::size(choices))];
  }
  template <typename T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[below(choices.size())];
  }

 private:
  std::mt19937_64 engine_;
};

// What a function of the program was registered with. The library calls destroy() exactly once; the
// walk keeps the object until then and longer, so that a second call is seen.
struct UserData {
  virtual ~UserData() = default;
  std::atomic<int> destroyed{0};
  static void destroy(void* self) { ++static_cast<UserData*>(self)->destroyed; }
};

class Walk;

// Owns a handle.
template <typename T>
class Handle {
 public:
  using Destroy = void (*)(T*);
  Handle(Walk& walk, T* handle, const char* function, Destroy destroy)
      : walk_(walk), handle_(handle), function_(function), destroy_(destroy) {}
  ~Handle() { reset(); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  T* get() const { return handle_; }
  void reset();
  // The handle was destroyed elsewhere, for instance in a callback.
  void forget() { handle_ = nullptr; }

 private:
  Walk& walk_;
  T* handle_;
  const char* const function_;
  const Destroy destroy_;
};

// The live handles of a kind.
template <typename Record>
class Pool {
 public:
  explicit Pool(size_t most) : most_(most) {}
  // Returns nullptr if there is none.
  Record* any(Random& random) const {
    return all_.empty() ? nullptr : all_[random.below(all_.size())].get();
  }
  // Makes room by destroying one if there are many.
  Record* add(Random& random, std::unique_ptr<Record> record) {
    if (all_.size() >= most_) take(any(random));
    all_.push_back(std::move(record));
    return all_.back().get();
  }
  std::unique_ptr<Record> take(const Record* record) {
    for (auto& each : all_)
      if (each.get() == record) {
        std::unique_ptr<Record> out = std::move(each);
        each = std::move(all_.back());
        all_.pop_back();
        return out;
      }
    return nullptr;
  }
  bool empty() const { return all_.empty(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  const size_t most_;
  std::vector<std::unique_ptr<Record>> all_;
};

// Fills with bytes that the library does not write by chance.
template <typename T>
T unwritten() {
  T out;
  std::memset(static_cast<void*>(&out), 0x5a, sizeof out);
  return out;
}

struct World;

class Walk {
 public:
  Walk(Trace& its_trace, uint64_t seed, std::string folder, double its_within_s);
  ~Walk();

  // Calls the function and fails unless it returns one of `allowed`, with a message if it is an
  // error. `says_nothing`: it is one of the functions that set no message. Any thread.
  int32_t call(const char* function, const std::string& detail, Codes allowed,
               const std::function<int32_t()>& body, bool says_nothing = false);
  void call_void(const char* function, const std::function<void()>& body);

  // Calls a function that hands out a handle or struct through its last parameter. Fails if it
  // writes there with an error. One in many calls gets NULL instead, which is an error.
  template <typename T>
  T* made(const char* function, const std::string& detail, Codes allowed,
          const std::function<int32_t(T**)>& body) {
    T* out = unwritten<T*>();
    if (random.one_in(50)) {
      call(function, detail + ", NULL", failing(allowed), [&] { return body(nullptr); });
      return nullptr;
    }
    if (call(function, detail, allowed, [&] { return body(&out); }) == ETR_OK) return out;
    if (out != unwritten<T*>()) trace.fail(std::string(function) + " has written with an error");
    return nullptr;
  }
  // Returns the text that a function hands out; "" after an error.
  std::string text(const char* function, const std::string& detail, Codes allowed,
                   const std::function<int32_t(char**)>& body);
  // Returns whether the function has filled the struct.
  template <typename T>
  bool filled(const char* function, const std::string& detail, Codes allowed,
              const std::function<int32_t(T*)>& body, T* out = nullptr) {
    T own = unwritten<T>();
    own.struct_size = sizeof own;
    if (random.one_in(50)) {
      own.struct_size = 0;
      T* const wrong = random.one_in(2) ? nullptr : &own;
      call(function, detail + ", a wrong struct", failing(allowed) | (allowed & kEnd),
           [&] { return body(wrong); });
      return false;
    }
    const T before = own;
    const int32_t status = call(function, detail, allowed, [&] { return body(&own); });
    if (status < 0 && std::memcmp(&before, &own, sizeof own) != 0)
      trace.fail(std::string(function) + " has written with an error");
    if (out) *out = own;
    return status == ETR_OK;
  }

  // The codes of a call with a wrong argument, or with what it needs only in the first case.
  static Codes failing(Codes allowed) { return (allowed & ~(kOk | kEnd)) | kInvalid; }
  template <typename T>
  static Codes needs(const T* argument, Codes allowed) {
    return argument ? allowed : failing(allowed);
  }
  // Returns the handle of a record, or NULL: where there is no record, and now and then.
  template <typename Record>
  auto handle(Record* record) {
    return record && !random.one_in(40) ? record->handle.get() : nullptr;
  }

  // Keeps what a function of the program is registered with. Any thread.
  template <typename T>
  T* keep(std::unique_ptr<T> data) {
    T* const out = data.get();
    const std::scoped_lock lock(mutex_);
    user_data_.push_back(std::move(data));
    return out;
  }

  // To be told of a call within another one that the trace does not show: the message is its own.
  static void called_within();

  // Waits for an effect of another thread that the header promises to come soon.
  void soon(const char* what, const std::function<bool()>& holds);

  // One step: a few calls.
  void step(uint64_t number);
  // Destroys all handles, and fails if anything is left: functions, memory, threads, files.
  void rest();
  void print_rest() const;

  Trace& trace;
  Random random;
  const std::string folder;  // for files
  const double within_s;     // what "returns soon" may take on this machine
  std::unique_ptr<World> world;

 private:
  void check_message(const char* function, int32_t status, bool says_nothing,
                     const std::string& before, bool called_within);
  void check_user_data();

  const uint64_t seed_;
  std::mutex mutex_;
  std::deque<std::unique_ptr<UserData>> user_data_;
  size_t threads_ = 0, files_ = 0;  // of the process after the first rest
  uint64_t rests_ = 0;
};

template <typename T>
void Handle<T>::reset() {
  T* const handle = std::exchange(handle_, nullptr);
  if (handle) walk_.call_void(function_, [&] { destroy_(handle); });
}

// A step of the walk, and how often it comes beside the others.
struct Step {
  int weight;
  void (*take)(Walk&);
};
extern const std::vector<Step> kDocumentSteps, kBatchSteps, kPipelineSteps, kTrainerSteps,
    kRunSteps, kServiceSteps, kThreadSteps;

}  // namespace walk
