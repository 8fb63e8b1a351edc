// io/no_arrow/object_store.cpp: a build without Arrow stores runs in folders only.
#include "io/object_store.h"

namespace weft {

std::unique_ptr<ObjectStore> open_object_store(const std::string& address) {
  throw UserError(fmt::format("storage {}: this build stores runs in folders only", address),
                  "build with -DWEFT_ARROW=ON, or set storage to a folder");
}

}  // namespace weft
