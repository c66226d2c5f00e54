// What every use of zstd needs: running out of memory is not an error of the data.
#pragma once

#include <zstd.h>
#include <zstd_errors.h>

#include <memory>
#include <new>

namespace etr {

// Returns what a call of zstd has returned. Throws std::bad_alloc if it failed for lack of memory.
inline size_t zstd_result(size_t result) {
  if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation) throw std::bad_alloc();
  return result;
}

using ZstdCompressor = std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)>;

// Throws std::bad_alloc.
inline ZstdCompressor zstd_compressor(int level) {
  ZstdCompressor out(ZSTD_createCCtx(), ZSTD_freeCCtx);
  if (!out) throw std::bad_alloc();
  ZSTD_CCtx_setParameter(out.get(), ZSTD_c_compressionLevel, level);
  return out;
}

}  // namespace etr
