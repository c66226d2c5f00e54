// The raw bytes of a file, in pieces. Compressed files are not decompressed.
#pragma once

#include <memory>

#include "core/memory.h"
#include "core/platform_files.h"
#include "io/byte_stream.h"

namespace etr::io {

class Pieces {
 public:
  virtual ~Pieces() = default;
  virtual Block next() = 0;  // empty at the end; valid until the next call
  virtual uint64_t holds_bytes() const { return 0; }  // see ByteStream
};

// The pieces of a local file.
class FilePieces final : public Pieces {
 public:
  explicit FilePieces(std::unique_ptr<platform::InputFile> file) : file_(std::move(file)) {}

  Block next() override {
    const size_t size = file_->read({block_.get(), kBlockBytes});
    file_->require_unchanged();
    return {block_, size};
  }

 private:
  static constexpr size_t kBlockBytes = size_t{128} << 10;

  const std::unique_ptr<platform::InputFile> file_;
  const std::shared_ptr<std::byte> block_ = allocate_bytes(kBlockBytes);
};

}  // namespace etr::io
