// comm/no_gloo/gloo.cpp: the stub where the build lacks Gloo.
#include "comm/gloo/gloo.h"

#include "base/error.h"

namespace weft {

bool has_gloo() { return false; }

std::unique_ptr<Comm> make_gloo_comm(const GlooOptions&) {
  throw UserError("this build of weft lacks Gloo, which runs on several machines need",
                  "install libgloo-dev (tools/setup.sh build) and build again with WEFT_GLOO=ON");
}

}  // namespace weft
