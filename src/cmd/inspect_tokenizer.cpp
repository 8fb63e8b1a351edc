// cmd/inspect_tokenizer.cpp: a folder with tokenizer files alone.
#include "cmd/inspect.h"
#include "text/tokenizer.h"

namespace weft {

Json inspect_tokenizer(const std::filesystem::path& folder) {
  const auto tokenizer = load_tokenizer(folder);
  Json out;
  out.set("kind", "tokenizer");
  out.set("path", folder.string());
  out.set("description", tokenizer->describe());
  out.set("num_ids", tokenizer->num_ids());
  for (const auto& [key, id] : {std::pair{"eos_id", tokenizer->eos_id()},
                                {"bos_id", tokenizer->bos_id()},
                                {"pad_id", tokenizer->pad_id()}}) {
    if (id) out.set(key, *id);
  }
  return out;
}

}  // namespace weft
