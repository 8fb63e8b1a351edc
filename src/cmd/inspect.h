// cmd/inspect.h: what a path holds, as a JSON object; its keys in the order of the printed lines.
#pragma once

#include <filesystem>

#include "base/json.h"

namespace weft {

Json inspect_model(const std::string& path);                  // checkpoint, folder, file
Json inspect_tokenizer(const std::filesystem::path& folder);  // tokenizer files alone
Json inspect_rows(const std::filesystem::path& file);         // rows and columns

}  // namespace weft
