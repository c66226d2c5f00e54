#include "sources/indexed_source.h"

#include "core/json.h"
#include "sources/data_files.h"

namespace etr::sources {

Json IndexedSource::data() {
  const uint64_t records = count();
  Json out = describe_files(paths(), !file_a_record());
  out["records"] = records;
  describe(out);
  return out;
}

Json IndexedSource::changed() {
  count();
  return file_a_record() ? Json(nullptr) : times_of(paths());
}

}  // namespace etr::sources
