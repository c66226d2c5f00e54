#include "heap.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "support/interposed.h"

// The C library's own, which nobody replaces.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* block);
}

namespace etr::failing::heap {
namespace {

struct Range {
  uintptr_t begin = 0, end = 0;
  bool has(uintptr_t address) const { return address >= begin && address < end; }
};

std::atomic<bool> watches{false};
Range library;
std::array<Range, 32> helpers;  // libraries that allocate for it
std::atomic<size_t> helper_count{0};

std::atomic<int64_t> countdown{0};  // allocations until one fails; 0: none will
std::atomic<bool> for_ever_after{false}, has_failed{false};
std::atomic<int64_t> counted{0};
std::atomic<bool> keeps_callers{false}, is_excused{false};
std::atomic<int> run{0};

bool is_helper(uintptr_t address) {
  const auto* const end = helpers.begin() + helper_count;
  return std::any_of(helpers.cbegin(), end, [&](const Range& r) { return r.has(address); });
}

// ---- who asks -----------------------------------------------------------------------------------

constexpr int kFrames = 64;
using Callers = std::vector<void*>;

struct Walk {
  bool in_helper = false, is_for_library = false;
};

_Unwind_Reason_Code visit(_Unwind_Context* frame, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  const auto address = static_cast<uintptr_t>(_Unwind_GetIP(frame)) - 1;
  const bool helper = is_helper(address);
  walk.in_helper |= helper;
  if (helper || !walk.in_helper) return _URC_NO_REASON;  // before: the frames of this file
  walk.is_for_library = library.has(address);
  return _URC_END_OF_STACK;
}

bool is_for_library(const void* caller) {
  if (!watches) return false;
  const auto address = reinterpret_cast<uintptr_t>(caller) - 1;
  if (library.has(address)) return true;
  if (!is_helper(address)) return false;
  Walk walk;
  _Unwind_Backtrace(visit, &walk);
  return walk.is_for_library;
}

// The library's functions, exported or not, by address, as the tool that came with the compiler
// lists them.
struct Function {
  Range range;
  std::string name;
};

std::vector<Function> read_functions() {
  std::vector<Function> out;
  Dl_info info{};
  if (!dladdr(reinterpret_cast<void*>(library.begin), &info)) return out;
  const std::string command =
      std::string("nm -C -S --defined-only '") + info.dli_fname + "' 2>/dev/null";
  FILE* const list = popen(command.c_str(), "r");
  static char line[1 << 16];
  while (list && std::fgets(line, sizeof line, list)) {
    unsigned long long at = 0, size = 0;
    char kind = 0;
    int name = 0;
    if (std::sscanf(line, "%llx %llx %c %n", &at, &size, &kind, &name) < 3) continue;
    line[std::strcspn(line, "\n")] = 0;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(info.dli_fbase) + at;
    if (std::strchr("tTwWuV", kind)) out.push_back({{begin, begin + size}, line + name});
  }
  if (list) pclose(list);
  if (out.empty()) {
    std::fprintf(stderr, "heap.cpp: nm lists no functions of '%s'\n", info.dli_fname);
    std::abort();
  }
  std::sort(out.begin(), out.end(),
            [](const Function& a, const Function& b) { return a.range.begin < b.range.begin; });
  return out;
}

const std::vector<Function>& functions() {
  static const auto& all = *new std::vector<Function>(read_functions());
  return all;
}

std::string name_of(void* caller) {
  const auto address = reinterpret_cast<uintptr_t>(caller) - 1;
  const auto& all = functions();
  auto found = std::upper_bound(all.begin(), all.end(), address,
                                [](uintptr_t a, const Function& f) { return a < f.range.begin; });
  if (found == all.begin() || !(--found)->range.has(address)) return "?";
  return found->name.substr(0, 200);
}

// The library's callers among these, innermost first.
std::string named(const Callers& callers) {
  constexpr size_t kTold = 12;
  std::string out;
  size_t count = 0;
  for (void* caller : callers)
    if (library.has(reinterpret_cast<uintptr_t>(caller) - 1) && count++ < kTold)
      out += "\n    " + name_of(caller);
  return out;
}

// Functions of others within which a lack of memory cannot be survived, or not without a loss.
struct Exceptions {
  std::vector<Range> may_not_throw, lose_blocks;
  Exceptions() {
    for (const Function& function : functions()) {
      const auto has = [&](const char* text) {
        return function.name.find(text) != std::string::npos;
      };
      // oneTBB loses a node's first copy of its function, if there is no memory for the second.
      if (has("etr::pipeline::FlowGraph::make_")) lose_blocks.push_back(function.range);
      if (!has("nlohmann")) continue;
      if (has("::json_value::destroy(")) may_not_throw.push_back(function.range);
      if (has("::basic_json(std::initializer_list<")) lose_blocks.push_back(function.range);
    }
  }
};

const Exceptions& exceptions() {
  static const auto& all = *new Exceptions;
  return all;
}

bool within(const std::vector<Range>& code, void* const* frames, int count) {
  return std::any_of(frames, frames + count, [&](void* frame) {
    return std::any_of(code.begin(), code.end(), [&](const Range& range) {
      return range.has(reinterpret_cast<uintptr_t>(frame) - 1);
    });
  });
}

// ---- blocks -------------------------------------------------------------------------------------

// For what this file itself allocates.
template <typename T>
struct Unwatched {
  using value_type = T;
  Unwatched() = default;
  template <typename U>
  Unwatched(const Unwatched<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(__libc_malloc(count * sizeof(T))); }
  void deallocate(T* block, size_t) { __libc_free(block); }
  bool operator==(const Unwatched&) const { return true; }
};

struct Block {
  size_t size = 0;
  int run = 0;
  std::vector<void*, Unwatched<void*>> callers;
};

struct Blocks {
  std::mutex mutex;
  std::unordered_map<void*, Block, std::hash<void*>, std::equal_to<>,
                     Unwatched<std::pair<void* const, Block>>>
      by_address;
};

constexpr size_t kParts = 64;  // so that threads seldom wait for each other

Blocks& part_of(const void* block) {
  static Blocks* const parts = [] {
    auto* const memory = static_cast<Blocks*>(__libc_malloc(kParts * sizeof(Blocks)));
    std::uninitialized_default_construct_n(memory, kParts);
    return memory;
  }();
  return parts[reinterpret_cast<uintptr_t>(block) / 64 % kParts];
}

std::atomic<int64_t> block_count{0};

using Runs = std::vector<int, Unwatched<int>>;

Runs& excused_runs() {
  static Runs* const runs = new (__libc_malloc(sizeof(Runs))) Runs;
  return *runs;
}

void note(void* block, size_t size) {
  Block noted{size, run, {}};
  if (keeps_callers) {
    void* frames[kFrames];
    noted.callers.assign(frames, frames + backtrace(frames, kFrames));
  }
  Blocks& part = part_of(block);
  const std::scoped_lock lock(part.mutex);
  if (part.by_address.insert_or_assign(block, std::move(noted)).second) ++block_count;
}

void forget(void* block) {
  if (!block || block_count == 0) return;
  Blocks& part = part_of(block);
  const std::scoped_lock lock(part.mutex);
  if (part.by_address.erase(block)) --block_count;
}

// ---- failing ------------------------------------------------------------------------------------

std::mutex failed_mutex;
std::array<void*, kFrames> failed_frames;
int failed_frame_count = 0;

bool fails() {
  counted.fetch_add(1, std::memory_order_relaxed);
  if (countdown <= 0 && !(for_ever_after && has_failed)) return false;
  if (countdown.fetch_sub(1) > 1) return false;
  if (has_failed && !for_ever_after) return false;
  void* frames[kFrames];
  const int count = backtrace(frames, kFrames);
  if (within(exceptions().may_not_throw, frames, count)) {
    if (!has_failed) countdown = 1;  // the next one
    return false;
  }
  if (within(exceptions().lose_blocks, frames, count)) is_excused = true;
  const std::scoped_lock lock(failed_mutex);
  if (has_failed) return for_ever_after;
  std::copy(frames, frames + count, failed_frames.begin());
  failed_frame_count = count;
  has_failed = true;
  return true;
}

template <typename Get>
void* allocate(size_t size, const void* caller, const Get& get) {
  const bool counts = is_for_library(caller);
  if (counts && fails()) return nullptr;
  void* const block = get();
  if (counts && block) note(block, size);
  return block;
}

void* allocate_new(size_t size, size_t alignment, const void* caller) {
  size = size ? size : 1;
  return allocate(size, caller, [&] {
    return alignment ? __libc_memalign(alignment, size) : __libc_malloc(size);
  });
}

void* allocate_or_throw(size_t size, size_t alignment, const void* caller) {
  if (void* const block = allocate_new(size, alignment, caller)) return block;
  throw std::bad_alloc();
}

void release(void* block) {
  forget(block);
  __libc_free(block);
}

void add_range(const dl_phdr_info& object, Range& range) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const auto& part = object.dlpi_phdr[i];
    if (part.p_type != PT_LOAD || !(part.p_flags & PF_X)) continue;
    range.begin = object.dlpi_addr + part.p_vaddr;
    range.end = range.begin + part.p_memsz;
  }
}

