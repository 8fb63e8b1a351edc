# The CUDA backend: compiler, libraries, architectures. Included where WEFT_CUDA is on.
# Machine code for every supported generation, and PTX of the newest for future ones. For 9.0 it is
# that of 90a, which has wgmma (kernel/cuda/wgmma.h); PTX of 90a would run nowhere else.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90a-real 90-virtual)
endif()
list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "^90(-real)?$" "90a-real")
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()

# Headers of cuDNN and NCCL (the libraries are loaded when they are needed): CUDA's own folder, the
# system's, then those of NVIDIA's Python packages.
execute_process(COMMAND python3 -c "import importlib.util as u; s = u.find_spec('nvidia'); print(*(s.submodule_search_locations if s else []), sep=';')"
  OUTPUT_VARIABLE weft_nvidia_folders OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(weft_cudnn_folders ${weft_nvidia_folders})
list(TRANSFORM weft_cudnn_folders APPEND /cudnn)
set(weft_nccl_folders ${weft_nvidia_folders})
list(TRANSFORM weft_nccl_folders APPEND /nccl)
find_path(WEFT_CUDNN_HEADERS cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS}
  PATHS ${weft_cudnn_folders} PATH_SUFFIXES include)
# The frontend's headers: where tools/setup.sh cuda has put them, or a folder given by hand.
if(NOT WEFT_CUDNN_FRONTEND)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/setup.sh cudnn-folder
    OUTPUT_VARIABLE WEFT_CUDNN_FRONTEND OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(WEFT_CUDNN_HEADERS AND EXISTS "${WEFT_CUDNN_FRONTEND}/cudnn_frontend.h")
  set(weft_cudnn_found ON)
else()
  set(weft_cudnn_found OFF)
endif()
option(WEFT_CUDNN "attention of cuDNN where supported; without it the built-in kernel" ${weft_cudnn_found})
if(WEFT_CUDNN AND NOT weft_cudnn_found)
  message(FATAL_ERROR "WEFT_CUDNN needs cuDNN and the headers of its frontend: "
    "run tools/setup.sh cuda, or name the folder of cudnn_frontend.h with -DWEFT_CUDNN_FRONTEND=")
endif()
message(STATUS "attention of cuDNN: ${WEFT_CUDNN} (frontend: ${WEFT_CUDNN_FRONTEND})")

find_path(WEFT_NCCL_HEADERS nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS}
  PATHS ${weft_nccl_folders} PATH_SUFFIXES include)

# The runtime is linked statically and the other libraries are loaded when they are needed: the program
# also starts where there is no CUDA. They are looked for in this CUDA's folder too.
add_library(weft_gpu INTERFACE)
target_link_libraries(weft_gpu INTERFACE CUDA::cudart_static)
target_link_options(weft_gpu INTERFACE "LINKER:-rpath,${CUDAToolkit_LIBRARY_DIR}")
