// checkpoint/model_files.h: model.path may be a checkpoint folder of another training program.
#pragma once

namespace weft {

// From here on HfFolder reads the weights of DeepSpeed's and torch.distributed.checkpoint's folders
// too (checkpoint/foreign.h), where config.json is in the folder or above it.
void read_models_of_others();

}  // namespace weft