int find(dl_phdr_info* object, size_t, void* of_library) {
  Range range;
  add_range(*object, range);
  if (range.has(*static_cast<uintptr_t*>(of_library))) library = range;
  const bool helps = [&] {
    for (const char* name :
         {"libstdc++", "libpng", "libjpeg", "libz.", "libzstd", "libdeflate", "libcurl"})
      if (std::strstr(object->dlpi_name, name)) return true;
    return false;
  }();
  if (helps && !is_helper(range.begin) && helper_count < helpers.size()) {
    helpers[helper_count] = range;
    ++helper_count;
  }
  return 0;
}

}  // namespace

void watch() {
  if (watches) return;
  // A program that links the library's objects is the library.
  const void* const exported = dlsym(RTLD_DEFAULT, "etr_version");
  auto inside = exported ? reinterpret_cast<uintptr_t>(exported)
                         : reinterpret_cast<uintptr_t>(&read_functions);
  dl_iterate_phdr(find, &inside);
  void* frames[kFrames];
  backtrace(frames, kFrames);  // the first one loads a library
  watches = true;
}

void fail(int64_t number, bool for_ever) {
  if (number > 0) exceptions();  // not within an allocation
  countdown = 0;
  has_failed = false;
  for_ever_after = for_ever;
  counted = 0;
  countdown = number;
}

