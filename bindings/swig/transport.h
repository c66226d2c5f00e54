// A transport of the program for languages other than C++: one function that receives every call.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "echotrain/echotrain.hpp"
#include "hooks.h"

namespace echotrain::facade {

class Transport;

// A call of a function of echotrain/engine.h. It and the memory that it refers to are valid during
// Transport::run() only.
class TransportCall {
 public:
  enum Operation {
    all_reduce,
    reduce_scatter,
    all_gather,
    broadcast,
    barrier,
    send,
    receive,
    split,
    abort,
    close  // the last call: waits until the other ranks have what this one sent
  };
#ifndef SWIG
  struct Fields {
    Operation operation;
    double timeout_s = 0;
    const void* input = nullptr;  // same as the output for all_reduce and broadcast
    uint64_t input_bytes = 0;
    void* output = nullptr;
    uint64_t output_bytes = 0;
    int number = 0, reduction = 0;
    int peer = 0, tag = 0;  // peer: the root, or the other end of a message
    int colour = 0, key = 0;
    std::vector<long long> parts = {};  // of all ranks: counts, or sizes in bytes
    std::string reason = {};            // for abort
  };
  explicit TransportCall(Fields fields) : fields_(std::move(fields)) {}
  TransportCall(const TransportCall&) = delete;
  TransportCall& operator=(const TransportCall&) = delete;
#endif

  int operation() const { return fields_.operation; }
  double timeout() const { return fields_.timeout_s; }
  uint64_t input() const { return reinterpret_cast<uint64_t>(fields_.input); }
  int64_t input_bytes() const { return static_cast<int64_t>(fields_.input_bytes); }
  uint64_t output() const { return reinterpret_cast<uint64_t>(fields_.output); }
  int64_t output_bytes() const { return static_cast<int64_t>(fields_.output_bytes); }
  int number() const { return fields_.number; }        // ETR_NUMBER_*
  int reduction() const { return fields_.reduction; }  // ETR_REDUCE_*
  int peer() const { return fields_.peer; }
  int tag() const { return fields_.tag; }
  int colour() const { return fields_.colour; }
  int key() const { return fields_.key; }
  std::vector<long long> parts() const { return fields_.parts; }
  std::string reason() const { return fields_.reason; }

  // Reports that the call failed, with a status of echotrain.h and the missing ranks.
  void fail(int status, const std::string& message, const std::vector<long long>& missing) {
    status_ = status;
    message_ = message;
    missing_.assign(missing.begin(), missing.end());
  }
  // Sets the result of a split, and takes ownership of it.
  void give(int rank, int size, Transport* part);

#ifndef SWIG
  std::unique_ptr<echotrain::Transport> take_part() { return std::move(part_); }
  void check() const {
    if (status_ == ETR_RANK_LOST) throw RankLost(message_, missing_);
    if (status_ != ETR_OK) throw Error(status_, message_);
  }
#endif

 private:
  const Fields fields_;
  int status_ = ETR_OK;
  std::string message_;
  std::vector<int32_t> missing_;
  std::unique_ptr<echotrain::Transport> part_;
};

// Each language derives from it. It receives one call at a time, except for abort.
class Transport {
 public:
  virtual ~Transport() = default;
  // Performs `call`, or reports the failure with call.fail(). It must not throw.
  virtual void run(TransportCall& call) = 0;
};

#ifndef SWIG
// Adapts the language's transport to the library's interface.
class LentTransport : public echotrain::Transport {
 public:
  LentTransport(int rank, int size, facade::Transport* owned)
      : rank_(rank), size_(size), to_(owned) {}
  ~LentTransport() override {
    try {
      call({TransportCall::close});
    } catch (const std::exception&) {  // nobody is left to report it to
    }
  }
  int32_t rank() const override { return rank_; }
  int32_t size() const override { return size_; }

