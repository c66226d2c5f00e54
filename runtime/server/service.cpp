#include "server/service.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "server/message.h"

namespace etr::server {
namespace {

constexpr uint64_t kMostNumbers = uint64_t{1} << 40;  // beyond which a message is damaged

class Service {
 public:
  Service(Shard& shard, exchange::Group& pair, int number, int shards)
      : shard_(shard), pair_(pair), number_(number), shards_(shards) {}
  ~Service() {
    if (ticket_) shard_.leave(*ticket_, finished_);
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // "worker 3, whose 17 updates were applied"
  std::string worker() const {
    if (!ticket_) return "a worker that has not said its name";
    return cat("worker ", shard_.number(*ticket_), ", whose ", applied_, " updates were applied");
  }

  void run() {
    while (!finished_) {
      const Message asked = receive(pair_, kWorkerRank, kRequestTag);
      try {
        answer(asked);
      } catch (const exchange::RankLost&) {
        throw;
      } catch (const std::exception& error) {
        refuse(error.what());
      }
    }
  }

 private:
  void answer(const Message& asked) {
    if (!ticket_ && asked.kind != Kind::hello)
      fail(Code::invalid_argument, "a worker begins with its name");
    switch (asked.kind) {
      case Kind::hello: return welcome(asked);
      case Kind::ready: return ready(asked);
      case Kind::begin: return begin(asked);
      case Kind::push: return push(asked);
      case Kind::average: return average(asked);
      case Kind::fetch:
        wait_turn();
        shard_.copy_weights(numbers_);
        done();
        return send_numbers(pair_, kWorkerRank, numbers_);
      case Kind::state:
        shard_.copy_state(numbers_);
        done();
        return send_numbers(pair_, kWorkerRank, numbers_);
      case Kind::tables: return declare_tables(asked);
      case Kind::rows: return give_rows(asked);
      case Kind::put: return put_rows(asked);
      case Kind::take: return give_piece(asked);
      case Kind::gate: wait_turn(); return done();
      case Kind::here: return done();
      case Kind::leave:
        if (asked.ends) shard_.end_all();
        finished_ = true;
        return done();
      default: fail(Code::invalid_argument, "a request of an unknown kind");
    }
  }

  void welcome(const Message& asked) {
    if (ticket_) fail(Code::invalid_argument, "a worker says its name once");
    if (asked.version != Message{}.version)
      fail(Code::unsupported, "the worker speaks version ", asked.version,
           " of the protocol, and this shard version ", Message{}.version,
           ": run the same version of EchoTrain on all machines");
    if (asked.count != static_cast<uint64_t>(shards_))
      fail(Code::invalid_argument, "the worker has parallel.servers ", asked.count,
           ", and this shard ", shards_, ": run the same job on all of them");
    ticket_ = shard_.join(asked.number);
    done();
  }

  uint64_t slice(const Message& asked) const {
    return slice_of(asked.count, number_, shards_).count;
  }

  void check_model(const Message& asked) const {
    if (shard_.size() != slice(asked))
      fail(Code::invalid_argument, "this worker's model has ", asked.count,
           " parameters, and the one that is trained here has another number: run the same job on "
           "all workers");
    if (shard_.table_count() && !has_tables_)
      fail(Code::invalid_argument,
           "this worker's model has no sparse tables, and the one that is trained here has ",
           shard_.table_count(), ": run the same job on all workers");
  }

  // As long as somebody is here who may begin, however long that takes.
  void ready(const Message& asked) {
    auto last_seen = std::chrono::steady_clock::now();
    while (true) {
      switch (shard_.wait_beginning(*ticket_, patience(), !asked.waits)) {
        case Shard::Beginning::there: check_model(asked); return done();
        case Shard::Beginning::yours: return send_answer(Kind::yours);
        case Shard::Beginning::not_yet: break;
      }
      const auto now = std::chrono::steady_clock::now();
      if (shard_.has_beginner()) last_seen = now;
      if (now - last_seen >= clock_duration(pair_.timeout()))
        fail(Code::state,
             "the run is to go on from a checkpoint, and the first worker (number 0), which has "
             "it, has "
             "not come or has ended, for ",
             pair_.timeout(), " s: start it, and look at what it said");
      send_answer(Kind::wait);
    }
  }

  // Its memory is taken when the worker's numbers are on their way.
  void begin(const Message& asked) {
    const uint64_t count = slice(asked);
    if (count > kMostNumbers)
      fail(Code::invalid_argument, "a model of ", asked.count, " parameters");
    numbers_.resize(2 * count);
    receive_numbers(pair_, kWorkerRank, numbers_);
    const uint64_t first = slice_of(asked.count, number_, shards_).begin;
    const std::span all(numbers_);
    shard_.begin(all.first(count), all.last(count),
                 asked.decayed > first ? std::min(asked.decayed - first, count) : 0);
    done();
  }

  void push(const Message& asked) {
    numbers_.resize(shard_.size());
    receive_numbers(pair_, kWorkerRank, numbers_);
    receive_rows(asked);
    applied_ = shard_.push(*ticket_, numbers_, asked.rate, {words_, row_numbers_});
    done();
  }

  void receive_rows(const Message& asked) {
    if (asked.words > kMostNumbers || asked.numbers > kMostNumbers)
      fail(Code::invalid_argument, "a message of ", asked.words, " words and ", asked.numbers,
           " numbers");
    words_.resize(asked.words);
    receive_words(pair_, kWorkerRank, std::span(words_));
    row_numbers_.resize(asked.numbers);
    receive_numbers(pair_, kWorkerRank, row_numbers_);
  }

  void declare_tables(const Message& asked) {
    std::vector<TableSpec> specs(asked.count);
    receive_words(pair_, kWorkerRank, std::span(specs));
    shard_.declare_tables(specs, number_, shards_);
    has_tables_ = true;
    done();
  }

  void give_rows(const Message& asked) {
    receive_rows(asked);
    shard_.read_rows(words_, row_numbers_);
    done();
    send_numbers(pair_, kWorkerRank, row_numbers_);
  }

  void put_rows(const Message& asked) {
    receive_rows(asked);
    const auto half = row_numbers_.begin() + static_cast<ptrdiff_t>(row_numbers_.size() / 2);
    const Rows rows{words_, {row_numbers_.begin(), half}, {half, row_numbers_.end()}};
    shard_.put_rows(asked.count, rows);
    done();
  }

  void give_piece(const Message& asked) {
    const Rows rows = shard_.piece_of_rows(asked.count, asked.words);
    Message answer = answer_of(Kind::done);
    answer.words = rows.ids.size();
    answer.numbers = rows.state.size();
    send(pair_, kWorkerRank, kAnswerTag, answer);
    send_words(pair_, kWorkerRank, std::span<const uint32_t>(rows.ids));
    send_numbers(pair_, kWorkerRank, rows.values);
    send_numbers(pair_, kWorkerRank, rows.state);
  }

  void average(const Message& asked) {
    numbers_.resize(shard_.size());
    receive_numbers(pair_, kWorkerRank, numbers_);
    applied_ = shard_.average(*ticket_, numbers_, asked.rate);
    done();
    send_numbers(pair_, kWorkerRank, numbers_);
  }

  void wait_turn() {
    shard_.start(*ticket_);
    while (!shard_.wait_turn(*ticket_, patience())) send_answer(Kind::wait);
  }

  double patience() const { return pair_.timeout() / 4; }

  void done() { send_answer(Kind::done); }

  Message answer_of(Kind kind) const {
    Message message;
    message.kind = kind;
    message.number = ticket_ ? shard_.number(*ticket_) : -1;
    message.applied = applied_;
    message.ends = shard_.ends();
    return message;
  }

  void send_answer(Kind kind, uint64_t count = 0) {
    Message message = answer_of(kind);
    message.count = count;
    send(pair_, kWorkerRank, kAnswerTag, message);
  }

  void refuse(const std::string& why) {
    const std::string text = why.substr(0, kMostText);
    send_answer(Kind::refused, text.size());
    pair_.send(std::as_bytes(std::span(text.data(), text.size())), kWorkerRank, kTextTag);
  }

  Shard& shard_;
  exchange::Group& pair_;
  const int number_, shards_;
  std::optional<Shard::Ticket> ticket_;
  uint64_t applied_ = 0;
  bool finished_ = false;
  std::vector<float> numbers_, row_numbers_;
  std::vector<uint32_t> words_;
  bool has_tables_ = false;
};

}  // namespace

void serve_worker(Shard& shard, exchange::Group& pair, int number_of_shard, int shards) {
  Service service(shard, pair, number_of_shard, shards);
  try {
    service.run();
  } catch (const exchange::RankLost& lost) {
    throw exchange::RankLost(cat(service.worker(), ": ", lost.what()), lost.missing());
  }
}

}  // namespace etr::server
