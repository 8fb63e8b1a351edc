# Toolchain file: builds for x86_64 on another machine (Debian's g++-x86-64-linux-gnu), and runs
# the tests under qemu, which knows AVX2 but neither AVX-512 nor AMX.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER x86_64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-x86_64-static;-cpu;max)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
