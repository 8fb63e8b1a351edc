# The CUDA back end: compiler, libraries, architectures. Included where WEFT_CUDA is on.
# Machine code for every generation that is served, and PTX of the newest for those to come.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90)
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)

find_library(WEFT_CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib)
find_path(WEFT_CUDNN_HEADERS cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_path(WEFT_NCCL_HEADERS nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})

add_library(weft_gpu INTERFACE)
target_link_libraries(weft_gpu INTERFACE CUDA::cudart)
