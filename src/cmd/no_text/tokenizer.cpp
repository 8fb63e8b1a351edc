// cmd/no_text/tokenizer.cpp: stands in where the room text is not built.
#include "text/tokenizer.h"

#include "base/error.h"

namespace weft {

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder) {
  throw UserError("this build has no tokenizers, which " + folder.string() + " needs");
}

}  // namespace weft
