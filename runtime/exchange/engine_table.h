// Builds an engine's function table from a class that has the functions as members.
#pragma once

#include <echotrain/engine.h>

#include <algorithm>
#include <cstring>

#include "exchange/failure.h"
#include "exchange/numbers.h"

namespace etr::exchange {

// Copies `table` to a table of to->struct_size bytes, whose owner may have been compiled with
// another version of the header.
inline void hand_over(const etr_engine& table, etr_engine* to) {
  const uint32_t size = std::min<uint32_t>(to->struct_size, sizeof table);
  std::memcpy(to, &table, size);
  to->struct_size = size;
}

// Returns a table that owns `engine`. The member functions take the arguments of the table's
// functions, without context and error, and throw on failure. `Engine` has rank(), size(), and
// split(colour, key, timeout_s), which returns a new Engine*, or nullptr for a rank that is in no
// group. It may have allocate(size_bytes), which returns void*, and release(memory).
template <typename Engine>
etr_engine table_of(Engine* engine) {
  static constexpr auto self = [](void* context) -> Engine& {
    return *static_cast<Engine*>(context);
  };
  etr_engine table{};
  table.struct_size = sizeof table;
  table.rank = engine->rank();
  table.size = engine->size();
  table.context = engine;
  table.all_reduce = [](void* c, void* data, uint64_t count, int32_t number, int32_t reduction,
                        double timeout, etr_engine_error* error) {
    return guarded(error, [&] {
      self(c).all_reduce(data, count, Number{number}, Reduction{reduction}, timeout);
    });
  };
  table.reduce_scatter = [](void* c, const void* data, const uint64_t* counts, void* part,
                            int32_t number, int32_t reduction, double timeout,
                            etr_engine_error* error) {
    return guarded(error, [&] {
      self(c).reduce_scatter(data, counts, part, Number{number}, Reduction{reduction}, timeout);
    });
  };
  table.all_gather = [](void* c, const void* part, const uint64_t* sizes, void* data,
                        double timeout, etr_engine_error* error) {
    return guarded(error, [&] { self(c).all_gather(part, sizes, data, timeout); });
  };
  table.broadcast = [](void* c, void* data, uint64_t size, int32_t root, double timeout,
                       etr_engine_error* error) {
    return guarded(error, [&] { self(c).broadcast(data, size, root, timeout); });
  };
  table.barrier = [](void* c, double timeout, etr_engine_error* error) {
    return guarded(error, [&] { self(c).barrier(timeout); });
  };
  table.send = [](void* c, const void* data, uint64_t size, int32_t to, uint32_t tag,
                  double timeout, etr_engine_error* error) {
    return guarded(error, [&] { self(c).send(data, size, to, tag, timeout); });
  };
  table.receive = [](void* c, void* data, uint64_t size, int32_t from, uint32_t tag, double timeout,
                     etr_engine_error* error) {
    return guarded(error, [&] { self(c).receive(data, size, from, tag, timeout); });
  };
  table.split = [](void* c, int32_t colour, int32_t key, double timeout, etr_engine* part,
                   etr_engine_error* error) {
    return guarded(error, [&] {
      Engine* const made = self(c).split(colour, key, timeout);
      hand_over(made ? table_of(made) : etr_engine{sizeof(etr_engine)}, part);
    });
  };
  table.abort = [](void* c, const char* reason) {
    etr_engine_error ignored{};
    guarded(&ignored, [&] { self(c).abort(reason ? reason : ""); });
  };
  table.destroy = [](void* c) { delete static_cast<Engine*>(c); };
  if constexpr (requires { engine->release(engine->allocate(1)); }) {
    table.allocate = [](void* c, uint64_t size, void** memory, etr_engine_error* error) {
      return guarded(error, [&] { *memory = self(c).allocate(size); });
    };
    table.release = [](void* c, void* memory) { self(c).release(memory); };
  }
  return table;
}

}  // namespace etr::exchange