int64_t allocations() { return counted; }

std::string failed() {
  const std::scoped_lock lock(failed_mutex);
  if (!has_failed) return "";
  const auto begin = failed_frames.begin();
  return std::string("no memory") + (for_ever_after ? " from then on" : "") + " for" +
         named(Callers(begin, begin + failed_frame_count));
}

int64_t blocks() { return block_count; }

void begin_run(bool with_callers) {
  if (is_excused) excused_runs().push_back(run);
  ++run;
  keeps_callers = with_callers;
  is_excused = false;
}

bool has_excuse() { return is_excused; }

std::string left_by(int runs, int least) {
  struct Left {
    std::set<int> in_runs;
    size_t count = 0, bytes = 0;
  };
  std::vector<Block, Unwatched<Block>> all;
  for (size_t i = 0; i < kParts; ++i) {
    Blocks& part = part_of(reinterpret_cast<void*>(i * 64));
    const std::scoped_lock lock(part.mutex);
    for (const auto& [address, block] : part.by_address) all.push_back(block);
  }
  const Runs& excused = excused_runs();
  std::map<Callers, Left> left;
  for (const Block& block : all) {
    if (block.run <= run - runs || block.callers.empty()) continue;
    if (block.run == run && is_excused) continue;
    if (std::find(excused.begin(), excused.end(), block.run) != excused.end()) continue;
    Left& of = left[{block.callers.begin(), block.callers.end()}];
    of.in_runs.insert(block.run);
    ++of.count;
    of.bytes += block.size;
  }
  std::string out;
  for (const auto& [callers, of] : left)
    if (of.in_runs.size() >= static_cast<size_t>(least))
      out += "\n  " + std::to_string(of.count) + " blocks, " + std::to_string(of.bytes) +
             " bytes, asked for by" + named(callers);
  return out;
}

}  // namespace etr::failing::heap