  void all_reduce(void* data, uint64_t count, int32_t number, int32_t reduction,
                  double timeout_s) override {
    const uint64_t bytes = count * number_bytes(number);
    TransportCall::Fields fields = in_place(TransportCall::all_reduce, data, bytes, timeout_s);
    fields.number = number;
    fields.reduction = reduction;
    call(std::move(fields));
  }
  void reduce_scatter(const void* data, const uint64_t* counts, void* part, int32_t number,
                      int32_t reduction, double timeout_s) override {
    const uint64_t one = number_bytes(number);
    TransportCall::Fields fields{TransportCall::reduce_scatter, timeout_s};
    fields.input = data;
    fields.input_bytes = one * total(counts);
    fields.output = part;
    fields.output_bytes = one * counts[rank_];
    fields.number = number;
    fields.reduction = reduction;
    fields.parts = parts(counts);
    call(std::move(fields));
  }
  void all_gather(const void* part, const uint64_t* sizes, void* data, double timeout_s) override {
    TransportCall::Fields fields{TransportCall::all_gather, timeout_s};
    fields.input = part;
    fields.input_bytes = sizes[rank_];
    fields.output = data;
    fields.output_bytes = total(sizes);
    fields.parts = parts(sizes);
    call(std::move(fields));
  }
  void broadcast(void* data, uint64_t size_bytes, int32_t root, double timeout_s) override {
    TransportCall::Fields fields = in_place(TransportCall::broadcast, data, size_bytes, timeout_s);
    fields.peer = root;
    call(std::move(fields));
  }
  void barrier(double timeout_s) override { call({TransportCall::barrier, timeout_s}); }
  void send(const void* data, uint64_t size_bytes, int32_t to, uint32_t tag,
            double timeout_s) override {
    TransportCall::Fields fields{TransportCall::send, timeout_s};
    fields.input = data;
    fields.input_bytes = size_bytes;
    fields.peer = to;
    fields.tag = static_cast<int>(tag);
    call(std::move(fields));
  }
  void receive(void* data, uint64_t size_bytes, int32_t from, uint32_t tag,
               double timeout_s) override {
    TransportCall::Fields fields{TransportCall::receive, timeout_s};
    fields.output = data;
    fields.output_bytes = size_bytes;
    fields.peer = from;
    fields.tag = static_cast<int>(tag);
    call(std::move(fields));
  }
  std::unique_ptr<echotrain::Transport> split(int32_t colour, int32_t key,
                                              double timeout_s) override {
    TransportCall::Fields fields{TransportCall::split, timeout_s};
    fields.colour = colour;
    fields.key = key;
    return call(std::move(fields));
  }
  void abort(const std::string& reason) override {
    TransportCall::Fields fields{TransportCall::abort};
    fields.reason = reason;
    call(std::move(fields));
  }

 private:
  static TransportCall::Fields in_place(TransportCall::Operation operation, void* data,
                                        uint64_t size_bytes, double timeout_s) {
    TransportCall::Fields fields{operation, timeout_s};
    fields.input = fields.output = data;
    fields.input_bytes = fields.output_bytes = size_bytes;
    return fields;
  }
  static uint64_t number_bytes(int number) {
    const bool is_short = number == ETR_NUMBER_F16 || number == ETR_NUMBER_BF16;
    return number == ETR_NUMBER_F64 || number == ETR_NUMBER_I64 ? 8 : is_short ? 2 : 4;
  }
  uint64_t total(const uint64_t* parts) const {
    return std::accumulate(parts, parts + size_, uint64_t{0});
  }
  std::vector<long long> parts(const uint64_t* parts) const { return {parts, parts + size_}; }

  std::unique_ptr<echotrain::Transport> call(TransportCall::Fields fields) {
    TransportCall made(std::move(fields));
    if (hooks().before) hooks().before();
    to_->run(made);
    if (hooks().after) hooks().after();
    made.check();
    return made.take_part();
  }

  const int rank_, size_;
  const std::unique_ptr<facade::Transport> to_;
};
#endif

inline void TransportCall::give(int rank, int size, Transport* part) {
  part_ = std::make_unique<LentTransport>(rank, size, part);
}

}  // namespace echotrain::facade