using namespace etr::failing::heap;

#define CALLER __builtin_return_address(0)
#define ALIGNMENT static_cast<size_t>(alignment)
// Not inlined: the compiler would see new without its delete. NOLINTBEGIN
#define OPERATOR [[gnu::noinline]] void
#pragma GCC visibility push(default)  // so that shared libraries call them
OPERATOR* operator new(size_t n) { return allocate_or_throw(n, 0, CALLER); }
OPERATOR* operator new[](size_t n) { return allocate_or_throw(n, 0, CALLER); }
OPERATOR* operator new(size_t n, std::align_val_t alignment) {
  return allocate_or_throw(n, ALIGNMENT, CALLER);
}
OPERATOR* operator new[](size_t n, std::align_val_t alignment) {
  return allocate_or_throw(n, ALIGNMENT, CALLER);
}
OPERATOR* operator new(size_t n, const std::nothrow_t&) noexcept {
  return allocate_new(n, 0, CALLER);
}
OPERATOR* operator new[](size_t n, const std::nothrow_t&) noexcept {
  return allocate_new(n, 0, CALLER);
}
OPERATOR operator delete(void* p) noexcept { release(p); }
OPERATOR operator delete[](void* p) noexcept { release(p); }
OPERATOR operator delete(void* p, size_t) noexcept { release(p); }
OPERATOR operator delete[](void* p, size_t) noexcept { release(p); }
OPERATOR operator delete(void* p, std::align_val_t) noexcept { release(p); }
OPERATOR operator delete[](void* p, std::align_val_t) noexcept { release(p); }
OPERATOR operator delete(void* p, size_t, std::align_val_t) noexcept { release(p); }
OPERATOR operator delete[](void* p, size_t, std::align_val_t) noexcept { release(p); }

extern "C" {

OPERATOR* malloc(size_t n) noexcept {
  return allocate(n, CALLER, [&] { return __libc_malloc(n); });
}

OPERATOR* calloc(size_t count, size_t n) noexcept {
  return allocate(count * n, CALLER, [&] { return __libc_calloc(count, n); });
}

OPERATOR* realloc(void* p, size_t n) noexcept {
  return allocate(n, CALLER, [&] {
    forget(p);  // before the memory may be another thread's
    void* const longer = __libc_realloc(p, n);
    if (!longer && n > 0 && p) note(p, 0);
    return longer;
  });
}

OPERATOR* aligned_alloc(size_t alignment, size_t n) noexcept {
  return allocate(n, CALLER, [&] { return __libc_memalign(alignment, n); });
}

OPERATOR* memalign(size_t alignment, size_t n) noexcept {
  return allocate(n, CALLER, [&] { return __libc_memalign(alignment, n); });
}

[[gnu::noinline]] int posix_memalign(void** p, size_t alignment, size_t n) noexcept {
  void* const block = allocate(n, CALLER, [&] { return __libc_memalign(alignment, n); });
  if (!block) return ENOMEM;
  *p = block;
  return 0;
}

OPERATOR free(void* p) noexcept { release(p); }

[[gnu::noinline]] char* strdup(const char* text) noexcept {
  const size_t n = std::strlen(text) + 1;
  void* const copy = allocate(n, CALLER, [&] { return __libc_malloc(n); });
  return copy ? static_cast<char*>(std::memcpy(copy, text, n)) : nullptr;
}

OPERATOR* scalable_malloc(size_t n) {
  static auto* const call = etr::test::real<void*(size_t)>("scalable_malloc");
  return allocate(n, CALLER, [&] { return call(n); });
}

OPERATOR scalable_free(void* p) {
  static auto* const call = etr::test::real<void(void*)>("scalable_free");
  forget(p);
  call(p);
}

}  // extern "C"
#pragma GCC visibility pop
// NOLINTEND
